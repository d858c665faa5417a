"""Gloo does what every backend does, on 1 to 4 real processes, and where one of them is killed."""

from __future__ import annotations

from mortice_testing.distributed.conformance import DistributedConformance, DistributedFaults


class TestGloo(DistributedConformance):
    backend = "gloo"
    lacks = ("recv_any",)


class TestFaults(DistributedFaults):
    backend = "gloo"
