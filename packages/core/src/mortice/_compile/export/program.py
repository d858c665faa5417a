"""An exported program."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from mortice._base.errors import InvalidState
from mortice._compile.decompositions import core_aten_decompositions
from mortice._compile.export.guards import InputGuards
from mortice._compile.export.signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from mortice._compile.export.unlift import unlifted
from mortice.fx import Graph, GraphModule, Node
from mortice.fx.dispatch_trace import retrace


@dataclasses.dataclass(frozen=True)
class CallSpec:
    """Names of the arguments; the structures of (args, kwargs) and of the result."""

    names: tuple[str, ...]
    in_spec: Any
    out_spec: Any


class ExportedProgram:
    """A graph of functional ATen operators, the tensors that it uses, and what its calls must be like.

    Attributes:
        graph_module: runs the graph on all its inputs: parameters, buffers, constants, then the call's.
        graph_signature: what each input and output is.
        state_dict: parameters and persistent buffers by name.
        constants: other tensors by name.
        guards: what ``module()`` checks before it runs.
        call_spec: the structure of arguments and result.
        example_inputs: (args, kwargs) that it was exported with, or None.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        graph_signature: ExportGraphSignature,
        state_dict: dict[str, Any],
        constants: dict[str, Any],
        guards: InputGuards,
        call_spec: CallSpec,
        example_inputs: tuple[tuple[Any, ...], dict[str, Any]] | None = None,
    ) -> None:
        self.graph_module = graph_module
        self.graph_signature = graph_signature
        self.state_dict = state_dict
        self.constants = constants
        self.guards = guards
        self.call_spec = call_spec
        self.example_inputs = example_inputs

    @property
    def graph(self) -> Graph:
        return self.graph_module.graph

    @property
    def range_constraints(self) -> dict[str, tuple[float, float]]:
        """Symbol -> (least, greatest) size."""
        return dict(self.guards.ranges)

    # -- tensors -------------------------------------------------------------------------------

    def _tensor(self, name: str) -> Any:
        return self.state_dict[name] if name in self.state_dict else self.constants[name]

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        return ((n, self._tensor(n)) for n in self.graph_signature.parameters)

    def parameters(self) -> Iterator[Any]:
        return (x for _, x in self.named_parameters())

    def named_buffers(self) -> Iterator[tuple[str, Any]]:
        return ((n, self._tensor(n)) for n in self.graph_signature.buffers)

    def buffers(self) -> Iterator[Any]:
        return (x for _, x in self.named_buffers())

    # -- running -------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise InvalidState(
            "an ExportedProgram is not called itself; call what its module() returns: program.module()(...)"
        )

    def module(self, check_guards: bool = True) -> GraphModule:
        """A module that is called as the exported one was.

        It checks its inputs first (InputGuardError), and writes to buffers and inputs as the program
        did. Its tensors are the program's own.
        """
        return unlifted(self, check_guards)

    def run_decompositions(self, decomp_table: Mapping[Any, Any] | None = None) -> ExportedProgram:
        """The program with the operators of a table taken apart; by default down to Core ATen."""
        table = core_aten_decompositions() if decomp_table is None else decomp_table
        gm = retrace(self.graph_module, table)
        outputs = gm.graph.output_node().args[0]
        specs = tuple(
            OutputSpec(old.kind, _renamed(old.arg, new), old.target)
            for old, new in zip(self.graph_signature.output_specs, outputs)
        )
        signature = dataclasses.replace(self.graph_signature, output_specs=specs)
        gm.class_name = self.graph_module.class_name
        return ExportedProgram(
            gm,
            signature,
            self.state_dict,
            self.constants,
            self.guards,
            self.call_spec,
            self.example_inputs,
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> ExportedProgram:
        gm = GraphModule(None, copy.deepcopy(self.graph, memo), self.graph_module.class_name)
        return ExportedProgram(
            gm,
            self.graph_signature,
            copy.deepcopy(self.state_dict, memo),
            copy.deepcopy(self.constants, memo),
            self.guards,
            self.call_spec,
            self.example_inputs,
        )

    def __str__(self) -> str:
        ranges = "".join(f"\n  {n}: [{a:g}, {b:g}]" for n, (a, b) in self.guards.ranges.items())
        relations = "".join(f"\n  {g.source()}" for g in self.guards.relations)
        return (
            f"ExportedProgram:\n{self.graph_module.print_readable(print_output=False)}\n"
            f"{self.graph_signature}\nranges{ranges or ' none'}\nrelations{relations or ' none'}\n"
        )


def _renamed(old: Any, new: Any) -> Any:
    if isinstance(new, Node):
        return TensorArgument(new.name)
    return (
        SymIntArgument(str(new))
        if isinstance(old, SymIntArgument)
        else ConstantArgument(old.name, new)
    )


__all__ = ["CallSpec", "ExportedProgram", "InputKind", "OutputKind"]
