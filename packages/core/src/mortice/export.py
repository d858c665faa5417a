"""Whole programs as one graph with a signature, for other runtimes and for later.

    batch = mortice.export.Dim("batch")
    program = mortice.export.export(model, (x,), dynamic_shapes={"x": {0: batch}})
    program.module()(other)

    mortice.export.save(program, "model.mpt")
    mortice.export.load("model.mpt").module()(other)

PyTorch keeps these names in ``torch.export``. The files are mortice's own.
"""

from __future__ import annotations

from typing import Any

from mortice._compile.export.dims import Dim, dims
from mortice._compile.export.program import ExportedProgram
from mortice._compile.export.signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from mortice._compile.export.trace import export


def save(program: ExportedProgram, f: Any) -> None:
    """Write a program to ``f``, a path or a file object open for writing bytes.

    ExportError if something in it is not data: functions that are no operators, or classes in the
    structure of arguments and results.
    """
    from mortice._compile.export import archive
    from mortice.serialization import save as checkpoint

    archive.write(program, f, checkpoint)


def load(f: Any, *, map_location: Any = None) -> ExportedProgram:
    """Read a program that ``save`` wrote, from a path or a file object; no code of the file's runs.

    ``map_location`` is as for ``mortice.load``. ExportError or CheckpointError if the file is not what
    it should be.
    """
    from mortice._compile.export import archive
    from mortice.serialization import load as checkpoint

    return archive.read(f, lambda file: checkpoint(file, map_location=map_location))


__all__ = [
    "ConstantArgument",
    "Dim",
    "ExportGraphSignature",
    "ExportedProgram",
    "InputKind",
    "InputSpec",
    "OutputKind",
    "OutputSpec",
    "SymIntArgument",
    "TensorArgument",
    "dims",
    "export",
    "load",
    "save",
]
