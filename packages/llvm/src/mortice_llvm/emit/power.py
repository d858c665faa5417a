"""Powers and lengths."""

from __future__ import annotations

from collections.abc import Callable

from . import coefficients as k
from .explog import LN2, LOG2E, exp2, exp_poly, log, log_parts
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


def _power32(v: Lanes, size: str, y: str) -> str:
    """size**y for size >= 0: the logarithm and the product in float64."""
    wide = v.like("f64")
    logarithm = wide.mul(log(wide, v.convert("fpext", size, wide)), wide.c(LOG2E))
    product = wide.mul(v.convert("fpext", y, wide), logarithm)
    product = wide.at_most(wide.c(200.0), wide.at_least(wide.c(-200.0), product))
    return wide.convert("fptrunc", exp2(wide, product), v)


def _log2_double(v: Lanes, x: str) -> tuple[str, str]:
    """log2(x) for positive finite x as a sum of two floats, to about 2**-65 of its size.

    log(1 + f) = 2 atanh(s), s = f / (2 + f), whose first two terms are made in two parts.
    """
    e, f = log_parts(v, x)
    d, d_low = v.two_sum(v.c(2.0), f)
    s = v.div(f, d)
    p, p_low = v.two_product(s, d)
    rest = v.sub(v.sub(v.sub(f, p), p_low), v.mul(s, d_low))
    s_low = v.div(rest, d)
    z, z_low = v.two_product(s, s)
    z_low = v.add(z_low, v.mul(v.add(s, s), s_low))
    c, c_low = v.two_sum(v.c(2 / 3), v.mul(z, v.poly(z, k.ATANH64)))
    c_low = v.add(c_low, v.c(3.700743415417188e-17))
    q, q_low = _product(v, (z, z_low), (c, c_low))
    u, u_low = _product(v, (s, s_low), (q, q_low))
    h, h_low = v.two_sum(v.add(s, s), u)
    h_low = v.add(h_low, v.add(v.add(s_low, s_low), u_low))
    m, m_low = _product(v, (h, h_low), (v.c(LOG2E), v.c(2.0355273740931033e-17)))
    whole, low = v.two_sum(e, m)
    return whole, v.add(low, m_low)


def _product(v: Lanes, a: tuple[str, str], b: tuple[str, str]) -> tuple[str, str]:
    """The product of two sums of two floats."""
    p, low = v.two_product(a[0], b[0])
    low = v.add(low, v.add(v.mul(a[0], b[1]), v.mul(a[1], b[0])))
    return v.two_sum(p, low)


def _power64(v: Lanes, size: str, y: str) -> str:
    """size**y for size >= 0: logarithm and product in two parts."""
    inf, zero, one = v.c(float("inf")), v.c(0.0), v.c(1.0)
    ordinary = v.both(v.cmp("olt", size, inf), v.cmp("ogt", size, zero))
    high, low = _log2_double(v, v.select(ordinary, size, one))
    bound = 2.0**900
    y = v.at_most(v.c(bound), v.at_least(v.c(-bound), y))
    p, p_low = v.two_product(y, high)
    p_low = v.add(p_low, v.mul(y, low))
    limit = 1100.0
    near = v.cmp("olt", v.abs(p), v.c(limit))
    p_low = v.select(near, p_low, zero)
    p = v.at_most(v.c(limit), v.at_least(v.c(-limit), p))
    n, ni = v.round_small(p)
    r = v.mul(v.add(v.sub(p, n), p_low), v.c(LN2))
    power = v.scale(v.add(exp_poly(v, r), one), n, ni)
    # 0 and infinity, and NaN: the exponent's sign decides.
    grows = v.cmp("ogt", y, zero)
    at_zero = v.select(grows, zero, inf)
    at_inf = v.select(grows, inf, zero)
    special = v.select(v.cmp("oeq", size, inf), at_inf, at_zero)
    special = v.select(v.cmp("uno", size, y), v.c(float("nan")), special)
    return v.select(v.both(ordinary, v.cmp("ord", y, y)), power, special)


def pow(v: Lanes, x: str, y: str) -> str:
    """x**y as C's Annex F has it: 2**(y log2|x|), then signs and special values."""
    size = v.abs(x)
    power = (_power32 if v.dtype.bits == 32 else _power64)(v, size, y)
    integer, odd = _parity(v, y)
    one = v.c(1.0)
    # 1**inf: the product is 0 times infinity. A NaN exponent of -1 stays NaN.
    number = v.cmp("ord", y, y)
    power = v.select(v.both(v.cmp("oeq", size, one), number), one, power)
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
