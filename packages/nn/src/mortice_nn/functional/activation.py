"""Activations as functions of a tensor of any shape; ``inplace`` overwrites the input."""

from __future__ import annotations

import mortice
from mortice import Tensor
from mortice.errors import InvalidValue
from mortice_nn import operators as op


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0)."""
    return op.relu_(input) if inplace else op.relu(input)


def relu_(input: Tensor) -> Tensor:
    """relu, in place."""
    return op.relu_(input)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x where x > threshold, else value."""
    x = _own(input, inplace)
    result = mortice.where(x > threshold, x, value)
    return input.copy_(result) if inplace else result


def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """x clamped to [min_val, max_val]; min_val must not exceed max_val."""
    if min_val > max_val:
        raise InvalidValue(f"hardtanh: min_val {min_val} cannot be greater than max_val {max_val}")
    if not inplace:
        return op.hardtanh(input, min_val, max_val)
    return input.copy_(op.hardtanh(_own(input, True), min_val, max_val))


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """x clamped to [0, 6]."""
    return hardtanh(input, 0.0, 6.0, inplace)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where x > 0, else alpha * (exp(x) - 1)."""
    if not inplace:
        return op.elu(input, alpha)
    return input.copy_(op.elu(_own(input, True), alpha))


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Self-normalising ELU; constants of Klambauer et al. 2017."""
    alpha, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
    if not inplace:
        return op.elu(input, alpha, scale)
    return input.copy_(op.elu(_own(input, True), alpha, scale))


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1)); alpha must not be 0."""
    if alpha == 0:
        raise InvalidValue("celu: alpha cannot be 0")
    if not inplace:
        return op.elu(input, alpha, 1.0, 1.0 / alpha)
    return input.copy_(op.elu(_own(input, True), alpha, 1.0, 1.0 / alpha))


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where x > 0, else negative_slope * x."""
    if not inplace:
        return op.leaky_relu(input, negative_slope)
    return input.copy_(op.leaky_relu(_own(input, True), negative_slope))


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """leaky_relu with a learnt slope: ``weight`` has one element, or one per channel (dim 1)."""
    if weight.numel() != 1:
        if weight.ndim != 1 or input.ndim < 2 or weight.numel() != input.shape[1]:
            raise InvalidValue(
                "prelu expects a weight of 1 element or one per channel (dim 1 of the input); "
                f"found weight {tuple(weight.shape)} and input {tuple(input.shape)}"
            )
        weight = weight.reshape(-1, *([1] * (input.ndim - 2)))
    return mortice.where(input > 0, input, weight * input)


def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """leaky_relu whose slope is drawn from U(lower, upper) in training, their mean otherwise."""
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    slope = mortice.empty_like(input, requires_grad=False).uniform_(lower, upper)
    x = _own(input, inplace)
    result = mortice.where(x > 0, x, slope * x)
    return input.copy_(result) if inplace else result


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x * Phi(x); ``approximate="tanh"`` uses the tanh formula of Hendrycks and Gimpel."""
    return op.gelu(input, approximate=approximate)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x * sigmoid(x)."""
    if not inplace:
        return op.silu(input)
    return input.copy_(op.silu(_own(input, True)))


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * tanh(softplus(x))."""
    x = _own(input, inplace)
    result = x * softplus(x).tanh()
    return input.copy_(result) if inplace else result


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * relu6(x + 3) / 6."""
    x = _own(input, inplace)
    result = x * (x + 3).clamp(0, 6) / 6
    return input.copy_(result) if inplace else result


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """relu6(x + 3) / 6."""
    x = _own(input, inplace)
    result = (x + 3).clamp(0, 6) / 6
    return input.copy_(result) if inplace else result


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta x)) / beta; x itself where beta x > threshold."""
    scaled = input * beta
    # exp of the clamped value: the branch not taken must not give inf * 0 in the gradient.
    smooth = scaled.clamp(max=threshold).exp().log1p() / beta
    return mortice.where(scaled > threshold, input, smooth)


def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    return input / (input.abs() + 1)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by lambd, 0 within; lambd must be at least 0."""
    if lambd < 0:
        raise InvalidValue(f"softshrink: lambd must be greater or equal to 0, found {lambd}")
    moved = mortice.where(input > 0, input - lambd, input + lambd)
    # 0 * x, not 0, so that NaN passes through.
    return mortice.where(input.abs() <= lambd, input * 0.0, moved)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x where |x| > lambd, else 0."""
    return mortice.where(input.abs() <= lambd, input * 0.0, input)


def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x)."""
    return input - input.tanh()


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x)), without overflow on either side."""
    return input.clamp(max=0) - (-input.abs()).exp().log1p()


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return op.sigmoid(input)


def tanh(input: Tensor) -> Tensor:
    """Hyperbolic tangent."""
    return op.tanh(input)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """First half of ``dim`` times sigmoid of the second; the size must be even."""
    if input.ndim == 0:
        raise InvalidValue("glu does not support 0-dimensional tensors")
    if input.shape[dim] % 2:
        raise InvalidValue(
            f"glu: halving dimension must be even, but dimension {dim} is size {input.shape[dim]}"
        )
    first, second = input.chunk(2, dim)
    return first * second.sigmoid()


def softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: object = None
) -> Tensor:
    """exp(x) / sum(exp(x)) along ``dim``; with ``dtype`` the input is cast first."""
    return op.softmax(input, _implicit_dim(input, dim), dtype)


def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: object = None
) -> Tensor:
    """log(softmax(x)) along ``dim``, computed without overflow."""
    return op.log_softmax(input, _implicit_dim(input, dim), dtype)


def softmin(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: object = None
) -> Tensor:
    """softmax(-x)."""
    return op.softmax(-input, _implicit_dim(input, dim), dtype)


def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """A sample of the Gumbel-softmax distribution (Jang et al. 2017).

    ``hard``: one-hot forward, with the gradient of the soft sample. ``eps`` is ignored.
    """
    noise = -mortice.empty_like(logits, requires_grad=False).exponential_().log()
    soft = op.softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    index = soft.argmax(dim, keepdim=True)
    one_hot = mortice.zeros_like(logits, requires_grad=False).scatter_(dim, index, 1.0)
    return one_hot - soft.detach() + soft


def _own(input: Tensor, inplace: bool) -> Tensor:
    """What to compute from: a copy where overwriting ``input`` would spoil the saved tensors."""
    return input.clone() if inplace and input.requires_grad else input


def _implicit_dim(input: Tensor, dim: int | None) -> int:
    if dim is not None:
        return dim
    import warnings

    warnings.warn(
        "softmax without dim guesses 0 for 0-, 1- and 3-d inputs and 1 otherwise; pass dim",
        stacklevel=3,
    )
    return 0 if input.ndim in (0, 1, 3) else 1
