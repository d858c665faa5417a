"""Tensors from numbers: filled, counted, triangular; padding and joining."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mortice.fake import SymInt
from mortice_llvm.dtypes import computes_as

from ..ir import index as ix
from ..ir.values import Trace, Value, identity
from ..specs import loop_name
from .pointwise import filled
from .registry import Fallback, float_default, kind, lowers, operand, wrap_dim


def _on_cpu(device: Any) -> None:
    if device is not None and getattr(device, "type", str(device)) != "cpu":
        raise Fallback("a tensor on another device")


def _number_dtype(value: Any, dtype: Any) -> str:
    if dtype is not None:
        return loop_name(dtype)
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int) or (isinstance(value, Value) and value.dtype == "i64"):
        return "i64"
    return float_default()


@lowers("full")
def _full(
    t: Trace, size: Sequence[int], value: Any, dtype: Any = None, layout: Any = None,
    device: Any = None, *rest: Any,
) -> Value:  # fmt: skip
    _on_cpu(device)
    return filled(t, tuple(size), value, _number_dtype(value, dtype))


def _constant(value: float) -> Any:
    def sized(
        t: Trace, size: Any, dtype: Any = None, layout: Any = None, device: Any = None, *rest: Any
    ) -> Value:
        return _full(t, size, value, dtype or float_default(), None, device)

    def like(
        t: Trace, x: Value, dtype: Any = None, layout: Any = None, device: Any = None, *rest: Any
    ) -> Value:
        return _full(t, x.shape, value, dtype or x.dtype, None, device)

    def new(
        t: Trace, x: Value, size: Any, dtype: Any = None, layout: Any = None, device: Any = None,
        *rest: Any,
    ) -> Value:  # fmt: skip
        return _full(t, size, value, dtype or x.dtype, None, device)

    return sized, like, new


for _name, _value in (("zeros", 0.0), ("ones", 1.0)):
    _sized, _like, _new = _constant(_value)
    lowers(_name)(_sized)
    lowers(f"{_name}_like")(_like)
    lowers(f"new_{_name}")(_new)


@lowers("full_like")
def _full_like(
    t: Trace, x: Value, value: Any, dtype: Any = None, layout: Any = None, device: Any = None,
    *rest: Any,
) -> Value:  # fmt: skip
    return _full(t, x.shape, value, dtype or x.dtype, None, device)


@lowers("new_full")
def _new_full(
    t: Trace, x: Value, size: Any, value: Any, dtype: Any = None, layout: Any = None,
    device: Any = None, *rest: Any,
) -> Value:  # fmt: skip
    return _full(t, size, value, dtype or x.dtype, None, device)


@lowers("scalar_tensor")
def _scalar_tensor(
    t: Trace, s: Any, dtype: Any = None, layout: Any = None, device: Any = None, *rest: Any
) -> Value:
    return _full(t, (), s, dtype or float_default(), None, device)


@lowers("arange", "arange.start", "arange.start_step")
def _arange(t: Trace, *args: Any) -> Value:
    *numbers, dtype, _, device, _ = args
    _on_cpu(device)
    given = {1: (0, *numbers, 1), 2: (*numbers, 1), 3: tuple(numbers)}[len(numbers)]
    name = "i64" if dtype is None else loop_name(dtype)
    plain: list[Any] = [
        x.attr if isinstance(x, Value) and x.op == "size" else x for x in given
    ]  # fmt: skip
    start, end, step = plain
    whole = all(type(n) is int or isinstance(n, SymInt) for n in (start, end, step))
    if not whole or kind(name) == "b":
        raise Fallback("a range of fractions")
    n = max(-((start - end) // step), 0)
    first, by = (operand(t, x, "i64") for x in (given[0], given[2]))
    value = t.fn("add", t.fn("mul", t.iota((n,), 0), by), first)
    return t.cast(t.cast(value, computes_as(name)), name)


def _triangle(name: str, test: str) -> None:
    def lower(t: Trace, x: Value, diagonal: int = 0) -> Value:
        if x.dtype in ("f16", "bf16"):
            inner = t.cast(x, "f32")
        else:
            kind(x.dtype)
            inner = x
        n = len(x.shape)
        row, col = t.iota(x.shape, n - 2), t.iota(x.shape, n - 1)
        reach = t.fn("add", row, t.const(diagonal, "i64"))
        kept = t.select(t.fn(test, col, reach), inner, t.const(0, inner.dtype))
        return t.cast(kept, x.dtype)

    lowers(name)(lower)


_triangle("tril", "le")
_triangle("triu", "ge")


@lowers("eye", "eye.m")
def _eye(t: Trace, n: int, *rest: Any) -> Value:
    *size, dtype, _, device, _ = (n, *rest)
    _on_cpu(device)
    shape = (size[0], size[-1])
    name = float_default() if dtype is None else loop_name(dtype)
    same = t.fn("eq", t.iota(shape, 0), t.iota(shape, 1))
    return t.cast(t.cast(same, computes_as(name)), name)


# -- padding and joining -------------------------------------------------------------------------


@lowers("constant_pad_nd")
def _pad(t: Trace, x: Value, pad: Sequence[int], value: Any = 0) -> Value:
    inner = computes_as(x.dtype)
    kind(x.dtype)
    shape = list(x.shape)
    exprs = list(identity(x.shape))
    limits: list[tuple[int, int, int]] = []
    for k in range(len(pad) // 2):
        d = len(shape) - 1 - k
        before, after = pad[2 * k], pad[2 * k + 1]
        n = shape[d]
        shape[d] = n + before + after
        exprs[d] = ix.add(ix.var(d), ix.const(-before))
        limits.append((d, before, before + n))
    out = tuple(shape)
    inside: Value | None = None
    for d, low, high in limits:
        if low <= 0 and high >= out[d]:
            continue
        at = t.iota(out, d)
        for test, bound in (("ge", low), ("lt", high)):
            part = t.fn(test, at, t.size(bound))
            inside = part if inside is None else t.fn("and", inside, part)
    moved = t.view(t.cast(x, inner), exprs, out)
    if inside is None:
        return t.cast(moved, x.dtype)
    return t.cast(t.masked(inside, moved, operand(t, value, inner)), x.dtype)


@lowers("cat")
def _cat(t: Trace, tensors: Sequence[Value], dim: int = 0) -> Value:
    from .registry import promote

    parts = [v for v in tensors if v.shape != (0,)]
    if not parts:
        raise Fallback("nothing to join")
    dtype = parts[0].dtype
    for v in tensors:
        dtype = promote(dtype, v.dtype)
    inner = computes_as(dtype)
    d = wrap_dim(dim, len(parts[0].shape))
    n = sum(v.shape[d] for v in parts)
    shape = (*parts[0].shape[:d], n, *parts[0].shape[d + 1 :])
    if len(parts) > 4:
        raise Fallback("more than four parts are joined faster by copying")
    out: Value | None = None
    start = n
    for v in reversed(parts):
        start -= v.shape[d]
        exprs = list(identity(shape))
        exprs[d] = ix.add(ix.var(d), ix.const(-start))
        moved = t.view(t.cast(v, inner), exprs, shape)
        if out is None and start == 0:
            out = moved
            continue
        if out is None:
            out = t.view(t.const(0, inner), (), shape)
        at = t.iota(shape, d)
        inside = t.fn(
            "and", t.fn("ge", at, t.size(start)), t.fn("lt", at, t.size(start + v.shape[d]))
        )
        out = t.masked(inside, moved, out)
    assert out is not None
    return t.cast(out, dtype)


@lowers("stack")
def _stack(t: Trace, tensors: Sequence[Value], dim: int = 0) -> Value:
    d = wrap_dim(dim, len(tensors[0].shape) + 1)
    return _cat(t, [t.unsqueeze(v, d) for v in tensors], d)


@lowers("select_scatter")
def _select_scatter(t: Trace, x: Value, src: Value, dim: int, index: int) -> Value:
    d = wrap_dim(dim, len(x.shape))
    at = index % x.shape[d]
    return _slice_scatter(t, x, t.unsqueeze(src, d), d, at, at + 1, 1)


@lowers("slice_scatter")
def _slice_scatter(
    t: Trace, x: Value, src: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    from .views import sliced

    if step != 1:
        raise Fallback("a slice with steps")
    d = wrap_dim(dim, len(x.shape))
    low, size = sliced(x.shape[d], start, end, 1)
    inner = computes_as(x.dtype)
    kind(x.dtype)
    exprs = list(identity(x.shape))
    exprs[d] = ix.add(ix.var(d), ix.const(-low))
    if not size:
        return x
    moved = t.view(t.cast(t.cast(src, x.dtype), inner), exprs, x.shape)
    at = t.iota(x.shape, d)
    inside = t.fn("and", t.fn("ge", at, t.size(low)), t.fn("lt", at, t.size(low + size)))
    return t.cast(t.masked(inside, moved, t.cast(x, inner)), x.dtype)
