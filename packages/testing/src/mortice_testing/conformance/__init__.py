"""The conformance kit: what every device has to do, as tests that its author runs.

In a test module of the device's package::

    from mortice.testing.conformance import DeviceTests

    class TestNpu(DeviceTests):
        device = "npu"

The tests ask for capabilities (``mortice.backend.Features``), never for names. An operator without a
kernel may decompose or fall back through the CPU; ``measure_all`` and ``mortice conformance npu`` say
how many do. ``fallbacks`` in the class is the largest number that is all right; None means any.
"""

import pytest

pytest.register_assert_rewrite("mortice_testing.conformance.suite")

from mortice_testing.conformance.cases import CASES, Inputs, cases  # noqa: E402
from mortice_testing.conformance.outcomes import Outcome, counts, measure, measure_all  # noqa: E402
from mortice_testing.conformance.suite import DeviceTests  # noqa: E402

__all__ = [
    "CASES",
    "DeviceTests",
    "Inputs",
    "Outcome",
    "cases",
    "counts",
    "measure",
    "measure_all",
]
