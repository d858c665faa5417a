"""Which sizes are symbols, what is known of them, and which guards were needed.

A question about symbolic sizes is answered from what is known, if that suffices: ranges of the
symbols, and guards so far. Otherwise it is answered by the hints, which are the sizes of the call
at hand, and the answer is recorded as a guard. Sizes that no call has shown yet ("unbacked", such
as the number of elements that are not zero) have no hints, so that such a question is an error.
"""

# The tables of operations are of lambdas, whose parameters have no types to write.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mortice._base.errors import GuardOnDataDependent, InvalidState, InvalidValue
from mortice._base.warning import user_line
from mortice._types import symbolic_expr as E
from mortice._types.symbolic import SymFloat, SymInt
from mortice._types.symbolic_expr import Expr, FloatExpr

_INF = math.inf
#: Lower and upper bound, both inclusive; infinite where there is none.
Range = tuple[float, float]
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


@dataclass(frozen=True)
class Guard:
    """What must hold of the sizes for what was recorded under them: ``left relation right``.

    ``where`` is the line that asked, "file:line"; guards that differ in it alone are equal.
    """

    left: Expr | FloatExpr
    relation: str
    right: Expr | FloatExpr
    where: str = field(default="", compare=False)

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it is true where the symbols have ``values``."""
        return _COMPARE[self.relation](self.left.evaluate(values), self.right.evaluate(values))

    def source(self) -> str:
        """As a Python expression over the symbols' names."""
        return f"{self.left.source()} {self.relation} {self.right.source()}"

    def __str__(self) -> str:
        return self.source()

    @property
    def symbols(self) -> frozenset[str]:
        return self.left.symbols | self.right.symbols


class ShapeEnv:
    """Symbols with their hints and ranges, and the guards recorded so far.

    Attributes:
        hints: symbol's name -> its value in the call at hand; unbacked symbols have none.
        guards: recorded guards, in order, each once.
    """

    def __init__(self) -> None:
        self.hints: dict[str, Any] = {}
        self._guards: dict[Guard, None] = {}
        self._assumed: dict[Guard, None] = {}
        #: constant-free expression -> what is known of its value.
        self._bounds: dict[Expr, Range] = {}
        self._different: set[Expr] = set()
        self._float_facts: dict[tuple[str, Any, Any], bool] = {}
        self._same: dict[str, Expr] = {}
        self._ranges: dict[Expr, Range] = {}
        self._counts = {"s": 0, "u": 0, "f": 0}

    # -- symbols -----------------------------------------------------------------------------------

    def size(self, hint: int, *, min: int = 2, max: int | None = None) -> Any:
        """A symbolic size that is ``hint`` in the call at hand.

        0 and 1 stay the numbers they are, since sizes of 0 and 1 behave unlike others; with
        ``min=0`` they become symbols too.
        """
        if hint < min:
            if hint < 0:
                raise InvalidValue(f"a size is never negative: {hint}")
            return hint
        return self._integer(self._name("s"), hint, min, max)

    def integer(self, hint: int) -> Any:
        """A symbolic integer argument, of any sign."""
        return self._integer(self._name("s"), hint, None, None)

    def floating(self, hint: float) -> Any:
        """A symbolic floating argument."""
        name = self._name("f")
        self.hints[name] = hint
        return SymFloat(FloatExpr("symbol", (name,)), self)

    def unbacked_float(self) -> Any:
        """A floating value that depends on data."""
        return SymFloat(FloatExpr("symbol", (self._name("f"),)), self)

    def unbacked(self, min: int | None = 0, max: int | None = None) -> Any:
        """A size that no call has shown yet, known to lie in [min, max]."""
        return self._integer(self._name("u"), None, min, max)

    def _name(self, kind: str) -> str:
        n = self._counts[kind]
        self._counts[kind] = n + 1
        return f"{kind}{n}"

    def _integer(self, name: str, hint: int | None, low: int | None, high: int | None) -> Any:
        expr = E.symbol(name)
        if hint is not None:
            self.hints[name] = hint
        self._bounds[expr] = (-_INF if low is None else low, _INF if high is None else high)
        return SymInt(expr, self)

    def is_unbacked(self, expr: Expr | FloatExpr) -> bool:
        """Whether some symbol of the expression has no hint."""
        return any(name not in self.hints for name in expr.symbols)

    def hint_of(self, expr: Expr | FloatExpr) -> Any:
        """The value in the call at hand, or None where that depends on data."""
        return None if self.is_unbacked(expr) else expr.evaluate(self.hints)

    def simplified(self, expr: Any) -> Any:
        """The expression with symbols that are known to equal others replaced by those."""
        return expr.substitute(self._same) if self._same else expr

    # -- what is known -----------------------------------------------------------------------------

    def range_of(self, expr: Expr) -> Range:
        """Bounds of the value, as far as they can be seen."""
        found = self._ranges.get(expr)
        if found is None:
            constant, base = _split(expr)
            low, high = self._base_range(base)
            found = self._ranges[expr] = (low + constant, high + constant)
        return found

    def _base_range(self, base: Expr) -> Range:
        if not base.terms:
            return (0, 0)
        scale = math.gcd(*(c for _, c in base.terms))
        if scale != 1:
            base = Expr({m: c // scale for m, c in base.terms})
        low, high = self._interval(base)
        for known in (self._shifted(base), self._known(base), self._unfloored(base)):
            low, high = max(low, known[0]), min(high, known[1])
        return low * scale, high * scale

    def _unfloored(self, base: Expr) -> Range:
        """Bounds seen where ``2 * (n // 2)`` is written as ``n - n % 2``."""
        found = base
        for monomial, coefficient in base.terms:
            if len(monomial) != 1 or monomial[0][1] != 1 or monomial[0][0].kind != "//":
                continue
            number, divisor = monomial[0][0].args
            c = divisor.constant
            if c is not None and c > 0 and coefficient % c == 0:
                exact = E.sub(number, E.mod(number, divisor))
                found = E.sub(found, Expr({monomial: coefficient}))
                found = E.add(found, exact, coefficient // c)
        return (-_INF, _INF) if found is base else self.range_of(found)

    def _known(self, base: Expr) -> Range:
        found = self._bounds.get(base)
        if found is not None:
            return found
        low, high = self._bounds.get(E.sub(E.ZERO, base), (-_INF, _INF))
        return -high, -low

    def _interval(self, base: Expr) -> Range:
        low: float = 0
        high: float = 0
        for monomial, coefficient in base.terms:
            part: Range = (coefficient, coefficient)
            for atom, power in monomial:
                part = _product(part, _raised(self._atom_range(atom), power))
            low, high = low + part[0], high + part[1]
        return low, high

    def _shifted(self, base: Expr) -> Range:
        """Bounds seen where each atom is written as its lower bound plus something not negative.

        ``s0*s1 - s1`` with both at least 2 becomes ``a*b + 2*a + b + 2``: at least 2.
        """
        if len(base.terms) < 2:
            return (-_INF, _INF)
        lows: dict[E.Atom, int] = {}
        for atom in base.atoms():
            low = self._atom_range(atom)[0]
            if low == -_INF:
                return (-_INF, _INF)
            lows[atom] = int(low)
        total = E.ZERO
        for monomial, coefficient in base.terms:
            product = E.const(coefficient)
            for atom, power in monomial:
                shifted = E.add(E.of_atom(atom), E.const(lows[atom]))
                product = E.mul(product, E.power_of(shifted, power))
            total = E.add(total, product)
        constant, rest = _split(total)
        low = constant if all(c > 0 for _, c in rest.terms) else -_INF
        high = constant if all(c < 0 for _, c in rest.terms) else _INF
        return low, high

    def _atom_range(self, atom: E.Atom) -> Range:
        if atom.kind == "symbol":
            return self._bounds.get(E.of_atom(atom), (-_INF, _INF))
        if atom.kind == "floor":
            low, high = self._float_range(atom.args[0])
            return (
                low if low == -_INF else math.floor(low),
                high if high == _INF else math.floor(high),
            )
        found = _ATOM_RANGE[atom.kind](*(self.range_of(x) for x in atom.args))
        known = self._known(E.of_atom(atom))
        return max(found[0], known[0]), min(found[1], known[1])

    def _float_range(self, x: Any) -> Range:
        if isinstance(x, Expr):
            return self.range_of(x)
        if isinstance(x, float):
            return (x, x)
        bounds = _FLOAT_RANGE.get(x.op)
        if bounds is None:
            return (-_INF, _INF)
        low, high = bounds(*(self._float_range(a) for a in x.args))
        return (-_INF, _INF) if math.isnan(low) or math.isnan(high) else (low, high)

    def decide(self, left: Any, relation: str, right: Any) -> bool | None:
        """The answer that holds for all sizes, or None if it depends on them."""
        if isinstance(left, FloatExpr) or isinstance(right, FloatExpr):
            return self._float_facts.get((relation, left, right))
        gap, relation, negated = _as_gap(self.simplified(left), relation, self.simplified(right))
        answer = self._equal(gap) if relation == "==" else self._at_most_zero(gap)
        return answer if answer is None or not negated else not answer

    def _equal(self, gap: Expr) -> bool | None:
        if gap.constant is not None:
            return gap.constant == 0
        low, high = self.range_of(gap)
        if low > 0 or high < 0 or gap in self._different:
            return False
        return True if low == high == 0 else None

    def _at_most_zero(self, gap: Expr) -> bool | None:
        low, high = self.range_of(gap)
        return True if high <= 0 else False if low > 0 else None

    # -- questions ---------------------------------------------------------------------------------

    def ask(self, left: Any, relation: str, right: Any) -> bool:
        """The answer, from what is known or else from the hints, which then is a guard.

        GuardOnDataDependent where it depends on data.
        """
        answer = self.decide(left, relation, right)
        if answer is not None:
            return answer
        left, right = self.simplified(left), self.simplified(right)
        for side in (left, right):
            if self.is_unbacked(side):
                what = f"{left.source()} {relation} {right.source()}"
                raise self.data_dependent(what, left.symbols | right.symbols)
        answer = _COMPARE[relation](left.evaluate(self.hints), right.evaluate(self.hints))
        guard = _guard(left, relation if answer else _OPPOSITE[relation], right)
        self._guards[guard] = None
        self._learn(guard)
        return answer

    def assume(self, left: Any, relation: str, right: Any) -> None:
        """Take a statement about sizes for true; InvalidState if it is known to be false.

        One about sizes that have hints becomes a guard, one about others is kept in ``assumed``.
        """
        answer = self.decide(left, relation, right)
        if answer is None and not (self.is_unbacked(left) or self.is_unbacked(right)):
            answer = self.ask(left, relation, right)
        if answer is False:
            raise InvalidState(
                f"expected {left.source()} {relation} {right.source()}, which is not so."
            )
        if answer is None:
            guard = _guard(self.simplified(left), relation, self.simplified(right))
            self._assumed[guard] = None
            self._learn(guard)

    def data_dependent(self, what: str, symbols: frozenset[str]) -> GuardOnDataDependent:
        """The error for a question whose answer depends on values."""
        known = ", ".join(
            _bound_text(self.range_of(E.symbol(name)), name)
            for name in sorted(symbols)
            if name not in self.hints
        )
        return GuardOnDataDependent(
            f"Could not guard on data-dependent expression {what}: it comes from the values of a "
            f"tensor ({known}), which are not known here. Asked at {user_line()}. State what you "
            "know with mortice.fake.check(condition), or avoid branching on such a size."
        )

    def _learn(self, guard: Guard) -> None:
        left, right = guard.left, guard.right
        if isinstance(left, FloatExpr) or isinstance(right, FloatExpr):
            self._float_facts[guard.relation, left, right] = True
            self._float_facts[_OPPOSITE[guard.relation], left, right] = False
            return
        gap, relation, negated = _as_gap(left, guard.relation, right)
        self._ranges.clear()
        if relation == "==":
            if negated:
                self._different.update((gap, E.sub(E.ZERO, gap)))
            else:
                self._equate(gap)
        elif negated:
            self._bound(E.add(E.ONE, gap, -1))  # not gap <= 0, so 1 - gap <= 0
        else:
            self._bound(gap)

    def _bound(self, gap: Expr) -> None:
        """Learn ``gap <= 0``."""
        constant, base = _split(gap)
        scale = math.gcd(*(c for _, c in base.terms))
        base = Expr({m: c // scale for m, c in base.terms})
        most = -constant // scale
        turned = E.sub(E.ZERO, base)
        if turned in self._bounds or (len(base.terms) == 1 and base.terms[0][1] < 0):
            low, high = self._bounds.get(turned, (-_INF, _INF))
            self._bounds[turned] = (max(low, -most), high)
        else:
            low, high = self._bounds.get(base, (-_INF, _INF))
            self._bounds[base] = (low, min(high, most))

    def _equate(self, gap: Expr) -> None:
        """Learn ``gap == 0``: a symbol that it is linear in is replaced, else its value is bounded."""
        for monomial, coefficient in reversed(gap.terms):
            if len(monomial) != 1 or abs(coefficient) != 1:
                continue
            atom, power = monomial[0]
            rest = E.mul(E.sub(gap, Expr({monomial: coefficient})), E.const(-coefficient))
            if atom.kind == "symbol" and power == 1 and atom.args[0] not in rest.symbols:
                self._replace(atom, rest)
                return
        self._bound(gap)
        self._bound(E.sub(E.ZERO, gap))

    def _replace(self, atom: E.Atom, rest: Expr) -> None:
        name = atom.args[0]
        low, high = self._bounds.get(E.of_atom(atom), (-_INF, _INF))
        found = {name: rest}
        self._same = {n: e.substitute(found) for n, e in self._same.items()}
        self._same[name] = rest
        if rest.constant is None:
            for bound, sign in ((high, 1), (low, -1)):
                if abs(bound) != _INF:
                    edge = E.add(rest, E.const(int(bound)), -1)
                    self._bound(edge if sign > 0 else E.sub(E.ZERO, edge))

    # -- guards ------------------------------------------------------------------------------------

    @property
    def guards(self) -> tuple[Guard, ...]:
        """What the answers so far rest on, as frozen data."""
        return tuple(self._guards)

    @property
    def assumed(self) -> tuple[Guard, ...]:
        """Statements about data-dependent sizes that were taken for true."""
        return tuple(self._assumed)

    def is_specialised(self, name: str) -> int | None:
        """The one value that the guards leave a symbol, or None."""
        found = self._same.get(name)
        return None if found is None else found.constant

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={hint}" for name, hint in self.hints.items())
        return f"<ShapeEnv {shown}; {len(self._guards)} guard(s)>"


def compile_guards(guards: tuple[Guard, ...], names: tuple[str, ...]) -> Callable[..., bool]:
    """One function of the symbols ``names``, in order, that says whether all guards hold."""
    text = " and ".join(guard.source() for guard in guards) or "True"
    # Made of symbols' names, numbers and operators only.
    return eval(f"lambda {', '.join(names)}: {text}", {"math": math})  # noqa: S307


def _guard(left: Any, relation: str, right: Any) -> Guard:
    """The guard in its normal form: terms with a plus left, those with a minus right."""
    if not isinstance(left, FloatExpr) and not isinstance(right, FloatExpr):
        gap = E.sub(left, right)
        positive = Expr({m: c for m, c in gap.terms if m and c > 0})
        if positive.terms:
            left, right = positive, E.sub(positive, gap)
        else:
            left = E.sub(E.ZERO, Expr({m: c for m, c in gap.terms if m}))
            right = E.add(left, gap)
            relation = _TURNED[relation]
    return Guard(left, relation, right, user_line())


_TURNED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _as_gap(left: Expr, relation: str, right: Expr) -> tuple[Expr, str, bool]:
    """The comparison as (gap, "==" or "<=", negated): what is asked is whether gap is (at most) 0."""
    if relation in ("==", "!="):
        return E.sub(left, right), "==", relation == "!="
    if relation in ("<=", ">"):
        return E.sub(left, right), "<=", relation == ">"
    return E.sub(right, left), "<=", relation == "<"


def _split(expr: Expr) -> tuple[int, Expr]:
    """Constant term and the rest."""
    if expr.terms and not expr.terms[-1][0]:
        return expr.terms[-1][1], Expr(dict(expr.terms[:-1]))
    return 0, expr


def _bound_text(bounds: Range, name: str) -> str:
    low, high = bounds
    left = "" if low == -_INF else f"{low} <= "
    return f"{left}{name}{'' if high == _INF else f' <= {high}'}"


# -- intervals -------------------------------------------------------------------------------------


def _times(a: float, b: float) -> float:
    return 0 if a == 0 or b == 0 else a * b


def _product(a: Range, b: Range) -> Range:
    ends = [_times(x, y) for x in a for y in b]
    return min(ends), max(ends)


def _raised(a: Range, power: int) -> Range:
    result: Range = (1, 1)
    for _ in range(power):
        result = _product(result, a)
    return (0, result[1]) if power % 2 == 0 and a[0] < 0 < a[1] else result


def _quotient(a: Range, b: Range) -> Range:
    if b[0] <= 0:
        return (-_INF, _INF)
    ends = [_floor_over(x, y) for x in a for y in b]
    return min(ends), max(ends)


def _floor_over(a: float, b: float) -> float:
    if b == _INF:
        return -1 if a < 0 else 0
    return a if abs(a) == _INF else a // b


def _remainder(a: Range, b: Range) -> Range:
    return (0, b[1] - 1) if b[0] > 0 else (-_INF, _INF)


def _ratio(a: Range, b: Range) -> Range:
    return _product(a, (1 / b[1], 1 / b[0])) if b[0] > 0 else (-_INF, _INF)


_FLOAT_RANGE: dict[str, Callable[..., Range]] = {
    "float": lambda a: a,
    "+": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "-": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "*": _product,
    "/": _ratio,
}

_ATOM_RANGE: dict[str, Callable[..., Range]] = {
    "//": _quotient,
    "%": _remainder,
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
}
