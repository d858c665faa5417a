"""Random words from Philox-4x32-10, a pure function of seed, offset and element index.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). Word i of a draw is lane
i % 4 of the block whose counter is (i / 4, offset), both 64 bits, under the seed as key; every
device and every compiled kernel computes the same. The bits are not PyTorch's.

From words come the distributions, the same way everywhere:
 - float32 uniform: the top 24 bits; float64: the top 53 of two words, low word first;
 - float16 and bfloat16 uniform: the top 11 and 8 bits;
 - normal: Box-Muller over elements 2k and 2k+1, cosine for the even one, sine for the odd one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_MASK = 0xFFFFFFFF
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_K0, _K1 = 0x9E3779B9, 0xBB67AE85
_LOW = np.uint64(_MASK)
_HALF = np.uint64(32)
_CHUNK = 1 << 14  # blocks worked on at once: 14 arrays of 128 KiB stay in the L2 cache

Words = np.ndarray[Any, np.dtype[np.uint32]]


def words(n: int, seed: int, offset: int, first: int = 0) -> Words:
    """``n`` words from word ``first`` (a multiple of 4) on, as uint32."""
    blocks = -(-n // 4)
    out = np.empty((blocks, 4), np.uint32)
    for start in range(0, blocks, _CHUNK):
        stop = min(start + _CHUNK, blocks)
        _blocks(out[start:stop], first // 4 + start, seed, offset)
    return out.reshape(-1)[:n]


def _blocks(out: Words, first: int, seed: int, offset: int) -> None:
    index = np.arange(first, first + out.shape[0], dtype=np.uint64)
    c0, c1 = index & _LOW, index >> _HALF
    c2 = np.full(index.shape, offset & _MASK, np.uint64)
    c3 = np.full(index.shape, (offset >> 32) & _MASK, np.uint64)
    k0, k1 = seed & _MASK, (seed >> 32) & _MASK
    for _ in range(10):
        p0, p1 = c0 * _M0, c2 * _M1
        c0 = (p1 >> _HALF) ^ c1 ^ np.uint64(k0)
        c2 = (p0 >> _HALF) ^ c3 ^ np.uint64(k1)
        c1, c3 = p1 & _LOW, p0 & _LOW
        k0, k1 = (k0 + _K0) & _MASK, (k1 + _K1) & _MASK
    for lane, c in enumerate((c0, c1, c2, c3)):
        out[:, lane] = c


def uniform32(n: int, seed: int, offset: int) -> np.ndarray[Any, Any]:
    """``n`` float32 numbers in [0, 1)."""
    return (words(n, seed, offset) >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def uniform64(n: int, seed: int, offset: int) -> np.ndarray[Any, Any]:
    """``n`` float64 numbers in [0, 1)."""
    pairs = words(2 * n, seed, offset).astype("<u4", copy=False).view("<u8")
    return (pairs >> np.uint64(11)) * 2.0**-53


FILLS = {"u32": words, "f32": uniform32, "f64": uniform64}
"""What mortice_llvm's fill kernels also do, by their names."""
