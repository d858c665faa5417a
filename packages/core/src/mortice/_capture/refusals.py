"""Numbers that an operator may refuse, or treat otherwise, by their value.

They are part of a recording, where other numbers are inputs of its graph: another value is recorded
anew, and tried then, so that eager's error rises on eager's line. Where it is known which values an
operator takes, the second value at a place makes all of those an input, too (``Accepted``). Numbers
that do not reach a kernel (a rate of dropout, a momentum) are part of every recording as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mortice._dispatch.operator import Operator
from mortice._tensor.queries import finfo, iinfo
from mortice._types.dtypes import ALL, BOOL, FLOAT, SIGNED, DType
from mortice._types.promotion import NUMBERS

#: Those that refuse negative values.
_NOT_NEGATIVE = frozenset(("softshrink",))
#: Those that refuse what their dtype does not hold.
_FITTING = frozenset(
    ("masked_fill.Scalar", "masked_fill.Tensor", "masked_fill_.Scalar", "masked_fill_.Tensor")
)
#: Those that make an integer of a float, which must be finite, or a real number of a complex one.
_TO_INTEGERS = frozenset(
    (
        "fill.Scalar", "fill.Tensor", "fill_.Scalar", "fill_.Tensor", "full", "full_like",
        "scalar_tensor", "threshold", "threshold_", "hardtanh", "hardtanh_",
    )
)  # fmt: skip
#: Those with code for some exponents (a square is a product) and derivatives for others (of x ** 0),
#: all of them halves; floats between those are alike.
POWERS = frozenset(("pow.Tensor_Tensor", "pow_.Tensor_Tensor"))


def looks_at(op: Operator, args: Any, number: Any) -> bool:
    """Whether the operator may refuse this number, or another of its type."""
    name = op.name
    if name in _FITTING:
        return args[0]._t is not ALL["float64"] or type(number) is int
    if name in _TO_INTEGERS:
        dtype = _dtype_of(op, args)
        if type(number) is complex:
            return not dtype.is_complex
        return type(number) is float and not dtype.differentiable
    return name in _NOT_NEGATIVE or name in POWERS


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a later call must bring where a step has an input: a number that the operator takes.

    Attributes:
        kind: its type. low, high: the least and the greatest. beyond: infinities and nan, too.
        halves: whole numbers and halves, too.
    """

    kind: type
    low: float
    high: float
    beyond: bool
    halves: bool = True

    def takes(self, number: Any) -> bool:
        if number.__class__ is not self.kind:
            return False
        if not self.halves and (number * 2).is_integer():
            return False
        return self.low <= number <= self.high or (self.beyond and not math.isfinite(number))


def is_number(want: Any) -> bool:
    """Whether what a step wants of an argument is a number that is an input of its graph."""
    return want in NUMBERS or want.__class__ is Accepted


def accepted(op: Operator, args: Any, number: Any) -> Accepted | None:
    """Numbers of this type that the operator takes for sure, this among them; None if that is not
    known.
    """
    found = None
    if op.name in _FITTING:
        found = _held(args[0]._t, type(number))
    elif op.name in _NOT_NEGATIVE and (widest := _held(ALL["float64"], type(number))) is not None:
        found = Accepted(widest.kind, 0, widest.high, False)
    elif op.name in POWERS and getattr(args[0], "_t", ALL["bool"]).kind == FLOAT:
        high = finfo(ALL["float64"]).max
        found = Accepted(float, -high, high, False, halves=False)
    return found if found is not None and found.takes(number) else None


@lru_cache(100)
def _held(dtype: DType, kind: type) -> Accepted | None:
    """Numbers that a dtype holds; integers are inputs of 64 bits at most."""
    if kind is not float and kind is not int:
        return None
    if dtype.kind == BOOL:
        low, high = -math.inf, math.inf
    elif dtype.kind == FLOAT:
        high = finfo(dtype).max
        low = -high
    elif dtype.kind <= SIGNED:
        info = iinfo(dtype)
        low, high = info.min, info.max
    else:
        return None
    if kind is int:
        wide = iinfo(ALL["int64"])
        low, high = max(low, wide.min), min(high, wide.max)
    return Accepted(kind, low, high, kind is float and dtype.kind in (BOOL, FLOAT))


def _dtype_of(op: Operator, args: Any) -> Any:
    """The dtype that the number is made; of those that are given none, a floating one."""
    position = op.schema.by_name.get("dtype")
    given = None if position is None else args[position]
    if given is None:
        given = getattr(args[0], "_t", ALL["float64"])
    return given


__all__ = ["POWERS", "Accepted", "accepted", "is_number", "looks_at"]
