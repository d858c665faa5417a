"""Symbolic numbers: sizes, and what is computed from them, that stand for more than one call.

``SymInt`` and ``SymFloat`` calculate like ``int`` and ``float``; a result without symbols is a plain
number again. Comparisons give a bool where they hold for all sizes in question, else a ``SymBool``,
whose truth is decided by the sizes of the call at hand and recorded as a guard in the ShapeEnv.
"""

# The tables of operations are of lambdas, whose parameters have no types to write.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mortice._base.errors import InvalidState
from mortice._types import symbolic_expr as E
from mortice._types.symbolic_expr import Expr, FloatExpr

if TYPE_CHECKING:
    from mortice._types.symbolic_env import ShapeEnv

__all__ = [
    "SymBool", "SymFloat", "SymInt", "sym_float", "sym_int", "sym_ite", "sym_max", "sym_min",
    "sym_not", "sym_sqrt", "sym_sum",
]  # fmt: skip


# -- arithmetic ------------------------------------------------------------------------------------


def _integer(expr: Expr, env: ShapeEnv) -> Any:
    """A SymInt, or the plain integer where no symbol is left."""
    constant = expr.constant
    if constant is not None:
        return constant
    r = object.__new__(SymInt)
    r.expr = expr
    r.env = env
    return r


def _specialised(x: _Number) -> Any:
    value = x.hint
    if value is None:
        raise x.env.data_dependent(f"{x.source()} as a number", x.symbols)
    number = E.const(value) if isinstance(x, SymInt) else FloatExpr("*", (1.0, float(value)))
    x.env.ask(x.expr, "==", number)
    return value


def _expr_of(x: Any, env: ShapeEnv) -> Expr | None:
    """An integer operand as an expression; None if it is none."""
    if type(x) is SymInt:
        if x.env is not env:
            raise InvalidState(
                f"{x} belongs to another ShapeEnv. Make all symbolic sizes that meet with one."
            )
        return x.expr
    if type(x) is int or type(x) is bool:
        return E.const(int(x))
    if hasattr(type(x), "__index__") and not hasattr(x, "_k"):
        return E.const(x.__index__())
    return None


def _float_expr(x: Any, env: ShapeEnv) -> Any:
    if isinstance(x, SymFloat):
        return x.expr
    if isinstance(x, float):
        return float(x)
    return _expr_of(x, env)


def _float_op(op: str, a: Any, b: Any) -> Any:
    env = a.env if isinstance(a, _Number) else b.env
    left, right = _float_expr(a, env), _float_expr(b, env)
    if left is None or right is None:
        return NotImplemented
    return SymFloat(FloatExpr(op, (left, right)), env)


def _arithmetic(function: Callable[[Expr, Expr], Expr], op: str) -> tuple[Any, Any]:
    """An operator and its reflected form for SymInt; floats make a SymFloat of it."""

    def forward(self: SymInt, other: Any) -> Any:
        right = _expr_of(other, self.env)
        if right is not None:
            return _integer(function(self.expr, right), self.env)
        return _float_op(op, self, other) if op else NotImplemented

    def reflected(self: SymInt, other: Any) -> Any:
        left = _expr_of(other, self.env)
        if left is not None:
            return _integer(function(left, self.expr), self.env)
        return _float_op(op, other, self) if op else NotImplemented

    return forward, reflected


def _float_pair(op: str) -> tuple[Any, Any]:
    return (lambda a, b: _float_op(op, a, b)), (lambda a, b: _float_op(op, b, a))


def _comparison(relation: str) -> Any:
    def compare(self: _Number, other: Any) -> Any:
        env = self.env
        right = _float_expr(other, env)
        if right is None:
            return NotImplemented
        if isinstance(right, float):
            if isinstance(self, SymInt) and right.is_integer():
                right = E.const(int(right))
            else:
                right = FloatExpr("*", (1.0, right))
        answer = env.decide(self.expr, relation, right)
        return SymBool((self.expr, relation, right), env) if answer is None else answer

    return compare


# -- numbers ---------------------------------------------------------------------------------------


class _Number:
    """What symbolic integers and floats share."""

    __slots__ = ("env", "expr")

    expr: Any
    env: ShapeEnv
    #: How code that does not import this module knows symbolic numbers.
    _is_symbolic = True

    def __init__(self, expr: Any, env: ShapeEnv) -> None:
        self.expr = expr
        self.env = env

    @property
    def symbols(self) -> frozenset[str]:
        """Names of the symbols that the value depends on."""
        return self.expr.symbols

    @property
    def hint(self) -> Any:
        """The value in the call at hand; None if it depends on data."""
        return self.env.hint_of(self.expr)

    @property
    def symbol(self) -> str | None:
        """The name of the symbol that the expression is, alone; else None."""
        names = self.expr.symbols
        if len(names) != 1:
            return None
        (name,) = names
        return name if self.expr.source() == name else None

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """The value where the symbols have ``values`` (name -> number)."""
        return self.expr.evaluate(values)

    def source(self) -> str:
        """Python source over the symbols' names."""
        return self.expr.source()

    def __repr__(self) -> str:
        return self.env.simplified(self.expr).source()

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __bool__(self) -> bool:
        return self.env.ask(self.expr, "!=", E.ZERO)

    def __pos__(self) -> Any:
        return self

    __eq__ = _comparison("==")
    __ne__ = _comparison("!=")
    __lt__ = _comparison("<")
    __le__ = _comparison("<=")
    __gt__ = _comparison(">")
    __ge__ = _comparison(">=")

    def __hash__(self) -> int:
        return hash(self.expr)


class SymInt(_Number):
    """An integer expression over the symbols of a ShapeEnv.

    Attributes:
        expr: the expression in normal form.
        env: where its symbols live.
    """

    __slots__ = ()

    expr: Expr
    _is_symbolic_int = True
    _number_type = int

    @property
    def guess(self) -> int:
        """The value in the call at hand, with some large number for what depends on data."""
        hints = self.env.hints
        return self.expr.evaluate({name: hints.get(name, 8191) for name in self.expr.symbols})

    __add__, __radd__ = _arithmetic(E.add, "+")
    __sub__, __rsub__ = _arithmetic(E.sub, "-")
    __mul__, __rmul__ = _arithmetic(E.mul, "*")
    __floordiv__, __rfloordiv__ = _arithmetic(E.floordiv, "")
    __truediv__, __rtruediv__ = _float_pair("/")
    __mod__, __rmod__ = _arithmetic(E.mod, "")

    def __int__(self) -> int:
        """The value at hand, which becomes a guard."""
        return _specialised(self)

    __index__ = __int__

    def __float__(self) -> float:
        return float(_specialised(self))

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __neg__(self) -> Any:
        return _integer(E.sub(E.ZERO, self.expr), self.env)

    def __pow__(self, power: Any) -> Any:
        if type(power) is int and power >= 0:
            return _integer(E.power_of(self.expr, power), self.env)
        return _float_op("**", self, power)

    def __rpow__(self, base: Any) -> Any:
        return base ** int(self) if type(base) is int else _float_op("**", base, self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __round__(self, digits: int | None = None) -> Any:
        return self

    def __floor__(self) -> Any:
        return self

    __ceil__ = __trunc__ = __floor__

    def as_float(self) -> SymFloat:
        """``float(self)`` that keeps symbols."""
        return SymFloat(FloatExpr("float", (self.expr,)), self.env)

    def bit_length(self) -> int:
        return int(self).bit_length()


class SymFloat(_Number):
    """A floating expression over the symbols of a ShapeEnv."""

    __slots__ = ()

    expr: FloatExpr
    _is_symbolic_float = True
    _number_type = float

    __add__, __radd__ = _float_pair("+")
    __sub__, __rsub__ = _float_pair("-")
    __mul__, __rmul__ = _float_pair("*")
    __truediv__, __rtruediv__ = _float_pair("/")
    __pow__, __rpow__ = _float_pair("**")

    def __float__(self) -> float:
        """The value at hand, which becomes a guard."""
        return _specialised(self)

    def __int__(self) -> int:
        return int(float(self))

    def __neg__(self) -> Any:
        return _float_op("*", self, -1.0)

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __floordiv__(self, other: Any) -> Any:
        quotient = _float_op("/", self, other)
        return quotient if quotient is NotImplemented else sym_float(math.floor(quotient))

    def __floor__(self) -> Any:
        return _integer(E.floor(self.expr), self.env)

    def __ceil__(self) -> Any:
        return -math.floor(-self)

    def __trunc__(self) -> Any:
        return math.floor(self) if self >= 0 else -math.floor(-self)

    def as_float(self) -> SymFloat:
        return self

    def is_integer(self) -> bool:
        return float(self).is_integer()


class SymBool:
    """A statement about symbolic numbers, decided when it is asked for its truth.

    Attributes:
        parts: (left, relation, right) of a comparison; ("not", a), ("and", a, b), ("or", a, b).
    """

    __slots__ = ("env", "parts")

    parts: tuple[Any, ...]
    env: ShapeEnv
    _is_symbolic = True
    _number_type = bool
    symbol = None

    def __init__(self, parts: tuple[Any, ...], env: ShapeEnv) -> None:
        self.parts = parts
        self.env = env

    def __bool__(self) -> bool:
        kind = self.parts[0]
        if kind == "not":
            return not self.parts[1]
        if kind == "and":
            return bool(self.parts[1]) and bool(self.parts[2])
        if kind == "or":
            return bool(self.parts[1]) or bool(self.parts[2])
        return self.env.ask(*self.parts)

    def or_false(self) -> bool:
        """Its truth, where it does not depend on data; else False, without a guard."""
        return self._known(False)

    def assumed(self) -> bool:
        """Its truth, where it does not depend on data; else it is taken for true from now on."""
        if self.hint is None and self.decided is None:
            self.env.assume(*self.parts)
            return True
        return bool(self)

    def or_true(self) -> bool:
        """Its truth, where it does not depend on data; else True, without a guard."""
        return self._known(True)

    def _known(self, otherwise: bool) -> bool:
        if any(self.env.is_unbacked(x) for x in self._expressions()):
            answer = self.decided
            return otherwise if answer is None else answer
        return bool(self)

    def _expressions(self) -> list[Any]:
        found: list[Any] = []
        for part in self.parts:
            if isinstance(part, SymBool):
                found += part._expressions()
            elif isinstance(part, (Expr, FloatExpr)):
                found.append(part)
        return found

    @property
    def decided(self) -> bool | None:
        """The answer for all sizes, or None; never a guard."""
        kind = self.parts[0]
        if kind not in ("not", "and", "or"):
            return self.env.decide(*self.parts)
        answers = [p.decided if isinstance(p, SymBool) else bool(p) for p in self.parts[1:]]
        if kind == "not":
            return None if answers[0] is None else not answers[0]
        decisive = kind == "or"
        if decisive in answers:
            return decisive
        return None if None in answers else not decisive

    @property
    def symbols(self) -> frozenset[str]:
        return frozenset[str]().union(*(x.symbols for x in self._expressions()))

    @property
    def hint(self) -> bool | None:
        """Its truth in the call at hand; None if that depends on data. Never a guard."""
        if any(self.env.is_unbacked(x) for x in self._expressions()):
            return None
        return self.evaluate(self.env.hints)

    def evaluate(self, values: Mapping[str, Any]) -> bool:
        """Its truth where the symbols have ``values``."""
        return bool(eval(self.source(), {"math": math}, dict(values)))  # noqa: S307  our own text

    def source(self) -> str:
        kind = self.parts[0]
        texts = [p.source() if hasattr(p, "source") else str(p) for p in self.parts]
        if kind == "not":
            return f"not ({texts[1]})"
        if kind in ("and", "or"):
            return f"({texts[1]}) {kind} ({texts[2]})"
        return " ".join(texts)

    def __repr__(self) -> str:
        return self.source()

    def __and__(self, other: Any) -> Any:
        return _combined("and", self, other, False)

    def __or__(self, other: Any) -> Any:
        return _combined("or", self, other, True)

    __rand__, __ror__ = __and__, __or__

    def __invert__(self) -> Any:
        return SymBool(("not", self), self.env)

    def __eq__(self, other: object) -> bool:
        return bool(self) == bool(other)

    def __hash__(self) -> int:
        return hash(self.source())

    def __int__(self) -> int:
        return int(bool(self))

    def as_float(self) -> float:
        return float(bool(self))


def _combined(kind: str, a: SymBool, b: Any, decisive: bool) -> Any:
    if isinstance(b, bool):
        return b if b is decisive else a
    return SymBool((kind, a, b), a.env) if isinstance(b, SymBool) else NotImplemented


# -- functions -------------------------------------------------------------------------------------


def _extreme(kind: str, a: Any, b: Any) -> Any:
    pick = max if kind == "max" else min
    number = a if isinstance(a, _Number) else b
    if not isinstance(number, _Number):
        return pick(a, b)
    env = number.env
    left, right = _expr_of(a, env), _expr_of(b, env)
    if left is None or right is None:
        return pick(a, b)
    larger = env.decide(left, ">=", right)
    if larger is not None:
        return a if larger == (kind == "max") else b
    return _integer(E.maximum(left, right) if kind == "max" else E.minimum(left, right), env)


def sym_max(a: Any, b: Any) -> Any:
    """The larger of two numbers, without a guard where they are symbolic integers."""
    return _extreme("max", a, b)


def sym_min(a: Any, b: Any) -> Any:
    """The smaller of two numbers, without a guard where they are symbolic integers."""
    return _extreme("min", a, b)


def sym_int(a: Any) -> Any:
    """``int(a)`` that keeps symbols."""
    if isinstance(a, SymFloat):
        return math.trunc(a)
    return a if isinstance(a, SymInt) else int(a)


def sym_float(a: Any) -> Any:
    """``float(a)`` that keeps symbols."""
    return a.as_float() if isinstance(a, (SymInt, SymFloat)) else float(a)


def sym_sqrt(a: Any) -> Any:
    """``math.sqrt(a)`` that keeps symbols."""
    if isinstance(a, _Number):
        return SymFloat(FloatExpr("sqrt", (a.expr,)), a.env)
    return math.sqrt(a)


def sym_not(a: Any) -> Any:
    """``not a`` that keeps symbols."""
    return ~a if isinstance(a, SymBool) else not a


def sym_ite(condition: Any, then: Any, otherwise: Any) -> Any:
    """``then if condition else otherwise``."""
    return then if condition else otherwise


def sym_sum(args: Any) -> Any:
    """The sum of numbers, symbolic or not."""
    total: Any = 0
    for x in args:
        total = total + x
    return total
