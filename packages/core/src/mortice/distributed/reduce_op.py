"""ReduceOp: how the ranks' elements become one."""

from __future__ import annotations

from typing import Any, ClassVar

from mortice.errors import ArgumentError, DTypeError


class ReduceOp:
    """One of ``SUM``, ``PRODUCT``, ``MIN``, ``MAX``, ``AVG``, ``BAND``, ``BOR``, ``BXOR``, or what
    ``ReduceOp.premul_sum(factor)`` gives: the sum of each rank's elements times its factor.

    On bool, SUM and MAX are "or", PRODUCT and MIN "and". AVG and PREMUL_SUM are for floating and
    complex dtypes, MIN and MAX for ordered ones, the B... for bool and integers.
    """

    __slots__ = ("factor", "name")

    SUM: ClassVar[ReduceOp]
    PRODUCT: ClassVar[ReduceOp]
    MIN: ClassVar[ReduceOp]
    MAX: ClassVar[ReduceOp]
    AVG: ClassVar[ReduceOp]
    BAND: ClassVar[ReduceOp]
    BOR: ClassVar[ReduceOp]
    BXOR: ClassVar[ReduceOp]

    name: str
    factor: Any

    def __init__(self, name: str, factor: Any = None) -> None:
        self.name = name
        self.factor = factor

    @classmethod
    def premul_sum(cls, factor: Any) -> ReduceOp:
        """The sum of the elements times ``factor``, a number or a tensor of one element."""
        return cls("PREMUL_SUM", factor)

    def check(self, dtype: Any, where: str) -> None:
        """Raise DTypeError if a dtype cannot be reduced so."""
        if dtype.storage_only or not _fits(self.name, dtype):
            raise DTypeError(f"{where}: {self!r} is not defined for {dtype!r}: {_FOR[self.name]}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReduceOp) and (self.name, self.factor) == (
            other.name,
            other.factor,
        )

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"ReduceOp.{self.name}"

    def __reduce__(self) -> Any:
        return ReduceOp, (self.name, self.factor)


_FOR = {
    "SUM": "it takes every dtype that operators compute with.",
    "PRODUCT": "it takes every dtype that operators compute with.",
    "MIN": "it takes bool, integers and floating dtypes.",
    "MAX": "it takes bool, integers and floating dtypes.",
    "AVG": "it takes floating and complex dtypes.",
    "BAND": "it takes bool and integers.",
    "BOR": "it takes bool and integers.",
    "BXOR": "it takes bool and integers.",
    "PREMUL_SUM": "it takes floating and complex dtypes.",
}
for _name in ("SUM", "PRODUCT", "MIN", "MAX", "AVG", "BAND", "BOR", "BXOR"):
    setattr(ReduceOp, _name, ReduceOp(_name))


def _fits(name: str, dtype: Any) -> bool:
    if name in ("AVG", "PREMUL_SUM"):
        return dtype.is_floating_point or dtype.is_complex
    if name in ("MIN", "MAX"):
        return not dtype.is_complex
    if name in ("BAND", "BOR", "BXOR"):
        return not (dtype.is_floating_point or dtype.is_complex)
    return True


def as_reduce_op(op: Any, where: str) -> ReduceOp:
    """``op`` if it is a ReduceOp; its name is taken, too."""
    if isinstance(op, ReduceOp):
        return op
    if isinstance(op, str) and op.upper() in _FOR and op.upper() != "PREMUL_SUM":
        return getattr(ReduceOp, op.upper())
    raise ArgumentError(
        f"{where}: op is {op!r}; expected one of ReduceOp.SUM, PRODUCT, MIN, MAX, AVG, BAND, BOR, "
        "BXOR, or ReduceOp.premul_sum(factor)."
    )
