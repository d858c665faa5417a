"""The backends built in: they run graphs, and compile nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pluggy

from .declaration import declare

hookimpl = pluggy.HookimplMarker("mortice")


def eager(gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """The captured graph, run operator by operator, each recording its own history."""
    return gm


def aot_eager(gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """A forward or backward graph, run operator by operator."""
    return gm


def aot_eager_decomp_partition(gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """As ``aot_eager``, the graph's operators taken apart before."""
    return gm


def _decompositions() -> Any:
    from .decompositions import select_decomp_table

    return select_decomp_table()


declare(eager, differentiable=True)
declare(aot_eager)
declare(aot_eager_decomp_partition, decompositions=_decompositions)


def null(gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Runs the graph once and returns those outputs at every call: what is left is overhead."""
    outputs: list[Any] = []

    def run(*inputs: Any) -> Any:
        if not outputs:
            outputs.append(gm(*inputs))
        return outputs[0]

    return run


declare(null, trusted=True)

_BACKENDS = {fn.__name__: fn for fn in (eager, aot_eager, aot_eager_decomp_partition, null)}


@hookimpl
def mortice_compile_backend(name: str) -> Callable[..., Any]:
    """The built-in backend of that name."""
    return _BACKENDS[name]
