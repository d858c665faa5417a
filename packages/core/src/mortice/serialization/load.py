"""Loading: a file becomes objects, and nothing in it is run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from mortice.errors import CheckpointError, InvalidValue
from mortice.serialization import bounds, options
from mortice.serialization.checkpoint import Checkpoint
from mortice.serialization.inspection import unsafe_globals
from mortice.serialization.materialize import Materializer
from mortice.serialization.reader import open_checkpoint
from mortice.serialization.safetensors_files import is_safetensors, load_safetensors
from mortice.serialization.source import Source
from mortice.serialization.specs import StorageRef
from mortice.serialization.storage_reader import StorageReader
from mortice.serialization.tags import Placement

_PICKLE_ARGS = ("encoding", "errors", "fix_imports")


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    verify: bool | None = None,
    limits: Mapping[str, int] | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Load what `save` or torch.save wrote to ``f``, a path or a file object.

    Args:
        f: path, or file object with read, seek and tell. A path ending in ``.safetensors`` is read
            with the safetensors library.
        map_location: where storages go: None (where the file says), a device or its name, a dict
            from location to location, or a function (storage, location) -> storage or None.
        weights_only: True (the default) runs no code from the file. False unpickles it with
            Python's pickle, which lets the file do anything, and warns.
        mmap: map the file and read tensors when they are used. Needs a path.
        verify: check the checksums of the data; by default when it is read anyway, so not of data
            that is mapped.
        limits: bounds to raise, by name (`mortice.serialization.limits`).
        pickle_module: with weights_only=False, the module to unpickle with instead of pickle.
        pickle_load_args: ``encoding``: how byte strings from Python 2 are decoded ("utf-8"; "bytes"
            leaves them).

    Raises:
        CheckpointError: the file is damaged, unsafe or not understood; says where in it.
        InvalidValue: the arguments do not fit each other.
    """
    unknown = [name for name in pickle_load_args if name not in _PICKLE_ARGS]
    if unknown:
        raise InvalidValue(f"load() got an unknown argument {unknown[0]!r}.")
    if is_safetensors(f):
        return load_safetensors(f, map_location)
    weights_only = weights_only is None or bool(weights_only)
    if weights_only and pickle_module is not None:
        raise InvalidValue(
            "pickle_module goes with weights_only=False only, which lets the file run anything and "
            "must be asked for by name. Leave pickle_module out for a file of tensors."
        )
    encoding = pickle_load_args.get("encoding", "utf-8")
    source = Source(f)
    try:
        if not weights_only:
            from mortice.serialization.unsafe import load_unsafe

            return load_unsafe(source, map_location, pickle_module, encoding)
        if mmap and source.real_path is None:
            raise InvalidValue("mmap=True needs a path: a file object cannot be mapped.")
        bounds_ = bounds.current().with_(limits or {})
        verify_all = True if verify is None else verify
        checkpoint = open_checkpoint(
            source,
            bounds_,
            encoding=encoding,
            verify=verify_all,
            default_big=_default_big(),
        )
        if mmap and checkpoint.container is None:
            raise CheckpointError(
                "mmap=True with a file in the legacy format, which cannot be mapped",
                path=source.path,
                fix="Load it without mmap, and save it again for the next time.",
            )
        made = materialize(
            checkpoint,
            map_location,
            mapped=bool(mmap),
            verify=verify_all if not mmap else bool(verify),
        )
        source.leave()
        return made
    finally:
        source.close()


def materialize(checkpoint: Checkpoint, map_location: Any, *, mapped: bool, verify: bool) -> Any:
    """The objects of an opened checkpoint."""
    from mortice.serialization.tensors import TensorFactory, from_buffer, meta_storage

    placement = Placement(map_location)
    locations = {ref.location for ref in checkpoint.storages.values()}
    kinds = {location.partition(":")[0] for location in locations}
    most = checkpoint.limits.device_types
    if len(kinds) > most:
        raise checkpoint.refuse(
            f"{len(kinds)} types of device, over the limit of {most}", bounds.hint("device_types")
        )
    reader = StorageReader(checkpoint, mapped=mapped, verify=verify)

    def read(ref: StorageRef) -> np.ndarray | None:
        return reader.read(ref) if placement.wants_data(ref.location) else None

    def place(buffer: np.ndarray | None, ref: StorageRef) -> Any:
        if buffer is None:
            return meta_storage(ref.nbytes)
        return placement.place(from_buffer(buffer), ref.location)

    with checkpoint.bounded_recursion():
        return Materializer(checkpoint, TensorFactory(place), read).run()


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The full names in a checkpoint that `load` would refuse, in order of first sight.

    Nothing of the file is loaded or run, but for functions marked safe already: they are called
    where the file sets attributes on what they make, to learn its class.
    """
    source = Source(f)
    try:
        return unsafe_globals(source)
    finally:
        source.close()


def _default_big() -> bool:
    endianness = options.get_default_load_endianness()
    if endianness is options.LoadEndianness.NATIVE:
        return sys.byteorder == "big"
    return endianness is options.LoadEndianness.BIG
