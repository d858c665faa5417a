"""Pooling over (N, C, ...) or unbatched (C, ...) inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import mortice
from mortice.errors import InvalidValue, ShapeError
from mortice_nn import operators as op

if TYPE_CHECKING:
    from mortice import Tensor

    Size = int | Sequence[int]


def tuple_of(size: Any, n: int, what: str) -> list[int]:
    """``size`` as n numbers: one number stands for all of them."""
    if isinstance(size, int):
        return [size] * n
    sizes = list(size)
    if len(sizes) == 1:
        return sizes * n
    if len(sizes) != n:
        raise ShapeError(f"{what} must be one number or {n}, found {tuple(sizes)}")
    return sizes


def _is_unset(stride: Size | None) -> bool:
    """Whether the stride is left to be the kernel's size: None, or an empty sequence as in ATen."""
    return stride is None or (not isinstance(stride, int) and len(stride) == 0)


def _check_adaptive(name: str, input: Tensor, n: int) -> None:
    if input.ndim < n + 1:
        raise InvalidValue(
            f"{name}: the input should have at least {n + 1} dimensions, found {tuple(input.shape)}"
        )
    _check_dims(name, input, n)


def _check_dims(name: str, input: Tensor, n: int) -> None:
    if input.ndim not in (n + 1, n + 2):
        raise ShapeError(
            f"{name} expects a {n + 1}-d (unbatched) or {n + 2}-d input, found {tuple(input.shape)}"
        )


def _max_pool(
    name: str,
    n: int,
    input: Tensor,
    kernel_size: Size,
    stride: Size | None,
    padding: Size,
    dilation: Size,
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    _check_dims(name, input, n)
    kernel = tuple_of(kernel_size, n, "kernel_size")
    step = kernel if _is_unset(stride) else tuple_of(stride, n, "stride")
    pad = tuple_of(padding, n, "padding")
    spread = tuple_of(dilation, n, "dilation")
    arguments = (input, kernel, step, pad, spread, ceil_mode)
    if not return_indices:
        return getattr(op, name)(*arguments)
    return getattr(op, f"{name}_with_indices")(*arguments)


def max_pool1d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Maximum of each window of (N, C, L); with ``return_indices`` also where it was."""
    return _max_pool(
        "max_pool1d", 1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices
    )


def max_pool2d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Maximum of each window of (N, C, H, W); with ``return_indices`` also where in H W."""
    return _max_pool(
        "max_pool2d", 2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices
    )


def max_pool3d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Maximum of each window of (N, C, D, H, W)."""
    return _max_pool(
        "max_pool3d", 3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices
    )


def max_pool1d_with_indices(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Maxima of (N, C, L) and where they were, whatever ``return_indices`` says."""
    return _max_pool(
        "max_pool1d", 1, input, kernel_size, stride, padding, dilation, ceil_mode, True
    )


def max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Maxima of (N, C, H, W) and where they were, whatever ``return_indices`` says."""
    return _max_pool(
        "max_pool2d", 2, input, kernel_size, stride, padding, dilation, ceil_mode, True
    )


def max_pool3d_with_indices(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Maxima of (N, C, D, H, W) and where they were, whatever ``return_indices`` says."""
    return _max_pool(
        "max_pool3d", 3, input, kernel_size, stride, padding, dilation, ceil_mode, True
    )


def avg_pool1d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Mean of each window of (N, C, L)."""
    _check_dims("avg_pool1d", input, 1)
    kernel = tuple_of(kernel_size, 1, "kernel_size")
    step = kernel if _is_unset(stride) else tuple_of(stride, 1, "stride")
    pad = tuple_of(padding, 1, "padding")
    return op.avg_pool1d(input, kernel, step, pad, ceil_mode, count_include_pad)


def avg_pool2d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Mean of each window of (N, C, H, W); ``divisor_override`` replaces the window's size."""
    _check_dims("avg_pool2d", input, 2)
    kernel = tuple_of(kernel_size, 2, "kernel_size")
    step = kernel if _is_unset(stride) else tuple_of(stride, 2, "stride")
    pad = tuple_of(padding, 2, "padding")
    arguments = (input, kernel, step, pad, ceil_mode, count_include_pad, divisor_override)
    return op.avg_pool2d(*arguments) if out is None else op.avg_pool2d(*arguments, out=out)


def avg_pool3d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Mean of each window of (N, C, D, H, W)."""
    _check_dims("avg_pool3d", input, 3)
    kernel = tuple_of(kernel_size, 3, "kernel_size")
    step = kernel if _is_unset(stride) else tuple_of(stride, 3, "stride")
    pad = tuple_of(padding, 3, "padding")
    arguments = (input, kernel, step, pad, ceil_mode, count_include_pad, divisor_override)
    return op.avg_pool3d(*arguments) if out is None else op.avg_pool3d(*arguments, out=out)


def _lp_pool(input: Tensor, p: float, windows: int, pool: Callable[[Tensor], Tensor]) -> Tensor:
    """(sum |x|^p)^(1/p) as the average pool of x^p times the window's size."""
    mean = pool(input.pow(p))
    return (mean.sign() * mean.abs().relu() * windows).pow(1.0 / p)


def lp_pool1d(
    input: Tensor,
    norm_type: float,
    kernel_size: int,
    stride: Size | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """(sum x^p)^(1/p) of each window of (N, C, L)."""
    return _lp_pool(
        input, norm_type, kernel_size, lambda x: avg_pool1d(x, kernel_size, stride, 0, ceil_mode)
    )


def lp_pool2d(
    input: Tensor,
    norm_type: float,
    kernel_size: Size,
    stride: Size | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """(sum x^p)^(1/p) of each window of (N, C, H, W)."""
    kh, kw = tuple_of(kernel_size, 2, "kernel_size")
    return _lp_pool(
        input, norm_type, kh * kw, lambda x: avg_pool2d(x, kernel_size, stride, 0, ceil_mode)
    )


def lp_pool3d(
    input: Tensor,
    norm_type: float,
    kernel_size: Size,
    stride: Size | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """(sum x^p)^(1/p) of each window of (N, C, D, H, W)."""
    kd, kh, kw = tuple_of(kernel_size, 3, "kernel_size")
    return _lp_pool(
        input, norm_type, kd * kh * kw, lambda x: avg_pool3d(x, kernel_size, stride, 0, ceil_mode)
    )


def _target(output_size: Any, shape: Sequence[int], n: int) -> list[int]:
    """``output_size`` as n numbers; None keeps the input's size."""
    sizes = (
        [output_size] * n if output_size is None or isinstance(output_size, int) else output_size
    )
    if len(sizes) != n:
        raise ShapeError(f"output_size must be one number or {n}, found {tuple(sizes)}")
    if any(size is not None and size < 0 for size in sizes):
        raise ShapeError(
            f"elements of output_size must be greater than or equal to 0, found {tuple(sizes)}"
        )
    return [have if want is None else want for want, have in zip(sizes, shape[-n:], strict=True)]


def adaptive_avg_pool1d(input: Tensor, output_size: Size) -> Tensor:
    """Mean of ``output_size`` windows that cover (N, C, L)."""
    _check_adaptive("adaptive_avg_pool1d", input, 1)
    (size,) = _target(output_size, input.shape, 1)
    return op.adaptive_avg_pool1d(input, [size])


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Mean of windows that cover (N, C, H, W); None in ``output_size`` keeps that size."""
    _check_adaptive("adaptive_avg_pool2d", input, 2)
    return op.adaptive_avg_pool2d(input, _target(output_size, input.shape, 2))


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Mean of windows that cover (N, C, D, H, W)."""
    _check_adaptive("adaptive_avg_pool3d", input, 3)
    return op.adaptive_avg_pool3d(input, _target(output_size, input.shape, 3))


def _adaptive_max(name: str, n: int, input: Tensor, output_size: Any, return_indices: bool) -> Any:
    _check_adaptive(name, input, n)
    out, indices = getattr(op, name)(input, _target(output_size, input.shape, n))
    return (out, indices) if return_indices else out


def adaptive_max_pool1d(input: Tensor, output_size: Size, return_indices: bool = False) -> Any:
    """Maximum of ``output_size`` windows that cover (N, C, L)."""
    return _adaptive_max("adaptive_max_pool1d", 1, input, output_size, return_indices)


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Maximum of windows that cover (N, C, H, W)."""
    return _adaptive_max("adaptive_max_pool2d", 2, input, output_size, return_indices)


def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Maximum of windows that cover (N, C, D, H, W)."""
    return _adaptive_max("adaptive_max_pool3d", 3, input, output_size, return_indices)


def _max_unpool(
    n: int,
    input: Tensor,
    indices: Tensor,
    kernel_size: Size,
    stride: Size | None,
    padding: Size,
    output_size: Sequence[int] | None,
) -> Tensor:
    _check_dims(f"max_unpool{n}d", input, n)
    if input.shape != indices.shape:
        raise ShapeError(
            f"max_unpool{n}d expects indices of the input's shape {tuple(input.shape)}, found "
            f"{tuple(indices.shape)}"
        )
    kernel = tuple_of(kernel_size, n, "kernel_size")
    step = kernel if stride is None else tuple_of(stride, n, "stride")
    pad = tuple_of(padding, n, "padding")
    if output_size is None:
        space = [
            (size - 1) * s - 2 * q + k
            for size, s, q, k in zip(input.shape[-n:], step, pad, kernel, strict=True)
        ]
    else:
        space = list(output_size)[-n:]
    lead = input.shape[:-n]
    zeros = mortice.zeros(*lead, prod(space), dtype=input.dtype, device=input.device)
    flat = zeros.scatter(-1, indices.flatten(-n), input.flatten(-n))
    return flat.reshape(*lead, *space)


def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Put max_pool1d's values back where they came from, zeros elsewhere."""
    return _max_unpool(1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Put max_pool2d's values back where they came from, zeros elsewhere."""
    return _max_unpool(2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Put max_pool3d's values back where they came from, zeros elsewhere."""
    return _max_unpool(3, input, indices, kernel_size, stride, padding, output_size)
