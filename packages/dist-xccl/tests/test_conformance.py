"""oneCCL does what every backend does but messages; and callers do not wait for the dead."""

from __future__ import annotations

import pytest

from mortice.backend import Unavailable
from mortice_testing.distributed import faults
from mortice_testing.distributed.conformance import DistributedConformance
from mortice_xccl import library

try:
    library.load()
    MISSING = ""
except Unavailable as reason:
    MISSING = reason.reason


@pytest.mark.skipif(bool(MISSING), reason=MISSING or "there")
class TestXccl(DistributedConformance):
    backend = "xccl"
    lacks = ("messages", "recv_any")


FAULTS = [fault for fault in faults.FAULTS if fault.doing is not faults.message]


@pytest.mark.skipif(bool(MISSING), reason=MISSING or "there")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault(fault: faults.Fault) -> None:
    outcome = faults.happen(fault, faults.gangs_of("xccl"))
    for one in outcome.seen:
        assert one.operation, one
        if fault.ends and fault.victim:
            assert one.gone == (fault.victim,), one


def test_without_oneccl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_library", None)
    monkeypatch.setattr(library, "_NAME", "libnothing.so")
    with pytest.raises(Unavailable, match="pip install oneccl"):
        library.load()
