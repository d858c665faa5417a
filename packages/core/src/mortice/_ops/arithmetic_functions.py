"""Python operators of Tensor beyond the generated ones, and functions that are no single operator."""

from __future__ import annotations

from typing import Any

from mortice._base.errors import DTypeError, InvalidValue, nearest
from mortice._dispatch.call import Packet, call, is_operand
from mortice._dispatch.operator import get
from mortice._types.promotion import NUMBERS

# -- Python operators ------------------------------------------------------------------------------


def _reflected(name: str) -> Any:
    """``other OP self`` where ``other`` is no tensor: a number, or numpy's."""

    def operator(self: Any, other: Any) -> Any:
        if not is_operand(other):
            return NotImplemented
        return _FUNCTIONS[name](_as_tensor(other, self), self)

    return operator


def _as_tensor(value: Any, like: Any) -> Any:
    """A number beside ``like`` as a 0-d tensor that only raises the category."""
    if hasattr(value, "_k"):
        return value
    from mortice._ops.pointwise import tensor_like

    if type(value) not in NUMBERS:
        value = value.item()
    return tensor_like(value, like)


def _rtruediv(self: Any, other: Any) -> Any:
    if type(other) in NUMBERS:
        return self.reciprocal() * other
    return _FUNCTIONS["div"](_as_tensor(other, self), self) if is_operand(other) else NotImplemented


def _rpow(self: Any, other: Any) -> Any:
    if type(other) in NUMBERS:
        return get("pow.Scalar")(other, self)
    return _FUNCTIONS["pow"](_as_tensor(other, self), self) if is_operand(other) else NotImplemented


def _real(self: Any) -> Any:
    """The real part: a view of complex tensors, real tensors themselves."""
    return _FUNCTIONS["real"](self)


def _imag(self: Any) -> Any:
    """The imaginary part of a complex tensor, as a view."""
    return _FUNCTIONS["imag"](self)


def _set_part(part: str) -> Any:
    def setter(self: Any, value: Any) -> None:
        target = getattr(self, part)
        if hasattr(value, "_k"):
            target.copy_(value)
        else:
            target.fill_(value)

    return setter


# -- functions -------------------------------------------------------------------------------------


def norm(
    input: Any,
    p: Any = "fro",
    dim: Any = None,
    keepdim: bool = False,
    out: Any = None,
    dtype: Any = None,
) -> Any:
    """The vector norm over ``dim`` (all if None); ``p`` may be a number, "fro" or "nuc"."""
    if p == "nuc":
        pair = (-2, -1) if dim is None else tuple(dim)
        if out is not None:
            return get("linalg_matrix_norm.str_ord_out")(input, "nuc", pair, keepdim, dtype, out)
        return get("linalg_matrix_norm.str_ord")(input, "nuc", pair, keepdim, dtype)
    if p in ("fro", None):
        p = 2
    elif isinstance(p, str):
        raise DTypeError(f"only valid string values are 'fro' and 'nuc', found {p!r}")
    dims = (dim,) if isinstance(dim, int) else (None if dim is None else tuple(dim))
    if out is not None:
        return get("linalg_vector_norm.out")(input, p, dims, keepdim, dtype, out)
    return get("linalg_vector_norm")(input, p, dims, keepdim, dtype)


_CDIST = Packet("cdist")
_COMPUTE_MODES = {
    "use_mm_for_euclid_dist_if_necessary": None,
    "use_mm_for_euclid_dist": 1,
    "donot_use_mm_for_euclid_dist": 2,
}


def cdist(
    x1: Any,
    x2: Any,
    p: float = 2.0,
    compute_mode: str | None = "use_mm_for_euclid_dist_if_necessary",
) -> Any:
    """Distances (..., P, R) in the p-norm between rows of x1 (..., P, M) and of x2 (..., R, M)."""
    if isinstance(compute_mode, str):
        if compute_mode not in _COMPUTE_MODES:
            raise InvalidValue(
                f"{compute_mode!r} is not a valid value for compute_mode; it is one of "
                f"{', '.join(_COMPUTE_MODES)}.{nearest(compute_mode, _COMPUTE_MODES)}"
            )
        compute_mode = _COMPUTE_MODES[compute_mode]  # pyright: ignore[reportAssignmentType]
    return call(_CDIST, (x1, x2), {"p": p, "compute_mode": compute_mode})


def _where(self: Any, condition: Any, other: Any) -> Any:
    """``self`` where ``condition`` is true, else ``other``."""
    return _FUNCTIONS["where"](condition, self, other)


def _polygamma(self: Any, n: int) -> Any:
    """The n-th derivative of the digamma function."""
    return _FUNCTIONS["polygamma"](n, self)


#: Generated functions by name; filled when the package is put together.
_FUNCTIONS: dict[str, Any] = {}

FUNCTIONS: dict[str, Any] = {
    "norm": norm,
    "cdist": cdist,
}
_CDIST.public = cdist

METHODS: dict[str, Any] = {
    "__rtruediv__": _rtruediv,
    "__rdiv__": _rtruediv,
    "__rpow__": _rpow,
    "__rfloordiv__": _reflected("floor_divide"),
    "__rmod__": _reflected("remainder"),
    "__rlshift__": _reflected("bitwise_left_shift"),
    "__rrshift__": _reflected("bitwise_right_shift"),
    "real": property(_real, _set_part("real")),
    "imag": property(_imag, _set_part("imag")),
    "norm": norm,
    "where": _where,
    "polygamma": _polygamma,
}


def install(functions: dict[str, Any]) -> None:
    """Tell the operators above of the generated functions."""
    _FUNCTIONS.update(functions)


__all__ = ["FUNCTIONS", "METHODS", "install"]
