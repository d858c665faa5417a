"""The file of an exported program: a zip of its description as JSON and of its tensors.

    format          "mortice exported program"
    program.json    graph, signature, structures, guards
    state.pt        parameters and persistent buffers, a checkpoint
    constants.pt    other tensors
    example.pt      example inputs, if they are tensors, numbers and strings in plain containers

Nothing in it is code: loading looks names up among operators, dtypes and a few functions, and reads
checkpoints as ``mortice.load`` does by default.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable
from typing import Any

from mortice._base.errors import ExportError
from mortice._compile.export.decode import decode
from mortice._compile.export.encode import encode
from mortice._compile.export.program import ExportedProgram
from mortice._tensor.tensor import Tensor
from mortice.utils import pytree

MAGIC = b"mortice exported program\n"
#: No description is longer: one of 100,000 nodes is about 50 MB.
MOST_DESCRIPTION = 1 << 29
_CHECKPOINTS = ("state", "constants", "example")


def write(program: ExportedProgram, f: Any, save: Callable[[Any, Any], None]) -> None:
    """Write to a path or a file object; ``save(obj, file)`` writes a checkpoint."""
    description = json.dumps(encode(program), separators=(",", ":")).encode()
    parts = {
        "format": MAGIC,
        "program.json": description,
        "state.pt": _checkpoint(program.state_dict, save),
        "constants.pt": _checkpoint(program.constants, save),
    }
    if _is_plain(program.example_inputs):
        parts["example.pt"] = _checkpoint(program.example_inputs, save)
    if isinstance(f, (str, os.PathLike)):
        # In one step: whenever the process dies, the old file or the new one is there.
        temporary = f"{os.fspath(f)}.{os.getpid()}.part"
        try:
            with open(temporary, "wb") as file:
                _zip(parts, file)
            os.replace(temporary, f)
        finally:
            if os.path.exists(temporary):
                os.unlink(temporary)
    else:
        _zip(parts, f)


def _zip(parts: dict[str, bytes], file: Any) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, data in parts.items():
            # A fixed date: the same program gives the same bytes.
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)


def _checkpoint(obj: Any, save: Callable[[Any, Any], None]) -> bytes:
    buffer = io.BytesIO()
    save(obj, buffer)
    return buffer.getvalue()


def _is_plain(example: Any) -> bool:
    """Whether example inputs are what a checkpoint holds without anybody's classes."""
    if example is None:
        return False
    kinds = (bool, int, float, str, type(None))
    leaves, spec = pytree.tree_flatten(example)
    return _is_plain_structure(spec) and all(
        type(x) in kinds or isinstance(x, Tensor) for x in leaves
    )


def _is_plain_structure(spec: Any) -> bool:
    return spec.type in (None, tuple, list, dict) and all(map(_is_plain_structure, spec.children))


def read(f: Any, load: Callable[[Any], Any]) -> ExportedProgram:
    """Read from a path or a file object; ``load(file)`` reads a checkpoint."""
    try:
        with zipfile.ZipFile(f) as archive:
            _check_format(archive)
            description = _description(archive)
            found = {n: load(io.BytesIO(archive.read(f"{n}.pt"))) for n in _present(archive)}
    except zipfile.BadZipFile as error:
        raise ExportError(
            f"the file is no exported program, or is damaged: {error}. Programs are written by "
            "mortice.export.save; checkpoints are read by mortice.load."
        ) from error
    example = found.get("example")
    return decode(description, _tensors(found, "state"), _tensors(found, "constants"), example)


def _present(archive: zipfile.ZipFile) -> list[str]:
    return [n for n in _CHECKPOINTS if f"{n}.pt" in archive.namelist()]


def _check_format(archive: zipfile.ZipFile) -> None:
    if "format" not in archive.namelist() or archive.read("format") != MAGIC:
        raise ExportError(
            "the file is a zip but no exported program. Programs are written by mortice.export.save; "
            "checkpoints are read by mortice.load."
        )


def _description(archive: zipfile.ZipFile) -> Any:
    try:
        info = archive.getinfo("program.json")
    except KeyError:
        raise ExportError("the file has no program.json: it is damaged") from None
    if info.file_size > MOST_DESCRIPTION:
        raise ExportError(
            f"program.json is {info.file_size} bytes, more than the {MOST_DESCRIPTION} that are read"
        )
    try:
        return json.loads(archive.read(info))
    except (ValueError, RecursionError) as error:
        raise ExportError(f"program.json is damaged: {error}") from None


def _tensors(found: dict[str, Any], name: str) -> dict[str, Any]:
    tensors = found.get(name, {})
    if not isinstance(tensors, dict) or not all(
        isinstance(k, str) and isinstance(v, Tensor) for k, v in tensors.items()
    ):
        raise ExportError(f"{name}.pt must hold tensors by name: the file is damaged")
    return dict(tensors)
