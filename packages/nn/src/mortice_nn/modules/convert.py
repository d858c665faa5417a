"""Module.to and its relatives: change dtype or device of parameters and buffers in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import mortice
from mortice import Tensor
from mortice.backend import movable
from mortice.errors import ArgumentError, DTypeError

Self = TypeVar("Self", bound="ModuleConvert")


@movable
class ModuleConvert:
    """The part of Module that converts; see ``modules.module``."""

    _parameters: dict[str, Any]
    _buffers: dict[str, Tensor | None]

    def children(self) -> Any:
        raise NotImplementedError  # Module defines it

    def _apply(self: Self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Replace every parameter, its gradient and every buffer by ``fn`` of it.

        Parameters keep their identity, so that optimizers made earlier still hold them.
        """
        if recurse:
            for module in self.children():
                module._apply(fn)
        for name, parameter in self._parameters.items():
            if parameter is None:
                continue
            grad = parameter.grad
            with mortice.no_grad():
                self._parameters[name] = _replace(parameter, fn(parameter))
                if grad is not None:
                    new_grad = fn(grad)
                    self._parameters[name].grad = new_grad.requires_grad_(grad.requires_grad)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def to(self: Self, *args: Any, **kwargs: Any) -> Self:
        """``to(device)``, ``to(dtype)``, ``to(device, dtype)`` or ``to(tensor)``, in place.

        A dtype, which must be floating or complex, changes only floating and complex tensors.
        Returns self.
        """
        device, dtype, non_blocking = parse_to(args, kwargs)
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise DTypeError(
                f"Module.to only accepts floating point or complex dtypes, but got dtype={dtype}"
            )

        def convert(tensor: Tensor) -> Tensor:
            takes_dtype = tensor.is_floating_point() or tensor.is_complex()
            return tensor.to(
                tensor.device if device is None else device,
                dtype if dtype is not None and takes_dtype else tensor.dtype,
                non_blocking,
            )

        return self._apply(convert)

    def to_empty(self: Self, *, device: Any, recurse: bool = True) -> Self:
        """Move to ``device`` without copying values: what a model on ``meta`` needs first."""
        return self._apply(lambda t: mortice.empty_like(t, device=device), recurse=recurse)

    def type(self: Self, dst_type: Any) -> Self:
        """Cast every parameter and buffer to ``dst_type``, integers included."""
        return self._apply(lambda t: t.to(dst_type))

    def float(self: Self) -> Self:
        """Cast floating parameters and buffers to float32."""
        return self._apply(lambda t: t.to(mortice.float32) if t.is_floating_point() else t)

    def double(self: Self) -> Self:
        """Cast floating parameters and buffers to float64."""
        return self._apply(lambda t: t.to(mortice.float64) if t.is_floating_point() else t)

    def half(self: Self) -> Self:
        """Cast floating parameters and buffers to float16."""
        return self._apply(lambda t: t.to(mortice.float16) if t.is_floating_point() else t)

    def bfloat16(self: Self) -> Self:
        """Cast floating parameters and buffers to bfloat16."""
        return self._apply(lambda t: t.to(mortice.bfloat16) if t.is_floating_point() else t)

    def cpu(self: Self) -> Self:
        """Move to the host."""
        return self._apply(lambda t: t.to("cpu"))

    def cuda(self: Self, device: Any = None) -> Self:
        """Move to a CUDA device (an index or a device; the current one by default)."""
        target = mortice.device("cuda", device) if isinstance(device, int) else device or "cuda"
        return self._apply(lambda t: t.to(target))

    def share_memory(self: Self) -> Self:
        """Move every parameter and buffer into memory that worker processes share."""
        return self._apply(lambda t: t.share_memory_())


def parse_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, bool]:
    """``(device, dtype, non_blocking)`` from the forms that ``to`` takes; each may be None."""
    device = kwargs.get("device")
    dtype = kwargs.get("dtype")
    non_blocking = kwargs.get("non_blocking", False)
    unknown = set(kwargs) - {"device", "dtype", "non_blocking", "tensor", "memory_format"}
    if unknown:
        raise ArgumentError(
            f"Module.to got an unknown argument {min(unknown)!r}; it takes device, dtype, "
            "non_blocking, tensor and memory_format"
        )
    flags: list[bool] = []
    rest = [*args, *([kwargs["tensor"]] if "tensor" in kwargs else [])]
    for value in rest:
        if isinstance(value, Tensor):
            device, dtype = value.device, value.dtype
        elif isinstance(value, mortice.dtype):
            dtype = value
        elif isinstance(value, bool):
            flags.append(value)
        elif isinstance(value, (str, int, mortice.device)):
            device = value
        elif value is not None:
            raise ArgumentError(
                f"Module.to expected a device, a dtype or a tensor, found {type(value).__name__}"
            )
    if flags:
        non_blocking = flags[0]
    if device is not None and not isinstance(device, mortice.device):
        device = mortice.device(device)
    return device, dtype, bool(non_blocking)


def _replace(parameter: Any, value: Tensor) -> Any:
    """``parameter`` with the data of ``value``, the same object."""
    if value is not parameter:
        parameter.data = value
    return parameter
