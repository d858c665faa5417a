"""Hyperbolic functions and their inverses, for float32 and float64."""

from __future__ import annotations

from collections.abc import Callable

from . import coefficients as k
from .explog import LN2, exp, expm1, expm1_between, log, log1p
from .lanes import Lanes


def tanh(v: Lanes, x: str) -> str:
    """t / (t + 2), t = exp(2|x|) - 1 (float32); a polynomial for |x| < 0.625, else
    1 - 2 / (t + 2) (float64).
    """
    size = v.abs(x)
    limit = 10.0 if v.dtype.bits == 32 else 20.0
    t = expm1_between(v, v.mul(v.at_most(v.c(limit), size), v.c(2.0)))
    below = v.add(t, v.c(2.0))
    if v.dtype.bits == 32:
        return v.copysign(v.div(t, below), x)
    large = v.sub(v.c(1.0), v.div(v.c(2.0), below))
    z = v.mul(x, x)
    p = v.poly(z, k.TANH64)
    small = v.fma(v.mul(p, z), size, size)
    return v.copysign(v.select(v.cmp("olt", size, v.c(0.625)), small, large), x)


def _half_exp(v: Lanes, size: str) -> str:
    """exp(size) / 2, also where exp(size) alone would overflow."""
    h = exp(v, v.mul(size, v.c(0.5)))
    return v.mul(v.mul(h, v.c(0.5)), h)


def sinh(v: Lanes, x: str) -> str:
    """(E + E / (E + 1)) / 2 with E = exp(|x|) - 1; exp(|x|) / 2 when that is all."""
    size = v.abs(x)
    limit = 15.0 if v.dtype.bits == 32 else 25.0
    e = expm1(v, v.at_most(v.c(limit), size))
    small = v.mul(v.c(0.5), v.add(e, v.div(e, v.add(e, v.c(1.0)))))
    large = _half_exp(v, size)
    return v.copysign(v.select(v.cmp("olt", size, v.c(limit)), small, large), x)


def cosh(v: Lanes, x: str) -> str:
    """exp(|x|) / 2 + 1 / (2 exp(|x|))."""
    size = v.abs(x)
    limit = 15.0 if v.dtype.bits == 32 else 25.0
    e = exp(v, v.at_most(v.c(limit), size))
    small = v.fma(e, v.c(0.5), v.div(v.c(0.5), e))
    return v.select(v.cmp("olt", size, v.c(limit)), small, _half_exp(v, size))


def asinh(v: Lanes, x: str) -> str:
    """log1p(a + a*a / (1 + sqrt(1 + a*a))), a = |x|; log(a) + log(2) for large a."""
    a = v.abs(x)
    large = v.cmp("ogt", a, v.c(4096.0 if v.dtype.bits == 32 else 2.0**28))
    one = v.c(1.0)
    b = v.select(large, one, a)
    z = v.mul(b, b)
    small = log1p(v, v.add(b, v.div(z, v.add(one, v.call("sqrt", v.add(one, z))))))
    big = v.add(log(v, a), v.c(LN2))
    return v.copysign(v.select(large, big, small), x)


def acosh(v: Lanes, x: str) -> str:
    """log1p(t + sqrt(2t + t*t)), t = x - 1; log(x) + log(2) for large x; NaN below 1."""
    large = v.cmp("ogt", x, v.c(4096.0 if v.dtype.bits == 32 else 2.0**28))
    one = v.c(1.0)
    t = v.sub(v.select(large, one, x), one)
    small = log1p(v, v.add(t, v.call("sqrt", v.fma(t, t, v.mul(t, v.c(2.0))))))
    big = v.add(log(v, x), v.c(LN2))
    return v.select(v.cmp("ult", x, one), v.c(float("nan")), v.select(large, big, small))


def atanh(v: Lanes, x: str) -> str:
    """log1p(2a / (1 - a)) / 2, a = |x|."""
    a = v.abs(x)
    y = log1p(v, v.div(v.add(a, a), v.sub(v.c(1.0), a)))
    return v.copysign(v.mul(v.c(0.5), y), x)


FUNCTIONS: dict[str, Callable[..., str]] = {
    f.__name__: f for f in (tanh, sinh, cosh, asinh, acosh, atanh)
}
