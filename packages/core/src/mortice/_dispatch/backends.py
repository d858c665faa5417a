"""From an operator and its tensors' devices to a kernel, and the device runtimes themselves."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from mortice._base.errors import DeviceError, NoKernel, PluginError, PluginNotFound
from mortice._dispatch import keys as K
from mortice._dispatch.operator import (
    FALLBACKS,
    Kernel,
    Operator,
    clear_tables,
    declare,
    is_composite,
    known,
    mark_composite,
)

_RUNTIMES: dict[str, Any] = {}
_FAMILIES: dict[tuple[str, str], dict[str, Kernel]] = {}

#: Set by ``_tensor`` at import: device-independent kernels made from rows (views, shape rules,
#: in-place and ``out=`` forms), and host kernels that need no plug-in.
from_row: Callable[[Operator, str], Kernel | None] = lambda op, device: None  # noqa: E731
host_kernel: Callable[[str], Kernel | None] = lambda name: None  # noqa: E731
#: Kernels of core that serve every device: allocation, copies between devices, fills.
any_device_kernel: Callable[[str], Kernel | None] = lambda name: None  # noqa: E731
adapt_runtime: Callable[[Any, Operator, str], Kernel | None] = lambda *_: None  # noqa: E731
started: Callable[[str], None] = lambda name: None  # noqa: E731
ended: Callable[[Any], None] = lambda runtime: None  # noqa: E731
after_fork: Callable[[], None] = lambda: None  # noqa: E731
#: Wraps a mutating operator's kernel so that writes are counted.
counting: Callable[[Operator, Kernel], Kernel] = lambda op, kernel: kernel  # noqa: E731


#: Kernels for tensors without data, and what enters their mode; set when the first mode is made.
fake_kernel: Callable[[Operator, int], Kernel] = lambda op, keys: _no_mode(op)  # noqa: E731
in_fake_mode: Callable[[Operator, Kernel], Kernel] = lambda op, kernel: kernel  # noqa: E731


def _no_mode(op: Operator) -> Kernel:
    raise NoKernel(f"{op.qualified}: no FakeTensorMode has been made.")


def runtime(device_type: str) -> Any:
    """The runtime object of a device type, its plug-in loaded now if it was not.

    Raises the plug-in error that says what is wrong with it and what to type.
    """
    found = _RUNTIMES.get(device_type)
    if found is None:
        found = _RUNTIMES.setdefault(device_type, _started(device_type))
    return found


def _started(device_type: str) -> Any:
    from mortice._plugins import load_operator_parts, make

    lost = _LOST.get(device_type)
    if lost is not None:
        return _started_again(device_type, lost)
    made = make("mortice.devices", device_type)
    if not hasattr(made, "kernel_package"):
        if not hasattr(made, "features"):
            cls = type(made)
            raise DeviceError(
                f"device type {device_type!r} is provided by {cls.__module__}.{cls.__qualname__}, "
                "which is no device. Derive it from mortice.backend.DeviceRuntime."
            )
        made.device_type = device_type
        _watch_forks()
        started(device_type)
    # Parts of operator libraries that are for this device. One that cannot be loaded is known
    # by its state, and does not keep the device from being used.
    load_operator_parts("", device_type, declare)
    return made


def forget(device_type: str) -> None:
    """Let go of a device type's runtime; the next use of the name finds another, or none."""
    _LOST.pop(device_type, None)
    found = _RUNTIMES.pop(device_type, None)
    if found is not None:
        for key in [key for key in _FAMILIES if key[0] == device_type]:
            del _FAMILIES[key]
        ended(found)
        clear_tables()


def is_loaded(device_type: str) -> bool:
    """Whether a device type's runtime has been made in this process."""
    return device_type in _RUNTIMES


# -- fork ----------------------------------------------------------------------------------------

#: In a forked child, the parent's runtimes that did not survive.
_LOST: dict[str, Any] = {}
_watched = False


def _watch_forks() -> None:
    global _watched
    if not _watched and hasattr(os, "register_at_fork"):
        _watched = True
        os.register_at_fork(after_in_child=lambda: after_fork())


def leave_parent() -> None:
    """In a forked child: let go of the runtimes whose ``Features.fork`` is not "keep"."""
    for device_type, found in list(_RUNTIMES.items()):
        if hasattr(found, "features") and found.features.fork != "keep":
            found.forked = True
            _LOST[device_type] = _RUNTIMES.pop(device_type)
    if _LOST:
        clear_tables()


def _started_again(device_type: str, lost: Any) -> Any:
    if lost.features.fork != "restart":
        raise DeviceError(
            f"device {device_type!r} was in use when this process was forked, and cannot be used "
            "in the child. Start the process with mortice.multiprocessing.get_context('spawn'), "
            "or fork before the device is first used."
        )
    made = type(lost)()
    made.device_type = device_type
    return made


def is_lost(device_type: str) -> bool:
    """Whether this is a forked child that cannot use a device its parent used."""
    lost = _LOST.get(device_type)
    return lost is not None and lost.features.fork != "restart"


# -- kernels of packages ---------------------------------------------------------------------------


def device_kernel(op: Operator, device_type: str) -> Kernel | None:
    """The kernel that a device's own package has for an operator, or None."""
    loaded = runtime(device_type)
    package = getattr(loaded, "kernel_package", None)
    if package is None:
        return adapt_runtime(loaded, op, device_type)
    family = op.row.family.rpartition(".")[2]
    kernels = _FAMILIES.get((device_type, family))
    if kernels is None:
        kernels = _FAMILIES[device_type, family] = _family_kernels(package, family)
    return kernels.get(op.name)


def _family_kernels(package: str, family: str) -> dict[str, Kernel]:
    name = f"{package}.{family}"
    try:
        return import_module(name).KERNELS
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        return {}


# -- selection -----------------------------------------------------------------------------------


def select(op: Operator, keys: int) -> Kernel:
    """The kernel for a key set that holds device bits only."""
    kernel = _select(op, keys)
    if op.row.kind == "out" or not op.schema.mutated or "uncounted" in op.row.tags:
        return kernel
    counted = counting(op, kernel)
    return mark_composite(counted) if is_composite(kernel) else counted


def _select(op: Operator, keys: int) -> Kernel:
    if keys & K.FAKE:
        return fake_kernel(op, keys)
    devices = list(K.devices_in(keys))
    if len(devices) > 1:
        return _mixed(op, devices)
    if not devices:
        return _without_tensors(op)
    return _on_device(op, devices[0])


def _on_device(op: Operator, device: str) -> Kernel:
    return locate(op, device)[1]


def locate(op: Operator, device: str) -> tuple[str, Kernel]:
    """(how, kernel) of an operator on a device type.

    ``how`` is "registered" (through mortice.library), "declared" (by the operator's package),
    "core" (memory and copies), "kernel" (of the device's package), "row" (views, in-place and out=
    forms, from what the operator's row says), "decomposition" or "fallback". NoKernel where there
    is none.
    """
    found = op.registered(K.device_key_name(device))
    if found is not None and not _is_fallthrough(found):
        return "registered", found
    found = op.row.kernel(device)
    if found is not None:
        return "declared", found
    if device == "cpu":
        found = host_kernel(op.name)
    elif "cross_device" in op.row.tags:
        found = any_device_kernel(op.name)
    if found is not None:
        return "core", found
    failure: PluginError | None = None
    if device != "meta" and op.row.kind != "view" and op.row.family:
        try:
            found = device_kernel(op, device)
        except PluginError as error:
            if not (op.row.body or op.row.decomposition or op.row.functional):
                raise no_kernel(op, device, error) from error
            failure = error
        if found is not None:
            return "kernel", found
    if device not in ("cpu", "meta"):
        found = any_device_kernel(op.name)
        if found is not None:
            return "core", found
    composite = _composite(op, device)
    if composite is not None:
        return composite
    registered = FALLBACKS.get(K.device_key_name(device))
    if registered is not None:
        return "registered", registered(op)
    found = _fallback(op, device)
    if found is not None:
        return "fallback", found
    if device == "meta" and op.missing_meta is not None:
        raise op.missing_meta()
    raise no_kernel(op, device, failure)


def replaced(op: Operator, device: str) -> bool:
    """Whether an operator of core's runs somebody's kernel on a device type, by ``mortice.library``."""
    if not op.kernels or "::" in op.name:
        return False
    try:
        return locate(op, device)[0] == "registered"
    except NoKernel:
        return False


def replaced_operators(device: str) -> frozenset[str]:
    """The operators of core that run somebody's kernels on a device type, by the names that they have in
    graphs: ``"aten.sin.default"``.
    """
    found = [op.name for op in known() if replaced(op, device)]
    return frozenset(f"aten.{name}" if "." in name else f"aten.{name}.default" for name in found)


def _is_fallthrough(kernel: Kernel) -> bool:
    return type(kernel).__name__ == "Fallthrough"


def _composite(op: Operator, device: str) -> tuple[str, Kernel] | None:
    for key in ("CompositeExplicitAutogradNonFunctional", "CompositeExplicitAutograd"):
        found = op.registered(key)
        if found is not None:
            return "registered", mark_composite(found)
    found = from_row(op, device)
    if found is not None:
        return "row", found
    found = op.decomposition() or op.registered("CompositeImplicitAutograd") or op.body()
    return None if found is None else ("decomposition", mark_composite(found))


def _fallback(op: Operator, device: str) -> Kernel | None:
    if device in ("cpu", "meta"):
        return None
    from mortice._tensor.fallback import through_cpu

    return through_cpu(op, device)


def _without_tensors(op: Operator) -> Kernel:
    """No tensor argument: the ``device`` argument, or the default device, chooses."""
    for key in ("BackendSelect", "CompositeExplicitAutograd", "CompositeImplicitAutograd"):
        found = op.registered(key)
        if found is not None:
            return found
    position = op.schema.by_name.get("device")
    if position is None:
        found = from_row(op, "cpu") or op.decomposition() or op.body()
        if found is not None:
            return found
        return _no_tensor_arguments(op)
    from mortice._types.device import Device, current_default

    body = op.body()
    if body is not None:
        return body

    def on_chosen_device(*args: Any) -> Any:
        device = args[position]
        device_type = current_default().type if device is None else Device(device).type
        return op.lookup(K.device_bit(device_type))(*args)

    return on_chosen_device


def _no_tensor_arguments(op: Operator) -> Kernel:
    def on_first_tensor(*args: Any) -> Any:
        rule = op.shape_rule()
        if rule is not None:
            rule(*args)  # may know better what is wrong
        raise NoKernel(
            f"{op.qualified}: there were no tensor arguments to this function, so no device could "
            "be chosen. Pass at least one tensor."
        )

    return on_first_tensor


def _mixed(op: Operator, devices: list[str]) -> Kernel:
    """Tensors on several device types: copies may, and 0-d CPU tensors yield to the others."""
    if "cross_device" in op.row.tags:
        return from_row(op, "cpu") or host_kernel(op.name) or _on_device(op, "cpu")
    others = [d for d in devices if d != "cpu"]
    if len(others) == 1:
        return _yielding(op, others[0])
    if "meta" in others and len(others) == 1:
        return _on_device(op, "meta")
    return _different_devices(op)


def _yielding(op: Operator, device: str) -> Kernel:
    positions = op.schema.tensor_positions

    def on_one_device(*args: Any) -> Any:
        values = list(args)
        for i in positions:
            value = values[i]
            if isinstance(value, (list, tuple)):
                values[i] = [moved(x, i) for x in value]  # pyright: ignore[reportUnknownVariableType]
            elif value is not None and hasattr(value, "_k"):
                values[i] = moved(value, i)
        return op(*values)

    def moved(x: Any, position: int) -> Any:
        if x is None or x.device.type != "cpu":
            return x
        if x.ndim:
            raise _mixture(op, position, "cpu", device)
        return x.to(device)

    return on_one_device


def _different_devices(op: Operator) -> Kernel:
    def refuse(*args: Any) -> Any:
        first: str | None = None
        for i in op.schema.tensor_positions:
            for x in args[i] if isinstance(args[i], (list, tuple)) else (args[i],):
                if x is None or (x.device.type == "cpu" and not x.ndim):
                    continue
                if first is not None and x.device.type != first:
                    raise _mixture(op, i, x.device.type, first)
                first = x.device.type
        raise _mixture(op, 0, "cpu", "another")

    return refuse


def _mixture(op: Operator, position: int, found: str, expected: str) -> DeviceError:
    name = op.schema.arguments[position].name
    return DeviceError(
        f"{op.qualified}: Expected all tensors to be on the same device, but argument {name!r} "
        f"(position {position + 1}) is on {found} and another is on {expected}. Move one with "
        f".to({expected!r})."
    )


def no_kernel(op: Operator, device: str, failure: PluginError | None = None) -> NoKernel:
    """The error for an operator that cannot run on a device; says what to install."""
    if device == "cpu" and isinstance(failure, PluginNotFound):
        from mortice._plugins.groups import install_command

        return NoKernel(
            f"{op.qualified} has no kernel for device 'cpu': the CPU kernels are a package of "
            f"their own. Install them with: {install_command('mortice-cpu')} (wheelhouse: the "
            "directory that `python3 dev.py build` fills)."
        )
    if failure is not None:
        return NoKernel(f"{op.qualified} cannot run on device {device!r}: {failure}")
    return NoKernel(
        f"Could not run {op.qualified!r} on device {device!r}: neither the device's package nor a "
        f"decomposition provides it. `mortice why {device}` shows what the device offers; a kernel "
        "can be added with mortice.library.impl."
    )
