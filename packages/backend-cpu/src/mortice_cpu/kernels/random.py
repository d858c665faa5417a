"""Random numbers on the CPU: Philox words from mortice_llvm where it is there, else from numpy.

Both give the same bits (``mortice.philox`` says how numbers follow from words).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import mortice
from mortice.backend import generator_for, random_draws, shape_rule, wrap
from mortice.errors import NoKernel, ShapeError

from ._native import native_kernels

Kernel = Callable[..., Any]
Array = np.ndarray[Any, Any]

_CPU = mortice.device("cpu")
_native: Any = None
_DTYPES = {"u32": np.uint32, "f32": np.float32, "f64": np.float64}


def _fills() -> Any:
    """``mortice_llvm.kernels.philox``, or False where it is not to be had."""
    global _native
    if _native is None:
        try:
            kernels = native_kernels()
            from mortice_llvm.errors import NotAvailable
        except ImportError:
            _native = False
            return False
        try:
            for kind in _DTYPES:
                kernels.philox(kind)
        except NotAvailable:
            _native = False
        else:
            _native = kernels.philox
    return _native


def fill(kind: str, n: int, seed: int, offset: int) -> Array:
    """``n`` words ("u32") or uniform numbers ("f32", "f64")."""
    native = _fills()
    if not native:
        return random_draws(kind)(n, seed, offset)
    out = np.empty(n, _DTYPES[kind])
    if n:
        native(kind)(out.__array_interface__["data"][0], n, seed, offset)
    return out


class Draw:
    """The numbers of one operator call."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator_for(generator, _CPU)

    def fill(self, kind: str, n: int) -> Array:
        return fill(kind, n, *self.generator.take())

    def uniform(self, n: int, dtype: Any) -> Array:
        """In [0, 1), in the numpy dtype of a floating dtype."""
        name = dtype.name
        if name == "float32":
            return self.fill("f32", n)
        if name == "float64":
            return self.fill("f64", n)
        bits = {"float16": 11}.get(name, 8)
        words = self.fill("u32", n) >> np.uint32(32 - bits)
        return (words.astype(np.float32) * np.float32(2.0**-bits)).astype(dtype.numpy)

    def wide(self, n: int, dtype: Any) -> Array:
        """In [0, 1) as float64, with as many bits as the dtype deserves."""
        if dtype.name == "float64":
            return self.fill("f64", n)
        return self.fill("f32", n).astype(np.float64)

    def normal(self, n: int, dtype: Any) -> Array:
        """Standard normal, float64 or float32."""
        kind = "f64" if dtype.name == "float64" else "f32"
        native = _fills()
        if native:
            out = np.empty(n, _DTYPES[kind])
            place = out.__array_interface__["data"][0]
            native(f"normal_{kind}")(place, n, *self.generator.take())
            return out
        u = self.fill(kind, n + (n & 1))
        one = u.dtype.type(1)
        radius = np.sqrt(-2 * np.log(one - u[0::2]))
        angle = u[1::2] * u.dtype.type(2 * np.pi)
        out = np.empty_like(u)
        np.multiply(radius, np.cos(angle), out=out[0::2])
        np.multiply(radius, np.sin(angle), out=out[1::2])
        return out[:n]

    def integers(self, n: int, low: int, high: int) -> Array:
        """Uniform in [low, high), as int64 or uint64."""
        span = high - low
        if span <= 1 << 32:
            values = (self.fill("u32", n).astype(np.uint64) * np.uint64(span)) >> np.uint64(32)
        else:
            values = self.fill("u32", 2 * n).view(np.uint64)
            if span < 1 << 64:
                values = values % np.uint64(span)
        if high > 1 << 63:
            return values + np.uint64(low)
        return values.view(np.int64) + np.int64(low)


def _real(dtype: Any, name: str) -> None:
    if not dtype.is_floating_point:
        raise NoKernel(f'"{name}" not implemented for {dtype!r}')


def _write(self: Any, values: Array) -> Any:
    with np.errstate(all="ignore"):
        self._a[...] = values.reshape(self._a.shape)
    return self


# -- uniform and normal ----------------------------------------------------------------------------


def _uniform_values(n: int, dtype: Any, low: float, high: float, draw: Draw) -> Array:
    if dtype.is_complex:
        real = dtype.to_real()
        return _uniform_values(2 * n, real, low, high, draw).view(dtype.numpy)
    _real(dtype, "uniform_")
    u = draw.uniform(n, dtype)
    if low == 0 and high == 1:
        return u
    kind = np.float64 if dtype.name == "float64" else np.float32
    return (u.astype(kind, copy=False) * kind(high - low) + kind(low)).astype(
        dtype.numpy, copy=False
    )


def _normal_values(n: int, dtype: Any, mean: float, std: float, draw: Draw) -> Array:
    if dtype.is_complex:
        real = dtype.to_real()
        parts = _normal_values(2 * n, real, 0.0, std * 0.5**0.5, draw).view(dtype.numpy)
        return parts + mean if mean else parts
    _real(dtype, "normal_")
    z = draw.normal(n, dtype)
    if std != 1:
        z *= z.dtype.type(std)
    if mean != 0:
        z += z.dtype.type(mean)
    return z.astype(dtype.numpy, copy=False)


def rand(size: Any, generator: Any, dtype: Any, *rest: Any) -> Any:
    size, dtype = shape_rule("rand.generator")(size, generator, dtype)
    n = _count(size)
    return wrap(_uniform_values(n, dtype, 0.0, 1.0, Draw(generator)).reshape(size), dtype)


def randn(size: Any, generator: Any, dtype: Any, *rest: Any) -> Any:
    size, dtype = shape_rule("randn.generator")(size, generator, dtype)
    n = _count(size)
    return wrap(_normal_values(n, dtype, 0.0, 1.0, Draw(generator)).reshape(size), dtype)


def _count(size: Any) -> int:
    n = 1
    for s in size:
        n *= s
    return n


def uniform_(self: Any, low: float, high: float, generator: Any) -> Any:
    if low > high:
        raise ShapeError(
            f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}"
        )
    return _write(self, _uniform_values(self._a.size, self._t, low, high, Draw(generator)))


def normal_(self: Any, mean: float, std: float, generator: Any) -> Any:
    if not std >= 0:
        raise ShapeError(f"normal expects std >= 0.0, but found std {std}")
    return _write(self, _normal_values(self._a.size, self._t, mean, std, Draw(generator)))


# -- other continuous distributions ----------------------------------------------------------------


def _open_unit(n: int, dtype: Any, generator: Any, name: str) -> Array:
    """float64 in the open interval (0, 1)."""
    _real(dtype, name)
    u = Draw(generator).wide(n, dtype)
    u += 2.0**-54 if dtype.name == "float64" else 2.0**-25
    return u


def _log_of(u: Array) -> Array:
    """-log(1 - u), never 0."""
    return np.maximum(-np.log1p(-u), 2.0**-60)


def exponential_(self: Any, lambd: float, generator: Any) -> Any:
    if not lambd > 0:
        raise ShapeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    return _write(
        self, _log_of(_open_unit(self._a.size, self._t, generator, "exponential_")) / lambd
    )


def geometric_(self: Any, p: float, generator: Any) -> Any:
    if not 0 < p < 1:
        raise ShapeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    if self._t.is_complex or self._t is mortice.bool:
        raise NoKernel(f'"geometric_" not implemented for {self._t!r}')
    u = Draw(generator).wide(self._a.size, mortice.float64)
    return _write(self, np.maximum(np.ceil(_log_of(u) / -np.log1p(-p)), 1))


def log_normal_(self: Any, mean: float, std: float, generator: Any) -> Any:
    if not std > 0:
        raise ShapeError(f"log_normal_ expects std > 0.0, but found std={std}")
    _real(self._t, "log_normal_")
    z = Draw(generator).normal(self._a.size, self._t)
    with np.errstate(over="ignore"):
        return _write(self, np.exp(z * z.dtype.type(std) + z.dtype.type(mean)))


def cauchy_(self: Any, median: float, sigma: float, generator: Any) -> Any:
    if not sigma > 0:
        raise ShapeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    u = _open_unit(self._a.size, self._t, generator, "cauchy_")
    return _write(self, median + sigma * np.tan(np.pi * (u - 0.5)))


# -- integers --------------------------------------------------------------------------------------


def _limits(dtype: Any) -> tuple[int, int]:
    """The least and the greatest integer that a dtype holds exactly."""
    if dtype.is_floating_point:
        top = {"float64": 1 << 53, "float32": 1 << 24, "float16": 1 << 11}.get(dtype.name, 1 << 8)
        return -top, top
    if dtype is mortice.bool:
        return 0, 1
    if dtype.is_complex:
        raise NoKernel(f'"random_" not implemented for {dtype!r}')
    info = np.iinfo(dtype.numpy)
    return int(info.min), int(info.max)


def random_(self: Any, generator: Any) -> Any:
    return _integers(self, 0, _limits(self._t)[1] + 1, generator)


def random_to(self: Any, high: int, generator: Any) -> Any:
    return random_from(self, 0, high, generator)


def random_from(self: Any, low: int, high: int | None, generator: Any) -> Any:
    if high is None:
        high = _limits(self._t)[1] + 1
    shape_rule("randint.low_generator")(low, high, (), generator, self._t)
    return _integers(self, low, high, generator)


def _integers(self: Any, low: int, high: int, generator: Any) -> Any:
    return _write(self, Draw(generator).integers(self._a.size, low, high))


def randint(low: int, high: int, size: Any, generator: Any, dtype: Any, *rest: Any) -> Any:
    size, dtype = shape_rule("randint.low_generator")(low, high, size, generator, dtype)
    values = Draw(generator).integers(_count(size), low, high)
    return wrap(values.astype(dtype.numpy, copy=False).reshape(size), dtype)


def randperm(n: int, generator: Any, dtype: Any, *rest: Any) -> Any:
    _, dtype = shape_rule("randperm.generator")(n, generator, dtype)
    keys = Draw(generator).fill("u32", 2 * n).view(np.uint64)
    return wrap(np.argsort(keys, kind="stable").astype(dtype.numpy, copy=False), dtype)


# -- discrete distributions ------------------------------------------------------------------------


def bernoulli_float(self: Any, p: float, generator: Any) -> Any:
    if not 0 <= p <= 1:
        raise ShapeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    return _write(self, Draw(generator).fill("f32", self._a.size) < p)


def bernoulli_tensor(self: Any, p: Any, generator: Any) -> Any:
    _real(p._t, "bernoulli_")
    a = np.broadcast_to(p._a, self._a.shape)
    if a.dtype.itemsize < 4:
        a = a.astype(np.float32)
    if a.size and not (a.min() >= 0 and a.max() <= 1):
        raise ShapeError("Expected p_in >= 0 && p_in <= 1 to be true: probabilities lie in [0, 1].")
    u = Draw(generator).fill("f64" if a.dtype == np.float64 else "f32", a.size)
    return _write(self, u.reshape(a.shape) < a)


def multinomial(self: Any, num_samples: int, replacement: bool, generator: Any) -> Any:
    shape, dtype = shape_rule("multinomial")(self, num_samples, replacement, generator)
    p = self._a.astype(np.float64).reshape(-1, self._a.shape[-1])
    if not (np.isfinite(p) & (p >= 0)).all():
        raise ShapeError("probability tensor contains either `inf`, `nan` or element < 0")
    total = p.sum(1)
    if (total <= 0).any():
        raise ShapeError("invalid multinomial distribution (sum of probabilities <= 0)")
    draw = Draw(generator)
    if replacement:
        u = draw.fill("f64", p.shape[0] * num_samples).reshape(p.shape[0], num_samples)
        out = _by_distribution(p, u * total[:, None])
    else:
        if ((p > 0).sum(1) < num_samples).any():
            raise ShapeError(
                "invalid multinomial distribution (with replacement=False, not enough non-negative "
                "category to sample)"
            )
        race = _log_of(draw.fill("f64", p.size)).reshape(p.shape)
        with np.errstate(divide="ignore"):
            out = np.argsort(race / p, axis=1, kind="stable")[:, :num_samples]
    return wrap(out.astype(np.int64).reshape(shape), dtype)


def _by_distribution(p: Array, u: Array) -> Array:
    """Categories where the cumulated probabilities exceed ``u``; never one of probability 0."""
    out = np.empty(u.shape, np.int64)
    for row, (weights, places) in enumerate(zip(p, u)):
        sums = np.cumsum(weights)
        last = np.flatnonzero(weights)[-1]
        out[row] = np.minimum(np.searchsorted(sums, places, side="right"), last)
    return out


def poisson(self: Any, generator: Any) -> Any:
    from mortice_cpu.kernels.counts import poisson_counts

    _real(self._t, "poisson")
    rate = self._a.astype(np.float64).reshape(-1)
    if rate.size and not (rate >= 0).all():
        raise ShapeError("invalid Poisson rate, expected rate to be non-negative")
    return _counted(poisson_counts(rate, Draw(generator)), self._a.shape, self._t)


def binomial(count: Any, prob: Any, generator: Any) -> Any:
    from mortice_cpu.kernels.counts import binomial_counts

    (shape, dtype) = shape_rule("binomial")(count, prob, generator)
    n, p = (np.broadcast_to(x._a, shape).astype(np.float64).reshape(-1) for x in (count, prob))
    return _counted(binomial_counts(n, p, Draw(generator)), shape, dtype)


def _counted(values: Array, shape: Any, dtype: Any) -> Any:
    return wrap(values.reshape(shape).astype(dtype.numpy), dtype)


# -- dropout ---------------------------------------------------------------------------------------


def native_dropout(input: Any, p: float, train: bool | None) -> Any:
    shape_rule("native_dropout")(input, p, train)
    a = input._a
    if train is False:
        return wrap(a.copy(), input._t), wrap(np.ones(a.shape, np.bool_), mortice.bool)
    mask = (Draw(None).fill("f32", a.size) < 1 - p).reshape(a.shape)
    scale = 0.0 if p == 1 else 1 / (1 - p)
    return wrap(_scaled(a, mask, scale), input._t), wrap(mask, mortice.bool)


def _scaled(a: Array, mask: Array, scale: float) -> Array:
    """``a * mask * scale`` in a's dtype, rounded once."""
    if a.dtype.itemsize < 4:
        return (a.astype(np.float32) * mask * np.float32(scale)).astype(a.dtype)
    out = a * mask
    out *= np.asarray(scale, a.dtype)
    return out


def native_dropout_backward(grad_output: Any, mask: Any, scale: float) -> Any:
    if not grad_output._t.differentiable:
        from mortice import get_default_dtype

        dtype = get_default_dtype()
        return wrap(_scaled(grad_output._a.astype(dtype.numpy), mask._a, scale), dtype)
    return wrap(_scaled(grad_output._a, mask._a, scale), grad_output._t)


KERNELS: dict[str, Kernel] = {
    "rand.generator": rand,
    "randn.generator": randn,
    "randint.low_generator": randint,
    "randperm.generator": randperm,
    "uniform_": uniform_,
    "normal_": normal_,
    "exponential_": exponential_,
    "geometric_": geometric_,
    "log_normal_": log_normal_,
    "cauchy_": cauchy_,
    "random_": random_,
    "random_.to": random_to,
    "random_.from": random_from,
    "bernoulli_.float": bernoulli_float,
    "bernoulli_.Tensor": bernoulli_tensor,
    "multinomial": multinomial,
    "poisson": poisson,
    "binomial": binomial,
    "native_dropout": native_dropout,
    "native_dropout_backward": native_dropout_backward,
}
