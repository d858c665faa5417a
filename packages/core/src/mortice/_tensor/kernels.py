"""Core's calling convention around a device's kernels, and what core does itself for every device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mortice._dispatch.operator import Kernel, Operator
from mortice._tensor import host, moves
from mortice._tensor.make import wrap
from mortice._tensor.memory import allocate, one_device
from mortice._tensor.runtime import DeviceRuntime
from mortice._tensor.streams import options
from mortice._tensor.transfer import copy_between, fill, from_host, to_host
from mortice._types import shapes
from mortice._types.dtypes import DType
from mortice._types.layout import preserve_format


def adapt(runtime: DeviceRuntime, op: Operator, device: str) -> Kernel | None:
    """A kernel that asks the runtime by dtypes, makes outputs, and hands contiguous inputs over."""
    rule = op.shape_rule()
    if rule is None or not asked(op):
        return None
    found: dict[tuple[DType, ...], Callable[..., Any] | None] = {}
    fallback: list[Kernel] = []
    queued = runtime.features.streams

    def on_device(*args: Any) -> Any:
        tensors = [x for x in flat(args) if hasattr(x, "_k")]
        key = tuple(t._t for t in tensors)
        if key not in found:
            found[key] = runtime.kernel_for(op.name, key)
        kernel = found[key]
        if kernel is None:
            if not fallback:
                fallback.append(otherwise(op, device)[1])
            return fallback[0](*args)
        where = one_device(op.qualified, tensors, device)
        specs = rule(*args)
        # None stands for an output that nobody asked for, as an output_mask says.
        outs = [
            None if s is None else allocate(tuple(s[0]), s[1], where)
            for s in (specs if type(specs) is list else [specs])
        ]
        kernel(
            *[_handle(x, runtime) for x in args],
            *[None if o is None else o._a for o in outs],
            **(options(runtime, where) if queued else {}),
        )
        return tuple(outs) if type(specs) is list else outs[0]

    return on_device


def asked(op: Operator) -> bool:
    """Whether runtimes are asked for a kernel: functional operators with a shape rule and tensors."""
    return bool(
        op.row.shape
        and op.row.kind not in ("inplace", "out")
        and op.schema.tensor_positions
        and not op.schema.mutated
    )


def otherwise(op: Operator, device: str) -> tuple[str, Kernel]:
    """What runs where the device has no kernel: (how, it); decomposition, then the CPU."""
    found = ANY_DEVICE.get(op.name)
    if found is not None:
        return "core", found
    found = op.decomposition() or op.body()
    if found is not None:
        from mortice._dispatch.operator import mark_composite

        return "decomposition", mark_composite(found)
    from mortice._tensor.fallback import through_cpu

    return "fallback", through_cpu(op, device)


def flat(args: Any) -> list[Any]:
    out: list[Any] = []
    for x in args:
        out.extend(x) if isinstance(x, (list, tuple)) else out.append(x)
    return out


def _handle(x: Any, runtime: DeviceRuntime) -> Any:
    if isinstance(x, (list, tuple)) and x and hasattr(x[0], "_k"):
        return [_handle(y, runtime) for y in x]  # pyright: ignore[reportUnknownVariableType]
    if not hasattr(x, "_k"):
        return x
    t: Any = x
    if not runtime.features.strided and not t.is_contiguous():
        t = contiguous_copy(t)
    return t._a


def contiguous_copy(x: Any) -> Any:
    r = allocate(tuple(x.shape), x._t, x.device)
    copy_between(r, x)
    return r


# -- what core does for every device -------------------------------------------------------------


def clone(self: Any, memory_format: Any) -> Any:
    if memory_format is None or memory_format is preserve_format:
        strides = shapes.dense_strides_like(tuple(self.shape), self.stride())
    else:
        strides = shapes.strides_for(tuple(self.shape), memory_format)
    r = allocate(tuple(self.shape), self._t, self.device, strides)
    copy_between(r, self)
    return r


def fill_(self: Any, value: Any) -> Any:
    fill(self, local_scalar_dense(value) if hasattr(value, "_k") else value)
    return self


def zero_(self: Any) -> Any:
    from_host(self, np.zeros(tuple(self.shape), self._t.numpy))
    return self


def local_scalar_dense(self: Any) -> Any:
    return host.HOST["_local_scalar_dense"](wrap(to_host(self), self._t))


#: The host's own where they ask for the device themselves, else from the runtime's copies.
ANY_DEVICE: dict[str, Callable[..., Any]] = {
    **{
        name: host.HOST[name]
        for name in ("copy_", "_to_copy", "empty.memory_format", "empty_strided")
    },
    "clone": clone,
    "fill_.Scalar": fill_,
    "fill_.Tensor": fill_,
    "zero_": zero_,
    "_local_scalar_dense": local_scalar_dense,
    **moves.KERNELS,
}
