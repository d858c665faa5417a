"""Checks a kernel against the rules of the loop IR before any code is made of it."""

from __future__ import annotations

from ..dtypes import DTYPES
from ..errors import InvalidKernel, UnknownKernel
from ..scalar import OPS, REDUCTIONS, scalar_op
from .nodes import Buffer, Instr, Kernel, Region

# Numbers of operands, for operations that are not in the table of scalar ones.
_OPERANDS: dict[str, tuple[int, ...]] = {
    "const": (0,), "param": (0,), "index": (0,), "load": (0,), "store": (1,), "load_at": (1, 2),
    "store_at": (2,), "cast": (1,), "bitcast": (1,), "select": (3,), "philox": (3,),
}  # fmt: skip
_HALVES = ("f16", "bf16")


def verify(kernel: Kernel) -> Kernel:
    """Returns ``kernel`` if it is well formed, else raises InvalidKernel with the place."""
    _Verifier(kernel).check()
    return kernel


class _Verifier:
    """Walks a kernel; ``visible`` are the dtypes of values that later regions may use, ``folded``
    those of folds, which only the next 'each' may use.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.visible: dict[int, str] = {}
        self.folded: dict[int, str] = {}
        self.used: set[int] = set()

    def fail(self, where: str, what: str) -> InvalidKernel:
        return InvalidKernel(f"kernel {self.kernel.name}: {where}: {what}")

    def check(self) -> None:
        self._head()
        for region in self.kernel.regions:
            self._region(region)
        if self.folded:
            raise self.fail("region", "expected 'each' after 'fold', found the end")

    def _head(self) -> None:
        k = self.kernel
        if not k.name.isidentifier():
            raise self.fail("name", "expected an identifier")
        names = [*k.sizes(), *(b.name for b in k.buffers), *(s.name for s in k.scalars)]
        if len(set(names)) != len(names) or not k.dims:
            raise self.fail("head", f"expected dims and distinct names, found {names}")
        for n in (*names, *k.symbols()):
            if not n.isidentifier():
                raise self.fail("head", f"expected an identifier, found {n!r}")
        if k.tile < 1 or (k.tile > 1 and len(k.dims) < 2):
            raise self.fail("head", f"a tile of {k.tile} rows needs at least two dims")
        if k.blocks and (k.over or k.tile > 1 or len(k.dims) < 2):
            raise self.fail("head", "blocks need rows and columns, and neither a fold nor a tile")
        for b in k.buffers:
            self._buffer(b)
        for s in k.scalars:
            if s.dtype not in ("f64", "i64"):
                raise self.fail(s.name, f"scalars are passed as f64 or i64, found {s.dtype}")

    def _buffer(self, b: Buffer) -> None:
        if b.dtype not in DTYPES or b.mode not in ("in", "out"):
            raise self.fail(b.name, f"unknown dtype or mode: {b.dtype} {b.mode}")
        count = len(self.kernel.sizes())
        if len(b.strides) != count:
            raise self.fail(b.name, f"expected {count} strides, found {b.strides}")

    def _region(self, region: Region) -> None:
        kind = region.kind
        if kind not in ("each", "row", "fold") or (kind == "fold" and not self.kernel.over):
            raise self.fail("region", f"unknown kind {kind!r}, or nothing to fold over")
        if self.folded and kind == "row":
            raise self.fail("region", "expected 'each' after 'fold', found 'row'")
        local = self.visible | self.folded
        reduced: set[int] = set()
        for i in region.instrs:
            self._instr(i, kind, local, reduced)
        if kind == "each":
            self.folded = {}

    def _instr(self, i: Instr, kind: str, local: dict[int, str], reduced: set[int]) -> None:
        where = f"%{i.id} {i.op}"
        counts = self._operands(i, where)
        if i.dtype not in DTYPES or len(i.args) not in counts:
            raise self.fail(where, f"unknown dtype {i.dtype!r} or not {counts[0]} operands")
        for a in i.args:
            if a not in local or a in reduced:
                raise self.fail(where, f"%{a} is not defined here")
        if kind == "fold" and i.op in ("reduce_argmax", "reduce_argmin"):
            raise self.fail(where, "not possible in a 'fold' region")
        if kind == "row" and i.op in ("load_at", "store_at"):
            raise self.fail(where, "not possible in a 'row' region")
        want = self._result(i, [local[a] for a in i.args], kind, where)
        if want != i.dtype:
            raise self.fail(where, f"expected dtype {want}, found {i.dtype}")
        if i.id < 0:
            return
        if i.id in self.used:
            raise self.fail(where, "defined twice")
        self.used.add(i.id)
        local[i.id] = i.dtype
        if i.op.startswith("reduce_"):
            reduced.add(i.id)
            (self.folded if kind == "fold" else self.visible)[i.id] = i.dtype
        elif kind == "row":
            self.visible[i.id] = i.dtype

    def _operands(self, i: Instr, where: str) -> tuple[int, ...]:
        """How many operands the operation may have."""
        if i.op in _OPERANDS:
            return _OPERANDS[i.op]
        if i.op.startswith("reduce_"):
            return (2,) if i.op == "reduce_dot" else (1,)
        try:
            return (scalar_op(i.op).arity,)
        except UnknownKernel as e:
            raise self.fail(where, str(e)) from e

    def _result(self, i: Instr, given: list[str], kind: str, where: str) -> str:
        """The dtype that the instruction must have, from its operands' dtypes."""
        if i.op in ("const", "param"):
            return self._number(i, where)
        if i.op == "index":
            return self._index(i, kind, where)
        if i.op in ("cast", "bitcast"):
            if i.op == "bitcast" and DTYPES[given[0]].bits != DTYPES[i.dtype].bits:
                raise self.fail(where, f"{given[0]} and {i.dtype} differ in size")
            return i.dtype
        if i.op in ("load", "store", "load_at", "store_at"):
            return self._access(i, given, where)
        if i.op == "philox":
            if given != ["i64"] * 3:
                raise self.fail(where, f"expected index, seed and offset as i64, found {given}")
            return "u32"
        if i.op == "select":
            if given[0] != "bool" or given[1] != given[2]:
                raise self.fail(where, f"expected (bool, T, T), found {given}")
            return given[1]
        if i.op.startswith("reduce_"):
            if given[-1] != given[0]:
                raise self.fail(where, f"expected operands of one dtype, found {given}")
            return self._reduction(i.op[7:], given[0], kind, where)
        return self._scalar(i, given, where)

    def _number(self, i: Instr, where: str) -> str:
        if i.dtype in _HALVES:
            raise self.fail(where, f"no {i.dtype} constants; make it f32 and cast")
        if i.op == "param" and i.attr not in [s.name for s in self.kernel.scalars]:
            raise self.fail(where, f"no scalar called {i.attr!r}")
        return i.dtype

    def _index(self, i: Instr, kind: str, where: str) -> str:
        """An index needs a dimension that is being walked: the inner one in 'each' and 'fold',
        ``over`` in 'fold', outer ones anywhere.
        """
        dims = self.kernel.dims
        inner = kind != "row" and i.attr in (None, dims[-1])
        if not (inner or i.attr in dims[:-1] or (kind == "fold" and i.attr == self.kernel.over)):
            raise self.fail(where, f"no dimension {i.attr!r} to index in {kind!r}")
        return "i64"

    def _access(self, i: Instr, given: list[str], where: str) -> str:
        b = next((b for b in self.kernel.buffers if b.name == i.attr), None)
        if b is None:
            raise self.fail(where, f"no buffer called {i.attr!r}")
        stores = i.op in ("store", "store_at")
        if stores and (b.mode != "out" or given[-1] != b.dtype):
            raise self.fail(f"{i.op} {b.name}", f"{b.mode} {b.dtype} cannot take {given}")
        offset = ["i64", "bool"] if i.op.endswith("_at") else []
        found = given[:-1] if stores else given
        if found != offset[: len(found)]:
            raise self.fail(where, f"expected an i64 offset (and a bool mask), found {found}")
        return b.dtype

    def _reduction(self, how: str, dtype: str, kind: str, where: str) -> str:
        if how not in REDUCTIONS or kind == "row":
            raise self.fail(where, "unknown reduction, or in a 'row' region")
        if self.kernel.blocks:
            raise self.fail(where, "a block has only a part of the row")
        combine = REDUCTIONS[how][0]
        positional = how in ("argmax", "argmin")
        fits = positional or DTYPES[dtype].kind in OPS[combine].by_kind
        if not fits or dtype in (*_HALVES, "bool" if positional else ""):
            raise self.fail(where, f"cannot reduce {dtype}")
        return "i64" if positional else dtype

    def _scalar(self, i: Instr, given: list[str], where: str) -> str:
        op = scalar_op(i.op)
        if any(g != given[0] for g in given) or DTYPES[given[0]].kind not in op.by_kind:
            raise self.fail(where, f"does not take {given}; cast the operands first")
        if given[0] in _HALVES:
            raise self.fail(where, f"arithmetic on {given[0]}; cast to f32 first")
        return "bool" if op.result == "bool" else given[0]
