"""Where an operator runs on a device, and why: what ``mortice why DEVICE OPERATOR`` prints."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, NamedTuple

from mortice._base.errors import NoKernel
from mortice._dispatch import backends
from mortice._dispatch.operator import Operator, get, overloads
from mortice._tensor.kernels import asked, otherwise
from mortice._types.device import BUILT_IN
from mortice._types.dtypes import DType, float32


class Placement(NamedTuple):
    """One operator on one device.

    ``how`` is "kernel" (the device's own), "registered" (through mortice.library), "declared" (by
    the operator's package), "core" (memory and copies: every device has it), "row" (a view, or a
    form of the operator ``of``), "decomposition" (into other operators, which have placements of
    their own), "fallback" (copied to the CPU and back) or "nowhere". ``by`` is what runs.
    """

    operator: str
    device: str
    dtypes: tuple[str, ...]
    how: str
    by: str
    of: str = ""


def placement(operator: str, device: str, dtypes: Iterable[DType] = ()) -> list[Placement]:
    """The placements of an operator ("add.Tensor"), or of all its overloads ("add").

    ``dtypes`` are those of its tensors in order; float32 where there are fewer. Loads the device.
    """
    name = operator.removeprefix("aten::")
    found = [get(each) for each in overloads(name)] or [get(name)]
    _require(device)
    given = tuple(dtypes)
    return [_placement(op, device, given) for op in found]


def placements(device: str) -> list[Placement]:
    """Those of all of core's operators that are no in-place or out= form, for float32 tensors."""
    from mortice._generated.registry import ROWS

    _require(device)
    rows = ((name, row.get("kind")) for name, row in ROWS.items())
    return [
        _placement(get(name), device, ()) for name, kind in rows if kind not in ("inplace", "out")
    ]


def _require(device: str) -> None:
    """Raise what is wrong with a device that cannot be used; core has some operators on its own."""
    if device not in BUILT_IN:
        backends.runtime(device)


def _placement(op: Operator, device: str, given: tuple[DType, ...]) -> Placement:
    needed = [i for i in op.schema.tensor_positions if not op.schema.arguments[i].type.is_optional]
    dtypes = (*given, *(float32,) * (len(needed) - len(given)))[: max(len(needed), len(given))]
    try:
        how, kernel = backends.locate(op, device)
        if how == "kernel" and hasattr(backends.runtime(device), "features") and asked(op):
            how, kernel = _asked(op, device, dtypes)
    except NoKernel as error:
        how, by = "nowhere", str(error)
    else:
        by = "the CPU" if how == "fallback" else _described(kernel)
    names = tuple(dtype.name for dtype in dtypes)
    of = op.row.functional if how == "row" else ""
    if of:
        by = f"the operator {of}, which is there by {_placement(get(of), device, given).how}"
    elif how == "row":
        by = "core: a view of the same memory"
    return Placement(op.name, device, names, how, by, of)


def _asked(op: Operator, device: str, dtypes: tuple[DType, ...]) -> tuple[str, Any]:
    kernel = backends.runtime(device).kernel_for(op.name, dtypes)
    return otherwise(op, device) if kernel is None else ("kernel", kernel)


def _described(kernel: Any) -> str:
    """Module and name of a function, and the line it is on, as far as it says so."""
    name = getattr(kernel, "__qualname__", type(kernel).__qualname__)
    module = getattr(kernel, "__module__", None)
    text = f"{module}.{name}" if module else name
    try:
        file, line = inspect.getsourcefile(kernel), inspect.getsourcelines(kernel)[1]
    except (OSError, TypeError):
        return text
    return f"{text} ({file}:{line})"
