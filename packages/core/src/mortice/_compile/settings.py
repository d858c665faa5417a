"""``Settings``: what one ``mortice.compile`` call was asked for, checked once and then frozen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from .declaration import Declaration

RECOMPILE_LIMIT = 8


@dataclass(frozen=True)
class Settings:
    """What a compiled object carries with it, and what a backward compiled later still uses.

    Attributes:
        backend: ``fn(gm, example_inputs, *, options) -> callable(*inputs) -> tuple``.
        backend_name: What it is called in messages.
        declaration: What the backend says of itself.
        options: Read-only; the backend's defaults, the config files', and what was given.
        mode: The mode asked for, or None; its options are in ``options`` already.
        fullgraph: Whether a value read in the middle of the function is an error.
        dynamic: Whether sizes are symbolic from the first call on (True), never (False), or from
            the second size on (None).
        recompile_limit: Graphs compiled for one place in one compiled object before that place
            runs operator by operator.
        compile_segment: ``(gm, example_inputs, settings) -> callable(*inputs) -> tuple``.
        keep: ``(captured, settings)`` -> what is kept on disk of a captured graph (``kept.Kept``), or None.
        shelf: ``(settings)`` -> where replay plans are kept (``kept.Shelf``), or None.
    """

    backend: Callable[..., Any]
    backend_name: str
    compile_segment: Callable[..., Any]
    declaration: Declaration = field(default_factory=Declaration)
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    mode: str | None = None
    fullgraph: bool = False
    dynamic: bool | None = None
    recompile_limit: int = RECOMPILE_LIMIT
    keep: Callable[..., Any] | None = None
    shelf: Callable[..., Any] | None = None
