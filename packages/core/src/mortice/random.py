"""Seeds and states of the default random number generators.

Numbers come from Philox-4x32-10 by (seed, offset, element index), the same on every device. They
are not the numbers that PyTorch gives for the same seed.
"""

from __future__ import annotations

import collections.abc
from contextlib import contextmanager
from typing import Any

from mortice._tensor import generator as _generators
from mortice._tensor.generator import Generator
from mortice._types.device import Device

__all__ = [
    "Generator",
    "default_generator",
    "fork_rng",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_rng_state",
]

default_generator = _generators.default()


def manual_seed(seed: int) -> Generator:
    """Seed the default generators of all devices, and return the CPU's."""
    return _generators.seed_all(seed)


def seed() -> int:
    """Seed the default generators with a number of the operating system, and return it."""
    value = default_generator.seed()
    _generators.seed_all(value)
    return value


def initial_seed() -> int:
    """The seed of the CPU's default generator."""
    return default_generator.initial_seed()


def get_rng_state(device: Any = "cpu") -> Any:
    """State of a device's default generator as a uint8 tensor."""
    return _generators.default(Device(device)).get_state()


def set_rng_state(new_state: Any, device: Any = "cpu") -> None:
    """Let a device's default generator go on from a state that ``get_rng_state`` returned."""
    _generators.default(Device(device)).set_state(new_state)


@contextmanager
def fork_rng(
    devices: Any = None, enabled: bool = True, **options: Any
) -> collections.abc.Generator[None, None, None]:
    """Run a block and then put the default generators back where they were.

    ``devices`` names devices beside the CPU; left out, all that have been used are put back.
    """
    if not enabled:
        yield
        return
    known = _generators._defaults.by_device  # pyright: ignore[reportPrivateUsage]
    where = {default_generator.device: default_generator}
    if devices is None:
        where.update(known)
    else:
        where.update((d, _generators.default(d)) for d in map(Device, devices))
    saved = {d: g.clone_state() for d, g in where.items()}
    try:
        yield
    finally:
        for d, g in where.items():
            g.set_state(saved[d].get_state())
