"""Powers and lengths."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import NotAvailable
from .explog import exp2, log2
from .lanes import Lanes


def _parity(v: Lanes, y: str) -> tuple[str, str]:
    """Masks: y is an integer; y is an odd integer."""
    big = 2.0 ** (24 if v.dtype.bits == 32 else 53)
    size = v.abs(y)
    small = v.cmp("olt", size, v.c(big))
    bounded = v.select(small, y, v.c(0.0))
    ints = v.ints
    whole = v.convert("fptosi", bounded, ints)
    exact = v.cmp("oeq", ints.convert("sitofp", whole, v), bounded)
    odd = ints.cmp("ne", ints.op("and", whole, ints.c(1)), ints.c(0))
    huge = v.cmp("oge", size, v.c(big))
    return v.either(exact, huge), v.both(v.both(exact, odd), small)


def pow(v: Lanes, x: str, y: str) -> str:
    """x**y as C's Annex F has it: 2**(y log2|x|), the product in float64."""
    if v.dtype.bits != 32:
        raise NotAvailable("pow is not available for f64 in compiled kernels")
    wide = v.like("f64")
    size = v.abs(x)
    product = wide.mul(v.convert("fpext", y, wide), log2(wide, v.convert("fpext", size, wide)))
    product = wide.at_most(wide.c(200.0), wide.at_least(wide.c(-200.0), product))
    power = wide.convert("fptrunc", exp2(wide, product), v)
    integer, odd = _parity(v, y)
    one = v.c(1.0)
    unit = v.cmp("oeq", size, one)
    # 1**inf: the product is 0 times infinity. A NaN exponent of -1 stays NaN.
    number = v.cmp("ord", y, y)
    power = v.select(v.both(unit, number), one, power)
    negative = v.ints.cmp("slt", v.bits(x), v.ints.c(0))
    power = v.select(v.both(negative, odd), v.neg(power), power)
    below = v.cmp("olt", x, v.c(0.0))
    finite = v.cmp("one", size, v.c(float("inf")))
    broken = v.both(v.both(below, finite), v.text.value(_not(v, integer)))
    power = v.select(v.both(broken, number), v.c(float("nan")), power)
    power = v.select(v.cmp("oeq", x, one), one, power)
    return v.select(v.cmp("oeq", y, v.c(0.0)), one, power)


def _not(v: Lanes, mask: str) -> str:
    ones = "true" if v.width == 1 else "splat (i1 true)"
    return f"xor {v.bool_type} {mask}, {ones}"


def hypot(v: Lanes, x: str, y: str) -> str:
    """sqrt(x*x + y*y): float32 in float64; float64 scaled by a power of two."""
    inf = v.c(float("inf"))
    a, b = v.abs(x), v.abs(y)
    either = v.either(v.cmp("oeq", a, inf), v.cmp("oeq", b, inf))
    if v.dtype.bits == 32:
        wide = v.like("f64")
        p, q = (v.convert("fpext", t, wide) for t in (a, b))
        squares = wide.add(wide.mul(p, p), wide.mul(q, q))
        r = wide.convert("fptrunc", wide.call("sqrt", squares), v)
    else:
        r = _scaled_length(v, a, b)
    return v.select(either, inf, r)


def _scaled_length(v: Lanes, a: str, b: str) -> str:
    swap = v.cmp("olt", a, b)
    big, small = v.select(swap, b, a), v.select(swap, a, b)
    huge = v.cmp("ogt", big, v.c(2.0**500))
    tiny = v.cmp("olt", big, v.c(2.0**-400))
    up = v.select(huge, v.c(2.0**-600), v.select(tiny, v.c(2.0**600), v.c(1.0)))
    down = v.select(huge, v.c(2.0**600), v.select(tiny, v.c(2.0**-600), v.c(1.0)))
    p, q = v.mul(big, up), v.mul(small, up)
    return v.mul(v.call("sqrt", v.fma(p, p, v.mul(q, q))), down)


FUNCTIONS: dict[str, Callable[..., str]] = {f.__name__: f for f in (pow, hypot)}
