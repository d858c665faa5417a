"""The Tensor class: its slots and what asks about it. Operators are attached by ``attach``.

A tensor holds a handle ``_a`` with shape, strides and dtype (a numpy array on the host, else a
DeviceArray), a key set ``_k``, a dtype ``_t``, the edge into the gradient graph ``_g``, the shared
storage ``_s`` (None until something shares it) and, if it is a view, its base in ``_b``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mortice._base.errors import ArgumentError, InvalidState, InvalidValue, ShapeError
from mortice._dispatch import keys as K
from mortice._dispatch.state import GLOBAL
from mortice._types import layout as layouts
from mortice._types import shapes
from mortice._types.device import CPU, Device
from mortice._types.dtypes import DType
from mortice._types.shapes import Size

if TYPE_CHECKING:
    from mortice._generated.methods import Methods
    from mortice._tensor.storage import Storage
else:
    Methods = object

_ndarray = np.ndarray


class Tensor(Methods):
    """An n-dimensional array of one dtype on one device. Made by ``mortice.tensor`` and friends.

    ``Tensor(2, 3)`` gives uninitialised memory, ``Tensor([1, 2])`` a float tensor of the data, as
    PyTorch's legacy constructor does.
    """

    __slots__ = ("__dict__", "__weakref__", "_a", "_b", "_g", "_k", "_s", "_t")

    _a: Any
    _b: Any
    _g: Any
    _k: int
    _s: Storage | None
    _t: DType

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        from mortice._tensor.construct import legacy

        return legacy(cls, *args, **kwargs)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    # -- metadata ------------------------------------------------------------------------------

    @property
    def shape(self) -> Size:
        """Sizes of the dimensions."""
        return Size(self._a.shape)

    @property
    def dtype(self) -> DType:
        return self._t

    @property
    def device(self) -> Device:
        a = self._a
        return CPU if type(a) is _ndarray else a.device

    @property
    def ndim(self) -> int:
        return len(self._a.shape)

    @property
    def layout(self) -> layouts.Layout:
        return layouts.strided

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self._t.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.numel() * self._t.itemsize

    def size(self, dim: int | None = None) -> Any:
        """All sizes, or the size of one dimension."""
        shape = self._a.shape
        if dim is None:
            return Size(shape)
        return shape[shapes.wrap_dim(dim, len(shape))]

    def stride(self, dim: int | None = None) -> Any:
        """Strides in elements, of all dimensions or of one."""
        a = self._a
        if type(a) is _ndarray:
            item = a.itemsize
            if self._s is None and not a.size and 0 in a.strides:  # numpy's, see ``make.laid``
                strides = shapes.contiguous_strides(a.shape)
            else:
                strides = tuple(s // item for s in a.strides)
        else:
            strides = a.strides
        if dim is None:
            return strides
        return strides[shapes.wrap_dim(dim, len(strides))]

    def storage_offset(self) -> int:
        """Position of the first element in the storage, in elements."""
        a = self._a
        if type(a) is not _ndarray:
            return a.offset
        s = self._s
        if s is None or s.root is a or not a.size:
            return 0
        start = a.__array_interface__["data"][0]
        return (start - s.host_bytes().__array_interface__["data"][0]) // a.itemsize

    def dim(self) -> int:
        return len(self._a.shape)

    ndimension = dim

    def numel(self) -> int:
        """Number of elements."""
        return shapes.numel(self._a.shape)

    nelement = numel

    def element_size(self) -> int:
        return self._t.itemsize

    def is_contiguous(self, memory_format: Any = layouts.contiguous_format) -> bool:
        """Whether the elements lie in the given order without gaps."""
        a = self._a
        if memory_format is layouts.contiguous_format:
            if type(a) is _ndarray:
                return a.flags.c_contiguous
            return shapes.is_contiguous(a.shape, a.strides)
        if memory_format in (layouts.channels_last, layouts.channels_last_3d):
            wanted = 4 if memory_format is layouts.channels_last else 5
            if len(a.shape) != wanted:
                return False
            return shapes.is_channels_last(a.shape, self.stride())
        return shapes.is_contiguous(a.shape, self.stride())

    def data_ptr(self) -> int:
        """Address of the first element; 0 where there is none."""
        if GLOBAL.watch:
            GLOBAL.settle(self, "data_ptr")
        a = self._a
        if type(a) is _ndarray:
            from mortice._tensor.storage import BY_ADDRESS

            self.untyped_storage().exported = BY_ADDRESS
            return int(a.__array_interface__["data"][0]) if a.size else 0
        if a.buffer is None:
            return 0
        return self.untyped_storage().data_ptr() + a.offset * self._t.itemsize

    def untyped_storage(self) -> Storage:
        """The storage, shared by all views."""
        if GLOBAL.watch:
            GLOBAL.settle(self, "storage")
        from mortice._tensor.make import storage_of

        return storage_of(self)

    def is_floating_point(self) -> bool:
        return self._t.is_floating_point

    def is_complex(self) -> bool:
        return self._t.is_complex

    def is_signed(self) -> bool:
        return self._t.is_signed

    @property
    def is_cpu(self) -> bool:
        return self.device is CPU

    @property
    def is_meta(self) -> bool:
        return self.device.type == "meta"

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    @property
    def is_sparse(self) -> bool:
        return False

    @property
    def is_quantized(self) -> bool:
        return False

    @property
    def is_nested(self) -> bool:
        return False

    def is_conj(self) -> bool:
        return False

    def is_neg(self) -> bool:
        return False

    def is_inference(self) -> bool:
        return bool(self.__dict__.get("_inference"))

    def get_device(self) -> int:
        """Device index, -1 on the CPU."""
        device = self.device
        return -1 if device.type in ("cpu", "meta") else (device.index or 0)

    @property
    def _version(self) -> int:
        s = self._s
        return 0 if s is None else s.version

    def _is_view(self) -> bool:
        return self._b is not None

    @property
    def _base(self) -> Tensor | None:
        from mortice._tensor.make import base_of

        return base_of(self)

    # -- autograd ------------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """Whether operators on the tensor record gradient history."""
        if self._k & K.VIEW:
            _refresh(self)
        return bool(self._k & K.AUTOGRAD)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        _autograd().set_requires_grad(self, bool(value))

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set ``requires_grad`` and return the tensor."""
        _autograd().set_requires_grad(self, bool(requires_grad))
        return self

    @property
    def grad(self) -> Tensor | None:
        """Accumulated gradient of a leaf (or of a tensor that retains it), else None."""
        return _autograd().get_grad(self)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        _autograd().set_grad(self, value)

    @grad.deleter
    def grad(self) -> None:
        _autograd().set_grad(self, None)

    @property
    def grad_fn(self) -> Any:
        """The node that computed the tensor; None for leaves."""
        return _autograd().grad_fn(self)

    @property
    def is_leaf(self) -> bool:
        return _autograd().is_leaf(self)

    @property
    def output_nr(self) -> int:
        g = self._g
        return 0 if g is None else g.number

    @property
    def retains_grad(self) -> bool:
        return _autograd().retains_grad(self)

    def retain_grad(self) -> None:
        """Keep this non-leaf's gradient in ``.grad`` at the next backward."""
        _autograd().retain_grad(self)

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Accumulate the gradients of the leaves below this tensor into their ``.grad``."""
        from mortice._autograd.engine import backward

        backward(self, gradient, retain_graph, create_graph, inputs)

    def register_hook(self, hook: Any) -> Any:
        """Call ``hook(grad)`` when this tensor's gradient is computed; it may return another."""
        return _autograd().register_hook(self, hook)

    def register_post_accumulate_grad_hook(self, hook: Any) -> Any:
        """Call ``hook(tensor)`` after a gradient was accumulated into this leaf."""
        return _autograd().register_post_accumulate_hook(self, hook)

    @property
    def data(self) -> Tensor:
        """The same memory without history and with a version counter of its own."""
        return _autograd().get_data(self)

    @data.setter
    def data(self, value: Tensor) -> None:
        _autograd().set_data(self, value)

    def as_subclass(self, cls: type) -> Any:
        """The same memory and history as a tensor of class ``cls``, which derives from Tensor."""
        from mortice._tensor.construct import as_subclass

        return as_subclass(self, cls)

    @staticmethod
    def _make_subclass(kind: type, data: Tensor, require_grad: bool = False) -> Any:
        """A leaf of class ``kind`` over the memory of ``data``."""
        return data.detach().as_subclass(kind).requires_grad_(require_grad)

    # -- Python protocols ----------------------------------------------------------------------

    def __len__(self) -> int:
        shape = self._a.shape
        if not shape:
            raise TypeError("len() of a 0-d tensor")
        return shape[0]

    def __bool__(self) -> bool:
        return bool(self._only_element("Boolean value of Tensor"))

    def __int__(self) -> int:
        return int(self._number())

    def __float__(self) -> float:
        return float(self._number())

    def __complex__(self) -> complex:
        return complex(self._number())

    def __index__(self) -> int:
        if self._t.differentiable or self.numel() != 1:
            raise TypeError(
                "only integer tensors of a single element can be converted to an index, not "
                f"{self._t!r} of shape {tuple(self.shape)}."
            )
        return int(self.item())

    def _number(self) -> Any:
        if self.numel() != 1:
            raise InvalidValue(
                "only one element tensors can be converted to Python scalars, not one of shape "
                f"{tuple(self.shape)}. Use .tolist(), or reduce it to one element."
            )
        return self.item()

    def _only_element(self, what: str) -> Any:
        if self.numel() != 1:
            shape = tuple(self.shape)
            raise InvalidState(
                f"{what} with {'no' if not self.numel() else 'more than one'} value is ambiguous "
                f"(its shape is {shape}). Reduce it first, for example with .any() or .sum()."
            )
        return self.item()

    def __hash__(self) -> int:
        return id(self)

    def __iter__(self) -> Any:
        if not self._a.shape:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))

    def __reversed__(self) -> Tensor:
        """The tensor with its first dimension (or all elements of a 0-d one) in reverse order."""
        return self.flip(0) if self._a.shape else self

    def __delitem__(self, index: Any) -> None:
        raise ArgumentError(
            "elements of a Tensor cannot be deleted. Select those to keep, as in x[mask]."
        )

    def __contains__(self, element: Any) -> bool:
        if isinstance(element, (Tensor, int, float, complex)):
            return bool((self == element).any().item())
        raise InvalidState(
            "Tensor.__contains__ only supports Tensor or scalar, but you passed in a "
            f"{type(element).__name__}."
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        from mortice._tensor.printing import show

        return show(self, tensor_contents)

    def __format__(self, spec: str) -> str:
        if self.ndim == 0 and not self.is_meta and type(self) is Tensor:
            return self.item().__format__(spec)
        return object.__format__(self, spec)

    if TYPE_CHECKING:  # attached from _tensor/indexing.py

        def __getitem__(self, index: Any) -> Tensor: ...

        def __setitem__(self, index: Any, value: Any) -> None: ...

    def item(self) -> Any:
        """The one element as a Python number."""
        a = self._a
        if (
            type(a) is _ndarray
            and a.size == 1
            and not self._k & ~(K.CPU | K.VIEW | K.AUTOGRAD)
            and not GLOBAL.special  # modes and compiled calls see the reading
        ):
            found = a.item()
            return found if type(found) is not tuple else complex(*found)  # complex32
        if self.numel() != 1:
            raise ShapeError(
                f"a Tensor with {self.numel()} elements cannot be converted to Scalar. Use "
                ".tolist(), or reduce it to one element."
            )
        return self._local_scalar_dense()

    __array_priority__ = 1000  # numpy's binary operators give way to ours


def _autograd() -> Any:
    from mortice._autograd import variable

    return variable


def _refresh(t: Tensor) -> None:
    s = t._s
    if s is not None and s.epoch:
        from mortice._autograd.views import refresh

        refresh(t)


_function = type(lambda: None)


def attach(methods: dict[str, Any]) -> None:
    """Make generated and hand-written functions methods of Tensor."""
    for name, function in methods.items():
        if type(function) is _function:  # what Python's own TypeErrors print
            function.__qualname__ = f"Tensor.{name}"
        setattr(Tensor, name, function)
