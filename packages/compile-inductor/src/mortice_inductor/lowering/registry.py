"""The table of lowerings, and what they share: promotion, operands, falling back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mortice.backend import default_dtype
from mortice_llvm.dtypes import DTYPES, computes_as
from mortice_llvm.scalar import scalar_op

from ..ir.values import Trace, Value
from ..specs import loop_name

Lowering = Callable[..., Any]

#: operator ("add.Tensor", "exp.default"; other namespaces in full: "ns.name.default") -> lowering.
#: A lowering gets the trace, then every schema argument in order, tensors as Values.
LOWERINGS: dict[str, Lowering] = {}


class Fallback(Exception):
    """Raised by a lowering that does not cover these arguments; the text says why."""


def lowers(*names: str) -> Callable[[Lowering], Lowering]:
    """Registers a lowering for operators; a name without a dot means its ``default`` overload."""

    def register(fn: Lowering) -> Lowering:
        for name in names:
            LOWERINGS[name if "." in name else f"{name}.default"] = fn
        return fn

    return register


#: Operators that write to arguments and have no other form: a lowering gives (results, the new
#: values of the arguments written to).
UPDATING: dict[str, Callable[..., tuple[Any, Sequence[Any]]]] = {}


def updates(name: str) -> Callable[[Lowering], Lowering]:
    """Registers a lowering of an operator that writes to its arguments."""

    def register(fn: Lowering) -> Lowering:
        UPDATING[f"{name}.default"] = fn
        return fn

    return register


def wants_graph(fn: Lowering) -> Lowering:
    """Marks a lowering that gets the ``Lowering`` of the graph in place of its trace: for draws
    from generators and for checks of values.
    """
    fn.wants_graph = True  # pyright: ignore[reportFunctionMemberAccess]
    return fn


# -- dtypes --------------------------------------------------------------------------------------

_CATEGORY = {"b": 0, "u": 1, "i": 1, "f": 2}


def kind(dtype: str) -> str:
    """``f``, ``i``, ``u`` or ``b``; Fallback for dtypes that kernels do not compute with."""
    found = DTYPES.get(dtype)
    if found is None:
        raise Fallback(f"kernels do not compute with {dtype}")
    return found.kind


def check_kinds(*dtypes: str) -> None:
    """Raises Fallback if kernels do not compute with one of the dtypes."""
    for dtype in dtypes:
        kind(dtype)


def is_float(dtype: str) -> bool:
    """True for floating-point dtypes."""
    return kind(dtype) == "f"


def promote(a: str, b: str) -> str:
    """The dtype in which two dtypes meet."""
    if a == b:
        return a
    ka, kb = kind(a), kind(b)
    if _CATEGORY[ka] != _CATEGORY[kb]:
        return a if _CATEGORY[ka] > _CATEGORY[kb] else b
    da, db = DTYPES[a], DTYPES[b]
    if ka == kb:
        if da.bits == db.bits:
            return "f32"  # f16 with bf16
        return a if da.bits > db.bits else b
    signed, unsigned = (da, db) if ka == "i" else (db, da)
    if unsigned.bits < signed.bits:
        return signed.name
    if unsigned.bits == 8:
        return "i16"
    raise Fallback(f"no dtype holds both {a} and {b}")


def _number_dtype(x: Any) -> str:
    if isinstance(x, Value):
        return float_default() if x.dtype == "f64" else x.dtype
    if isinstance(x, bool):
        return "bool"
    if isinstance(x, int):
        return "i64"
    if isinstance(x, float):
        return float_default()
    raise Fallback(f"operand {x!r} is no real number")


def float_default() -> str:
    """The dtype of floating-point results that have no other."""
    return loop_name(default_dtype())


def is_number(x: Any) -> bool:
    """True for Python numbers and numbers given at run time; tensors of shape () are none, although
    all their elements may be one constant.
    """
    return not isinstance(x, Value) or x.op in ("number", "size")


def result_dtype(*operands: Any) -> str:
    """PyTorch's promotion: sized tensors, then 0-d tensors, then numbers; a lower group counts
    only if its category is higher.
    """
    groups: list[str | None] = [None, None, None]
    for x in operands:
        if x is None:
            continue
        number = is_number(x)
        level = 2 if number else 0 if x.shape else 1
        dtype = _number_dtype(x) if number else x.dtype
        known = groups[level]
        groups[level] = dtype if known is None else promote(known, dtype)
    best: str | None = None
    for dtype in groups:
        if dtype is None:
            continue
        if best is None or _CATEGORY[kind(dtype)] > _CATEGORY[kind(best)]:
            best = dtype
    assert best is not None
    return best


def float_of(dtype: str) -> str:
    """``dtype`` if floating, else the default floating dtype."""
    return dtype if is_float(dtype) else float_default()


def operand(t: Trace, x: Any, dtype: str) -> Value:
    """A tensor or number as a value of ``dtype``."""
    if isinstance(x, Value):
        return t.cast(x, dtype)
    if isinstance(x, (bool, int, float)):
        return t.const(x, dtype)
    raise Fallback(f"operand {x!r} is no real number")


def compute(t: Trace, name: str, *operands: Any, dtype: str) -> Value:
    """A scalar operation done for result dtype ``dtype``: operands cast to what it computes in."""
    inner = computes_as(dtype)
    check_accepts(name, inner)
    out = t.fn(name, *(operand(t, x, inner) for x in operands))
    return out if out.dtype == "bool" and inner != "bool" else t.cast(out, dtype)


def meet(t: Trace, name: str, *operands: Any, dtype: str) -> Value:
    """As ``compute``, of operands rounded to ``dtype`` first, as eager has them: in 16 bits 0.1 is
    another number. Only what multiplies, or divides, is taken as it is given.
    """
    return compute(t, name, *(operand(t, x, dtype) for x in operands), dtype=dtype)


def check_accepts(name: str, dtype: str) -> None:
    """Raises Fallback if the scalar operation does not take ``dtype``."""
    if kind(dtype) not in scalar_op(name).by_kind:
        raise Fallback(f"{name} does not take {dtype}")


def wrap_dims(dims: Any, ndim: int) -> tuple[int, ...]:
    """Dimensions as numbers from 0; None or an empty list means all, and of none there is none."""
    if not ndim:
        return ()
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return tuple(range(ndim))
    given: Sequence[int] = dims if isinstance(dims, (list, tuple)) else (dims,)
    return tuple(wrap_dim(d, ndim) for d in given)


def wrap_dim(dim: int, ndim: int) -> int:
    """A dimension as a number from 0."""
    return dim + max(ndim, 1) if dim < 0 else dim
