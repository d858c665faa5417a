"""The pointwise family, generated from a table of scalar expressions.

In an expression ``a``, ``b``, ... are the operator's arguments in order, converted to the type that
is computed in, which is called ``T``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import mortice
from mortice.backend import promote, with_number
from mortice_opencl.source import (
    PREAMBLE,
    TYPES,
    broadcast_strides,
    collapsed,
    is_array,
    longs,
    offset,
    parameters,
    position,
    values,
)

#: On every dtype.
ANY = {
    "add.Tensor": "a + c * b",
    "sub.Tensor": "a - c * b",
    "rsub.Scalar": "b - c * a",
    "mul.Tensor": "a * b",
    "neg": "-a",
    "square": "a * a",
    "relu": "a < 0 ? (T)0 : a",
    "sign": "(T)(a > 0) - (T)(a < 0)",
    "where.self": "a != 0 ? b : c",
    "masked_fill.Scalar": "b != 0 ? c : a",
    "masked_fill.Tensor": "b != 0 ? c : a",
    "maximum": "(a > b || a != a) ? a : b",
    "minimum": "(a < b || a != a) ? a : b",
    "threshold_backward": "b > c ? a : (T)0",
    "copy_": "a",
    "eq.Tensor": "a == b",
    "ne.Tensor": "a != b",
    "lt.Tensor": "a < b",
    "le.Tensor": "a <= b",
    "gt.Tensor": "a > b",
    "ge.Tensor": "a >= b",
    "isnan": "a != a",
    "logical_not": "!a",
    "logical_and": "a && b",
    "logical_or": "a || b",
}

#: On integers and bools.
INTEGRAL = {
    "bitwise_and.Tensor": "a & b",
    "bitwise_or.Tensor": "a | b",
    "bitwise_xor.Tensor": "a ^ b",
    "bitwise_not": "~a",
    "abs": "a < 0 ? -a : a",
}

#: Computed in a floating type; integers are converted where the result is floating.
FLOATING = {
    **{
        name: f"{name}(a)"
        for name in (
            "exp",
            "log",
            "log2",
            "log10",
            "log1p",
            "expm1",
            "sqrt",
            "rsqrt",
            "sin",
            "cos",
            "tan",
            "asin",
            "acos",
            "atan",
            "sinh",
            "cosh",
            "tanh",
            "asinh",
            "acosh",
            "atanh",
            "erf",
            "erfc",
            "floor",
            "ceil",
            "trunc",
        )
    },
    "abs": "fabs(a)",
    "round": "rint(a)",
    "reciprocal": "1 / a",
    "sigmoid": "1 / (1 + exp(-a))",
    "div.Tensor": "a / b",
    "remainder.Tensor": "a - b * floor(a / b)",
    "pow.Tensor_Tensor": "pow(a, b)",
    "pow.Tensor_Scalar": "b == 2 ? a * a : pow(a, b)",
    "atan2": "atan2(a, b)",
    "clamp": "(a < b ? b : a) > c ? c : (a < b ? b : a)",
    "clamp.Tensor": "(a < b ? b : a) > c ? c : (a < b ? b : a)",
    "lerp.Scalar": "a + c * (b - a)",
    "lerp.Tensor": "a + c * (b - a)",
    "addcmul": "a + d * b * c",
    "addcdiv": "a + d * b / c",
    "silu": "a / (1 + exp(-a))",
    "gelu": "a * (T)0.5 * (1 + erf(a * (T)M_SQRT1_2))",
    "leaky_relu": "a > 0 ? a : a * b",
    "leaky_relu_backward": "b > 0 ? a : a * c",
    "sigmoid_backward": "a * (1 - b) * b",
    "tanh_backward": "a * (1 - b * b)",
}
#: These keep integers as they are, which their expressions do not.
_ROUNDING = frozenset(
    ("floor", "ceil", "trunc", "round", "remainder.Tensor", "clamp", "clamp.Tensor")
)
#: What an argument that is None stands for.
_ABSENT = {name: {1: -np.inf, 2: np.inf} for name in ("clamp", "clamp.Tensor")}
_COMPARING = frozenset(name for name in ANY if name.split(".")[0] in {
    "eq", "ne", "lt", "le", "gt", "ge", "isnan", "logical_not", "logical_and", "logical_or",
})  # fmt: skip


def kernel(runtime: Any, op: str, dtypes: tuple[Any, ...]) -> Callable[..., None] | None:
    """The kernel of a pointwise operator, or None."""
    floating = any(dtype.is_floating_point for dtype in dtypes)
    expression = None if floating else INTEGRAL.get(op)
    if expression is None and (floating or op not in _ROUNDING):
        expression = ANY.get(op) or FLOATING.get(op)
    if op == "bitwise_not" and dtypes[0] is mortice.bool:
        expression = "!a"
    if expression is None:
        return None

    def run(*arguments: Any, stream: Any) -> None:
        *inputs, out = arguments
        if op == "gelu" and inputs.pop() == "tanh":
            text = "a * (T)0.5 * (1 + tanh((T)0.7978845608028654 * (a + (T)0.044715 * a * a * a)))"
            _launch(runtime, stream, text, inputs, out, out.dtype)
            return
        absent = _ABSENT.get(op, {})
        inputs = [absent.get(i) if x is None else x for i, x in enumerate(inputs)]
        compared = op in _COMPARING or out.dtype is mortice.bool
        computed = _computed(inputs) if compared else out.dtype
        _launch(runtime, stream, expression, inputs, out, computed)

    return run


def _computed(inputs: list[Any]) -> Any:
    """What a comparison compares in: the dtype to which all its inputs go."""
    found = None
    for x in inputs:
        if is_array(x):
            found = x.dtype if found is None else promote(found, x.dtype)
    for x in inputs:
        if not is_array(x) and x is not None:
            found = with_number(found, x)
    return found


def _launch(
    runtime: Any, queue: Any, expression: str, inputs: list[Any], out: Any, computed: Any
) -> None:
    arrays = [out, *(x for x in inputs if is_array(x))]
    sizes, strides = collapsed(out.shape, [broadcast_strides(x, out.shape) for x in arrays])
    kinds = tuple(x.dtype if is_array(x) else None for x in inputs)
    source = _source(expression, kinds, out.dtype, computed, len(sizes))
    used = _used(expression)
    numbers = [
        computed.numpy.type(x)
        for letter, x in zip("abcd", inputs)
        if letter in used and not is_array(x)
    ]
    passed: list[Any] = longs(sizes[1:])
    for array, steps in zip(arrays, strides):
        passed += values(array, steps)
    runtime.launch(source, queue, (int(np.prod(sizes)),), [*passed, *numbers])


@cache
def _source(expression: str, kinds: tuple[Any, ...], result: Any, computed: Any, sizes: int) -> str:
    """The program for inputs of some dtypes (None: a number) over so many dimensions."""
    arrays = [(x, kind) for x, kind in zip("abcd", kinds) if kind is not None]
    numbers = [x for x, kind in zip("abcd", kinds) if kind is None and x in _used(expression)]
    T = TYPES[computed]
    takes = [f"long n{d}" for d in range(1, sizes)]
    names = ["out", *(f"p{x}" for x, _ in arrays)]
    takes.append(parameters(names, [TYPES[result], *(TYPES[k] for _, k in arrays)], sizes))
    takes += [f"{T} {x}" for x in numbers]
    loads = [f"{T} {x} = ({T})p{x}[{offset('i', f'p{x}', sizes)}];" for x, _ in arrays]
    value = f"({expression})"
    if result is mortice.bool:
        value = f"({value} != 0)"
    body = [
        f"typedef {T} T;",
        f"__kernel void run({', '.join(takes)}) {{",
        position("i", "get_global_id(0)", sizes),
        *loads,
        f"out[{offset('i', 'out', sizes)}] = ({TYPES[result]}){value};",
        "}",
    ]
    return PREAMBLE + "\n".join(body)


def _used(expression: str) -> set[str]:
    return set(re.findall(r"\b[a-d]\b", expression))
