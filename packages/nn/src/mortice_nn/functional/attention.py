"""Scaled dot-product attention and the multi-head form of it."""

from __future__ import annotations

import mortice
from mortice import Tensor
from mortice.errors import ArgumentError, ShapeError
from mortice_nn import operators as op
from mortice_nn.functional.dropouts import dropout
from mortice_nn.functional.linear_maps import linear


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(q k^T * scale + mask) v: (*, L, E), (*, S, E), (*, S, V) -> (*, L, V).

    ``attn_mask`` broadcasts to (*, L, S): bool (True takes part) or added. ``scale`` is
    1 / sqrt(E) by default. ``enable_gqa`` repeats key and value heads (dim -3) to the query's.
    """
    return op.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def canonical_mask(mask: Tensor | None, name: str, dtype: object) -> Tensor | None:
    """A mask to be added: bool masks (True means left out) become 0 and -inf."""
    if mask is None:
        return None
    if mask.dtype == mortice.bool:
        added = mortice.zeros_like(mask, dtype=dtype)
        return added.masked_fill_(mask, float("-inf"))
    if not mask.is_floating_point():
        raise ArgumentError(
            f"only bool and floating types of {name} are supported, not {mask.dtype}"
        )
    return mask


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of ``num_heads`` heads: query (L, N, E), key and value (S, N, ...), or unbatched.

    ``attn_mask`` is (L, S) or (N heads, L, S), ``key_padding_mask`` (N, S); in bool masks True is
    left out. Returns the output of query's shape and, with ``need_weights``, the weights
    (N, L, S), or (N, heads, L, S) unless averaged.
    """
    batched = query.ndim == 3
    if not batched:
        if query.ndim != 2:
            raise ShapeError(
                "multi_head_attention_forward expects a 2-d (unbatched) or 3-d query, found "
                f"{query.ndim}-d"
            )
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
    length, n, embed = query.shape
    _check_embedding(embed, embed_dim_to_check, num_heads)
    if is_causal and attn_mask is None:
        raise ArgumentError("is_causal is a hint about attn_mask and needs one; pass attn_mask")
    mask = canonical_mask(attn_mask, "attn_mask", query.dtype)
    padding = canonical_mask(key_padding_mask, "key_padding_mask", query.dtype)

    weights = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else None
    q, k, v = _project(query, key, value, in_proj_weight, in_proj_bias, weights)
    if mask is not None and mask.ndim == 2:
        _check_mask(mask, (length, k.shape[0]))
        mask = mask.unsqueeze(0)
    elif mask is not None:
        _check_mask(mask, (n * num_heads, length, k.shape[0]))
    extra = 0
    if bias_k is not None and bias_v is not None:
        k = mortice.cat([k, bias_k.expand(1, n, -1)])
        v = mortice.cat([v, bias_v.expand(1, n, -1)])
        extra += 1
    head = embed // num_heads
    q = q.reshape(length, n * num_heads, head).transpose(0, 1)
    k = _heads(k, n, num_heads) if static_k is None else static_k
    v = _heads(v, n, num_heads) if static_v is None else static_v
    if add_zero_attn:
        k = mortice.cat([k, mortice.zeros_like(k[:, :1])], 1)
        v = mortice.cat([v, mortice.zeros_like(v[:, :1])], 1)
        extra += 1
    source = k.shape[1]
    if padding is not None:
        padding = op.constant_pad_nd(padding, [0, extra], 0.0) if extra else padding
        padding = padding.reshape(n, 1, 1, source).expand(-1, num_heads, -1, -1)
        padding = padding.reshape(n * num_heads, 1, source)
    if mask is not None and extra:
        mask = op.constant_pad_nd(mask, [0, extra], 0.0)
    if padding is not None:
        mask = padding if mask is None else mask + padding

    p = dropout_p if training else 0.0
    if need_weights:
        scores = (q * (head**-0.5)).bmm(k.transpose(1, 2))
        attention = op.softmax(scores if mask is None else scores + mask, -1)
        if p > 0.0:
            attention = dropout(attention, p)
        out = attention.bmm(v).transpose(0, 1).reshape(length * n, embed)
        out = linear(out, out_proj_weight, out_proj_bias).reshape(length, n, -1)
        attention = attention.reshape(n, num_heads, length, source)
        if average_attn_weights:
            attention = attention.mean(1)
        if not batched:
            return out.squeeze(1), attention.squeeze(0)
        return out, attention
    if mask is not None:
        if mask.shape[0] == 1:
            mask = mask.unsqueeze(0)
        else:
            mask = mask.reshape(n, num_heads, -1, source)
    q = q.reshape(n, num_heads, length, head)
    k = k.reshape(n, num_heads, source, head)
    v = v.reshape(n, num_heads, source, head)
    out = scaled_dot_product_attention(q, k, v, mask, p)
    out = out.permute(2, 0, 1, 3).reshape(length * n, embed)
    out = linear(out, out_proj_weight, out_proj_bias).reshape(length, n, -1)
    return (out if batched else out.squeeze(1)), None


def _check_embedding(embed: int, expected: int, num_heads: int) -> None:
    if embed != expected:
        raise ShapeError(f"was expecting embedding dimension of {expected}, but got {embed}")
    if embed % num_heads:
        raise ShapeError(f"embed_dim {embed} not divisible by num_heads {num_heads}")


def _check_mask(mask: Tensor, expected: tuple[int, ...]) -> None:
    if tuple(mask.shape) != expected:
        raise ShapeError(
            f"The shape of the {mask.ndim}D attn_mask is {tuple(mask.shape)}, but should be "
            f"{expected}"
        )


def _heads(x: Tensor, n: int, num_heads: int) -> Tensor:
    return x.reshape(x.shape[0], n * num_heads, -1).transpose(0, 1)


def _project(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    separate: tuple[Tensor | None, Tensor | None, Tensor | None] | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values; one product where all three come from one tensor."""
    if separate is None and in_proj_weight is not None:
        if query is key and key is value:
            q, k, v = linear(query, in_proj_weight, in_proj_bias).chunk(3, -1)
            return q, k, v
        w_q, w_k, w_v = in_proj_weight.chunk(3)
        separate = (w_q, w_k, w_v)
    if separate is None or any(weight is None for weight in separate):
        raise ArgumentError(
            "multi_head_attention_forward needs in_proj_weight or all three weights"
        )
    biases = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
    q, k, v = (
        linear(x, w, b)  # pyright: ignore[reportArgumentType]
        for x, w, b in zip((query, key, value), separate, biases, strict=True)
    )
    return q, k, v
