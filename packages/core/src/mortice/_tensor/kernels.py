"""Core's calling convention around a device's kernels, and what core does itself for every device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mortice._dispatch.operator import Kernel, Operator
from mortice._tensor import host, moves
from mortice._tensor.make import wrap
from mortice._tensor.memory import allocate, allocate_beside, one_device
from mortice._tensor.runtime import DeviceRuntime
from mortice._tensor.streams import options
from mortice._tensor.transfer import copy_between, fill, from_host, to_host
from mortice._types import shapes
from mortice._types.device import Device
from mortice._types.dtypes import DType
from mortice._types.layout import preserve_format
from mortice._types.promotion import NUMBERS, result_type


def adapt(runtime: DeviceRuntime, op: Operator, device: str) -> Kernel | None:
    """A kernel that asks the runtime by dtypes, makes outputs, and hands contiguous inputs over."""
    rule = op.shape_rule()
    if rule is None or not asked(op):
        return None
    found: dict[tuple[DType, ...], Callable[..., Any] | None] = {}
    fallback: list[Kernel] = []
    positions = op.schema.tensor_positions
    strided, queued = runtime.features.strided, runtime.features.streams
    numbers = runtime.features.numbers

    def on_device(*args: Any) -> Any:
        # One loop: two would be 10 per cent of a call on a device that computes nothing.
        types: list[Any] = []
        where: Device | None = None
        made = _NONE_MADE
        for i in positions:
            x = args[i]
            if x is None:
                continue
            if x.__class__ in NUMBERS:
                if not numbers:
                    made = (*made, (len(types), i))
                    types.append(None)
                continue
            group = x if isinstance(x, (list, tuple)) else (x,)
            for t in group:
                if t is None:
                    continue
                types.append(t._t)
                if where is not t._a.device:
                    if where is not None:
                        one_device(
                            op.qualified, [t for t in flat(args) if hasattr(t, "_k")], device
                        )
                    where = t._a.device
        if made:
            met = result_type(flat([args[i] for i in positions]))
            for place, _ in made:
                types[place] = met
        key = tuple(types)
        try:
            kernel = found[key]
        except KeyError:
            kernel = found[key] = runtime.kernel_for(op.name, key)
        if kernel is None:
            if not fallback:
                fallback.append(otherwise(op, device)[1])
            return fallback[0](*args)
        assert where is not None
        handles = list(args)
        for i in positions:
            x = args[i]
            if isinstance(x, (list, tuple)):
                handles[i] = [t if t is None else _handle(t, strided) for t in x]
            elif x is not None and x.__class__ not in NUMBERS:
                handles[i] = x._a if strided else _handle(x, strided)
        for place, i in made:
            scalar = allocate_beside(runtime, (), types[place], where)
            fill(scalar, args[i])
            handles[i] = scalar._a
        specs = rule(*args)
        if type(specs) is not list:
            out = allocate_beside(runtime, tuple(specs[0]), specs[1], where)
            kernel(*handles, out._a, **(options(runtime, where) if queued else _NO_OPTIONS))
            return out
        # None stands for an output that nobody asked for, as an output_mask says.
        outs = [
            None if s is None else allocate_beside(runtime, tuple(s[0]), s[1], where) for s in specs
        ]
        kernel(
            *handles,
            *[None if o is None else o._a for o in outs],
            **(options(runtime, where) if queued else _NO_OPTIONS),
        )
        return tuple(outs)

    return on_device


_NO_OPTIONS: dict[str, Any] = {}
#: Numbers that become arrays of one element: (place among the dtypes, argument).
_NONE_MADE: tuple[tuple[int, int], ...] = ()


def _handle(t: Any, strided: bool) -> Any:
    return t._a if strided or t.is_contiguous() else contiguous_copy(t)._a


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
