"""Plug-ins in this process: registering without a distribution, states, and why.

For notebooks, tests and frozen applications, where there is nothing to install::

    @mortice.plugins.register("device", "npu")
    class Npu(mortice.backend.DeviceRuntime): ...
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from mortice._plugins import find, options, state

if TYPE_CHECKING:
    from mortice._plugins.groups import Group
    from mortice._plugins.report import Decision

__all__ = ["find", "options", "register", "retry", "state", "unregister", "why"]

_MISSING: Any = object()


def register(
    kind: str,
    name: str,
    target: Any = _MISSING,
    *,
    summary: str = "",
    tags: Iterable[str] = (),
    devices: Iterable[str] = (),
    replace: bool = False,
) -> Any:
    """Make ``target`` the plug-in ``name`` of ``kind`` in this process.

    ``kind`` is ``device``, ``compile``, ``distributed``, ``operators``, ``serialization``,
    ``launcher``, ``module``, ``command`` or ``listener``, or an entry-point group's full name.
    ``target`` is what the hook would return (a class, a callable, a module, a command); an object
    that has the hook; or text ``module[:object]``, imported at first use. Without it, this is a
    decorator. Returns ``target``.

    Raises RegistrationError if the name is taken and ``replace`` is false. With it, the
    registration stands before installed plug-ins until ``unregister``.
    """
    if target is _MISSING:

        def decorate(decorated: Any) -> Any:
            return register(
                kind,
                name,
                decorated,
                summary=summary,
                tags=tags,
                devices=devices,
                replace=replace,
            )

        return decorate
    from mortice._plugins import catalog, manager
    from mortice._plugins.groups import group_of

    group = group_of(kind)
    if not isinstance(target, str) and not (group.hook and hasattr(target, group.hook)):
        mistake = manager.unfit(group, target)
        if mistake:
            from mortice.errors import RegistrationError

            raise RegistrationError(f"{group.what} {name!r}: found {mistake}.")
    row = {"summary": summary, "tags": list(tags), "devices": list(devices)}
    catalog.register(group, name, target, row, replace=replace)
    _forget(group, name)
    return target


def unregister(kind: str, name: str) -> None:
    """Take back what ``register`` added; RegistrationError if there is no such registration.

    What was made with it keeps what it holds. Tensors on a device that was taken back can be read,
    copied to another and freed; no operator finds a kernel for them any more, and the next device
    registered under the name does not know their memory.
    """
    from mortice._plugins import catalog
    from mortice._plugins.groups import group_of

    group = group_of(kind)
    catalog.unregister(group, name)
    _forget(group, name)


def _forget(group: Group, name: str) -> None:
    """What stood under the name until now is not used any more."""
    from mortice._plugins import attempts

    attempts.forget(group, name)
    if group.kind == "device":
        from mortice._dispatch import backends

        backends.forget(name)


def retry(kind: str, name: str) -> bool:
    """Forget that using a plug-in failed in this process, so that its next use tries again.

    For notebooks, after what was missing has been installed. Returns whether there was a failure;
    what was loaded stays loaded.
    """
    from mortice._plugins import attempts
    from mortice._plugins.groups import group_of

    return attempts.retry(group_of(kind), name)


def why(name: str, kind: str | None = None) -> list[Decision]:
    """Everything considered for a name: each entry, what each check said, and the one used."""
    from mortice._plugins import report

    return report.why(name, kind)
