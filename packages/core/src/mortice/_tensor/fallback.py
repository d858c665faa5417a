"""Running an operator on the CPU for a device that has no kernel for it; never silently."""

from __future__ import annotations

from collections.abc import Generator as Yields
from contextlib import contextmanager
from typing import Any

from mortice._base.errors import NoKernel
from mortice._dispatch.operator import Kernel, Operator
from mortice._tensor.generator import Generator, chosen
from mortice._tensor.kernels import flat
from mortice._tensor.memory import one_device
from mortice._types.device import CPU, Device, indexed

_WARNED: set[tuple[str, str]] = set()


def through_cpu(op: Operator, device: str) -> Kernel:
    """A kernel that copies to the host, runs there, and copies the results back."""
    schema = op.schema
    device_position = schema.by_name.get("device")
    generator_position = schema.by_name.get("generator")
    # Which argument each result is, where it is one that was written to.
    written = {schema.arguments[i].type.alias: i for i in schema.mutated}
    same = [written.get(r.type.alias) if r.type.alias else None for r in schema.returns]

    def on_cpu(*args: Any) -> Any:
        check_policy(op, device)
        where: list[Any] = []

        def down(x: Any) -> Any:
            if hasattr(x, "_k") and x.device.type == device:
                where.append(x.device)
                return x.to("cpu")
            return x

        if device_position is not None and args[device_position] is not None:
            where.append(Device(args[device_position]))  # a factory: nothing else says where
            args = (*args[:device_position], CPU, *args[device_position + 1 :])
        host = [_each(down, x) for x in args]
        if len(where) > 1 and "cross_device" not in op.row.tags:
            one_device(op.qualified, [x for x in flat(args) if hasattr(x, "_k")], device)
        if generator_position is None:
            result = op(*host)
        else:
            with _drawing(args[generator_position], where[0]) as host[generator_position]:
                result = op(*host)
        for i in schema.mutated:
            _write_back(args[i], host[i])

        def up(x: Any) -> Any:
            return x.to(where[0]) if hasattr(x, "_k") else x

        if len(same) == 1:
            return _each(up, result) if same[0] is None else args[same[0]]
        made = [
            _each(up, x) if position is None else args[position]
            for x, position in zip(result, same)
        ]
        return type(result)(*made) if hasattr(result, "_fields") else tuple(made)

    return on_cpu


@contextmanager
def _drawing(given: Any, device: Device) -> Yields[Generator, None, None]:
    """A generator on the host that draws what the device's would have drawn, and moves it on."""
    its = chosen(given, indexed(device))
    with its.lent() as stand_in:
        yield stand_in


def _each(function: Any, x: Any) -> Any:
    """``function`` of a value, or of each in a list or tuple, whose type is kept."""
    if not isinstance(x, (list, tuple)):
        return function(x)
    values = [_each(function, y) for y in x]  # pyright: ignore[reportUnknownVariableType]
    return type(x)(*values) if hasattr(x, "_fields") else type(x)(values)  # pyright: ignore


def _write_back(target: Any, host: Any) -> None:
    """Copy what was written on the host into the device's tensor, or list of them."""
    if isinstance(target, (list, tuple)):
        for one, its in zip(target, host):  # pyright: ignore[reportUnknownVariableType]
            _write_back(one, its)
    elif target is not None:
        target.copy_(host)


def check_policy(op: Operator, device: str) -> None:
    """Warn or raise NoKernel, as ``config.fallback`` says, where work is about to leave a device."""
    from mortice._base import config

    policy = config.fallback
    if policy == "error":
        raise NoKernel(
            f"{op.qualified} has no kernel for device {device!r}, and MORTICE_FALLBACK=error "
            "forbids running it on the CPU instead."
        )
    if policy == "warn" and (op.name, device) not in _WARNED:
        _WARNED.add((op.name, device))
        from mortice._base.warning import warn

        warn(
            f"{op.qualified} has no kernel for device {device!r} and runs on the CPU, copying "
            "there and back. Set MORTICE_FALLBACK=error to forbid this, or silent to hide this."
        )
