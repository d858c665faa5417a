"""The loop nest of a kernel: which variables are rows, which is the vector loop, which folds.

Index expressions of all cells decide: a variable of which a quotient or remainder is read is split
in two; neighbours that always move together become one; then reductions run along the vector
loop where memory does, else across it (``over``), or in both ways.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from ..ir import index as ix
from ..ir.index import Expr, Sizes


class Space:
    """Loop variables while they are split and joined; ``kept`` marks those not reduced."""

    def __init__(self, sizes: Sizes, kept: int) -> None:
        self.sizes = list(sizes)
        self.kept = [k < kept for k in range(len(sizes))]
        #: What the original variables are in terms of the present ones.
        self.mapping: list[Expr] = [ix.var(k) for k in range(len(sizes))]

    def apply(self, e: Expr) -> Expr:
        """An expression over the original variables in the present ones."""
        return ix.substitute(e, self.mapping, tuple(self.sizes))

    def _rename(self, replaced: list[Expr], sizes: list[int], kept: list[bool]) -> None:
        self.sizes, self.kept = sizes, kept
        now = tuple(sizes)
        self.mapping = [ix.substitute(e, replaced, now) for e in self.mapping]

    def split(self, k: int, n: int) -> None:
        """Variable k becomes two: k // n and k % n."""
        replaced = [ix.var(j + (j > k)) for j in range(len(self.sizes))]
        replaced[k] = ix.add(ix.scale(ix.var(k), n), ix.var(k + 1))
        sizes = [*self.sizes[:k], self.sizes[k] // n, n, *self.sizes[k + 1 :]]
        kept = [*self.kept[:k], self.kept[k], self.kept[k], *self.kept[k + 1 :]]
        self._rename(replaced, sizes, kept)

    def drop(self, k: int) -> None:
        """Variable k has size 1."""
        replaced = [ix.var(j - (j > k)) for j in range(len(self.sizes))]
        replaced[k] = ix.ZERO
        self._rename(
            replaced, self.sizes[:k] + self.sizes[k + 1 :], self.kept[:k] + self.kept[k + 1 :]
        )

    def join(self, k: int) -> None:
        """Variables k and k + 1 always move together: they become one, in place of k + 1."""
        n = self.sizes[k + 1]
        replaced = [ix.var(j - (j > k)) for j in range(len(self.sizes))]
        sizes = [*self.sizes[:k], self.sizes[k] * n, *self.sizes[k + 2 :]]
        whole = ix.var(k)
        now = tuple(sizes)
        replaced[k] = ix.floordiv(whole, n, now)
        replaced[k + 1] = ix.mod(whole, n, now)
        self._rename(replaced, sizes, self.kept[:k] + self.kept[k + 1 :])


def settle(space: Space, exprs: Iterable[Expr], columns: bool = False) -> None:
    """Splits, drops and joins variables until nothing more is to be gained; with ``columns``, all but
    the last.
    """
    given = list(exprs)
    for _ in range(16):
        sizes = space.sizes[: len(space.sizes) - columns]
        found = _splitting([space.apply(e) for e in given], sizes)
        if found is None:
            break
        space.split(*found)
    for k in reversed(range(len(space.sizes) - columns)):
        if space.sizes[k] == 1:
            space.drop(k)
    k = len(space.sizes) - 2 - columns
    while k >= 0:
        if space.kept[k] == space.kept[k + 1] and _together(
            [space.apply(e) for e in given], k, space.sizes[k + 1]
        ):
            space.join(k)
        k -= 1


def _splitting(exprs: list[Expr], sizes: list[int]) -> tuple[int, int] | None:
    """A variable of these sizes, and a divisor of its size by which it is taken apart somewhere."""
    for e in exprs:
        for atom, _ in e.terms:
            found = _inner(atom, sizes)
            if found:
                return found
    return None


def _inner(atom: ix.Atom, sizes: list[int]) -> tuple[int, int] | None:
    if isinstance(atom.of, int):
        return None
    e = atom.of
    if len(e.terms) == 1 and not e.const and e.terms[0][1] == 1:
        first = e.terms[0][0]
        k = first.of
        if isinstance(k, int) and k < len(sizes) and sizes[k] % atom.n == 0:
            return k, atom.n
    for inner, _ in e.terms:
        found = _inner(inner, sizes)
        if found:
            return found
    return None


def _together(exprs: list[Expr], k: int, n: int) -> bool:
    """True if variables k and k + 1 occur everywhere as n k + (k + 1)."""
    for e in exprs:
        steps = [0, 0]
        for atom, c in e.terms:
            if isinstance(atom.of, int):
                if atom.of in (k, k + 1):
                    steps[atom.of - k] = c
            elif ix.variables(atom.of) & {k, k + 1}:
                return False
        if steps[0] != steps[1] * n:
            return False
    return True


class Nest(NamedTuple):
    """``rows``: outer variables; ``inner``: that of the vector loop; ``over``: that of folds.

    ``reduces_inner``: reductions run along the vector loop (and, with ``over``, along both).
    -1: there is none.
    """

    rows: tuple[int, ...]
    inner: int
    over: int
    reduces_inner: bool


def arrange(space: Space, exprs: list[Expr], positional: bool) -> Nest | None:
    """Chooses the nest; None where reductions need more than two loops (or, for positions, than
    one).
    """
    kept = [k for k, is_kept in enumerate(space.kept) if is_kept]
    reduced = [k for k, is_kept in enumerate(space.kept) if not is_kept]
    if not reduced:
        return Nest(tuple(kept[:-1]), kept[-1] if kept else -1, -1, False)
    moves = [_steps(e, len(space.sizes)) for e in exprs]

    def unit(k: int) -> int:
        """How many accesses are consecutive along variable k."""
        return sum(1 for m in moves if m[k] == 1)

    best = max(reversed(range(len(space.sizes))), key=unit)
    if len(reduced) == 1:
        inner_first = positional or not kept or not space.kept[best]
        if inner_first:
            return Nest(tuple(kept), reduced[0], -1, True)
        lanes = best
        return Nest(tuple(k for k in kept if k != lanes), lanes, reduced[0], False)
    if len(reduced) == 2 and not positional:
        inner = max(reduced, key=unit)
        other = next(k for k in reduced if k != inner)
        return Nest(tuple(kept), inner, other, True)
    return None


def _steps(e: Expr, count: int) -> list[int]:
    out = [0] * count
    for atom, c in e.terms:
        if isinstance(atom.of, int):
            out[atom.of] = c
    return out


def elements(space: Space) -> int:
    """How many elements the loops walk."""
    return math.prod(space.sizes)
