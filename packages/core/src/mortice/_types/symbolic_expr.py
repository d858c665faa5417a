"""Integer expressions over symbols, in normal form, and floating expressions over those.

An ``Expr`` is a polynomial with integer coefficients. What is not polynomial (floor division,
remainder, minimum, maximum, rounding) is an ``Atom``, which stands in the polynomial as a variable.
Two expressions that are equal as polynomials of their atoms are equal as objects, and hash alike.
"""

# The tables of operations are of lambdas, whose parameters have no types to write.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

#: Atoms with their powers, in order of their text. ``()`` is the constant's.
Monomial = tuple[tuple["Atom", int], ...]
Values = Mapping[str, Any]

_new = object.__new__


class Atom:
    """A variable of polynomials: a symbol, or a function of expressions.

    Attributes:
        kind: ``"symbol"``, ``"//"``, ``"%"``, ``"max"``, ``"min"`` or ``"floor"``.
        args: the symbol's name, or the expressions that the function is of.
        text: Python source; atoms are ordered by it.
    """

    __slots__ = ("_hash", "args", "kind", "text")

    kind: str
    args: tuple[Any, ...]
    text: str

    def __init__(self, kind: str, args: tuple[Any, ...]) -> None:
        self.kind = kind
        self.args = args
        self.text = _ATOM_TEXT[kind](*args)
        self._hash = hash((kind, self.text))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Atom) and self.kind == other.kind and self.text == other.text
        )

    def __repr__(self) -> str:
        return self.text

    def evaluate(self, values: Values) -> int:
        if self.kind == "symbol":
            return values[self.args[0]]
        return _ATOM_VALUE[self.kind](*(x.evaluate(values) for x in self.args))


class Expr:
    """An integer polynomial: ``terms`` are (monomial, coefficient), sorted, none with 0."""

    __slots__ = ("_hash", "_symbols", "_text", "terms")

    terms: tuple[tuple[Monomial, int], ...]
    _text: str | None
    _symbols: frozenset[str] | None

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        found = [(m, c) for m, c in terms.items() if c]
        if len(found) > 1:
            found.sort(key=_order)
        self.terms = tuple(found)
        self._hash = hash(self.terms)
        self._text = None
        self._symbols = None

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Expr) and self._hash == other._hash and self.terms == other.terms

    def __repr__(self) -> str:
        return self.source()

    @property
    def constant(self) -> int | None:
        """The value, where the expression has no symbol; else None."""
        terms = self.terms
        if not terms:
            return 0
        return terms[0][1] if len(terms) == 1 and not terms[0][0] else None

    @property
    def symbols(self) -> frozenset[str]:
        """Names of the symbols in it, within functions too."""
        found = self._symbols
        if found is None:
            found = self._symbols = frozenset(_symbols_of(self))
        return found

    def atoms(self) -> Iterator[Atom]:
        """The atoms of the polynomial itself, each as often as it occurs."""
        for monomial, _ in self.terms:
            for atom, _ in monomial:
                yield atom

    def evaluate(self, values: Values) -> int:
        """The value where symbols have ``values`` (name -> int); KeyError if one is missing."""
        total = 0
        for monomial, coefficient in self.terms:
            product = coefficient
            for atom, power in monomial:
                value = atom.evaluate(values)
                product *= value if power == 1 else value**power
            total += product
        return total

    def source(self) -> str:
        """Python source with the symbols as names; ``math`` is the only other name in it."""
        if self._text is None:
            self._text = _polynomial_text(self)
        return self._text

    def substitute(self, values: Mapping[str, Expr]) -> Expr:
        """The expression with symbols replaced."""
        if self.symbols.isdisjoint(values):
            return self
        total = ZERO
        for monomial, coefficient in self.terms:
            product = const(coefficient)
            for atom, power in monomial:
                product = mul(product, power_of(_substitute_atom(atom, values), power))
            total = add(total, product)
        return total


def _order(term: tuple[Monomial, int]) -> Any:
    monomial = term[0]
    # Graded, then lexical: an order that multiplication keeps, as long division needs.
    return -sum(p for _, p in monomial), [(a.text, -p) for a, p in monomial]


def _symbols_of(x: Any) -> Iterator[str]:
    if isinstance(x, Expr):
        for atom in x.atoms():
            if atom.kind == "symbol":
                yield atom.args[0]
            else:
                for arg in atom.args:
                    yield from _symbols_of(arg)
    elif isinstance(x, FloatExpr):
        yield from x.symbols


def _substitute_atom(atom: Atom, values: Mapping[str, Expr]) -> Expr:
    if atom.kind == "symbol":
        return values.get(atom.args[0]) or of_atom(atom)
    args = [x.substitute(values) for x in atom.args]
    return _BUILD[atom.kind](*args)


# -- making expressions ----------------------------------------------------------------------------


def const(n: int) -> Expr:
    return Expr({(): n})


def symbol(name: str) -> Expr:
    return of_atom(Atom("symbol", (name,)))


def of_atom(atom: Atom) -> Expr:
    return Expr({((atom, 1),): 1})


ZERO, ONE = const(0), const(1)


def add(a: Expr, b: Expr, factor: int = 1) -> Expr:
    """``a + factor * b``."""
    terms = dict(a.terms)
    for monomial, coefficient in b.terms:
        terms[monomial] = terms.get(monomial, 0) + factor * coefficient
    return Expr(terms)


def sub(a: Expr, b: Expr) -> Expr:
    return add(a, b, -1)


def mul(a: Expr, b: Expr) -> Expr:
    terms: dict[Monomial, int] = {}
    for m1, c1 in a.terms:
        for m2, c2 in b.terms:
            monomial = _times(m1, m2)
            terms[monomial] = terms.get(monomial, 0) + c1 * c2
    return Expr(terms)


def _times(a: Monomial, b: Monomial) -> Monomial:
    if not a:
        return b
    if not b:
        return a
    powers = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=_atom_text))


def _atom_text(item: tuple[Atom, int]) -> str:
    return item[0].text


def power_of(a: Expr, n: int) -> Expr:
    """``a ** n`` for n >= 0."""
    result = ONE
    for _ in range(n):
        result = mul(result, a)
    return result


def floordiv(a: Expr, b: Expr) -> Expr:
    """``a // b``, rounded down. What divides exactly is taken out; common factors cancel."""
    divisor = b.constant
    if divisor == 0:
        raise ZeroDivisionError(f"{a} // 0")
    if divisor == 1:
        return a
    whole, rest = _divide(a, b)
    if not rest.terms:
        return whole
    if whole.terms:
        # (b*q + r) // b is q + r // b for integers of any sign.
        return add(whole, floordiv(rest, b))
    rest, b = _cancel(rest, b)
    if rest.constant is not None and b.constant is not None:
        return const(rest.constant // b.constant)
    if b.constant == 1:
        return rest
    return of_atom(Atom("//", (rest, b)))


def _divide(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """(q, r) with ``a == b*q + r``, by long division from the leading terms."""
    lead, coefficient = b.terms[0]
    quotient: dict[Monomial, int] = {}
    left: dict[Monomial, int] = {}
    rest = a
    while rest.terms:
        monomial, c = rest.terms[0]
        part = _over(monomial, lead)
        n = _whole(c, coefficient, bool(monomial)) if part is not None else 0
        if part is None or not n:
            left[monomial] = c
            rest = Expr(dict(rest.terms[1:]))
            continue
        term = Expr({part: n})
        quotient[part] = quotient.get(part, 0) + n
        rest = sub(rest, mul(term, b))
        if rest.terms and rest.terms[0][0] == monomial:  # a remainder of the coefficient
            left[monomial] = rest.terms[0][1]
            rest = Expr(dict(rest.terms[1:]))
    return Expr(quotient), Expr(left)


def _whole(a: int, b: int, towards_zero: bool) -> int:
    """What of ``a / b`` is taken out of a division: constants downwards, so that shifts by a multiple
    meet in one form; coefficients towards zero, so that signs stay and bounds can be seen.
    """
    return -(-a // b) if towards_zero and (a < 0) != (b < 0) else a // b


def _over(a: Monomial, b: Monomial) -> Monomial | None:
    """``a / b`` if it is a monomial."""
    powers = dict(a)
    for atom, power in b:
        have = powers.get(atom, 0) - power
        if have < 0:
            return None
        if have:
            powers[atom] = have
        else:
            del powers[atom]
    return tuple(sorted(powers.items(), key=_atom_text))


def _cancel(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Numerator and denominator without the number and the monomial that all terms share."""
    terms = (*a.terms, *b.terms)
    number = math.gcd(*(c for _, c in terms))
    common = dict(terms[0][0])
    for monomial, _ in terms[1:]:
        powers = dict(monomial)
        common = {x: min(p, powers[x]) for x, p in common.items() if x in powers}
    shared: Monomial = tuple(sorted(common.items(), key=_atom_text))
    if number == 1 and not shared:
        return a, b
    return _reduced(a, number, shared), _reduced(b, number, shared)


def _reduced(a: Expr, number: int, shared: Monomial) -> Expr:
    return Expr({_over(m, shared) or (): c // number for m, c in a.terms})


def mod(a: Expr, b: Expr) -> Expr:
    """``a % b``, with the sign of ``b``."""
    divisor = b.constant
    if divisor == 0:
        raise ZeroDivisionError(f"{a} % 0")
    if divisor is not None:
        a = Expr({m: c % divisor for m, c in a.terms})
        if a.constant is not None:
            return const(a.constant % divisor)
    else:
        whole, rest = _divide(a, b)
        if not rest.terms:
            return ZERO
        if whole.terms:
            a = rest
    return of_atom(Atom("%", (a, b)))


def maximum(a: Expr, b: Expr) -> Expr:
    return _extreme("max", a, b)


def minimum(a: Expr, b: Expr) -> Expr:
    return _extreme("min", a, b)


def _extreme(kind: str, a: Expr, b: Expr) -> Expr:
    gap = sub(a, b).constant
    if gap is not None:
        return a if (gap >= 0) == (kind == "max") else b
    first, second = sorted((a, b), key=Expr.source)
    return of_atom(Atom(kind, (first, second)))


# -- floating expressions --------------------------------------------------------------------------


class FloatExpr:
    """A floating expression tree: ``op`` of ``args`` (FloatExpr, Expr, float, or a symbol's name)."""

    __slots__ = ("_symbols", "_text", "args", "op")

    def __init__(self, op: str, args: tuple[Any, ...]) -> None:
        self.op = op
        self.args = args
        self._text = _FLOAT_TEXT[op].format(*(_float_text(x) for x in args))
        self._symbols: frozenset[str] | None = None

    def __hash__(self) -> int:
        return hash(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FloatExpr) and self._text == other._text

    def __repr__(self) -> str:
        return self._text

    def source(self) -> str:
        """Python source with the symbols as names."""
        return self._text

    @property
    def constant(self) -> None:
        return None

    @property
    def symbols(self) -> frozenset[str]:
        if self._symbols is None:
            parts = (x.symbols for x in self.args if isinstance(x, (Expr, FloatExpr)))
            names = (x for x in self.args if isinstance(x, str))
            self._symbols = frozenset(names).union(*parts)
        return self._symbols

    def evaluate(self, values: Values) -> float:
        if self.op == "symbol":
            return values[self.args[0]]
        args = [x.evaluate(values) if isinstance(x, (Expr, FloatExpr)) else x for x in self.args]
        return _FLOAT_VALUE[self.op](*args)

    def substitute(self, values: Mapping[str, Expr]) -> FloatExpr:
        if self.symbols.isdisjoint(values):
            return self
        args = [x.substitute(values) if isinstance(x, (Expr, FloatExpr)) else x for x in self.args]
        return FloatExpr(self.op, tuple(args))


def floor(x: FloatExpr) -> Expr:
    """``math.floor`` as an integer expression; a quotient of integers floors exactly."""
    if x.op == "/" and all(isinstance(a, Expr) for a in x.args):
        return floordiv(*x.args)
    if x.op == "float":
        return x.args[0]
    return of_atom(Atom("floor", (x,)))


def _float_text(x: Any) -> str:
    if isinstance(x, str):
        return x
    if isinstance(x, float):
        return repr(x) if math.isfinite(x) else f"float('{x}')"
    return x.source()


_FLOAT_TEXT = {
    "symbol": "{}",
    "float": "float({})",
    "+": "(({}) + ({}))",
    "-": "(({}) - ({}))",
    "*": "(({}) * ({}))",
    "/": "(({}) / ({}))",
    "**": "(({}) ** ({}))",
    "sqrt": "math.sqrt({})",
}
_FLOAT_VALUE: dict[str, Callable[..., float]] = {
    "float": float,
    "+": lambda a, b: float(a + b),
    "-": lambda a, b: float(a - b),
    "*": lambda a, b: float(a * b),
    "/": lambda a, b: a / b,
    "**": lambda a, b: float(a**b),
    "sqrt": math.sqrt,
}


# -- text ------------------------------------------------------------------------------------------


def _polynomial_text(expr: Expr) -> str:
    if not expr.terms:
        return "0"
    parts: list[str] = []
    for monomial, coefficient in expr.terms:
        factors = [a.text if p == 1 else f"{a.text}**{p}" for a, p in monomial]
        size = abs(coefficient)
        if size != 1 or not factors:
            factors.insert(0, str(size))
        sign = (
            ("-" if coefficient < 0 else "") if not parts else (" - " if coefficient < 0 else " + ")
        )
        parts.append(sign + "*".join(factors))
    return "".join(parts)


def _operand(x: Expr) -> str:
    simple = len(x.terms) == 1 and (not x.terms[0][0] or x.terms[0][1] == 1)
    text = x.source()
    return text if simple and "*" not in text and not text.startswith("-") else f"({text})"


_ATOM_TEXT: dict[str, Callable[..., str]] = {
    "symbol": lambda name: name,
    "//": lambda a, b: f"({_operand(a)} // {_operand(b)})",
    "%": lambda a, b: f"({_operand(a)} % {_operand(b)})",
    "max": lambda a, b: f"max({a.source()}, {b.source()})",
    "min": lambda a, b: f"min({a.source()}, {b.source()})",
    "floor": lambda a: f"math.floor({a.source()})",
}
_ATOM_VALUE: dict[str, Callable[..., int]] = {
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "max": max,
    "min": min,
    "floor": math.floor,
}
_BUILD: dict[str, Callable[..., Expr]] = {
    "//": floordiv,
    "%": mod,
    "max": maximum,
    "min": minimum,
    "floor": floor,
}
