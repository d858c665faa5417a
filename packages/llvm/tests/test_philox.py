from __future__ import annotations

import numpy as np
import pytest

from mortice_llvm import kernels
from mortice_llvm.errors import UnknownKernel
from mortice_llvm.ir import Build

M32 = 0xFFFFFFFF


def block(counter: list[int], key: list[int]) -> list[int]:
    """One block of Philox-4x32-10, written from the paper."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & M32, (p0 >> 32) ^ c[3] ^ k[1], p0 & M32]
        k = [(k[0] + 0x9E3779B9) & M32, (k[1] + 0xBB67AE85) & M32]
    return c


def words(n: int, seed: int, offset: int) -> np.ndarray:
    out: list[int] = []
    for b in range(-(-n // 4)):
        out += block([b & M32, b >> 32, offset & M32, offset >> 32], [seed & M32, seed >> 32])
    return np.array(out[:n], np.uint32)


def test_the_reference_has_the_papers_known_answers():
    assert block([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert block([M32] * 4, [M32] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


@pytest.mark.parametrize("n", [0, 1, 5, 64, 127, 128, 1001])
@pytest.mark.parametrize(("seed", "offset"), [(0, 0), (2**64 - 3, 2**40 + 7)])
def test_words_bit_for_bit(level, call, n, seed, offset):
    want = words(2 * n, seed, offset)
    raw = np.full(n + 2, 9, np.uint32)
    call(kernels.philox("u32"), raw, n, seed, offset)
    assert np.array_equal(raw[:n], want[:n])
    assert (raw[n:] == 9).all()
    single = np.full(n + 2, 9, np.float32)
    call(kernels.philox("float32"), single, n, seed, offset)
    assert np.array_equal(single[:n], (want[:n] >> 8).astype(np.float32) * np.float32(2.0**-24))
    double = np.full(n + 2, 9, np.float64)
    call(kernels.philox("float64"), double, n, seed, offset)
    assert np.array_equal(double[:n], (want.view(np.uint64) >> 11) * 2.0**-53)
    assert (single[n:] == 9).all()
    assert (double[n:] == 9).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 2, 129, 50_000])
def test_normal_numbers_follow_from_uniform_ones(level, call, dtype, n):
    short = {"float32": "f32", "float64": "f64"}[dtype]
    u = np.empty(n + n % 2, dtype)
    z = np.full(n + 1, 9, dtype)
    call(kernels.philox(short), u, u.size, 7, 3)
    call(kernels.philox(f"normal_{short}"), z, n, 7, 3)
    radius = np.sqrt(-2 * np.log(1 - u[0::2]))
    angle = u[1::2] * u.dtype.type(2 * np.pi)
    want = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).ravel()[:n]
    tight = 1e-5 if dtype == "float32" else 1e-13
    assert np.allclose(z[:n], want, rtol=tight, atol=tight)
    assert z[n] == 9
    if n > 10_000:
        assert abs(z[:n].mean()) < 0.02
        assert abs(z[:n].std() - 1) < 0.02


def test_parts_for_threads_join_seamlessly(level, call):
    n = 100_001
    raw = np.empty(n, np.uint32)
    call(kernels.philox("u32"), raw, n, 5, 0)
    want = words(64, 5, 0)
    assert np.array_equal(raw[:64], want)
    b = (n - 1) // 4
    assert raw[-1] == block([b, 0, 0, 0], [5, 0])[(n - 1) % 4]
    at = 16384 * 3
    assert raw[at : at + 4].tolist() == block([at // 4, 0, 0, 0], [5, 0])


def test_other_kinds_are_refused():
    with pytest.raises(UnknownKernel, match="u32, f32, f64, normal_f32"):
        kernels.philox("int8")


def test_words_inside_a_kernel(level, call):
    b = Build("dropout", ("n",))
    b.out("y", "f32")
    b.input("x", "f32")
    for name in ("seed", "offset"):
        b.scalar(name, "i64")
    b.each()
    word = b.philox(b.index(), b.param("seed", "i64"), b.param("offset", "i64"))
    b.store("y", b.select(b.op("lt", word, 1 << 31), b.load("x") * 2.0, 0.0))
    x = np.random.default_rng(0).standard_normal(40_003).astype(np.float32)
    y, raw = np.empty_like(x), np.empty(x.size, np.uint32)
    call(kernels.custom(b.done()), y, x, x.size, -5, 9)
    call(kernels.philox("u32"), raw, raw.size, 2**64 - 5, 9)
    assert np.array_equal(y, np.where(raw < 1 << 31, x * 2, 0))
