"""The format before the zip container: three small pickles, the data, the keys, the storages.

In order: a magic number, a protocol version, facts about the writing system; a pickle of the data;
a pickle of the list of storage keys; for each key the number of elements (int64, little endian) and
the bytes. There are no checksums.
"""

from __future__ import annotations

import struct
from typing import Any

from mortice.errors import CheckpointError
from mortice.serialization import formats
from mortice.serialization.bounds import Limits
from mortice.serialization.checkpoint import Checkpoint
from mortice.serialization.names import Names
from mortice.serialization.source import Source
from mortice.serialization.specs import StorageRef
from mortice.serialization.unpickler import Unpickler

MAGIC = 0x1950A86A20F9469CFC6C
_MAGIC_PICKLE = b"\x80\x02\x8a\n" + MAGIC.to_bytes(10, "little") + b"."
_VERSION = 1001
_COUNT = struct.Struct("<q")

# What else people find under a .pt name: first bytes -> (what it is, what to do).
_OTHERS: tuple[tuple[bytes, str, str], ...] = (
    (b"<", "a web page", "The download gave an error page; download it again."),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself", "Run: git lfs pull"),
    (b"\x93NUMPY", "a numpy .npy file", "Load it with numpy.load."),
    (b"\x89HDF", "an HDF5 file", "Load it with h5py."),
    (b"GGUF", "a GGUF file", "Convert it to safetensors first."),
    (b"\x1f\x8b", "a gzip file", "Decompress it first: gunzip."),
    (b"BZh", "a bzip2 file", "Decompress it first: bunzip2."),
    (b"\xfd7zXZ", "an xz file", "Decompress it first: unxz."),
    (b"\x28\xb5\x2f\xfd", "a zstd file", "Decompress it first: unzstd."),
    (b"PK\x05\x06", "an empty zip file", "It holds nothing."),
)


def open_legacy(
    source: Source, limits: Limits, names: Names, encoding: str, head: bytes
) -> Checkpoint:
    """Read and validate all of a legacy checkpoint but its storages. Raises CheckpointError."""
    made = Checkpoint(source, limits, names, "legacy")
    if not head.startswith(_MAGIC_PICKLE):
        raise _not_a_checkpoint(made, head)
    # Where the pickles end is known only when they are read. A mapping costs no memory for the
    # storages behind them.
    pickles: Any = (
        source.map_to_read() if source.real_path is not None else source.read(0, source.size)
    )
    at = len(_MAGIC_PICKLE)
    version, at = _plain(made, pickles, at, "protocol version")
    if version != _VERSION:
        raise made.refuse(f"legacy protocol version {version!r}; {_VERSION} is the only one")
    _, at = _plain(made, pickles, at, "system information")

    def check_size(u: Unpickler, ref: StorageRef) -> None:
        if ref.nbytes > source.size:
            raise u.refuse(f"storage {ref.key!r} of {ref.nbytes} bytes in a file of {source.size}")

    made.storage_handler = made.persistent(check_size)
    data = Unpickler(
        pickles,
        names,
        made.storage_handler,
        _place(made, at),
        limits,
        start=at,
        encoding=encoding,
    )
    made.set_data(data)
    made.pickle = pickles[data.start : data.end]
    keys, at = _plain(made, pickles, data.end, "list of storages")
    _find_storages(made, keys, at)
    return made


def _plain(made: Checkpoint, pickles: Any, at: int, what: str) -> tuple[Any, int]:
    """A pickle of the frame: numbers, strings and containers, no names."""
    names = Names()
    unpickler = Unpickler(pickles, names, None, _place(made, at), made.limits, start=at)
    value = unpickler.load()
    if names.seen:
        raise made.refuse(f"the {what} names {names.seen[0]}; it is plain data")
    return value, unpickler.end


def _place(made: Checkpoint, start: int) -> Any:
    def place(problem: str, offset: int, fix: str) -> CheckpointError:
        return CheckpointError(problem, path=made.source.path, file_offset=start + offset, fix=fix)

    return place


def _find_storages(made: Checkpoint, keys: Any, at: int) -> None:
    source = made.source
    if type(keys) is not list:
        raise made.refuse("the list of storages is not a list")
    seen: set[str] = set()
    for key in keys:
        ref = made.storages.get(key) if type(key) is str else None
        if ref is None:
            raise made.refuse(
                f"the list of storages names {key if type(key) is str else type(key).__name__!r}, "
                "which no tensor uses",
                "The file is damaged; copy or download it again.",
            )
        if key in seen:
            raise made.refuse(f"storage {key!r} is listed twice")
        seen.add(key)
        (count,) = _COUNT.unpack(source.read(at, _COUNT.size))
        at += _COUNT.size
        itemsize = formats.DTYPES[ref.dtype][0] if ref.typed else 1
        if count * itemsize != ref.nbytes:
            raise CheckpointError(
                f"storage {key!r} holds {count} elements, its tensors say {ref.nbytes // itemsize}",
                path=source.path,
                file_offset=at - _COUNT.size,
            )
        if at + ref.nbytes > source.size:
            raise CheckpointError(
                f"storage {key!r} has {ref.nbytes} bytes, {source.size - at} are left",
                path=source.path,
                file_offset=at,
                fix="The file was cut short; copy or download it again.",
            )
        made.add_place(key, at)
        at += ref.nbytes
    missing = [key for key in made.storages if key not in seen]
    if missing:
        raise made.refuse(f"storage {missing[0]!r} is used but not listed")
    source.finish(at)


def _not_a_checkpoint(made: Checkpoint, head: bytes) -> CheckpointError:
    if not head:
        return made.refuse("an empty file", "The writing or the download failed; do it again.")
    if made.source.size > 262 and made.source.read(257, 5) == b"ustar":
        return made.refuse(
            "a tar checkpoint, as PyTorch wrote before 2017", "Load it with PyTorch and save again."
        )
    length = int.from_bytes(head[:8], "little") if len(head) >= 9 else 0
    if head[8:9] == b"{" and 2 <= length <= made.source.size - 8:
        return made.refuse(
            "a safetensors file under another name",
            "Give it the suffix .safetensors, or load it with the safetensors library.",
        )
    for start, what, fix in _OTHERS:
        if head.lstrip().startswith(start) or head.startswith(start):
            return made.refuse(what, fix)
    if head[:1] == b"\x80":
        return made.refuse(
            "a bare pickle, not a checkpoint",
            "It can run programs when unpickled. Ask its author for a file by torch.save.",
        )
    return made.refuse(
        f"not a checkpoint: it begins with {head[:8]!r}",
        "A checkpoint is a zip file by torch.save or mortice.save, or its legacy form.",
    )
