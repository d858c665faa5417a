"""Runs the kernel library's formulas on traces: what it writes for its kernels serves here too."""

from __future__ import annotations

from typing import Any

from mortice_llvm.kernels import pointwise_bodies

from ..ir.values import Trace, Value


class Operand:
    """A value with arithmetic, as formulas expect; numbers become constants of its dtype."""

    __slots__ = ("t", "v")

    def __init__(self, t: Trace, v: Value) -> None:
        self.t = t
        self.v = v

    @property
    def dtype(self) -> str:
        return self.v.dtype

    def _do(self, name: str, a: Any, b: Any) -> Operand:
        return Operand(self.t, self.t.fn(name, self._of(a), self._of(b)))

    def _of(self, x: Any) -> Value:
        return x.v if isinstance(x, Operand) else self.t.const(x, self.v.dtype)

    def __add__(self, o: Any) -> Operand:
        return self._do("add", self, o)

    def __radd__(self, o: Any) -> Operand:
        return self._do("add", self, o)

    def __sub__(self, o: Any) -> Operand:
        return self._do("sub", self, o)

    def __rsub__(self, o: Any) -> Operand:
        return self._do("sub", o, self)

    def __mul__(self, o: Any) -> Operand:
        return self._do("mul", self, o)

    def __rmul__(self, o: Any) -> Operand:
        return self._do("mul", self, o)

    def __truediv__(self, o: Any) -> Operand:
        return self._do("div", self, o)

    def __rtruediv__(self, o: Any) -> Operand:
        return self._do("div", o, self)

    def __neg__(self) -> Operand:
        return Operand(self.t, self.t.fn("neg", self.v))

    def __lt__(self, o: Any) -> Operand:
        return self._do("lt", self, o)

    def __le__(self, o: Any) -> Operand:
        return self._do("le", self, o)

    def __gt__(self, o: Any) -> Operand:
        return self._do("gt", self, o)

    def __ge__(self, o: Any) -> Operand:
        return self._do("ge", self, o)

    def __and__(self, o: Any) -> Operand:
        return self._do("and", self, o)

    def __or__(self, o: Any) -> Operand:
        return self._do("or", self, o)


class Builder:
    """The part of ``mortice_llvm.ir.Build`` that formulas use."""

    def __init__(self, t: Trace) -> None:
        self.t = t

    def op(self, name: str, *args: Any) -> Operand:
        """A scalar operation."""
        first = next(a for a in args if isinstance(a, Operand))
        return Operand(self.t, self.t.fn(name, *(first._of(a) for a in args)))

    def const(self, value: float, dtype: str) -> Operand:
        """A constant."""
        return Operand(self.t, self.t.const(value, dtype))

    def select(self, where: Operand, a: Any, b: Any) -> Operand:
        """``a`` where ``where``, else ``b``."""
        first = a if isinstance(a, Operand) else b
        return Operand(self.t, self.t.select(where.v, first._of(a), first._of(b)))


def formula(t: Trace, name: str, *args: Value) -> Value:
    """The kernel library's formula ``name`` on values of one dtype."""
    body = getattr(pointwise_bodies, name)
    return body(Builder(t), *(Operand(t, a) for a in args)).v
