"""Random operators: their numbers are reserved when they are recorded, as eager draws them.

An operator with a generator argument gets, as an input of the graph, a generator that stands where
the numbers were reserved. Operators without one draw from the default generator when the segment
runs; it is put back to where they begin for that long, so their numbers must follow each other.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from mortice._capture import infer
from mortice._dispatch.operator import Operator
from mortice._tensor import generator as generators
from mortice._tensor.generator import Generator

#: Random operators without a generator argument.
WITHOUT_ARGUMENT = frozenset(
    ("rand_like", "randn_like", "randint_like", "randint_like.low_dtype", "native_dropout")
)


def reserved(op: Operator, position: int, args: Any) -> Generator:
    """A generator of its own, standing at the numbers that the call draws."""
    source = generators.chosen(args[position], infer.device_of(op, args))
    seed, offset = source.take()
    return source.standing_at(seed, offset)


class DefaultDraws:
    """What a segment draws from default generators without being given one."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        #: (generator, seed, first offset, count)
        self._found: tuple[Generator, int, int, int] | None = None

    @property
    def found(self) -> tuple[Generator, int, int, int] | None:
        """(generator, its seed, offset of the first draw, how many), if anything is drawn."""
        return self._found

    def fits(self, op: Operator, args: Any) -> bool:
        """Whether the numbers of a call would follow those drawn so far."""
        if self._found is None or not draws(op, args):
            return True
        source, seed, first, count = self._found
        now = generators.default(infer.device_of(op, args))
        return now is source and now.position() == (seed, first + count)

    def add(self, op: Operator, args: Any) -> None:
        source = generators.default(infer.device_of(op, args))
        seed, offset = source.take()
        if self._found is None:
            self._found = (source, seed, offset, 1)
        else:
            self._found = (*self._found[:3], self._found[3] + 1)

    def rewound(self) -> Any:
        """A context manager: within, the default generator gives the numbers that were reserved."""
        if self._found is None:
            return nullcontext()
        source, seed, first, _ = self._found
        return source.standing(seed, first)


def draws(op: Operator, args: Any) -> bool:
    """Whether a call draws from the default generator without being given one."""
    return op.name in WITHOUT_ARGUMENT and not (op.name == "native_dropout" and args[2] is False)
