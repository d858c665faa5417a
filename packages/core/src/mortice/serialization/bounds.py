"""Bounds on what a file may ask for, each raisable by its name.

Every bound has one default, chosen so that real checkpoints pass and no small file can make the
reader use more than about 1 GiB or a second. Raise one where it is needed::

    mortice.load(path, limits={"depth": 5000})
    with mortice.serialization.limits(objects_memory=4 << 30): ...
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from mortice._base.errors import nearest
from mortice.errors import InvalidValue

# name -> (default, what it bounds)
BOUNDS: dict[str, tuple[int, str]] = {
    "records": (1_000_000, "records in one file"),
    "pickle_bytes": (1 << 30, "bytes of one pickle"),
    "objects_memory": (512 << 20, "bytes of Python objects that one pickle may make"),
    "depth": (200, "containers inside each other"),
    "expansion": (1000, "nodes of the data written out as a tree, per opcode of its pickle"),
    "cycles": (0, "1 accepts data that contains itself"),
    "inflate_ratio": (100, "bytes out of a compressed record per byte in"),
    "device_types": (16, "different device types that one file may name"),
    "dims": (64, "dimensions of one tensor"),
}


class Limits:
    """One value per name of `BOUNDS`, read as attributes."""

    __slots__ = tuple(BOUNDS)

    records: int
    pickle_bytes: int
    objects_memory: int
    depth: int
    expansion: int
    cycles: int
    inflate_ratio: int
    device_types: int
    dims: int

    def __init__(self, **values: int) -> None:
        for name, (default, _) in BOUNDS.items():
            setattr(self, name, default)
        self._set(values)

    def _set(self, values: Mapping[str, int]) -> None:
        for name, value in values.items():
            if name not in BOUNDS:
                raise InvalidValue(
                    f"there is no limit {name!r}.{nearest(name, BOUNDS)} "
                    f"The limits are: {', '.join(BOUNDS)}."
                )
            if type(value) is not int or value < 0:
                raise InvalidValue(f"limit {name!r} is a whole number >= 0, not {value!r}.")
            setattr(self, name, value)

    def with_(self, values: Mapping[str, int]) -> Limits:
        """A copy with ``values`` changed. Raises InvalidValue for an unknown name."""
        copy = Limits(**{name: getattr(self, name) for name in BOUNDS})
        copy._set(values)
        return copy

    def __repr__(self) -> str:
        return f"Limits({', '.join(f'{name}={getattr(self, name)}' for name in BOUNDS)})"


def hint(name: str) -> str:
    """What to type to raise limit ``name``."""
    return (
        f"If you trust the file, raise the limit by its name: "
        f'mortice.load(..., limits={{"{name}": N}}).'
    )


_local = threading.local()


def current() -> Limits:
    """The limits in force on this thread."""
    found = getattr(_local, "limits", None)
    return found if found is not None else Limits()


@contextmanager
def limits(**values: int) -> Generator[Limits, None, None]:
    """Limits for all loads of this thread inside the block. Names are those of `BOUNDS`."""
    before = getattr(_local, "limits", None)
    _local.limits = current().with_(values)
    try:
        yield _local.limits
    finally:
        _local.limits = before
