"""UCC does what every backend does, but messages from anyone; and callers do not wait for the dead."""

from __future__ import annotations

import pytest

from mortice.backend import Unavailable
from mortice_testing.distributed.conformance import DistributedConformance, DistributedFaults
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


class TestFaults(DistributedFaults):
    backend = "ucc"
