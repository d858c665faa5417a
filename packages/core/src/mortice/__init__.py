"""A torch-free tensor runtime made of sockets.

PyTorch's API, operator schemas and checkpoints; every capability a plug-in found by entry point.
``import mortice`` reads no package metadata and imports no plug-in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mortice import _generated
from mortice._autograd.grad_mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from mortice._ops import arithmetic_functions as _arithmetic
from mortice._ops import factory_functions as _factory_functions
from mortice._ops import linalg_functions as _linalg_functions
from mortice._ops import shape_functions as _shape_functions
from mortice._ops import view_functions as _view_functions
from mortice._plugins.modules import install as _install_finder
from mortice._tensor import convert as _convert
from mortice._tensor import copying as _copying
from mortice._tensor import devices as _devices
from mortice._tensor import host as _host
from mortice._tensor import indexing as _indexing
from mortice._tensor import queries as _queries
from mortice._tensor import subclass as _subclass
from mortice._tensor.construct import as_tensor, asarray, from_numpy, tensor
from mortice._tensor.storage import Storage as UntypedStorage
from mortice._tensor.tensor import Tensor
from mortice._tensor.tensor import attach as _attach
from mortice._types import device as _device
from mortice._types import dtypes as _dtypes
from mortice._types import layout as _layout
from mortice._types.device import Device as device
from mortice._types.dtypes import DType as dtype
from mortice._types.layout import Layout as layout
from mortice._types.layout import MemoryFormat as memory_format
from mortice._types.shapes import Size
from mortice._version import __version__

if TYPE_CHECKING:
    from builtins import bool as _bool  # mortice.bool and mortice.int are dtypes
    from builtins import int as _int

    from mortice._generated.names import *  # noqa: F403


#: Constants, as in PyTorch.
pi = 3.141592653589793
e = 2.718281828459045
inf = float("inf")  # pyright: ignore[reportCallIssue]  to whom float is a dtype here
nan = float("nan")  # pyright: ignore[reportCallIssue]
newaxis = None


def _install() -> None:
    """Put dtypes, layouts, generated functions and methods in place."""
    names = globals()
    names.update(_dtypes.ALL)
    names.update((alias, _dtypes.by_name(alias)) for alias in _dtypes.ALIASES)
    names.update((x.name, x) for x in (*_layout.LAYOUTS, *_layout.MEMORY_FORMATS))
    for family in _generated.FAMILIES:
        names.update(family.FUNCTIONS)
        _attach(family.METHODS)
    _arithmetic.install(names)
    for module in (
        _arithmetic, _factory_functions, _linalg_functions, _shape_functions, _view_functions,
    ):  # fmt: skip
        names.update(module.FUNCTIONS)
        _attach(module.METHODS)
    _attach(_convert.METHODS)
    _attach(_copying.METHODS)
    names.update(_queries.FUNCTIONS)
    _attach(_queries.METHODS)
    _attach(_subclass.METHODS)
    _attach(_indexing.METHODS)
    _install_finder()


_install()

#: Public names whose modules are imported when they are first used.
_LAZY = {
    "compile": "mortice._compile.front",
    "set_num_threads": "mortice._tensor.devices",
    "get_num_threads": "mortice._tensor.devices",
    "autocast": "mortice._autograd.autocast",
    "is_autocast_enabled": "mortice._autograd.autocast",
    "get_autocast_dtype": "mortice._autograd.autocast",
    "Tag": "mortice._library.tags",
    "vmap": "mortice._library.vmap",
    "save": "mortice.serialization",
    "load": "mortice.serialization",
    "list_backends": "mortice._plugins.report",
    "Generator": "mortice._tensor.generator",
    "Stream": "mortice._tensor.streams",
    "get_device_module": "mortice._tensor.device_module",
    "_register_device_module": "mortice._tensor.device_module",
    "Event": "mortice._tensor.streams",
    **dict.fromkeys(
        (
            "FloatTensor",
            "DoubleTensor",
            "HalfTensor",
            "BFloat16Tensor",
            "LongTensor",
            "IntTensor",
            "ShortTensor",
            "CharTensor",
            "ByteTensor",
            "BoolTensor",
        ),
        "mortice._ops.legacy_types",
    ),
    "TypedStorage": "mortice._tensor.typed_storage",
    "from_dlpack": "mortice._tensor.dlpack",
    "to_dlpack": "mortice._tensor.dlpack",
    "manual_seed": "mortice.random",
    "seed": "mortice.random",
    "initial_seed": "mortice.random",
    "get_rng_state": "mortice.random",
    "set_rng_state": "mortice.random",
    "default_generator": "mortice.random",
    "set_printoptions": "mortice._tensor.printing",
    "get_printoptions": "mortice._tensor.printing",
    "printoptions": "mortice._tensor.printing",
}
_LAZY_MODULES = frozenset(
    (
        "accelerator", "autograd", "backend", "compiler", "config", "decompositions", "distributed", "errors", "export", "fake", "fft", "fx",
        "library", "linalg", "multiprocessing", "ops", "overrides", "plugins", "random", "serialization", "special", "utils",
    )
)  # fmt: skip


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _LAZY:
        value = getattr(import_module(_LAZY[name]), name)
    elif name in _generated.LATER:
        family = import_module(f"mortice._generated.{_generated.LATER[name]}")
        for other, function in family.FUNCTIONS.items():
            globals().setdefault(other, function)  # hand-written forms stay
        return globals()[name]
    elif name in _LAZY_MODULES:
        value = import_module(f"mortice.{name}")
    else:
        from mortice._plugins.modules import get

        value = get(name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list({*globals(), *_LAZY, *_LAZY_MODULES, *_generated.LATER})  # dir() sorts


def set_default_dtype(d: dtype) -> None:
    """Dtype of floating-point tensors made without one; must be a floating dtype."""
    if d.__class__ is not dtype or not d.is_floating_point:
        from mortice.errors import ArgumentError

        raise ArgumentError(
            f"only floating-point types are supported as the default type, not {d!r}"
        )
    changed = d is not _dtypes.default.dtype
    _dtypes.default.dtype = d
    if changed:
        from mortice._dispatch.operator import clear_tables

        clear_tables()  # what was recorded knows the dtype of what it makes


def get_default_dtype() -> dtype:
    return _dtypes.default.dtype


def set_default_device(device: Any) -> None:
    """Where factories make tensors when no device is given; None restores the CPU."""
    _device.set_default(device)


def get_default_device() -> device:
    return _device.current_default()


def is_tensor(obj: Any) -> _bool:
    return isinstance(obj, Tensor)


def is_floating_point(input: Tensor) -> _bool:
    return input.dtype.is_floating_point


def is_complex(input: Tensor) -> _bool:
    return input.dtype.is_complex


def numel(input: Tensor) -> _int:
    return input.numel()
