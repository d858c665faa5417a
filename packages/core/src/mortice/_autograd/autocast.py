"""Autocast: operators that gain from a lower precision run in it, others keep or get float32.

The lists are PyTorch's for the CPU, by operator; a device says which dtypes it lowers to by
``Features.autocast_dtypes``. An operator on no list runs as it is called.
"""

from __future__ import annotations

from typing import Any

from mortice._base.errors import ArgumentError, InvalidValue
from mortice._dispatch import keys as K
from mortice._dispatch.operator import Kernel, Operator
from mortice._dispatch.state import THREAD, Guard, refresh
from mortice._types import dtypes
from mortice._types.dtypes import DType
from mortice._types.promotion import promote

#: Run in the autocast dtype.
LOWER = frozenset(
    (
        "convolution", "mm", "bmm", "addmm", "addbmm", "baddbmm", "linear", "mv", "matmul",
        "scaled_dot_product_attention", "chain_matmul", "linalg_matmul", "_addmm_activation",
    )
)  # fmt: skip
#: Run in float32.
FULL = frozenset(
    (
        "avg_pool3d", "binary_cross_entropy", "grid_sampler", "grid_sampler_2d", "polar", "prod",
        "prod.dim_int", "cdist", "_cdist_forward", "nll_loss_forward", "cross_entropy_loss",
        "mse_loss", "cosine_embedding_loss", "hinge_embedding_loss", "kl_div", "l1_loss",
        "smooth_l1_loss", "margin_ranking_loss", "multi_margin_loss", "poisson_nll_loss",
        "huber_loss", "soft_margin_loss", "triplet_margin_loss", "replication_pad1d",
        "replication_pad2d", "replication_pad3d", "reflection_pad1d", "reflection_pad2d",
        "reflection_pad3d", "norm.ScalarOpt_dim", "linalg_vector_norm", "cumsum", "cumprod",
    )
)  # fmt: skip
#: Run in the widest dtype among their inputs.
WIDEST = frozenset(("stack", "cat", "index_copy", "addcdiv", "addcmul", "bilinear", "cross", "dot"))


class _State:
    """Autocast of one device type in one thread."""

    __slots__ = ("dtype", "enabled")

    def __init__(self, enabled: bool, dtype: DType) -> None:
        self.enabled = enabled
        self.dtype = dtype


def _states() -> dict[str, _State]:
    return THREAD.autocast


def supported(device_type: str) -> tuple[DType, ...]:
    """Dtypes that autocast may lower to on a device, the default one first."""
    from mortice._tensor.device_module import autocast_dtypes

    return autocast_dtypes(device_type)


def _is_here(device_type: str) -> bool:
    if device_type == "cpu":
        return True
    from mortice._tensor.devices import count

    return count(device_type) > 0


def is_autocast_enabled(device_type: str = "cpu") -> bool:
    state = _states().get(device_type)
    return state is not None and state.enabled


def get_autocast_dtype(device_type: str) -> DType:
    state = _states().get(device_type)
    return supported(device_type)[0] if state is None else state.dtype


class autocast:
    """``with autocast("cpu", dtype=mortice.bfloat16):``, also a decorator.

    ``dtype`` is one of those that the device lowers to; on the CPU bfloat16 (the default) and
    float16. Where no device of the type is here, a warning says so and nothing is lowered.
    """

    def __init__(
        self,
        device_type: str,
        dtype: DType | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if not isinstance(device_type, str):
            raise ArgumentError(
                f"Expected `device_type` of type `str`, got: `{type(device_type).__name__}`"
            )
        self.device = device_type
        known = supported(device_type)
        self.dtype = dtype or known[0]
        if enabled and not _is_here(device_type):
            from mortice._base.warning import warn

            warn(
                f"autocast: no device of type {device_type!r} is here. Disabling autocast; "
                "`mortice list-backends --kind device` shows what is installed."
            )
            enabled = False
        self.enabled = enabled
        if enabled and self.dtype not in known:
            raise InvalidValue(
                f"autocast on {device_type} takes {' or '.join(d.name for d in known)}, not "
                f"{self.dtype!r}."
            )

    def __enter__(self) -> Any:
        states = _states()
        self.previous = states.get(self.device)
        states[self.device] = _State(self.enabled, self.dtype)
        refresh()
        return self

    def __exit__(self, *exc: object) -> None:
        states = _states()
        if self.previous is None:
            states.pop(self.device, None)
        else:
            states[self.device] = self.previous
        refresh()

    def __call__(self, function: Any) -> Any:
        import functools

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with autocast(self.device, self.dtype, self.enabled):
                return function(*args, **kwargs)

        return wrapped


def kernel(op: Operator, keys: int) -> Kernel | None:
    """What the Autocast key does with an operator; None leaves it alone."""
    if op.name in LOWER:
        return _casting(op, _lower)
    if op.name in FULL:
        return _casting(op, _full)
    if op.name in WIDEST:
        return _casting(op, _widest)
    return None


def _casting(op: Operator, target: Any) -> Kernel:
    def cast_and_call(*args: Any) -> Any:
        dtype = target(args)
        with Guard(exclude=K.AUTOCAST):
            return op(*(args if dtype is None else [_cast(x, dtype) for x in args]))

    return cast_and_call


def _eligible(x: Any) -> bool:
    return hasattr(x, "_k") and x._t.is_floating_point and x._t is not dtypes.float64


def _cast(x: Any, dtype: DType) -> Any:
    if isinstance(x, (list, tuple)):
        return type(x)(_cast(y, dtype) for y in x)  # pyright: ignore[reportUnknownVariableType]
    return x.to(dtype) if _eligible(x) and x._t is not dtype else x


def _tensors(args: Any) -> list[Any]:
    found: list[Any] = []
    for x in args:
        found += [y for y in (x if isinstance(x, (list, tuple)) else (x,)) if hasattr(y, "_k")]  # pyright: ignore[reportUnknownVariableType]
    return found


def _device_state(args: Any) -> _State | None:
    for t in _tensors(args):
        state = _states().get(t.device.type)
        if state is not None and state.enabled:
            return state
    return None


def _lower(args: Any) -> DType | None:
    state = _device_state(args)
    return None if state is None else state.dtype


def _full(args: Any) -> DType | None:
    return None if _device_state(args) is None else dtypes.float32


def _widest(args: Any) -> DType | None:
    if _device_state(args) is None:
        return None
    found: DType | None = None
    for t in _tensors(args):
        if _eligible(t):
            found = t._t if found is None else promote(found, t._t)
    return found
