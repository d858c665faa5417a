"""Python operators of Tensor beyond the generated ones, and functions that are no single operator."""

from __future__ import annotations

from typing import Any

from mortice._base.errors import DTypeError, InvalidValue, ShapeError, nearest
from mortice._dispatch import keys as K
from mortice._dispatch.call import Packet, call, is_operand, overridden, seen_as_itself
from mortice._dispatch.modes import NoImplementation, call_overridden
from mortice._dispatch.operator import get
from mortice._types import dtypes
from mortice._types.promotion import NUMBERS
from mortice._types.shapes import wrap_dims

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

    if type(value) not in NUMBERS and not getattr(value, "_is_symbolic", False):
        value = value.item()
    return tensor_like(value, like)


def _rtruediv(self: Any, other: Any) -> Any:
    if type(other) in NUMBERS or getattr(other, "_is_symbolic", False):
        return self.reciprocal() * other
    return _FUNCTIONS["div"](_as_tensor(other, self), self) if is_operand(other) else NotImplemented


def _rpow(self: Any, other: Any) -> Any:
    if type(other) in NUMBERS or getattr(other, "_is_symbolic", False):
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
        found = get("linalg_matrix_norm.str_ord")(input, "nuc", pair, keepdim, dtype)
        return found if out is None else out.resize_(tuple(found.shape)).copy_(found)
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


def gradient(
    input: Any,
    *,
    spacing: Any = 1,
    dim: Any = None,
    edge_order: int = 1,
) -> tuple[Any, ...]:
    """Derivative along each of ``dim`` by central differences, one-sided at both ends.

    ``spacing`` is a number, a number per dimension, or a 1-d tensor of coordinates per dimension.
    ``edge_order`` 1 or 2 is the accuracy at the ends. Formulas: finite differences on three points
    of unequal distance, second order.
    """
    dims = wrap_dims((dim,) if isinstance(dim, int) else dim, input.ndim)
    steps = _spacings(spacing, len(dims))
    if edge_order not in (1, 2):
        raise ShapeError("gradient only supports edge_order=1 and edge_order=2.")
    for d in dims:
        if input.shape[d] <= edge_order:
            raise ShapeError(
                "gradient expected each dimension size to be at least edge_order+1, but dimension "
                f"{d} has size {input.shape[d]}"
            )
    return tuple(_derivative(input, d, h, edge_order) for d, h in zip(dims, steps))


def _spacings(spacing: Any, count: int) -> list[Any]:
    if spacing is None or type(spacing) in NUMBERS:
        return [1 if spacing is None else spacing] * count
    if hasattr(spacing, "_k"):
        return [spacing] if spacing.ndim else [spacing.item()] * count
    if len(spacing) != count:
        raise ShapeError(
            f"gradient expected spacing to be unspecified, a number, or a list of {count} numbers "
            f"or tensors (one per dimension), but got a list of {len(spacing)}"
        )
    return list(spacing)


def _derivative(f: Any, d: int, h: Any, edge_order: int) -> Any:
    if not f.dtype.differentiable:
        f = f.to(dtypes.default.dtype)
    n = f.shape[d]

    def at(start: int, count: int) -> Any:
        return f.narrow(d, start, count)

    if hasattr(h, "_k"):
        if h.ndim != 1 or h.shape[0] != n:
            raise ShapeError(
                f"gradient expected the coordinates of dimension {d} to be 1-d of length {n}, got "
                f"shape {tuple(h.shape)}"
            )
        gaps = h.diff().reshape([-1 if i == d else 1 for i in range(f.ndim)])
        first, last = gaps.narrow(d, 0, 1), gaps.narrow(d, n - 2, 1)
        before, after = gaps.narrow(d, 0, n - 2), gaps.narrow(d, 1, n - 2)
    else:
        first = last = before = after = h
    inner = (
        at(2, n - 2) * (before / (after * (before + after)))
        + at(1, n - 2) * ((after - before) / (before * after))
        - at(0, n - 2) * (after / (before * (before + after)))
    )
    if edge_order == 1:
        left, right = (at(1, 1) - at(0, 1)) / first, (at(n - 1, 1) - at(n - 2, 1)) / last
    else:
        p, q = _two(before, d, 0), _two(after, d, 0)
        left = (
            -at(0, 1) * ((p * 2 + q) / (p * (p + q)))
            + at(1, 1) * ((p + q) / (p * q))
            - at(2, 1) * (p / (q * (p + q)))
        )
        p, q = _two(before, d, n - 3), _two(after, d, n - 3)
        right = (
            at(n - 3, 1) * (q / (p * (p + q)))
            - at(n - 2, 1) * ((p + q) / (p * q))
            + at(n - 1, 1) * ((q * 2 + p) / (q * (p + q)))
        )
    return get("cat")((left, inner, right), d)


def _two(gaps: Any, d: int, start: int) -> Any:
    return gaps.narrow(d, start, 1) if hasattr(gaps, "_k") else gaps


@seen_as_itself
def _where(self: Any, condition: Any, other: Any) -> Any:
    """``self`` where ``condition`` is true, else ``other``."""
    return _FUNCTIONS["where"](condition, self, other)


@seen_as_itself
def _polygamma(self: Any, n: int) -> Any:
    """The n-th derivative of the digamma function."""
    return _FUNCTIONS["polygamma"](n, self)


#: Generated functions by name; filled when the package is put together.
_FUNCTIONS: dict[str, Any] = {}

FUNCTIONS: dict[str, Any] = {
    "gradient": gradient,
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
    "__rmatmul__": _reflected("matmul"),
    "__rlshift__": _reflected("bitwise_left_shift"),
    "__rrshift__": _reflected("bitwise_right_shift"),
    "real": property(_real, _set_part("real")),
    "imag": property(_imag, _set_part("imag")),
    "norm": norm,
    "where": _where,
    "polygamma": _polygamma,
}


def _reflecting(name: str, method: Any) -> Any:
    """A reflected operator that offers itself to an overriding class, as Python's protocol wants."""

    def checked(self: Any, other: Any) -> Any:
        if not self._k & K.OVERRIDE or not overridden((self,), {}):
            return method(self, other)
        given = (self, other)
        try:
            return call_overridden(checked, given, given, {}, f"Tensor.{name}")
        except NoImplementation:
            return NotImplemented

    checked.__name__ = name
    return checked


METHODS.update(
    {name: _reflecting(name, m) for name, m in METHODS.items() if name.startswith("__r")}
)


def install(functions: dict[str, Any]) -> None:
    """Tell the operators above of the generated functions."""
    _FUNCTIONS.update(functions)


__all__ = ["FUNCTIONS", "METHODS", "install"]
