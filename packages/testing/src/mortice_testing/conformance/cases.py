"""What a program asks of a device, as a table: family -> name -> expression.

An expression takes `Inputs`, tensors of one device, and returns a tensor or several. It is written as
users write it, so that one case may come down to several operators.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

import mortice
from mortice import Tensor

Case = Callable[["Inputs"], Any]


class Inputs:
    """Tensors on one device; their values are the same on every device."""

    def __init__(self, device: str, dtype: Any = None) -> None:
        self.device = device
        self.dtype = dtype or mortice.float32

    def of(self, values: Any, dtype: Any = None) -> Tensor:
        """The values on the device."""
        return mortice.tensor(np.asarray(values)).to(dtype or self.dtype).to(self.device)

    def filled(self, *shape: int, low: float = -2.0, high: float = 2.0) -> Tensor:
        """Numbers between two bounds, none of them special, in no order."""
        n = int(np.prod(shape))
        steps = (np.arange(n) * 7 + 3) % (n + 1)  # a walk through them; n + 1 is no multiple of 7
        return self.of((low + (high - low) * (steps + 0.37) / (n + 1)).reshape(shape))

    # Each is made on the host and copied, so that making it asks the device for no operator.

    @cached_property
    def x(self) -> Tensor:
        return self.filled(3, 4)

    @cached_property
    def y(self) -> Tensor:
        return self.filled(3, 4, low=1.5, high=-2.5)

    @cached_property
    def row(self) -> Tensor:
        return self.filled(4)

    @cached_property
    def column(self) -> Tensor:
        return self.filled(3, 1)

    @cached_property
    def positive(self) -> Tensor:
        return self.filled(3, 4, low=0.1, high=3.0)

    @cached_property
    def unit(self) -> Tensor:
        return self.filled(3, 4, low=-0.9, high=0.9)

    @cached_property
    def image(self) -> Tensor:
        return self.filled(2, 3, 6, 6)

    @cached_property
    def mask(self) -> Tensor:
        return self.of(np.arange(12).reshape(3, 4) % 3 == 0, mortice.bool)

    @cached_property
    def integers(self) -> Tensor:
        return self.of(np.arange(12).reshape(3, 4) * 5 % 7 - 3, mortice.int64)

    @cached_property
    def index(self) -> Tensor:
        return self.of([2, 0, 1], mortice.int64)


def _method(name: str, *arguments: Any, of: str = "x", **options: Any) -> Case:
    return lambda i: getattr(getattr(i, of), name)(*arguments, **options)


def _methods(names: str, *arguments: Any, of: str = "x") -> dict[str, Case]:
    return {name: _method(name, *arguments, of=of) for name in names.split()}


def _compared(name: str) -> Case:
    return lambda i: getattr(i.x, name)(i.y)


def _nn(name: str, *arguments: Any, of: str = "x", **options: Any) -> Case:
    return lambda i: getattr(mortice.nn.functional, name)(getattr(i, of), *arguments, **options)


def _gradients(expression: Callable[..., Any], *names: str) -> Case:
    """The gradients of the sum of an expression by the named inputs."""

    def run(i: Inputs) -> Any:
        leaves = [getattr(i, name).detach().clone().requires_grad_(True) for name in names]
        expression(*leaves).sum().backward()
        return tuple(leaf.grad for leaf in leaves)

    return run


def _written(change: Callable[[Tensor, Inputs], Any]) -> Case:
    """What an in-place operator leaves behind in a copy of ``x``."""

    def run(i: Inputs) -> Any:
        target = i.x.clone()
        change(target, i)
        return target

    return run


CASES: dict[str, dict[str, Case]] = {
    "memory": {
        **_methods("clone contiguous double half bool long"),
        "full": lambda i: mortice.full((2, 3), 1.5, device=i.device),
        "zeros_like": lambda i: mortice.zeros_like(i.x),
        "arange": lambda i: mortice.arange(7, device=i.device),
        "transposed copy": lambda i: i.x.t().contiguous(),
        "channels_last": lambda i: i.image.contiguous(memory_format=mortice.channels_last),
        "fill_": _written(lambda t, i: t.fill_(2.5)),
        "zero_ of a view": _written(lambda t, i: t[1:].zero_()),
        "resize_ and fill_": lambda i: i.x.clone().resize_(5, 4).fill_(1.0),
        "copy_ broadcast": _written(lambda t, i: t.copy_(i.row)),
        "setitem": _written(lambda t, i: t.__setitem__((slice(None), 1), i.x[:, 0])),
    },
    "views": {
        "reshape": lambda i: i.x.reshape(2, 6) + 1,
        "permute": lambda i: i.image.permute(0, 2, 3, 1) + 1,
        "slice": lambda i: i.x[1:, ::2] + 1,
        "expand": lambda i: i.row.expand(3, 4) + 1,
        "select": lambda i: i.x[1] + 1,
        "diagonal": lambda i: i.x.diagonal() + 1,
        "split": lambda i: tuple(part + 1 for part in i.x.split(2, dim=1)),
        "squeeze": lambda i: i.column.squeeze(1) + 1,
    },
    "pointwise": {
        **_methods("neg abs exp sin cos tanh sigmoid relu floor ceil round sign erf square atan"),
        **_methods("sqrt rsqrt log log1p reciprocal log2", of="positive"),
        **_methods("asin acos atanh expm1", of="unit"),
        "add": lambda i: i.x + i.y,
        "add alpha": lambda i: mortice.add(i.x, i.y, alpha=0.5),
        "add number": lambda i: i.x + 1.5,
        "add row": lambda i: i.x + i.row,
        "add column and row": lambda i: i.column + i.row,
        "sub": lambda i: i.x - i.y,
        "rsub": lambda i: 1 - i.x,
        "mul": lambda i: i.x * i.y,
        "mul number": lambda i: i.x * 3,
        "div": lambda i: i.x / i.positive,
        "div number": lambda i: i.x / 3,
        "pow": lambda i: i.positive**i.unit,
        "pow number": lambda i: i.x**2,
        "remainder": lambda i: i.x % i.positive,
        "maximum": lambda i: mortice.maximum(i.x, i.y),
        "minimum": lambda i: mortice.minimum(i.x, i.y),
        "atan2": lambda i: mortice.atan2(i.x, i.y),
        "clamp": _method("clamp", -1.0, 1.0),
        "lerp": lambda i: mortice.lerp(i.x, i.y, 0.25),
        "addcmul": lambda i: mortice.addcmul(i.x, i.y, i.unit, value=0.5),
        "addcdiv": lambda i: mortice.addcdiv(i.x, i.y, i.positive, value=0.5),
        "where": lambda i: mortice.where(i.mask, i.x, i.y),
        "add transposed": lambda i: i.x.t() + i.y.t(),
        "add_": _written(lambda t, i: t.add_(i.y)),
        "mul_ number": _written(lambda t, i: t.mul_(0.5)),
    },
    "comparison": {
        **{name: _compared(name) for name in "eq ne lt le gt ge".split()},
        "gt number": lambda i: i.x > 0,
        "logical_and": lambda i: (i.x > 0) & i.mask,
        "logical_not": lambda i: ~i.mask,
        "isnan": _method("isnan"),
        "equal": lambda i: i.of([i.x.equal(i.x), i.x.equal(i.y)], mortice.bool),
    },
    "integers": {
        "add": lambda i: i.integers + i.integers,
        "mul number": lambda i: i.integers * 3,
        "mixed": lambda i: i.integers + i.x,
        "floor_divide": lambda i: i.integers // 2,
        "sum": lambda i: i.integers.sum(),
        "bitwise_and": lambda i: i.integers & 3,
    },
    "reduction": {
        **_methods("sum mean amax amin prod var std logsumexp argmax argmin", 1),
        **{f"{name} all": _method(name) for name in ("sum", "mean", "max", "min", "var", "argmax")},
        "sum keepdim": _method("sum", 0, keepdim=True),
        "sum of two": lambda i: i.image.sum((1, 3)),
        "sum transposed": lambda i: i.x.t().sum(1),
        "max with indices": lambda i: tuple(i.x.max(1)),
        "norm": _method("norm"),
        "any": lambda i: (i.x > 1).any(1),
        "all": lambda i: (i.x > -9).all(),
        "cumsum": _method("cumsum", 1),
        "item": lambda i: i.of([i.x.sum().item()]),
    },
    "matrix": {
        "mm": lambda i: i.x @ i.y.t(),
        "mv": lambda i: i.x @ i.row,
        "bmm": lambda i: i.image[0] @ i.image[1],
        "matmul broadcast": lambda i: i.image @ i.image[0, 0],
        "addmm": lambda i: mortice.addmm(i.filled(3, 3), i.x, i.y.t(), beta=0.5, alpha=2.0),
        "baddbmm": lambda i: mortice.baddbmm(i.image[0], i.image[0], i.image[1]),
        "dot": lambda i: mortice.dot(i.row, i.row),
        "outer": lambda i: mortice.outer(i.row, i.row),
        "linear": lambda i: mortice.nn.functional.linear(i.x, i.y, i.filled(3)),
        "einsum": lambda i: mortice.einsum("ij,kj->ik", i.x, i.y),
    },
    "shape": {
        "cat": lambda i: mortice.cat([i.x, i.y], 1),
        "stack": lambda i: mortice.stack([i.x, i.y]),
        "flip": _method("flip", 1),
        "roll": _method("roll", 1, 0),
        "repeat": _method("repeat", 2, 2),
        "tril": _method("tril"),
        "pad": _nn("pad", (1, 2), of="x"),
    },
    "indexing": {
        "index_select": lambda i: i.x.index_select(0, i.index),
        "index": lambda i: i.x[i.index, i.index],
        "gather": lambda i: i.x.gather(1, i.index.reshape(3, 1)),
        "scatter": lambda i: i.x.scatter(1, i.index.reshape(3, 1), 0.0),
        "masked_fill": lambda i: i.x.masked_fill(i.mask, 0.5),
        "masked_select": lambda i: i.x[i.mask],
        "embedding": lambda i: mortice.nn.functional.embedding(i.index, i.x),
        "sort": lambda i: tuple(i.x.sort(1)),
        "topk": lambda i: tuple(i.x.topk(2)),
        "index_put_": _written(lambda t, i: t.__setitem__(i.index, i.y)),
        "nonzero": lambda i: i.mask.nonzero(),
    },
    "neural": {
        "softmax": _method("softmax", 1),
        "log_softmax": _method("log_softmax", 1),
        "gelu": _nn("gelu"),
        "silu": _nn("silu"),
        "leaky_relu": _nn("leaky_relu", 0.1),
        "layer_norm": _nn("layer_norm", (4,)),
        "batch_norm": lambda i: mortice.nn.functional.batch_norm(
            i.image, i.filled(3), i.filled(3, low=0.5), training=False
        ),
        "conv2d": lambda i: mortice.nn.functional.conv2d(i.image, i.filled(4, 3, 3, 3), padding=1),
        "max_pool2d": _nn("max_pool2d", 2, of="image"),
        "avg_pool2d": _nn("avg_pool2d", 2, of="image"),
        "cross_entropy": lambda i: mortice.nn.functional.cross_entropy(i.x, i.index),
        "mse_loss": lambda i: mortice.nn.functional.mse_loss(i.x, i.y),
        "attention": lambda i: mortice.nn.functional.scaled_dot_product_attention(
            i.image, i.image, i.image
        ),
    },
    "gradients": {
        "pointwise": _gradients(lambda x, y: (x * y + x.exp()).tanh(), "x", "y"),
        "broadcast": _gradients(lambda x, row: x * row, "x", "row"),
        "matmul": _gradients(lambda x, y: x @ y.t(), "x", "y"),
        "relu": _gradients(mortice.relu, "x"),
        "softmax": _gradients(lambda x: x.softmax(1)[:, 0], "x"),
        "mean": _gradients(lambda x: x.mean(1), "x"),
        "views": _gradients(lambda x: x.t()[1:] * 2, "x"),
        "cross entropy": lambda i: _gradients(
            lambda x: mortice.nn.functional.cross_entropy(x, i.index), "x"
        )(i),
    },
}


def cases() -> list[tuple[str, str]]:
    """(family, name) of all of them, in order."""
    return [(family, name) for family, table in CASES.items() for name in table]
