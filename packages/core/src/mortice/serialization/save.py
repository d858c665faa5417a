"""Saving: objects become a file that PyTorch reads, put in place in one step."""

from __future__ import annotations

import os
import sys
from typing import Any

from mortice.errors import InvalidValue
from mortice.serialization import formats, options
from mortice.serialization.pickler import Pickler
from mortice.serialization.writer import ZipWriter, replacing

_FORMAT_VERSION = b"1"
_VERSION = b"3\n"


def save(
    obj: Any,
    f: Any,
    pickle_module: Any = None,
    pickle_protocol: int = formats.PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
    *,
    durable: bool = False,
) -> None:
    """Save ``obj`` to ``f``, a path or a file object open for writing bytes.

    The file is PyTorch's: torch.load(weights_only=True) reads it if ``obj`` is made of tensors,
    Parameters, numbers, strings and containers of them. Tensors that share memory share it after
    loading; a view is saved with all of its storage.

    A path is replaced in one step: whenever the process dies, the old file or the new one is
    there. ``durable`` also waits until the disk has it.

    Raises:
        InvalidValue: something in ``obj`` cannot be saved, or an argument does not fit.
        InvalidState: one storage is saved under two dtypes.
        OSError: the file cannot be written.
    """
    if pickle_protocol != formats.PROTOCOL:
        raise InvalidValue(
            f"checkpoints are written in pickle protocol {formats.PROTOCOL}, not "
            f"{pickle_protocol!r}: no other loads with weights_only=True."
        )
    if pickle_module is not None and getattr(pickle_module, "__name__", "") != "pickle":
        raise InvalidValue("pickle_module has no use here: mortice writes pickles by itself.")
    if not _use_new_zipfile_serialization:
        raise InvalidValue("the legacy format is read, but not written. Leave the argument out.")
    # Everything that can fail on the object fails here, before a file is touched.
    content = _Content(obj)
    if isinstance(f, (str, bytes, os.PathLike)):
        path = os.fsdecode(f)
        if path.endswith(".safetensors"):
            from mortice.serialization.safetensors_files import save_safetensors

            save_safetensors(obj, path)
            return
        with replacing(path, durable) as file:
            content.write(file, root_name(path), not _disable_byteorder_record)
        return
    if not hasattr(f, "write"):
        raise InvalidValue(
            f"save takes a path or a file object with write, not {type(f).__name__}."
        )
    content.write(f, "archive", not _disable_byteorder_record)
    if hasattr(f, "flush"):
        f.flush()


def root_name(path: str) -> str:
    """The folder inside the zip file: the file's name without its last suffix."""
    name = os.path.basename(path)
    stem = name.rpartition(".")[0] or name
    plain = stem.isascii() and stem.isprintable() and "\\" not in stem and stem not in (".", "..")
    return stem if plain else "archive"


class _Content:
    """An object pickled, with the storages that it refers to."""

    def __init__(self, obj: Any) -> None:
        from mortice.serialization.tags import location_tag
        from mortice.serialization.tensors import Exporter

        exporter = Exporter(location_tag)
        self.pickle = Pickler(exporter).dump(obj)
        self.storages = exporter.storages

    def write(self, file: Any, root: str, byteorder: bool) -> None:
        from mortice.serialization.tensors import host_buffer

        writer = ZipWriter(file, root, checksums=options.get_crc32_options())
        writer.add("data.pkl", self.pickle)
        writer.add(".format_version", _FORMAT_VERSION)
        writer.add(".storage_alignment", str(formats.ALIGNMENT).encode())
        if byteorder:
            writer.add("byteorder", sys.byteorder.encode())
        skip = options.skipping() is not None
        for key, storage in self.storages.items():
            name = f"data/{key}"
            if skip:
                writer.add_hole(name, storage.nbytes())
            else:
                writer.add(name, host_buffer(storage).data)
        writer.add("version", _VERSION)
        writer.finish()
