"""Rounding to integers, also where SSE2 has no instruction for it."""

from __future__ import annotations

from collections.abc import Callable

from .lanes import Lanes


def _rounding(name: str) -> Callable[..., str]:
    def fn(v: Lanes, a: str) -> str:
        if v.target.name != "sse2":
            return v.call(name, a)
        return _round_by_adding(v, a, name)

    fn.__doc__ = f"LLVM's {name}; by adding and comparing where SSE2 has no instruction."
    return fn


def _round_by_adding(v: Lanes, a: str, name: str) -> str:
    """Rounding without an instruction: add and subtract 2**p, then correct by comparing."""
    big = v.c(2.0 ** (23 if v.dtype.bits == 32 else 52))
    size = v.abs(a)
    near = v.sub(v.add(size, big), big)
    one, zero = v.c(1), v.c(0)
    if name == "trunc":
        near = v.sub(near, v.select(v.cmp("ogt", near, size), one, zero))
    r = v.copysign(near, a)
    if name == "floor":
        r = v.sub(r, v.select(v.cmp("ogt", r, a), one, zero))
    elif name == "ceil":
        r = v.add(r, v.select(v.cmp("olt", r, a), one, zero))
    return v.select(v.cmp("olt", size, big), v.copysign(r, a), a)


floor = _rounding("floor")

FUNCTIONS: dict[str, Callable[..., str]] = {
    "floor": floor,
    "ceil": _rounding("ceil"),
    "trunc": _rounding("trunc"),
    "round": _rounding("roundeven"),
}
