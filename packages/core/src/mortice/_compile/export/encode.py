"""An exported program as JSON, its tensors aside."""

from __future__ import annotations

import math
from typing import Any

from mortice._base.errors import ExportError
from mortice._compile.export.guards import TensorGuard
from mortice._compile.export.program import ExportedProgram
from mortice._compile.export.signature import ConstantArgument, TensorArgument
from mortice._tensor.tensor import Tensor
from mortice._types.device import Device
from mortice._types.dtypes import DType
from mortice._types.layout import Layout, MemoryFormat
from mortice.fx.node import Node
from mortice.utils.pytree import TreeSpec

FORMAT = 1
#: Python functions that graphs call, beside operators.
FUNCTIONS = ("getitem", "add", "sub", "mul", "floordiv", "mod", "neg")


def encode(program: ExportedProgram) -> dict[str, Any]:
    """The program as dicts, lists, strings and numbers."""
    signature = program.graph_signature
    call = program.call_spec
    return {
        "format": FORMAT,
        "symbols": _symbols(program),
        "nodes": [_node(n) for n in program.graph.nodes],
        "inputs": [
            [s.kind.value, _argument(s.arg), s.target, s.persistent] for s in signature.input_specs
        ],
        "outputs": [[s.kind.value, _argument(s.arg), s.target] for s in signature.output_specs],
        "call": {
            "names": list(call.names),
            "in": _structure(call.in_spec),
            "out": _structure(call.out_spec),
        },
        "guards": [_guard(g) for g in program.guards.inputs],
        "ranges": {n: [_bound(a), _bound(b)] for n, (a, b) in program.guards.ranges.items()},
        "relations": [
            [g.left.source(), g.relation, g.right.source(), g.where]
            for g in program.guards.relations
        ],
    }


def _bound(x: float) -> int | None:
    return None if math.isinf(x) else int(x)


def _symbols(program: ExportedProgram) -> list[list[Any]]:
    """(name, size in the example or null) of every symbol in the metadata, in order."""
    found: dict[str, Any] = {}

    def note(x: Any) -> None:
        if getattr(x, "_is_symbolic", False):
            for name in sorted(x.symbols):
                found.setdefault(name, x.env.hints.get(name))

    for node in program.graph.nodes:
        for value in _flat(node.meta.get("val")):
            for x in (*value.shape, *value.stride()) if isinstance(value, Tensor) else (value,):
                note(x)
    return [[n, hint] for n, hint in sorted(found.items(), key=lambda p: (p[0][0], int(p[0][1:])))]


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [x for one in value for x in _flat(one)]  # pyright: ignore[reportUnknownVariableType]
    return [value]


# -- graph -----------------------------------------------------------------------------------------


def _node(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = {
        "op": node.op,
        "name": node.name,
        "target": _target(node),
        "args": [value_of(a) for a in node.args],
    }
    if node.kwargs:
        found["kwargs"] = {k: value_of(v) for k, v in node.kwargs.items()}
    if "val" in node.meta:
        found["val"] = _shown(node.meta["val"])
    if node.stack_trace:
        found["stack"] = node.stack_trace
    return found


def _target(node: Node) -> str:
    if isinstance(node.target, str):
        return node.target
    if hasattr(node.target, "_schema"):
        return node.target.name()
    name = node.target.__name__
    if node.target.__module__ != "_operator" or name not in FUNCTIONS:
        raise ExportError(
            f"node {node.name} calls {node.target!r}, which is no operator; only programs of operators are "
            "saved. Make it one with mortice.library.custom_op."
        )
    return f"python::{name}"


def value_of(x: Any) -> Any:
    """An argument: plain values as they are, others as a dict of one entry that says what it is."""
    if x is None or type(x) in (bool, int, str):
        return x
    if isinstance(x, float):
        return x if math.isfinite(x) else {"float": repr(x)}
    if isinstance(x, complex):
        return {"complex": [value_of(x.real), value_of(x.imag)]}
    if isinstance(x, Node):
        return {"node": x.name}
    if isinstance(x, tuple):
        return {"tuple": [value_of(i) for i in x]}
    if isinstance(x, list):
        return {"list": [value_of(i) for i in x]}
    if isinstance(x, dict):
        return {"dict": [[value_of(k), value_of(v)] for k, v in x.items()]}
    if getattr(x, "_is_symbolic", False):
        return {"size": x.source()}
    named = _named(x)
    if named is None:
        raise ExportError(
            f"a {type(x).__name__} is an argument of the program and cannot be saved: {x!r:.80}"
        )
    return named


def _named(x: Any) -> dict[str, str] | None:
    if isinstance(x, DType):
        return {"dtype": x.name}
    if isinstance(x, Device):
        return {"device": str(x)}
    if isinstance(x, MemoryFormat):
        return {"memory_format": x.name}
    return {"layout": x.name} if isinstance(x, Layout) else None


def _size(x: Any) -> Any:
    return x.source() if getattr(x, "_is_symbolic", False) else x


def _shown(value: Any) -> Any:
    """Metadata of a result: a tensor's, or of several, or a number."""
    if isinstance(value, Tensor):
        return {
            "dtype": value.dtype.name,
            "device": str(value.device),
            "shape": [_size(n) for n in value.shape],
            "stride": [_size(n) for n in value.stride()],
            "grad": value.requires_grad,
        }
    if isinstance(value, (tuple, list)):
        return {"items": [_shown(x) for x in value]}  # pyright: ignore[reportUnknownVariableType]
    return {"value": value_of(value)}


# -- signature -------------------------------------------------------------------------------------


def _argument(arg: Any) -> dict[str, Any]:
    if isinstance(arg, TensorArgument):
        return {"tensor": arg.name}
    if isinstance(arg, ConstantArgument):
        return {"constant": arg.name, "value": value_of(arg.value)}
    return {"size": arg.name}


def _guard(guard: Any) -> dict[str, Any]:
    if isinstance(guard, TensorGuard):
        return {
            "path": guard.path,
            "dtype": guard.dtype.name,
            "device": guard.device,
            "sizes": [_size(n) for n in guard.sizes],
        }
    return {"path": guard.path, "value": value_of(guard.value)}


_STRUCTURES = {"tuple": tuple, "list": list, "dict": dict}


def _structure(spec: TreeSpec) -> Any:
    if spec.type is None:
        return None
    name = next((n for n, t in _STRUCTURES.items() if t is spec.type), None)
    if name is None:
        raise ExportError(
            f"arguments and results of a saved program are tuples, lists and dicts; {spec.type.__qualname__} "
            "is none of them, and loading it would need its code. Give or return a dict."
        )
    context = None if spec.context is None else [value_of(k) for k in spec.context]
    return [name, context, [_structure(c) for c in spec.children]]
