"""From a traced module to an exported program, whose tensors are inputs, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mortice._base.errors import ExportError
from mortice._capture.fake_array import is_fake
from mortice._compile.export.guards import InputGuards
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
from mortice._tensor.tensor import Tensor
from mortice.fx import Graph, GraphModule, Node, attributes
from mortice.fx.codegen import PyTreeCodeGen
from mortice.utils import pytree

_PREFIXES = {
    InputKind.PARAMETER: "p_",
    InputKind.BUFFER: "b_",
    InputKind.CONSTANT_TENSOR: "c_",
}


def lifted(gm: GraphModule, wanted: Any, mode: Any, guards: InputGuards) -> ExportedProgram:
    """The program of a trace: parameters, buffers and constants first among its inputs."""
    return _Lifting(gm, wanted, mode).program(guards)


class _Lifting:
    def __init__(self, gm: GraphModule, wanted: Any, mode: Any) -> None:
        self.gm = gm
        self.wanted = wanted
        self.mode = mode
        self.graph = Graph()
        self.nodes: dict[Node, Node] = {}
        self.specs: list[InputSpec] = []
        self.state: dict[str, Any] = {}
        self.constants: dict[str, Any] = {}
        self._by_target: dict[str, Node] = {}

    def program(self, guards: InputGuards) -> ExportedProgram:
        self._tensors()
        names = self._user_inputs()
        outputs, specs, structure = self._body(names)
        self.graph.output(tuple(outputs))
        self.graph.eliminate_dead_code()
        self.graph.lint()
        signature = ExportGraphSignature(tuple(self.specs), tuple(specs))
        call = CallSpec(tuple(self.wanted.names), self.wanted.spec, structure)
        example = (self.wanted.args, self.wanted.kwargs)
        module = GraphModule(None, self.graph, "ExportedGraph")
        return ExportedProgram(module, signature, self.state, self.constants, guards, call, example)

    # -- inputs --------------------------------------------------------------------------------

    def _tensors(self) -> None:
        mod = self.wanted.mod
        known: set[str] = set()
        if hasattr(mod, "named_parameters"):
            unsaved = _unsaved(mod)
            for name, tensor in mod.named_parameters():
                self._add(InputKind.PARAMETER, name, tensor)
                known.add(name)
            for name, tensor in mod.named_buffers():
                self._add(InputKind.BUFFER, name, tensor, name not in unsaved)
                known.add(name)
        for node in self.gm.graph.find_nodes(op="get_attr"):
            if node.target not in known and node.target not in self._by_target:
                tensor = attributes.fetch(self.gm, node.target)
                if is_fake(tensor):
                    raise ExportError(
                        f"the program uses a tensor without data, {node.target}, that is no argument."
                    )
                self._add(
                    InputKind.CONSTANT_TENSOR, node.target.lstrip("_"), tensor, alias=node.target
                )
        for node in self.gm.graph.find_nodes(op="get_attr"):
            self.nodes[node] = self._by_target[node.target]

    def _add(
        self,
        kind: InputKind,
        name: str,
        tensor: Any,
        persistent: bool | None = None,
        alias: str = "",
    ) -> None:
        node = self.graph.placeholder(_PREFIXES[kind] + name.replace(".", "_"))
        node.meta["val"] = self.mode.from_tensor(tensor).detach()
        self._by_target[alias or name] = node
        self.specs.append(InputSpec(kind, TensorArgument(node.name), name, persistent))
        if kind is InputKind.CONSTANT_TENSOR or persistent is False:
            self.constants[name] = tensor
        else:
            self.state[name] = tensor

    def _user_inputs(self) -> dict[Node, str]:
        """The call's inputs; node -> its name, for those that may be written to."""
        found: dict[Node, str] = {}
        for old in self.gm.graph.find_nodes(op="placeholder"):
            node = self.nodes[old] = self.graph.node_copy(old)
            found[node] = node.name
            value = node.meta["val"]
            arg: Argument = (
                TensorArgument(node.name)
                if isinstance(value, Tensor)
                else ConstantArgument(node.name, value)
            )
            self.specs.append(InputSpec(InputKind.USER_INPUT, arg))
        return found

    # -- outputs -------------------------------------------------------------------------------

    def _body(self, user: dict[Node, str]) -> tuple[list[Any], list[OutputSpec], Any]:
        written: list[tuple[OutputKind, str, Node]] = []
        result: Any = None
        for old in self.gm.graph.nodes:
            if old in self.nodes:
                continue
            if old.op == "output":
                result = old.args[0]
            elif _writes(old):
                place, value = (self.nodes[x] for x in old.all_input_nodes)
                written.append((*self._written(place, user), value))
            else:
                self.nodes[old] = self.graph.node_copy(old, self.nodes.__getitem__)
        leaves, structure = self._results(result)
        outputs: list[Any] = [node for _, _, node in written]
        specs = [
            OutputSpec(kind, TensorArgument(node.name), target) for kind, target, node in written
        ]
        for i, leaf in enumerate(leaves):
            value = self.nodes[leaf] if isinstance(leaf, Node) else leaf
            outputs.append(value)
            specs.append(OutputSpec(OutputKind.USER_OUTPUT, _argument(value, i)))
        return outputs, specs, structure

    def _results(self, result: Any) -> tuple[Sequence[Any], Any]:
        codegen = self.gm.graph._codegen
        if isinstance(codegen, PyTreeCodeGen):
            return result, codegen.out_spec
        return pytree.tree_flatten(_plain(result))

    def _written(self, place: Node, user: dict[Node, str]) -> tuple[OutputKind, str]:
        if place in user:
            return OutputKind.USER_INPUT_MUTATION, user[place]
        spec = next(s for s in self.specs if s.arg.name == place.name)
        if spec.kind is InputKind.CONSTANT_TENSOR:
            raise ExportError(
                f"the program writes to a tensor that is no argument, parameter or buffer ({spec.target}), whose "
                "state an exported program does not keep. Make it a buffer (self.register_buffer)."
            )
        kind = {
            InputKind.BUFFER: OutputKind.BUFFER_MUTATION,
            InputKind.PARAMETER: OutputKind.PARAMETER_MUTATION,
        }[spec.kind]
        return kind, spec.target or ""


def _plain(value: Any) -> Any:
    """Arguments of a node in ordinary containers, so that their structure is the program's."""
    if type(value) is tuple:
        return tuple(map(_plain, value))
    if isinstance(value, list):
        return [_plain(x) for x in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}  # pyright: ignore[reportUnknownVariableType]
    return value


def _argument(value: Any, position: int) -> Argument:
    if isinstance(value, Node):
        return TensorArgument(value.name)
    if getattr(value, "_is_symbolic", False):
        return SymIntArgument(str(value))
    return ConstantArgument(f"output_{position}", value)


def _writes(node: Node) -> bool:
    """The copies with which a trace ends."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and node.target.name() == "aten::copy_"


def _unsaved(mod: Any) -> set[str]:
    """Dotted names of the buffers that ``state_dict`` leaves out."""
    found: set[str] = set()
    for prefix, module in mod.named_modules():
        for name in getattr(module, "_non_persistent_buffers_set", ()):
            found.add(f"{prefix}.{name}" if prefix else name)
    return found
