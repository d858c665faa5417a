"""softmax, log_softmax and their gradients: one work item for each row."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from mortice_opencl.source import (
    PREAMBLE,
    TYPES,
    collapsed,
    longs,
    offset,
    parameters,
    position,
    values,
)

_SUM = "A top = -INFINITY, sum = 0; EACH top = fmax(top, (A)X); EACH sum += exp((A)X - top);"
#: Operator -> (what is known of a row, an element); X and Y are the row's elements.
ROWS = {
    "_softmax": (_SUM, "exp((A)X - top) / sum"),
    "_log_softmax": (_SUM, "(A)X - top - log(sum)"),
    "_softmax_backward_data": ("A dot = 0; EACH dot += (A)X * Y;", "(A)Y * (X - dot)"),
    "_log_softmax_backward_data": ("A dot = 0; EACH dot += X;", "(A)X - exp((A)Y) * dot"),
}


def kernel(runtime: Any, op: str, dtypes: tuple[Any, ...]) -> Callable[..., None] | None:
    """The kernel of one of the four, or None."""
    if op not in ROWS or not all(dtype.is_floating_point for dtype in dtypes):
        return None
    count = len(dtypes)

    def run(*arguments: Any, stream: Any) -> None:
        inputs, dim, out = arguments[:count], arguments[count], arguments[-1]
        rank = len(out.shape)
        dim = dim % rank if rank else 0
        kept = [d for d in range(rank) if d != dim]
        arrays = [*inputs, out]
        sizes, strides = collapsed(
            [out.shape[d] for d in kept], [[x.strides[d] for d in kept] for x in arrays]
        )
        length = out.shape[dim] if rank else 1
        passed: list[Any] = [*longs(sizes[1:]), np.int64(length)]
        for array, steps in zip(arrays, strides):
            passed += [*values(array, steps), np.int64(array.strides[dim] if rank else 0)]
        kinds = tuple(x.dtype for x in arrays)
        rows = 0 if length == 0 else int(np.prod(sizes))
        runtime.launch(_source(op, kinds, len(sizes)), stream, (rows,), passed)

    return run


@cache
def _source(op: str, kinds: tuple[Any, ...], sizes: int) -> str:
    names = [*"xy"[: len(kinds) - 1], "out"]
    takes = [f"long n{d}" for d in range(1, sizes)] + ["long n"]
    for name, kind in zip(names, kinds):
        takes += [parameters([name], [TYPES[kind]], sizes), f"long {name}_step"]
    known, element = ROWS[op]
    body = [
        "typedef double A;\n#define EACH for (long j = 0; j < n; j++)",
        "#define X x[base_x + j * x_step]\n#define Y y[base_y + j * y_step]",
        f"__kernel void run({', '.join(takes)}) {{",
        position("i", "get_global_id(0)", sizes),
        *(f"long base_{name} = {offset('i', name, sizes)};" for name in names),
        known,
        f"EACH out[base_out + j * out_step] = ({TYPES[kinds[-1]]})({element});",
        "}",
    ]
    return PREAMBLE + "\n".join(body)
