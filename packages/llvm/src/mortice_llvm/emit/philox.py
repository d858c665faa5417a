"""Fills memory with numbers from Philox-4x32-10.

Word w of a stream is lane w % 4 of the block with counter (w / 4, offset) and key seed, each of
these a 64-bit number, low word first. What is stored:

- ``u32``: word i.
- ``f32``: the upper 24 bits of word i, as a number in [0, 1).
- ``f64``: the upper 53 bits of (word 2i, word 2i + 1), low word first, as a number in [0, 1).
- ``normal_f32``, ``normal_f64``: of the uniform numbers u(2k) and u(2k + 1), by Box and Muller,
  sqrt(-2 log(1 - u(2k))) times the cosine (even elements) or sine (odd) of 2 pi u(2k + 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..target import Target
from .explog import log
from .kernel import CHUNK, GRAIN, PARALLEL_FOR, attributes
from .lanes import Lanes, Text
from .trig import cos, sin
from .words import blocks

KINDS = ("u32", "f32", "f64", "normal_f32", "normal_f64")


def emit_fill(kind: str, name: str, target: Target) -> str:
    """LLVM text of ``NAME(ptr out, i64 n, i64 seed, i64 offset)`` for one of KINDS."""
    text = Text(target)
    text.declare(f"declare void @{PARALLEL_FOR}(ptr, ptr, i64, i64)")
    text.declare("declare i64 @llvm.umin.i64(i64, i64)")
    _emit_range(kind, name, text)
    text.lines += f"""
define void @{name}(ptr %out, i64 %n, i64 %seed, i64 %offset) #0 {{
  %args = alloca [3 x i64], align 8
  store ptr %out, ptr %args
  %p1 = getelementptr i64, ptr %args, i64 1
  store i64 %seed, ptr %p1
  %p2 = getelementptr i64, ptr %args, i64 2
  store i64 %offset, ptr %p2
  %small = icmp ule i64 %n, {GRAIN}
  br i1 %small, label %alone, label %shared
alone:
  call void @{name}_range(ptr %args, i64 0, i64 %n)
  ret void
shared:
  call void @{PARALLEL_FOR}(ptr @{name}_range, ptr %args, i64 %n, i64 {CHUNK})
  ret void
}}""".splitlines()
    return text.module() + attributes(target) + "\n"


def _emit_range(kind: str, name: str, t: Text) -> None:
    """Elements lo to hi; lo is a multiple of CHUNK, so of a whole vector of blocks."""
    counters = t.target.width // 2
    double = kind.endswith("f64")
    per_vector = counters * 4 // (2 if double else 1)
    size = 8 if double else 4
    t.lines.append(f"define internal void @{name}_range(ptr %args, i64 %lo, i64 %hi) #0 {{")
    t.label("entry")
    t.do(f"%rest = alloca [{per_vector * size} x i8], align 64")
    t.do("%out = load ptr, ptr %args")
    seed, offset = (
        t.value(f"load i64, ptr {t.value(f'getelementptr i64, ptr %args, i64 {k}')}")
        for k in (1, 2)
    )
    t.do("%some = icmp slt i64 %lo, %hi")
    t.do("br i1 %some, label %loop, label %done")
    t.label("loop")
    phi = t.later()
    phi.append("  %i = phi i64 [%lo, %entry], [%next, %whole]")
    block = t.value(f"lshr i64 %i, {1 if double else 2}")
    words = [(w, Lanes(t, "u32", counters)) for w in _words(t, counters, block, seed, offset)]
    value, vector = _interleaved(_KINDS[kind](words))
    place = t.value(f"getelementptr i8, ptr %out, i64 {t.value(f'mul i64 %i, {size}')}")
    t.do(f"%next = add i64 %i, {per_vector}")
    t.do("%fits = icmp sle i64 %next, %hi")
    t.do("br i1 %fits, label %whole, label %part")
    t.label("whole")
    t.do(f"store {vector} {value}, ptr {place}, align {size}")
    t.do("%more = icmp slt i64 %next, %hi")
    t.do("br i1 %more, label %loop, label %done")
    t.label("part")
    t.do(f"store {vector} {value}, ptr %rest, align 64")
    t.do("%count = sub i64 %hi, %i")
    t.do(f"%bytes = mul i64 %count, {size}")
    t.do("br label %copy")
    t.label("copy")
    t.do("%k = phi i64 [0, %part], [%k1, %copy]")
    t.do("%from = getelementptr i8, ptr %rest, i64 %k")
    t.do("%word = load i32, ptr %from, align 4")
    t.do(f"%to = getelementptr i8, ptr {place}, i64 %k")
    t.do("store i32 %word, ptr %to, align 4")
    t.do("%k1 = add i64 %k, 4")
    t.do("%left = icmp slt i64 %k1, %bytes")
    t.do("br i1 %left, label %copy, label %done")
    t.label("done")
    t.do("ret void")
    t.lines.append("}")


def _words(t: Text, counters: int, block: str, seed: str, offset: str) -> list[str]:
    """The four output words of ``counters`` blocks from ``block`` on."""
    longs = Lanes(t, "u64", counters)
    numbers = longs.add(longs.splat(block), longs.iota())
    return blocks(longs, numbers, Lanes(t, "u64", 1), seed, offset)


# Columns: what a block gives, one vector per element of the block, all of the same lanes.
Columns = list[tuple[str, Lanes]]


def _interleaved(columns: Columns) -> tuple[str, str]:
    """The values in memory order, and their vector type."""
    lanes, count = columns[0][1], len(columns)
    whole = Lanes(lanes.text, lanes.dtype.name, count * lanes.width)
    joined = whole.joined([c for c, _ in columns])
    order = ", ".join(f"i32 {k % count * lanes.width + k // count}" for k in range(whole.width))
    return lanes.text.value(
        f"shufflevector {whole.type} {joined}, {whole.type} poison, <{whole.width} x i32> <{order}>"
    ), whole.type


def _uniform32(words: Columns) -> Columns:
    """The upper 24 bits; they fit the signed conversion, one instruction on every level."""
    out: Columns = []
    for word, v in words:
        floats = v.like("f32")
        top = v.convert("sitofp", v.op("lshr", word, v.c(8)), floats)
        out.append((floats.mul(top, floats.c(2.0**-24)), floats))
    return out


def _uniform64(words: Columns) -> Columns:
    """The upper 53 bits of pairs of words."""
    out: Columns = []
    for (low, v), (high, _) in zip(words[::2], words[1::2], strict=True):
        longs, doubles = v.like("u64"), v.like("f64")
        pair = longs.op("shl", v.convert("zext", high, longs), longs.c(32))
        pair = longs.op("or", pair, v.convert("zext", low, longs))
        top = longs.convert("uitofp", longs.op("lshr", pair, longs.c(11)), doubles)
        out.append((doubles.mul(top, doubles.c(2.0**-53)), doubles))
    return out


def _normal(uniform: Columns) -> Columns:
    """Box and Muller's transform of pairs of uniform numbers."""
    out: Columns = []
    for (u, v), (w, _) in zip(uniform[::2], uniform[1::2], strict=True):
        logarithm = log(v, v.sub(v.c(1.0), u))
        radius = v.call("sqrt", v.mul(logarithm, v.c(-2.0)))
        angle = v.mul(w, v.c(2.0 * math.pi))
        out += [(v.mul(radius, fn(v, angle)), v) for fn in (cos, sin)]
    return out


_KINDS: dict[str, Callable[[Columns], Columns]] = {
    "u32": lambda words: words,
    "f32": _uniform32,
    "f64": _uniform64,
    "normal_f32": lambda words: _normal(_uniform32(words)),
    "normal_f64": lambda words: _normal(_uniform64(words)),
}
