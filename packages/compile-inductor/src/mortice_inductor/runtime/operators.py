"""Graphs that nothing compiles, or that a call does not fit."""

from __future__ import annotations

from typing import Any


class OperatorByOperator:
    """A graph run by the dispatcher, for any inputs."""

    def __init__(self, gm: Any) -> None:
        self.gm = gm

    @property
    def fast(self) -> Any:
        """Itself: there is no shorter way."""
        return self

    def code(self) -> str:
        """What is shown of it."""
        return "; the graph runs operator by operator"

    def fits(self, inputs: tuple[Any, ...]) -> bool:
        """True: the dispatcher looks at the inputs itself."""
        return True

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        return tuple(self.gm(*inputs))
