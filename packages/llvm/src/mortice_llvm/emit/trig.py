"""Trigonometric functions and their inverses, for float32 and float64, over all arguments.

Up to a limit the argument is reduced by subtracting n pi/2 in parts (Cody and Waite). Lanes
beyond it are rare; they are reduced one by one with the bits of 2/pi that matter (Payne and
Hanek), see ``reduction``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from . import coefficients as k
from .lanes import Lanes
from .reduction import LIMIT, reduce_large


def _reduce(v: Lanes, x: str) -> tuple[str, str, str]:
    """(r, tail, n as integer) with x = n pi/2 + r + tail, |r| at most about pi/4."""
    n, ni = v.round_product(x, 2.0 / math.pi)
    parts = k.HALF_PI[v.dtype.bits]
    r = x
    for part in parts[:-2]:
        r = v.fma(n, v.c(-part), r)
    if v.dtype.bits == 32:
        r = v.fma(n, v.c(-parts[-1]), v.fma(n, v.c(-parts[-2]), r))
        tail = v.c(0.0)
    else:
        # The last two subtractions keep what they round off.
        t, t_low = v.two_product(n, v.c(parts[-2]))
        head = v.sub(r, t)
        lost = v.sub(v.sub(r, head), t)
        low = v.sub(v.sub(lost, t_low), v.mul(n, v.c(parts[-1])))
        r = v.add(head, low)
        tail = v.sub(low, v.sub(r, head))
    large = v.cmp("oge", v.abs(x), v.c(LIMIT[v.dtype.bits]))
    return reduce_large(v, x, large, (r, tail, ni))


def _sin_poly(v: Lanes, r: str, tail: str) -> str:
    """sin(r + tail), |r| <= pi/4."""
    z = v.mul(r, r)
    if v.dtype.bits == 32:
        return v.fma(v.mul(v.poly(z, k.SIN32), z), r, r)
    # r - ((z (tail/2 - r^3 p) - tail) - r^3 S1), as fdlibm's kernel.
    *rest, first = k.SIN64
    cube = v.mul(z, r)
    p = v.poly(z, rest)
    inner = v.sub(v.mul(tail, v.c(0.5)), v.mul(cube, p))
    inner = v.sub(v.mul(z, inner), tail)
    return v.sub(r, v.sub(inner, v.mul(cube, v.c(first))))


def _cos_poly(v: Lanes, r: str, tail: str) -> str:
    """cos(r + tail), |r| <= pi/4."""
    z = v.mul(r, r)
    one = v.c(1.0)
    if v.dtype.bits == 32:
        return v.fma(v.poly(z, k.COS32), v.mul(z, z), v.fma(z, v.c(-0.5), one))
    half = v.mul(z, v.c(0.5))
    w = v.sub(one, half)
    p = v.mul(v.poly(z, k.COS64), v.mul(z, z))
    lost = v.sub(v.sub(one, w), half)
    return v.add(w, v.add(lost, v.sub(p, v.mul(r, tail))))


def _quadrant(v: Lanes, x: str, shift: int) -> str:
    """sin(x + shift pi/2)."""
    r, tail, n = _reduce(v, x)
    ints = v.ints
    if shift:
        n = ints.add(n, ints.c(shift))
    odd = ints.cmp("ne", ints.op("and", n, ints.c(1)), ints.c(0))
    y = v.select(odd, _cos_poly(v, r, tail), _sin_poly(v, r, tail))
    top = 30 if v.dtype.bits == 32 else 62
    sign = ints.op("shl", ints.op("and", n, ints.c(2)), ints.c(top))
    return v.from_bits(ints.op("xor", v.bits(y), sign))


def sin(v: Lanes, x: str) -> str:
    """Sine; NaN at infinities."""
    y = _quadrant(v, x, 0)
    # The polynomial loses the sign of -0.
    return v.select(v.cmp("oeq", x, v.c(0.0)), x, y)


def cos(v: Lanes, x: str) -> str:
    """Cosine; NaN at infinities."""
    return _quadrant(v, x, 1)


def tan(v: Lanes, x: str) -> str:
    """Tangent: a polynomial and its negative reciprocal (float32), sine over cosine (float64)."""
    r, tail, n = _reduce(v, x)
    ints = v.ints
    odd = ints.cmp("ne", ints.op("and", n, ints.c(1)), ints.c(0))
    if v.dtype.bits == 32:
        z = v.mul(r, r)
        t = v.fma(v.mul(v.poly(z, k.TAN32), z), r, r)
        y = v.select(odd, v.div(v.c(-1.0), t), t)
    else:
        s, c = _sin_poly(v, r, tail), _cos_poly(v, r, tail)
        y = v.div(v.select(odd, v.neg(c), s), v.select(odd, s, c))
    return v.select(v.cmp("oeq", x, v.c(0.0)), x, y)


# -- inverses ----------------------------------------------------------------------------------


def _asin_poly(v: Lanes, s: str, z: str) -> str:
    """asin(s) - s, z = s*s at most 1/4."""
    p = v.poly(z, k.ASIN32 if v.dtype.bits == 32 else k.ASIN64)
    return v.mul(v.mul(p, z), s)


def _asin_parts(v: Lanes, x: str) -> tuple[str, str, str, str, str]:
    """(|x|, mask |x| > 1/2, s, its rounding error, asin(s) - s); s = |x| or sqrt((1 - |x|) / 2)."""
    a = v.abs(x)
    far = v.cmp("ogt", a, v.c(0.5))
    z_far = v.mul(v.sub(v.c(1.0), a), v.c(0.5))
    z = v.select(far, z_far, v.mul(a, a))
    root = v.call("sqrt", z_far)
    square, square_low = v.two_product(root, root)
    lost = v.sub(v.sub(z_far, square), square_low)
    safe = v.select(v.cmp("oeq", root, v.c(0.0)), v.c(1.0), root)
    root_low = v.div(lost, v.add(safe, safe))
    zero = v.c(0.0)
    s, s_low = v.select(far, root, a), v.select(far, root_low, zero)
    return a, far, s, s_low, _asin_poly(v, s, z)


def asin(v: Lanes, x: str) -> str:
    """Arc sine; NaN beyond +-1."""
    _, far, s, s_low, p = _asin_parts(v, x)
    high, low = _half_pi(v)
    # pi/2 - 2 (s + s_low + p)
    rest = v.sub(v.mul(v.add(p, s_low), v.c(2.0)), v.c(low))
    outer = v.sub(v.c(high), v.add(s, v.add(s, rest)))
    return v.copysign(v.select(far, outer, v.add(s, p)), x)


def acos(v: Lanes, x: str) -> str:
    """Arc cosine; NaN beyond +-1."""
    _, far, s, s_low, p = _asin_parts(v, x)
    high, low = _half_pi(v)
    negative = v.cmp("olt", x, v.c(0.0))
    twice = v.mul(v.add(s, v.add(p, s_low)), v.c(2.0))
    two_low = v.c(2.0 * low)
    outer = v.select(negative, v.sub(v.c(2.0 * high), v.sub(twice, two_low)), twice)
    # pi/2 - (x + p) with the sign of x on both
    signed = v.copysign(p, x)
    inner = v.sub(v.c(high), v.add(x, v.sub(signed, v.c(low))))
    return v.select(far, outer, inner)


def _half_pi(v: Lanes) -> tuple[float, float]:
    """pi/2 as the nearest float and the rest."""
    if v.dtype.bits == 32:
        return 1.57079637050628662109375, -4.37113900018624283e-8
    return math.pi / 2, 6.12323399573676603587e-17


def _atan_positive(v: Lanes, a: str) -> str:
    """atan(a), a >= 0: about 0, 1 or infinity, whichever is near; one division."""
    one = v.c(1.0)
    far = v.cmp("ogt", a, v.c(2.414213562373095))
    mid = v.cmp("ogt", a, v.c(0.4142135623730950))
    top = v.select(far, v.c(-1.0), v.select(mid, v.sub(a, one), a))
    bottom = v.select(far, a, v.select(mid, v.add(a, one), one))
    t = v.div(top, bottom)
    z = v.mul(t, t)
    p = v.poly(z, k.ATAN32 if v.dtype.bits == 32 else k.ATAN64)
    high, low = _half_pi(v)
    base = v.select(far, v.c(high), v.select(mid, v.c(high / 2), v.c(0.0)))
    base_low = v.select(far, v.c(low), v.select(mid, v.c(low / 2), v.c(0.0)))
    return v.add(base, v.add(t, v.fma(v.mul(p, z), t, base_low)))


def atan(v: Lanes, x: str) -> str:
    """Arc tangent."""
    return v.copysign(_atan_positive(v, v.abs(x)), x)


def atan2(v: Lanes, y: str, x: str) -> str:
    """The angle of the point (x, y), as C's Annex F has it."""
    a, b = v.abs(y), v.abs(x)
    zero, one = v.c(0.0), v.c(1.0)
    # The quotient that is at most 1; 0/0 counts as 0 and inf/inf as 1.
    steep = v.cmp("ogt", a, b)
    top, bottom = v.select(steep, b, a), v.select(steep, a, b)
    q = v.div(top, v.select(v.cmp("oeq", bottom, zero), one, bottom))
    q = v.select(v.cmp("oeq", top, v.c(float("inf"))), one, q)
    r = _atan_positive(v, q)
    high, low = _half_pi(v)
    r = v.select(steep, v.sub(v.c(high), v.sub(r, v.c(low))), r)
    left = v.ints.cmp("slt", v.bits(x), v.ints.c(0))
    r = v.select(left, v.sub(v.c(2 * high), v.sub(r, v.c(2 * low))), r)
    r = v.copysign(r, y)
    return v.select(v.cmp("uno", x, y), v.add(x, y), r)


FUNCTIONS: dict[str, Callable[..., str]] = {
    f.__name__: f for f in (sin, cos, tan, asin, acos, atan, atan2)
}
