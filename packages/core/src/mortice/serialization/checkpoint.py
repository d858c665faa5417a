"""A checkpoint opened for reading: its container, its data as descriptions, its storages.

Both formats end up here as the same thing: a root of plain data, the storages it refers to, and a
way to fill a buffer with the bytes of one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from mortice.errors import CheckpointError
from mortice.serialization import formats
from mortice.serialization.bounds import Limits
from mortice.serialization.container import Container
from mortice.serialization.names import Names
from mortice.serialization.rebuild import location
from mortice.serialization.source import Source
from mortice.serialization.specs import Call, Global, StorageClass, StorageRef
from mortice.serialization.unpickler import Unpickler, describe
from mortice.serialization.validate import validate

_KEY = re.compile(r"[A-Za-z0-9_]{1,64}\Z")

# Names that may stand as values: classes whose only harm is to be called, which nobody does.
VALUE_CLASSES = frozenset(
    (
        "collections.OrderedDict",
        "collections.Counter",
        "builtins.set",
        "builtins.frozenset",
        "builtins.bytes",
        "builtins.bytearray",
        "builtins.complex",
        "torch.Tensor",
        "torch.Size",
        "torch.device",
        "torch.nn.parameter.Parameter",
    )
)


class Checkpoint:
    """What both formats offer: ``root``, ``storages`` by key, ``calls``, ``names``, ``big``.

    ``big`` says that the bytes of storages are in big-endian order.
    """

    __slots__ = (
        "_records",
        "big",
        "calls",
        "container",
        "format",
        "limits",
        "names",
        "opcodes",
        "pickle",
        "root",
        "source",
        "storage_handler",
        "storages",
    )

    def __init__(self, source: Source, limits: Limits, names: Names, format_: str) -> None:
        self.source = source
        self.limits = limits
        self.names = names
        self.format = format_
        self.big = False
        self.container: Container | None = None
        self.root: Any = None
        self.calls: list[Call] = []
        self.opcodes = 0
        self.storages: dict[str, StorageRef] = {}
        self.pickle = b""
        # Makes a description of a persistent id: (unpickler, id) -> StorageRef.
        self.storage_handler: Any = None
        # Where a storage's bytes lie in the file, for the legacy format.
        self._records: dict[str, int] = {}

    # -- errors --------------------------------------------------------------------------------

    def refuse(
        self, problem: str, fix: str = "", *, record: str | None = None, offset: int | None = None
    ) -> CheckpointError:
        return CheckpointError(
            problem, path=self.source.path, record=record, offset=offset, fix=fix
        )

    def at(self, offset: int, problem: str, fix: str = "") -> CheckpointError:
        """The error for byte ``offset`` of the pickle with the data."""
        return self.refuse(problem, fix, record="data.pkl", offset=offset)

    @contextmanager
    def bounded_recursion(self) -> Generator[None, None, None]:
        """Turns a walk that is too deep for this interpreter into the error about depth."""
        try:
            yield
        except RecursionError:
            raise self.refuse(
                "containers inside each other, deeper than Python's recursion limit",
                "If you trust the file, raise it too: sys.setrecursionlimit.",
                record="data.pkl",
            ) from None

    # -- reading -------------------------------------------------------------------------------

    def set_data(self, unpickler: Unpickler) -> None:
        """Take over what ``unpickler`` reads, validated."""
        self.root = unpickler.load()
        self.calls = unpickler.calls
        self.opcodes = unpickler.opcodes

        def refuse(problem: str, fix: str) -> CheckpointError:
            return self.refuse(problem, fix, record="data.pkl")

        def values(name: Global) -> bool:
            return name.rule is None or name.name in VALUE_CLASSES

        validate(self.root, self.opcodes, self.limits, refuse, values)

    def persistent(self, check_size: Callable[[Unpickler, StorageRef], None]) -> Any:
        """The handler of persistent ids; ``check_size`` compares a new one with the file."""

        def handler(u: Unpickler, pid: Any) -> StorageRef:
            ref = self._storage(u, pid)
            known = self.storages.get(ref.key)
            if known is None:
                check_size(u, ref)
                self.storages[ref.key] = ref
                return ref
            if known.dtype != ref.dtype or known.typed != ref.typed:
                raise u.refuse(
                    f"storage {ref.key!r} is given as {known.dtype} and as {ref.dtype}",
                    "Save one of the tensors as a copy: tensor.clone().",
                )
            if known.nbytes != ref.nbytes or known.location != ref.location:
                raise u.refuse(f"storage {ref.key!r} is given with two sizes or two locations")
            return known

        return handler

    def _storage(self, u: Unpickler, pid: Any) -> StorageRef:
        if (
            type(pid) is not tuple
            or len(pid) not in (5, 6)
            or pid[0] not in ("storage", b"storage")
        ):
            raise u.refuse(
                f"the persistent id {describe(pid)} is no ('storage', class, key, location, size)"
            )
        _, cls, key, where, numel = pid[:5]
        if len(pid) == 6 and pid[5] is not None:
            raise u.refuse(
                "a view of a storage, as files before 2017 had them",
                "Load it with PyTorch and save it again.",
            )
        if type(cls) is not StorageClass:
            raise u.refuse(f"a storage whose class is {describe(cls)}")
        if type(key) is bytes and key.isascii():
            key = key.decode("ascii")
        if type(key) is not str or _KEY.match(key) is None:
            shown = repr(key[:80]) if type(key) is str else describe(key)
            raise u.refuse(f"the storage key {shown} is not plain letters and digits")
        if type(numel) is not int or not 0 <= numel < 1 << 62:
            raise u.refuse(
                f"a storage of {numel if type(numel) is int else describe(numel)} elements"
            )
        unit = formats.DTYPES[cls.dtype][1] if cls.typed else 0
        return StorageRef(
            key,
            cls.dtype,
            location(u, where),
            numel * cls.itemsize,
            cls.typed,
            unit,
            u.at - u.start,
        )

    def add_place(self, key: str, at: int) -> None:
        """Note where a storage of the legacy format lies in the file."""
        self._records[key] = at

    def place_of(self, ref: StorageRef) -> int | None:
        """The byte of the file where the storage lies, or None if it is compressed."""
        if self.container is None:
            return self._records[ref.key]
        record = self.container.records[f"data/{ref.key}"]
        return record.data_offset if record.stored else None

    def read_storage(self, ref: StorageRef, view: memoryview, verify: bool) -> None:
        """Fill ``view`` with the bytes of a storage, as they are in the file."""
        if self.container is None:
            self.source.read_into(self._records[ref.key], view)
        else:
            self.container.read_into(self.container.records[f"data/{ref.key}"], view, verify)

    def verify_mapped(self, ref: StorageRef, view: memoryview) -> None:
        """Check the checksum of a storage that is mapped."""
        if self.container is not None:
            self.container.verify_mapped(self.container.records[f"data/{ref.key}"], view)
