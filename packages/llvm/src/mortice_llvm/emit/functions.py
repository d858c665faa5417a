"""How each scalar operation is made: instructions, intrinsics, or a function written here.

Functions take the lanes and operand names, append text and return the result's name. Float
functions keep NaN, infinities, signed zeros and subnormals as IEEE 754 and C's Annex F have them.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import NotAvailable
from ..scalar import scalar_op
from . import errorfn, explog, gelu, hyperbolic, power, remainder, rounding, trig
from .lanes import Lanes

Function = Callable[..., str]


def same(v: Lanes, a: str) -> str:
    """The operand itself."""
    return a


def invert(v: Lanes, a: str) -> str:
    """All bits flipped (logical not of a bool)."""
    return v.op("xor", a, v.c(1) if v.dtype.kind == "b" else v.c(-1))


# -- floats ------------------------------------------------------------------------------------


def maximum(v: Lanes, a: str, b: str) -> str:
    """The greater; NaN if either is NaN."""
    return v.select(v.cmp("uno", a, a), a, v.select(v.cmp("ogt", a, b), a, b))


def minimum(v: Lanes, a: str, b: str) -> str:
    """The smaller; NaN if either is NaN."""
    return v.select(v.cmp("uno", a, a), a, v.select(v.cmp("olt", a, b), a, b))


def fmax(v: Lanes, a: str, b: str) -> str:
    """The greater; the number if one is NaN."""
    return v.select(v.cmp("uno", b, b), a, v.select(v.cmp("ogt", a, b), a, b))


def fmin(v: Lanes, a: str, b: str) -> str:
    """The smaller; the number if one is NaN."""
    return v.select(v.cmp("uno", b, b), a, v.select(v.cmp("olt", a, b), a, b))


def relu(v: Lanes, a: str) -> str:
    """a where a > 0 or NaN, else +0."""
    return v.select(v.cmp("ole", a, v.c(0)), v.c(0), a)


def float_sign(v: Lanes, a: str) -> str:
    """-1, 0 or 1; NaN becomes 0, as in PyTorch."""
    up = v.select(v.cmp("ogt", a, v.c(0)), v.c(1), v.c(0))
    return v.select(v.cmp("olt", a, v.c(0)), v.c(-1), up)


def reciprocal(v: Lanes, a: str) -> str:
    """1 / a."""
    return v.div(v.c(1), a)


def rsqrt(v: Lanes, a: str) -> str:
    """1 / sqrt(a), two roundings."""
    return v.div(v.c(1), v.call("sqrt", a))


def isnan(v: Lanes, a: str) -> str:
    """True where a is NaN."""
    return v.cmp("uno", a, a)


def isinf(v: Lanes, a: str) -> str:
    """True where a is an infinity."""
    return v.cmp("oeq", v.abs(a), v.c(float("inf")))


def isfinite(v: Lanes, a: str) -> str:
    """True where a is neither NaN nor an infinity."""
    return v.cmp("olt", v.abs(a), v.c(float("inf")))


def signbit(v: Lanes, a: str) -> str:
    """True where the sign bit is set."""
    return v.ints.cmp("slt", v.bits(a), v.ints.c(0))


# -- integers ----------------------------------------------------------------------------------


def int_fma(v: Lanes, a: str, b: str, c: str) -> str:
    """a * b + c, wrapping."""
    return v.add(v.mul(a, b), c)


def int_neg(v: Lanes, a: str) -> str:
    """-a, wrapping."""
    return v.sub(v.c(0), a)


def int_abs(v: Lanes, a: str) -> str:
    """|a|; the least integer stays."""
    return v.select(v.cmp("slt", a, v.c(0)), v.sub(v.c(0), a), a)


def int_sign(v: Lanes, a: str) -> str:
    """-1, 0 or 1."""
    up = v.select(v.cmp("ne", a, v.c(0)), v.c(1), v.c(0))
    return up if v.dtype.kind == "u" else v.select(v.cmp("slt", a, v.c(0)), v.c(-1), up)


def int_relu(v: Lanes, a: str) -> str:
    """a where a > 0, else 0."""
    return v.call("smax", a, v.c(0))


def int_signbit(v: Lanes, a: str) -> str:
    """True where a < 0."""
    return v.cmp("slt", a, v.c(0))


def _divisor(v: Lanes, a: str, b: str) -> str:
    """``b`` with the operands that trap (0, and -1 under the least integer) replaced by 1."""
    bad = v.cmp("eq", b, v.c(0))
    if v.dtype.kind == "i":
        least = v.cmp("eq", a, v.c(-(1 << (v.dtype.bits - 1))))
        bad = v.either(bad, v.both(least, v.cmp("eq", b, v.c(-1))))
    return v.select(bad, v.c(1), b)


def int_div(v: Lanes, a: str, b: str) -> str:
    """a / b towards zero; a where b is 0, and the least integer over -1 wraps."""
    return v.op("sdiv" if v.dtype.kind == "i" else "udiv", a, _divisor(v, a, b))


def int_rem(v: Lanes, a: str, b: str) -> str:
    """Remainder with the sign of a; 0 where b is 0."""
    return v.op("srem" if v.dtype.kind == "i" else "urem", a, _divisor(v, a, b))


def _crosses(v: Lanes, rem: str, b: str) -> str:
    """True where a non-zero remainder's sign differs from the divisor's."""
    mixed = v.cmp("slt", v.op("xor", rem, b), v.c(0))
    return v.both(v.cmp("ne", rem, v.c(0)), mixed)


def int_floor_div(v: Lanes, a: str, b: str) -> str:
    """a / b towards minus infinity."""
    down = _crosses(v, int_rem(v, a, b), b)
    q = int_div(v, a, b)
    return v.select(down, v.sub(q, v.c(1)), q)


def int_remainder(v: Lanes, a: str, b: str) -> str:
    """Remainder with the sign of b (Python's %); 0 where b is 0."""
    rem = int_rem(v, a, b)
    return v.select(_crosses(v, rem, b), v.add(rem, b), rem)


_MADE_HERE: tuple[Function, ...] = (
    same, invert, maximum, minimum, fmax, fmin, relu, float_sign, reciprocal, rsqrt, isnan, isinf, isfinite, signbit, int_fma, int_neg, int_abs,
    int_sign, int_relu, int_signbit, int_div, int_rem, int_floor_div, int_remainder,
)  # fmt: skip

FUNCTIONS: dict[str, Function] = {
    **{f.__name__: f for f in _MADE_HERE},
    "fma": Lanes.fma,
    **rounding.FUNCTIONS,
    **remainder.FUNCTIONS,
    **explog.FUNCTIONS,
    **trig.FUNCTIONS,
    **hyperbolic.FUNCTIONS,
    **errorfn.FUNCTIONS,
    **gelu.FUNCTIONS,
    **power.FUNCTIONS,
}


def emit_op(name: str, v: Lanes, args: list[str]) -> str:
    """Appends operation ``name`` on lanes ``v``; raises NotAvailable where it has no code."""
    how = scalar_op(name).by_kind.get(v.dtype.kind)
    if how is None:
        raise NotAvailable(f"{name} does not take {v.dtype.name}")
    if how[0] == "@":
        return FUNCTIONS[how[1:]](v, *args)
    if how[0] == "=":
        return v.call(how[1:], *args)
    if how[1:4] == "cmp":
        return v.cmp(how[5:], *args)
    if how == "fneg":
        return v.neg(*args)
    return v.op(how, *args)
