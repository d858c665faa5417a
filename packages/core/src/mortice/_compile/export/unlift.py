"""From an exported program to a module: tensors become attributes again."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mortice._compile.export.guards import InputGuards
from mortice._compile.export.signature import InputKind, OutputKind
from mortice.fx import Graph, GraphModule, Node, attributes
from mortice.fx.codegen import PyTreeCodeGen

if TYPE_CHECKING:
    from mortice._compile.export.program import ExportedProgram


class _CheckedCall(PyTreeCodeGen):
    """A call whose inputs are checked before anything is read of them."""

    guards: InputGuards | None

    def process_inputs(self, *args: Any, **kwargs: Any) -> Any:
        leaves = super().process_inputs(*args, **kwargs)
        if self.guards is not None:
            self.guards(*leaves)
        return leaves

    def prologue(self, placeholders: list[str], names: Any) -> list[str]:
        lines = super().prologue(placeholders, names)
        if self.guards is not None and placeholders:
            lines.append(f"{names.add('_check_inputs', self.guards)}({', '.join(placeholders)})")
        return lines


def unlifted(program: ExportedProgram, check_guards: bool) -> GraphModule:
    """A GraphModule with the program's call, writes and tensors."""
    graph = Graph()
    signature = program.graph_signature
    placeholders = program.graph.find_nodes(op="placeholder")
    nodes: dict[Node, Any] = {}
    pairs = list(zip(placeholders, signature.input_specs))
    inputs = [n for n, s in pairs if s.kind is InputKind.USER_INPUT]
    for old in inputs:
        nodes[old] = graph.node_copy(old)
    for old, spec in pairs:
        if spec.kind is not InputKind.USER_INPUT:
            nodes[old] = graph.get_attr(spec.target or "")
            nodes[old].meta = dict(old.meta)
    result = graph.graph_copy(program.graph, nodes)
    outputs = _write_back(graph, program, nodes, list(result))
    call = program.call_spec
    codegen = _CheckedCall(list(call.names), call.in_spec, call.out_spec)
    codegen.guards = program.guards if check_guards else None
    graph.set_codegen(codegen)
    graph.output(tuple(outputs))
    return GraphModule(_root(program), graph, "ExportedModule")


def _write_back(
    graph: Graph, program: ExportedProgram, nodes: dict[Node, Any], results: list[Any]
) -> list[Any]:
    """Copies of new values into buffers and inputs; the results that are the user's."""
    copy_ = import_module("mortice.ops").aten.copy_.default
    signature = program.graph_signature
    by_target = {
        (s.kind is InputKind.USER_INPUT, s.target or n.name): nodes[n]
        for n, s in zip(program.graph.find_nodes(op="placeholder"), signature.input_specs)
    }
    outputs: list[Any] = []
    for spec, value in zip(signature.output_specs, results):
        if spec.kind is OutputKind.USER_OUTPUT:
            outputs.append(value)
            continue
        of_user = spec.kind is OutputKind.USER_INPUT_MUTATION
        graph.call_function(copy_, (by_target[of_user, spec.target or ""], value))
    return outputs


def _module_class() -> type | None:
    """The Module class, if its package is in use."""
    return getattr(sys.modules.get("mortice_nn"), "Module", None)


def _root(program: ExportedProgram) -> Any:
    tensors = {**program.state_dict, **program.constants}
    base = _module_class()
    if base is None:
        return tensors
    root: Any = base()
    for name, tensor in tensors.items():
        attributes.assign(root, name, tensor, base)
    return root
