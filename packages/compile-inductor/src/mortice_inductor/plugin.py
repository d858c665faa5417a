"""Entry point of the compile backend ``inductor``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mortice.backend import hookimpl


def inductor(
    gm: Any, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., tuple[Any, ...]]:
    """Compiles a graph of functional ATen operators to fused machine code."""
    from .front import compile_fx

    compiled = compile_fx(gm, example_inputs, config_patches=options)
    return getattr(compiled, "fast", compiled)


@hookimpl
def mortice_compile_backend(name: str) -> Callable[..., Any]:
    return inductor
