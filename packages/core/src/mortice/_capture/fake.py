"""Fake tensors: sizes, strides, dtype and device of a computation, without its data.

Inside a ``FakeTensorMode``, and wherever a fake tensor takes part, operators run their shape rules
alone. Sizes may be symbolic. Everything above the device works as on real tensors: views share
storages, in-place operators count writes, autograd records history and differentiates.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mortice._base.errors import DynamicOutputShape, FakeTensorError, InvalidState, InvalidValue
from mortice._capture import fake_kernels
from mortice._capture.fake_array import FakeArray, is_fake
from mortice._dispatch import backends
from mortice._dispatch import keys as K
from mortice._dispatch.state import THREAD, refresh
from mortice._tensor.construct import class_keys
from mortice._tensor.make import base_of, storage_of, view_of, wrap_device
from mortice._tensor.storage import Storage, device_storage
from mortice._types.device import Device
from mortice._types.dtypes import DType
from mortice._types.shapes import Shape, storage_extent
from mortice._types.symbolic import SymInt
from mortice._types.symbolic_env import ShapeEnv

backends.fake_kernel = fake_kernels.kernel
backends.in_fake_mode = fake_kernels.in_mode


class FakeTensorMode:
    """Within ``with mode:``, operators make and take tensors without data.

    Args:
        shape_env: where symbolic sizes are made and guards are recorded. Without one, sizes are
            numbers, and operators whose result's shape depends on values raise DynamicOutputShape.
        allow_non_fake_inputs: real tensors that meet fake ones are converted; otherwise
            FakeTensorError.
    """

    def __init__(
        self, shape_env: ShapeEnv | None = None, *, allow_non_fake_inputs: bool = False
    ) -> None:
        self.shape_env = shape_env
        self.allow_non_fake_inputs = allow_non_fake_inputs
        #: id of a real tensor -> (reference to it, its fake); tensors compare by elements.
        self._tensors: dict[int, tuple[weakref.ref[Any], Any]] = {}
        self._storages: weakref.WeakKeyDictionary[Storage, Storage] = weakref.WeakKeyDictionary()

    def __enter__(self) -> FakeTensorMode:
        THREAD.fake_modes.append(self)
        refresh()
        return self

    def __exit__(self, *exc: object) -> None:
        modes = THREAD.fake_modes
        if not modes or modes[-1] is not self:
            raise InvalidState("a FakeTensorMode is left in another order than it was entered.")
        modes.pop()
        refresh()

    # -- making fakes ------------------------------------------------------------------------------

    def empty(
        self,
        shape: Sequence[Any],
        dtype: DType,
        device: Any = "cpu",
        strides: Sequence[Any] | None = None,
    ) -> Any:
        """A fake tensor with these sizes (numbers or symbolic), and strides in elements."""
        steps = None if strides is None else tuple(strides)
        return self.wrap(FakeArray(self, tuple(shape), dtype, Device(device), steps))

    def wrap(self, array: FakeArray) -> Any:
        r = wrap_device(array)
        r._k |= K.FAKE
        return r

    def new_size(self, min: int = 0, max: int | None = None) -> Any:
        """A size that depends on values, in [min, max]. DynamicOutputShape without a ShapeEnv."""
        if isinstance(min, SymInt) or isinstance(max, SymInt):
            raise InvalidValue(
                "new_dynamic_size: min and max must be numbers that are known, not symbolic sizes."
            )
        if self.shape_env is None:
            raise DynamicOutputShape(
                "the shape of the result depends on values, which fake tensors do not have. Give "
                "the mode a ShapeEnv: FakeTensorMode(ShapeEnv())."
            )
        return self.shape_env.unbacked(min, max)

    def from_tensor(
        self, t: Any, dynamic_dims: Iterable[int] | Mapping[int, Any] = (), *, memoize: bool = True
    ) -> Any:
        """The fake of a real tensor: the same for the same tensor each time.

        ``dynamic_dims``: dims whose sizes become symbols of the mode's ShapeEnv (sizes of 0 and 1
        stay numbers), or a mapping of dims to the symbolic sizes that they shall have. Strides that
        follow from such sizes become symbolic with them. Tensors that share a storage have fakes
        that share one; ``requires_grad``, ``grad`` and the class of parameters carry over.
        """
        if is_fake(t):
            if t._a.mode is not self:
                raise FakeTensorError("the tensor is a fake already, of another FakeTensorMode.")
            if dynamic_dims:
                raise InvalidValue(
                    "from_tensor: the tensor is a fake already, whose sizes stay. Make the tensor outside "
                    "the mode, or its fake with mode.empty(sizes, dtype)."
                )
            return t
        known = self._tensors.get(id(t)) if memoize else None
        if known is not None:
            return known[1]
        found = self._converted(t, self._sizes(t, dynamic_dims))
        if memoize:
            key, kept = id(t), self._tensors
            kept[key] = (weakref.ref(t, lambda _: kept.pop(key, None)), found)
        return found

    def _sizes(self, t: Any, dynamic_dims: Any) -> dict[int, Any]:
        """Dim -> symbolic size."""
        ndim = t.dim()
        if isinstance(dynamic_dims, Mapping):
            return {d % ndim: size for d, size in dynamic_dims.items()}  # pyright: ignore
        dims = sorted({d % ndim for d in dynamic_dims})
        if not dims:
            return {}
        if self.shape_env is None:
            raise InvalidValue(
                "from_tensor: dynamic_dims need a ShapeEnv. Make the mode as "
                "FakeTensorMode(ShapeEnv())."
            )
        return {d: self.shape_env.size(t._a.shape[d]) for d in dims}

    def _converted(self, t: Any, sizes: dict[int, Any]) -> Any:
        shape = tuple(sizes.get(d, n) for d, n in enumerate(t._a.shape))
        strides = symbolic_strides(t._a.shape, t.stride(), shape)
        array = FakeArray(self, shape, t._t, t.device, strides, t.storage_offset())
        base = base_of(t)
        if base is not None and not sizes:
            return view_of(self.from_tensor(base), array)
        r = self.wrap(array)
        if t._s is not None:
            r._s = self._storage(t, array)
        cls = type(t)
        if t._k & K.PYTHON:
            raise FakeTensorError(
                f"from_tensor: {cls.__name__} overrides __mortice_dispatch__; convert the tensors "
                "that it is made of, by __tensor_flatten__."
            )
        if class_keys(cls) == 0 and type(r) is not cls:  # Parameter and such
            r.__class__ = cls
        if t.requires_grad:
            r.requires_grad_(True)
            if t.is_leaf and t.grad is not None:
                r.grad = self.from_tensor(t.grad, sizes)
        return r

    def _storage(self, t: Any, array: FakeArray) -> Storage:
        real = storage_of(t)
        found = self._storages.get(real)
        if found is None:
            symbolic = any(type(n) is not int for n in array.shape)
            extent = storage_extent(array.shape, array.strides, array.offset)
            nbytes = extent * t._t.itemsize if symbolic else real.nbytes()
            found = self._storages[real] = device_storage(None, nbytes, array.device)
        return found

    def constant(self, t: Any) -> Any:
        """The fake of a real tensor just made of data inside the mode; its values stay known."""
        r = self._converted(t, {})
        r._a.constant = (t, r._version)
        return r


def symbolic_strides(hints: Sequence[int], strides: Sequence[int], shape: Sequence[Any]) -> Shape:
    """Strides as products of symbolic sizes, where they are such products of the sizes at hand."""
    if all(type(n) is int for n in shape):
        return tuple(strides)
    known: dict[int, Any] = {}
    result: list[Any] = list(strides)
    for d in sorted(range(len(hints)), key=lambda d: (strides[d], hints[d], -d)):
        if strides[d] != 1:
            result[d] = known.get(strides[d], strides[d])
        known.setdefault(strides[d] * hints[d], result[d] * shape[d])
    return tuple(result)


class _FakeTensorType(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return is_fake(instance)


class FakeTensor(metaclass=_FakeTensorType):
    """``isinstance(x, FakeTensor)`` tells fake tensors, which are of class Tensor, from real ones."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        raise FakeTensorError("fake tensors are made by FakeTensorMode.from_tensor or .empty.")
