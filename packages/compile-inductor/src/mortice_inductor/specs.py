"""What is known of a graph's inputs before it runs; light, since every call's slow path reads it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import mortice
from mortice_llvm.dtypes import ALIASES

Shape = tuple[int, ...]


class DataDependent(Exception):
    """Sizes in the graph follow from values that are computed in it."""


class TensorSpec(NamedTuple):
    """A tensor placeholder as it is given: sizes, strides (in elements) and dtype."""

    shape: Shape
    strides: Shape
    dtype: str


class NumberSpec(NamedTuple):
    """A number placeholder: ``f64`` or ``i64``, and which word of the table it is."""

    dtype: str
    slot: int


class GeneratorSpec(NamedTuple):
    """A generator placeholder: seed and offset are words ``slot`` and ``slot + 1``."""

    slot: int


class OtherSpec(NamedTuple):
    """Anything else: the same object in every call."""

    value: Any


Spec = TensorSpec | NumberSpec | GeneratorSpec | OtherSpec


def specs_of(inputs: Sequence[Any], first_slot: int = 0) -> tuple[Spec, ...]:
    """What is known of each input before the graph runs."""
    out: list[Spec] = []
    slot = first_slot
    for x in inputs:
        if isinstance(x, mortice.Tensor):
            a = x._a
            if type(a) is np.ndarray and a.size:
                item = a.itemsize
                shape, strides = a.shape, tuple([n // item for n in a.strides])
            else:
                shape, strides = tuple(map(int, x.shape)), tuple(map(int, x.stride()))
            out.append(TensorSpec(shape, strides, loop_name(x.dtype)))
        elif isinstance(x, mortice.Generator):
            out.append(GeneratorSpec(slot))
            slot += 2
        elif isinstance(x, bool):
            out.append(OtherSpec(x))
        elif isinstance(x, (int, float)):
            out.append(NumberSpec("i64" if isinstance(x, int) else "f64", slot))
            slot += 1
        else:
            out.append(OtherSpec(x))
    return tuple(out)


def number_words(specs: Sequence[Spec]) -> int:
    """How many words of the table hold numbers that the caller gives."""
    return sum(1 if isinstance(s, NumberSpec) else 2 if isinstance(s, GeneratorSpec) else 0
               for s in specs)  # fmt: skip


def loop_name(dtype: Any) -> str:
    """The loop IR's name of a mortice dtype; its own name where kernels do not compute with it."""
    name = dtype if isinstance(dtype, str) else dtype.name
    return ALIASES.get(name, name)


@cache
def mortice_dtype(name: str) -> Any:
    """The mortice dtype that the loop IR calls ``name``."""
    return getattr(mortice, _LONG.get(name, name))


_LONG = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i64": "int64",
    "i32": "int32", "i16": "int16", "i8": "int8", "u64": "uint64", "u32": "uint32",
    "u16": "uint16", "u8": "uint8",
}  # fmt: skip
