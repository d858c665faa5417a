"""What core needs to keep inductor's results on disk, graph and all."""

from __future__ import annotations

import marshal
import sys
from collections.abc import Callable, Mapping
from typing import Any

from mortice.compiler import Keeping
from mortice_llvm.runtime import cache as objects
from mortice_llvm.target import host

from . import cache, routing
from .front import Snapshot, Variants, has_own_rules, is_logged


def version(given: Mapping[str, Any]) -> bytes | str:
    """All that a result depends on besides its graph; why nothing is to be kept, where that is so."""
    with routing.patched(given):
        snapshot = Snapshot()
        own = snapshot.own
        if not own.graph_cache:
            return "the option graph_cache is off"
        if own.validate:
            return "the option validate compares each call with eager"
        if has_own_rules():
            return "functions of users lower operators"
        if is_logged():
            return "somebody wants to see what is fused"
        try:
            text = marshal.dumps([(k, cache.plain(v)) for k, v in snapshot.key().items()], 2)
        except cache.Uncacheable as error:
            return f"an option has no name that another process would know it by: {error}"
    parts = (cache.source_hash(), host().name.encode(), sys.version.encode(), text)
    return objects.digest(*parts)


def restore(
    data: Any, identity: bytes, graph: Any, given: Mapping[str, Any]
) -> Callable[..., Any] | None:
    """What ``plugin.inductor`` gave for a graph in another process."""
    with routing.patched(given):
        found = Variants.restored(data, identity, graph)
    return None if found is None else found.fast


KEEPING = Keeping(version, objects.digest, objects.read, objects.write, restore)
