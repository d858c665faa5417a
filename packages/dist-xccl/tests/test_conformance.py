"""oneCCL does what every backend does but messages; and callers do not wait for the dead."""

from __future__ import annotations

import pytest

from mortice.backend import Unavailable
from mortice_testing.distributed.conformance import DistributedConformance, DistributedFaults
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


@pytest.mark.skipif(bool(MISSING), reason=MISSING or "there")
class TestFaults(DistributedFaults):
    backend = "xccl"
    lacks = ("messages", "broken_connections")


def test_without_oneccl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_library", None)
    monkeypatch.setattr(library, "_NAME", "libnothing.so")
    with pytest.raises(Unavailable, match="pip install oneccl"):
        library.load()
