"""Loading with ``weights_only=False``: the file may run anything, as Python's pickle lets it.

Names of PyTorch are made by the same rules as in safe loading; every other name is imported and
called as the file says. Only for files whose author one would let run programs here.
"""

from __future__ import annotations

import io
import pickle
import warnings
from typing import Any

from mortice._tensor.tensor import Tensor
from mortice.errors import CheckpointError
from mortice.serialization import bounds, rebuild
from mortice.serialization.checkpoint import Checkpoint
from mortice.serialization.formats import python3_name
from mortice.serialization.materialize import Materializer
from mortice.serialization.names import Names
from mortice.serialization.naming import ours
from mortice.serialization.reader import open_frame
from mortice.serialization.source import Source
from mortice.serialization.specs import Global, Spec, StorageClass
from mortice.serialization.storage_reader import StorageReader
from mortice.serialization.tags import Placement
from mortice.serialization.unpickler import Unpickler


class UnsafeLoadWarning(UserWarning):
    """A file is loaded that may run programs."""


def load_unsafe(source: Source, map_location: Any, pickle_module: Any, encoding: str) -> Any:
    """Unpickle a checkpoint with ``pickle_module`` (default: pickle)."""
    warnings.warn(
        f"loading {source.path or 'a file object'} with weights_only=False: whoever made the file "
        "can run programs here. If it holds tensors only, leave the argument out.",
        UnsafeLoadWarning,
        stacklevel=4,
    )
    checkpoint = open_frame(source, bounds.current())
    loader = _Loader(checkpoint, map_location)
    base = (pickle_module or pickle).Unpickler

    class UnsafeUnpickler(base):  # type: ignore[misc, valid-type]
        def find_class(self, module: str, name: str) -> Any:
            return loader.find_class(super().find_class, module, name)

        def persistent_load(self, pid: Any) -> Any:
            return loader.persistent_load(pid)

    try:
        made = UnsafeUnpickler(io.BytesIO(checkpoint.pickle), encoding=encoding).load()
    except (pickle.UnpicklingError, EOFError) as error:
        raise CheckpointError(
            f"cannot be unpickled ({error})", path=source.path, record="data.pkl"
        ) from error
    source.leave()
    return made


class _Loader:
    """Makes tensors as soon as the pickle calls for them."""

    def __init__(self, checkpoint: Checkpoint, map_location: Any) -> None:
        from mortice.serialization.tensors import TensorFactory, from_buffer

        self._checkpoint = checkpoint
        placement = Placement(map_location)
        reader = StorageReader(checkpoint, mapped=False, verify=True)
        self._maker = Materializer(
            checkpoint,
            TensorFactory(lambda buffer, ref: placement.place(from_buffer(buffer), ref.location)),
            reader.read,
        )
        # A stand-in for the restricted unpickler: what the rules ask for arguments and errors.
        self._rules = Unpickler(
            b"",
            Names(),
            None,
            lambda problem, offset, fix: checkpoint.refuse(problem, fix, record="data.pkl"),
            checkpoint.limits,
        )
        self._specs: dict[int, Any] = {}
        self._kept: list[Any] = []

    def find_class(self, default: Any, module: str, name: str) -> Any:
        module, name = python3_name(module, name)
        full = f"{module}.{name}"
        constant = rebuild.CONSTANTS.get(full)
        if constant is not None:
            return self._made(constant)
        if full in rebuild.STORAGES:
            return rebuild.STORAGES[full]
        rule = rebuild.RULES.get(full)
        if rule is None or not module.startswith("torch"):
            if full in ("torch.Tensor", "torch._tensor.Tensor"):
                return self._made(Global("torch.Tensor", 0, rule=rebuild.RULES["torch.Size"]))
            counterpart = ours(full)
            return default(module, name) if counterpart is None else counterpart
        made = Global(full, 0, rule=rule)

        def call(*args: Any) -> Any:
            return self._made(rule(self._rules, self._described(args)))

        self._specs[id(call)] = made
        self._kept.append(call)
        return call

    def persistent_load(self, pid: Any) -> Any:
        handler = self._checkpoint.storage_handler
        if handler is None:
            raise self._checkpoint.refuse("a persistent id where no storage can be")
        return self._made(handler(self._rules, self._described(pid)))

    def _made(self, spec: Any) -> Any:
        """The object for a description, remembered so that rules can be given it again."""
        if not isinstance(spec, Spec) or isinstance(spec, StorageClass):
            return spec
        value = self._maker.resolve(spec)
        self._specs[id(value)] = spec
        self._kept.append(value)
        return value

    def _described(self, value: Any) -> Any:
        """Arguments as the rules want them: descriptions where the pickle has objects."""
        found = self._specs.get(id(value))
        if found is not None:
            return found
        if isinstance(value, type) and issubclass(value, Tensor):
            return Global(f"{value.__module__}.{value.__qualname__}", 0, target=value)
        if type(value) is tuple:
            return tuple(self._described(item) for item in value)
        return value
