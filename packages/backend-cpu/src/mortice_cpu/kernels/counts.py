"""Poisson and binomial counts.

Small means by inversion from one uniform number, large ones by Hörmann's transformed rejection
(PTRS, 1993; BTRS, 1993), every round with a fresh offset, so that an element's number depends on its
own index alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_INVERT_BELOW = 10.0
_ROUNDS = 256  # each accepts at least 0.7 of what is left


def _log_factorial(k: Array) -> Array:
    """log(k!) by Stirling's series from 10 on, shifted there by products below; error < 1e-13."""
    k = np.asarray(k, np.float64)
    shift = np.ones_like(k)
    x = k + 1
    for _ in range(10):
        low = x < 10
        shift = np.where(low, shift * x, shift)
        x = np.where(low, x + 1, x)
    inverse = 1 / x
    square = inverse * inverse
    series = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680)))
    return (x - 0.5) * np.log(x) - x + 0.5 * np.log(2 * np.pi) + series - np.log(shift)


def _invert(u: Array, first: Array, ratio: Callable[[int], Array], most: int) -> Array:
    """The count at which the cumulated probabilities exceed ``u``."""
    probability = first.copy()
    total = first.copy()
    count = np.zeros_like(u)
    for k in range(1, most):
        above = u >= total
        if not above.any():
            break
        count[above] = k
        probability = probability * ratio(k)
        total = total + probability
    return count


def poisson_counts(rate: Array, draw: Any) -> Array:
    """Counts of Poisson distributions with the given means."""
    u = draw.fill("f64", rate.size)
    small = np.minimum(rate, _INVERT_BELOW)
    out = _invert(u, np.exp(-small), lambda k: small / k, 80)
    large = rate >= _INVERT_BELOW
    if large.any():
        _poisson_by_rejection(np.where(large, rate, _INVERT_BELOW), large, out, draw)
    return out


def _poisson_by_rejection(rate: Array, wanted: Array, out: Array, draw: Any) -> None:
    root, log_rate = np.sqrt(rate), np.log(rate)
    b = 0.931 + 2.53 * root
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    squeeze = 0.9277 - 3.6224 / (b - 2)
    left = wanted.copy()
    for _ in range(_ROUNDS):
        u = draw.fill("f64", rate.size) - 0.5
        v = draw.fill("f64", rate.size)
        us = 0.5 - np.abs(u)
        with np.errstate(all="ignore"):
            k = np.floor((2 * a / us + b) * u + rate + 0.43)
            quick = (us >= 0.07) & (v <= squeeze)
            slow = np.log(v * inverse_alpha / (a / (us * us) + b)) <= (
                k * log_rate - rate - _log_factorial(np.maximum(k, 0))
            )
        taken = left & (quick | (slow & (k >= 0) & ((us >= 0.013) | (v <= us))))
        out[taken] = k[taken]
        left &= ~taken
        if not left.any():
            return


def binomial_counts(n: Array, p: Array, draw: Any) -> Array:
    """Successes in ``n`` trials of probability ``p``; NaN in, NaN out."""
    bad = np.isnan(n) | np.isnan(p)
    n = np.where(bad, 0, np.floor(n))
    p = np.where(bad, 0, np.clip(p, 0, 1))
    flipped = p > 0.5
    q = np.where(flipped, 1 - p, p)
    u = draw.fill("f64", n.size)
    small = n * q < _INVERT_BELOW
    trials = np.where(small, n, 0)
    odds = q / (1 - q)
    first = np.exp(trials * np.log1p(-q))
    out = _invert(u, first, lambda k: np.maximum(trials - k + 1, 0) / k * odds, 120)
    out = np.minimum(out, trials)
    if not small.all():
        _binomial_by_rejection(np.where(small, 40, n), np.where(small, 0.5, q), ~small, out, draw)
    out = np.where(flipped, n - out, out)
    out[bad] = np.nan
    return out


def _binomial_by_rejection(n: Array, p: Array, wanted: Array, out: Array, draw: Any) -> None:
    spread = np.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    centre = n * p + 0.5
    alpha = (2.83 + 5.1 / b) * spread
    squeeze = 0.92 - 4.2 / b
    odds = np.log(p / (1 - p))
    mode = np.floor((n + 1) * p)
    at_mode = _log_factorial(mode) + _log_factorial(n - mode)
    left = wanted.copy()
    for _ in range(_ROUNDS):
        u = draw.fill("f64", n.size) - 0.5
        v = draw.fill("f64", n.size)
        us = 0.5 - np.abs(u)
        with np.errstate(all="ignore"):
            k = np.floor((2 * a / us + b) * u + centre)
            inside = (k >= 0) & (k <= n)
            safe = np.clip(k, 0, n)
            quick = (us >= 0.07) & (v <= squeeze)
            bound = at_mode - _log_factorial(safe) - _log_factorial(n - safe) + (safe - mode) * odds
            slow = np.log(v * alpha / (a / (us * us) + b)) <= bound
        taken = left & inside & (quick | slow)
        out[taken] = k[taken]
        left &= ~taken
        if not left.any():
            return
