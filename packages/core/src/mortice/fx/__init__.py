"""Graphs of operations: made by tracing, read, checked, rewritten, run and drawn.

The names are PyTorch's ``torch.fx``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mortice.fx.codegen import CodeGen, PythonCode, PyTreeCodeGen
    from mortice.fx.dispatch_trace import make_fx
    from mortice.fx.drawing import draw
    from mortice.fx.graph import Graph
    from mortice.fx.graph_module import GraphModule
    from mortice.fx.immutable import ImmutableDict, ImmutableList
    from mortice.fx.interpreter import Interpreter, Transformer
    from mortice.fx.node import Node, has_side_effect, map_aggregate, map_arg
    from mortice.fx.proxy import Attribute, Proxy, TraceError, TracerBase
    from mortice.fx.tracer import PH, Tracer, symbolic_trace, wrap

_HOMES = {
    "Attribute": "proxy",
    "CodeGen": "codegen",
    "Graph": "graph",
    "GraphModule": "graph_module",
    "ImmutableDict": "immutable",
    "ImmutableList": "immutable",
    "Interpreter": "interpreter",
    "Node": "node",
    "PH": "tracer",
    "Proxy": "proxy",
    "PyTreeCodeGen": "codegen",
    "PythonCode": "codegen",
    "TraceError": "proxy",
    "Tracer": "tracer",
    "TracerBase": "proxy",
    "Transformer": "interpreter",
    "draw": "drawing",
    "has_side_effect": "node",
    "make_fx": "dispatch_trace",
    "map_aggregate": "node",
    "map_arg": "node",
    "symbolic_trace": "tracer",
    "wrap": "tracer",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'mortice.fx' has no attribute {name!r}")
    value = getattr(import_module(f"mortice.fx.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
