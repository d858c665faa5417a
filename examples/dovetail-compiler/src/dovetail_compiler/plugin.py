"""The entry point of the compile backend ``dovetail``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mortice.backend import hookimpl


@hookimpl
def mortice_compile_backend(name: str) -> Callable[..., Any]:
    from dovetail_compiler.codegen import dovetail

    return dovetail
