"""Collectives that compute."""

from __future__ import annotations

from typing import Any

import numpy as np

import mortice
import mortice.distributed as dist

from .data import DTYPES, array, close, dtype, equal, made, tensor

OPS = ("SUM", "PRODUCT", "MIN", "MAX", "AVG", "BAND", "BOR", "BXOR")
#: Below and above the size at which backends change their way.
COUNTS = (1, 7, 40_003)


def _expected(parts: list[Any], op: str, name: str) -> Any:
    """The reduction in wide numbers; numpy wraps integers around as machines do."""
    if name == "bool":
        ufunc = {
            "SUM": np.logical_or, "MAX": np.logical_or, "BOR": np.logical_or,
            "PRODUCT": np.logical_and, "MIN": np.logical_and, "BAND": np.logical_and,
            "BXOR": np.logical_xor,
        }[op]  # fmt: skip
        return ufunc.reduce(parts)
    ufunc: Any = {
        "SUM": np.add, "AVG": np.add, "PRODUCT": np.multiply, "MIN": np.minimum,
        "MAX": np.maximum, "BAND": np.bitwise_and, "BOR": np.bitwise_or, "BXOR": np.bitwise_xor,
    }[op]  # fmt: skip
    wide = dtype(name).numpy
    if dtype(name).is_floating_point:
        wide = np.float64
    elif dtype(name).is_complex:
        wide = np.complex128
    total = ufunc.reduce([p.astype(wide) for p in parts], dtype=wide)
    return total / len(parts) if op == "AVG" else total


def _fits(op: str, name: str) -> bool:
    try:
        getattr(dist.ReduceOp, op).check(dtype(name), "")
    except RuntimeError:
        return False
    return True


#: Relative error that one rounding of the result explains, twice over.
_ERROR = {
    "float16": 2e-3, "bfloat16": 2e-2, "float8_e4m3fn": 0.13, "float8_e5m2": 0.26,
    "float32": 1e-6, "complex64": 1e-6,
}  # fmt: skip


def _check(found: Any, parts: list[Any], op: str, name: str, what: str) -> None:
    expected = _expected(parts, op, name)
    if dtype(name).is_floating_point or dtype(name).is_complex:
        close(found, expected, _ERROR.get(name, 1e-12), what)
    else:
        equal(found, tensor(expected, name), what)


def case_all_reduce(rank: int, size: int) -> None:
    for name in DTYPES:
        for op in OPS:
            if not _fits(op, name):
                continue
            for count in COUNTS if name in ("float32", "bfloat16", "bool", "int16") else (5,):
                t = made(rank, count, name)
                dist.all_reduce(t, getattr(dist.ReduceOp, op))
                parts = [_plain(made(k, count, name)) for k in range(size)]
                _check(t, parts, op, name, f"{op} of {count} {name}")


def _plain(t: Any) -> Any:
    a = array(t)
    return a.astype(t.dtype.numpy) if not t.dtype.is_floating_point else a


def case_all_ranks_agree_to_the_bit(rank: int, size: int) -> None:
    for name in ("float16", "bfloat16", "float32", "float64"):
        for count in (3, 50_000):
            t = tensor(np.random.default_rng(rank).standard_normal(count), name)
            dist.all_reduce(t)
            first = t.clone()
            dist.broadcast(first, src=0)
            equal(t, first, name)


def case_reduce(rank: int, size: int) -> None:
    for name in ("float32", "bfloat16", "int16", "bool", "complex128", "uint8"):
        for op in OPS:
            if not _fits(op, name):
                continue
            for root in range(size):
                t = made(rank, 11, name)
                before = t.clone()
                dist.reduce(t, root, getattr(dist.ReduceOp, op))
                if rank == root:
                    parts = [_plain(made(k, 11, name)) for k in range(size)]
                    _check(t, parts, op, name, f"{op} of {name} at {root}")
                else:
                    equal(t, before, f"{op} of {name}, which is not the root's")


def case_reduce_scatter(rank: int, size: int) -> None:
    for name in ("float32", "bfloat16", "int16", "bool", "complex64", "int64"):
        for op in OPS:
            if not _fits(op, name):
                continue
            inputs = [made(rank + 2 * k, 6, name) for k in range(size)]
            out = made(9, 6, name)
            dist.reduce_scatter(out, inputs, getattr(dist.ReduceOp, op))
            parts = [_plain(made(k + 2 * rank, 6, name)) for k in range(size)]
            _check(out, parts, op, name, f"{op} of {name}")


def case_reduce_scatter_tensor(rank: int, size: int) -> None:
    count = 20_000
    given = mortice.cat([made(rank + 2 * k, count, "float32") for k in range(size)])
    before = given.clone()
    out = mortice.zeros(count)
    dist.reduce_scatter_tensor(out, given)
    parts = [array(made(k + 2 * rank, count, "float32")) for k in range(size)]
    _check(out, parts, "SUM", "float32", "SUM")
    equal(given, before, "the input")


def case_average(rank: int, size: int) -> None:
    t = mortice.full((3,), float(rank))
    dist.all_reduce(t, dist.ReduceOp.AVG)
    assert t.tolist() == [(size - 1) / 2] * 3
    z = mortice.full((2,), complex(rank, 1))
    dist.all_reduce(z, dist.ReduceOp.AVG)
    assert z.tolist() == [complex((size - 1) / 2, 1)] * 2


def case_factors(rank: int, size: int) -> None:
    """PREMUL_SUM: each rank has a factor of its own."""
    for factor in (rank + 1.0, mortice.tensor(rank + 1.0)):
        for name in ("float32", "bfloat16", "complex64"):
            t = mortice.ones(4, dtype=dtype(name)) * 2
            dist.all_reduce(t, dist.ReduceOp.premul_sum(factor))
            expected = 2 * sum(range(1, size + 1))
            equal(t, mortice.full((4,), expected, dtype=dtype(name)), name)
    out = mortice.zeros(2)
    given = mortice.ones(2 * size)
    dist.reduce_scatter_tensor(out, given, dist.ReduceOp.premul_sum(0.5))
    assert out.tolist() == [size / 2] * 2
    assert given.tolist() == [1.0] * (2 * size)


def case_narrow_floats_are_rounded_once(rank: int, size: int) -> None:
    """Summing 256 and ones: added one by one in bfloat16, no 1 would ever count."""
    t = mortice.full((3,), 256.0 if rank == 0 else 1.0, dtype=mortice.bfloat16)
    dist.all_reduce(t)
    wanted = mortice.full((3,), 256.0 + size - 1, dtype=mortice.float32).to(mortice.bfloat16)
    equal(t, wanted)


def case_integers_wrap_around(rank: int, size: int) -> None:
    t = mortice.full((2,), 100, dtype=mortice.int8)
    dist.all_reduce(t)
    assert t.tolist() == [(100 * size + 128) % 256 - 128] * 2


def case_infinities(rank: int, size: int) -> None:
    t = mortice.tensor([float("inf"), float(rank), -float("inf")])
    dist.all_reduce(t, dist.ReduceOp.MAX)
    assert t.tolist() == [float("inf"), float(size - 1), -float("inf")]
