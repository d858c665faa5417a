"""Random numbers: shape rules, checks, and the forms that come down to filling a tensor in place."""

from __future__ import annotations

from typing import Any

from mortice._base.errors import DTypeError, NoKernel, ShapeError
from mortice._dispatch.operator import get
from mortice._ops.factory import check_size, on_host, strides_like
from mortice._ops.formulas import call, has_values
from mortice._tensor import generator as generators
from mortice._types import dtypes
from mortice._types.device import CPU, Device, current_default
from mortice._types.shapes import broadcast, dense_strides_like

# -- shape rules -----------------------------------------------------------------------------------


def sized_generator(size: Any, generator: Any, dtype: Any, *rest: Any) -> Any:
    check_size(size)
    dtype = dtype or dtypes.default.dtype
    if not dtype.differentiable:
        raise NoKernel(f"random numbers in [0, 1) are not implemented for {dtype!r}; use randint.")
    return tuple(size), dtype


def random_like(self: Any, dtype: Any, layout_: Any, device: Any, pin: Any, fmt: Any) -> Any:
    return tuple(self._a.shape), dtype or self._t, strides_like(self, fmt)


def random_like_generator(self: Any, generator: Any, *options: Any) -> Any:
    return random_like(self, *options)


def randint_like(self: Any, high: Any, *options: Any) -> Any:
    return random_like(self, *options)


def randint_like_low(self: Any, low: Any, high: Any, *options: Any) -> Any:
    return random_like(self, *options)


def randint(low: int, high: int, size: Any, generator: Any, dtype: Any, *rest: Any) -> Any:
    check_size(size)
    dtype = dtype or dtypes.int64
    check_integers(low, high, dtype)
    return tuple(size), dtype


def randperm(n: int, generator: Any, dtype: Any, *rest: Any) -> Any:
    if n < 0:
        raise ShapeError(f"n must be non-negative, got{n}")
    dtype = dtype or dtypes.int64
    if n - 1 > exact_integers(dtype):
        raise ShapeError(f"n cannot be greater than {exact_integers(dtype)} for type {dtype!r}")
    return (n,), dtype


def in_place(self: Any, *rest: Any) -> Any:
    return tuple(self._a.shape), self._t


def same(self: Any, *rest: Any) -> Any:
    return tuple(self._a.shape), self._t


def bernoulli(self: Any, generator: Any) -> Any:
    if not self._t.is_floating_point:
        raise NoKernel(
            f"bernoulli(): not implemented for {self._t!r}; probabilities are floating-point."
        )
    return *same(self), dense_strides_like(self._a.shape, self.stride())


def normal_mean(mean: Any, std: float, generator: Any) -> Any:
    check_std(std)
    return same(mean)


def normal_std(mean: float, std: Any, generator: Any) -> Any:
    return same(std)


def normal_both(mean: Any, std: Any, generator: Any) -> Any:
    if mean._t is not std._t and mean.ndim and std.ndim:
        return broadcast(tuple(mean._a.shape), tuple(std._a.shape)), mean._t
    return broadcast(tuple(mean._a.shape), tuple(std._a.shape)), mean._t


def binomial(count: Any, prob: Any, generator: Any) -> Any:
    if not (count._t.is_floating_point and prob._t.is_floating_point):
        raise DTypeError("binomial only supports floating-point dtypes for count and prob")
    return broadcast(tuple(count._a.shape), tuple(prob._a.shape)), count._t


def multinomial(self: Any, num_samples: int, replacement: bool, generator: Any) -> Any:
    if not self._t.is_floating_point:
        raise DTypeError(
            f"multinomial only supports floating-point dtypes for input, got: {self._t!r}"
        )
    if self.ndim not in (1, 2):
        raise ShapeError("prob_dist must be 1 or 2 dim")
    if num_samples <= 0:
        raise ShapeError("cannot sample n_sample <= 0 samples")
    if not replacement and num_samples > self._a.shape[-1]:
        raise ShapeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    return (*tuple(self._a.shape[:-1]), num_samples), dtypes.int64


def native_dropout(input: Any, p: float, train: bool | None) -> Any:
    check_dropout(p)
    shape = tuple(input._a.shape)
    return [(shape, input._t), (shape, dtypes.bool_)]


# -- checks ----------------------------------------------------------------------------------------


def check_dropout(p: float) -> None:
    if not 0 <= p <= 1:
        raise ShapeError(f"dropout probability has to be between 0 and 1, but got {p}")


def check_std(std: float) -> None:
    if not std >= 0:
        raise ShapeError(f"normal expects std >= 0.0, but found std {std}")


def exact_integers(dtype: Any) -> int:
    """The largest integer up to which a dtype holds all of them."""
    if dtype.is_floating_point:
        return {"float64": 1 << 53, "float32": 1 << 24, "float16": 1 << 11}.get(dtype.name, 1 << 8)
    if dtype.kind == dtypes.BOOL:
        return 1
    bits = dtype.itemsize * 8
    return (1 << (bits - 1)) - 1 if dtype.kind == dtypes.SIGNED else (1 << bits) - 1


def smallest_integer(dtype: Any) -> int:
    if dtype.is_floating_point:
        return -exact_integers(dtype)
    return -(1 << (dtype.itemsize * 8 - 1)) if dtype.kind == dtypes.SIGNED else 0


def check_integers(low: int, high: int, dtype: Any) -> None:
    """ShapeError unless low < high and both ends fit the dtype."""
    if low >= high:
        raise ShapeError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )
    top = exact_integers(dtype)
    if dtype.is_floating_point:
        return
    for name, value in (("from", low), ("to - 1", high - 1)):
        if not smallest_integer(dtype) <= value <= top:
            raise ShapeError(f"{name} is out of bounds for {dtype!r}")


# -- made by filling -------------------------------------------------------------------------------


def rand_default(size: Any, *options: Any) -> Any:
    return call("rand.generator", size, None, *options)


def randn_default(size: Any, *options: Any) -> Any:
    return call("randn.generator", size, None, *options)


def _empty(size: Any, dtype: Any, lay: Any, device: Any, pin: Any) -> Any:
    return call("empty.memory_format", tuple(size), dtype, lay, device, pin, None)


def rand_by_fill(size: Any, generator: Any, dtype: Any, lay: Any, device: Any, pin: Any) -> Any:
    return call("uniform_", _empty(size, dtype, lay, device, pin), 0.0, 1.0, generator)


def randn_by_fill(size: Any, generator: Any, dtype: Any, lay: Any, device: Any, pin: Any) -> Any:
    return call("normal_", _empty(size, dtype, lay, device, pin), 0.0, 1.0, generator)


def randint_high(high: int, size: Any, *options: Any) -> Any:
    return call("randint.low_generator", 0, high, size, None, *options)


def randint_high_generator(high: int, size: Any, generator: Any, *options: Any) -> Any:
    return call("randint.low_generator", 0, high, size, generator, *options)


def randint_low(low: int, high: int, size: Any, *options: Any) -> Any:
    return call("randint.low_generator", low, high, size, None, *options)


def randint_by_fill(
    low: int, high: int, size: Any, generator: Any, dtype: Any, lay: Any, device: Any, pin: Any
) -> Any:
    _, dtype = randint(low, high, size, generator, dtype)
    return call("random_.from", _empty(size, dtype, lay, device, pin), low, high, generator)


def randperm_default(n: int, *options: Any) -> Any:
    return call("randperm.generator", n, None, *options)


def randperm_on_host(n: int, generator: Any, dtype: Any, lay: Any, device: Any, pin: Any) -> Any:
    target = current_default() if device is None else Device(device)
    return _borrowing(
        generator, target, lambda g: on_host("randperm.generator")(n, g, dtype, lay, device, pin)
    )


def _like(self: Any, *options: Any) -> Any:
    return call("empty_like", self, *options)


def rand_like_by_fill(self: Any, *options: Any) -> Any:
    return call("uniform_", _like(self, *options), 0.0, 1.0, None)


def randn_like_by_fill(self: Any, *options: Any) -> Any:
    return call("normal_", _like(self, *options), 0.0, 1.0, None)


def rand_like_generator_by_fill(self: Any, generator: Any, *options: Any) -> Any:
    return call("uniform_", _like(self, *options), 0.0, 1.0, generator)


def randn_like_generator_by_fill(self: Any, generator: Any, *options: Any) -> Any:
    return call("normal_", _like(self, *options), 0.0, 1.0, generator)


def randint_like_by_fill(self: Any, high: int, *options: Any) -> Any:
    return call("random_.from", _like(self, *options), 0, high, None)


def randint_like_low_by_fill(self: Any, low: int, high: int, *options: Any) -> Any:
    return call("random_.from", _like(self, *options), low, high, None)


def _functional(name: str) -> Any:
    def filled(self: Any, *args: Any) -> Any:
        made = call("empty_like", self, None, None, None, None, None)
        return call(name, made, *args)

    return filled


uniform_functional = _functional("uniform_")
normal_functional = _functional("normal_")
exponential_functional = _functional("exponential_")
geometric_functional = _functional("geometric_")
log_normal_functional = _functional("log_normal_")
cauchy_functional = _functional("cauchy_")
random_functional = _functional("random_")
random_from_functional = _functional("random_.from")
random_to_functional = _functional("random_.to")
bernoulli_p = _functional("bernoulli_.float")
bernoulli_of_tensor = _functional("bernoulli_.Tensor")


def bernoulli_by_fill(self: Any, generator: Any) -> Any:
    bernoulli(self, generator)
    made = call("empty_like", self, None, None, None, None, None)
    return call("bernoulli_.Tensor", made, self, generator)


def _standard(shape: Any, like: Any, generator: Any) -> Any:
    return call("randn.generator", tuple(shape), generator, like._t, None, like.device, None)


def normal_mean_by_fill(mean: Any, std: float, generator: Any) -> Any:
    check_std(std)
    return _standard(mean._a.shape, mean, generator) * std + mean


def normal_std_by_fill(mean: float, std: Any, generator: Any) -> Any:
    _check_std_tensor(std)
    return _standard(std._a.shape, std, generator) * std + mean


def normal_both_by_fill(mean: Any, std: Any, generator: Any) -> Any:
    _check_std_tensor(std)
    shape, _ = normal_both(mean, std, generator)
    return (_standard(shape, mean, generator) * std + mean).to(mean._t)


def _check_std_tensor(std: Any) -> None:
    if std._t.is_complex:
        raise ShapeError("normal expects standard deviation to be non-complex")
    if has_values(std) and std.numel() and not bool((std >= 0).all().item()):
        raise ShapeError("normal expects all elements of std >= 0.0")


def normal_sized(
    mean: float, std: float, size: Any, generator: Any, dtype: Any, lay: Any, device: Any, pin: Any
) -> Any:
    return call("normal_", _empty(size, dtype, lay, device, pin), mean, std, generator)


# -- devices without kernels -----------------------------------------------------------------------


def _borrowing(generator: Any, device: Device, run: Any) -> Any:
    """Run on the host with the numbers that a device's generator would give."""
    if device.type == "cpu":
        return run(generator)
    own = generators.chosen(generator, device)
    host = own.clone_state()
    host._device = CPU  # pyright: ignore[reportPrivateUsage]
    result = run(host)
    own.set_offset(host.get_offset())
    return result


def _fill_on_host(name: str) -> Any:
    def filled(self: Any, *args: Any) -> Any:
        if self.device.type == "cpu":
            from mortice._ops.factory import say_that_kernels_are_missing

            say_that_kernels_are_missing(get(name))
        made = call("empty_strided", tuple(self._a.shape), self.stride(), self._t, None, CPU, None)
        inputs = [x.to(CPU) if hasattr(x, "_k") else x for x in args[:-1]]
        _borrowing(args[-1], self.device, lambda g: call(name, made, *inputs, g))
        return call("copy_", self, made, False)

    return filled


uniform_on_host = _fill_on_host("uniform_")
normal_on_host = _fill_on_host("normal_")
exponential_on_host = _fill_on_host("exponential_")
geometric_on_host = _fill_on_host("geometric_")
log_normal_on_host = _fill_on_host("log_normal_")
cauchy_on_host = _fill_on_host("cauchy_")
random_on_host = _fill_on_host("random_")
random_from_on_host = _fill_on_host("random_.from")
random_to_on_host = _fill_on_host("random_.to")
bernoulli_float_on_host = _fill_on_host("bernoulli_.float")
bernoulli_tensor_on_host = _fill_on_host("bernoulli_.Tensor")


# -- dropout ---------------------------------------------------------------------------------------


def dropout(input: Any, p: float, train: bool) -> Any:
    check_dropout(p)
    if p == 0 or not train or not input.numel():
        return input
    return call("native_dropout", input, p, True)[0]


def dropout_(self: Any, p: float, train: bool) -> Any:
    check_dropout(p)
    if p == 0 or not train or not self.numel():
        return self
    return _multiply_(self, _keep(self, tuple(self._a.shape), p))


def _multiply_(self: Any, factor: Any) -> Any:
    return self.mul_(factor)


def _keep(like: Any, shape: Any, p: float) -> Any:
    """0 with probability p, else 1 / (1 - p)."""
    kept = _mask(like, shape, p)
    return kept if p == 1 else kept / (1 - p)


def _mask(like: Any, shape: Any, p: float) -> Any:
    made = call("empty.memory_format", tuple(shape), like._t, None, like.device, None, None)
    return call("bernoulli_.float", made, 1 - p, None)


def native_dropout_grad(grad: Any, mask: Any, p: float, train: bool | None) -> Any:
    if train is False:
        return grad
    scale = 0.0 if p == 1 else 1 / (1 - p)
    return call("native_dropout_backward", grad, mask, scale)


def dropout_backward(grad_output: Any, mask: Any, scale: float) -> Any:
    dtype = grad_output._t if grad_output._t.differentiable else dtypes.default.dtype
    return tuple(grad_output._a.shape), dtype


def native_dropout_backward(grad_output: Any, mask: Any, scale: float) -> Any:
    return grad_output * mask * scale


def _channels(input: Any) -> tuple[int, ...]:
    shape = tuple(input._a.shape)
    if len(shape) < 2:
        raise ShapeError("Feature dropout requires at least 2 dimensions in the input")
    return (*shape[:2], *(1 for _ in shape[2:]))


def feature_dropout(input: Any, p: float, train: bool) -> Any:
    check_dropout(p)
    if p == 0 or not train or not input.numel():
        return input
    return input * _keep(input, _channels(input), p)


def feature_dropout_(self: Any, p: float, train: bool) -> Any:
    check_dropout(p)
    if p == 0 or not train or not self.numel():
        return self
    return _multiply_(self, _keep(self, _channels(self), p))


_ALPHA = 1.7580993408473766  # minus the limit of SELU, so that mean and variance stay


def _alpha_parts(like: Any, shape: Any, p: float) -> tuple[Any, Any]:
    """(factor, summand) of alpha dropout."""
    a = 1 / ((_ALPHA * _ALPHA * p + 1) * (1 - p)) ** 0.5
    kept = _mask(like, shape, p)
    return kept * a, (kept - 1) * (_ALPHA * a) + _ALPHA * a * p


def _alpha(input: Any, p: float, train: bool, shape: Any) -> Any:
    check_dropout(p)
    if p == 0 or not train or not input.numel():
        return input
    if p == 1:
        return input * 0
    factor, summand = _alpha_parts(input, shape, p)
    return input * factor + summand


def alpha_dropout(input: Any, p: float, train: bool) -> Any:
    return _alpha(input, p, train, tuple(input._a.shape))


def feature_alpha_dropout(input: Any, p: float, train: bool) -> Any:
    return _alpha(input, p, train, _channels(input) if train and p else ())


def alpha_dropout_(self: Any, p: float, train: bool) -> Any:
    result = alpha_dropout(self, p, train)
    return self if result is self else call("copy_", self, result, False)


def feature_alpha_dropout_(self: Any, p: float, train: bool) -> Any:
    result = feature_alpha_dropout(self, p, train)
    return self if result is self else call("copy_", self, result, False)


__all__ = [name for name in dir() if not name.startswith("_")]
