"""The conformance kit on the device."""

from __future__ import annotations

from mortice.testing.conformance import DeviceTests


class TestOpenCL(DeviceTests):
    device = "opencl"
    fallbacks = 19
