"""GELU, x Phi(x), and its slope, Phi(x) + x phi(x), for float32 and float64.

Phi and phi are the normal distribution's cumulative function and density. In float32 the lower
tail Phi(-a), a = |x|, is 2**L(a) with a polynomial L, and its weight in the slope another
polynomial M:

    x Phi(x) = max(x, 0) - a Phi(-a)
    Phi(-a) - a phi(a) = Phi(-a) M(a)

so that nothing cancels but where the results do. Through the error function either takes nearly
twice as many instructions.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from . import coefficients as k
from .errorfn import erf
from .explog import exp
from .lanes import Lanes

_SQRT_HALF = math.sqrt(0.5)
_INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
# From here on the lower tail is 0: 2**-170.
_END = 11.0


def _lower_tail(v: Lanes, x: str) -> tuple[str, str]:
    """(Phi(-a), a) with a = |x|, limited; float32."""
    a = v.at_most(v.c(_END), v.abs(x))
    power = v.poly(a, k.LOG2_TAIL32)
    n, ni = v.round_small(power)
    return v.scale(v.poly(v.sub(power, n), k.EXP2_32), n, ni), a


def _normal_cdf(v: Lanes, x: str) -> str:
    """Phi(x) through the error function."""
    half = v.c(0.5)
    return v.fma(erf(v, v.mul(x, v.c(_SQRT_HALF))), half, half)


def gelu(v: Lanes, x: str) -> str:
    """x Phi(x)."""
    if v.dtype.bits != 32:
        x = v.at_least(v.c(-64.0), x)  # 0 from far above here on, also at -inf
        return v.mul(x, _normal_cdf(v, x))
    tail, a = _lower_tail(v, x)
    return v.fma(v.neg(a), tail, v.at_least(v.c(0.0), x))


def gelu_slope(v: Lanes, x: str) -> str:
    """Phi(x) + x phi(x)."""
    if v.dtype.bits != 32:
        x = v.at_most(v.c(64.0), v.at_least(v.c(-64.0), x))
        power = exp(v, v.mul(v.mul(x, x), v.c(-0.5)))
        return v.fma(x, v.mul(power, v.c(_INV_SQRT_2PI)), _normal_cdf(v, x))
    tail, a = _lower_tail(v, x)
    below = v.mul(tail, v.poly(a, k.GELU_SLOPE32))
    return v.select(v.cmp("ogt", x, v.c(0.0)), v.sub(v.c(1.0), below), below)


FUNCTIONS: dict[str, Callable[..., str]] = {f.__name__: f for f in (gelu, gelu_slope)}
