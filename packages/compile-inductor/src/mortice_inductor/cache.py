"""Compiled graphs on disk: plans by a hash of everything that made them.

An entry holds a plan as marshalled plain data, and the key of its machine code, which the object
cache of mortice_llvm keeps. A damaged entry, or one whose code is gone, is a miss.
"""

from __future__ import annotations

import marshal
import os
import sys
from collections.abc import Mapping
from typing import Any

import mortice
from mortice_llvm.runtime import cache as objects
from mortice_llvm.target import host

from . import specs
from .plan import CallStep, Plan

_TUPLES = {
    t.__name__: t
    for t in (Plan, CallStep, specs.TensorSpec, specs.NumberSpec, specs.GeneratorSpec,
              specs.OtherSpec)
}  # fmt: skip
_own_sources: bytes | None = None


class Uncacheable(Exception):
    """Something in a graph or plan cannot be written down."""


def source_hash() -> bytes:
    """A hash of this package's sources, and of those of mortice_llvm."""
    global _own_sources
    if _own_sources is None:
        parts = [objects.source_hash()]
        root = os.path.dirname(__file__)
        for folder, _, names in sorted(os.walk(root)):
            for name in sorted(names):
                if name.endswith(".py"):
                    with open(os.path.join(folder, name), "rb") as f:
                        parts.append(f.read())
        _own_sources = objects.digest(*parts)
    return _own_sources


# -- plain data ----------------------------------------------------------------------------------


def plain(x: Any) -> Any:
    """``x`` as data that marshal takes; Uncacheable for objects with a life of their own."""
    if type(x) in _SIMPLE:
        return x
    for kind in _BASES:
        if isinstance(x, kind):  # a numpy.float64, say, of which marshal makes bytes
            return kind(x)
    if _is_plain(x):
        return ("=", x)
    name = type(x).__name__
    if name in _TUPLES and type(x) is _TUPLES[name]:
        if all(map(_is_plain, x)):
            return ("P", name, tuple(x))
        return ("T", name, [plain(y) for y in x])
    if isinstance(x, tuple):
        return ("t", [plain(y) for y in x])
    if isinstance(x, list):
        return ("l", [plain(y) for y in x])
    if isinstance(x, dict):
        return ("m", [(plain(k), plain(v)) for k, v in x.items()])
    if isinstance(x, mortice.dtype):
        return ("d", x.name)
    if isinstance(x, mortice.device):
        return ("D", str(x))
    if isinstance(x, (mortice.layout, mortice.memory_format)):
        return ("a", repr(x).rpartition(".")[2])
    raise Uncacheable(f"{type(x).__name__} {x!r}")


_BASES: tuple[Any, ...] = (int, float, str, bytes)
_SIMPLE = frozenset((bool, int, float, str, bytes, type(None)))


def _is_plain(x: Any) -> bool:
    """Whether marshal gives back what it is given: most of a plan, which then is read in one go."""
    kind = type(x)
    if kind is tuple or kind is list:
        return all(map(_is_plain, x))
    if kind is dict:
        return all(_is_plain(k) and _is_plain(v) for k, v in x.items())
    return kind in _SIMPLE


def restored(x: Any) -> Any:
    """What ``plain`` was given."""
    if not isinstance(x, tuple):
        return x
    kind = x[0]
    if kind == "=":
        return x[1]
    if kind == "P":
        return _TUPLES[x[1]]._make(x[2])
    if kind == "T":
        return _TUPLES[x[1]](*map(restored, x[2]))
    if kind == "t":
        return tuple(map(restored, x[1]))
    if kind == "l":
        return [restored(y) for y in x[1]]
    if kind == "m":
        return {restored(k): restored(v) for k, v in x[1]}
    if kind == "d":
        return getattr(mortice, x[1])
    if kind == "D":
        return mortice.device(x[1])
    return getattr(mortice, x[1])


# -- keys ----------------------------------------------------------------------------------------


def key_of(
    gm: Any, inputs: tuple[Any, ...], aliases: Any, settings: Mapping[str, Any], numbers: Any
) -> bytes | None:
    """A hash of the graph, what is known of its inputs, and the settings; None where the graph
    holds what cannot be written down: tensors, foreign objects.
    """
    number: dict[int, int] = {}

    def written(x: Any) -> Any:
        if id(x) in number:
            return ("%", number[id(x)])
        if isinstance(x, (list, tuple)):
            return [written(y) for y in x]
        if isinstance(x, Mapping):
            return [(k, written(v)) for k, v in x.items()]
        return plain(numbers(x))

    try:
        nodes: list[Any] = []
        for node in gm.graph.nodes:
            if node.op == "get_attr":
                return None
            given = (written(node.args), written(node.kwargs))
            number[id(node)] = len(nodes)
            donated = bool(node.meta.get("donated"))
            nodes.append((node.op, str(node.target), *given, _shown(node), donated))
        data = (
            "graph",
            nodes,
            plain(inputs),
            aliases,
            [(k, plain(v)) for k, v in settings.items()],
        )
        text = marshal.dumps(data, 2)
    except (Uncacheable, ValueError):
        return None
    return objects.digest(source_hash(), host().name.encode(), sys.version.encode(),
                          mortice.__version__.encode(), text)  # fmt: skip


def _shown(node: Any) -> Any:
    """The strides of a result, which outputs and foreign operators take over."""
    val = node.meta.get("val")
    if isinstance(val, mortice.Tensor):
        return [str(n) for n in (*val.shape, *val.stride())]
    if isinstance(val, (list, tuple)):
        return [[str(n) for n in (*v.shape, *v.stride())] for v in val
                if isinstance(v, mortice.Tensor)]  # fmt: skip
    return None


# -- entries -------------------------------------------------------------------------------------


def read(key: bytes) -> tuple[Plan, bytes] | None:
    """(plan, key of its code) kept under ``key``, or None."""
    data = objects.read(key)
    if data is None:
        return None
    try:
        plan, code = marshal.loads(data)  # noqa: S302  checked by its hash, in the user's own folder
        return restored(plan), code
    except (ValueError, EOFError, TypeError, KeyError):
        return None


def write(key: bytes, plan: Plan, code: bytes) -> None:
    """Keeps a plan, if all of it can be written down."""
    try:
        objects.write(key, marshal.dumps((plain(plan), code), 2))
    except (Uncacheable, ValueError):
        return
