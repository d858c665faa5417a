"""Conversion between PyTorch's checkpoints and safetensors files."""

from __future__ import annotations

import os
from typing import Any

from mortice._base.errors import nearest
from mortice._tensor.tensor import Tensor
from mortice.errors import InvalidValue
from mortice.serialization.load import load
from mortice.serialization.save import save

#: What a target's name may end in: the first is safetensors' format, the others are PyTorch's.
SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")


def convert(source: str, target: str, *, key: str = "", force: bool = False) -> int:
    """Convert between ``.safetensors`` and ``.pt`` files; returns how many tensors.

    The end of ``target``'s name, one of ``SUFFIXES``, says which it becomes. ``key`` picks a part of the source by its path, such as ``model.encoder``. An existing target
    is an error but with ``force``.
    """
    suffix = os.path.splitext(target)[1]
    if suffix not in SUFFIXES:
        raise InvalidValue(
            f"the name {target!r} does not say what to write: end it in {', '.join(SUFFIXES)}."
        )
    if os.path.exists(target) and not force:
        raise InvalidValue(f"{target!r} exists. Give another name, or --force to replace it.")
    data = _part(load(source, map_location="cpu"), key)
    save(data, target)
    return sum(isinstance(t, Tensor) for t in data.values()) if isinstance(data, dict) else 1


def _part(data: Any, key: str) -> Any:
    """The part of nested dicts under ``key``; a key that itself has dots is found too."""
    if not key:
        return data
    if isinstance(data, dict):
        if key in data:
            return data[key]
        for name in sorted((n for n in data if isinstance(n, str)), key=len, reverse=True):
            if key.startswith(f"{name}."):
                return _part(data[name], key[len(name) + 1 :])
        names = [n for n in data if isinstance(n, str)]
        hint = nearest(key, names) or f" There are: {', '.join(names[:20])}."
        raise InvalidValue(f"the file has no part {key!r}.{hint}")
    raise InvalidValue(f"there is no part {key!r} inside a value of type {type(data).__name__}.")
