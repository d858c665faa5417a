"""safetensors files, read and written through the safetensors library.

A safetensors file is a flat dict from names to tensors. What a checkpoint has beside that (nested
dicts, numbers, sharing) is named when it does not fit.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from mortice._tensor import make
from mortice._tensor.storage import host_storage
from mortice._tensor.tensor import Tensor
from mortice._types import dtypes
from mortice.errors import CheckpointError, InvalidValue, Unavailable
from mortice.serialization.tags import Placement

# safetensors' name in a file -> ours, which is also what its writer calls it
DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
}
_WRITABLE = frozenset(DTYPES.values())
# Those that the library gives as numpy arrays; the others come as bytes.
_NUMPY = frozenset(name for name in _WRITABLE if not name.startswith(("bfloat", "float8")))


def _library() -> Any:
    try:
        import safetensors
    except ModuleNotFoundError as error:
        raise Unavailable(
            "the safetensors library is not installed",
            "Install it: pip install 'safetensors>=0.8'.",
        ) from error
    if not hasattr(safetensors, "TensorSpec"):
        raise Unavailable(
            f"safetensors {safetensors.__version__} is too old",
            "Update it: pip install -U 'safetensors>=0.8'.",
        )
    return safetensors


def open_safetensors(path: str) -> list[tuple[str, str, tuple[int, ...]]]:
    """Name, dtype (as the file says it) and shape of each tensor, in the order of the file.

    Raises CheckpointError for a damaged file.
    """
    library = _library()
    try:
        opened = library.safe_open(path, "numpy")
        slices = [(name, opened.get_slice(name)) for name in opened.offset_keys()]
        return [(name, part.get_dtype(), tuple(part.get_shape())) for name, part in slices]
    except library.SafetensorError as error:
        raise CheckpointError(
            f"not a whole safetensors file ({error})",
            path=path,
            fix="The file is damaged; copy or download it again.",
        ) from error


def load_safetensors(f: Any, map_location: Any = None) -> dict[str, Tensor]:
    """The tensors of a ``.safetensors`` file by name. Raises CheckpointError for a damaged one."""
    path = os.fspath(f)
    placement = Placement(map_location)
    described = open_safetensors(path)
    library = _library()
    raw = _raw(library, path, {name: kind for name, kind, _ in described})
    opened = library.safe_open(path, "numpy")
    loaded: dict[str, Tensor] = {}
    for name, kind, shape in described:
        data = raw[name] if name in raw else opened.get_tensor(name).reshape(-1).view(np.uint8)
        storage = placement.place(host_storage(np.ascontiguousarray(data)), "cpu")
        loaded[name] = make.from_storage(storage, dtypes.ALL[DTYPES[kind]], shape)
    return loaded


def _raw(library: Any, path: str, kinds: dict[str, str]) -> dict[str, np.ndarray[Any, Any]]:
    """The bytes of tensors whose dtype numpy has not."""
    for name, kind in kinds.items():
        if kind not in DTYPES:
            raise CheckpointError(
                f"tensor {name!r} has the dtype {kind}, which has no counterpart here", path=path
            )
    wanted = {name for name, kind in kinds.items() if DTYPES[kind] not in _NUMPY}
    if not wanted:
        return {}
    with open(path, "rb") as file:
        data = file.read()
    return {
        name: np.frombuffer(bytearray(entry["data"]), np.uint8)
        for name, entry in library.deserialize(data)
        if name in wanted
    }


def save_safetensors(obj: Any, path: str) -> None:
    """Write a flat dict from names to tensors to a ``.safetensors`` file, in one step.

    Raises InvalidValue for anything else, naming it. Tensors that share memory are written apart.
    """
    library = _library()
    if not isinstance(obj, dict):
        raise InvalidValue(
            f"a safetensors file is a dict from names to tensors, not a {type(obj).__name__}."
        )
    specs: dict[str, Any] = {}
    kept: list[Any] = []
    for name, t in obj.items():
        _check(name, t)
        array = np.ascontiguousarray(t.detach().cpu()._a)
        kept.append(array)
        specs[name] = library.TensorSpec(
            dtype=t.dtype.name,
            shape=list(t.shape),
            data_ptr=array.ctypes.data,
            data_len=array.nbytes,
        )
    from mortice.serialization.writer import replacing

    with replacing(path) as file:
        # The library writes to a path; what stands there is already the one to be replaced.
        library.serialize_file(specs, file.name, {"format": "pt"})
        file.seek(0, os.SEEK_END)
    del kept


def _check(name: Any, t: Any) -> None:
    fix = "Choose a part with `mortice convert --key`, or save a .pt file."
    if not isinstance(name, str):
        raise InvalidValue(f"a safetensors file has names for keys, not {name!r}. {fix}")
    if not isinstance(t, Tensor):
        raise InvalidValue(
            f"a safetensors file holds tensors only; {name!r} is of type {type(t).__name__}. {fix}"
        )
    if t.is_meta:
        raise InvalidValue(f"{name!r} is on the meta device and has no data to write.")
    if t.dtype.name not in _WRITABLE:
        raise InvalidValue(f"safetensors has no counterpart of {t.dtype!r}, the dtype of {name!r}.")


def is_safetensors(f: Any) -> bool:
    """Whether ``f`` is the path of a safetensors file, by its name."""
    return isinstance(f, (str, os.PathLike)) and os.fspath(f).endswith(".safetensors")
