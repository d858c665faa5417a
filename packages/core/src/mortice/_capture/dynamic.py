"""Which sizes of a graph become symbols, and how its integers follow from them.

Python runs on every call and gives every integer anew, so that a guess about where one came from
is safe: a graph is used only where all integers are what its expressions give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations_with_replacement
from typing import Any

from mortice._base.errors import ArgumentError, DimensionError
from mortice._capture.fake import symbolic_strides
from mortice._capture.family import Outline, Spot
from mortice._types.symbolic_env import ShapeEnv

#: Attribute of a tensor: dim -> whether its size is a symbol from the first call on.
_MARKS = "_dynamic_dims"
_DIVISORS = range(2, 9)


def mark_dynamic(tensor: Any, index: int | Sequence[int]) -> None:
    """Let the sizes of these dims be symbols from the first compiled call on.

    Sizes of 0 and 1 stay numbers. ArgumentError if it is no tensor, DimensionError if it has no
    such dim.
    """
    _mark(tensor, index, True)


def mark_static(tensor: Any, index: int | Sequence[int] | None = None) -> None:
    """Let the sizes of these dims (of all, if none are given) stay numbers: each compiles anew."""
    _mark(tensor, range(tensor.dim()) if index is None else index, False)


def _mark(tensor: Any, index: int | Iterable[int], dynamic: bool) -> None:
    if not hasattr(tensor, "_k"):
        raise ArgumentError(f"sizes of a tensor are marked, not of a {type(tensor).__name__}.")
    ndim = tensor.dim()
    for d in (index,) if isinstance(index, int) else index:
        if not -ndim <= d < ndim:
            raise DimensionError(f"the tensor has {ndim} dimensions, and none numbered {d}.")
        tensor.__dict__.setdefault(_MARKS, {})[d % ndim] = dynamic


class Symbols:
    """The symbolic sizes of a graph that is to be built.

    Attributes:
        env: where they live.
        sizes: (leaf, dim) -> SymInt. strides: leaf -> its strides, where they are not all numbers.
        arguments: (step, position, position within...) -> SymInt.
        expected: for each spot of the outline, a number or a SymInt.
    """

    def __init__(self) -> None:
        self.env = ShapeEnv()
        self.sizes: dict[tuple[int, int], Any] = {}
        self.strides: dict[int, tuple[Any, ...]] = {}
        self.arguments: dict[tuple[int, ...], Any] = {}
        self.expected: list[Any] = []

    @staticmethod
    def none(now: Outline) -> Symbols:
        """No symbols: the graph is for these integers alone."""
        found = Symbols()
        found.expected = list(now.values)
        return found


def symbols_for(
    now: Outline, samples: Sequence[tuple[int, ...]], dynamic: bool | None, leaves: Sequence[Any]
) -> Symbols:
    """Symbols for the sizes that changed since earlier calls, or that were asked for."""
    found = Symbols.none(now)
    if dynamic is False:
        return found
    places: list[int] = []
    for i, spot in enumerate(now.spots):
        if spot.kind == "size" and _is_dynamic(now.values[i], i, spot, samples, dynamic, leaves):
            size = found.env.size(now.values[i])
            if type(size) is not int:
                places.append(i)
                found.expected[i] = found.sizes[spot.owner, spot.place[0]] = size
    if places:
        _strides(found, now, leaves)
        _arguments(found, now, samples, places)
    return found


def _is_dynamic(
    value: int,
    i: int,
    spot: Spot,
    samples: Sequence[tuple[int, ...]],
    dynamic: bool | None,
    leaves: Sequence[Any],
) -> bool:
    if value < 2:
        return False
    marks = leaves[spot.owner].__dict__.get(_MARKS, {})
    marked = marks.get(spot.place[0])
    if marked is not None:
        return marked
    return bool(dynamic) or any(sample[i] != value for sample in samples)


def _strides(found: Symbols, now: Outline, leaves: Sequence[Any]) -> None:
    spots = [(i, s) for i, s in enumerate(now.spots) if s.kind == "stride"]
    for number, tensor in enumerate(leaves):
        hints = tuple(tensor._a.shape)
        shape = tuple(found.sizes.get((number, d), n) for d, n in enumerate(hints))
        if all(type(n) is int for n in shape):
            continue
        mine = [(i, s) for i, s in spots if s.owner == number]
        steps = symbolic_strides(hints, [now.values[i] for i, _ in mine], shape)
        found.strides[number] = steps
        for (i, _), step in zip(mine, steps):
            found.expected[i] = step


def _arguments(
    found: Symbols, now: Outline, samples: Sequence[tuple[int, ...]], places: Sequence[int]
) -> None:
    rows = [*samples, now.values]
    for i, spot in enumerate(now.spots):
        if spot.kind != "argument":
            continue
        column = [row[i] for row in rows]
        if samples and all(x == column[0] for x in column):
            continue  # it did not change when sizes did
        sizes = [([row[p] for row in rows], found.expected[p]) for p in places]
        expr = _explained(column, sizes)
        if expr is not None:
            found.expected[i] = found.arguments[(spot.owner, *spot.place)] = expr


Sizes = Sequence[tuple[Sequence[int], Any]]


def _explained(column: Sequence[int], sizes: Sizes) -> Any:
    """An expression over sizes that gives an integer in all calls seen; None if none is found."""
    for values, symbol in sizes:
        if list(values) == list(column):
            return symbol
    for (a, s), (b, t) in combinations_with_replacement(sizes, 2):
        if [x * y for x, y in zip(a, b)] == list(column) and s is not t:
            return s * t
    if len(column) < 2:
        return None  # one call explains too much
    for values, symbol in sizes:
        for guess in (_multiple, _shifted, _divided):
            expr = guess(column, values, symbol)
            if expr is not None:
                return expr
    for (a, s), (b, t) in combinations_with_replacement(sizes, 2):
        if s is not t:
            expr = _multiple(column, [x * y for x, y in zip(a, b)], s * t)
            if expr is not None:
                return expr
    return None


def _all(column: Sequence[int], values: Sequence[int], rule: Callable[[int], int]) -> bool:
    return all(x == rule(v) for x, v in zip(column, values))


def _multiple(column: Sequence[int], values: Sequence[int], symbol: Any) -> Any:
    factor, rest = divmod(column[-1], values[-1])
    if rest or not factor:
        return None
    return symbol * factor if _all(column, values, lambda v: v * factor) else None


def _shifted(column: Sequence[int], values: Sequence[int], symbol: Any) -> Any:
    by = column[-1] - values[-1]
    return symbol + by if _all(column, values, lambda v: v + by) else None


def _divided(column: Sequence[int], values: Sequence[int], symbol: Any) -> Any:
    for d in _DIVISORS:
        if _all(column, values, lambda v, d=d: v // d):
            return symbol // d
        if _all(column, values, lambda v, d=d: (v + d - 1) // d):
            return (symbol + (d - 1)) // d
        if _all(column, values, lambda v, d=d: v - v // d):
            return symbol - symbol // d
    return None
