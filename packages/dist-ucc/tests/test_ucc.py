"""With a UCC: what every backend does, but messages from anyone; and nobody waits for the dead."""

from __future__ import annotations

import os

import pytest

from mortice.backend import Unavailable
from mortice_testing.distributed import faults, soak
from mortice_testing.distributed.conformance import DistributedConformance
from mortice_ucc import library

try:
    library.load()
    MISSING = ""
except Unavailable as reason:
    MISSING = reason.reason

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING or "there")


class TestUcc(DistributedConformance):
    backend = "ucc"
    lacks = ("recv_any",)


class TestUccOverTcp(DistributedConformance):
    """As between machines; otherwise UCC takes shared memory."""

    backend = "ucc"
    lacks = ("recv_any",)
    sizes = (3,)
    environment = {"UCX_TLS": "tcp,self"}


@pytest.mark.parametrize("fault", faults.FAULTS, ids=lambda fault: fault.name)
def test_fault(fault: faults.Fault) -> None:
    shared = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    outcome = faults.happen(fault, faults.gangs_of("ucc"))
    assert outcome.seconds < fault.limit, outcome
    for one in outcome.seen:
        assert one.operation, one
        assert f"on rank {one.rank}" in one.text, one
        if fault.ends and fault.victim:
            assert one.gone == (fault.victim,), one
    if os.path.isdir("/dev/shm"):
        assert set(os.listdir("/dev/shm")) <= shared


@pytest.mark.parametrize("seed", [1000, 1001])
def test_a_round_of_the_soak(seed: int) -> None:
    soak.play("ucc", seed)
