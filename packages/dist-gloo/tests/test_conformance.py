"""Gloo does what every backend does, on 1 to 4 real processes."""

from __future__ import annotations

from mortice_testing.distributed.conformance import DistributedConformance


class TestGloo(DistributedConformance):
    backend = "gloo"
    lacks = ("recv_any",)
