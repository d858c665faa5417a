"""Initial values of parameters, written in place, outside the graph; each returns its tensor.

``generator`` (a ``mortice.Generator``) replaces the default source of random numbers.
"""

from __future__ import annotations

import math
from typing import Any

import mortice
from mortice import Tensor
from mortice.errors import InvalidValue

LINEAR_GAINS = (
    "linear", "conv1d", "conv2d", "conv3d",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "sigmoid",
)  # fmt: skip


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The recommended gain; ``param`` is leaky_relu's slope (0.01 by default)."""
    if nonlinearity in LINEAR_GAINS:
        return 1.0
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "selu":
        return 3.0 / 4
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):  # pyright: ignore
            raise InvalidValue(f"negative_slope {slope!r} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    raise InvalidValue(
        f"Unsupported nonlinearity {nonlinearity!r}; use one of "
        f"{', '.join((*LINEAR_GAINS, 'tanh', 'relu', 'leaky_relu', 'selu'))}"
    )


def fan_in_and_out(tensor: Tensor) -> tuple[int, int]:
    """How many inputs each output of this weight sees, and how many outputs each input feeds."""
    if tensor.ndim < 2:
        raise InvalidValue(
            "fan in and fan out can not be computed for a tensor with fewer than 2 dimensions; "
            f"found {tuple(tensor.shape)}"
        )
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


_calculate_fan_in_and_fan_out = fan_in_and_out


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """U(a, b)."""
    with mortice.no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """N(mean, std^2)."""
    with mortice.no_grad():
        return tensor.normal_(mean, std, generator=generator)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Tensor:
    """N(mean, std^2) limited to [a, b], by the inverse of its distribution function."""
    if mean < a - 2 * std or mean > b + 2 * std:
        import warnings

        warnings.warn(
            "trunc_normal_: mean is more than 2 std from [a, b]; the distribution of values may "
            "be incorrect",
            stacklevel=2,
        )

    def phi(x: float) -> float:
        return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0

    low, high = phi((a - mean) / std), phi((b - mean) / std)
    with mortice.no_grad():
        tensor.uniform_(2 * low - 1, 2 * high - 1, generator=generator)
        tensor.erfinv_()
        tensor.mul_(std * math.sqrt(2.0)).add_(mean)
        return tensor.clamp_(min=a, max=b)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """``val`` everywhere."""
    with mortice.no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """1 everywhere."""
    with mortice.no_grad():
        return tensor.fill_(1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """0 everywhere."""
    with mortice.no_grad():
        return tensor.zero_()


def eye_(tensor: Tensor) -> Tensor:
    """The identity, of a 2-d tensor."""
    if tensor.ndim != 2:
        raise InvalidValue(f"eye_ expects a 2-d tensor, found {tuple(tensor.shape)}")
    with mortice.no_grad():
        tensor.zero_()
        tensor.diagonal().fill_(1.0)
    return tensor


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """A convolution weight (3-d to 5-d) that passes its input channels on."""
    if tensor.ndim not in (3, 4, 5):
        raise InvalidValue(f"dirac_ expects 3, 4 or 5 dimensions, found {tensor.ndim}")
    out, channels = tensor.shape[:2]
    if out % groups:
        raise InvalidValue(f"dirac_: dim 0 of size {out} must be divisible by groups {groups}")
    centre = tuple(size // 2 for size in tensor.shape[2:])
    each = out // groups
    with mortice.no_grad():
        tensor.zero_()
        for group in range(groups):
            for channel in range(min(each, channels)):
                tensor[(group * each + channel, channel, *centre)] = 1
    return tensor


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform with variance gain^2 * 2 / (fan_in + fan_out) (Glorot and Bengio 2010)."""
    fan_in, fan_out = fan_in_and_out(tensor)
    bound = math.sqrt(3.0) * gain * math.sqrt(2.0 / (fan_in + fan_out))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Normal with variance gain^2 * 2 / (fan_in + fan_out)."""
    fan_in, fan_out = fan_in_and_out(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / (fan_in + fan_out)), generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise InvalidValue(f"Mode {mode!r} not supported, please use one of fan_in, fan_out")
    fan = fan_in_and_out(tensor)[0 if mode == "fan_in" else 1]
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Uniform with variance gain^2 / fan (He et al. 2015); ``a`` is leaky_relu's slope."""
    if 0 in tensor.shape:
        return _nothing_to_do(tensor)
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Normal with variance gain^2 / fan."""
    if 0 in tensor.shape:
        return _nothing_to_do(tensor)
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def _nothing_to_do(tensor: Tensor) -> Tensor:
    import warnings

    warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
    return tensor


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """Orthonormal rows or columns of the tensor seen as (size 0, the rest), times ``gain``.

    QR of a normal matrix, with the signs that make it uniform (Mezzadri 2007); computed on the
    host by numpy.
    """
    if tensor.ndim < 2:
        raise InvalidValue("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    import numpy as np

    rows = tensor.shape[0]
    columns = tensor.numel() // rows
    wide = rows < columns
    shape = (columns, rows) if wide else (rows, columns)
    with mortice.no_grad():
        normal = mortice.empty(shape, dtype=mortice.float64).normal_(0, 1, generator=generator)
        q, r = np.linalg.qr(normal.numpy())
        q = q * np.sign(np.diagonal(r))
        values = mortice.from_numpy(np.ascontiguousarray(q.T if wide else q))
        return tensor.copy_(values.reshape(tensor.shape)).mul_(gain)


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """N(0, std^2) with that fraction of each column zero (Martens 2010); 2-d."""
    if tensor.ndim != 2:
        raise InvalidValue("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with mortice.no_grad():
        tensor.normal_(0, std, generator=generator)
        for column in range(columns):
            order = mortice.randperm(rows, generator=generator)
            tensor[order[:zeros], column] = 0
    return tensor
