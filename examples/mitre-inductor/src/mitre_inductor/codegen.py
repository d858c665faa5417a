"""Loop IR to Python over numpy: rows are loops, the inner dimension is an array.

A kernel's text is a function ``run(buffers, *numbers)``. Values are named ``v0``, ``v1``, ..; in
``row`` regions they are single numbers, elsewhere arrays along the inner dimension.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from .config import config

if TYPE_CHECKING:
    from collections.abc import Callable

    from mortice_llvm.ir import Buffer, Instr, Kernel, Region

#: How many kernels were generated and launched; the tests read it.
COUNTS: Counter[str] = Counter()

DTYPES = {
    "f64": "float64", "f32": "float32", "i64": "int64", "i32": "int32", "i16": "int16",
    "i8": "int8", "u64": "uint64", "u32": "uint32", "u8": "uint8", "bool": "bool_",
}  # fmt: skip
INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "eq": "==", "ne": "!=", "lt": "<", "le": "<=",
    "gt": ">", "ge": ">=", "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>",
    "floor_div": "//", "remainder": "%",
}  # fmt: skip
CALLS = {
    "exp": "np.exp", "log": "np.log", "log1p": "np.log1p", "expm1": "np.expm1", "tanh": "np.tanh",
    "sin": "np.sin", "cos": "np.cos", "sqrt": "np.sqrt", "abs": "np.abs", "neg": "-", "not": "~",
    "maximum": "np.maximum", "minimum": "np.minimum", "fmax": "np.fmax", "fmin": "np.fmin",
    "floor": "np.floor", "ceil": "np.ceil", "round": "np.round", "trunc": "np.trunc",
    "pow": "np.power", "isnan": "np.isnan", "sign": "np.sign", "erf": "erf",
    "reciprocal": "1 / ", "rsqrt": "1 / np.sqrt", "fma": "fma", "relu": "relu",
    "sigmoid": "sigmoid", "gelu": "gelu",
}  # fmt: skip
#: How partial results combine, and what changes nothing.
REDUCTIONS = {
    "sum": ("np.add", "0"), "prod": ("np.multiply", "1"), "max": ("np.maximum", "-inf"),
    "min": ("np.minimum", "inf"), "fmax": ("np.fmax", "-inf"), "any": ("np.logical_or", "False"),
    "all": ("np.logical_and", "True"),
}  # fmt: skip

_erf = np.vectorize(math.erf, otypes=[float])
HELPERS: dict[str, Any] = {
    "np": np,
    "inf": math.inf,
    "erf": lambda x: _erf(x).astype(np.asarray(x).dtype),
    "relu": lambda x: np.where(x <= 0, np.zeros_like(x), x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "gelu": lambda x: (x * (1 + _erf(x * math.sqrt(0.5))) / 2).astype(np.asarray(x).dtype),
}


def _fma(a: Any, b: Any, c: Any) -> Any:
    """a * b + c for float32, rounded once."""
    return (np.float64(a) * np.float64(b) + np.float64(c)).astype(np.float32)


def compile_kernel(kernel: Kernel) -> Callable[..., None]:
    """A function that runs ``kernel``; NotImplementedError for what this device cannot do."""
    COUNTS["generated"] += 1
    source = Generator(kernel).text()
    if config.show_source:
        print(source)
    scope = {**HELPERS, "fma": _fma if config.fused_multiply_add else lambda a, b, c: a * b + c}
    exec(compile(source, kernel.name, "exec"), scope)  # noqa: S102  text of our own making
    run = scope["run"]

    def launch(buffers: list[Any], *numbers: Any) -> None:
        COUNTS["launched"] += 1
        with np.errstate(all="ignore"):
            run([(b.value, offset) for b, offset in buffers], *numbers)

    return launch


class Generator:
    """Writes one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        if kernel.tile != 1:
            raise NotImplementedError("kernels that work on several rows at once")
        self.kernel = kernel
        self.lines: list[str] = []
        self.depth = 1

    def put(self, line: str) -> None:
        """Adds a line."""
        self.lines.append("    " * self.depth + line)

    def text(self) -> str:
        """The whole function."""
        k = self.kernel
        numbers = ", ".join([*k.sizes(), *k.symbols(), *(s.name for s in k.scalars)])
        self.lines.append(f"def run(buffers, {numbers}):")
        for n, b in enumerate(k.buffers):
            self.put(f"{b.name}, {b.name}_at = buffers[{n}]")
            self.put(f"{b.name} = np.frombuffer({b.name}, np.{self.dtype(b.dtype)})")
        self.put(f"inner = np.arange({k.dims[-1]})")
        for d in k.dims[:-1]:
            self.put(f"for at_{d} in range({d}):")
            self.depth += 1
        for region in k.regions:
            {"each": self.each, "row": self.row, "fold": self.fold}[region.kind](region)
        return "\n".join([*self.lines, ""])

    def dtype(self, name: str) -> str:
        """numpy's name of a dtype."""
        if name not in DTYPES:
            raise NotImplementedError(f"elements of type {name}")
        return DTYPES[name]

    # -- regions ---------------------------------------------------------------------------------

    def each(self, region: Region) -> None:
        """Arrays along the inner dimension; reductions end it."""
        for i in region.instrs:
            if i.op.startswith("reduce_"):
                self.put(f"v{i.id} = {self.reduced(i)}")
            else:
                self.instruction(i, "inner")

    def row(self, region: Region) -> None:
        """Single numbers."""
        for i in region.instrs:
            self.instruction(i, "0")

    def fold(self, region: Region) -> None:
        """A loop, in which every lane reduces for itself."""
        folds = [i for i in region.instrs if i.op.startswith("reduce_")]
        for i in folds:
            neutral = "0" if i.op == "reduce_dot" else REDUCTIONS[i.op[7:]][1]
            self.put(f"v{i.id} = np.full(inner.shape, {neutral}, np.{self.dtype(i.dtype)})")
        self.put(f"for at_{self.kernel.over} in range({self.kernel.over}):")
        self.depth += 1
        for i in region.instrs:
            if i not in folds:
                self.instruction(i, "inner")
            elif i.op == "reduce_dot":
                self.put(f"v{i.id} = fma(v{i.args[0]}, v{i.args[1]}, v{i.id})")
            else:
                self.put(f"v{i.id} = {REDUCTIONS[i.op[7:]][0]}(v{i.id}, v{i.args[0]})")
        self.depth -= 1

    def reduced(self, i: Instr) -> str:
        """A reduction along the inner dimension."""
        how = i.op[7:]
        values = [f"np.broadcast_to(v{a}, inner.shape)" for a in i.args]
        if how == "dot":
            return f"np.float32(np.dot(np.float64({values[0]}), np.float64({values[1]})))"
        if how in ("argmax", "argmin"):
            return f"np.{how}({values[0]})"
        function, neutral = REDUCTIONS[how]
        kind = self.dtype(i.dtype)
        return f"{function}.reduce({values[0]}, dtype=np.{kind}, initial={neutral})"

    # -- instructions ----------------------------------------------------------------------------

    def place(self, b: Buffer, along: str) -> str:
        """Where the element (or elements) of a buffer lie."""
        names = [f"at_{d}" for d in self.kernel.dims[:-1]] + [along]
        if self.kernel.over:
            names.append(f"at_{self.kernel.over}")
        steps = [f"{n} * {s}" for n, s in zip(names, b.strides, strict=True) if s and n != "0"]
        return " + ".join([f"{b.name}_at", *steps])

    def instruction(self, i: Instr, along: str) -> None:
        """One instruction."""
        args = [f"v{a}" for a in i.args]
        if i.op in ("store", "store_at"):
            b = self.kernel.buffer(str(i.attr))
            at = self.place(b, along) if i.op == "store" else f"{b.name}_at + {args[0]}"
            self.put(f"{b.name}[{at}] = {args[-1]}")
            return
        self.put(f"v{i.id} = {self.expression(i, args, along)}")

    def expression(self, i: Instr, args: list[str], along: str) -> str:
        """The value of an instruction."""
        if i.op == "const":
            return f"np.{self.dtype(i.dtype)}({i.attr!r})"
        if i.op == "param":
            return f"np.{self.dtype(i.dtype)}({i.attr})"
        if i.op == "index":
            return along if i.attr in (None, self.kernel.dims[-1]) else f"at_{i.attr}"
        if i.op == "load":
            b = self.kernel.buffer(str(i.attr))
            return f"{b.name}[{self.place(b, along)}]"
        if i.op == "load_at":
            at = f"{i.attr}_at + {args[0]}"
            if len(args) == 1:
                return f"{i.attr}[{at}]"
            return f"np.where({args[1]}, {i.attr}[np.where({args[1]}, {at}, 0)], 0)"
        if i.op == "cast":
            return f"np.asarray({args[0]}).astype(np.{self.dtype(i.dtype)})"
        if i.op == "select":
            return f"np.where({', '.join(args)})"
        if i.op in INFIX:
            return f"{args[0]} {INFIX[i.op]} {args[1]}"
        if i.op in CALLS:
            return f"{CALLS[i.op]}({', '.join(args)})"
        raise NotImplementedError(f"the operation {i.op}")
