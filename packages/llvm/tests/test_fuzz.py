"""Random kernels against an interpreter of the loop IR in numpy.

The operations chosen are exact, so results must agree to the bit (NaN as NaN).
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from mortice_llvm import kernels
from mortice_llvm.ir import Build, Kernel, parse, text

NUMPY = {
    "f64": np.float64, "f32": np.float32, "i64": np.int64, "i32": np.int32, "i16": np.int16,
    "i8": np.int8, "u64": np.uint64, "u32": np.uint32, "u16": np.uint16, "u8": np.uint8,
    "bool": np.bool_,
}  # fmt: skip
BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum,
    "minimum": np.minimum, "eq": np.equal, "ne": np.not_equal, "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
INTEGER = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
UNARY = {"neg": np.negative, "abs": np.abs}


# -- the interpreter -------------------------------------------------------------------------------


def _view(array: np.ndarray, strides: tuple[Any, ...], sizes: dict[str, int]) -> np.ndarray:
    """The buffer over all dimensions (strides resolved, broadcast where 0)."""
    steps = [s if isinstance(s, int) else sizes[s] for s in strides]
    shape = tuple(sizes[d] for d in sizes if d in sizes["dims"])  # type: ignore[operator]
    steps = [s * array.itemsize for s in steps]
    return np.lib.stride_tricks.as_strided(array, shape, steps)


def _op(op: str, dtype: str, args: list[np.ndarray]) -> np.ndarray:
    if op == "select":
        return np.where(args[0], args[1], args[2])
    if op == "cast":
        return (args[0] != 0) if dtype == "bool" else args[0].astype(NUMPY[dtype])
    if op == "not":
        return ~args[0]
    return (BINARY | INTEGER | UNARY)[op](*args)


def interpret(kernel: Kernel, arrays: dict[str, np.ndarray], sizes: dict[str, int]) -> None:
    """Runs a kernel of regions 'each' and 'row' on whole arrays."""
    names: Any = {**sizes, "dims": kernel.dims}
    shape = tuple(sizes[d] for d in kernel.dims)
    views = {b.name: _view(arrays[b.name], b.strides, names) for b in kernel.buffers}
    values: dict[int, np.ndarray] = {}
    for region in kernel.regions:
        for i in region.instrs:
            args = [values[a] for a in i.args]
            if i.op == "load":
                found = views[str(i.attr)]
                values[i.id] = (found[..., :1] if region.kind == "row" else found).copy()
            elif i.op == "store":
                target = views[str(i.attr)]
                if region.kind == "row":
                    target[..., :1] = args[0]
                else:
                    target[...] = args[0]
            elif i.op == "const":
                values[i.id] = np.full((1,) * len(shape), i.attr, NUMPY[i.dtype])
            elif i.op == "index":
                values[i.id] = np.broadcast_to(np.arange(shape[-1]), shape)
            elif i.op.startswith("reduce_"):
                values[i.id] = _reduce(i.op[7:], np.broadcast_to(args[0], shape))
            else:
                values[i.id] = _op(i.op, i.dtype, args)


def _reduce(how: str, x: np.ndarray) -> np.ndarray:
    if how in ("argmax", "argmin"):
        return getattr(x, how)(-1, keepdims=True)
    if how == "sum":
        return x.sum(-1, keepdims=True, dtype=x.dtype)
    return getattr(x, how)(-1, keepdims=True)


# -- the generator ---------------------------------------------------------------------------------


class Generator:
    """Makes one random kernel and its arrays."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.dims = ("a", "b", "c")[: self.random.randint(1, 3)]
        inner = self.random.choice([1, 3, 16, 63, 64, 65, 200, 1030])
        self.sizes = {d: self.random.randint(1, 5) for d in self.dims[:-1]}
        self.sizes[self.dims[-1]] = inner
        if len(self.dims) == 1 and self.random.random() < 0.2:
            self.sizes["a"] = 70_001  # shared out to threads
        self.symbols: dict[str, int] = {}
        self.arrays: dict[str, np.ndarray] = {}
        self.build = Build(f"fuzz{seed}", self.dims)

    def array(self, dtype: str, size: int) -> np.ndarray:
        kind = NUMPY[dtype]
        if dtype == "bool":
            return self.rng.integers(0, 2, size).astype(kind)
        if dtype[0] == "f":
            x = self.rng.standard_normal(size).astype(kind)
            x[self.rng.random(size) < 0.05] = self.random.choice([np.nan, np.inf, -0.0, 1e30])
            return x
        info = np.iinfo(kind)
        return self.rng.integers(info.min, info.max, size, kind, endpoint=True)

    def input(self, name: str) -> None:
        """A buffer with contiguous, permuted, broadcast or stepped strides."""
        dtype = self.random.choice(list(NUMPY))
        order = list(self.dims)
        self.random.shuffle(order)
        if self.random.random() < 0.6:
            order = list(self.dims)
        strides: dict[str, int | str] = {}
        step = self.random.choice([1, 1, 1, 2])
        for d in reversed(order):
            if self.random.random() < 0.2:
                strides[d] = 0
                continue
            strides[d] = step
            if self.random.random() < 0.5:
                symbol = f"s{len(self.symbols)}"
                self.symbols[symbol] = step
                strides[d] = symbol
            step *= self.sizes[d]
        chosen = tuple(strides[d] for d in self.dims)
        self.build.input(name, dtype, chosen)
        self.arrays[name] = self.array(dtype, max(step, 1) * 2)

    def output(self, name: str, dtype: str) -> None:
        strides, step = [], 1
        for d in reversed(self.dims):
            strides.insert(0, step)
            step *= self.sizes[d]
        symbols = []
        for s in strides[:-1]:
            symbol = f"s{len(self.symbols)}"
            self.symbols[symbol] = s
            symbols.append(symbol)
        self.build.out(name, dtype, (*symbols, 1))
        self.arrays[name] = np.zeros(step, NUMPY[dtype])

    def expression(self, values: list[Any]) -> Any:
        b, r = self.build, self.random
        x = r.choice(values)
        what = r.random()
        if what < 0.2:
            dtype = r.choice(list(NUMPY))
            # Floats to integers only where every value fits.
            ok = x.dtype[0] != "f" or dtype[0] in "fb"
            return b.cast(x, dtype) if ok else x
        if what < 0.3 and x.dtype != "bool":
            return b.op("neg", x)
        if what < 0.4 and x.dtype[0] in "fi":
            return b.op("abs", x)
        y = b.cast(r.choice(values), x.dtype) if x.dtype[0] == "f" else x
        same = [v for v in values if v.dtype == x.dtype]
        y = r.choice([*same, y])
        if what < 0.5:
            masks = [v for v in values if v.dtype == "bool"]
            return b.select(r.choice(masks), x, y) if masks else x
        if x.dtype == "bool":
            return b.op(r.choice(["and", "or", "xor", "eq", "ne"]), x, y)
        names = [*BINARY] if x.dtype[0] == "f" else [*BINARY, *INTEGER]
        return b.op(r.choice(names), x, y)

    def make(self) -> Kernel:
        r, b = self.random, self.build
        inputs = [f"in{k}" for k in range(r.randint(1, 3))]
        for name in inputs:
            self.input(name)
        b.each()
        values = [b.load(name) for name in inputs]
        if r.random() < 0.3:
            values.append(b.index())
        for _ in range(r.randint(1, 8)):
            values.append(self.expression(values))
        if len(self.dims) > 1 and r.random() < 0.6:
            values = self.reduction(values)
        for k, v in enumerate(r.sample(values, min(2, len(values)))):
            self.output(f"out{k}", v.dtype)
            b.store(f"out{k}", v)
        return b.done()

    def reduction(self, values: list[Any]) -> list[Any]:
        """Reduces something exactly, and goes on with the result in a new region."""
        r, b = self.random, self.build
        x = r.choice(values)
        ways = {"f": ["max", "min", "argmax", "argmin"], "b": ["any", "all"]}
        hows = ways.get(x.dtype[0], ["sum", "max", "min", "argmax", "argmin"])
        total = b.reduce(r.choice(hows), x)
        b.row()
        total = b.op("not", total) if total.dtype == "bool" else b.op("add", total, total)
        b.each()
        again = b.load("in0")
        return [total, again, self.expression([total, again])]


def run(generator: Generator) -> None:
    kernel = generator.make()
    assert parse(text(kernel)) == kernel
    want = {n: a.copy() for n, a in generator.arrays.items()}
    with np.errstate(all="ignore"):
        interpret(kernel, want, generator.sizes | generator.symbols)
    fn = kernels.custom(kernel)
    numbers = [generator.sizes[d] for d in kernel.dims]
    numbers += [generator.symbols[s] for s in kernel.symbols()]
    fn(*(generator.arrays[b.name].ctypes.data for b in kernel.buffers), *numbers)
    for b in kernel.buffers:
        if b.mode == "out":
            got = generator.arrays[b.name]
            equal = np.array_equal(got, want[b.name], equal_nan=got.dtype.kind == "f")
            assert equal, f"{b.name} differs\n{text(kernel)}"


@pytest.mark.parametrize("part", range(4))
def test_random_kernels(level, part):
    for seed in range(part * 10, part * 10 + 10):
        run(Generator(seed))
