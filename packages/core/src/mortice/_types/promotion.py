"""Type promotion: the dtype in which operands of different dtypes meet.

The lattice is PyTorch's: categories bool < integral < floating < complex; within a category the
wider wins; a Python number or a 0-d tensor only raises the category, never the width within it.
"""

from __future__ import annotations

from typing import Any

from mortice._base.errors import DTypeError
from mortice._types import dtypes
from mortice._types.dtypes import BOOL, COMPLEX, FLOAT, SIGNED, UNSIGNED, DType

#: Python number types whose values take part in promotion by category only.
NUMBERS = frozenset((int, float, bool, complex))

_CATEGORY = {BOOL: 0, UNSIGNED: 1, SIGNED: 1, FLOAT: 2, COMPLEX: 3}
_TABLE: dict[tuple[DType, DType], DType] = {}


def promote(a: DType, b: DType) -> DType:
    """The smallest dtype to which both can be converted (PyTorch's ``promote_types``)."""
    if a is b:
        return a
    found = _TABLE.get((a, b))
    if found is None:
        found = _promote(a, b)
        _TABLE[a, b] = _TABLE[b, a] = found
    return found


def _promote(a: DType, b: DType) -> DType:
    if a.kind > b.kind:
        a, b = b, a  # b is of the same or the higher kind
    if a.storage_only or b.storage_only:
        raise DTypeError(
            f"Promotion between {a!r} and {b!r} is not defined: storage-only dtypes take no part "
            "in arithmetic. Convert with .to(dtype) first."
        )
    if a.kind == BOOL:
        return b
    if b.kind == COMPLEX:
        return _complex(a, b)
    if b.kind == FLOAT:
        return _floating(a, b)
    if a.kind == b.kind:
        return a if a.itemsize > b.itemsize else b
    return _mixed_sign(a, b)


def _complex(a: DType, b: DType) -> DType:
    if a.kind == COMPLEX:
        return a if a.itemsize > b.itemsize else b
    return dtypes.complex128 if a is dtypes.float64 else b


def _floating(a: DType, b: DType) -> DType:
    if a.kind != FLOAT:
        return b
    if a.itemsize == b.itemsize:  # float16 with bfloat16, or two float8 formats
        if a.itemsize == 1:
            raise DTypeError(
                f"Promotion between {a!r} and {b!r} is not defined. Convert with .to(dtype) first."
            )
        return dtypes.float32
    return a if a.itemsize > b.itemsize else b


def _mixed_sign(unsigned: DType, signed: DType) -> DType:
    if unsigned.itemsize < signed.itemsize:
        return signed
    if unsigned.itemsize == 1:
        return dtypes.int16
    raise DTypeError(
        f"Promotion between {unsigned!r} and {signed!r} is not defined, since no integer dtype "
        "holds both. Convert one with .to(dtype) first."
    )


def with_number(dtype: DType, number: Any) -> DType:
    """The dtype of a tensor of ``dtype`` combined with a Python number."""
    kind = type(number)  # pyright: ignore[reportUnknownVariableType]
    if kind is float:
        return dtype if dtype.kind >= FLOAT else dtypes.default.dtype
    if kind is int:
        return dtypes.int64 if dtype.kind == BOOL else dtype
    if kind is bool:
        return dtype
    return _by_category(dtype, dtypes.of_number(number))


def _by_category(dtype: DType, lower: DType) -> DType:
    """``dtype`` unless ``lower`` is of a higher category."""
    if _CATEGORY[lower.kind] <= _CATEGORY[dtype.kind]:
        return dtype
    if lower.kind == COMPLEX and dtype.kind == FLOAT:
        return promote(dtype.to_complex(), dtype)
    return promote(dtype, lower)


def result_type(operands: Any) -> DType:
    """dtype of the result of an elementwise operator on tensors and Python numbers.

    ``operands``: tensors (anything with ``_t`` and ``ndim``) or numbers. Three priorities:
    tensors with dimensions, 0-d tensors, numbers; a lower one counts only by its category.
    """
    dimensioned: DType | None = None
    zero_d: DType | None = None
    number: DType | None = None
    for x in operands:
        if x is None:
            continue
        t = getattr(x, "_t", None)
        if t is None:
            t = dtypes.of_number(x)
            number = t if number is None else promote(number, t)
        elif x.ndim:
            dimensioned = t if dimensioned is None else promote(dimensioned, t)
        else:
            zero_d = t if zero_d is None else promote(zero_d, t)
    result = dimensioned
    for lower in (zero_d, number):
        if lower is not None:
            result = lower if result is None else _by_category(result, lower)
    assert result is not None
    return result


def can_cast(source: DType, target: DType) -> bool:
    """Whether an in-place or ``out=`` write may convert ``source`` to ``target``."""
    if source.kind == COMPLEX and target.kind != COMPLEX:
        return False
    if source.kind == FLOAT and target.kind < FLOAT:
        return False
    return not (source.kind != BOOL and target.kind == BOOL)
