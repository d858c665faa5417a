"""Generators of random numbers: a seed, and an offset that counts the draws made so far."""

from __future__ import annotations

import threading
from collections.abc import Generator as Yields
from contextlib import contextmanager
from typing import Any

import numpy as np

from mortice._base.errors import DeviceError, InvalidState
from mortice._types.device import CPU, Device, indexed

#: The seed of a Generator that was given none (PyTorch's choice too).
DEFAULT_SEED = 67280421310721
_MASK = (1 << 64) - 1


class Generator:
    """The state behind random operators: ``Generator(device="cpu")``.

    Every operator takes one or more offsets; the numbers depend on seed, offset and element index
    alone, so they are the same on all devices.
    """

    __slots__ = ("__weakref__", "_device", "_lock", "_offset", "_seed")

    def __init__(self, device: Any = "cpu") -> None:
        self._device = indexed(Device(device))
        self._seed = DEFAULT_SEED
        self._offset = 0
        self._lock = threading.Lock()

    @property
    def device(self) -> Device:
        return self._device

    def manual_seed(self, seed: int) -> Generator:
        """Start again from ``seed``, an integer from -2**63 to 2**64 - 1."""
        self._seed = checked_seed(seed)
        self._offset = 0
        return self

    def seed(self) -> int:
        """Start again from a seed of the operating system, and return it."""
        seed = _random_seed()
        self.manual_seed(seed)
        return seed

    def initial_seed(self) -> int:
        """The seed last set."""
        return self._seed

    def take(self, count: int = 1) -> tuple[int, int]:
        """(seed, first of ``count`` fresh offsets); what a random kernel calls."""
        with self._lock:
            offset = self._offset
            self._offset = (offset + count) & _MASK
        return self._seed, offset

    def position(self) -> tuple[int, int]:
        """(seed, offset of the next draw)."""
        return self._seed, self._offset

    def standing_at(self, seed: int, offset: int) -> Generator:
        """A generator of its own at another place."""
        other = Generator(self._device)
        other._seed, other._offset = seed, offset & _MASK
        return other

    @contextmanager
    def standing(self, seed: int, offset: int) -> Yields[None]:
        """Within, draws begin at another place; what is drawn there does not count."""
        before = self._seed, self._offset
        self._seed, self._offset = seed, offset
        try:
            yield
        finally:
            self._seed, self._offset = before

    def get_offset(self) -> int:
        return self._offset

    def set_offset(self, offset: int) -> None:
        self._offset = offset & _MASK

    def get_state(self) -> Any:
        """Seed and offset as a uint8 tensor of 16 bytes."""
        from mortice._tensor.make import wrap
        from mortice._types.dtypes import uint8

        return wrap(np.array([self._seed, self._offset], "<u8").view(np.uint8), uint8)

    def set_state(self, state: Any) -> Generator:
        """Go on from what ``get_state`` returned."""
        if not hasattr(state, "_k") or state.dtype.name != "uint8":
            raise TypeError("set_state(): expected a uint8 tensor as get_state() returns it.")
        if state.numel() != 16:
            raise InvalidState(
                f"RNG state is wrong size: expected 16 bytes, found {state.numel()}. States of "
                "PyTorch's generators cannot be continued here."
            )
        seed, offset = np.ascontiguousarray(state.cpu()._a).view("<u8").tolist()
        self._seed, self._offset = seed, offset
        return self

    def clone_state(self) -> Generator:
        """A generator of its own that goes on from here."""
        copy = Generator(self._device)
        copy._seed, copy._offset = self._seed, self._offset
        return copy

    @contextmanager
    def lent(self) -> Yields[Generator, None, None]:
        """A generator on the CPU that draws in this one's stead; what it drew counts here."""
        stand_in = Generator(CPU)
        stand_in._seed, stand_in._offset = self._seed, self._offset
        yield stand_in
        self._seed, self._offset = stand_in._seed, stand_in._offset

    def __reduce__(self) -> Any:
        return _rebuild, (str(self._device), self._seed, self._offset)

    def __repr__(self) -> str:
        return f"<Generator on {self._device}, seed {self._seed}, offset {self._offset}>"


def _rebuild(device: str, seed: int, offset: int) -> Generator:
    made = Generator(device)
    made._seed, made._offset = seed, offset  # pyright: ignore[reportPrivateUsage]
    return made


def checked_seed(seed: Any) -> int:
    value = int(seed)
    if not -(1 << 63) <= value <= _MASK:
        raise InvalidState(
            f"Overflow when unpacking long: a seed is an integer from -2**63 to 2**64 - 1, not {value}."
        )
    return value & _MASK


def _random_seed() -> int:
    import os

    return int.from_bytes(os.urandom(7), "little")


class _Defaults:
    """The generators that are used where none is given: one per device, one seed for all."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.seed: int | None = None
        self.by_device: dict[Device, Generator] = {}


_defaults = _Defaults()


def default(device: Device = CPU) -> Generator:
    """The generator of a device, made at first use; seeded as the others are."""
    device = indexed(device)
    found = _defaults.by_device.get(device)
    if found is None:
        with _defaults.lock:
            if _defaults.seed is None:
                _defaults.seed = _random_seed()
            found = _defaults.by_device.setdefault(
                device, Generator(device).manual_seed(_defaults.seed)
            )
    return found


def seed_all(seed: int) -> Generator:
    """Seed the default generators of all devices, also of those not used yet."""
    _defaults.seed = checked_seed(seed)
    for generator in list(_defaults.by_device.values()):
        generator.manual_seed(seed)
    return default(CPU)


def chosen(generator: Any, device: Device) -> Generator:
    """The generator given, checked against the device of the numbers, or the device's own."""
    if generator is None:
        return default(device)
    if not isinstance(generator, Generator):
        raise TypeError(f"expected a mortice.Generator, not {type(generator).__name__}")
    if generator.device.type != device.type:
        raise DeviceError(
            f"Expected a '{device.type}' device type for generator but found "
            f"'{generator.device.type}'. Make one with mortice.Generator(device='{device.type}')."
        )
    return generator
