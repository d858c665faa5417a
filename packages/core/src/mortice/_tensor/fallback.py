"""Running an operator on the CPU for a device that has no kernel for it; never silently."""

from __future__ import annotations

from typing import Any

from mortice._base.errors import NoKernel
from mortice._dispatch.operator import Kernel, Operator
from mortice._types.device import CPU, Device

_WARNED: set[tuple[str, str]] = set()


def through_cpu(op: Operator, device: str) -> Kernel:
    """A kernel that copies to the host, runs there, and copies the results back."""
    device_position = op.schema.by_name.get("device")

    def on_cpu(*args: Any) -> Any:
        _policy(op, device)
        where: list[Any] = []

        def down(x: Any) -> Any:
            if isinstance(x, (list, tuple)):
                return type(x)(down(y) for y in x)  # pyright: ignore[reportUnknownVariableType]
            if hasattr(x, "_k") and x.device.type == device:
                where.append(x.device)
                return x.to("cpu")
            return x

        def up(x: Any) -> Any:
            if isinstance(x, (list, tuple)):
                return type(x)(up(y) for y in x)  # pyright: ignore[reportUnknownVariableType]
            return x.to(where[0]) if hasattr(x, "_k") else x

        if device_position is not None and args[device_position] is not None:
            where.append(Device(args[device_position]))  # a factory: nothing else says where
            args = (*args[:device_position], CPU, *args[device_position + 1 :])
        host = [down(x) for x in args]
        result = op(*host)
        for i in op.schema.mutated:
            args[i].copy_(host[i])
        return args[op.schema.mutated[0]] if op.schema.mutated else up(result)

    return on_cpu


def _policy(op: Operator, device: str) -> None:
    from mortice._base import config

    policy = config.fallback
    if policy == "error":
        raise NoKernel(
            f"{op.qualified} has no kernel for device {device!r}, and MORTICE_FALLBACK=error "
            "forbids running it on the CPU instead."
        )
    if policy == "warn" and (op.name, device) not in _WARNED:
        _WARNED.add((op.name, device))
        import warnings

        warnings.warn(
            f"{op.qualified} has no kernel for device {device!r} and runs on the CPU, copying "
            "there and back. Set MORTICE_FALLBACK=error to forbid this, or silent to hide this.",
            UserWarning,
            stacklevel=4,
        )
