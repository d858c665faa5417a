"""Numbers that an operator may refuse by their value.

They are part of a recording, where other numbers are inputs of its graph: another value is recorded
anew, and tried then, so that eager's error rises on eager's line. Numbers that do not reach a
kernel (a rate of dropout, a momentum) are part of every recording as it is.
"""

from __future__ import annotations

from typing import Any

from mortice._dispatch.operator import Operator
from mortice._types.dtypes import ALL

#: Those that refuse some values whatever the dtype is.
_ALWAYS = frozenset(("softshrink",))
#: Those that refuse what their dtype does not hold.
_FITTING = frozenset(
    ("masked_fill.Scalar", "masked_fill.Tensor", "masked_fill_.Scalar", "masked_fill_.Tensor")
)
#: Those that make an integer of a float, which must be finite.
_TO_INTEGERS = frozenset(
    (
        "fill.Scalar", "fill.Tensor", "fill_.Scalar", "fill_.Tensor", "full", "full_like",
        "scalar_tensor", "threshold", "threshold_", "hardtanh", "hardtanh_",
    )
)  # fmt: skip


def looks_at(op: Operator, args: Any, number: Any) -> bool:
    """Whether the operator may refuse this number, or another of its type."""
    name = op.name
    if name in _FITTING:
        return args[0]._t is not ALL["float64"] or type(number) is int
    if name in _TO_INTEGERS:
        return type(number) is float and not _dtype_of(op, args).differentiable
    return name in _ALWAYS


def _dtype_of(op: Operator, args: Any) -> Any:
    """The dtype that the number is made; of those that are given none, a floating one."""
    position = op.schema.by_name.get("dtype")
    given = None if position is None else args[position]
    if given is None:
        given = getattr(args[0], "_t", ALL["float64"])
    return given


__all__ = ["looks_at"]
