"""Integer expressions over loop variables: where in a buffer an element lies.

An expression is a sum of terms ``coefficient * atom`` and a constant. An atom is a loop variable
or a quotient or remainder of an expression by a number, as reshapes make them. Variables are
numbered and run from 0 to their size. Sizes are known when expressions are made, or symbolic integers
that take what is decided by them for a condition (``templates``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import gcd
from typing import NamedTuple

Sizes = tuple[int, ...]


class Atom(NamedTuple):
    """Variable number ``of`` (kind ``v``), or ``of // n`` (``/``), or ``of % n`` (``%``)."""

    kind: str
    of: int | Expr
    n: int


class Expr(NamedTuple):
    """``const`` plus the terms (atom, coefficient), coefficients not 0, atoms distinct."""

    terms: tuple[tuple[Atom, int], ...]
    const: int


ZERO = Expr((), 0)


def const(n: int) -> Expr:
    """The number ``n``."""
    return Expr((), n)


@lru_cache(256)
def var(k: int) -> Expr:
    """Variable number ``k``."""
    return Expr(((Atom("v", k, 0), 1),), 0)


def _order(term: tuple[Atom, int]) -> str:
    atom = term[0]
    return f"{atom.of:04d}" if isinstance(atom.of, int) else repr(atom)


def _make(terms: dict[Atom, int], constant: int) -> Expr:
    kept = [(a, c) for a, c in terms.items() if c]
    if len(kept) > 1:
        kept.sort(key=_order)
    return Expr(tuple(kept), constant)


def add(*parts: Expr) -> Expr:
    """The sum; a quotient and its remainder that fit together become their dividend again."""
    terms: dict[Atom, int] = {}
    constant = 0
    for e in parts:
        constant += e.const
        for a, c in e.terms:
            terms[a] = terms.get(a, 0) + c
    return _rejoined(terms, constant)


def _rejoined(terms: dict[Atom, int], constant: int) -> Expr:
    """Replaces c n (e // n) + c (e % n) by c e."""
    for atom, c in terms.items():
        if atom.kind != "%" or not c:
            continue
        quotient = _quotient_of(atom, [a for a, k in terms.items() if k == c * atom.n])
        if quotient is not None:
            rest = {a: k for a, k in terms.items() if a not in (atom, quotient)}
            assert isinstance(atom.of, Expr)
            return add(_make(rest, constant), scale(atom.of, c))
    return _make(terms, constant)


def _quotient_of(remainder: Atom, among: list[Atom]) -> Atom | None:
    """The atom that is the remainder's dividend // n, in whatever form it is written."""
    e, n = remainder.of, remainder.n
    assert isinstance(e, Expr)
    for a in among:
        if a.kind != "/":
            continue
        assert isinstance(a.of, Expr)
        if a.n == n and a.of == e:
            return a
        if a.n % n == 0 and _plain_quotient(a.of, a.n // n) == e:
            return a
    return None


def _plain_quotient(e: Expr, n: int) -> Expr:
    """``e // n`` as ``floordiv`` writes it where sizes do not help."""
    q, r = _split(e, n)
    if not r.terms:
        return q
    return add(q, Expr(((Atom("/", r, n), 1),), 0))


def scale(e: Expr, by: int) -> Expr:
    """The product with a number."""
    if by == 1:
        return e
    if by == 0:
        return ZERO
    return Expr(tuple((a, c * by) for a, c in e.terms), e.const * by)


def bounds(e: Expr, sizes: Sizes) -> tuple[int, int]:
    """The least and the greatest value (a bound, not always reached)."""
    low = high = e.const
    for atom, c in e.terms:
        a, b = _atom_bounds(atom, sizes)
        low += min(a * c, b * c)
        high += max(a * c, b * c)
    return low, high


def _atom_bounds(atom: Atom, sizes: Sizes) -> tuple[int, int]:
    if isinstance(atom.of, int):
        return 0, max(sizes[atom.of] - 1, 0)
    if atom.kind == "%":
        return 0, atom.n - 1
    low, high = bounds(atom.of, sizes)
    return low // atom.n, high // atom.n


def _split(e: Expr, n: int) -> tuple[Expr, Expr]:
    """(q, r) with e = n q + r, r holding what is not plainly divisible."""
    multiples = tuple((a, c // n) for a, c in e.terms if c % n == 0)
    rest = tuple((a, c) for a, c in e.terms if c % n)
    return Expr(multiples, e.const // n), Expr(rest, e.const % n)


def floordiv(e: Expr, n: int, sizes: Sizes) -> Expr:
    """``e // n`` for n > 0; 0 for n = 0, of which there is no element."""
    if n == 1:
        return e
    if not n:
        return ZERO
    q, r = _split(e, n)
    low, high = bounds(r, sizes)
    if low >= 0 and high < n:
        return q
    coarse = _coarse(r, n, sizes)
    if coarse is not None:
        g, whole, _ = coarse
        return add(q, floordiv(whole, n // g, sizes))
    if len(r.terms) == 1 and not r.const and r.terms[0][1] == 1 and r.terms[0][0].kind == "/":
        inner = r.terms[0][0]
        assert isinstance(inner.of, Expr)
        return add(q, floordiv(inner.of, inner.n * n, sizes))
    if len(r.terms) == 1 and not r.const and r.terms[0][1] == 1 and r.terms[0][0].kind == "%":
        inner = r.terms[0][0]
        if inner.n % n == 0:  # (e % n m) // n is (e // n) % m
            assert isinstance(inner.of, Expr)
            return add(q, mod(floordiv(inner.of, n, sizes), inner.n // n, sizes))
    return add(q, Expr(((Atom("/", r, n), 1),), 0))


def _coarse(e: Expr, n: int, sizes: Sizes) -> tuple[int, Expr, Expr] | None:
    """(g, whole, rest) with e = g whole + rest, g a divisor of n, and rest from 0 to g - 1: what
    e // n and e % n then do not mix. None if there is none but g = 1.
    """
    for g in sorted({_common(n, c) for _, c in e.terms}, reverse=True):
        if g == 1 or g == n:
            continue
        whole, rest = _split(e, g)
        low, high = bounds(rest, sizes)
        if low >= 0 and high < g and whole.terms:
            return g, whole, rest
    return None


def _common(n: int, c: int) -> int:
    """The greatest common divisor; of symbolic numbers one that can be seen."""
    if type(n) is int and type(c) is int:
        return gcd(n, c)
    for whole, part in ((n, c), (c, n)):
        rest = whole % part
        if type(rest) is int and rest == 0:
            return part
    return 1


def mod(e: Expr, n: int, sizes: Sizes) -> Expr:
    """``e % n`` for n > 0; 0 for n = 0, of which there is no element."""
    if n <= 1:
        return ZERO
    _, r = _split(e, n)
    low, high = bounds(r, sizes)
    if low >= 0 and high < n:
        return r
    coarse = _coarse(r, n, sizes)
    if coarse is not None:
        g, whole, rest = coarse
        return add(scale(mod(whole, n // g, sizes), g), rest)
    if len(r.terms) == 1 and not r.const and r.terms[0][1] == 1 and r.terms[0][0].kind == "%":
        inner = r.terms[0][0]
        if inner.n % n == 0:
            assert isinstance(inner.of, Expr)
            return mod(inner.of, n, sizes)
    return Expr(((Atom("%", r, n), 1),), 0)


def substitute(e: Expr, values: Sequence[Expr], sizes: Sizes) -> Expr:
    """``e`` with variable k replaced by ``values[k]``, whose variables have these sizes."""
    parts = [const(e.const)]
    for atom, c in e.terms:
        if isinstance(atom.of, int):
            parts.append(scale(values[atom.of], c))
            continue
        inner = substitute(atom.of, values, sizes)
        done = (floordiv if atom.kind == "/" else mod)(inner, atom.n, sizes)
        parts.append(scale(done, c))
    return add(*parts)


def is_affine(e: Expr) -> bool:
    """True if all atoms are variables."""
    return all(isinstance(a.of, int) for a, _ in e.terms)


def is_tangled(e: Expr, sizes: Sizes) -> bool:
    """True if splitting loops would not make the expression affine: a quotient or remainder of
    more than one variable, or by what does not divide its size.
    """
    for atom, _ in e.terms:
        inner, n = atom, 1
        while not isinstance(inner.of, int):
            n *= inner.n
            if len(inner.of.terms) != 1 or inner.of.const or inner.of.terms[0][1] != 1:
                return True
            inner = inner.of.terms[0][0]
        if n > 1 and sizes[inner.of] % atom.n:
            return True
    return False


def variables(e: Expr) -> set[int]:
    """Numbers of the variables in ``e``."""
    found: set[int] = set()
    for atom, _ in e.terms:
        found |= {atom.of} if isinstance(atom.of, int) else variables(atom.of)
    return found


def linear(index: Sequence[Expr], strides: Sequence[int]) -> Expr:
    """The offset of an element: the sum of index times stride."""
    return add(ZERO, *(scale(e, s) for e, s in zip(index, strides)))


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    out: list[int] = []
    step = 1
    for n in reversed(shape):
        out.append(step)
        step *= max(n, 1)
    return tuple(reversed(out))


def reshape(
    index: Sequence[Expr], shape: Sequence[int], to: Sequence[int], sizes: Sizes
) -> tuple[Expr, ...]:
    """Where an element at ``index`` of an array of ``shape`` lies when it is seen as ``to``.

    Dimensions are matched in groups of equal product, so that what need not mix does not.
    """
    if 0 in shape or 0 in to:  # nothing lies anywhere
        return (ZERO,) * len(to)
    out: list[Expr] = []
    i = j = 0
    while i < len(shape) or j < len(to):
        i0, j0 = i, j
        a = shape[i] if i < len(shape) else 1
        b = to[j] if j < len(to) else 1
        i, j = i + (i < len(shape)), j + (j < len(to))
        while a != b:
            if a < b and i < len(shape):
                a *= shape[i]
                i += 1
            elif j < len(to):
                b *= to[j]
                j += 1
            else:
                a *= shape[i]
                i += 1
        out += _group(index[i0:i], shape[i0:i], to[j0:j], sizes)
    return tuple(out)


def _group(
    index: Sequence[Expr], shape: Sequence[int], to: Sequence[int], sizes: Sizes
) -> list[Expr]:
    if len(to) == 1 and len(index) == 1:
        return [index[0]]
    whole = linear(index, contiguous(shape))
    return [
        mod(floordiv(whole, s, sizes), n, sizes) if k else floordiv(whole, s, sizes)
        for k, (n, s) in enumerate(zip(to, contiguous(to)))
    ]
