"""Accumulators of reductions: neutral elements, combining, folding lanes to one value."""

from __future__ import annotations

from ..dtypes import DTYPES
from ..scalar import REDUCTIONS
from .functions import emit_op
from .lanes import Lanes

State = tuple[str, ...]


def neutral_number(how: str, dtype: str) -> float:
    """The number that changes nothing when combined by reduction ``how``."""
    word = REDUCTIONS[how][1]
    d = DTYPES[dtype]
    if how in ("argmax", "argmin"):
        word = "lowest" if how == "argmax" else "highest"
    if word not in ("lowest", "highest"):
        return float(word) if d.kind == "f" else int(word)
    low = word == "lowest"
    if d.kind == "f":
        return float("-inf") if low else float("inf")
    if d.kind == "i":
        return -(1 << (d.bits - 1)) if low else (1 << (d.bits - 1)) - 1
    return 0 if low else (1 << d.bits) - 1


class Accumulator:
    """One reduction's state on lanes ``v``: a value, and for argmax/argmin a position (u32)."""

    def __init__(self, how: str, dtype: str) -> None:
        self.how = how
        self.dtype = dtype
        self.positional = how in ("argmax", "argmin")

    def types(self, v: Lanes) -> tuple[str, ...]:
        """LLVM types of the state."""
        return (v.type, v.like("u32").type) if self.positional else (v.type,)

    def neutral(self, v: Lanes) -> State:
        """The initial state."""
        value = v.c(neutral_number(self.how, self.dtype))
        return (value, v.like("u32").c(-1)) if self.positional else (value,)

    def combine(self, v: Lanes, a: State, b: State) -> State:
        """The state of both; for positions the first of equals wins, NaN beats numbers."""
        if not self.positional:
            return (emit_op(REDUCTIONS[self.how][0], v, [a[0], b[0]]),)
        words = v.like("u32")
        signed = "s" if v.dtype.kind == "i" else "u"
        greater = "gt" if self.how == "argmax" else "lt"
        if v.dtype.kind == "f":
            a_nan, b_nan = v.cmp("uno", a[0], a[0]), v.cmp("uno", b[0], b[0])
            only_b = v.text.value(f"and {v.bool_type} {b_nan}, {_not(v, a_nan)}")
            better = v.either(v.cmp(f"o{greater}", b[0], a[0]), only_b)
            equal = v.either(v.cmp("oeq", a[0], b[0]), v.both(a_nan, b_nan))
        else:
            better = v.cmp(signed + greater, b[0], a[0])
            equal = v.cmp("eq", a[0], b[0])
        take = v.either(better, v.both(equal, words.cmp("ult", b[1], a[1])))
        return v.select(take, b[0], a[0]), words.select(take, b[1], a[1])

    def fold(self, v: Lanes, state: State, to: int) -> State:
        """Combines the lanes: upper half onto lower half until ``to`` are left."""
        lanes = v
        while lanes.width > to:
            half = lanes.width // 2
            small = Lanes(v.text, v.dtype.name, half)
            cut = [
                _halves(Lanes(v.text, name, lanes.width), s)
                for name, s in zip((v.dtype.name, "u32"), state, strict=False)
            ]
            state = self.combine(small, tuple(c[0] for c in cut), tuple(c[1] for c in cut))
            lanes = small
        return state


def _not(v: Lanes, mask: str) -> str:
    ones = "true" if v.width == 1 else "splat (i1 true)"
    return v.text.value(f"xor {v.bool_type} {mask}, {ones}")


def _halves(v: Lanes, x: str) -> tuple[str, str]:
    half = v.width // 2
    if half == 1:
        a, b = (v.text.value(f"extractelement {v.type} {x}, i64 {k}") for k in range(2))
        return a, b
    low, high = v.pieces(x, half)
    return low, high
