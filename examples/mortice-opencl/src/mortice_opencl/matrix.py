"""The matrix family: products in tiles of local memory, alone or added to another matrix."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from mortice_opencl.source import (
    PREAMBLE,
    TYPES,
    broadcast_strides,
    longs,
    parameters,
    values,
)

TILE = 16
#: Operator -> where its two factors are among its arguments, and (summand, beta, alpha) if any.
PRODUCTS: dict[str, tuple[tuple[int, int], tuple[int, int, int] | None]] = {
    "mm": ((0, 1), None),
    "bmm": ((0, 1), None),
    "mv": ((0, 1), None),
    "dot": ((0, 1), None),
    "addmm": ((1, 2), (0, 3, 4)),
    "baddbmm": ((1, 2), (0, 3, 4)),
}


def kernel(runtime: Any, op: str, dtypes: tuple[Any, ...]) -> Callable[..., None] | None:
    """The kernel of a product of floating matrices of one dtype, or None."""
    if op not in PRODUCTS or len(set(dtypes)) != 1 or not dtypes[0].is_floating_point:
        return None
    (left, right), added = PRODUCTS[op]

    def run(*arguments: Any, stream: Any) -> None:
        out = arguments[-1]
        a, b = arguments[left], arguments[right]
        (batch, rows, columns), (a_steps, b_steps, out_steps) = _as_batches(a, b, out)
        inner = a.shape[-1]
        arrays = [(a, a_steps), (b, b_steps), (out, out_steps)]
        numbers = []
        if added is not None:
            summand = arguments[added[0]]
            steps = broadcast_strides(summand, out.shape)
            arrays.append((summand, [0] * (3 - len(steps)) + steps))
            numbers = [out.dtype.numpy.type(arguments[i]) for i in added[1:]]
        passed: list[Any] = longs([rows, columns, inner])
        for array, steps in arrays:
            passed += values(array, steps)
        size = (_padded(columns), _padded(rows), batch)
        if 0 in (rows, columns):
            return
        runtime.launch(
            _source(out.dtype, added is not None),
            stream,
            size,
            [*passed, *numbers],
            (TILE, TILE, 1),
        )

    return run


def _as_batches(a: Any, b: Any, out: Any) -> tuple[tuple[int, int, int], list[list[int]]]:
    """(batch, rows, columns), and the three arrays' strides as batches of matrices."""
    sizes, steps = list(a.shape), list(a.strides)
    if len(sizes) == 1:  # dot
        sizes, steps = [1, *sizes], [0, *steps]
    others, b_steps = list(b.shape), list(b.strides)
    if len(others) == 1:  # dot and mv
        others, b_steps = [*others, 1], [*b_steps, 0]
    batch = sizes[0] if len(sizes) == 3 else 1
    rows, columns = sizes[-2], others[-1]
    given = list(out.strides)
    missing = {2: given, 3: given, 1: [*given, 0], 0: [0, 0]}[len(given)]
    return (batch, rows, columns), [[0] * (3 - len(s)) + s for s in (steps, b_steps, missing)]


def _padded(n: int) -> int:
    return -(-n // TILE) * TILE


@cache
def _source(dtype: Any, added: bool) -> str:
    T = TYPES[dtype]
    names = ["a", "b", "out", *(["c"] if added else [])]
    takes = ["long M", "long N", "long K", parameters(names, [T] * len(names), 3)]
    takes += [f"{T} beta", f"{T} alpha"] if added else []
    # A summand is not read where beta is 0: it may be anything, NaN included.
    result = "alpha * acc + (beta == 0 ? 0 : beta * c[c_at + z * c_0 + row * c_1 + column * c_2])"
    return (
        PREAMBLE
        + f"""
#define TILE {TILE}
__kernel __attribute__((reqd_work_group_size(TILE, TILE, 1)))
void run({", ".join(takes)}) {{
    long column = get_global_id(0), row = get_global_id(1), z = get_global_id(2);
    int x = get_local_id(0), y = get_local_id(1);
    __local {T} left[TILE][TILE], right[TILE][TILE];
    {T} acc = 0;
    for (long k = 0; k < K; k += TILE) {{
        left[y][x] = row < M && k + x < K ? a[a_at + z * a_0 + row * a_1 + (k + x) * a_2] : 0;
        right[y][x] = column < N && k + y < K ? b[b_at + z * b_0 + (k + y) * b_1 + column * b_2] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int j = 0; j < TILE; j++)
            acc += left[y][j] * right[j][x];
        barrier(CLK_LOCAL_MEM_FENCE);
    }}
    if (row < M && column < N)
        out[out_at + z * out_0 + row * out_1 + column * out_2] = {result if added else "acc"};
}}
"""
    )
