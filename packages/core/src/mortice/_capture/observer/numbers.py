"""Numbers that stay inputs: what Python only computes with, and hands to operators.

An ``int`` or ``float`` argument goes through the observed code as a ``Traced``. Arithmetic gives
another; an operator that takes it as one of its graph's numbers leaves it an input of the replay.
Whatever else looks at it settles it: it becomes the plain number, and its value a guard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mortice._capture.guards import Equals, Source
from mortice._dispatch.state import THREAD


class Given:
    """A number that is found at a source."""

    __slots__ = ("source",)

    def __init__(self, source: Source) -> None:
        self.source = source


class Computed:
    """``left symbol right`` of numbers; a plain number stands for itself."""

    __slots__ = ("left", "right", "symbol")

    def __init__(self, symbol: str, left: Any, right: Any) -> None:
        self.symbol = symbol
        self.left = left
        self.right = right


#: Operations that never raise on numbers, with how they are computed. Division is not among them.
ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}


class Traced:
    """A number in observed code, with where it comes from."""

    __slots__ = ("origin", "settled", "sources", "value")

    def __init__(self, value: Any, origin: Given | Computed, sources: Any) -> None:
        #: An object of its own, so that it is known again among a graph's numbers.
        self.value = value * 1.0 if type(value) is float else value
        self.origin = origin
        #: {id of a source: (source, the number there)} that the value follows from.
        self.sources: dict[int, tuple[Source, Any]] = sources
        self.settled = False


def traced(source: Source, value: Any) -> Traced:
    """A number that was found at a source, whose type is guarded already."""
    return Traced(value, Given(source), {id(source): (source, value)})


def is_traceable(value: Any) -> bool:
    return type(value) is float or type(value) is int


def settle(w: Any, x: Any) -> Any:
    """The plain number; its value is guarded from now on."""
    if type(x) is not Traced:
        return x
    if not x.settled:
        x.settled = True
        for source, value in x.sources.values():
            if w.once("settled", id(source)):
                w.guard(source, Equals(value))
    return x.value


def settled(w: Any, values: Sequence[Any]) -> list[Any]:
    return [settle(w, x) for x in values]


def compute(w: Any, symbol: str, a: Any, b: Any) -> Any:
    """Arithmetic on two numbers, one of them traced; None if it has to settle."""
    function = ARITHMETIC.get(symbol)
    if function is None or not all(type(x) is Traced or is_traceable(x) for x in (a, b)):
        return None
    left, right = _plain(a), _plain(b)
    try:
        value = function(left, right)
    except OverflowError:
        return None
    sources = {**_sources(a), **_sources(b)}
    return Traced(value, Computed(symbol, _origin(a), _origin(b)), sources)


def negate(x: Traced) -> Traced:
    return Traced(-x.value, Computed("*", -1, x.origin), x.sources)


def _plain(x: Any) -> Any:
    return x.value if type(x) is Traced else x


def _origin(x: Any) -> Any:
    return x.origin if type(x) is Traced else x


def _sources(x: Any) -> dict[int, Any]:
    return x.sources if type(x) is Traced else {}


def hand_over(w: Any, call: Callable[[Sequence[Any]], Any], values: Sequence[Any]) -> Any:
    """Call an operator with traced numbers among ``values``; they stay traced if the graph has them.

    They do if the call is recorded as one step whose numbers are these very objects.
    """
    recorder = THREAD.recorder
    plain = [_plain(x) for x in values]
    if recorder is None or recorder.trace is None:
        settled(w, values)
        return call(plain)
    before = recorder.flushes, len(recorder.numbers), recorder.at
    result = call(plain)
    flushes, count, step = before
    new = recorder.numbers[count:]
    whole = recorder.flushes == flushes and recorder.at.parent is step
    if whole and _belong(values, new):
        run = len(recorder.trace.runs)
        for i, number in enumerate(new):
            owner = next(x for x in values if _plain(x) is number)
            if type(owner) is Traced:
                w.number_sources[run, count + i] = owner
    else:
        settled(w, values)
    return result


def _belong(values: Sequence[Any], new: Sequence[Any]) -> bool:
    """Whether the graph's new numbers are among the values, each only once, and no traced is missing."""
    for number in new:
        if sum(_plain(x) is number for x in values) != 1:
            return False
    wanted = [x for x in values if type(x) is Traced]
    return all(any(x.value is number for number in new) for x in wanted)
