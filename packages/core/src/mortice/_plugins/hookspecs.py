"""What a plug-in implements, as pluggy specifications; their version is ``HOOK_API_VERSION``."""

from __future__ import annotations

from typing import Any

import pluggy

_spec = pluggy.HookspecMarker("mortice")

# -- one entry, asked by name: return a class (or a callable), and do nothing else --------------


@_spec
def mortice_device(name: str) -> Any:
    """The subclass of ``mortice.backend.DeviceRuntime`` for the device type ``name``."""


@_spec
def mortice_compile_backend(name: str) -> Any:
    """The callable ``fn(gm, example_inputs, *, options)`` that is the compile backend ``name``."""


@_spec
def mortice_distributed_backend(name: str) -> Any:
    """The class of the distributed backend ``name``."""


@_spec
def mortice_operators(name: str) -> Any:
    """The operator library of the namespace ``name``, or of the part ``ns:part``."""


@_spec
def mortice_serialization_tag(name: str) -> Any:
    """The class that saves to, and loads from, the location tag ``name``."""


@_spec
def mortice_launcher(name: str) -> Any:
    """The class of the launch engine ``name``."""


# -- events, broadcast to listeners -------------------------------------------------------------


@_spec
def mortice_plugin_loaded(
    kind: str, name: str, distribution: str, version: str, seconds: float
) -> None:
    """A plug-in has been loaded in this process."""


@_spec
def mortice_graph_compiled(backend: str, graph: Any, seconds: float) -> None:
    """A compile backend has compiled a graph."""


@_spec
def mortice_graph_recompiled(backend: str, reason: str) -> None:
    """A compiled function is captured again, and why."""


@_spec
def mortice_group_created(backend: str, ranks: tuple[int, ...]) -> None:
    """A process group has been made."""
