"""Random operators as functions of seed, offset and element index: the numbers that eager draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mortice_llvm.dtypes import computes_as

from ..ir import index as ix
from ..ir.values import Shape, Trace, Value, identity
from ..specs import loop_name
from .graph import Lowering, Random
from .registry import Fallback, float_default, is_float, lowers, operand, wants_graph


def _stream(graph: Lowering, generator: Any) -> Random:
    if isinstance(generator, Random):
        return generator
    if generator is not None:
        raise Fallback("a generator that the graph holds")
    return graph.draw()


def _words(t: Trace, shape: Shape, stream: Random, factor: int = 1, plus: int = 0) -> Value:
    """Word ``factor * i + plus`` for element number i."""
    flat = ix.linear(identity(shape), ix.contiguous(shape))
    numel = 1
    for n in shape:
        numel *= n
    index = t.view(t.iota((max(numel, 1),), 0), (flat,), shape)
    if factor != 1:
        index = t.fn("add", t.fn("mul", index, t.const(factor, "i64")), t.const(plus, "i64"))
    full, seed, offset = (t.expand(v, shape) if v.shape != shape and v is index else v
                          for v in (index, stream.seed, stream.offset))  # fmt: skip
    return t.make("philox", (full, seed, offset), shape, "u32")


def uniform(t: Trace, shape: Shape, dtype: str, stream: Random) -> Value:
    """Numbers in [0, 1), in the dtype in which ``dtype`` computes."""
    if dtype == "f64":
        low, high = (_words(t, shape, stream, 2, k) for k in range(2))
        pair = t.fn("or", t.fn("shl", t.cast(high, "u64"), t.const(32, "u64")), t.cast(low, "u64"))
        top = t.cast(t.bitcast(t.fn("shr", pair, t.const(11, "u64")), "i64"), "f64")
        return t.fn("mul", top, t.const(2.0**-53, "f64"))
    bits = {"f32": 24, "f16": 11, "bf16": 8}[dtype]
    top = t.fn("shr", _words(t, shape, stream), t.const(32 - bits, "u32"))
    # Below 2**31, so the signed conversion is right, and one instruction on every level.
    return t.fn("mul", t.cast(t.bitcast(top, "i32"), "f32"), t.const(2.0**-bits, "f32"))


@lowers("rand.generator")
@wants_graph
def _rand(
    graph: Lowering, size: Sequence[int], generator: Any = None, dtype: Any = None,
    layout: Any = None, device: Any = None, *rest: Any,
) -> Value:  # fmt: skip
    return _uniform(graph, tuple(size), generator, dtype, device)


def _uniform(graph: Lowering, size: Shape, generator: Any, dtype: Any, device: Any) -> Value:
    name = float_default() if dtype is None else loop_name(dtype)
    if not is_float(name) or (device is not None and getattr(device, "type", device) != "cpu"):
        raise Fallback(f"random {name} on {device}")
    t = graph.trace
    return t.cast(uniform(t, size, name, _stream(graph, generator)), name)


@lowers("rand")
@wants_graph
def _rand_default(
    graph: Lowering, size: Sequence[int], dtype: Any = None, layout: Any = None,
    device: Any = None, *rest: Any,
) -> Value:  # fmt: skip
    return _uniform(graph, tuple(size), None, dtype, device)


@lowers("rand_like")
@wants_graph
def _rand_like(
    graph: Lowering, x: Value, dtype: Any = None, layout: Any = None, device: Any = None, *rest: Any
) -> Value:
    return _uniform(graph, x.shape, None, dtype or x.dtype, device)


@lowers("rand_like.generator")
@wants_graph
def _rand_like_generator(
    graph: Lowering, x: Value, generator: Any = None, dtype: Any = None, layout: Any = None,
    device: Any = None, *rest: Any,
) -> Value:  # fmt: skip
    return _uniform(graph, x.shape, generator, dtype or x.dtype, device)


@lowers("native_dropout")
@wants_graph
def _native_dropout(graph: Lowering, x: Value, p: float, train: bool | None) -> Any:
    t = graph.trace
    if not is_float(x.dtype):
        raise Fallback(f"dropout of {x.dtype}")
    if train is False:
        return x, t.view(t.const(True, "bool"), (), x.shape)
    keep = 1 - p
    u = uniform(t, x.shape, "f32", _stream(graph, None))
    mask = t.fn("lt", u, t.const(keep, "f32"))
    return scaled(t, x, mask, 0.0 if p == 1 else 1 / keep), mask


def scaled(t: Trace, x: Value, mask: Value, scale: Any) -> Value:
    """x mask scale, rounded once: a NaN that is dropped stays NaN, as x times 0 is."""
    inner = computes_as(x.dtype)
    kept = t.fn("mul", t.cast(x, inner), t.cast(mask, inner))
    return t.cast(t.fn("mul", kept, operand(t, scale, inner)), x.dtype)


@lowers("native_dropout_backward")
def _native_dropout_backward(t: Trace, grad: Value, mask: Value, scale: Any) -> Value:
    if not is_float(grad.dtype):
        raise Fallback(f"dropout of {grad.dtype}")
    return scaled(t, grad, mask, scale)
