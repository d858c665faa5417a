"""Convolutions: shape rules, the public forms, and gradients.

Notation: input (N, C, *spatial), weight (O, C / groups, *kernel); transposed convolutions swap the
roles of C and O in the weight, as PyTorch does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mortice._base.errors import DTypeError, RangeError, ShapeError
from mortice._dispatch.state import THREAD
from mortice._ops.formulas import call, conj

Ints = Sequence[int]


def _spread(values: Ints, n: int) -> tuple[int, ...]:
    return tuple(values) * n if len(values) == 1 else tuple(values)


def output_size(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """Outputs along one dimension of a convolution."""
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def transposed_size(
    size: int, kernel: int, stride: int, padding: int, dilation: int, extra: int
) -> int:
    """Outputs along one dimension of a transposed convolution."""
    return (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + extra + 1


# -- shape rules ---------------------------------------------------------------------------------


def convolution(
    input: Any, weight: Any, bias: Any, stride: Ints, padding: Ints, dilation: Ints,
    transposed: bool, output_padding: Ints, groups: int,
) -> Any:  # fmt: skip
    x, w = tuple(input._a.shape), tuple(weight._a.shape)
    n = len(w) - 2
    _check(x, w, bias, transposed, groups, n)
    if input._t is not weight._t or (bias is not None and bias._t is not input._t):
        other = weight if input._t is not weight._t else bias
        raise DTypeError(
            f"convolution: Input type ({input._t!r}) and weight or bias type ({other._t!r}) should "
            "be the same. Convert one with .to(dtype)."
        )
    s, p, d = (_spread(v, n) for v in (stride, padding, dilation))
    _check_parameters(s, p, d, groups)
    if transposed:
        extra = _spread(output_padding, n) if output_padding else (0,) * n
        spatial = tuple(
            transposed_size(x[i + 2], w[i + 2], s[i], p[i], d[i], extra[i]) for i in range(n)
        )
        channels = w[1] * groups
    else:
        for i in range(n):
            if x[i + 2] + 2 * p[i] < d[i] * (w[i + 2] - 1) + 1:
                padded = " x ".join(str(x[j + 2] + 2 * p[j]) for j in range(n))
                kernel = " x ".join(str(d[j] * (w[j + 2] - 1) + 1) for j in range(n))
                raise ShapeError(
                    f"Calculated padded input size per channel: ({padded}). Kernel size: "
                    f"({kernel}). Kernel size can't be greater than actual input size"
                )
        spatial = tuple(output_size(x[i + 2], w[i + 2], s[i], p[i], d[i]) for i in range(n))
        channels = w[0]
    if any(m < 0 for m in spatial):
        raise ShapeError(f"convolution: the output would have negative sizes {list(spatial)}")
    return (x[0], channels, *spatial), input._t


def _check(x: Any, w: Any, bias: Any, transposed: bool, groups: int, n: int) -> None:
    if len(x) != n + 2:
        raise ShapeError(
            f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to convolution with a "
            f"weight of shape {list(w)}, but got input of size: {list(x)}"
        )
    expected = w[0] if transposed else w[1] * groups
    if groups <= 0:
        raise RangeError(f"convolution: groups must be positive, got {groups}")
    if x[1] != expected:
        raise ShapeError(
            f"Given groups={groups}, weight of size {list(w)}, expected input{list(x)} to have "
            f"{expected} channels, but got {x[1]} channels instead"
        )
    if w[0] % groups:
        raise ShapeError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, "
            f"but got weight of size {list(w)} instead"
        )
    channels = w[1] * groups if transposed else w[0]
    if bias is not None and tuple(bias._a.shape) != (channels,):
        raise ShapeError(
            f"Given weight of size {list(w)}, expected bias to be 1-dimensional with {channels} "
            f"elements, but got bias of size {list(bias.shape)} instead"
        )


def _check_parameters(stride: Ints, padding: Ints, dilation: Ints, groups: int) -> None:
    if any(v <= 0 for v in stride):
        raise ShapeError(f"non-positive stride is not supported, got {list(stride)}")
    if any(v < 0 for v in padding):
        raise ShapeError(f"negative padding is not supported, got {list(padding)}")
    if any(v <= 0 for v in dilation):
        raise ShapeError(f"dilation should be greater than zero, got {list(dilation)}")


def convolution_backward(
    grad_output: Any, input: Any, weight: Any, bias_sizes: Any, stride: Ints,
    padding: Ints, dilation: Ints, transposed: bool, output_padding: Ints, groups: int, mask: Any,
) -> Any:  # fmt: skip
    channels = weight._a.shape[1] * groups if transposed else weight._a.shape[0]
    specs: list[Any] = [
        (tuple(input._a.shape), input._t),
        (tuple(weight._a.shape), weight._t),
        ((channels,), weight._t),
    ]
    return [spec if wanted else None for spec, wanted in zip(specs, mask)]


# -- public forms ----------------------------------------------------------------------------------


def _convolve(
    input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int,
    n: int, transposed: bool = False, output_padding: Any = (),
) -> Any:  # fmt: skip
    unbatched = len(input._a.shape) == n + 1
    x = input.unsqueeze(0) if unbatched else input
    s, d = _spread(stride, n), _spread(dilation, n)
    if isinstance(padding, str):
        x, p = _named_padding(x, weight, padding, s, d, n)
    else:
        p = _spread(padding, n)
    extra = _spread(output_padding, n) if output_padding else (0,) * n
    out = call("convolution", x, weight, bias, s, p, d, transposed, extra, groups)
    return out.squeeze(0) if unbatched else out


def _named_padding(x: Any, weight: Any, padding: str, s: Ints, d: Ints, n: int) -> Any:
    if padding == "valid":
        return x, (0,) * n
    if padding != "same":
        raise RangeError(f"Invalid padding string: {padding!r}; it is 'valid' or 'same'")
    if any(v != 1 for v in s):
        raise RangeError("padding='same' is not supported for strided convolutions")
    if len(x._a.shape) != n + 2 or len(weight._a.shape) != n + 2:
        raise ShapeError(
            f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to conv{n}d and "
            f"{n + 2}-dimensional weight, but got input of size {list(x.shape)} and weight of size "
            f"{list(weight.shape)}"
        )
    total = [d[i] * (weight._a.shape[i + 2] - 1) for i in range(n)]
    if all(t % 2 == 0 for t in total):
        return x, tuple(t // 2 for t in total)
    pad: list[int] = []
    for t in reversed(total):
        pad += [0, t % 2]
    return call("constant_pad_nd", x, tuple(pad), 0), tuple(t // 2 for t in total)


def conv1d(x: Any, w: Any, b: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    return _convolve(x, w, b, stride, padding, dilation, groups, 1)


def conv2d(x: Any, w: Any, b: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    return _convolve(x, w, b, stride, padding, dilation, groups, 2)


def conv3d(x: Any, w: Any, b: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    return _convolve(x, w, b, stride, padding, dilation, groups, 3)


def conv_transpose1d(
    x: Any, w: Any, b: Any, stride: Any, padding: Any, extra: Any, groups: int, dilation: Any
) -> Any:
    return _convolve(x, w, b, stride, padding, dilation, groups, 1, True, extra)


def conv_transpose2d(
    x: Any, w: Any, b: Any, stride: Any, padding: Any, extra: Any, groups: int, dilation: Any
) -> Any:
    return _convolve(x, w, b, stride, padding, dilation, groups, 2, True, extra)


def conv_transpose3d(
    x: Any, w: Any, b: Any, stride: Any, padding: Any, extra: Any, groups: int, dilation: Any
) -> Any:
    return _convolve(x, w, b, stride, padding, dilation, groups, 3, True, extra)


# -- gradients -------------------------------------------------------------------------------------


def convolution_grad(
    needs: Sequence[bool], grad: Any, input: Any, weight: Any, stride: Ints, padding: Ints,
    dilation: Ints, transposed: bool, output_padding: Ints, groups: int,
) -> Any:  # fmt: skip
    """Gradients for (input, weight, bias); made of convolutions when they are differentiated again."""
    geometry = (stride, padding, dilation, transposed, output_padding, groups)
    input, weight = conj(input), conj(weight)
    if not THREAD.grad_enabled:
        return call("convolution_backward", grad, input, weight, None, *geometry, tuple(needs))
    return convolution_backward_body(grad, input, weight, None, *geometry, tuple(needs))


def convolution_backward_body(
    grad: Any, input: Any, weight: Any, bias_sizes: Any, stride: Ints, padding: Ints, dilation: Ints,
    transposed: bool, output_padding: Ints, groups: int, mask: Sequence[bool],
) -> Any:  # fmt: skip
    """The same gradients, made of convolutions."""
    geometry = (stride, padding, dilation, transposed, output_padding, groups)
    bias = None
    if mask[2]:
        dims = (0, *range(2, len(grad._a.shape)))
        bias = call("sum.dim_IntList", grad, dims, False, None)
    return (
        _input_grad(grad, input, weight, *geometry) if mask[0] else None,
        _weight_grad(grad, input, weight, *geometry) if mask[1] else None,
        bias,
    )


def _input_grad(
    grad: Any, input: Any, weight: Any, stride: Ints, padding: Ints, dilation: Ints,
    transposed: bool, output_padding: Ints, groups: int,
) -> Any:  # fmt: skip
    n = len(stride)
    if transposed:
        out = call(
            "convolution", grad, weight, None, stride, padding, dilation, False, (0,) * n, groups
        )
        for i in range(n):  # output_padding beyond the stride adds places that no input reaches
            if out._a.shape[i + 2] != input._a.shape[i + 2]:
                out = call("slice.Tensor", out, i + 2, 0, input._a.shape[i + 2], 1)
        return out
    extra = tuple(
        input._a.shape[i + 2]
        - transposed_size(
            grad._a.shape[i + 2], weight._a.shape[i + 2], stride[i], padding[i], dilation[i], 0
        )
        for i in range(n)
    )
    return call("convolution", grad, weight, None, stride, padding, dilation, True, extra, groups)


def _weight_grad(
    grad: Any, input: Any, weight: Any, stride: Ints, padding: Ints, dilation: Ints,
    transposed: bool, output_padding: Ints, groups: int,
) -> Any:  # fmt: skip
    """A convolution over the batch: stride and dilation swap, batch and channels swap."""
    data, kernel = (grad, input) if transposed else (input, grad)
    n = len(stride)
    rows = data._a.shape[1] // groups
    columns = kernel._a.shape[1] // groups
    parts: list[Any] = []
    for g in range(groups):
        x = call("slice.Tensor", data, 1, g * rows, (g + 1) * rows, 1).transpose(0, 1)
        k = call("slice.Tensor", kernel, 1, g * columns, (g + 1) * columns, 1).transpose(0, 1)
        out = call(
            "convolution", x, k, None, dilation, padding, stride, False, (0,) * n, 1
        ).transpose(0, 1)
        for i in range(n):
            out = call("slice.Tensor", out, i + 2, 0, weight._a.shape[i + 2], 1)
        parts.append(out)
    return parts[0] if groups == 1 else call("cat", tuple(parts), 0)


__all__ = [name for name in dir() if not name.startswith("_")]
