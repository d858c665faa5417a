"""What holds for all tests of the repository."""

from __future__ import annotations

import random
import signal
import sys
from importlib.util import find_spec

import pytest

# A background job ignores Ctrl-C, and so would its children, some of which are tested with it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

if find_spec("hypothesis") is not None:
    from hypothesis import HealthCheck, settings

    # The same examples on every machine, however slow: a run says something about a change, and
    # nothing about luck. Who looks for new failures runs with --hypothesis-profile=default.
    settings.register_profile(
        "mortice",
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("mortice")


@pytest.fixture(autouse=True)
def _the_same_random_numbers() -> None:
    """Let each test draw the same numbers in every run, whatever ran before it."""
    random.seed(0)
    mortice = sys.modules.get("mortice")  # the tests of mortice-llvm run without it
    if mortice is not None:
        mortice.manual_seed(0)
