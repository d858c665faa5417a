"""Exact remainders of floats, by repeated subtraction of rounded quotients.

One step replaces r by r - q d, where q is r / d rounded to a float that is an integer. That
difference is exact with a fused multiply-add (or its parts), since it is below d times the unit
of q; where rounding made q too great by one unit, the next lower q is taken. A step gains all
bits of a float, so nearly always one is enough.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import NotAvailable
from .lanes import Lanes
from .rounding import floor

INF = float("inf")


def _minus_product(v: Lanes, r: str, q: str, d: str) -> str:
    """r - q d where that is a float."""
    if v.target.fma:
        return v.call("fma", v.neg(q), d, r)
    if v.dtype.bits == 64:
        raise NotAvailable("remainders of f64 need a fused multiply-add, which sse2 has not")
    wide = v.like("f64")  # holds products of two f32 exactly
    r, q, d = (v.convert("fpext", x, wide) for x in (r, q, d))
    return wide.convert("fptrunc", wide.sub(r, wide.mul(q, d)), v)


def _step(v: Lanes, r: str, divisor: str) -> str:
    """One subtraction in the lanes where r >= divisor."""
    digits = 24 if v.dtype.bits == 32 else 53
    # Where the quotient could overflow, a multiple of the divisor stands for it; twice is enough
    # for the widest range (2**277 and 2**2098).
    ratio, factor = (2.0**-110, 2.0**90) if v.dtype.bits == 32 else (2.0**-1000, 2.0**800)
    d = divisor
    for _ in range(2):
        far = v.cmp("oge", v.mul(r, v.c(ratio)), d)
        d = v.select(far, v.mul(d, v.c(factor)), d)
    q = v.div(r, d)
    exact = v.cmp("oge", q, v.c(2.0**digits))
    whole = v.select(exact, q, _truncated(v, q, digits))
    below = v.from_bits(v.ints.sub(v.bits(q), v.ints.c(1)))
    lower = v.select(exact, below, v.sub(whole, v.c(1.0)))
    first = _minus_product(v, r, whole, d)
    second = _minus_product(v, r, lower, d)
    left = v.select(v.cmp("olt", first, v.c(0.0)), second, first)
    return v.select(v.cmp("oge", r, divisor), left, r)


def _truncated(v: Lanes, q: str, digits: int) -> str:
    """The integer part of 0 <= q < 2**digits."""
    if v.target.name != "sse2":
        return v.call("trunc", q)
    big = v.c(2.0 ** (digits - 1))
    near = v.sub(v.add(q, big), big)
    down = v.sub(near, v.select(v.cmp("ogt", near, q), v.c(1.0), v.c(0.0)))
    return v.select(v.cmp("olt", q, big), down, q)


def float_fmod(v: Lanes, a: str, b: str) -> str:
    """The remainder of a / b with the sign of a; NaN for infinite a or zero b."""
    text = v.text
    inf, zero = v.c(INF), v.c(0.0)
    size, d = v.abs(a), v.abs(b)
    sound = v.both(v.cmp("olt", size, inf), v.cmp("ogt", d, zero))
    start = v.select(sound, size, zero)
    d = v.select(sound, d, inf)
    tag = text.fresh()
    loop, done = f"rem{tag}", f"left{tag}"
    first = v.any(v.cmp("oge", start, d))
    before = text.block
    text.do(f"br i1 {first}, label %{loop}, label %{done}")
    text.label(loop)
    phi = text.later()
    r = f"%r{tag}"
    new = _step(v, r, d)
    again = v.any(v.cmp("oge", new, d))
    phi.append(f"  {r} = phi {v.type} [{start}, %{before}], [{new}, %{text.block}]")
    last = text.block
    text.do(f"br i1 {again}, label %{loop}, label %{done}")
    text.label(done)
    end = text.value(f"phi {v.type} [{start}, %{before}], [{new}, %{last}]")
    return v.select(sound, v.copysign(end, a), v.c(float("nan")))


def _wraps(v: Lanes, rem: str, b: str) -> str:
    """True where a non-zero remainder's sign differs from the divisor's."""
    zero = v.c(0.0)
    return v.both(
        v.cmp("one", rem, zero),
        v.text.value(f"xor {v.bool_type} {v.cmp('olt', rem, zero)}, {v.cmp('olt', b, zero)}"),
    )


def float_remainder(v: Lanes, a: str, b: str) -> str:
    """The remainder of a / b with the sign of b (Python's %)."""
    rem = float_fmod(v, a, b)
    return v.select(_wraps(v, rem, b), v.add(rem, b), rem)


def float_floor_div(v: Lanes, a: str, b: str) -> str:
    """floor(a / b) from the exact remainder; a / b where b is 0."""
    rem = float_fmod(v, a, b)
    zero, one = v.c(0.0), v.c(1.0)
    q = v.div(v.sub(a, rem), b)
    q = v.select(_wraps(v, rem, b), v.sub(q, one), q)
    down = floor(v, q)
    down = v.select(v.cmp("ogt", v.sub(q, down), v.c(0.5)), v.add(down, one), down)
    plain = v.div(a, b)
    whole = v.select(v.cmp("oeq", q, zero), v.copysign(zero, plain), down)
    return v.select(v.cmp("oeq", b, zero), plain, whole)


FUNCTIONS: dict[str, Callable[..., str]] = {
    f.__name__: f for f in (float_fmod, float_remainder, float_floor_div)
}
