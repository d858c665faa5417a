"""Negative log likelihood and distances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mortice.backend import shape_rule, wrap
from mortice.errors import DimensionError
from mortice_cpu.precision import narrow, widen


def _rows(self: Any, target: Any) -> tuple[Any, Any]:
    return widen(self._a).reshape(-1, self._a.shape[-1]), target._a.reshape(-1).astype(np.int64)


def _weights(rows: Any, t: Any, weight: Any, ignore: int) -> Any:
    """Weight of each sample; 0 where its target is ignored. DimensionError for a bad index."""
    kept = t != ignore
    used = t[kept]
    classes = rows.shape[1]
    if used.size and (used.min() < 0 or used.max() >= classes):
        bad = used[(used < 0) | (used >= classes)][0]
        raise DimensionError(f"Target {bad} is out of bounds: there are {classes} classes.")
    if weight is None:
        return kept.astype(rows.dtype)
    w = np.zeros(len(t), rows.dtype)
    w[kept] = widen(weight._a)[used]
    return w


def nll_loss_forward(self: Any, target: Any, weight: Any, reduction: int, ignore: int) -> Any:
    (shape, dtype), _ = shape_rule("nll_loss_forward")(self, target, weight, reduction, ignore)
    rows, t = _rows(self, target)
    w = _weights(rows, t, weight, ignore)
    safe = np.where(t == ignore, 0, t)
    picked = rows[np.arange(len(t)), safe] if rows.shape[1] else np.zeros(len(t), rows.dtype)
    loss = -picked * w
    loss[w == 0] = 0  # an ignored sample may hold inf
    total = w.sum(dtype=rows.dtype)
    with np.errstate(all="ignore"):
        if reduction == 1:
            loss = loss.sum(dtype=rows.dtype) / total
        elif reduction == 2:
            loss = loss.sum(dtype=rows.dtype)
    out = np.asarray(loss, rows.dtype).reshape(shape)
    if reduction == 0 and self._a.ndim == 2:
        total = np.zeros((), rows.dtype)
    numpy_dtype = self._a.dtype
    return (
        wrap(narrow(out, numpy_dtype), dtype),
        wrap(narrow(np.asarray(total, rows.dtype), numpy_dtype), dtype),
    )


def nll_loss_backward(
    grad: Any, self: Any, target: Any, weight: Any, reduction: int, ignore: int, total: Any
) -> Any:
    rows, t = _rows(self, target)
    w = _weights(rows, t, weight, ignore)
    g = widen(grad._a).reshape(-1)
    out = np.zeros(rows.shape, rows.dtype)
    scale = -w * g
    if reduction == 1:
        with np.errstate(all="ignore"):
            scale = scale / widen(total._a)
    safe = np.where(t == ignore, 0, t)
    out[np.arange(len(t)), safe] = np.where(t == ignore, 0, scale)
    return wrap(narrow(out.reshape(self._a.shape), self._a.dtype), self._t)


def cdist_forward(x1: Any, x2: Any, p: float, compute_mode: Any) -> Any:
    shape, dtype = shape_rule("_cdist_forward")(x1, x2, p, compute_mode)
    a, b = widen(x1._a), widen(x2._a)
    out = np.zeros(shape, a.dtype)
    # One column at a time keeps the temporary at the size of the result.
    for k in range(a.shape[-1]):
        d = np.abs(a[..., :, None, k] - b[..., None, :, k])
        _accumulate(out, d, p)
    return wrap(narrow(_root(out, p), x1._a.dtype), dtype)


def _accumulate(out: Any, d: Any, p: float) -> None:
    if p == 0:
        out += d != 0
    elif p == 1:
        out += d
    elif p == 2:
        out += d * d
    elif p == np.inf:
        np.maximum(out, d, out=out)
    else:
        out += d**p


def _root(out: Any, p: float) -> Any:
    if p in (0, 1, np.inf):
        return out
    return np.sqrt(out) if p == 2 else out ** (1 / p)


def pdist_forward(self: Any, p: float) -> Any:
    _, dtype = shape_rule("_pdist_forward")(self, p)
    a = widen(self._a)
    i, j = np.triu_indices(a.shape[0], 1)
    out = np.zeros(len(i), a.dtype)
    for k in range(a.shape[1]):
        _accumulate(out, np.abs(a[i, k] - a[j, k]), p)
    return wrap(narrow(_root(out, p), self._a.dtype), dtype)


KERNELS: dict[str, Callable[..., Any]] = {
    "nll_loss_forward": nll_loss_forward,
    "nll_loss_backward": nll_loss_backward,
    "_cdist_forward": cdist_forward,
    "_pdist_forward": pdist_forward,
}
