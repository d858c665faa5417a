"""The error function and its complement, for float32 and float64."""

from __future__ import annotations

from collections.abc import Callable

from . import coefficients as k
from .explog import exp, expm1_between
from .lanes import Lanes

# 2 / sqrt(pi), rounded to float32.
ERF_SLOPE = 1.128379225730896

# Beyond this, erfc rounds to 0.
_LIMIT = {32: 10.1, 64: 27.3}


def _erfc_positive(v: Lanes, a: str) -> str:
    """erfc(a) for a >= 0: exp(-a*a) Q(t) / (1 + 2a), t = (a - k) / (a + k).

    The rounding error of a*a is put back in by exp(-s) (1 - e).
    """
    bits = v.dtype.bits
    a = v.at_most(v.c(_LIMIT[bits]), a)
    centre = 2.0 if bits == 32 else 4.0
    t = v.div(v.sub(a, v.c(centre)), v.add(a, v.c(centre)))
    q = v.poly(t, k.ERFC32 if bits == 32 else k.ERFC64)
    q = v.div(q, v.fma(a, v.c(2.0), v.c(1.0)))
    s, e = v.two_product(a, a)
    power = exp(v, v.neg(s))
    return v.mul(v.sub(power, v.mul(power, e)), q)


def _erf_small(v: Lanes, x: str) -> str:
    """erf(x) near 0."""
    if v.dtype.bits == 32:
        return erf(v, x)
    return v.fma(v.poly(v.mul(x, x), k.ERF64), x, x)


def erf(v: Lanes, x: str) -> str:
    """1 - exp(-a Q(a)) (float32); x + x P(x*x) near 0 and 1 - erfc(a) beyond (float64)."""
    a = v.abs(x)
    if v.dtype.bits == 32:
        b = v.at_most(v.c(4.0), a)
        # The constant term in two parts, for it makes nearly all of the sum near 0.
        *rest, first = k.ERF_LOG32
        tail = v.poly(b, [*rest, first - ERF_SLOPE])
        u = v.fma(b, v.c(ERF_SLOPE), v.mul(b, tail))
        return v.copysign(expm1_between(v, v.neg(u)), x)
    large = v.sub(v.c(1.0), _erfc_positive(v, a))
    return v.copysign(v.select(v.cmp("olt", a, v.c(1.0)), _erf_small(v, a), large), x)


def erfc(v: Lanes, x: str) -> str:
    """1 - erf(x) without cancellation."""
    a = v.abs(x)
    tail = _erfc_positive(v, a)
    far = v.select(v.cmp("olt", x, v.c(0.0)), v.sub(v.c(2.0), tail), tail)
    near = v.sub(v.c(1.0), _erf_small(v, x))
    return v.select(v.cmp("olt", a, v.c(0.5)), near, far)


FUNCTIONS: dict[str, Callable[..., str]] = {f.__name__: f for f in (erf, erfc)}
