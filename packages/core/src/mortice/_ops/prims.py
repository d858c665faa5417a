"""The operators of ``prims``: what others are made of, without promotion or broadcasting.

Where one equals an ATen operator it is computed by that one; the rules add that tensors must have
one dtype and one shape (0-d ones on the CPU and numbers aside).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from mortice._base.errors import DimensionError, DTypeError, InvalidValue, ShapeError
from mortice._dispatch.operator import get
from mortice._ops import view as views
from mortice._ops.decomposed.steps import in_float32
from mortice._ops.decomposed.steps import where as choose
from mortice._ops.formulas import call
from mortice._ops.prims_elementwise import *  # noqa: F403  the rows' functions
from mortice._ops.prims_elementwise import check_alike, is_scalar
from mortice._types import dtypes
from mortice._types.layout import contiguous_format
from mortice._types.shapes import contiguous_strides, numel, wrap_dim


def _shape(x: Any) -> tuple[Any, ...]:
    return tuple(x._a.shape)


# -- elementwise, with rules of their own -----------------------------------------------------------


def div_rule(self: Any, other: Any) -> Any:
    check_alike((self, other))
    mode = "trunc" if _integral(self, other) else None
    return get("div.Tensor_mode").shape_rule()(self, other, mode)  # pyright: ignore[reportOptionalCall]


def div(self: Any, other: Any) -> Any:
    """Integers are divided without rest."""
    check_alike((self, other))
    if _integral(self, other):
        return call("div.Tensor_mode", self, other, "trunc")
    return call("div.Tensor", self, other)


def _integral(*values: Any) -> bool:
    tensor = next((x for x in values if hasattr(x, "_k")), None)
    return tensor is not None and not tensor._t.differentiable


def like_rule(self: Any, *rest: Any) -> Any:
    check_alike((self, *rest))
    sized = next((x for x in (self, *rest) if hasattr(x, "_k") and not is_scalar(x)), self)
    return _shape(sized), self._t


@in_float32
def cbrt(self: Any) -> Any:
    """A power, made exact by one step of Newton's method."""
    x = self if self._t.differentiable else self.to(dtypes.default.dtype)
    size = x.abs()
    root = size ** (1 / 3)
    square = choose(root == 0, 1, root * root)
    refined = root - (root - size / square) / 3
    refined = choose((size == 0) | (size == np.inf), size, refined)
    return choose(x < 0, -refined, refined)


@in_float32
def spherical_bessel_j0(self: Any) -> Any:
    """sin(x) / x, which is 1 at 0 and 0 at infinity."""
    x = self if self._t.differentiable else self.to(dtypes.default.dtype)
    return choose(x == 0, 1, choose(x.abs() == np.inf, 0, x.sin() / x))


def where_rule(pred: Any, a: Any, b: Any) -> Any:
    check_alike((a, b))
    return get("where.self").shape_rule()(pred, a, b)  # pyright: ignore[reportOptionalCall]


def where(pred: Any, a: Any, b: Any) -> Any:
    check_alike((a, b))
    return call("where.self", pred, a, b)


def fill_rule(self: Any, value: Any) -> Any:
    return _shape(self), self._t


def fill(self: Any, value: Any) -> Any:
    return call("full_like", self, value, None, None, None, None, None)


# -- dtype, device, memory -------------------------------------------------------------------------


def convert_element_type_rule(a: Any, dtype: Any) -> Any:
    return get("_to_copy").shape_rule()(a, dtype, None, None, None, False, None)  # pyright: ignore[reportOptionalCall]


def convert_element_type(a: Any, dtype: Any) -> Any:
    return call("_to_copy", a, dtype, None, None, None, False, None)


def device_put(a: Any, device: Any, non_blocking: bool) -> Any:
    return a.to(device, non_blocking=non_blocking)


def copy_strided_rule(a: Any, stride: Any) -> Any:
    return _shape(a), a._t, tuple(stride)


def copy_strided(a: Any, stride: Any) -> Any:
    out = call("empty_strided", _shape(a), stride, a._t, None, a.device, None)
    return call("copy_", out, a, False)


def copy_to(a: Any, b: Any) -> Any:
    return call("copy_", a, b, False)


def resize(a: Any, shape: Any) -> Any:
    return call("resize_", a, shape, None)


def item(a: Any) -> Any:
    return a.item()


def maximum_value(dtype: Any) -> Any:
    return _extreme(dtype, True)


def minimum_value(dtype: Any) -> Any:
    return _extreme(dtype, False)


def _extreme(dtype: Any, largest: bool) -> Any:
    if dtype is dtypes.bool_:
        return largest
    if dtype.is_complex:
        raise DTypeError(
            f"{dtype!r} has no largest or smallest value: complex numbers have no order."
        )
    if dtype.differentiable:
        most = float(ml_dtypes.finfo(dtype.numpy).max)
        return most if largest else -most
    info = ml_dtypes.iinfo(dtype.numpy)
    return int(info.max if largest else info.min)


# -- views -----------------------------------------------------------------------------------------


def _restrided(a: Any, sizes: Sequence[Any], strides: Sequence[Any]) -> Any:
    return tuple(sizes), tuple(strides), a.storage_offset()


def as_strided(a: Any, size: Any, stride: Any, offset: Any) -> Any:
    return views.as_strided(a, size, stride, offset)


def broadcast_in_dim(a: Any, shape: Any, dimensions: Any) -> Any:
    """Dimension ``i`` becomes dimension ``dimensions[i]`` of ``shape``; the others are new."""
    have, strides = _shape(a), a.stride()
    if len(dimensions) != len(have) or any(
        p >= q for p, q in itertools.pairwise(dimensions)
    ) or any(not 0 <= d < len(shape) for d in dimensions):  # fmt: skip
        raise ShapeError(
            f"broadcast_in_dim: expected one ascending dimension of {list(shape)} for each of {list(have)}, "
            f"but got {list(dimensions)}"
        )
    steps: list[Any] = [0] * len(shape)
    for i, d in enumerate(dimensions):
        if have[i] != 1 and have[i] != shape[d]:
            raise ShapeError(
                f"broadcast_in_dim: size {have[i]} of dimension {i} must be 1 or {shape[d]}, the size of "
                f"dimension {d} of the result"
            )
        steps[d] = strides[i] if have[i] == shape[d] else 0
    return _restrided(a, shape, steps)


def _span(a: Any, start: int, end: int) -> tuple[int, int]:
    n = max(len(_shape(a)), 1)
    if not 0 <= start <= end < n:
        raise DimensionError(
            f"collapse: expected 0 <= start <= end < {n}, but got start {start} and end {end}"
        )
    return start, end


def _collapsed(a: Any, start: int, end: int) -> tuple[Any, ...]:
    start, end = _span(a, start, end)
    shape = _shape(a) or (1,)
    return (*shape[:start], numel(shape[start : end + 1]), *shape[end + 1 :])


def collapse_view(a: Any, start: int, end: int) -> Any:
    return views.view(a, _collapsed(a, start, end))


def collapse_rule(a: Any, start: int, end: int) -> Any:
    return _collapsed(a, start, end), a._t


def collapse(a: Any, start: int, end: int) -> Any:
    return call("clone", a.reshape(_collapsed(a, start, end)), contiguous_format)


def split_dim(a: Any, dim: int, outer: Any) -> Any:
    shape, strides = _shape(a), a.stride()
    d = wrap_dim(dim, len(shape))
    if outer <= 0 or shape[d] % outer:
        raise InvalidValue(
            f"Attempting to split dimension of length {shape[d]}, but outer length of {outer} divides it with "
            "a remainder!"
        )
    inner = shape[d] // outer
    sizes = (*shape[:d], outer, inner, *shape[d + 1 :])
    return _restrided(a, sizes, (*strides[:d], strides[d] * inner, *strides[d:]))


def squeeze(a: Any, dimensions: Any) -> Any:
    shape, strides = _shape(a), a.stride()
    dims = {wrap_dim(d, len(shape)) for d in dimensions}
    for d in dims:
        if shape[d] != 1:
            raise ShapeError(f"squeeze: dimension {d} has size {shape[d]}, expected 1")
    kept = [i for i in range(len(shape)) if i not in dims]
    return _restrided(a, [shape[i] for i in kept], [strides[i] for i in kept])


def transpose(a: Any, permutation: Any) -> Any:
    if sorted(permutation) != list(range(len(_shape(a)))):
        raise InvalidValue(
            f"transpose: {list(permutation)} is no permutation of the {len(_shape(a))} dimensions"
        )
    return _restrided(a, [_shape(a)[d] for d in permutation], [a.stride()[d] for d in permutation])


def view_of(a: Any) -> Any:
    return _restrided(a, _shape(a), a.stride())


def view_of_dtype(a: Any, dtype: Any) -> Any:
    return views.view_dtype(a, dtype)


def conj(a: Any) -> Any:
    return a.conj()


def real(self: Any) -> Any:
    return self.real


def imag(self: Any) -> Any:
    return self.imag


def reshape_rule(a: Any, shape: Any) -> Any:
    if numel(shape) != numel(_shape(a)):
        raise InvalidValue(
            f"Attempting to reshape a tensor with shape {list(_shape(a))} to a shape {list(shape)} with a "
            "different number of elements!"
        )
    return tuple(shape), a._t


def reshape(a: Any, shape: Any) -> Any:
    return call("clone", a.reshape(tuple(shape)), contiguous_format)


def rev_rule(a: Any, dims: Any) -> Any:
    return _shape(a), a._t


def rev(a: Any, dims: Any) -> Any:
    return call("flip", a, dims)


def cat_rule(tensors: Any, dim: int) -> Any:
    return get("cat").shape_rule()(tensors, dim)  # pyright: ignore[reportOptionalCall]


def cat(tensors: Any, dim: int) -> Any:
    return call("cat", tensors, dim)


def as_strided_scatter_rule(self: Any, src: Any, size: Any, stride: Any, offset: Any) -> Any:
    return _shape(self), self._t


def as_strided_scatter(self: Any, src: Any, size: Any, stride: Any, offset: Any) -> Any:
    return call("as_strided_scatter", self, src, size, stride, offset)


# -- reductions ------------------------------------------------------------------------------------


def _dims(x: Any, dims: Any) -> tuple[int, ...]:
    ndim = len(_shape(x))
    return tuple(range(ndim)) if dims is None else tuple(wrap_dim(d, ndim) for d in dims)


def reduced(inp: Any, dims: Any, output_dtype: Any) -> Any:
    gone = _dims(inp, dims)
    kept = tuple(n for i, n in enumerate(_shape(inp)) if i not in gone)
    return kept, output_dtype or inp._t


def summed(inp: Any, dims: Any, output_dtype: Any) -> Any:
    kept, dtype = reduced(inp, dims, output_dtype)
    return kept, dtypes.int64 if output_dtype is None and _integral(inp) else dtype


def var_rule(inp: Any, dims: Any, correction: Any, output_dtype: Any) -> Any:
    kept, dtype = reduced(inp, dims, output_dtype)
    return kept, dtype.to_real()


def _as(x: Any, dtype: Any) -> Any:
    return x if dtype is None else x.to(dtype)


def sum(inp: Any, dims: Any, output_dtype: Any) -> Any:
    return call("sum.dim_IntList", inp, _dims(inp, dims), False, output_dtype)


def prod(inp: Any, dims: Any, output_dtype: Any) -> Any:
    result = inp.to(summed(inp, dims, output_dtype)[1])
    for d in sorted(_dims(inp, dims), reverse=True):
        result = call("prod.dim_int", result, d, False, None)
    return result


def amax(inp: Any, dims: Any, output_dtype: Any) -> Any:
    return _as(call("amax", inp, _dims(inp, dims), False), output_dtype)


def amin(inp: Any, dims: Any, output_dtype: Any) -> Any:
    return _as(call("amin", inp, _dims(inp, dims), False), output_dtype)


def var(inp: Any, dims: Any, correction: Any, output_dtype: Any) -> Any:
    return _as(call("var.correction", inp, _dims(inp, dims), correction, False), output_dtype)


# -- factories -------------------------------------------------------------------------------------


def _checked(size: Any, dtype: Any) -> Any:
    return tuple(size), dtype


def empty_rule(shape: Any, dtype: Any, device: Any, requires_grad: bool) -> Any:
    return _checked(shape, dtype)


def empty(shape: Any, dtype: Any, device: Any, requires_grad: bool) -> Any:
    made = call("empty.memory_format", shape, dtype, None, device, None, None)
    return made.requires_grad_(requires_grad)


def empty_strided_rule(
    shape: Any, strides: Any, dtype: Any, device: Any, requires_grad: bool
) -> Any:
    return tuple(shape), dtype, tuple(strides)


def empty_strided(shape: Any, strides: Any, dtype: Any, device: Any, requires_grad: bool) -> Any:
    made = call("empty_strided", shape, strides, dtype, None, device, None)
    return made.requires_grad_(requires_grad)


def _permuted_strides(shape: Any, layout: Any) -> tuple[Any, ...]:
    """Strides where the dimensions lie in memory in the order of ``layout``, the outermost first."""
    if sorted(layout) != list(range(len(shape))):
        raise InvalidValue(
            f"empty_permuted: {list(layout)} is no permutation of the {len(shape)} dimensions"
        )
    inner = contiguous_strides(tuple(shape[d] for d in layout))
    return tuple(inner[list(layout).index(d)] for d in range(len(shape)))


def empty_permuted_rule(
    shape: Any, layout: Any, dtype: Any, device: Any, requires_grad: bool
) -> Any:
    return tuple(shape), dtype, _permuted_strides(shape, layout)


def empty_permuted(shape: Any, layout: Any, dtype: Any, device: Any, requires_grad: bool) -> Any:
    return empty_strided(shape, _permuted_strides(shape, layout), dtype, device, requires_grad)


def full_rule(shape: Any, value: Any, dtype: Any, device: Any, requires_grad: bool) -> Any:
    return _checked(shape, dtype)


def full(shape: Any, value: Any, dtype: Any, device: Any, requires_grad: bool) -> Any:
    made = call("full", shape, value, dtype, None, device, None)
    return made.requires_grad_(requires_grad)


def full_like_rule(a: Any, value: Any, dtype: Any, device: Any, requires_grad: bool) -> Any:
    return _shape(a), dtype


def full_like(a: Any, value: Any, dtype: Any, device: Any, requires_grad: bool) -> Any:
    made = call("full_like", a, value, dtype, None, device, None, None)
    return made.requires_grad_(requires_grad)


def iota_rule(length: Any, start: Any, step: Any, dtype: Any, device: Any, grad: bool) -> Any:
    if length < 0:
        raise InvalidValue(f"iota: length must be non-negative, but got {length}")
    if step == 0:
        raise InvalidValue("iota: step must be nonzero")
    if dtype.differentiable or dtype is dtypes.bool_:
        raise DTypeError(f"prims.iota only supports integer dtypes, not {dtype!r}")
    return (length,), dtype


def iota(length: Any, start: Any, step: Any, dtype: Any, device: Any, requires_grad: bool) -> Any:
    iota_rule(length, start, step, dtype, device, requires_grad)
    return call("arange.start_step", start, start + length * step, step, dtype, None, device, None)


def scalar_tensor_rule(s: Any, dtype: Any, device: Any) -> Any:
    return (), dtype or dtypes.of_number(s)


def scalar_tensor(s: Any, dtype: Any, device: Any) -> Any:
    return call("full", (), s, dtype or dtypes.of_number(s), None, device, None)


def normal_rule(
    shape: Any, mean: Any, std: Any, dtype: Any, device: Any, requires_grad: bool, generator: Any
) -> Any:
    if std < 0:
        raise InvalidValue(f"expected non-negative standard deviation, but got std={std}")
    return _checked(shape, dtype)


def normal(
    shape: Any, mean: Any, std: Any, dtype: Any, device: Any, requires_grad: bool, generator: Any
) -> Any:
    normal_rule(shape, mean, std, dtype, device, requires_grad, generator)
    made = call("randn.generator", shape, generator, dtype, None, device, None) * std + mean
    return made.requires_grad_(requires_grad)


def uniform_rule(
    shape: Any, low: Any, high: Any, dtype: Any, device: Any, stride: Any, generator: Any
) -> Any:
    return tuple(shape), dtype, tuple(stride)


def uniform(
    shape: Any, low: Any, high: Any, dtype: Any, device: Any, stride: Any, generator: Any
) -> Any:
    made = call("empty_strided", shape, stride, dtype, None, device, None)
    return call("uniform_", made, float(low), float(high), generator)


# -- the rest --------------------------------------------------------------------------------------


def svd_rule(A: Any, full_matrices: bool) -> Any:
    return get("_linalg_svd").shape_rule()(A, full_matrices, True)  # pyright: ignore[reportOptionalCall]


def svd(A: Any, full_matrices: bool) -> Any:
    return call("_linalg_svd", A, full_matrices, True)


def fft_c2c_rule(self: Any, dim: Any, forward: bool) -> Any:
    return get("_fft_c2c").shape_rule()(self, dim, 0, forward)  # pyright: ignore[reportOptionalCall]


def fft_c2c(self: Any, dim: Any, forward: bool) -> Any:
    return call("_fft_c2c", self, dim, 0, forward)


def fft_r2c_rule(self: Any, dim: Any, onesided: bool) -> Any:
    return get("_fft_r2c").shape_rule()(self, dim, 0, onesided)  # pyright: ignore[reportOptionalCall]


def fft_r2c(self: Any, dim: Any, onesided: bool) -> Any:
    return call("_fft_r2c", self, dim, 0, onesided)


def fft_c2r_rule(self: Any, dim: Any, last_dim_size: Any) -> Any:
    return get("_fft_c2r").shape_rule()(self, dim, 0, last_dim_size)  # pyright: ignore[reportOptionalCall]


def fft_c2r(self: Any, dim: Any, last_dim_size: Any) -> Any:
    return call("_fft_c2r", self, dim, 0, last_dim_size)


def make_token() -> Any:
    """Something to depend on: operators with effects are ordered by it."""
    return call("empty.memory_format", (0,), dtypes.default.dtype, None, None, None, None)


def make_token_rule() -> Any:
    return (0,), dtypes.default.dtype


def sink_tokens(tensors: Any) -> None:
    """Keeps the tokens alive to the end of a graph."""
