"""Reduction of large angles by Payne and Hanek's method, lane by lane.

A float64 is M 2**e with an integer M below 2**53. Of 2/pi only a window of 192 bits matters:
bits before it contribute multiples of 4 to M 2**e 2/pi, bits after it less than 2**-137. The
product modulo 2**192 has the quadrant in its two upper bits; the rest is a fraction, turned into
a sum of two floats and multiplied by pi/2.
"""

from __future__ import annotations

from itertools import pairwise

from .lanes import Lanes, Text

# Smaller angles never come here: n stays below 2**13 and 2**20, so that n times the first parts
# of pi/2 is exact.
LIMIT = {32: 12800.0, 64: 1.6e6}
_WORDS = 20  # 1280 bits of 2/pi: 1024 for the greatest exponent, and the window


def _two_over_pi(bits: int) -> int:
    """floor(2/pi * 2**bits), by Machin's formula in integers."""
    scale = bits + 64
    one = 1 << (2 * scale)

    def arctan_inverse(x: int) -> int:
        term = total = (1 << scale) // x
        n, sign = 3, -1
        while term:
            term //= x * x
            total += sign * (term // n)
            n, sign = n + 2, -sign
        return total

    pi = 4 * (4 * arctan_inverse(5) - arctan_inverse(239))
    return (2 * one // pi) >> (scale - bits)


def _table() -> str:
    """2/pi as 64-bit words, most significant first, after one word of zeros."""
    bits = _two_over_pi(64 * _WORDS)
    words = [0]
    words += [bits >> (64 * (_WORDS - 1 - k)) & 0xFFFFFFFFFFFFFFFF for k in range(_WORDS)]
    listed = ", ".join(f"i64 {w}" for w in words)
    return f"@two_over_pi = internal constant [{len(words)} x i64] [{listed}], align 64"


def _helper(text: Text) -> str:
    """``i64 @reduce_angle(double x, ptr r)``: stores r and its tail, returns the quadrant."""
    v = Lanes(text, "f64", 1)
    lines = text.lines
    text.lines = []
    block, allocas = text.block, text._allocas
    text.lines.append("define internal i64 @reduce_angle(double %x, ptr %out) #0 {")
    text.label("entry")
    t = text.value
    bits = t("bitcast double %x to i64")
    exponent = t(f"and i64 {t(f'lshr i64 {bits}, 52')}, 2047")
    m = t(f"or i64 {t(f'and i64 {bits}, 4503599627370495')}, 4503599627370496")
    # x = m 2**(exponent - 1075). The window starts at bit exponent - 1075 - 1 of 2/pi (bit 1 has
    # the weight 1/2), which is bit exponent - 1077 + 64 of the table, counted from 0.
    start = t(f"sub i64 {exponent}, {1077 - 64}")
    word, shift = t(f"lshr i64 {start}, 6"), t(f"and i64 {start}, 63")
    loaded: list[str] = []
    for k in range(4):
        index = t(f"add i64 {word}, {k}")
        loaded.append(t(f"load i64, ptr {t(f'getelementptr i64, ptr @two_over_pi, i64 {index}')}"))
    text.declare("declare i64 @llvm.fshl.i64(i64, i64, i64)")
    w = [t(f"call i64 @llvm.fshl.i64(i64 {a}, i64 {b}, i64 {shift})") for a, b in pairwise(loaded)]
    wide_m = t(f"zext i64 {m} to i128")
    low = t(f"mul i128 {wide_m}, {t(f'zext i64 {w[2]} to i128')}")
    mid = t(f"mul i128 {wide_m}, {t(f'zext i64 {w[1]} to i128')}")
    high = t(f"mul i64 {m}, {w[0]}")
    # Upper 128 of the 192 bits.
    sum_ = t(f"add i128 {mid}, {t(f'lshr i128 {low}, 64')}")
    top = t(f"shl i128 {t(f'zext i64 {high} to i128')}, 64")
    sum_ = t(f"add i128 {sum_}, {top}")
    low64 = t(f"trunc i128 {low} to i64")
    quadrant = t(f"trunc i128 {t(f'lshr i128 {sum_}, 126')} to i64")
    under = t(f"zext i64 {t(f'lshr i64 {low64}, 62')} to i128")
    fraction = t(f"or i128 {t(f'shl i128 {sum_}, 2')}, {under}")
    # As a signed number the fraction lies in [-1/2, 1/2): the nearest quadrant.
    up = t(f"lshr i128 {fraction}, 127")
    quadrant = t(f"add i64 {quadrant}, {t(f'trunc i128 {up} to i64')}")
    # Its size, so that the parts below do not cancel.
    below = t(f"icmp slt i128 {fraction}, 0")
    fraction = t(f"select i1 {below}, i128 {t(f'sub i128 0, {fraction}')}, i128 {fraction}")
    head = t(f"trunc i128 {t(f'lshr i128 {fraction}, 64')} to i64")
    rest = t(f"trunc i128 {fraction} to i64")
    upper = t(f"sitofp i64 {t(f'and i64 {head}, -2048')} to double")
    middle = t(f"uitofp i64 {t(f'and i64 {head}, 2047')} to double")
    lower = v.mul(t(f"uitofp i64 {rest} to double"), v.c(2.0**-64))
    tail = v.add(middle, lower)
    a, b = v.two_sum(upper, tail)
    a, b = v.mul(a, v.c(2.0**-64)), v.mul(b, v.c(2.0**-64))
    p, p_low = v.two_product(a, v.c(1.5707963267948966))
    extra = v.fma(a, v.c(6.123233995736766e-17), v.mul(b, v.c(1.5707963267948966)))
    r, r_low = v.two_sum(p, v.add(p_low, extra))
    negative = t(f"icmp slt i64 {bits}, 0")
    flip = t(f"xor i1 {negative}, {below}")
    r, r_low = (v.select(flip, v.neg(y), y) for y in (r, r_low))
    quadrant = t(f"select i1 {negative}, i64 {t(f'sub i64 0, {quadrant}')}, i64 {quadrant}")
    # Infinity and NaN have no angle.
    number = t(f"icmp ult i64 {exponent}, 2047")
    nan = v.c(float("nan"))
    text.do(f"store double {v.select(number, r, nan)}, ptr %out")
    text.do(
        f"store double {v.select(number, r_low, nan)}, "
        f"ptr {t('getelementptr double, ptr %out, i64 1')}"
    )
    text.do(f"ret i64 {quadrant}")
    text.lines.append("}")
    made: list[str] = []
    for line in text.lines:
        made += [line] if isinstance(line, str) else line
    text.lines, text.block, text._allocas = lines, block, allocas
    return "\n".join([_table(), *made])


def reduce_large(v: Lanes, x: str, large: str, small: tuple[str, str, str]) -> tuple[str, str, str]:
    """(r, tail, n): ``small`` where the mask ``large`` is false, else reduced exactly."""
    text = v.text
    if "reduce_angle" not in text.helpers:
        text.helpers["reduce_angle"] = ""
        text.helpers["reduce_angle"] = _helper(text)
    tag = text.fresh()
    names = [f"{part}{tag}" for part in ("large", "lane", "skip", "angle", "merge", "joined")]
    enter, lane, skip, angle, merge, joined = names
    ints = v.ints
    size = v.dtype.bits // 8
    arrays = [text.alloca(f"{lanes.type}, align 64") for lanes in (v, v, v, ints)]
    pair = text.alloca("[2 x double], align 16")
    before = text.block
    text.do(f"br i1 {v.any(large)}, label %{enter}, label %{joined}")
    text.label(enter)
    for lanes, array, value in zip((v, v, v, ints), arrays, (x, *small), strict=True):
        text.do(f"store {lanes.type} {value}, ptr {array}, align 64")
    text.do(f"br label %{lane}")
    text.label(lane)
    n = f"%n{tag}"
    text.do(f"{n} = phi i64 [0, %{enter}], [{n}.next, %{skip}]")
    element = v.dtype.register
    at = [
        text.value(f"getelementptr i8, ptr {a}, i64 {text.value(f'mul i64 {n}, {size}')}")
        for a in arrays
    ]
    one = Lanes(text, v.dtype.name, 1)
    number = text.value(f"load {element}, ptr {at[0]}, align {size}")
    beyond = one.cmp("uge", one.abs(number), one.c(LIMIT[v.dtype.bits]))
    text.do(f"br i1 {beyond}, label %{angle}, label %{skip}")
    text.label(angle)
    double = Lanes(text, "f64", 1)
    wide = number if v.dtype.bits == 64 else one.convert("fpext", number, double)
    quadrant = text.value(f"call i64 @reduce_angle(double {wide}, ptr {pair})")
    parts = [
        text.value(f"load double, ptr {pair}"),
        text.value(f"load double, ptr {text.value(f'getelementptr double, ptr {pair}, i64 1')}"),
    ]
    if v.dtype.bits == 32:
        parts[0] = double.convert("fptrunc", parts[0], one)
        parts[1] = one.c(0.0)
        quadrant = text.value(f"trunc i64 {quadrant} to i32")
    for value, place in zip(parts, at[1:3], strict=True):
        text.do(f"store {element} {value}, ptr {place}, align {size}")
    text.do(f"store i{v.dtype.bits} {quadrant}, ptr {at[3]}, align {size}")
    text.do(f"br label %{skip}")
    text.label(skip)
    text.do(f"{n}.next = add i64 {n}, 1")
    more = text.value(f"icmp ult i64 {n}.next, {v.width}")
    text.do(f"br i1 {more}, label %{lane}, label %{merge}")
    text.label(merge)
    again = [
        text.value(f"load {lanes.type}, ptr {array}, align 64")
        for lanes, array in zip((v, v, ints), arrays[1:], strict=True)
    ]
    text.do(f"br label %{joined}")
    text.label(joined)
    r, tail, quadrants = (
        text.value(f"phi {lanes.type} [{quick}, %{before}], [{slow}, %{merge}]")
        for lanes, quick, slow in zip((v, v, ints), small, again, strict=True)
    )
    return r, tail, quadrants
