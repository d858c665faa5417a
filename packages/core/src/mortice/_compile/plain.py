"""The dispatch state in which graphs are traced and compiled: none of the caller's modes."""

from __future__ import annotations

from typing import Any

from mortice._dispatch.state import THREAD, refresh

_PLAIN: dict[str, Any] = {
    "grad_enabled": True,
    "inference": False,
    "included": 0,
    "excluded": 0,
    "function_modes": (),
    "dispatch_modes": (),
    "fake_modes": (),
    "subclasses_disabled": False,
    "functions_disabled": False,
    "saved_hooks": (),
    "anomaly": False,
    "autocast": {},
}


class plain_state:
    """Within, operators record history and nothing else that this thread had set is in force.

    A function is compiled wherever it happens to be called first or differentiated first: inside
    autocast, no_grad, a mode, or another compiled function. None of that is part of its graph,
    whose nodes say themselves what held for them.
    """

    def __enter__(self) -> None:
        self._before = {name: getattr(THREAD, name) for name in _PLAIN}
        for name, value in _PLAIN.items():
            setattr(THREAD, name, list(value) if value == () else value)
        THREAD.autocast = {}
        refresh()

    def __exit__(self, *exc: object) -> None:
        for name, value in self._before.items():
            setattr(THREAD, name, value)
        refresh()
