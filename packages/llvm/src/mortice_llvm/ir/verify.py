"""Checks a kernel against the rules of the loop IR before any code is made of it."""

from __future__ import annotations

from ..dtypes import DTYPES
from ..errors import InvalidKernel, UnknownKernel
from ..scalar import OPS, REDUCTIONS, scalar_op
from .nodes import Instr, Kernel


def _fail(kernel: Kernel, where: str, what: str) -> InvalidKernel:
    return InvalidKernel(f"kernel {kernel.name}: {where}: {what}")


def _check_head(kernel: Kernel) -> None:
    if not kernel.name.isidentifier():
        raise _fail(kernel, "name", "expected an identifier")
    names = [*kernel.sizes(), *(b.name for b in kernel.buffers), *(s.name for s in kernel.scalars)]
    if len(set(names)) != len(names) or not kernel.dims:
        raise _fail(kernel, "head", f"expected dims and distinct names, found {names}")
    for n in (*names, *kernel.symbols()):
        if not n.isidentifier():
            raise _fail(kernel, "head", f"expected an identifier, found {n!r}")
    for b in kernel.buffers:
        if b.dtype not in DTYPES or b.mode not in ("in", "out"):
            raise _fail(kernel, b.name, f"unknown dtype or mode: {b.dtype} {b.mode}")
        if len(b.strides) != len(kernel.sizes()):
            raise _fail(
                kernel, b.name, f"expected {len(kernel.sizes())} strides, found {b.strides}"
            )
    for s in kernel.scalars:
        if s.dtype not in ("f64", "i64"):
            raise _fail(kernel, s.name, f"scalars are passed as f64 or i64, found {s.dtype}")


def _result(kernel: Kernel, i: Instr, given: list[str], kind: str) -> str:
    """The dtype that instruction ``i`` must have, from its operands' dtypes ``given``."""
    where = f"%{i.id} {i.op}"
    if i.op in ("const", "param"):
        if i.dtype in ("f16", "bf16"):
            raise _fail(kernel, where, f"no {i.dtype} constants; make it f32 and cast")
        if i.op == "param" and i.attr not in [s.name for s in kernel.scalars]:
            raise _fail(kernel, where, f"no scalar called {i.attr!r}")
        return i.dtype
    if i.op == "index":
        return "i64"
    if i.op in ("cast", "bitcast"):
        if i.op == "bitcast" and DTYPES[given[0]].bits != DTYPES[i.dtype].bits:
            raise _fail(kernel, where, f"{given[0]} and {i.dtype} differ in size")
        return i.dtype
    if i.op in ("load", "store"):
        b = next((b for b in kernel.buffers if b.name == i.attr), None)
        if b is None:
            raise _fail(kernel, where, f"no buffer called {i.attr!r}")
        if i.op == "store" and (b.mode != "out" or given != [b.dtype]):
            raise _fail(kernel, f"store {b.name}", f"{b.mode} {b.dtype} cannot take {given}")
        return b.dtype
    if i.op == "select":
        if given[0] != "bool" or given[1] != given[2]:
            raise _fail(kernel, where, f"expected (bool, T, T), found {given}")
        return given[1]
    if i.op.startswith("reduce_"):
        how = i.op[7:]
        if how not in REDUCTIONS or kind == "row":
            raise _fail(kernel, where, "unknown reduction, or in a 'row' region")
        if how in ("argmax", "argmin"):
            return "i64"
        combine = OPS[REDUCTIONS[how][0]]
        if DTYPES[given[0]].kind not in combine.by_kind or given[0] in ("f16", "bf16"):
            raise _fail(kernel, where, f"cannot reduce {given[0]}")
        return given[0]
    op = scalar_op(i.op)
    if any(g != given[0] for g in given) or DTYPES[given[0]].kind not in op.by_kind:
        raise _fail(kernel, where, f"does not take {given}; cast the operands first")
    if given[0] in ("f16", "bf16"):
        raise _fail(kernel, where, f"arithmetic on {given[0]}; cast to f32 first")
    return "bool" if op.result == "bool" else given[0]


def _arity(op: str) -> int:
    fixed = {
        "const": 0,
        "param": 0,
        "index": 0,
        "load": 0,
        "store": 1,
        "cast": 1,
        "bitcast": 1,
        "select": 3,
    }
    if op in fixed:
        return fixed[op]
    return 1 if op.startswith("reduce_") else scalar_op(op).arity


def verify(kernel: Kernel) -> Kernel:
    """Returns ``kernel`` if it is well formed, else raises InvalidKernel with the place."""
    _check_head(kernel)
    visible: dict[int, str] = {}
    folded: dict[int, str] = {}
    used: set[int] = set()
    for region in kernel.regions:
        if region.kind not in ("each", "row", "fold") or (
            region.kind == "fold" and not kernel.over
        ):
            raise _fail(kernel, "region", f"unknown kind {region.kind!r}, or nothing to fold over")
        if folded and region.kind == "row":
            raise _fail(kernel, "region", "expected 'each' after 'fold', found 'row'")
        local = visible | folded
        reduced: set[int] = set()
        for i in region.instrs:
            where = f"%{i.id} {i.op}"
            try:
                arity = _arity(i.op)
            except UnknownKernel as e:
                raise _fail(kernel, where, str(e)) from e
            if i.dtype not in DTYPES or len(i.args) != arity:
                raise _fail(kernel, where, f"unknown dtype {i.dtype!r} or not {arity} operands")
            for a in i.args:
                if a not in local or a in reduced:
                    raise _fail(kernel, where, f"%{a} is not defined here")
            if i.op == "index" and region.kind != "each":
                raise _fail(kernel, where, "only an 'each' region has an index")
            if region.kind == "fold" and (i.op == "store" or i.op[7:] in ("argmax", "argmin")):
                raise _fail(kernel, where, "not possible in a 'fold' region")
            want = _result(kernel, i, [local[a] for a in i.args], region.kind)
            if want != i.dtype:
                raise _fail(kernel, where, f"expected dtype {want}, found {i.dtype}")
            if i.id >= 0:
                if i.id in used:
                    raise _fail(kernel, where, "defined twice")
                used.add(i.id)
                local[i.id] = i.dtype
                if i.op.startswith("reduce_"):
                    reduced.add(i.id)
                if region.kind == "fold" and i.id in reduced:
                    folded[i.id] = i.dtype
                elif region.kind == "row" or i.id in reduced:
                    visible[i.id] = i.dtype
        if region.kind == "each":
            folded = {}
    if folded:
        raise _fail(kernel, "region", "expected 'each' after 'fold', found the end")
    return kernel
