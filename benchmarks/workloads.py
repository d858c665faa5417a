"""Workloads of compilers, each defined once for all frameworks.

A workload is a function of an ``Ops``, the few names in which frameworks differ, and arrays. It gives
one array, or a scalar loss whose gradients for the parameters are taken. Frameworks that cannot say a
workload raise ``Unsaid`` and are left out of its row.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np


class Unsaid(Exception):
    """A framework has no natural way to say this."""


class Ops(NamedTuple):
    """What a framework brings: elementwise functions, products, shapes."""

    exp: Any
    log: Any
    abs: Any
    tanh: Any
    sqrt: Any
    sigmoid: Any
    gelu: Any
    relu: Any
    softmax: Any
    layer_norm: Any
    matmul: Any
    cross_entropy: Any
    reshape: Any
    transpose: Any
    sum: Any


class Workload(NamedTuple):
    """``run(ops, *arrays)``; with ``gradients`` of the first ``parameters`` arrays.

    ``target`` is the greatest ratio of our time to the best of the others'. It is timed in at least
    ``processes`` processes of every framework: in more than one where memory bounds it, whose speed
    goes by where a process's blocks lie.
    """

    name: str
    run: Callable[..., Any]
    arrays: Callable[[], list[np.ndarray]]
    target: float
    parameters: int = 0
    tolerance: float = 1e-4
    processes: int = 1


def _random(*shapes: tuple[int, ...], seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(s, dtype=np.float32) for s in shapes]


# -- elementwise -----------------------------------------------------------------------------------


def chain(o: Ops, x: Any, y: Any) -> Any:
    a = x * y + x
    b = o.exp(-o.abs(a))
    c = o.log(1 + b)
    d = o.tanh(c) * y
    e = o.gelu(d)
    f = e * o.sigmoid(x)
    return o.sqrt(f * f + 1)


def arithmetic(o: Ops, x: Any, y: Any) -> Any:
    a = (x + y) * x
    b = (a - y) * 0.5
    c = (b + x) * (b - y)
    return (c * 0.25 + y) * x


# -- rows ------------------------------------------------------------------------------------------


def softmax(o: Ops, x: Any) -> Any:
    return o.softmax(x)


def norm_gelu(o: Ops, x: Any, w: Any, b: Any) -> Any:
    return o.gelu(o.layer_norm(x, w, b))


# -- networks --------------------------------------------------------------------------------------


def mlp(o: Ops, *given: Any) -> Any:
    *parameters, x, y = given
    (w1, b1), (w2, b2), (w3, b3) = zip(parameters[::2], parameters[1::2], strict=True)
    h = o.relu(o.matmul(x, w1) + b1)
    h = o.relu(o.matmul(h, w2) + b2)
    return o.cross_entropy(o.matmul(h, w3) + b3, y)


def mlp_arrays() -> list[np.ndarray]:
    sizes = (784, 512, 512, 10)
    out: list[np.ndarray] = []
    for k, (n, m) in enumerate(pairwise(sizes)):
        w, b = _random((n, m), (m,), seed=k)
        out += [w * np.float32(n**-0.5), b * np.float32(0.1)]
    out += _random((64, 784), seed=9)
    return [*out, np.random.default_rng(1).integers(0, 10, 64)]


HEADS, WIDTH, LENGTH, BATCH = 4, 256, 128, 4


def _attention(o: Ops, x: Any, w: Any, b: Any, wo: Any, bo: Any) -> Any:
    n, t, d = BATCH, LENGTH, WIDTH
    size = d // HEADS

    def heads(z: Any) -> Any:
        return o.transpose(o.reshape(z, (n, t, HEADS, size)), (0, 2, 1, 3))

    z = o.matmul(x, w) + b
    q, k, v = [heads(z[:, :, i * d : (i + 1) * d]) for i in range(3)]
    scores = o.matmul(q, o.transpose(k, (0, 1, 3, 2))) * (size**-0.5)
    out = o.matmul(o.softmax(scores), v)
    return o.matmul(o.reshape(o.transpose(out, (0, 2, 1, 3)), (n, t, d)), wo) + bo


def transformer(o: Ops, *given: Any) -> Any:
    *parameters, x = given
    for k in range(0, len(parameters), 12):
        w, b, wo, bo, g1, s1, g2, s2, w1, b1, w2, b2 = parameters[k : k + 12]
        x = x + _attention(o, o.layer_norm(x, g1, s1), w, b, wo, bo)
        h = o.gelu(o.matmul(o.layer_norm(x, g2, s2), w1) + b1)
        x = x + o.matmul(h, w2) + b2
    return x


def transformer_loss(o: Ops, *given: Any) -> Any:
    return o.sum(transformer(o, *given))


def transformer_arrays() -> list[np.ndarray]:
    d = WIDTH
    shapes = [(d, 3 * d), (3 * d,), (d, d), (d,), (d,), (d,), (d,), (d,), (d, 4 * d), (4 * d,),
              (4 * d, d), (d,)]  # fmt: skip
    out: list[np.ndarray] = []
    for layer in range(2):
        made = _random(*shapes, seed=layer)
        out += [a * np.float32(a.shape[0] ** -0.5 if a.ndim == 2 else 0.1) for a in made]
    return [*out, *_random((BATCH, LENGTH, d), seed=7)]


MILLION = 1 << 20
WORKLOADS = (
    Workload("chain, 1M", chain, lambda: _random((MILLION,), (MILLION,)), 0.6),
    Workload("arithmetic, 1M", arithmetic, lambda: _random((MILLION,), (MILLION,)), 1.1,
             processes=5),
    Workload("softmax 1024 x 1024", softmax, lambda: _random((1024, 1024)), 0.8),
    Workload("layernorm + gelu 512 x 1024", norm_gelu,
             lambda: _random((512, 1024), (1024,), (1024,)), 0.8),
    Workload("MLP step, batch 64", mlp, mlp_arrays, 1.1, 6, 1e-3),
    Workload("transformer, forward", transformer, transformer_arrays, 1.1, 0, 1e-3),
    Workload("transformer, forward + backward", transformer_loss, transformer_arrays, 1.1, 24,
             2e-3),
)  # fmt: skip
