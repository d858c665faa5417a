"""What the passes need to know besides the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Log = Callable[[str], None]


class Settings(NamedTuple):
    """What the passes need to know besides the graph."""

    lowerings: Mapping[str, Callable[..., Any]]
    fallbacks: frozenset[str]
    log: Log
    numbers: Callable[[Any], Any]
    aliases: Callable[[int], frozenset[int]]
    integer_bits: int
    #: Whether BLAS's number of threads can be read and set.
    blas_threads: bool
    #: See, and may change, what gets memory (values) and what became of it (kernels and steps).
    pre_fusion: Callable[[list[Any]], list[Any]] | None = None
    post_fusion: Callable[[list[Any]], list[Any]] | None = None
    fusion: bool = True
    recompute_cost: int = 10
    reach: int = 24
    keep_casts: bool = False
    validate: bool = False
