"""Activations as functions of a tensor of any shape; ``inplace`` overwrites the input."""

from __future__ import annotations

from typing import Any

import mortice
from mortice import Tensor
from mortice.errors import InvalidValue, RangeError, ShapeError
from mortice_nn import operators as op


def _apply(name: str, input: Tensor, *args: Any, inplace: bool = False, out: Any = None) -> Tensor:
    """Operator ``name``, its in-place form, or its form that fills ``out``."""
    if inplace:
        return getattr(op, name + "_")(input, *args)
    function = getattr(op, name)
    return function(input, *args) if out is None else function(input, *args, out=out)


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0)."""
    return op.relu_(input) if inplace else op.relu(input)


def relu_(input: Tensor) -> Tensor:
    """relu, in place."""
    return op.relu_(input)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x where x > threshold, else value."""
    return _apply("threshold", input, threshold, value, inplace=inplace)


def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """x clamped to [min_val, max_val]; min_val must not exceed max_val."""
    if min_val > max_val:
        raise InvalidValue(f"hardtanh: min_val {min_val} cannot be greater than max_val {max_val}")
    return _apply("hardtanh", input, min_val, max_val, inplace=inplace)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """x clamped to [0, 6]."""
    return _apply("relu6", input, inplace=inplace)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where x > 0, else alpha * (exp(x) - 1)."""
    return _apply("elu", input, alpha, inplace=inplace)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Self-normalising ELU; constants of Klambauer et al. 2017."""
    return _apply("selu", input, inplace=inplace)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1)); alpha must not be 0."""
    return _apply("celu", input, alpha, inplace=inplace)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where x > 0, else negative_slope * x."""
    return _apply("leaky_relu", input, negative_slope, inplace=inplace)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """leaky_relu with a learnt slope: ``weight`` has one element, or one per channel (dim 1)."""
    return op.prelu(input, weight)


def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """leaky_relu whose slope is drawn from U(lower, upper) in training, their mean otherwise."""
    if lower > upper:
        raise RangeError(
            f"rrelu: lower bound should be less than or equal to the upper bound, found {lower} "
            f"and {upper}"
        )
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    slope = mortice.empty_like(input, requires_grad=False).uniform_(lower, upper)
    x = _own(input, inplace)
    result = mortice.where(x > 0, x, slope * x)
    return input.copy_(result) if inplace else result


def gelu(input: Tensor, approximate: str = "none", *, out: Tensor | None = None) -> Tensor:
    """x * Phi(x); ``approximate="tanh"`` uses the tanh formula of Hendrycks and Gimpel."""
    if out is not None:
        return op.gelu(input, approximate=approximate, out=out)
    return op.gelu(input, approximate=approximate)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x * sigmoid(x)."""
    if input.is_complex():
        result = input / (1 + (-input).exp())
        return input.copy_(result) if inplace else result
    return _apply("silu", input, inplace=inplace)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * tanh(softplus(x))."""
    return _apply("mish", input, inplace=inplace)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * relu6(x + 3) / 6."""
    return _apply("hardswish", input, inplace=inplace)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """relu6(x + 3) / 6."""
    return _apply("hardsigmoid", input, inplace=inplace)


def softplus(
    input: Tensor, beta: float = 1.0, threshold: float = 20.0, *, out: Tensor | None = None
) -> Tensor:
    """log(1 + exp(beta x)) / beta; x itself where beta x > threshold."""
    return _apply("softplus", input, beta, threshold, out=out)


def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    return input / (input.abs() + 1)


def softshrink(input: Tensor, lambd: float = 0.5, *, out: Tensor | None = None) -> Tensor:
    """x moved towards 0 by lambd, 0 within; lambd must be at least 0."""
    return _apply("softshrink", input, lambd, out=out)


def hardshrink(input: Tensor, lambd: float = 0.5, *, out: Tensor | None = None) -> Tensor:
    """x where |x| > lambd, else 0."""
    return _apply("hardshrink", input, lambd, out=out)


def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x)."""
    return input - input.tanh()


def logsigmoid(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """log(sigmoid(x)), without overflow on either side."""
    return _apply("log_sigmoid", input, out=out)


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return op.sigmoid(input)


def tanh(input: Tensor) -> Tensor:
    """Hyperbolic tangent."""
    return op.tanh(input)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """First half of ``dim`` times sigmoid of the second; the size must be even."""
    if input.ndim == 0:
        raise ShapeError("glu does not support 0-dimensional tensors")
    return op.glu(input, dim)


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
