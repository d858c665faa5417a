"""Tensors of torch to tensors of mortice and back, by way of numpy, with strides and offsets kept."""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any, NamedTuple

import numpy as np
import torch
from names import rebind, walk

import mortice

# dtypes that numpy has no name for travel as integers of the same width.
_CARRIER = {torch.bfloat16: torch.int16}
for _name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"):
    if hasattr(torch, _name):
        _CARRIER[getattr(torch, _name)] = torch.uint8


class Unsupported(Exception):
    """A sample holds something that has no counterpart (a sparse tensor, complex32, ...)."""


def dtype_to_mortice(dtype: torch.dtype) -> Any:
    return getattr(mortice, str(dtype).removeprefix("torch."))


def dtype_name(dtype: object) -> str:
    """``float32`` for both libraries' dtypes."""
    return str(dtype).rpartition(".")[2]


def _numpy_dtype(name: str) -> np.dtype[Any]:
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name))


class Layout(NamedTuple):
    """A private copy of a tensor's storage, and how the tensor lies in it."""

    flat: np.ndarray[Any, Any]
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @property
    def whole(self) -> bool:
        """Whether the tensor covers its storage from the first to the last element."""
        last = sum((n - 1) * s for n, s in zip(self.shape, self.stride, strict=True))
        return self.flat.size == 0 or (self.offset == 0 and last == self.flat.size - 1)

    def array(self) -> np.ndarray[Any, Any]:
        if 0 in self.shape:
            return np.empty(self.shape, dtype=self.flat.dtype)
        steps = [step * self.flat.itemsize for step in self.stride]
        return np.lib.stride_tricks.as_strided(self.flat, self.shape, steps)


def layout_of(tensor: torch.Tensor) -> Layout:
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise Unsupported(f"layout {tensor.layout}")
    if tensor.dtype is torch.complex32:
        raise Unsupported("complex32 is storage-only")
    plain = tensor.detach().resolve_conj().resolve_neg()
    flat = torch.empty(0, dtype=plain.dtype).set_(plain.untyped_storage()).clone()
    carrier = _CARRIER.get(flat.dtype)
    if carrier is not None:
        base = flat.view(carrier).numpy().view(_numpy_dtype(dtype_name(plain.dtype)))
    else:
        base = flat.numpy()
    return Layout(base, tuple(plain.shape), tuple(plain.stride()), plain.storage_offset())


@functools.cache
def _takes_ml_dtypes() -> bool:
    try:
        mortice.from_numpy(np.zeros(1, dtype=_numpy_dtype("bfloat16")))
    except TypeError:
        return False
    return True


def _from_numpy(array: np.ndarray[Any, Any], dtype: torch.dtype) -> Any:
    carrier = _CARRIER.get(dtype)
    if carrier is None or _takes_ml_dtypes():
        return mortice.from_numpy(array)
    plain = array.view(np.int16 if carrier is torch.int16 else np.uint8)
    return mortice.from_numpy(plain).view(dtype_to_mortice(dtype))


def tensor_to_mortice(tensor: torch.Tensor, bases: dict[int, Any]) -> Any:
    """``bases`` holds what was made of a storage, so that tensors that share one still do."""
    place = tensor.untyped_storage().data_ptr()
    layout = layout_of(tensor)
    if len(layout.shape) > 64:
        raise Unsupported("numpy stops at 64 dimensions")
    if (layout.whole and place not in bases) or 0 in layout.shape:
        ours = _from_numpy(layout.array(), tensor.dtype)
        bases.setdefault(place, ours)
    else:
        # A view into a larger storage stays one: as_strided and storage_offset() see it.
        if place not in bases or bases[place].dtype != dtype_to_mortice(tensor.dtype):
            bases[place] = _from_numpy(layout.flat, tensor.dtype)
        ours = bases[place].as_strided(layout.shape, layout.stride, layout.offset).detach()
    return ours.requires_grad_() if tensor.requires_grad else ours


def tensor_from_mortice(ours: Any) -> torch.Tensor:
    """A contiguous torch copy of one of our tensors."""
    plain = ours.detach()
    if plain.dtype.is_complex and hasattr(plain, "resolve_conj"):
        plain = plain.resolve_conj()
    name = dtype_name(plain.dtype)
    dtype = getattr(torch, name)
    carrier = _CARRIER.get(dtype)
    if carrier is None:
        return torch.from_numpy(np.array(plain.numpy(), order="C", copy=True))
    # numpy() refuses bfloat16, as torch's does; the host array under the tensor holds it.
    array = np.array(plain._a, order="C", copy=True)
    return torch.from_numpy(array.view(np.int16 if carrier is torch.int16 else np.uint8)).view(
        dtype
    )


class ToMortice:
    """Converts a tree of arguments; one tensor met twice becomes one tensor."""

    def __init__(self) -> None:
        self.seen: dict[int, Any] = {}
        self.bases: dict[int, Any] = {}
        self.leaves: list[tuple[torch.Tensor, Any]] = []

    def __call__(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            ours = self.seen.get(id(value))
            if ours is None:
                ours = self.seen[id(value)] = tensor_to_mortice(value, self.bases)
                self.leaves.append((value, ours))
            return ours
        for kind, convert in _CONVERT:
            if isinstance(value, kind):
                return convert(self, value)
        return value


def _sequence(convert: ToMortice, value: Any) -> Any:
    items = [convert(item) for item in value]
    if isinstance(value, list):
        return items
    return type(value)(*items) if hasattr(value, "_fields") else tuple(items)


def _function(_: ToMortice, value: Any) -> Any:
    module = getattr(value, "__module__", None) or ""
    if module.startswith("torch.testing") and isinstance(value, types.FunctionType):
        return rebind(value)
    if module.startswith("torch"):
        path = f"{module}.{value.__qualname__}".removeprefix("torch.")
        return walk(mortice, path.removeprefix("_C._nn."))
    return value


def _module(_: ToMortice, value: torch.nn.Module) -> Any:
    if any(True for _ in value.parameters()):
        raise Unsupported(f"a module with parameters, {type(value).__name__}")
    kind = walk(mortice, "nn." + type(value).__name__)
    wanted = inspect.signature(type(value).__init__).parameters
    return kind(**{name: held for name, held in vars(value).items() if name in wanted})


_CONVERT: list[tuple[Any, Any]] = [
    (torch.dtype, lambda _, v: dtype_to_mortice(v)),
    (torch.device, lambda _, v: mortice.device(str(v))),
    (torch.layout, lambda _, v: getattr(mortice, dtype_name(v))),
    (torch.memory_format, lambda _, v: getattr(mortice, dtype_name(v))),
    (torch.Size, lambda _, v: mortice.Size(tuple(v))),
    (torch.Generator, lambda _, v: mortice.Generator()),
    (np.ndarray, lambda _, v: v.copy()),
    (dict, lambda c, v: {key: c(item) for key, item in v.items()}),
    ((list, tuple), _sequence),
    (slice, lambda c, v: slice(c(v.start), c(v.stop), c(v.step))),
    (torch.nn.Module, _module),
    ((types.FunctionType, types.BuiltinFunctionType), _function),
]


def flatten(value: Any, is_tensor: Any) -> list[Any]:
    """The tensors of a tree of results, in order."""
    if is_tensor(value):
        return [value]
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in flatten(item, is_tensor)]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in flatten(item, is_tensor)]
    return []


def torch_tensors(value: Any) -> list[torch.Tensor]:
    return flatten(value, lambda v: isinstance(v, torch.Tensor))


def mortice_tensors(value: Any) -> list[Any]:
    return flatten(value, lambda v: isinstance(v, mortice.Tensor))
