"""Bodies of pointwise kernels that are more than one scalar operation.

Each takes the builder, the inputs, the scalar parameters, and returns the result (or a tuple).
Formulas are those that PyTorch's operators of the same names document.
"""

from __future__ import annotations

import math

from ..ir import Build, Expr

_SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)
_GELU_CUBIC = 0.044715


def gelu_backward(b: Build, g: Expr, x: Expr) -> Expr:
    """g (Phi(x) + x phi(x))."""
    return g * b.op("gelu_slope", x)


def _gelu_tanh_inner(b: Build, x: Expr) -> Expr:
    cubed = x * x * x
    return b.op("tanh", (x + cubed * _GELU_CUBIC) * _SQRT_2_OVER_PI)


def gelu_tanh(b: Build, x: Expr) -> Expr:
    """x Phi(x) with the tanh approximation."""
    return 0.5 * x * (1.0 + _gelu_tanh_inner(b, x))


def gelu_tanh_backward(b: Build, g: Expr, x: Expr) -> Expr:
    """Derivative of gelu_tanh times g."""
    t = _gelu_tanh_inner(b, x)
    slope = (1.0 + x * x * (3.0 * _GELU_CUBIC)) * _SQRT_2_OVER_PI
    return g * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope)


def silu(b: Build, x: Expr) -> Expr:
    """x sigmoid(x), as one division."""
    return x / (1.0 + b.op("exp", -x))


def silu_backward(b: Build, g: Expr, x: Expr) -> Expr:
    """g s (1 + x (1 - s)), s = sigmoid(x)."""
    s = b.op("sigmoid", x)
    return g * s * (1.0 + x * (1.0 - s))


def sigmoid_backward(b: Build, g: Expr, y: Expr) -> Expr:
    """g (1 - y) y from the result y."""
    return g * (1.0 - y) * y


def tanh_backward(b: Build, g: Expr, y: Expr) -> Expr:
    """g (1 - y*y) from the result y."""
    return g * (1.0 - y * y)


def threshold_backward(b: Build, g: Expr, x: Expr, threshold: Expr) -> Expr:
    """0 where x <= threshold, else g."""
    return b.select(x <= threshold, 0.0, g)


def relu_backward(b: Build, g: Expr, y: Expr) -> Expr:
    """0 where y <= 0, else g."""
    return b.select(y <= 0.0, 0.0, g)


def softplus(b: Build, x: Expr, beta: Expr, threshold: Expr) -> Expr:
    """log(1 + exp(beta x)) / beta; x where beta x > threshold."""
    scaled = x * beta
    return b.select(scaled > threshold, x, b.op("log1p", b.op("exp", scaled)) / beta)


def softplus_backward(b: Build, g: Expr, x: Expr, beta: Expr, threshold: Expr) -> Expr:
    """g sigmoid(beta x); g where beta x > threshold."""
    scaled = x * beta
    return b.select(scaled > threshold, g, g * b.op("sigmoid", scaled))


def elu(b: Build, x: Expr, alpha: Expr, scale: Expr, input_scale: Expr) -> Expr:
    """scale x where x > 0, else scale alpha (exp(input_scale x) - 1)."""
    low = b.op("expm1", x * input_scale) * (alpha * scale)
    return b.select(x <= 0.0, low, x * scale)


def leaky_relu(b: Build, x: Expr, slope: Expr) -> Expr:
    """x where x > 0, else slope x."""
    return b.select(x > 0.0, x, x * slope)


def leaky_relu_backward(b: Build, g: Expr, x: Expr, slope: Expr) -> Expr:
    """g where x > 0, else slope g."""
    return b.select(x > 0.0, g, g * slope)


def hardtanh(b: Build, x: Expr, low: Expr, high: Expr) -> Expr:
    """x limited to [low, high]; NaN stays."""
    return b.select(x > high, high, b.select(x < low, low, x))


def hardtanh_backward(b: Build, g: Expr, x: Expr, low: Expr, high: Expr) -> Expr:
    """0 where x <= low or x >= high, else g."""
    return b.select(x <= low, 0.0, b.select(x >= high, 0.0, g))


def _six(b: Build, x: Expr) -> Expr:
    return b.op("minimum", b.op("maximum", x + 3.0, 0.0), 6.0)


def hardswish(b: Build, x: Expr) -> Expr:
    """x min(max(x + 3, 0), 6) / 6."""
    return x * _six(b, x) / 6.0


def hardswish_backward(b: Build, g: Expr, x: Expr) -> Expr:
    """0 up to -3, g (x / 3 + 1/2) between -3 and 3, else g, for NaN too."""
    middle = g * (x / 3.0 + 0.5)
    return b.select(x <= -3.0, 0.0, b.select(x < 3.0, middle, g))


def hardsigmoid(b: Build, x: Expr) -> Expr:
    """min(max(x + 3, 0), 6) / 6."""
    return _six(b, x) / 6.0


def mish(b: Build, x: Expr) -> Expr:
    """x tanh(log(1 + exp(x)))."""
    return x * b.op("tanh", b.op("log1p", b.op("exp", x)))


def log_sigmoid(b: Build, x: Expr) -> Expr:
    """min(x, 0) - log(1 + exp(-abs(x)))."""
    return b.op("minimum", x, 0.0) - b.op("log1p", b.op("exp", -b.op("abs", x)))


def square(b: Build, x: Expr) -> Expr:
    """x x."""
    return x * x


def add_scaled(b: Build, x: Expr, y: Expr, alpha: Expr) -> Expr:
    """x + alpha y."""
    return x + y * alpha


def scale_add(b: Build, x: Expr, scale: Expr, shift: Expr) -> Expr:
    """x scale + shift."""
    return x * scale + shift


def addcmul(b: Build, x: Expr, y: Expr, z: Expr, value: Expr) -> Expr:
    """x + value y z."""
    return x + value * y * z


def addcdiv(b: Build, x: Expr, y: Expr, z: Expr, value: Expr) -> Expr:
    """x + value y / z."""
    return x + value * y / z


def lerp(b: Build, x: Expr, y: Expr, weight: Expr) -> Expr:
    """x + weight (y - x), from the nearer end."""
    far = weight - 1.0
    return b.select(b.op("abs", weight) < 0.5, x + weight * (y - x), y + far * (y - x))


# -- optimisers: outputs are the new state, usually the same memory as the inputs ----------------


def sgd(b: Build, p: Expr, g: Expr, lr: Expr, weight_decay: Expr) -> Expr:
    """p - lr (g + weight_decay p)."""
    return p - lr * (g + weight_decay * p)


def sgd_momentum(
    b: Build,
    p: Expr,
    buf: Expr,
    g: Expr,
    lr: Expr,
    weight_decay: Expr,
    momentum: Expr,
    keep: Expr,
    nesterov: Expr,
) -> tuple[Expr, Expr]:
    """(p, buf) of one step; ``keep`` is 1 - dampening, ``nesterov`` 1.0 or 0.0.

    For the first step pass a zero buffer and keep = 1.
    """
    g = g + weight_decay * p
    buf = momentum * buf + keep * g
    step = b.select(nesterov > 0.0, g + momentum * buf, buf)
    return p - lr * step, buf


def adam(
    b: Build,
    p: Expr,
    m: Expr,
    v: Expr,
    g: Expr,
    step_size: Expr,
    beta1: Expr,
    beta2: Expr,
    eps: Expr,
    correction2: Expr,
    weight_decay: Expr,
    decay_factor: Expr,
) -> tuple[Expr, Expr, Expr]:
    """(p, m, v) of one step of Adam or AdamW.

    step_size = lr / (1 - beta1**t); correction2 = sqrt(1 - beta2**t). Adam: weight_decay as
    given, decay_factor 1; AdamW: weight_decay 0, decay_factor 1 - lr * decay.
    """
    g = g + weight_decay * p
    p = p * decay_factor
    m = m + (1.0 - beta1) * (g - m)
    v = beta2 * v + (1.0 - beta2) * g * g
    return p - step_size * m / (b.op("sqrt", v) / correction2 + eps), m, v
