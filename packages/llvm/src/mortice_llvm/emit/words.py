"""The rounds of Philox-4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers, 2011)."""

from __future__ import annotations

from .lanes import Lanes

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10


def halves(longs: Lanes, x: str) -> tuple[str, str]:
    """The lower and the upper word of 64-bit numbers, as u32."""
    words = longs.like("u32")
    high = longs.op("lshr", x, longs.c(32))
    return longs.convert("trunc", x, words), longs.convert("trunc", high, words)


def blocks(longs: Lanes, index: str, key: Lanes, seed: str, offset: str) -> list[str]:
    """The four words of the blocks with counter (index, offset) and key ``seed``.

    ``index`` is in lanes ``longs``; seed and offset in lanes ``key``, which are as wide or scalars.
    """
    words, small = longs.like("u32"), key.like("u32")

    def wide(x: str) -> str:
        return words.splat(x) if key.width < longs.width else x

    k = list(halves(key, seed))
    c = [*halves(longs, index), *map(wide, halves(key, offset))]
    for step in range(ROUNDS):
        if step:
            k = [small.add(x, small.c(s)) for x, s in zip(k, KEY_STEPS, strict=True)]
        products = [
            halves(longs, longs.mul(words.convert("zext", x, longs), longs.c(m)))
            for x, m in zip((c[0], c[2]), MULTIPLIERS, strict=True)
        ]
        (low0, high0), (low1, high1) = products
        first = words.op("xor", words.op("xor", high1, c[1]), wide(k[0]))
        third = words.op("xor", words.op("xor", high0, c[3]), wide(k[1]))
        c = [first, low1, third, low0]
    return c


def word(v: Lanes, index: str, seed: str, offset: str) -> str:
    """Word ``index`` of the stream (seed, offset): lane index % 4 of block index / 4."""
    longs = v.like("u64")
    c = blocks(longs, longs.op("lshr", index, longs.c(2)), longs, seed, offset)
    low = longs.convert("trunc", index, v)
    odd = v.cmp("ne", v.op("and", low, v.c(1)), v.c(0))
    upper = v.cmp("ne", v.op("and", low, v.c(2)), v.c(0))
    return v.select(upper, v.select(odd, c[3], c[2]), v.select(odd, c[1], c[0]))
