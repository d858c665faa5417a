"""Conversions between element types, and between memory and register form."""

from __future__ import annotations

from .lanes import Lanes


def from_memory(v: Lanes, raw: str) -> str:
    """A loaded element as a register value (a bool's byte becomes i1)."""
    if v.dtype.kind != "b":
        return raw
    byte = v.like("u8")
    return byte.cmp("ne", raw, byte.c(0))


def to_memory(v: Lanes, value: str) -> str:
    """A register value as it is stored."""
    return v.convert("zext", value, v.like("u8")) if v.dtype.kind == "b" else value


def cast(v: Lanes, value: str, to: Lanes) -> str:
    """``value`` converted as PyTorch converts: floats to integers towards zero, anything to bool
    by comparing with zero, floats to 16 bits by rounding to nearest even.
    """
    a, b = v.dtype, to.dtype
    if a.name == b.name:
        return value
    if a.name in ("f16", "bf16"):
        wide = _from_half(v, value) if a.name == "f16" else _from_bf16(v, value)
        return cast(v.like("f32"), wide, to)
    if b.name in ("f16", "bf16"):
        single = cast(v, value, v.like("f32"))
        return (_to_half if b.name == "f16" else _to_bf16)(v.like("f32"), single)
    if b.kind == "b":
        return v.cmp("une" if a.kind == "f" else "ne", value, v.c(0))
    if a.kind == "f":
        return _from_float(v, value, to)
    if b.kind == "f":
        return v.convert("sitofp" if a.kind == "i" else "uitofp", value, to)
    if a.bits == b.bits:
        return value
    how = "trunc" if a.bits > b.bits else "sext" if a.kind == "i" else "zext"
    return v.convert(how, value, to)


def _from_float(v: Lanes, value: str, to: Lanes) -> str:
    a, b = v.dtype, to.dtype
    if b.kind == "f":
        return v.convert("fpext" if a.bits < b.bits else "fptrunc", value, to)
    if b.bits < 32 or b.name == "u32":
        # Through the next wider signed type, so that small negative numbers wrap.
        mid = v.like("i64" if b.name == "u32" else "i32")
        return mid.convert("trunc", v.convert("fptosi", value, mid), to)
    return v.convert("fptosi" if b.kind == "i" else "fptoui", value, to)


def bitcast(v: Lanes, value: str, to: Lanes) -> str:
    """The same bits as another type of the same size."""
    return value if v.type == to.type else v.convert("bitcast", value, to)


def _from_bf16(v: Lanes, bits: str) -> str:
    """bfloat16 bits to f32: they are its upper half."""
    words = v.like("u32")
    word = words.op("shl", v.convert("zext", bits, words), words.c(16))
    return words.convert("bitcast", word, v.like("f32"))


def _to_bf16(v: Lanes, value: str) -> str:
    """f32 to bfloat16 bits, to nearest even; NaN stays a quiet NaN."""
    words = v.like("u32")
    bits = v.convert("bitcast", value, words)
    odd = words.op("and", words.op("lshr", bits, words.c(16)), words.c(1))
    rounded = words.add(bits, words.add(odd, words.c(0x7FFF)))
    quiet = words.op("or", bits, words.c(0x400000))
    kept = words.select(v.cmp("uno", value, value), quiet, rounded)
    return words.convert("trunc", words.op("lshr", kept, words.c(16)), v.like("bf16"))


def _from_half(v: Lanes, bits: str) -> str:
    """float16 bits to f32, by integer steps (no float16 instruction is assumed).

    Exponent and fraction move into place as a number 2**112 too small; a multiplication sets the
    exponent right and makes subnormals normal. Infinity and NaN get the full exponent.
    """
    f, words = v.like("f32"), v.like("u32")
    word = v.convert("zext", bits, words)
    sign = words.op("shl", words.op("and", word, words.c(0x8000)), words.c(16))
    rest = words.op("and", word, words.c(0x7FFF))
    moved = words.op("shl", rest, words.c(13))
    scaled = f.mul(words.convert("bitcast", moved, f), f.c(2.0**112))
    number = f.convert("bitcast", scaled, words)
    special = words.op("or", moved, words.c(0x7F800000))
    out = words.select(words.cmp("uge", rest, words.c(0x7C00)), special, number)
    return words.convert("bitcast", words.op("or", out, sign), f)


def _to_half(v: Lanes, value: str) -> str:
    """f32 to float16 bits, to nearest even, by integer steps.

    Normal results: add the rounding bias and move. Subnormal results: adding 0.5 to the size
    makes the float adder round at the right bit. Over the largest number: infinity; NaN stays.
    """
    words = v.like("u32")
    bits = v.convert("bitcast", value, words)
    sign = words.op("lshr", words.op("and", bits, words.c(0x80000000)), words.c(16))
    size = words.op("and", bits, words.c(0x7FFFFFFF))
    odd = words.op("and", words.op("lshr", size, words.c(13)), words.c(1))
    biased = words.add(words.sub(size, words.c(0x38000000)), words.add(odd, words.c(0xFFF)))
    normal = words.op("lshr", biased, words.c(13))
    half = v.add(words.convert("bitcast", size, v), v.c(0.5))
    small = words.sub(v.convert("bitcast", half, words), words.c(0x3F000000))
    out = words.select(words.cmp("ult", size, words.c(0x38800000)), small, normal)
    over = words.cmp("uge", size, words.c(0x477FF000))
    out = words.select(over, words.c(0x7C00), out)
    payload = words.op("and", words.op("lshr", size, words.c(13)), words.c(0x3FF))
    nan = words.op("or", payload, words.c(0x7E00))
    out = words.select(words.cmp("ugt", size, words.c(0x7F800000)), nan, out)
    return words.convert("trunc", words.op("or", out, sign), v.like("f16"))
