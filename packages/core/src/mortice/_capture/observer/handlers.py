"""Every canonical instruction's handler, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mortice._capture.observer import handlers_blocks, handlers_build, handlers_data, handlers_flow

#: Handlers that see traced numbers on the stack; before any other they are settled.
AWARE = handlers_data.AWARE | handlers_blocks.AWARE | {handlers_flow.return_value}
#: name -> ``handler(frame, argument)``; it returns None, or the signal to leave the loop.
HANDLERS: Mapping[str, Callable[[Any, Any], Any]] = {
    f.__name__.rstrip("_"): f
    for module in (handlers_data, handlers_build, handlers_flow, handlers_blocks)
    for f in module.ALL
}

_RESOLVED: dict[int, tuple[Any, tuple[tuple[Any, Any, bool], ...]]] = {}


def resolved(decoded: Any) -> tuple[tuple[Any, Any, bool], ...]:
    """The instructions with handler functions in place of their names."""
    found = _RESOLVED.get(id(decoded))
    if found is None:
        found = (
            decoded,
            tuple(
                (HANDLERS[name], arg, HANDLERS[name] in AWARE) for name, arg in decoded.instructions
            ),
        )
        _RESOLVED[id(decoded)] = found
    return found[1]
