"""The boundary of an observed call: what of the framework is called as it is, and what that means.

Operators are recorded, so calling one reads nothing but its arguments and the framework's state
(grad mode and the like, one guard). Everything of core that stands on no list here is unknown.
"""

from __future__ import annotations

import enum
import weakref
from types import FunctionType, ModuleType
from typing import Any

from mortice._autograd.grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled
from mortice._capture.identity import module_of, name_of, one_of
from mortice._dispatch import keys as K
from mortice._tensor.tensor import Tensor
from mortice._types.device import Device
from mortice._types.dtypes import DType
from mortice._types.layout import Layout, MemoryFormat
from mortice._types.shapes import Size

#: Immutable types of the framework, compared as plain values are.
VALUE_TYPES = (DType, Device, Layout, MemoryFormat, Size)

#: Properties of tensors that follow from guarded metadata, or are operators.
TENSOR_PROPERTIES = frozenset(
    (
        "shape", "dtype", "device", "ndim", "layout", "itemsize", "nbytes", "requires_grad",
        "is_cpu", "is_cuda", "is_meta", "is_mps", "is_xpu", "is_sparse", "is_sparse_csr",
        "is_quantized", "is_nested", "T", "mT", "H", "mH", "real", "imag",
    )
)  # fmt: skip

#: Those of them that no size decides.
SIZELESS = TENSOR_PROPERTIES - {"shape", "nbytes", "T", "mT", "H", "mH", "real", "imag"}

#: Hand-written methods and functions of the same kind, by the end of their qualified name.
_PURE = frozenset(
    (
        "size", "stride", "dim", "ndimension", "numel", "nelement", "element_size",
        "is_contiguous", "is_floating_point", "is_complex", "is_signed", "is_conj", "is_neg",
        "get_device", "is_same_size", "dim_order", "sum_to_size",
        "bfloat16", "bool", "byte", "cast", "cpu", "to", "type_as", "cdouble", "cfloat", "char",
        "double", "float", "half", "int", "long", "short",
        "__getitem__", "__setitem__", "getitem", "setitem", "__len__", "__iter__", "__reversed__",
        "contiguous", "split", "where", "norm", "polygamma", "new_empty", "new_empty_strided",
        "new_full", "new_ones", "new_zeros", "cdist", "gradient", "einsum", "tensordot",
        "chain_matmul", "promote_types", "can_cast", "result_type", "finfo", "iinfo",
        "is_tensor", "is_grad_enabled", "get_default_dtype", "get_default_device", "broadcast_shapes",
        "is_compiling", "is_dynamo_compiling", "is_exporting",
        "T", "mT", "H", "mH", "real", "imag",
    )
)  # fmt: skip
_PURE_MODULES = (
    "mortice", "mortice._tensor.tensor", "mortice._tensor.convert", "mortice._tensor.indexing",
    "mortice._tensor.queries", "mortice._autograd.grad_mode", "mortice._autograd.autocast",
    "mortice.compiler",
)  # fmt: skip
#: Modules of hand-written functions over operators: all of them are operators to the user.
_OPERATOR_MODULES = (
    "mortice._ops.arithmetic_functions", "mortice._ops.factory_functions",
    "mortice._ops.linalg_functions", "mortice._ops.shape_functions",
    "mortice._ops.view_functions", "mortice.fft", "mortice.linalg", "mortice.special",
    "mortice._dispatch.plan", "mortice._ops.einsum",
)  # fmt: skip
#: Functions that read an element; the recorder notes the value.
VALUE_READS = frozenset(
    (
        "item", "__bool__", "__int__", "__float__", "__complex__", "__index__", "is_nonzero",
    )
)  # fmt: skip
#: Operators with effects that no recorded node carries: on a tensor's own metadata, or on memory.
_EFFECTS = frozenset(
    (
        "set_", "resize_", "resize_as_", "detach_", "squeeze_", "unsqueeze_", "t_", "transpose_",
        "swapaxes_", "swapdims_", "as_strided_", "equal", "allclose", "_local_scalar_dense",
        "rename_", "requires_grad_",
    )
)  # fmt: skip
#: Makers of tensors from Python data: a constant of the call, if the data are plain.
CONSTANT_MAKERS = frozenset(("tensor", "as_tensor", "asarray", "scalar_tensor", "new_tensor"))

#: Context managers whose effect is the framework's state alone, and ends with them.
CONTEXTS: tuple[type, ...] = (no_grad, enable_grad, set_grad_enabled, inference_mode)
#: Their methods are called as they are: the state is restored by the end of the call, or the call
#: is found to have changed it.
_OF_CONTEXTS = frozenset(("__enter__", "__exit__"))
#: Modules of core whose functions are looked into as a user's are: decorators around user code.
_TRANSPARENT = ("mortice._autograd.grad_mode", "mortice._autograd.autocast", "mortice.utils.pytree")


class Kind(enum.Enum):
    """What a callable is to the observer."""

    USER = "looked into"
    PURE = "called; recorded, or reads only its arguments' metadata"
    VALUE = "called; reads an element"
    CONSTANT = "called; makes a tensor from Python data"
    UNKNOWN = "called; its reads and effects are not known"


def is_tensor(value: Any) -> bool:
    """A Tensor or Parameter without overrides of its own."""
    return issubclass(type(value), Tensor) and not value._k & (K.OVERRIDE | K.PYTHON)


def is_context(cls: type) -> bool:
    """Whether a class is one of the framework's mode managers."""
    return one_of(cls, CONTEXTS) or (
        name_of(cls) == "autocast" and module_of(cls) in _AUTOCAST_MODULES
    )


_AUTOCAST_MODULES = ("mortice._autograd.autocast",)


def is_ours(module: str) -> bool:
    """Whether a module belongs to core."""
    return module == "mortice" or module.startswith("mortice.")


def of_the_framework(module: ModuleType) -> bool:
    """Whether a module's ``__getattr__`` only imports or binds what it will always give."""
    name = module.__dict__.get("__name__")
    return type(name) is str and is_library(name)


def is_library(module: str) -> bool:
    """Whether a module belongs to the framework or one of its packages."""
    return module.partition(".")[0].partition("_")[0] == "mortice"


#: What ``mortice.compiler.allow_in_graph`` was given.
IN_GRAPH: weakref.WeakSet[Any] = weakref.WeakSet()


def kind_of(function: FunctionType) -> Kind:
    """Where a Python function stands."""
    if function in IN_GRAPH:
        return Kind.PURE
    module = function.__globals__.get("__name__", "")
    if not is_ours(module):
        return Kind.USER
    name = function.__name__
    if module.startswith("mortice._generated."):
        short = function.__qualname__.rpartition(".")[2]
        return Kind.UNKNOWN if short in _EFFECTS or name in _EFFECTS else Kind.PURE
    if module in _OPERATOR_MODULES:
        return Kind.UNKNOWN if name in _EFFECTS else Kind.PURE
    if name in VALUE_READS and module in ("mortice._tensor.tensor", "mortice._tensor.queries"):
        return Kind.VALUE
    if name in CONSTANT_MAKERS and module == "mortice._tensor.construct":
        return Kind.CONSTANT
    if name in _PURE and module in _PURE_MODULES:
        return Kind.PURE
    if module in _TRANSPARENT:
        return Kind.PURE if name in _OF_CONTEXTS else Kind.USER
    return Kind.UNKNOWN


def is_operator_object(value: Any) -> bool:
    """``mortice.ops.aten.add`` and its overloads."""
    cls = type(value)
    return module_of(cls) == "mortice.ops" and name_of(cls).startswith("Op")


def is_compiled(value: Any) -> bool:
    """What ``mortice.compile`` made: within a compiled call it is its function."""
    cls = type(value)
    return module_of(cls) == "mortice._capture.compiled" and name_of(cls) == "Compiled"


def operator_has_effects(value: Any) -> bool:
    return str(value.__name__).partition(".")[0] in _EFFECTS
