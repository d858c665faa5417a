"""Makes templates: the passes run with symbolic integers in the place of sizes.

Arithmetic gives expressions. A question, whose answer decides what is made, is answered by the sizes at
hand and becomes a condition. So what comes out holds wherever the conditions do. A place that wants
a plain integer (``range``, ``float``) fixes the size: then they hold nowhere else.

A template must give, for the sizes at hand, the very plan and code that the passes make of the
numbers, or it is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mortice.fake import ShapeEnv, SymInt
from mortice.fx.symbols import is_symbolic
from mortice_llvm.runtime import cache as objects

from . import cache
from .codegen import driver as dr
from .inputs import known_numbers, values_of
from .pipeline import emitted
from .plan import Plan
from .settings import Settings
from .specs import Shape, Spec, TensorSpec
from .templates import NAMED, Template


class Sized(NamedTuple):
    """A graph's inputs with ``symbols`` as sizes; ``places`` as in ``Template``."""

    env: ShapeEnv
    specs: tuple[Spec, ...]
    numbers: Callable[[Any], Any]
    symbols: tuple[SymInt, ...]
    places: tuple[tuple[int, int], ...]

    def is_fixed(self) -> bool:
        """Whether the conditions so far leave every symbol one value."""
        ranges = (self.env.range_of(self.env.simplified(x.expr)) for x in self.symbols)
        return all(low == high for low, high in ranges)


class Planned(NamedTuple):
    """What the passes made of numbers: for inputs of these specs and this layout, which share memory
    as ``same`` says, a plan and the key of its code.
    """

    specs: tuple[Spec, ...]
    layout: Any
    same: tuple[Any, ...]
    plan: Plan
    code: bytes


def sized(gm: Any, inputs: Sequence[Any], at_hand: tuple[Spec, ...]) -> Sized | None:
    """Symbols for those sizes of inputs that are symbols in the graph; None where there is none.

    Sizes of 0 and 1 stay numbers.
    """
    shown = [n.meta.get("val") for n in gm.graph.nodes if n.op == "placeholder"]
    values = values_of(gm, inputs)
    env = ShapeEnv()
    symbols: dict[str, Any] = {}
    made: list[SymInt] = []
    places: list[tuple[int, int]] = []
    for k, (val, spec) in enumerate(zip(shown, at_hand)):
        if not isinstance(spec, TensorSpec) or not hasattr(val, "shape"):
            continue
        for d, (n, hint) in enumerate(zip(val.shape, spec.shape)):
            name = n.symbol if is_symbolic(n) else None
            if name is None or name in symbols:
                continue
            known = n.env.simplified(n.expr)  # by symbols that it was found to follow from
            if known.symbols <= set(symbols):
                symbols[name] = known.evaluate(symbols)
                continue
            symbols[name] = size = env.size(hint)
            if is_symbolic(size):
                made.append(size)
                places.append((k, d))
    if not made:
        return None
    found = tuple(
        _sized(val, spec, symbols) if isinstance(spec, TensorSpec) else spec
        for val, spec in zip(shown, at_hand)
    )
    return Sized(env, found, known_numbers({**values, **symbols}), tuple(made), tuple(places))


def _sized(val: Any, spec: TensorSpec, symbols: Mapping[str, Any]) -> TensorSpec:
    def number(n: Any, hint: int) -> Any:
        if not is_symbolic(n) or not set(n.symbols) <= set(symbols):
            return hint
        found = n.evaluate(symbols)
        return found if is_symbolic(found) and found.hint == hint else hint

    def numbers(ns: Sequence[Any], hints: Shape) -> Any:
        return tuple(map(number, ns, hints)) if len(ns) == len(hints) else hints

    shape, strides = numbers(val.shape, spec.shape), numbers(val.stride(), spec.strides)
    return TensorSpec(shape, strides, spec.dtype)


def template(gm: Any, found: Sized, key: Any, how: Settings, planned: Planned) -> Template | str:
    """The graph's template; why it has none, where that is so.

    Args:
        gm: the graph, after the user's passes.
        found: what ``sized`` gave.
        key: the layout with symbols.
        how: settings, with ``found.numbers``.
        planned: what the passes made of the numbers at hand.
    """
    try:
        built = emitted(gm, found.specs, how)
    except (
        Exception
    ) as error:  # the plan by numbers is there: no graph fails for want of a template
        return f"the passes do not take symbols: {error!r}"
    if planned.code != objects.digest(dr.source(built.kernels, built.driver.text())):
        return "symbols make other code than numbers do"
    if found.is_fixed():
        return "the conditions hold for these sizes alone"
    things: list[Any] = []
    texts = (
        _source(key, things),
        _conditions(found.env),
        _source((built.plan, built.lives), things),
    )
    try:
        cache.plain(tuple(things))
    except cache.Uncacheable as error:
        return f"it holds {error}"
    names = tuple(x.source() for x in found.symbols)
    one = Template(
        names, found.places, texts, tuple(things), planned.same, planned.code, built.constants
    )
    values = one.sizes_of(planned.specs, planned.layout, planned.same)
    if values is None or one.plan(values) != planned.plan:
        return "symbols make another plan than numbers do"
    return one


def _conditions(env: ShapeEnv) -> str:
    """What must hold of the symbols, as one expression."""
    return " and ".join(f"({guard.source()})" for guard in env.guards) or "True"


def _source(x: Any, things: list[Any]) -> str:
    """Python source of data with symbolic integers in it; ``things``: what has no source."""
    if is_symbolic(x):
        return f"({x.source()})"
    if type(x) in _LITERAL or (type(x) is float and math.isfinite(x)):
        return repr(x)
    if type(x) is dict:
        rows = (f"{_source(k, things)}: {_source(v, things)}" for k, v in x.items())
        return f"{{{', '.join(rows)}}}"
    if type(x) is list:
        return f"[{', '.join(_source(y, things) for y in x)}]"
    if isinstance(x, tuple):
        items = "".join(f"{_source(y, things)}, " for y in x)
        if type(x) is tuple:
            return f"({items})"
        if NAMED.get(type(x).__name__) is type(x):
            return f"{type(x).__name__}({items})"
    things.append(x)
    return f"o[{len(things) - 1}]"


_LITERAL = frozenset((bool, int, str, bytes, type(None)))
