"""Algebra on values: rules that hold for every element, signed zeros and NaN included."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..ir.roots import Roots
from ..ir.values import SCALARS, Trace, Value, walk
from .rounding import decided_upon, is_round_trip

if TYPE_CHECKING:
    from ..lowering.graph import Lowered

Rule = Callable[[Trace, Value], Value | None]


def simplify(lowered: Lowered, keep_casts: bool) -> Roots:
    """What the graph must compute, simplified. ``keep_casts``: 16-bit values are rounded wherever
    eager does, and not only where something is decided upon them.
    """
    t = lowered.trace
    roots = Roots(lowered.outputs, lowered.writes, lowered.checks, lowered.named)
    done: dict[int, Value] = {}
    exact: set[int] = set() if keep_casts else decided_upon(roots.values())
    for v in walk(roots.values()):
        args = tuple(done[a.uid] for a in v.args)
        t.where = v.where
        new = _remade(t, v, args)
        kept = new.op == "cast" if keep_casts else v.uid in exact and is_round_trip(new)
        done[v.uid] = new if kept else _ruled(t, new)
    return Roots(
        tuple(_own(t, done[v.uid]) if isinstance(v, Value) else v for v in roots.outputs),
        tuple((k, done[v.uid]) for k, v in roots.writes),
        tuple(c._replace(value=done[c.value.uid]) for c in roots.checks),
        tuple((name, done[v.uid]) for name, v in roots.named if v.uid in done),
    )


def _own(t: Trace, v: Value) -> Value:
    """A result has memory of its own, though it equals a placeholder or a number."""
    return t.make("keep", (v,), v.shape, v.dtype) if v.op in ("input", *SCALARS) else v


def _remade(t: Trace, v: Value, args: tuple[Value, ...]) -> Value:
    if all(a is b for a, b in zip(args, v.args)):
        return v
    if v.op == "view":
        return t.view(args[0], v.attr, v.shape)
    if v.op == "cast":
        return t.cast(args[0], v.dtype)
    return t.make(v.op, args, v.shape, v.dtype, v.attr)


def _ruled(t: Trace, v: Value) -> Value:
    for _ in range(8):
        rule = _RULES.get(v.op)
        new = rule(t, v) if rule else None
        if new is None or new is v:
            return v
        v = new
    return v


def _cast(t: Trace, v: Value) -> Value | None:
    """A conversion of a conversion: to 16 bits and back adds nothing but rounding, which compiled
    code leaves out; widening twice is widening once.
    """
    inner = v.args[0]
    if inner.op != "cast":
        return None
    first = inner.args[0]
    if is_round_trip(v):
        return t.cast(first, v.dtype)
    if _widens(first.dtype, inner.dtype) and _widens(inner.dtype, v.dtype):
        return t.cast(first, v.dtype)
    return None


def _widens(a: str, b: str) -> bool:
    """True if every number of dtype ``a`` is one of ``b``."""
    exact = {
        "bool": "i8 i16 i32 i64 u8 f16 bf16 f32 f64", "i8": "i16 i32 i64 f16 bf16 f32 f64",
        "u8": "i16 i32 i64 f16 bf16 f32 f64", "i16": "i32 i64 f32 f64", "i32": "i64 f64",
        "f16": "f32 f64", "bf16": "f32 f64", "f32": "f64",
    }  # fmt: skip
    return b in exact.get(a, "").split()


def _constant(v: Value) -> Any:
    return v.attr if v.op == "const" else None


def _fn(t: Trace, v: Value) -> Value | None:
    rule = _FUNCTIONS.get(v.attr)
    if rule is not None:
        found = rule(t, v)
        if found is not None:
            return found
    exact = v.attr in _FOLDED and v.dtype in ("f64", "i64")
    if exact and all(a.op == "const" for a in v.args):
        return t.const(_FOLDED[v.attr](*(a.attr for a in v.args)), v.dtype)
    return None


_FOLDED: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
}


def _times(t: Trace, v: Value) -> Value | None:
    """x 1 is x."""
    for a, b in (v.args, v.args[::-1]):
        if _constant(b) == 1 and a.shape == v.shape:
            return a
    return None


def _over(t: Trace, v: Value) -> Value | None:
    """x / 1 is x; x / 2**k is x 2**-k, exactly."""
    a, b = v.args
    c = _constant(b)
    if isinstance(c, float) and a.shape == v.shape:
        if c == 1.0:
            return a
        import math

        mantissa, exponent = math.frexp(abs(c)) if c and math.isfinite(c) else (0.0, 0)
        if mantissa == 0.5 and abs(exponent) < 100:
            return t.fn("mul", a, t.const(1.0 / c, b.dtype))
    return None


def _minus(t: Trace, v: Value) -> Value | None:
    """x - 0 is x, also for -0."""
    a, b = v.args
    c = _constant(b)
    if c is not None and c == 0 and not str(c).startswith("-") and a.shape == v.shape:
        return a
    return None


def _plus(t: Trace, v: Value) -> Value | None:
    """x + 0 is x for integers (for floats -0 + 0 is 0)."""
    for a, b in (v.args, v.args[::-1]):
        if b.op == "const" and b.dtype[0] in "iu" and b.attr == 0 and a.shape == v.shape:
            return a
    return None


def _negated(t: Trace, v: Value) -> Value | None:
    inner = v.args[0]
    return inner.args[0] if inner.op == "fn" and inner.attr == "neg" else None


_FUNCTIONS: dict[str, Rule] = {
    "mul": _times, "div": _over, "sub": _minus, "add": _plus, "neg": _negated,
}  # fmt: skip


def _select(t: Trace, v: Value) -> Value | None:
    where, a, b = v.args
    if a is b and a.shape == v.shape:
        return a
    chosen = None if where.op != "const" else a if where.attr else b
    return chosen if chosen is not None and chosen.shape == v.shape else None


_RULES: dict[str, Rule] = {"cast": _cast, "fn": _fn, "select": _select}
