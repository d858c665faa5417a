"""Bessel functions of the first kind and incomplete gamma functions, in float64 by their formulas."""

from __future__ import annotations

from typing import Any

import numpy as np

from mortice_cpu.kernels import _special

Array = Any

#: Up to here the integral over a period is summed at 64 points, whose error, J_64(25), is 1e-19;
#: beyond, Hankel's series of 12 terms has one below 1e-16.
_FAR = 25.0
_POINTS = 64
_TERMS = 12
_EPSILON = np.finfo(np.float64).eps
_TINY = 1e-300


def _near(x: Array, order: int) -> Array:
    """Mean over t of cos(order * t - x sin t)."""
    t = 2 * np.pi * np.arange(_POINTS) / _POINTS
    return np.cos(order * t - x[..., None] * np.sin(t)).mean(-1)


def _far(x: Array, order: int) -> Array:
    """sqrt(2 / pi x) (P cos(chi) - Q sin(chi)) with Hankel's P and Q."""
    mu = 4.0 * order * order
    term = np.ones_like(x)
    sums = [np.ones_like(x), np.zeros_like(x)]
    for k in range(1, 2 * _TERMS):
        term = term * (mu - (2 * k - 1) ** 2) / (8 * k * x)
        sums[k % 2] += term if k % 4 in (0, 1) else -term
    chi = x - (order / 2 + 0.25) * np.pi
    return np.sqrt(2 / (np.pi * x)) * (sums[0] * np.cos(chi) - sums[1] * np.sin(chi))


def bessel_j(x: Array, order: int) -> Array:
    """J_0 or J_1 of a float64 array."""
    size = np.abs(x)
    far = size > _FAR
    with np.errstate(all="ignore"):
        result = np.where(
            far,
            _far(np.where(far & np.isfinite(size), size, _FAR), order),
            _near(np.where(far, 0.0, size), order),
        )
    result = np.where(np.isinf(size), 0.0, result)
    if order % 2:
        result = result * np.sign(x)
    return np.where(np.isnan(x), x, result)


def _front(a: Array, x: Array) -> Array:
    """x^a e^-x / Gamma(a + 1)."""
    return np.exp(a * np.log(x) - x - _special.lgamma(a + 1))


def _series(a: Array, x: Array) -> Array:
    """P(a, x) where x < a + 1: the sum of x^n / ((a + 1) ... (a + n))."""
    term = np.ones_like(x)
    total = np.ones_like(x)
    n = 0
    while np.any(term > total * _EPSILON):
        n += 1
        term = term * x / (a + n)
        total += term
    return _front(a, x) * total


def _fraction(a: Array, x: Array) -> Array:
    """Q(a, x) where x >= a + 1: the continued fraction, by Lentz's method."""
    b = x + 1 - a
    c = np.full_like(x, 1 / _TINY)
    d = 1 / b
    h = d.copy()
    n = 0
    factor = np.zeros_like(x)
    while np.any(np.abs(factor - 1) > _EPSILON) and n < 10_000:
        n += 1
        step = -n * (n - a)
        b = b + 2
        d = step * d + b
        d = 1 / np.where(np.abs(d) < _TINY, _TINY, d)
        c = b + step / c
        c = np.where(np.abs(c) < _TINY, _TINY, c)
        factor = d * c
        h = h * factor
    return _front(a, x) * a * h


def gamma_p(a: Array, x: Array, upper: bool = False) -> Array:
    """The regularised incomplete gamma function P(a, x), or Q = 1 - P."""
    a, x = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(x, np.float64))
    with np.errstate(all="ignore"):
        usual = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
        low = usual & (x < a + 1)
        high = usual & ~low
        p = np.zeros(a.shape)
        q = np.ones(a.shape)
        p[low] = _series(a[low], x[low])
        q[low] = 1 - p[low]
        q[high] = _fraction(a[high], x[high])
        p[high] = 1 - q[high]
        ends = ((a == 0) & (x > 0)) | (np.isinf(x) & np.isfinite(a))
        p, q = np.where(ends, 1.0, p), np.where(ends, 0.0, q)
        wrong = (a < 0) | (x < 0) | np.isnan(a) | np.isnan(x) | ((a == 0) & (x == 0))
        wrong |= np.isinf(a) & np.isinf(x)
    return np.where(wrong, np.nan, q if upper else p)
