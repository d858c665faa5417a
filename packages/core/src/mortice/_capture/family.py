"""Graphs that differ in sizes alone: which of them fits a recorded path, and what changed.

An outline is a path without its sizes: they, the strides and the integer arguments that may follow
from sizes (schema type ``SymInt``) are listed beside it. Paths of one outline are a family; each
graph compiled for it says, for every place of that list, what must stand there: a number, or an
expression over symbols that sizes bind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mortice._capture.tree import Leaf, Slot, Step
from mortice._dispatch.keys import VIEW
from mortice._tensor.array import PendingArray
from mortice._types.dtypes import default as default_dtype


@dataclass(frozen=True)
class Spot:
    """Where an integer stands: a leaf's ``size`` or ``stride``, or a step's ``argument``.

    ``owner`` is the number of the leaf or of the step, ``place`` the dim, or the position of the
    argument and then within it.
    """

    kind: str
    owner: int
    place: tuple[int, ...]


class Outline:
    """A path without its integers (``key``), the integers, and where they stand."""

    def __init__(
        self, key: tuple[Any, ...], values: tuple[int, ...], steps: Sequence[Step] = ()
    ) -> None:
        self.key = key
        self.values = values
        self._steps = steps

    @cached_property
    def spots(self) -> tuple[Spot, ...]:
        """One for each of the values; only asked for where a graph is compiled."""
        return tuple(_spots(self._steps))


def outline(steps: Sequence[Step], wanted: Sequence[Slot], numbers: Sequence[Any]) -> Outline:
    """What tells a path from others, the same for every tree and thread. Made at each call of another
    size, so that it is written to be fast: 3 us for an operator.
    """
    values: list[int] = []
    places: dict[Any, Any] = {}
    parts: list[Any] = []
    for step in steps:
        leaves: list[Any] = []
        for leaf in step.new_leaves:
            places[leaf] = ("leaf", leaf.number)
            first = None if leaf.first is None else leaf.first.number
            leaves.append((leaf.key & ~VIEW, leaf.dtype, leaf.device, len(leaf.shape), first))
            values += leaf.shape
            values += leaf.steps
        for out in step.outputs:
            if out is not None:
                places[out] = places[out.handle] = ("made", out.number)
        call = step.call
        sizes = call.sizes
        wants: list[Any] = []
        for i, w in enumerate(step.wants):
            kind = type(w)
            if kind is PendingArray or kind is Leaf:
                wants.append(places[w])
            elif w is None or kind is bool:
                wants.append(w if w is None else (bool, w))
            else:
                wants.append(_want(w, i in sizes, places, values))
        parts.append((tuple(leaves), call.op.name, call.op, call.grad, tuple(wants)))
    kinds = tuple([type(x) for x in numbers])
    slots = tuple([places[cell] for cell in wanted])
    return Outline((*parts, kinds, slots, default_dtype.dtype), tuple(values), steps)


def _want(w: Any, sizes: bool, places: dict[Any, Any], values: list[int]) -> Any:
    """An operand as a part of the key; integers that may follow from sizes go to ``values``."""
    if isinstance(w, (tuple, list)):
        return tuple([_want(x, sizes, places, values) for x in w])  # pyright: ignore[reportUnknownVariableType]
    if type(w) is int and sizes:
        values.append(w)
        return int
    if isinstance(w, (int, float, complex, str)):
        return type(w), repr(w)
    return places.get(w, w)


def _spots(steps: Sequence[Step]) -> Iterator[Spot]:
    """Where the values of an outline stand, in its order."""
    for index, step in enumerate(steps):
        for leaf in step.new_leaves:
            for kind in ("size", "stride"):
                yield from (Spot(kind, leaf.number, (d,)) for d in range(len(leaf.shape)))
        for i, w in enumerate(step.wants):
            if i in step.call.sizes:
                yield from (Spot("argument", index, (i, *place)) for place in _integers(w))


def _integers(w: Any) -> Iterator[tuple[int, ...]]:
    """Where in an argument integers stand."""
    if type(w) is int:
        yield ()
    elif isinstance(w, (tuple, list)):
        for i, x in enumerate(w):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            yield from ((i, *place) for place in _integers(x))


class Variant:
    """One graph of a family.

    Attributes:
        segment: what was compiled.
        expected: for each spot a number, or a SymInt.
        guards: what else must hold of the symbols (``symbolic.Guard``).
        numbers: for each number that is an input its symbol, or None.
    """

    def __init__(
        self,
        segment: Any,
        expected: Sequence[Any],
        guards: Sequence[Any],
        numbers: Sequence[str | None],
    ) -> None:
        self.segment = segment
        self.expected = tuple(expected)
        named = {n for n in numbers if n is not None}
        self.guards = tuple(g for g in guards if not g.symbols & named)
        self._on_numbers = tuple(g for g in guards if g.symbols & named)
        self._numbers = tuple(numbers)
        self._symbols: dict[str, int] = {}
        self._computed: list[tuple[int, Any]] = []
        self._fixed: list[tuple[int, int]] = []
        for i, want in enumerate(self.expected):
            if type(want) is int:
                self._fixed.append((i, want))
            elif want.symbol is not None and want.symbol not in self._symbols:
                self._symbols[want.symbol] = i
            else:
                self._computed.append((i, want))

    @property
    def is_symbolic(self) -> bool:
        """Whether it is for more than one size."""
        return bool(self._symbols)

    def fits(self, values: Sequence[int]) -> bool:
        """Whether the graph is one for these integers. Of symbols it was taken for granted, and noted
        nowhere, that they are neither 0 nor 1.
        """
        if any(values[i] != want for i, want in self._fixed):
            return False
        bound = self._bound(values)
        if any(n < 2 for n in bound.values()):
            return False
        return all(values[i] == want.evaluate(bound) for i, want in self._computed) and all(
            guard.holds(bound) for guard in self.guards
        )

    def _bound(self, values: Sequence[int]) -> dict[str, Any]:
        return {name: values[i] for name, i in self._symbols.items()}

    def number_check(self, values: Sequence[int]) -> Callable[[Sequence[Any]], bool] | None:
        """What the graph asks of a call's numbers, where the integers are these; None if nothing."""
        asked = self._on_numbers
        if not asked:
            return None
        bound = self._bound(values)
        names = self._numbers

        def check(numbers: Sequence[Any]) -> bool:
            known = {**bound, **{n: x for n, x in zip(names, numbers) if n is not None}}
            return all(guard.holds(known) for guard in asked)

        return check


class Family:
    """The graphs of one outline, and the integers for which they were made."""

    def __init__(self) -> None:
        self.variants: list[Variant] = []
        self.samples: list[tuple[int, ...]] = []

    def find(self, values: Sequence[int], numbers: Sequence[Any]) -> Variant | None:
        for variant in self.variants:
            if variant.fits(values):
                check = variant.number_check(values)
                if check is None or check(numbers):
                    return variant
        return None
