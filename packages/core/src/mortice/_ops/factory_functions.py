"""Public forms of the factories: sizes as separate integers or one sequence, ``requires_grad``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mortice._base.errors import ArgumentError, AutogradError, ShapeError
from mortice._dispatch.call import Packet, call
from mortice._dispatch.keys import CPU
from mortice._dispatch.operator import get, table
from mortice._dispatch.plan import call_by_plan
from mortice._dispatch.state import GLOBAL
from mortice._types.device import default_devices
from mortice._types.dtypes import DType
from mortice._types.promotion import NUMBERS

#: Functions of a list of sizes: name -> (operator, arguments after the size, options after those).
_SIZED = {
    "zeros": ("zeros", (), 4),
    "ones": ("ones", (), 4),
    "empty": ("empty.memory_format", (), 5),
    "rand": ("rand.generator", (None,), 4),
    "randn": ("randn.generator", (None,), 4),
}
_OTHERS = (
    "full", "arange", "range", "linspace", "logspace", "eye", "scalar_tensor",
    "empty_strided", "empty_permuted", "randint", "randperm",
    "hann_window", "hamming_window", "bartlett_window", "blackman_window", "kaiser_window",
    "empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like",
)  # fmt: skip
_METHODS = ("new_empty", "new_empty_strided", "new_full", "new_zeros", "new_ones")

_DOCS = {
    "zeros": "A tensor of zeros.",
    "ones": "A tensor of ones.",
    "rand": "Random numbers, uniform in [0, 1).",
    "randn": "Random numbers, normal with mean 0 and variance 1.",
    "empty": "A tensor with uninitialised elements.",
    "full": "A tensor filled with one number, whose type gives the dtype unless it is given.",
    "arange": "The numbers from ``start`` to ``end`` (excluded) in steps of ``step``.",
    "range": "The numbers from ``start`` to ``end`` (included); prefer ``arange``.",
    "linspace": "``steps`` evenly spaced numbers from ``start`` to ``end``, both included.",
    "logspace": "``base`` to the power of evenly spaced exponents.",
    "eye": "Ones on the diagonal of a matrix of zeros.",
}


def _into(out: Any, packet: Packet, args: Any, options: dict[str, Any]) -> Any:
    """Make the numbers in the dtype and on the device of ``out``, and put them there."""
    from mortice._tensor.rows import bump, copy_into

    for name, have in (("dtype", out.dtype), ("device", out.device)):
        wanted = options.get(name)
        if wanted is not None and (wanted is not have and str(wanted) != str(have)):
            raise ShapeError(
                f"{packet.name}(): {name} {wanted} does not match {name} of out parameter ({have})"
            )
    made = call(packet, args, {**options, "dtype": out.dtype, "device": out.device})
    if out.requires_grad:
        raise AutogradError(
            f"{packet.name}(): functions with out=... arguments don't support automatic "
            "differentiation, but out requires grad."
        )
    if tuple(out.shape) != tuple(made.shape):
        out.resize_(tuple(made.shape))
    copy_into(out, made)
    bump(out)
    return out


def _finished(made: Any, requires_grad: bool) -> Any:
    return made.requires_grad_(True) if requires_grad else made


def _sized(name: str) -> Callable[..., Any]:
    packet = Packet(name)
    operator, between, options_after = _SIZED[name]
    rest = (*between, *(None,) * options_after)
    kernels = table(operator)

    def factory(*size: Any, requires_grad: bool = False, out: Any = None, **options: Any) -> Any:
        if len(size) == 1 and type(size[0]) is not int:
            size = size[0]
        if not GLOBAL.special and not options and out is None and type(size) is tuple:
            for n in size:
                if type(n) is not int:
                    break
            else:
                kernel = None if default_devices else kernels.get(CPU)
                made = (kernel or get(operator).lookup(0))(size, *rest)
                return _finished(made, requires_grad)
        if "size" in options and not size:
            size = options.pop("size")
        if out is not None:
            return _into(out, packet, (size,), options)
        return _finished(call(packet, (size,), options), requires_grad)

    return _named(factory, name, packet)


def _plain(name: str, packet: Packet | None = None) -> Callable[..., Any]:
    packet = packet or Packet(name)

    def factory(*args: Any, requires_grad: bool = False, out: Any = None, **options: Any) -> Any:
        if out is not None:
            return _into(out, packet, args, options)
        return _finished(call_by_plan(packet, args, options), requires_grad)

    return _named(factory, name, packet)


def _method(name: str) -> Callable[..., Any]:
    packet = Packet(name, True)

    def factory(self: Any, *args: Any, requires_grad: bool = False, **options: Any) -> Any:
        return _finished(call_by_plan(packet, (self, *args), options), requires_grad)

    return _named(factory, name, packet)


def _named(factory: Callable[..., Any], name: str, packet: Packet) -> Callable[..., Any]:
    factory.__name__ = factory.__qualname__ = name
    factory.__doc__ = _DOCS.get(name)
    packet.public = factory
    return factory


def new_tensor(
    self: Any,
    data: Any,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Any:
    """A new tensor that copies ``data``, with this one's dtype and device unless given."""
    from mortice._tensor.construct import tensor

    return tensor(
        data,
        dtype=dtype or self._t,
        device=self.device if device is None else device,
        requires_grad=requires_grad,
    )


def new(self: Any, *args: Any, device: Any = None) -> Any:
    """As the legacy constructor, with this tensor's dtype and device."""
    device = self.device if device is None else device
    if len(args) == 1 and not isinstance(args[0], int) and not hasattr(args[0], "numel"):
        if not isinstance(args[0], (list, tuple)):
            raise ArgumentError(f"new(): expected sizes or data, not {type(args[0]).__name__}")
        return new_tensor(self, args[0], device=device)
    size = tuple(args[0]) if len(args) == 1 and not isinstance(args[0], int) else args
    return get("empty.memory_format")(size or (0,), self._t, None, device, None, None)


_arange_packet = Packet("arange")
_arange = _plain("arange", _arange_packet)
_arange_kernels = table("arange.start_step")


def arange(*args: Any, **options: Any) -> Any:
    """The numbers from ``start`` (0) to ``end`` (excluded) in steps of ``step`` (1)."""
    if not options and not GLOBAL.special and not default_devices:
        kernel = _arange_kernels.get(CPU)
        if kernel is not None and all(type(x) in NUMBERS for x in args):
            if len(args) == 1:
                return kernel(0, args[0], 1, None, None, None, None)
            if 1 < len(args) < 4:
                return kernel(*args, *(1,) * (3 - len(args)), None, None, None, None)
    return _arange(*args, **options)


_arange_packet.public = arange


_normal = Packet("normal")


def normal(mean: Any, std: Any = 1.0, size: Any = None, *, out: Any = None, **options: Any) -> Any:
    """Normal numbers; mean and standard deviation are numbers (with ``size``) or tensors."""
    if size is None:
        given = {**options} if out is None else {**options, "out": out}
        return call(_normal, (mean, std), given)
    requires_grad = options.pop("requires_grad", False)
    if out is not None:
        return _into(out, _normal, (mean, std, size), options)
    return _finished(call(_normal, (mean, std, size), options), requires_grad)


_normal.public = normal

FUNCTIONS: dict[str, Any] = {
    **{name: _sized(name) for name in _SIZED},
    **{name: _plain(name) for name in _OTHERS},
    "arange": arange,
    "normal": normal,
}

METHODS: dict[str, Any] = {
    **{name: _method(name) for name in _METHODS},
    "new_tensor": new_tensor,
    "new": new,
}
