"""What stands for a gradient history that a compiled call has recorded and not made yet."""

from __future__ import annotations

from typing import Any


class PendingEdge:
    """The ``_g`` of a recorded tensor that requires grad, until its segment has run.

    It answers what is asked of edges before they are followed: that there is one, its number among
    a node's outputs, and how many outputs the node has.
    """

    __slots__ = ("_name", "number", "outputs")

    def __init__(self, name: str = "Recorded", number: int = 0, outputs: int = 1) -> None:
        self._name = name
        self.number = number
        self.outputs = outputs

    @property
    def node(self) -> PendingEdge:
        return self

    def name(self) -> str:
        return self._name


PENDING: Any = PendingEdge()


def edges_of_parts(operator: str, count: int) -> list[PendingEdge]:
    """Edges of the views that one operator makes several of."""
    words = "".join(w.capitalize() for w in operator.partition(".")[0].strip("_").split("_"))
    return [PendingEdge(f"{words}Backward0", i, count) for i in range(count)]
