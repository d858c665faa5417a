"""What holds for all tests of the repository."""

from __future__ import annotations

from importlib.util import find_spec

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
