"""Entry point of the compile backend ``inductor``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mortice.backend import hookimpl
from mortice.compiler import Option, declare

if TYPE_CHECKING:
    from mortice.compiler import Keeping
    from mortice.native import NativeEntry, NativePlan, NativeRecorder

#: What ``mode=`` stands for: one way of compiling serves all, but for ``lite``.
MODES: dict[str, dict[str, Any]] = {
    "reduce-overhead": {},
    "max-autotune": {},
    "max-autotune-no-cudagraphs": {},
    "lite": {"fusion": False},
}


def inductor(
    gm: Any, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., tuple[Any, ...]]:
    """Compiles a graph of functional ATen operators to fused machine code."""
    from .front import compile_fx

    compiled = compile_fx(gm, example_inputs, config_patches=options)
    # The caller has looked at the inputs' layout.
    return getattr(compiled, "fast", compiled)


def native_entry(plan: NativePlan) -> NativeEntry | None:
    """A replay plan as one native function; None where it stays Python's."""
    from .native.replay import native_entry

    return native_entry(plan)


def native_recorder() -> NativeRecorder | None:
    """The native recorder; None in interpreters that it cannot be in."""
    from .native.recorder import native_recorder

    return native_recorder()


def keeping() -> Keeping:
    """How compiled graphs are kept on disk."""
    from .keeping import KEEPING

    return KEEPING


def check_options(given: Mapping[str, Any]) -> None:
    """Raises OptionError for options that neither inductor nor a device has."""
    if given:
        from .routing import routed

        routed(given)


def describe_options() -> dict[str, Option]:
    """Inductor's own options by name; devices have more, as ``device.name``."""
    from .config import OPTIONS

    return {o.name: Option(o.type.__name__, o.default, o.doc) for o in OPTIONS}


declare(
    inductor,
    options=None,
    modes=MODES,
    check=check_options,
    describe=describe_options,
    native_entry=native_entry,
    native_recorder=native_recorder,
    trusted=True,
    keeping=keeping,
)


@hookimpl
def mortice_compile_backend(name: str) -> Callable[..., Any]:
    return inductor
