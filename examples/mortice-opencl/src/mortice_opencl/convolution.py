"""Convolution and its transpose over one to three dimensions: one work item for each result.

Gradients are convolutions, too, so that this one kernel is all there is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from mortice_opencl.source import PREAMBLE, TYPES, longs, parameters, values

DIMS = 3
#: What the kernel takes for each dimension: sizes of input, kernel and output, then the steps.
PER_DIM = ("n", "k", "o", "stride", "pad", "dilate")


def kernel(runtime: Any, op: str, dtypes: tuple[Any, ...]) -> Callable[..., None] | None:
    """The kernel of a convolution in one floating dtype, or None."""
    if op != "convolution" or len(set(dtypes)) != 1 or not dtypes[0].is_floating_point:
        return None

    def run(*arguments: Any, stream: Any) -> None:
        data, weight, bias, stride, padding, dilation, transposed, _, groups, out = arguments
        spatial = len(data.shape) - 2
        missing = DIMS - spatial

        def per_dim(given: Any, absent: int) -> list[int]:
            steps = list(given) * spatial if len(given) == 1 else list(given)
            return [absent] * missing + steps

        sizes = [
            per_dim(data.shape[2:], 1), per_dim(weight.shape[2:], 1), per_dim(out.shape[2:], 1),
            per_dim(stride, 1), per_dim(padding, 0), per_dim(dilation, 1),
        ]  # fmt: skip
        passed: list[Any] = longs([data.shape[1], out.shape[1], groups])
        for column in zip(*sizes):
            passed += [np.int32(n) for n in column]
        for array in (data, weight, out):
            strides = list(array.strides)
            passed += values(array, [*strides[:2], *[0] * missing, *strides[2:]])
        if bias is not None:
            passed += values(bias, bias.strides)
        source = _source(data.dtype, bool(transposed), bias is not None)
        runtime.launch(source, stream, (int(np.prod(out.shape)),), passed)

    return run


@cache
def _source(dtype: Any, transposed: bool, biased: bool) -> str:
    T = TYPES[dtype]
    takes = ["long C", "long F", "long groups"]
    takes += [f"int {name}{d}" for d in range(DIMS) for name in PER_DIM]
    takes.append(parameters(["x", "w", "out"], [T] * 3, 2 + DIMS))
    if biased:
        takes.append(parameters(["b"], [T], 1))
    lines = ["long rest = get_global_id(0);"]
    for d in reversed(range(DIMS)):
        lines.append(f"int p{d} = rest % o{d}; rest /= o{d};")
    lines += [
        "long f = rest % F, image = rest / F;",
        "long inputs = C / groups, outputs = F / groups, group = f / outputs;",
        f"{T} acc = " + ("b[b_at + f * b_0];" if biased else "0;"),
        "for (long c = 0; c < inputs; c++) {",
    ]
    for d in range(DIMS):
        lines.append(f"for (int j{d} = 0; j{d} < k{d}; j{d}++) {{")
        if transposed:  # from which input this tap reached here, if from any
            lines.append(f"int s{d} = p{d} + pad{d} - j{d} * dilate{d};")
            lines.append(f"if (stride{d} > 1 && s{d} % stride{d}) continue;")
            lines.append(f"int i{d} = stride{d} > 1 ? s{d} / stride{d} : s{d};")
            lines.append(f"if (s{d} < 0 || i{d} >= n{d}) continue;")
        else:
            lines.append(f"int i{d} = p{d} * stride{d} - pad{d} + j{d} * dilate{d};")
            lines.append(f"if (i{d} < 0 || i{d} >= n{d}) continue;")
    first, second = ("group * inputs + c", "f % outputs") if transposed else ("f", "c")
    place = "x_at + image * x_0 + (group * inputs + c) * x_1"
    tap = f"w_at + ({first}) * w_0 + ({second}) * w_1"
    there = "out_at + image * out_0 + f * out_1"
    for d in range(DIMS):
        place += f" + i{d} * x_{d + 2}"
        tap += f" + j{d} * w_{d + 2}"
        there += f" + p{d} * out_{d + 2}"
    lines.append(f"acc += x[{place}] * w[{tap}];")
    lines += ["}" * (DIMS + 1), f"out[{there}] = acc;"]
    head = f"__kernel void run({', '.join(takes)}) {{"
    return PREAMBLE + "\n".join([head, *lines, "}"])
