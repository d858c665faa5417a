"""Special functions that numpy lacks, on float32 and float64 arrays.

Where Python's libm has the function (erf, erfc, lgamma) it is called element by element, about
80 ns each, correct to the last digits; the others are series computed in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mortice_cpu.kernels._elementwise import silence


def by_element(function: Callable[[float], float]) -> Callable[[Any], Any]:
    """An array function from a function of Python floats."""

    def apply(a: Any) -> Any:
        a = np.asarray(a)
        out = np.empty_like(a, np.float64)  # dense, in the order of ``a``, so that ravel is a view
        out.ravel("K")[...] = [function(x) for x in a.ravel("K").tolist()]
        return out.astype(a.dtype)

    return apply


def _lgamma(x: float) -> float:
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):  # poles, and arguments near 1e305
        return math.inf


erf = by_element(math.erf)
erfc = by_element(math.erfc)
lgamma = by_element(_lgamma)


def digamma(a: Any) -> Any:
    """Recurrence up to 10, then the asymptotic series; reflection for negative arguments.

    At 0 the result is -inf with the sign of the zero, at negative integers nan, as in PyTorch.
    """
    x = np.asarray(a, np.float64)
    out = _digamma_positive(np.where(x > 0, x, 1 - x))
    negative = x <= 0
    if negative.any():
        frac = x - np.trunc(x)
        out = np.where(negative, out - math.pi / np.tan(math.pi * frac), out)
        out = np.where(negative & (frac == 0), np.nan, out)
        out = np.where(x == 0, np.copysign(np.inf, -x), out)
    return np.where(np.isneginf(x), np.nan, out).astype(a.dtype)


def _digamma_positive(x: Any) -> Any:
    shift = np.zeros_like(x)
    for _ in range(10):
        small = x < 10
        shift = np.where(small, shift - 1 / x, shift)
        x = np.where(small, x + 1, x)
    z = 1 / (x * x)
    tail = z * (
        1 / 12
        - z * (1 / 120 - z * (1 / 252 - z * (1 / 240 - z * (1 / 132 - z * (691 / 32760 - z / 12)))))
    )
    return shift + np.log(x) - 0.5 / x - tail


# Bernoulli numbers B2k over (2k)!, for the Euler-Maclaurin tail of zeta.
_BERNOULLI = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600,
    -3617 / 10670622842880000,
)  # fmt: skip


def zeta(s: Any, q: Any) -> Any:
    """Hurwitz zeta by Euler-Maclaurin summation, with direct terms up to q + k >= 10."""
    s = np.asarray(s, np.float64)
    q = np.asarray(q, np.float64)
    total = np.zeros(np.broadcast(s, q).shape)
    finite = q[np.isfinite(q)]
    steps = int(min(10 - finite.min(), 10_000)) + 1 if finite.size else 0
    x = q
    for _ in range(steps):
        near = x < 10
        total = np.where(near, total + x**-s, total)
        x = np.where(near, x + 1, x)
    total = total + x ** (1 - s) / (s - 1) + 0.5 * x**-s
    factor = s * x ** (-s - 1)
    for k, b in enumerate(_BERNOULLI):
        total = total + b * factor
        factor = factor * (s + 2 * k + 1) * (s + 2 * k + 2) / (x * x)
    total = np.where(s == 1, np.inf, total)
    total = np.where((s < 1) | ((q <= 0) & (q != np.floor(q)) & (s != np.floor(s))), np.nan, total)
    return np.where((s >= 1) & (q <= 0) & (q == np.floor(q)), np.inf, total)


def polygamma(n: int, a: Any) -> Any:
    if n == 0:
        return digamma(a)
    x = np.asarray(a, np.float64)
    sign = -1.0 if n % 2 == 0 else 1.0
    out = sign * math.gamma(n + 1) * zeta(float(n + 1), x)
    return out.astype(a.dtype)


# Giles' single-precision polynomials for erfinv (GPU Computing Gems, 2011), then two Newton steps.
_CENTRAL = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
    -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
    0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip


def erfinv(a: Any) -> Any:
    y = np.asarray(a, np.float64)
    w = -np.log((1 - y) * (1 + y))
    x = np.where(w < 5, _polynomial(_CENTRAL, w - 2.5), _polynomial(_TAIL, np.sqrt(w) - 3)) * y
    for _ in range(3):
        # erfc keeps its digits where erf is near 1.
        size = np.abs(x)
        error = np.where(np.abs(y) > 0.5, np.sign(y) * ((1 - np.abs(y)) - erfc(size)), erf(x) - y)
        step = error / (2 / math.sqrt(math.pi) * np.exp(-x * x))
        x = x - np.where(np.isfinite(step), step, 0)
    x = np.where(np.abs(y) == 1, np.copysign(np.inf, y), x)
    return np.where(np.abs(y) > 1, np.nan, x).astype(a.dtype)


def _polynomial(coefficients: tuple[float, ...], x: Any) -> Any:
    total = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total = total * x + c
    return total


def bessel_i0(a: Any) -> Any:
    """numpy's i0 (Chebyshev series), even in its argument."""
    with np.errstate(all="ignore"):  # np.i0 is Python code of numpy's
        return np.i0(np.abs(np.asarray(a, np.float64))).reshape(a.shape).astype(a.dtype)


def bessel_i1(a: Any) -> Any:
    """Power series to |x| = 20, beyond it the asymptotic series."""
    x = np.asarray(a, np.float64)
    size = np.abs(x)
    small = np.minimum(size, 20.0)
    term = small / 2
    total = term.copy()
    square = small * small / 4
    for k in range(1, 60):
        term = term * square / (k * (k + 1))
        total = total + term
    large = np.maximum(size, 20.0)
    series = np.ones_like(large)
    part = np.ones_like(large)
    for k in range(1, 12):
        part = part * -(4 - (2 * k - 1) ** 2) / (k * 8 * large)
        series = series + part
    far = np.exp(large) / np.sqrt(2 * math.pi * large) * series
    return np.copysign(np.where(size <= 20, total, far), x).astype(a.dtype)


def i0e(a: Any) -> Any:
    """exp(-|x|) I0(x): scaled from I0 to 500, beyond it by the asymptotic series."""
    size = np.abs(np.asarray(a, np.float64))
    near = np.i0(np.minimum(size, 500.0)).reshape(size.shape) * np.exp(-np.minimum(size, 500.0))
    far = _scaled_asymptotic(np.maximum(size, 500.0), 0)
    return np.where(size <= 500, near, far).astype(a.dtype)


def i1e(a: Any) -> Any:
    x = np.asarray(a, np.float64)
    size = np.abs(x)
    near = bessel_i1(np.minimum(size, 500.0)) * np.exp(-np.minimum(size, 500.0))
    far = _scaled_asymptotic(np.maximum(size, 500.0), 1)
    return np.copysign(np.where(size <= 500, near, far), x).astype(a.dtype)


def _scaled_asymptotic(x: Any, order: int) -> Any:
    """exp(-x) I_order(x) for large x, four terms of the series in 1/(8x)."""
    series = np.ones_like(x)
    part = np.ones_like(x)
    for k in range(1, 5):
        part = part * -(4 * order * order - (2 * k - 1) ** 2) / (k * 8 * x)
        series = series + part
    return series / np.sqrt(2 * math.pi * x)


def entr(a: Any) -> Any:
    """-x log x; 0 at 0, -inf below."""
    r = np.where(a == 0, a.dtype.type(0), -a * np.log(a))
    return np.where(a < 0, a.dtype.type(-np.inf), r)


def erfcx(a: Any) -> Any:
    """exp(x**2) erfc(x); from 10 on its asymptotic series in 1/x**2."""
    x = np.asarray(a, np.float64)
    near = np.exp(np.minimum(x, 10.0) ** 2) * erfc(np.minimum(x, 10.0))
    large = np.maximum(x, 10.0)
    z = 0.5 / (large * large)
    series = 1 - z * (1 - 3 * z * (1 - 5 * z * (1 - 7 * z * (1 - 9 * z * (1 - 11 * z)))))
    far = series / (large * math.sqrt(math.pi))
    return np.where(x < 10, near, np.where(np.isnan(x), x, far)).astype(a.dtype)


def ndtr(a: Any) -> Any:
    """The normal distribution function."""
    return (0.5 * erfc(np.asarray(a, np.float64) * -math.sqrt(0.5))).astype(a.dtype)


def log_ndtr(a: Any) -> Any:
    x = np.asarray(a, np.float64)
    t = x * math.sqrt(0.5)
    low = np.log(erfcx(-np.minimum(t, 0.0)) / 2) - t * t
    high = np.log1p(-erfc(np.maximum(t, -1.0)) / 2)
    return np.where(x < -1, low, high).astype(a.dtype)


def ndtri(a: Any) -> Any:
    """The inverse of ``ndtr`` by Python's statistics (algorithm AS 241)."""
    from statistics import NormalDist

    inverse = NormalDist().inv_cdf

    def one(p: float) -> float:
        if 0.0 < p < 1.0:
            return inverse(p)
        return {0.0: -math.inf, 1.0: math.inf}.get(p, math.nan)

    return by_element(one)(a)


silence(globals())
