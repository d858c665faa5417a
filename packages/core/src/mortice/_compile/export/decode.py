"""An exported program from JSON.

What is read is data: names are looked up among operators, dtypes and a few functions, and sizes are
read as arithmetic.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from mortice._base.errors import ExportError, MorticeError
from mortice._capture.fake import FakeTensorMode
from mortice._capture.fake_array import FakeArray
from mortice._compile.export.encode import FORMAT, FUNCTIONS
from mortice._compile.export.expressions import read
from mortice._compile.export.guards import InputGuards, TensorGuard, ValueGuard
from mortice._compile.export.program import CallSpec, ExportedProgram
from mortice._compile.export.signature import (
    Argument,
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from mortice._dispatch.modes import overload_of
from mortice._dispatch.operator import find
from mortice._types import dtypes, layout
from mortice._types.device import Device
from mortice._types.symbolic_env import Guard, ShapeEnv
from mortice._types.symbolic_expr import const
from mortice.fx import Graph, GraphModule
from mortice.utils.pytree import LEAF, TreeSpec


def decode(
    data: Any,
    state_dict: dict[str, Any],
    constants: dict[str, Any],
    example: Any = None,
) -> ExportedProgram:
    """The program; ExportError says what in the data is not as it must be."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else type(data).__name__
        raise ExportError(
            f"the program is of format {found!r}; this version of mortice reads format {FORMAT}."
        )
    try:
        return _Decoder(data).program(state_dict, constants, example)
    except MorticeError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, AssertionError) as error:
        raise ExportError(
            f"the program's description is damaged: {type(error).__name__}: {error}"
        ) from error


class _Decoder:
    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.env = ShapeEnv()
        self.mode = FakeTensorMode(self.env, allow_non_fake_inputs=True)
        self.symbols: dict[str, Any] = {}
        self.nodes: dict[str, Any] = {}

    def program(
        self, state_dict: dict[str, Any], constants: dict[str, Any], example: Any
    ) -> ExportedProgram:
        ranges = {
            n: (a or 0, float("inf") if b is None else b)
            for n, (a, b) in self.data["ranges"].items()
        }
        self._make_symbols(ranges)
        renamed = {n: ranges[n] for n in self.symbols if n in ranges}
        graph = self._graph()
        signature = ExportGraphSignature(
            tuple(self._input(*x) for x in self.data["inputs"]),
            tuple(self._output(*x) for x in self.data["outputs"]),
        )
        call = self.data["call"]
        spec = CallSpec(
            tuple(map(str, call["names"])),
            self._structure(call["in"]),
            self._structure(call["out"]),
        )
        guards = InputGuards(
            tuple(map(self._guard, self.data["guards"])),
            {self.symbols[n].symbol: bounds for n, bounds in renamed.items()},
            tuple(self._relation(*x) for x in self.data["relations"]),
        )
        module = GraphModule(None, graph, "ExportedGraph")
        return ExportedProgram(module, signature, state_dict, constants, guards, spec, example)

    def _make_symbols(self, ranges: Mapping[str, tuple[float, float]]) -> None:
        for name, hint in self.data["symbols"]:
            low, high = ranges.get(name, (0, float("inf")))
            most = None if high == float("inf") else int(high)
            if name.startswith("f"):
                made = self.env.unbacked_float() if hint is None else self.env.floating(float(hint))
            elif hint is None:
                made = self.env.unbacked(int(low), most)
            else:
                made = self.env.size(int(hint), min=int(low), max=most)
            self.symbols[name] = made

    # -- graph -------------------------------------------------------------------------------------

    def _graph(self) -> Graph:
        graph = Graph()
        for entry in self.data["nodes"]:
            node = graph.create_node(
                entry["op"],
                self._target(entry["op"], entry["target"]),
                tuple(map(self.value, entry["args"])),
                {k: self.value(v) for k, v in entry.get("kwargs", {}).items()},
                entry["name"],
            )
            self.nodes[entry["name"]] = node
            if "val" in entry:
                node.meta["val"] = self._shown(entry["val"])
            if "stack" in entry:
                node.meta["stack"] = str(entry["stack"])
        graph.lint()
        return graph

    def _target(self, op: str, target: str) -> Any:
        if op in ("placeholder", "output"):
            return target
        if op != "call_function":
            raise ExportError(f"a saved program has no nodes of kind {op!r}")
        if target.startswith("python::"):
            name = target.removeprefix("python::")
            if name not in FUNCTIONS:
                raise ExportError(f"a saved program may not call the function {name!r}")
            return getattr(operator, name)
        namespace = target.partition("::")[0]
        found = find(target)
        if found is None:
            raise ExportError(
                f"the program calls the operator {target}, which is not there. Install or import the package "
                f"that defines the namespace {namespace!r}."
            )
        return overload_of(found)

    def value(self, x: Any) -> Any:
        if not isinstance(x, dict):
            return x
        ((kind, inner),) = x.items()
        return _VALUES[kind](self, inner)

    def _size(self, x: Any) -> Any:
        return read(x, self.symbols)

    def _shown(self, x: Any) -> Any:
        if "items" in x:
            return tuple(self._shown(i) for i in x["items"])
        if "value" in x:
            return self.value(x["value"])
        shape = tuple(map(self._size, x["shape"]))
        stride = tuple(map(self._size, x["stride"]))
        device = Device(x["device"])
        made = self.mode.wrap(
            FakeArray(self.mode, shape, dtypes.by_name(x["dtype"]), device, stride)
        )
        return made.requires_grad_() if x["grad"] else made

    # -- signature ---------------------------------------------------------------------------------

    def _argument(self, x: dict[str, Any]) -> Argument:
        if "tensor" in x:
            return TensorArgument(x["tensor"])
        if "constant" in x:
            return ConstantArgument(x["constant"], self.value(x["value"]))
        return SymIntArgument(x["size"])

    def _input(self, kind: str, arg: Any, target: Any, persistent: Any) -> InputSpec:
        return InputSpec(InputKind(kind), self._argument(arg), target, persistent)

    def _output(self, kind: str, arg: Any, target: Any) -> OutputSpec:
        return OutputSpec(OutputKind(kind), self._argument(arg), target)

    def _guard(self, x: dict[str, Any]) -> TensorGuard | ValueGuard:
        if "value" in x:
            return ValueGuard(x["path"], self.value(x["value"]))
        sizes = tuple(map(self._size, x["sizes"]))
        return TensorGuard(x["path"], dtypes.by_name(x["dtype"]), x["device"], sizes)

    def _relation(self, left: str, relation: str, right: str, where: str) -> Guard:
        if relation not in ("==", "!=", "<", "<=", ">", ">="):
            raise ExportError(f"unknown relation {relation!r} in the program's guards")
        return Guard(self._expression(left), relation, self._expression(right), where)

    def _expression(self, source: str) -> Any:
        found = self._size(source)
        if type(found) in (int, float):
            return const(int(found))
        return found.expr

    def _structure(self, x: Any) -> TreeSpec:
        if x is None:
            return LEAF
        name, context, children = x
        cls: Any = {"tuple": tuple, "list": list, "dict": dict}[name]
        specs = tuple(map(self._structure, children))
        keys = None if context is None else tuple(map(self.value, context))
        return TreeSpec(cls, keys, specs, sum(s.num_leaves for s in specs))


def _node(d: _Decoder, name: str) -> Any:
    if name not in d.nodes:
        raise ExportError(f"a node of the program uses {name!r}, which no node before it is")
    return d.nodes[name]


_VALUES: dict[str, Callable[[_Decoder, Any], Any]] = {
    "node": _node,
    "float": lambda d, x: float(x),
    "complex": lambda d, x: complex(d.value(x[0]), d.value(x[1])),
    "tuple": lambda d, x: tuple(map(d.value, x)),
    "list": lambda d, x: list(map(d.value, x)),
    "dict": lambda d, x: {d.value(k): d.value(v) for k, v in x},
    "size": lambda d, x: d._size(x),
    "dtype": lambda d, x: dtypes.by_name(x),
    "device": lambda d, x: Device(x),
    "memory_format": lambda d, x: _by_name(layout.MEMORY_FORMATS, x),
    "layout": lambda d, x: _by_name(layout.LAYOUTS, x),
}


def _by_name(choices: Any, name: str) -> Any:
    found = next((x for x in choices if x.name == name), None)
    if found is None:
        raise ExportError(f"unknown memory format or layout {name!r}")
    return found
