"""What all kernels have in common: types, sizes and strides, and the C that finds an element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import mortice

#: dtype -> its type in OpenCL C.
TYPES = {
    mortice.float32: "float",
    mortice.float64: "double",
    mortice.int64: "long",
    mortice.int32: "int",
    mortice.int16: "short",
    mortice.int8: "char",
    mortice.uint8: "uchar",
    mortice.bool: "uchar",
}
PREAMBLE = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"


def literal(number: float) -> str:
    """A number as C writes it."""
    if number != number:
        return "NAN"
    if number in (float("inf"), float("-inf")):
        return "INFINITY" if number > 0 else "-INFINITY"
    return repr(number)


def collapsed(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    """Sizes and strides with as few dimensions as walk the same elements in the same order.

    ``strides`` has a row for each array. Dimensions of size 1 go, and those are merged that every
    array walks without a gap; at least one dimension is left.
    """
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for d, n in enumerate(shape):
        if n == 1:
            continue
        if sizes and all(s[-1] == row[d] * n for s, row in zip(steps, strides)):
            sizes[-1] *= n
            for s, row in zip(steps, strides):
                s[-1] = row[d]
            continue
        sizes.append(n)
        for s, row in zip(steps, strides):
            s.append(row[d])
    return sizes or [1], [s or [0] for s in steps]


def broadcast_strides(array: Any, shape: Sequence[int]) -> list[int]:
    """An array's strides as seen through broadcasting to ``shape``."""
    new = len(shape) - len(array.shape)
    own = [0 if n == 1 else s for n, s in zip(array.shape, array.strides)]
    return [0] * new + own


def position(name: str, index: str, sizes: int) -> str:
    """C that takes the flat ``index`` apart into ``<name>0``, ``<name>1``, ... by ``n0``, ``n1``..."""
    lines = [f"long rest_{name} = {index};"]
    for d in reversed(range(1, sizes)):
        lines.append(f"long {name}{d} = rest_{name} % n{d}; rest_{name} /= n{d};")
    lines.append(f"long {name}0 = rest_{name};")
    return " ".join(lines)


def offset(name: str, array: str, sizes: int) -> str:
    """C for an element's place: strides ``<array>_0``, ... times coordinates, after ``<array>_at``."""
    return " + ".join([f"{array}_at", *(f"{name}{d} * {array}_{d}" for d in range(sizes))])


def parameters(names: Sequence[str], types: Sequence[str], sizes: int) -> str:
    """C parameters of strided arrays: pointer, place of the first element, strides."""
    text = []
    for name, kind in zip(names, types):
        text.append(f"__global {kind} *{name}, long {name}_at")
        text += [f"long {name}_{d}" for d in range(sizes)]
    return ", ".join(text)


def values(array: Any, strides: Sequence[int]) -> list[Any]:
    """What is passed for the parameters of one array."""
    return [array.buffer.value, np.int64(array.offset), *map(np.int64, strides)]


def longs(numbers: Sequence[int]) -> list[Any]:
    """Whole numbers as a kernel takes them."""
    return [np.int64(n) for n in numbers]


def is_array(value: Any) -> bool:
    return hasattr(value, "buffer")
