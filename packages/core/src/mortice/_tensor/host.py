"""Host kernels that core has itself: memory, copies, conversions and views of numpy arrays.

CPU tensors exist, view, convert, print, save and load with these alone; arithmetic comes from the
CPU package. The view kernels restate rules of ``_ops/view.py`` in numpy's own terms, because a
numpy view costs 75 ns and the general way 1,200.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mortice._base.errors import DTypeError, ShapeError
from mortice._dispatch import backends
from mortice._dispatch import keys as K
from mortice._tensor import make
from mortice._tensor.make import ViewInfo, empty, host_array, laid, restride, storage_of, wrap
from mortice._tensor.rows import host_copy
from mortice._tensor.storage import host_storage
from mortice._tensor.tensor import Tensor
from mortice._types import dtypes, layout, shapes
from mortice._types.device import CPU, Device, current_default
from mortice._types.dtypes import DType
from mortice._types.shapes import dense_strides_like, strides_for

_new = object.__new__
_ndarray = np.ndarray
KEY_CPU_VIEW = K.CPU_VIEW
_ALL = (slice(None),) * 64

Kernels = dict[str, Callable[..., Any]]


def _view(base: Any, array: Any) -> Any:
    """``make.view_of`` for host arrays, in line."""
    r = _new(Tensor)
    s = base._s
    if s is None:
        s = base._s = host_storage(base._a)
    b = base._b
    if b is None:
        b = base if not s.epoch else ViewInfo(base, s.epoch)
    r._a = array
    r._k = KEY_CPU_VIEW
    r._t = base._t
    r._g = None
    r._s = s
    r._b = b
    return r


# -- views ---------------------------------------------------------------------------------------


def transpose(self: Any, dim0: int, dim1: int) -> Any:
    a = self._a
    if self._s is None and not a.size:
        a = laid(self)
    if not a.ndim:
        shapes.wrap_dim(dim0, 0)
        shapes.wrap_dim(dim1, 0)
        return _view(self, a[...])
    s = self._s
    if s is None or s.epoch:
        return _view(self, a.swapaxes(dim0, dim1))
    r = _new(Tensor)  # _view in line
    b = self._b
    r._a = a.swapaxes(dim0, dim1)
    r._k = KEY_CPU_VIEW
    r._t = self._t
    r._g = None
    r._s = s
    r._b = self if b is None else b
    return r


def t(self: Any) -> Any:
    a = self._a
    if self._s is None and not a.size:
        a = laid(self)
    if a.ndim > 2:
        raise ShapeError(f"t() expects a tensor with <= 2 dimensions, but self is {a.ndim}D")
    return _view(self, a.T)


def view(self: Any, size: Any) -> Any:
    a = self._a
    if self._s is None and not a.size:
        a = laid(self)
    s = self._s
    if s is not None and not s.epoch:
        v = a.reshape(size)
        if v.base is a or a.flags.c_contiguous:  # numpy did not copy
            r = _new(Tensor)  # _view in line: a call costs 40 ns
            b = self._b
            r._a = v
            r._k = KEY_CPU_VIEW
            r._t = self._t
            r._g = None
            r._s = s
            r._b = self if b is None else b
            return r
    if a.flags.c_contiguous:
        return _view(self, a.reshape(size))
    from mortice._ops.view import view as rule

    return _view(self, restride(self, *rule(self, size)))


def permute(self: Any, dims: Any) -> Any:
    a = self._a
    if self._s is None and not a.size:
        a = laid(self)
    if len(dims) != a.ndim:
        raise ShapeError(
            f"permute(sparse_coo): number of dimensions in the tensor input does not match the "
            f"length of the desired ordering of dimensions i.e. input.dim() = {a.ndim} is not "
            f"equal to len(dims) = {len(dims)}"
        )
    return _view(self, a.transpose(dims))


def unsqueeze(self: Any, dim: int) -> Any:
    a = self._a
    if self._s is None and not a.size:
        a = laid(self)
    dim = shapes.wrap_dim(dim, a.ndim + 1)
    if a.flags.c_contiguous and a.size:  # an index of None would give a stride of 0
        return _view(self, a.reshape((*a.shape[:dim], 1, *a.shape[dim:])))
    from mortice._ops.view import unsqueeze as rule

    return _view(self, restride(self, *rule(self, dim)))


def alias(self: Any) -> Any:
    return _view(self, self._a)


def detach(self: Any) -> Any:
    return make.alias_of(self)


def select(self: Any, dim: int, index: int) -> Any:
    a = self._a
    if self._s is None and not a.size:
        a = laid(self)
    if dim == 0 and a.ndim:
        n = a.shape[0]
        if -n <= index < n:
            if a.ndim > 1:
                return _view(self, a[index])
            first = index + n if index < 0 else index
            return _view(self, a[first : first + 1].reshape(()))
    elif 0 < dim < a.ndim:
        n = a.shape[dim]
        if -n <= index < n:
            return _view(self, a[(*_ALL[:dim], index)])
    from mortice._ops.view import select as rule

    return _view(self, restride(self, *rule(self, dim, index)))


def slice_(self: Any, dim: int, start: Any, end: Any, step: int) -> Any:
    a = self._a
    if self._s is None and not a.size:
        a = laid(self)
    if step > 0 and 0 <= dim < a.ndim:
        if not dim:
            return _view(self, a[start:end:step])
        return _view(self, a[(*_ALL[:dim], slice(start, end, step))])
    from mortice._ops.view import slice_ as rule

    return _view(self, restride(self, *rule(self, dim, start, end, step)))


def squeeze(self: Any) -> Any:
    a = self._a
    if self._s is None and not a.size:
        a = laid(self)
    return _view(self, a.squeeze())


def squeeze_dim(self: Any, dim: int) -> Any:
    a = self._a
    if self._s is None and not a.size:
        a = laid(self)
    d = shapes.wrap_dim(dim, a.ndim)
    return _view(self, a.squeeze(d) if a.ndim and a.shape[d] == 1 else a)


def squeeze_dims(self: Any, dim: Any) -> Any:
    a = self._a
    if self._s is None and not a.size:
        a = laid(self)
    gone = tuple(
        d for d in (shapes.wrap_dims(dim, a.ndim) if dim else ()) if a.ndim and a.shape[d] == 1
    )
    return _view(self, a.squeeze(gone) if gone else a)


def expand(self: Any, size: Any, implicit: bool) -> Any:
    sizes, steps = shapes.expand_strides(self._a.shape, self._a.strides, size)
    a = self._a
    if not a.size or not a.flags.c_contiguous:
        from mortice._ops.view import expand as rule

        return _view(self, restride(self, *rule(self, size)))
    return _view(self, _ndarray(sizes, a.dtype, a, 0, steps))


def unbind(self: Any, dim: int) -> Any:
    a = self._a
    if self._s is None and not a.size:
        a = laid(self)
    if not a.ndim or not -a.ndim <= dim < a.ndim:
        from mortice._ops.view import unbind as rule

        rule(self, dim)
    if a.ndim == 1:
        return tuple(_view(self, a[i : i + 1].reshape(())) for i in range(a.shape[0]))
    rows = a if not dim else np.moveaxis(a, dim, 0)
    return tuple([_view(self, row) for row in rows])


def split(self: Any, split_size: int, dim: int) -> Any:
    from mortice._ops.view import even_sizes

    if not self._a.ndim:
        raise ShapeError("split expects at least a 1-dimensional tensor")
    return _parts(self, even_sizes(self._a.shape, split_size, dim), dim)


def split_with_sizes(self: Any, split_sizes: Any, dim: int) -> Any:
    a = self._a
    if not a.ndim or not -a.ndim <= dim < a.ndim or sum(split_sizes) != a.shape[dim]:
        from mortice._ops.view import split_with_sizes as rule

        rule(self, split_sizes, dim)
    if split_sizes and min(split_sizes) < 0:
        from mortice._ops.view import split_with_sizes as rule

        rule(self, split_sizes, dim)
    return _parts(self, split_sizes, dim)


def _parts(self: Any, sizes: Any, dim: int) -> Any:
    a = self._a
    if self._s is None and not a.size:
        a = laid(self)
    before = _ALL[: dim % a.ndim]
    parts: list[Any] = []
    start = 0
    for n in sizes:
        parts.append(_view(self, a[(*before, slice(start, start + n))]))
        start += n
    return tuple(parts)


# -- memory --------------------------------------------------------------------------------------


def _target(dtype: DType | None, device: Any) -> tuple[DType, Device]:
    return dtype or dtypes.default.dtype, current_default() if device is None else Device(device)


def empty_(size: Any, dtype: Any, layout_: Any, device: Any, pin: Any, memory_format: Any) -> Any:
    dtype, device = _target(dtype, device)
    _check_size(size)
    strides = None if memory_format is None else strides_for(size, memory_format)
    return empty(size, dtype, device, strides)


def _check_size(size: Any) -> None:
    for n in size:
        if n < 0:
            raise ShapeError(f"Trying to create tensor with negative dimension {n}: {list(size)}")


def empty_strided(size: Any, stride: Any, dtype: Any, layout_: Any, device: Any, pin: Any) -> Any:
    dtype, device = _target(dtype, device)
    _check_size(size)
    return empty(size, dtype, device, tuple(stride))


def zeros(size: Any, dtype: Any, layout_: Any, device: Any, pin: Any) -> Any:
    dtype = dtype or dtypes.default.dtype
    _check_size(size)
    return wrap(np.zeros(size, dtype.numpy), dtype)


def ones(size: Any, dtype: Any, layout_: Any, device: Any, pin: Any) -> Any:
    dtype = dtype or dtypes.default.dtype
    _check_size(size)
    return wrap(_filled(np.empty(size, dtype.numpy), 1, dtype), dtype)


def full(size: Any, value: Any, dtype: Any, layout_: Any, device: Any, pin: Any) -> Any:
    dtype = dtype or dtypes.of_number(value)
    _check_size(size)
    return wrap(_filled(np.empty(size, dtype.numpy), value, dtype), dtype)


def _filled(array: Any, value: Any, dtype: DType) -> Any:
    """``array`` filled with a number, converted as C does (wrapping integers)."""
    if isinstance(value, complex) and not dtype.is_complex:
        if value.imag:
            raise DTypeError(
                f"value {value} cannot be converted to type {dtype.name} without overflow"
            )
        value = value.real
    if dtype.kind in (dtypes.UNSIGNED, dtypes.SIGNED):
        value = _integer(value, dtype)
    if array.dtype.names:  # complex32
        array["real"], array["imag"] = value.real, value.imag
        return array
    array.fill(value) if dtype.kind != dtypes.BOOL else array.fill(bool(value))
    return array


def _integer(value: Any, dtype: DType) -> int:
    """A number as an integer of the dtype, wrapped around as a C cast would."""
    bits = dtype.itemsize * 8
    value = int(value) & ((1 << bits) - 1)
    if dtype.kind == dtypes.SIGNED and value >> (bits - 1):
        value -= 1 << bits
    return value


def scalar_tensor(value: Any, dtype: Any, layout_: Any, device: Any, pin: Any) -> Any:
    dtype = dtype or dtypes.default.dtype
    return wrap(_filled(np.empty((), dtype.numpy), value, dtype), dtype)


def empty_like(
    self: Any, dtype: Any, layout_: Any, device: Any, pin: Any, memory_format: Any
) -> Any:
    dtype = dtype or self._t
    target = CPU if device is None else Device(device)
    a = self._a
    if (
        a.flags.c_contiguous
        and memory_format is None
        and target is CPU
        and (self._s is None or a.size)
    ):
        return wrap(np.empty(a.shape, dtype.numpy), dtype)
    if memory_format is None or memory_format is layout.preserve_format:
        strides = dense_strides_like(a.shape, self.stride())
    else:
        strides = strides_for(a.shape, memory_format)
    return empty(a.shape, dtype, target, strides)


def full_like(
    self: Any, value: Any, dtype: Any, layout_: Any, device: Any, pin: Any, memory_format: Any
) -> Any:
    made = empty_like(self, dtype, layout_, device, pin, memory_format)
    if type(made._a) is _ndarray:
        _filled(made._a, value, made._t)
        return made
    from mortice._dispatch.operator import get

    return get("fill_.Scalar")(made, value)


def zeros_like(self: Any, *options: Any) -> Any:
    return full_like(self, 0, *options)


def ones_like(self: Any, *options: Any) -> Any:
    return full_like(self, 1, *options)


def fill_(self: Any, value: Any) -> Any:
    if hasattr(value, "_k"):
        value = value.item()
    _filled(self._a, value, self._t)
    return self


def zero_(self: Any) -> Any:
    self._a.fill(0)
    return self


def copy_(self: Any, src: Any, non_blocking: bool) -> Any:
    """Copy ``src`` into ``self``, broadcasting, converting and crossing devices."""
    a, b = self._a, src._a
    if self._t is src._t and type(a) is _ndarray and type(b) is _ndarray and a.shape == b.shape:
        np.copyto(a, b)  # sees to overlapping memory itself
        return self
    shapes.expand_strides(src.shape, src.stride(), self.shape)
    if type(self._a) is _ndarray and type(src._a) is _ndarray:
        source = src._a
        if np.may_share_memory(self._a, source) and source is not self._a:
            source = source.copy()
        host_copy(self._a, source)
        return self
    from mortice._tensor.transfer import copy_between

    copy_between(self, src)
    return self


def clone(self: Any, memory_format: Any) -> Any:
    a = self._a
    if memory_format is None or memory_format is layout.preserve_format:
        if a.flags.c_contiguous and (self._s is None or a.size):
            return wrap(a.copy(), self._t)
        strides = dense_strides_like(a.shape, self.stride())
    else:
        strides = strides_for(a.shape, memory_format)
    r = empty(a.shape, self._t, CPU, strides)
    np.copyto(r._a, a)
    return r


def to_copy(
    self: Any,
    dtype: Any,
    layout_: Any,
    device: Any,
    pin: Any,
    non_blocking: bool,
    memory_format: Any,
) -> Any:
    """A copy in another dtype, on another device or in another memory format."""
    dtype = dtype or self._t
    a = self._a
    if (
        (device is None or device is CPU)
        and memory_format is None
        and type(a) is _ndarray
        and a.flags.c_contiguous
        and (self._s is None or a.size)
    ):
        out = np.empty(a.shape, dtype.numpy)
        host_copy(out, a)
        return wrap(out, dtype)
    target = self.device if device is None else Device(device)
    if memory_format is None or memory_format is layout.preserve_format:
        strides = dense_strides_like(self.shape, self.stride())
    else:
        strides = strides_for(self.shape, memory_format)
    r = empty(tuple(self.shape), dtype, target, strides)
    if target.type != "meta":
        copy_(r, self, non_blocking)
    return r


def local_scalar_dense(self: Any) -> Any:
    value = self._a.item()
    if type(value) is tuple:  # complex32
        return complex(*value)
    return value if type(value) in (int, float, bool, complex) else float(value)


# -- storage -------------------------------------------------------------------------------------


def resize_(self: Any, size: Any, memory_format: Any) -> Any:
    """Change the sizes in place; the storage grows if it is too small, keeping its bytes."""
    _check_size(size)
    if self._a.shape == tuple(size) and memory_format is None:
        return self
    strides = strides_for(size, memory_format)
    s = storage_of(self)
    offset = self.storage_offset()
    need = shapes.storage_extent(size, strides, offset) * self._t.itemsize
    data = s.bytes()
    if need > data.nbytes:
        grown = np.empty(need, np.uint8)
        grown[: data.nbytes] = data
        from mortice._base.holders import ONE_LOCAL, counted

        if counted(s) > ONE_LOCAL + 1:  # the tensor's slot
            from mortice._tensor.sharing import replace_memory

            replace_memory(s, grown)
        else:  # no other tensor has to follow
            s.root = grown
            s._bytes = grown  # pyright: ignore[reportPrivateUsage]
            s._nbytes = need  # pyright: ignore[reportPrivateUsage]
    self._a = host_array(s, self._t, tuple(size), strides, offset)
    return self


HOST: Kernels = {
    "transpose.int": transpose,
    "t": t,
    "view": view,
    "permute": permute,
    "unsqueeze": unsqueeze,
    "alias": alias,
    "detach": detach,
    "select.int": select,
    "slice.Tensor": slice_,
    "squeeze": squeeze,
    "squeeze.dim": squeeze_dim,
    "squeeze.dims": squeeze_dims,
    "expand": expand,
    "unbind.int": unbind,
    "split.Tensor": split,
    "split_with_sizes": split_with_sizes,
    "empty.memory_format": empty_,
    "empty_strided": empty_strided,
    "zeros": zeros,
    "ones": ones,
    "full": full,
    "scalar_tensor": scalar_tensor,
    "empty_like": empty_like,
    "full_like": full_like,
    "zeros_like": zeros_like,
    "ones_like": ones_like,
    "fill_.Scalar": fill_,
    "fill_.Tensor": fill_,
    "zero_": zero_,
    "copy_": copy_,
    "clone": clone,
    "_to_copy": to_copy,
    "_local_scalar_dense": local_scalar_dense,
    "resize_": resize_,
}

backends.host_kernel = HOST.get
