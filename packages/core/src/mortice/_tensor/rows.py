"""Kernels that follow from an operator's row alone, on any device.

Views from their rule; ``meta`` from the shape rule; in-place and ``out=`` forms from the functional
operator, with PyTorch's checks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mortice._base.errors import AutogradError, DTypeError, ShapeError
from mortice._dispatch import backends
from mortice._dispatch import keys as K
from mortice._dispatch.operator import Kernel, Operator, Row, get, is_composite, mark_composite
from mortice._tensor.make import meta, restride, storage_of, view_of
from mortice._types.promotion import can_cast
from mortice._types.shapes import elementwise_strides, has_overlap

_ndarray = np.ndarray


def from_row(op: Operator, device: str) -> Kernel | None:
    """The kernel that an operator's row implies for a device, or None."""
    make = _BY_KIND.get(op.row.kind)
    if make is not None:
        return make(op, device)
    if device != "meta" or not op.row.shape:
        return None
    # A factory called on a meta tensor may be asked for real data: its decomposition knows where.
    if "device" in op.schema.by_name and op.row.decomposition:
        return None
    return meta_kernel(op)


# -- views ---------------------------------------------------------------------------------------


def view_kernel(op: Operator, device: str) -> Kernel:
    """A view from its rule: (sizes, strides, offset[, dtype]), or a list of those."""
    rule = op.shape_rule()
    assert rule is not None

    def view(self: Any, *args: Any) -> Any:
        found = rule(self, *args)
        if type(found) is list:
            return tuple(view_of(self, restride(self, *one)) for one in found)
        r = view_of(self, restride(self, *found))
        if len(found) > 3:
            r._t = found[3]
        return r

    return view


# -- meta ----------------------------------------------------------------------------------------


def meta_kernel(op: Operator) -> Kernel:
    """Run only the shape rule: (sizes, dtype[, strides]), or a list of those."""
    rule = spec_rule(op)

    def on_meta(*args: Any) -> Any:
        return _as_meta(rule(*args))

    fields = tuple(r.name for r in op.schema.returns)
    if len(fields) < 2 or not all(fields):
        return on_meta
    from mortice._types.returns import named_returns

    cls = named_returns(op.schema.name, fields)

    def on_meta_named(*args: Any) -> Any:
        return cls(*on_meta(*args))

    return on_meta_named


def spec_rule(op: Operator) -> Kernel:
    """The shape rule, with the strides of elementwise results where it leaves them away."""
    found = _SPEC_RULES.get(op.row)
    if found is None:
        rule = op.shape_rule()
        assert rule is not None
        found = _SPEC_RULES[op.row] = _with_strides(rule) if "pointwise" in op.row.tags else rule
    return found


_SPEC_RULES: dict[Row, Kernel] = {}


def _with_strides(rule: Kernel) -> Kernel:
    def with_strides(*args: Any) -> Any:
        found = rule(*args)
        if type(found) is not tuple or len(found) != 2:
            return found
        operands = [(x._a.shape, x.stride()) for x in args if hasattr(x, "_k")]
        return (*found, elementwise_strides(found[0], operands))

    return with_strides


def _as_meta(found: Any) -> Any:
    if found is None:
        return None
    if type(found) is list:
        return tuple(_as_meta(one) for one in found)
    if type(found) is tuple:
        return meta(*found)
    return found  # a Python number: sym_size and such


# -- in-place ------------------------------------------------------------------------------------


def bump(t: Any) -> None:
    """Count an in-place write."""
    s = t._s
    if s is None:
        s = storage_of(t)
    s.version += 1


def counting(op: Operator, kernel: Kernel) -> Kernel:
    """``kernel``, counting a write to each argument that the schema says is written to."""
    positions = op.schema.mutated
    if positions == (0,) and op.schema.returns:

        def counted(self: Any, *args: Any) -> Any:
            kernel(self, *args)
            s = self._s
            if s is None:
                s = storage_of(self)
            s.version += 1
            return self

        return counted

    def counted_all(*args: Any) -> Any:
        result = kernel(*args)
        for i in positions:
            for t in args[i] if isinstance(args[i], (list, tuple)) else (args[i],):
                if t is not None:
                    bump(t)
        return result

    return counted_all


def inplace_kernel(op: Operator, device: str) -> Kernel:
    """Compute the functional operator and write the result into ``self``."""
    functional = get(op.row.functional)
    if is_differentiable_composite(functional):
        return _inplace_composite(op, functional)
    key = K.device_bit(device)
    compute = functional.lookup(key)

    def inplace(self: Any, *args: Any) -> Any:
        result = compute(self, *args)
        write_back(op, self, result)
        return self

    return mark_composite(inplace) if is_composite(compute) else inplace


def is_differentiable_composite(op: Operator) -> bool:
    """Whether gradients flow through the operator's body rather than through a formula."""
    return bool(op.row.body) and not op.row.derivative


def _inplace_composite(op: Operator, functional: Operator) -> Kernel:
    """In place by ``copy_``, which records the history that the body has."""

    def inplace(self: Any, *args: Any) -> Any:
        # The body may save what it reads, and copy_ is about to overwrite it.
        result = functional(self if self._g is None else self.clone(), *args)
        if tuple(result._a.shape) != tuple(self._a.shape):
            raise broadcast_mismatch(op, self, result._a.shape)
        check_cast(op, result._t, self._t)
        check_overlap(op, self)
        return self.copy_(result)

    return mark_composite(inplace)


def broadcast_mismatch(op: Operator, target: Any, shape: Any) -> ShapeError:
    return ShapeError(
        f"{op.qualified}: output with shape {list(target.shape)} doesn't match the broadcast "
        f"shape {list(shape)}"
    )


def write_back(op: Operator, target: Any, result: Any) -> None:
    """Copy a result into the tensor that an in-place operator writes to."""
    if result._a.shape != target._a.shape and tuple(result._a.shape) != tuple(target._a.shape):
        raise broadcast_mismatch(op, target, result._a.shape)
    check_cast(op, result._t, target._t)
    check_overlap(op, target)
    copy_into(target, result)


def write_result(name: str, target: Any, result: Any) -> Any:
    """As ``write_back``, for kernels that know their operator by name; returns the target."""
    write_back(get(name), target, result)
    return target


def check_cast(op: Operator, source: Any, target: Any) -> None:
    if source is not target and not can_cast(source, target):
        raise DTypeError(
            f"{op.qualified}: result type {source!r} can't be cast to the desired output type "
            f"{target!r}. Use the out-of-place operator, or convert the target first."
        )


def check_overlap(op: Operator, target: Any) -> None:
    if has_overlap(target._a.shape, target.stride()):
        raise ShapeError(
            f"{op.qualified}: unsupported operation: more than one element of the written-to "
            "tensor refers to a single memory location. Please clone() the tensor before "
            "performing the operation."
        )


def copy_into(target: Any, source: Any) -> None:
    """Raw copy with dtype conversion and broadcasting, without counting a write."""
    if type(target._a) is _ndarray and type(source._a) is _ndarray:
        if source._a is not target._a:
            host_copy(target._a, source._a)
    else:
        from mortice._tensor.transfer import copy_between

        copy_between(target, source)


def host_copy(target: np.ndarray[Any, Any], source: np.ndarray[Any, Any]) -> None:
    """Elementwise copy with C conversion rules: the imaginary part is dropped, NaN to int is any."""
    if source.dtype.names != target.dtype.names:
        if source.dtype.names:  # complex32
            source = source["real"].astype(np.complex64) + source["imag"] * np.complex64(1j)
        else:
            with np.errstate(over="ignore"):
                target["real"], target["imag"] = source.real, source.imag
            return
    if source.dtype.kind == "c" and target.dtype.kind != "c":
        source = source.real
    with np.errstate(all="ignore"):
        np.copyto(target, source, casting="unsafe")


# -- out= ----------------------------------------------------------------------------------------


def out_kernel(op: Operator, device: str) -> Kernel:
    """Compute the functional operator, then resize and fill the ``out`` tensors."""
    functional = get(op.row.functional)
    n = len(functional.schema.arguments)
    distinct = "distinct_out" in functional.row.tags
    exact = "exact_out" in functional.row.tags

    def into_out(*args: Any) -> Any:
        inputs, outs = args[:n], args[n:]
        _refuse_gradients(op, args)
        if distinct:
            _refuse_overlap(op, inputs, outs)
        results = functional(*inputs)
        if exact and results._t is not outs[0]._t:
            raise DTypeError(
                f"{op.qualified}: Expected out tensor to have dtype {results._t!r}, but got "
                f"{outs[0]._t!r} instead"
            )
        if len(outs) == 1:
            fill_out(op, outs[0], results)
            return outs[0]
        for out, result in zip(outs, results):
            fill_out(op, out, result)
        return outs

    return mark_composite(into_out)


def _refuse_overlap(op: Operator, inputs: Any, outs: Any) -> None:
    """Operators that read an input while they write may not write into it."""
    for out in outs:
        check_overlap(op, out)
        for value in inputs:
            for t in value if isinstance(value, (list, tuple)) else (value,):
                a, b = getattr(t, "_a", None), out._a
                if type(a) is _ndarray and type(b) is _ndarray and np.may_share_memory(a, b):
                    raise ShapeError(
                        f"{op.qualified}: unsupported operation: some elements of the input tensor "
                        "and the written-to tensor refer to a single memory location. Please "
                        "clone() the tensor before performing the operation."
                    )


def _refuse_gradients(op: Operator, args: Any) -> None:
    from mortice._dispatch.state import THREAD

    if not THREAD.grad_enabled:
        return
    for i in op.schema.tensor_positions:
        for t in args[i] if isinstance(args[i], (list, tuple)) else (args[i],):
            if getattr(t, "_k", 0) & K.AUTOGRAD:
                raise AutogradError(
                    f"{op.schema.name}(): functions with out=... arguments don't support automatic "
                    "differentiation, but one of the arguments requires grad. Leave out= away, or "
                    "call it inside `with mortice.no_grad():`."
                )


def fill_out(op: Operator, out: Any, result: Any) -> None:
    """Write a result into an ``out`` tensor, which is resized if its shape differs."""
    check_cast(op, result._t, out._t)
    if out.device != result.device:
        from mortice._base.errors import DeviceError

        raise DeviceError(
            f"{op.qualified}: expected out tensor to be on {result.device}, but it is on "
            f"{out.device}."
        )
    if tuple(out._a.shape) != tuple(result._a.shape):
        if out.numel():
            import warnings

            warnings.warn(
                "An output with one or more elements was resized since it had shape "
                f"{list(out.shape)}, which does not match the required output shape "
                f"{list(result.shape)}. Resize it to zero elements first with out.resize_(0).",
                UserWarning,
                stacklevel=2,
            )
        out.resize_(tuple(result._a.shape))
    check_overlap(op, out)
    copy_into(out, result)
    bump(out)


_BY_KIND: dict[str, Any] = {
    "view": view_kernel,
    "inplace": inplace_kernel,
    "out": out_kernel,
}

backends.from_row = from_row
backends.counting = counting
