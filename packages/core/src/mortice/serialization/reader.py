"""Opening a checkpoint: which of the two formats it is, and all of it but its storages read and validated."""

from __future__ import annotations

from mortice.serialization.bounds import Limits
from mortice.serialization.checkpoint import Checkpoint
from mortice.serialization.container import LOCAL_MAGIC, Container
from mortice.serialization.legacy import open_legacy
from mortice.serialization.names import Names
from mortice.serialization.source import Source
from mortice.serialization.specs import StorageRef
from mortice.serialization.unpickler import Unpickler

_SMALL_RECORD = 1024


def open_checkpoint(
    source: Source,
    limits: Limits,
    *,
    names: Names | None = None,
    encoding: str = "utf-8",
    verify: bool = True,
    default_big: bool = False,
) -> Checkpoint:
    """Read and validate all of a checkpoint but its storages. Raises CheckpointError."""
    names = names if names is not None else Names()
    head = source.read(0, min(source.size, 64))
    if not head.startswith(LOCAL_MAGIC):
        return open_legacy(source, limits, names, encoding, head)
    made = _open_zip(source, limits, names, verify, default_big)
    unpickler = Unpickler(
        made.pickle,
        names,
        made.storage_handler,
        lambda problem, offset, fix: made.at(offset, problem, fix),
        limits,
        encoding=encoding,
    )
    made.set_data(unpickler)
    extra = len(made.pickle) - unpickler.end
    if extra:
        raise made.at(unpickler.end, f"{extra} bytes after the pickle's STOP")
    return made


def open_frame(source: Source, limits: Limits) -> Checkpoint:
    """A checkpoint whose pickle is not interpreted (but in the legacy format, to find its end)."""
    head = source.read(0, min(source.size, 64))
    if head.startswith(LOCAL_MAGIC):
        return _open_zip(source, limits, Names(collect=True), True, False)
    return open_legacy(source, limits, Names(collect=True), "utf-8", head)


def _open_zip(
    source: Source, limits: Limits, names: Names, verify: bool, default_big: bool
) -> Checkpoint:
    made = Checkpoint(source, limits, names, "zip")
    container = made.container = Container(source, limits)
    if "constants.pkl" in container:
        raise made.refuse(
            "a TorchScript archive, which holds programs",
            "Load it with PyTorch and save its state_dict().",
            record="constants.pkl",
        )
    version = container.read("version", _SMALL_RECORD, verify).strip()
    if not version.isdigit() or not 1 <= int(version[:9]) <= 10:
        raise made.refuse(
            f"the version {version[:20]!r} is not one of 1 to 10",
            record="version",
            fix="It comes from a newer PyTorch, or is damaged.",
        )
    made.big = default_big
    if "byteorder" in container:
        order = container.read("byteorder", _SMALL_RECORD, verify)
        if order not in (b"little", b"big"):
            raise made.refuse(
                f"the byte order {order[:20]!r} is neither little nor big", record="byteorder"
            )
        made.big = order == b"big"

    def check_size(u: Unpickler, ref: StorageRef) -> None:
        record = container.records.get(f"data/{ref.key}")
        if record is None:
            raise u.refuse(
                f"there is no record 'data/{ref.key}' for a storage",
                "The file is incomplete; copy or download it again.",
            )
        if record.size != ref.nbytes:
            raise u.refuse(
                f"storage {ref.key!r} is given as {ref.nbytes} bytes, its record has {record.size}"
            )
        container.inflated_size(record)

    made.storage_handler = made.persistent(check_size)
    made.pickle = container.read("data.pkl", limits.pickle_bytes, verify)
    return made
