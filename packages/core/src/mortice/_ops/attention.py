"""Attention as a composite of products and a softmax."""

from __future__ import annotations

import math
from typing import Any

from mortice._base.errors import InvalidValue
from mortice._ops.formulas import call
from mortice._types import dtypes


def scaled_dot_product_attention(
    query: Any, key: Any, value: Any, attn_mask: Any, dropout_p: float, is_causal: bool,
    scale: float | None, enable_gqa: bool,
) -> Any:  # fmt: skip
    """softmax(q k^T * scale + mask) v for q (..., L, E), k (..., S, E), v (..., S, V)."""
    if is_causal and attn_mask is not None:
        raise InvalidValue(
            "scaled_dot_product_attention: Explicit attn_mask should not be set when "
            "is_causal=True. Give one of them."
        )
    if enable_gqa:
        times = query._a.shape[-3] // key._a.shape[-3]
        key = key.repeat_interleave(times, -3)
        value = value.repeat_interleave(times, -3)
    dtype = query._t
    if dtype.itemsize == 2:  # rounded once, at the end
        query, key, value = query.float(), key.float(), value.float()
    rows, columns = query._a.shape[-2], key._a.shape[-2]
    width = query._a.shape[-1]
    root = math.sqrt(width) if type(width) is int else width**0.5
    factor = 1 / root if scale is None else scale
    scores = (query * factor).matmul(key.transpose(-2, -1))
    if is_causal:
        attn_mask = call("full", (rows, columns), 1, dtypes.bool_, None, query.device, None).tril(0)
    if attn_mask is not None:
        if attn_mask._t is dtypes.bool_:
            scores = scores.masked_fill(attn_mask.logical_not(), -math.inf)
        else:
            scores = scores + attn_mask
    weights = scores.softmax(-1)
    if attn_mask is not None and attn_mask._t is dtypes.bool_:
        # A row without any allowed position gives zeros, not NaN.
        hidden = attn_mask.logical_not().all(-1, True)
        weights = weights.masked_fill(hidden, 0.0)
    if dropout_p:
        weights = call("dropout", weights, dropout_p, True)
    return weights.matmul(value).to(dtype)


__all__ = [name for name in dir() if not name.startswith("_")]
