"""Exponentials and logarithms, for float32 and float64.

Range reduction, a polynomial, reconstruction. Results are the same in every lane position and
for every width. Greatest errors are asserted by tests/test_math.py.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import pack, unpack

from . import coefficients as k
from .lanes import Lanes

INF = float("inf")
NAN = float("nan")
LOG2E = 1.4426950408889634
LN2 = 0.6931471805599453
# Beyond these, e**x is infinite, or rounds to 0.
_RANGE = {32: (-104.0, 89.0), 64: (-746.0, 710.0)}
# The greatest exponent of two, and the number of bits of the fraction.
_FORMAT = {32: (127, 23), 64: (1023, 52)}
_TINY = {32: 2.0**-126, 64: 2.0**-1022}


def exp_poly(v: Lanes, r: str) -> str:
    """exp(r) - 1 for |r| <= ln(2)/2."""
    p = v.poly(r, k.EXP32 if v.dtype.bits == 32 else k.EXP64)
    return v.fma(p, v.mul(r, r), r)


def _reduced(v: Lanes, x: str) -> tuple[str, str, str]:
    """(r, n, n as integer) with x = n ln 2 + r."""
    n, ni = v.round_product(x, LOG2E)
    high, low = k.LN2[v.dtype.bits]
    r = v.fma(n, v.c(-high), x)
    return v.fma(n, v.c(-low), r), n, ni


def _within(v: Lanes, x: str, low: float, high: float) -> str:
    """x limited to [low, high]; NaN stays."""
    return v.at_most(v.c(high), v.at_least(v.c(low), x))


def exp(v: Lanes, x: str) -> str:
    """e**x."""
    r, n, ni = _reduced(v, _within(v, x, *_RANGE[v.dtype.bits]))
    return v.scale(v.add(exp_poly(v, r), v.c(1.0)), n, ni)


def exp2(v: Lanes, x: str) -> str:
    """2**x."""
    top = _FORMAT[v.dtype.bits][0]
    x = _within(v, x, -(top + 60.0), top + 2.0)
    n, ni = v.round_small(x)
    r = v.sub(x, n)
    if v.dtype.bits == 32:
        return v.scale(v.poly(r, k.EXP2_32), n, ni)
    return v.scale(v.add(exp_poly(v, v.mul(r, v.c(LN2))), v.c(1.0)), n, ni)


def expm1_between(v: Lanes, x: str) -> str:
    """e**x - 1 for |x| up to 80, where 2**n is made by a shift.

    In float32 its relative error grows to two units with x: callers damp it.
    """
    if v.dtype.bits == 32 and v.target.fma:
        n, ni = v.round_product(x, LOG2E)
        r = v.fma(n, v.c(-LN2), x)
    else:
        r, n, ni = _reduced(v, x)
    if v.has_float_parts:
        power = v.scale(v.c(1.0), n, ni)
    else:
        bias, fraction = _FORMAT[v.dtype.bits]
        ints = v.ints
        power = v.from_bits(ints.op("shl", ints.add(ni, ints.c(bias)), ints.c(fraction)))
    return v.fma(exp_poly(v, r), power, v.sub(power, v.c(1.0)))


def expm1(v: Lanes, x: str) -> str:
    """e**x - 1: (e**r - 1) 2**n + (2**n - 1), at half size so that 2**n does not overflow."""
    low, high = _RANGE[v.dtype.bits]
    r, n, ni = _reduced(v, _within(v, x, low / 2, high))
    p = exp_poly(v, r)
    ints, one = v.ints, v.c(1.0)
    half_n, half_ni = v.sub(n, one), ints.sub(ni, ints.c(1))
    power = v.scale(one, half_n, half_ni)
    sum_ = v.fma(p, power, v.sub(power, v.c(0.5)))
    whole = v.mul(sum_, v.c(2.0))
    # Where n is 0 the polynomial is the result: tiny x and signed zeros stay what they are.
    return v.select(v.cmp("oeq", n, v.c(0.0)), v.copysign(p, x), whole)


def log_parts(v: Lanes, x: str) -> tuple[str, str]:
    """(e as a float, f) with x = 2**e (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), for x > 0."""
    if v.has_float_parts:
        m, e = v.mantissa(x), v.exponent(x)
        high = v.cmp("ogt", m, v.c(2.0**0.5))
        m = v.select(high, v.mul(m, v.c(0.5)), m)
        return v.select(high, v.add(e, v.c(1.0)), e), v.sub(m, v.c(1.0))
    ints = v.ints
    bits_ = v.dtype.bits
    fraction = _FORMAT[bits_][1]
    tiny = v.cmp("olt", x, v.c(_TINY[bits_]))
    lift = fraction + 2
    bits = v.bits(v.select(tiny, v.mul(x, v.c(2.0**lift)), x))
    root_half = 0x3F3504F3 if bits_ == 32 else 0x3FE6A09E667F3BCD
    if bits_ == 32:
        e = ints.op("ashr", ints.sub(bits, ints.c(root_half)), ints.c(fraction))
        ef = ints.convert("sitofp", e, v)
    else:
        # 64-bit arithmetic shifts and conversions are slow before AVX-512: a bias makes the
        # number positive, and the exponent is read off a sum with 2**52.
        moved = ints.sub(bits, ints.c(root_half - (1024 << 52)))
        e = ints.sub(ints.op("lshr", moved, ints.c(fraction)), ints.c(1024))
        magic = 0x4338000000000000
        ef = v.sub(v.from_bits(ints.add(e, ints.c(magic))), v.c(6755399441055744.0))
    m = v.from_bits(ints.sub(bits, ints.op("shl", e, ints.c(fraction))))
    ef = v.select(tiny, v.sub(ef, v.c(float(lift))), ef)
    return ef, v.sub(m, v.c(1.0))


def _log1p_rest(v: Lanes, f: str) -> str:
    """log(1 + f) - f for a reduced f."""
    z = v.mul(f, f)
    if v.dtype.bits == 32:
        y = v.mul(v.mul(v.poly(f, k.LOG32), z), f)
        return v.fma(z, v.c(-0.5), y)
    s = v.div(f, v.add(f, v.c(2.0)))
    w = v.mul(s, s)
    half = v.mul(z, v.c(0.5))
    rest = v.mul(v.poly(w, k.LOG64), w)
    return v.sub(v.mul(s, v.add(half, rest)), half)


def log_special(v: Lanes, x: str, r: str) -> str:
    """``r`` with the values for zeros, negative numbers, infinity and NaN put in."""
    r = v.select(v.cmp("oeq", x, v.c(0.0)), v.c(-INF), r)
    r = v.select(v.cmp("ult", x, v.c(0.0)), v.c(NAN), r)
    return v.select(v.cmp("oeq", x, v.c(INF)), x, r)


def _log_finite(v: Lanes, x: str) -> str:
    """log(x) for positive finite x."""
    e, f = log_parts(v, x)
    high, low = k.LN2[v.dtype.bits]
    y = v.fma(e, v.c(low), _log1p_rest(v, f))
    return v.fma(e, v.c(high), v.add(f, y))


def log(v: Lanes, x: str) -> str:
    """Natural logarithm."""
    if v.has_float_parts:  # the parts of special values give the right results by themselves
        return _log_finite(v, x)
    return log_special(v, x, _log_finite(v, x))


def _scaled_log(v: Lanes, x: str, factor: float, unit: tuple[float, float]) -> str:
    """log(x) ``factor``, where one power of two counts ``unit`` (two parts).

    The product f * factor is made in two parts, for it dominates where e is 0.
    """
    e, f = log_parts(v, x)
    y = _log1p_rest(v, f)
    p, p_low = v.two_product(f, v.c(factor))
    rest = factor - _rounded(factor, v.dtype.bits)
    low = v.add(p_low, v.fma(y, v.c(factor), v.mul(f, v.c(rest))))
    if unit[1]:
        low = v.fma(e, v.c(unit[1]), low)
    whole = v.mul(e, v.c(unit[0]))
    s, s_low = v.two_sum(whole, p)
    return log_special(v, x, v.add(s, v.add(s_low, low)))


def _rounded(x: float, bits: int) -> float:
    """x as it is stored in this format."""
    if bits == 64:
        return x
    return float(unpack("<f", pack("<f", x))[0])


# 1 / ln 2 and 1 / ln 10 beyond double precision are not needed: the rest is below half a unit.
def log2(v: Lanes, x: str) -> str:
    """Logarithm to base 2; exact for powers of two."""
    return _scaled_log(v, x, LOG2E, (1.0, 0.0))


_LOG10_2 = {
    32: (0.30102539, 4.6050390e-6),
    64: (3.01029995663611771306e-01, 3.69423907715893078616e-13),
}


def log10(v: Lanes, x: str) -> str:
    """Logarithm to base 10."""
    return _scaled_log(v, x, 0.4342944819032518, _LOG10_2[v.dtype.bits])


def log1p(v: Lanes, x: str) -> str:
    """log(1 + x): the logarithm of the rounded sum, corrected by what rounding lost."""
    one = v.c(1.0)
    u = v.add(x, one)
    # Exact whichever of the two is greater.
    lost = v.select(v.cmp("ogt", x, one), v.sub(one, v.sub(u, x)), v.sub(x, v.sub(u, one)))
    y = v.add(_log_finite(v, u), v.div(lost, u))
    y = log_special(v, u, y)
    return v.select(v.cmp("oeq", u, one), x, y)


def sigmoid(v: Lanes, x: str) -> str:
    """1 / (1 + e**-x), as e**x / (1 + e**x) below 0, where it may become subnormal."""
    e = exp(v, v.neg(v.abs(x)))
    top = v.select(v.cmp("olt", x, v.c(0.0)), e, v.c(1.0))
    return v.div(top, v.add(e, v.c(1.0)))


FUNCTIONS: dict[str, Callable[..., str]] = {
    f.__name__: f for f in (exp, exp2, expm1, log, log2, log10, log1p, sigmoid)
}
