"""Writes kernels in Python: expressions with operators, collected into regions."""

from __future__ import annotations

from ..dtypes import short
from ..scalar import scalar_op
from .nodes import Buffer, Instr, Kernel, Region, Scalar
from .verify import verify


class Expr:
    """A value of a kernel under construction; arithmetic on it appends instructions.

    Python numbers among the operands become constants of the expression's dtype.
    """

    __slots__ = ("build", "dtype", "id")

    def __init__(self, build: Build, id: int, dtype: str) -> None:
        self.build = build
        self.id = id
        self.dtype = dtype

    def __add__(self, other: Expr | float) -> Expr:
        return self.build.op("add", self, other)

    def __sub__(self, other: Expr | float) -> Expr:
        return self.build.op("sub", self, other)

    def __mul__(self, other: Expr | float) -> Expr:
        return self.build.op("mul", self, other)

    def __truediv__(self, other: Expr | float) -> Expr:
        return self.build.op("div", self, other)

    def __radd__(self, other: float) -> Expr:
        return self.build.op("add", self, other)

    def __rmul__(self, other: float) -> Expr:
        return self.build.op("mul", self, other)

    def __rsub__(self, other: float) -> Expr:
        return self.build.op("sub", self.build.const(other, self.dtype), self)

    def __rtruediv__(self, other: float) -> Expr:
        return self.build.op("div", self.build.const(other, self.dtype), self)

    def __neg__(self) -> Expr:
        return self.build.op("neg", self)

    def __gt__(self, other: Expr | float) -> Expr:
        return self.build.op("gt", self, other)

    def __lt__(self, other: Expr | float) -> Expr:
        return self.build.op("lt", self, other)

    def __ge__(self, other: Expr | float) -> Expr:
        return self.build.op("ge", self, other)

    def __le__(self, other: Expr | float) -> Expr:
        return self.build.op("le", self, other)


class Build:
    """Collects one kernel: declare buffers and scalars, open regions, append, ``done()``."""

    def __init__(
        self, name: str, dims: tuple[str, ...], over: str = "", tile: int = 1, blocks: bool = False
    ) -> None:  # fmt: skip
        self.name = name
        self.dims = dims
        self.over = over
        self.tile = tile
        self.blocks = blocks
        self._buffers: list[Buffer] = []
        self._scalars: list[Scalar] = []
        self._regions: list[tuple[str, list[Instr]]] = []
        self._next = 0

    # -- parameters ----------------------------------------------------------------------------

    def buffer(self, mode: str, name: str, dtype: str, strides: tuple[int | str, ...] = ()) -> str:
        """Declares a buffer; without ``strides`` it is contiguous over all dims."""
        if not strides:
            if len(self.dims) > 2 or self.over:
                raise ValueError("a buffer over more than two dims needs explicit strides")
            strides = (*self.dims[1:], 1)
        self._buffers.append(Buffer(name, short(dtype), mode, strides))
        return name

    def out(self, name: str, dtype: str, strides: tuple[int | str, ...] = ()) -> str:
        """Declares an output."""
        return self.buffer("out", name, dtype, strides)

    def input(self, name: str, dtype: str, strides: tuple[int | str, ...] = ()) -> str:
        """Declares an input."""
        return self.buffer("in", name, dtype, strides)

    def scalar(self, name: str, dtype: str = "f64") -> str:
        """Declares a number that the caller passes (f64 or i64)."""
        self._scalars.append(Scalar(name, dtype))
        return name

    # -- regions and instructions --------------------------------------------------------------

    def each(self) -> None:
        """Opens a region that runs per element."""
        self._regions.append(("each", []))

    def row(self) -> None:
        """Opens a region that runs per row."""
        self._regions.append(("row", []))

    def fold(self) -> None:
        """Opens a region that runs per step of ``over``."""
        self._regions.append(("fold", []))

    def emit(self, op: str, dtype: str, args: tuple[Expr, ...] = (), attr: object = None) -> Expr:
        """Appends an instruction with an explicit result dtype."""
        stores = op in ("store", "store_at")
        ident = -1 if stores else self._next
        self._next += not stores
        ids = tuple(a.id for a in args)
        self._regions[-1][1].append(Instr(ident, op, dtype, ids, attr))  # type: ignore[arg-type]
        return Expr(self, ident, dtype)

    def const(self, value: float, dtype: str) -> Expr:
        """A constant."""
        floats = dtype in ("f32", "f64")
        return self.emit("const", dtype, attr=float(value) if floats else value)

    def param(self, name: str, dtype: str) -> Expr:
        """The scalar called ``name``, converted to ``dtype``."""
        return self.emit("param", dtype, attr=name)

    def load(self, name: str, dtype: str | None = None) -> Expr:
        """The element of buffer ``name`` here, cast to ``dtype`` if that is given."""
        stored = next(b.dtype for b in self._buffers if b.name == name)
        value = self.emit("load", stored, attr=name)
        return value if dtype is None else self.cast(value, dtype)

    def store(self, name: str, value: Expr) -> None:
        """Writes ``value``, cast to the buffer's dtype, to buffer ``name``."""
        stored = next(b.dtype for b in self._buffers if b.name == name)
        value = self.cast(value, stored)
        self.emit("store", stored, (value,), attr=name)

    def cast(self, value: Expr, dtype: str) -> Expr:
        """``value`` as ``dtype`` (itself if it is that already)."""
        dtype = short(dtype)
        return value if value.dtype == dtype else self.emit("cast", dtype, (value,))

    def select(self, where: Expr, a: Expr | float, b: Expr | float) -> Expr:
        """``a`` where ``where`` is true, else ``b``."""
        dtype = a.dtype if isinstance(a, Expr) else b.dtype  # type: ignore[union-attr]
        a, b = (v if isinstance(v, Expr) else self.const(v, dtype) for v in (a, b))
        return self.emit("select", dtype, (where, a, b))

    def op(self, name: str, *args: Expr | float) -> Expr:
        """A scalar operation of ``mortice_llvm.scalar``."""
        dtype = next(a.dtype for a in args if isinstance(a, Expr))
        values = tuple(a if isinstance(a, Expr) else self.const(a, dtype) for a in args)
        result = "bool" if scalar_op(name).result == "bool" else dtype
        return self.emit(name, result, values)

    def load_at(self, name: str, offset: Expr, where: Expr | None = None) -> Expr:
        """The element of buffer ``name`` at an i64 offset from its start; 0 where not ``where``."""
        stored = next(b.dtype for b in self._buffers if b.name == name)
        args = (offset,) if where is None else (offset, where)
        return self.emit("load_at", stored, args, attr=name)

    def store_at(self, name: str, offset: Expr, value: Expr) -> None:
        """Writes ``value``, cast to the buffer's dtype, at an i64 offset from its start."""
        stored = next(b.dtype for b in self._buffers if b.name == name)
        self.emit("store_at", stored, (offset, self.cast(value, stored)), attr=name)

    def index(self, dim: str | None = None) -> Expr:
        """The position along ``dim`` (the inner dimension if not given), i64."""
        return self.emit("index", "i64", attr=dim)

    def philox(self, index: Expr, seed: Expr, offset: Expr) -> Expr:
        """Word ``index`` (i64) of the Philox stream (seed, offset), as u32."""
        return self.emit("philox", "u32", (index, seed, offset))

    def reduce(self, how: str, value: Expr) -> Expr:
        """Reduces ``value`` along the inner dimension; seen by later regions of the row."""
        dtype = "i64" if how in ("argmax", "argmin") else value.dtype
        return self.emit(f"reduce_{how}", dtype, (value,))

    def dot(self, a: Expr, b: Expr) -> Expr:
        """The sum of a * b along the inner dimension (or along ``over``, in a fold)."""
        return self.emit("reduce_dot", a.dtype, (a, b))

    def done(self) -> Kernel:
        """Returns the kernel, verified."""
        regions = tuple(Region(kind, tuple(body)) for kind, body in self._regions)
        buffers, scalars = tuple(self._buffers), tuple(self._scalars)
        return verify(Kernel(self.name, self.dims, buffers, scalars, regions, self.over, self.tile,
                             self.blocks))  # fmt: skip
