"""What the inputs and outputs of an exported graph are."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any


class InputKind(enum.Enum):
    USER_INPUT = "user_input"
    PARAMETER = "parameter"
    BUFFER = "buffer"
    CONSTANT_TENSOR = "constant_tensor"


class OutputKind(enum.Enum):
    USER_OUTPUT = "user_output"
    BUFFER_MUTATION = "buffer_mutation"
    PARAMETER_MUTATION = "parameter_mutation"
    USER_INPUT_MUTATION = "user_input_mutation"


@dataclasses.dataclass(frozen=True)
class TensorArgument:
    """A node whose value is a tensor."""

    name: str


@dataclasses.dataclass(frozen=True)
class SymIntArgument:
    """A symbolic size, as an expression over the program's symbols."""

    name: str


@dataclasses.dataclass(frozen=True)
class ConstantArgument:
    """A value that is the same in every call."""

    name: str
    value: Any


Argument = TensorArgument | SymIntArgument | ConstantArgument


@dataclasses.dataclass(frozen=True)
class InputSpec:
    """An input of the graph; ``target`` is the dotted name of a parameter, buffer or constant."""

    kind: InputKind
    arg: Argument
    target: str | None = None
    persistent: bool | None = None


@dataclasses.dataclass(frozen=True)
class OutputSpec:
    """An output of the graph; ``target`` is the name of the buffer, parameter or input written to."""

    kind: OutputKind
    arg: Argument
    target: str | None = None


@dataclasses.dataclass(frozen=True)
class ExportGraphSignature:
    """The specs of the graph's inputs and outputs, in order."""

    input_specs: tuple[InputSpec, ...]
    output_specs: tuple[OutputSpec, ...]

    def _inputs(self, kind: InputKind) -> list[InputSpec]:
        return [s for s in self.input_specs if s.kind is kind]

    def _outputs(self, kind: OutputKind) -> dict[str, str]:
        return {s.arg.name: s.target or "" for s in self.output_specs if s.kind is kind}

    @property
    def parameters(self) -> list[str]:
        return [s.target or "" for s in self._inputs(InputKind.PARAMETER)]

    @property
    def buffers(self) -> list[str]:
        return [s.target or "" for s in self._inputs(InputKind.BUFFER)]

    @property
    def non_persistent_buffers(self) -> set[str]:
        return {s.target or "" for s in self._inputs(InputKind.BUFFER) if s.persistent is False}

    @property
    def lifted_tensor_constants(self) -> list[str]:
        return [s.target or "" for s in self._inputs(InputKind.CONSTANT_TENSOR)]

    @property
    def user_inputs(self) -> list[Any]:
        """Names of the inputs that a call gives, and the values of those that are constants."""
        return [_shown(s.arg) for s in self._inputs(InputKind.USER_INPUT)]

    @property
    def user_outputs(self) -> list[Any]:
        return [_shown(s.arg) for s in self.output_specs if s.kind is OutputKind.USER_OUTPUT]

    @property
    def inputs_to_parameters(self) -> dict[str, str]:
        """Placeholder's name -> the parameter's."""
        return {s.arg.name: s.target or "" for s in self._inputs(InputKind.PARAMETER)}

    @property
    def inputs_to_buffers(self) -> dict[str, str]:
        return {s.arg.name: s.target or "" for s in self._inputs(InputKind.BUFFER)}

    @property
    def inputs_to_lifted_tensor_constants(self) -> dict[str, str]:
        return {s.arg.name: s.target or "" for s in self._inputs(InputKind.CONSTANT_TENSOR)}

    @property
    def buffers_to_mutate(self) -> dict[str, str]:
        """Output's name -> the buffer that it is the new value of."""
        return self._outputs(OutputKind.BUFFER_MUTATION)

    @property
    def parameters_to_mutate(self) -> dict[str, str]:
        return self._outputs(OutputKind.PARAMETER_MUTATION)

    @property
    def user_inputs_to_mutate(self) -> dict[str, str]:
        return self._outputs(OutputKind.USER_INPUT_MUTATION)

    def __str__(self) -> str:
        lines = ["inputs"]
        lines += [f"  {s.arg.name}: {s.kind.name}{_of(s.target)}" for s in self.input_specs]
        lines.append("outputs")
        lines += [f"  {s.arg.name}: {s.kind.name}{_of(s.target)}" for s in self.output_specs]
        return "\n".join(lines)


def _shown(arg: Argument) -> Any:
    return arg.value if isinstance(arg, ConstantArgument) else arg.name


def _of(target: str | None) -> str:
    return f" {target}" if target else ""
