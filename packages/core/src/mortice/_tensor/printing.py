"""Tensors as text, laid out as PyTorch does: columns of one width, long tensors summarised."""

from __future__ import annotations

from typing import Any

import numpy as np

from mortice._base.errors import InvalidValue
from mortice._dispatch import keys as K
from mortice._dispatch.state import GLOBAL
from mortice._types import dtypes

#: What ``set_printoptions(profile=...)`` sets.
PROFILES: dict[str, dict[str, Any]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": float("inf"), "edgeitems": 3, "linewidth": 80},
}


class _Options:
    """Process-wide print options; ``sci_mode`` None means to decide by the values."""

    __slots__ = ("edgeitems", "linewidth", "precision", "sci_mode", "threshold")

    def __init__(self) -> None:
        self.precision = 4
        self.threshold: float = 1000
        self.edgeitems = 3
        self.linewidth = 80
        self.sci_mode: bool | None = None


OPTIONS = _Options()


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Choose how tensors print.

    precision: digits after the point. threshold: above so many elements, only edges are shown.
    edgeitems: elements shown at each edge. linewidth: columns before a line breaks. profile:
    ``default``, ``short`` or ``full``, which the other arguments refine. sci_mode: scientific
    notation always or never; None decides by the values.
    """
    if profile is not None:
        if profile not in PROFILES:
            raise InvalidValue(
                f"set_printoptions(): unknown profile {profile!r}; there are {', '.join(PROFILES)}."
            )
        for name, value in PROFILES[profile].items():
            setattr(OPTIONS, name, value)
    given = {
        "precision": precision,
        "threshold": threshold,
        "edgeitems": edgeitems,
        "linewidth": linewidth,
    }
    for name, value in given.items():
        if value is not None:
            setattr(OPTIONS, name, value)
    OPTIONS.sci_mode = sci_mode


def get_printoptions() -> dict[str, Any]:
    """The options that ``set_printoptions`` takes, as they are now."""
    return {name: getattr(OPTIONS, name) for name in _Options.__slots__}


class printoptions:
    """``with mortice.printoptions(precision=2): ...`` sets print options for a block."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._saved: dict[str, Any] = {}

    def __enter__(self) -> None:
        self._saved = get_printoptions()
        set_printoptions(**self._options)

    def __exit__(self, *exc: object) -> None:
        set_printoptions(**self._saved)


# -- numbers -------------------------------------------------------------------------------------


class _Formatter:
    """One notation and one width for all numbers of a real array."""

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self.floating = values.dtype.kind == "f"
        self.whole = True
        self.scientific = False
        self.width = 1
        flat = values.reshape(-1)
        if self.floating:
            self._measure(flat[np.isfinite(flat) & (flat != 0)].astype(np.float64))
        else:
            self.width = max([1, *(len(str(x)) for x in flat.tolist())])

    def _measure(self, finite: np.ndarray[Any, Any]) -> None:
        """Choose the notation from the finite values that are not 0, then the width."""
        if not finite.size:
            return
        size = np.abs(finite)
        low, high = float(size.min()), float(size.max())
        self.whole = bool((finite == np.ceil(finite)).all())
        wide_range = high / low > 1000.0 or high > 1.0e8
        self.scientific = wide_range or (not self.whole and low < 1.0e-4)
        if OPTIONS.sci_mode is not None:
            self.scientific = OPTIONS.sci_mode
        if self.scientific:
            width = max(len(f"{x:.{OPTIONS.precision}e}") for x in finite.tolist())
        elif self.whole:
            width = max(len(f"{x:.0f}") for x in finite.tolist()) + 1
        else:
            width = max(len(f"{x:.{OPTIONS.precision}f}") for x in finite.tolist())
        self.width = max(self.width, width)

    def text(self, value: Any) -> str:
        """One number, padded on the left."""
        if not self.floating:
            return str(value).rjust(self.width)
        if self.scientific:
            return f"{value:{self.width}.{OPTIONS.precision}e}"
        if not self.whole:
            return f"{value:.{OPTIONS.precision}f}".rjust(self.width)
        text = f"{value:.0f}"
        if value - value == 0:  # finite
            text += "."
        return text.rjust(self.width)


class _ComplexFormatter:
    """Real and imaginary parts each with a notation of their own."""

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self.real = _Formatter(values.real)
        self.imag = _Formatter(values.imag)
        self.width = self.real.width + self.imag.width + 1

    def text(self, value: complex) -> str:
        imag = (self.imag.text(value.imag) + "j").lstrip()
        sign = "" if imag[0] in "+-" else "+"
        return self.real.text(value.real) + sign + imag


# -- layout --------------------------------------------------------------------------------------


def _edges(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The part of an array that a summary shows."""
    n = OPTIONS.edgeitems
    for axis in range(a.ndim):
        size = a.shape[axis]
        if size > 2 * n:
            a = np.take(a, [*range(n), *range(size - n, size)], axis)
    return a


def _positions(size: int, summarise: bool) -> list[int]:
    """Indices to show along one dimension, -1 standing for the ellipsis."""
    n = OPTIONS.edgeitems
    if summarise and not n:
        return [-1]
    if not summarise or size <= 2 * n:
        return list(range(size))
    return [*range(n), -1, *range(size - n, size)]


def _vector(a: np.ndarray[Any, Any], indent: int, summarise: bool, formatter: Any) -> str:
    per_line = max(1, (OPTIONS.linewidth - indent) // (formatter.width + 2))
    ellipsis = " ..." if OPTIONS.edgeitems else "..."
    shown = [
        ellipsis if i < 0 else formatter.text(a[i].item())
        for i in _positions(a.shape[0], summarise)
    ]
    lines = [", ".join(shown[i : i + per_line]) for i in range(0, len(shown), per_line)] or [""]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _nested(a: np.ndarray[Any, Any], indent: int, summarise: bool, formatter: Any) -> str:
    if a.ndim == 0:
        return formatter.text(a.item())
    if a.ndim == 1:
        return _vector(a, indent, summarise, formatter)
    parts = [
        "..." if i < 0 else _nested(a[i], indent + 1, summarise, formatter)
        for i in _positions(a.shape[0], summarise)
    ]
    return "[" + ("," + "\n" * (a.ndim - 1) + " " * (indent + 1)).join(parts) + "]"


def _contents(a: np.ndarray[Any, Any], indent: int) -> str:
    if not a.size:
        return "[]"
    summarise = a.size > OPTIONS.threshold
    seen = _edges(a) if summarise else a
    formatter = _ComplexFormatter(seen) if a.dtype.kind == "c" else _Formatter(seen)
    return _nested(a, indent, summarise, formatter)


def _readable(t: Any) -> np.ndarray[Any, Any]:
    """The elements in a dtype that numpy formats itself."""
    from mortice._tensor.transfer import to_host

    a = to_host(t)
    if t._t.name == "complex32":
        halves = np.ascontiguousarray(a).view(np.float16).reshape(*a.shape, 2).astype(np.float32)
        return halves[..., 0] + 1j * halves[..., 1]
    if t._t.is_floating_point and t._t.itemsize < 4:
        return a.astype(np.float32)
    return a


# -- the whole -----------------------------------------------------------------------------------


def show(t: Any, contents: str | None = None) -> str:
    """The tensor as ``repr`` gives it; ``contents`` replaces the elements."""
    if GLOBAL.watch:
        GLOBAL.settle(t, "repr")
    kind = type(t)
    prefix = "tensor(" if kind.__name__ in ("Tensor", "Parameter") else f"{kind.__name__}("
    suffixes: list[str] = []
    device = t.device
    dtype = t._t
    default = dtypes.default.dtype
    if device.type != "cpu":
        suffixes.append(f"device='{device}'")
    if t._k & K.FAKE:
        prefix = f"Fake{'Tensor' if kind.__name__ == 'Tensor' else kind.__name__}("
    if contents is not None:
        text = contents
    elif device.type == "meta" or getattr(t._a, "buffer", t) is None:  # no elements to show
        suffixes.append(f"size={tuple(t.shape)}")
        if dtype is not default:
            suffixes.append(f"dtype={dtype!r}")
        text = "..."
    elif not t.numel():
        if t.ndim != 1:
            suffixes.append(f"size={tuple(t.shape)}")
        if dtype is not default:
            suffixes.append(f"dtype={dtype!r}")
        text = "[]"
    else:
        if not OPTIONS.edgeitems:
            suffixes.append(f"size={tuple(t.shape)}")
        if dtype not in (default, default.to_complex(), dtypes.int64, dtypes.bool_):
            suffixes.append(f"dtype={dtype!r}")
        text = contents if contents is not None else _contents(_readable(t), len(prefix))
    if t.grad_fn is not None:
        suffixes.append(f"grad_fn=<{t.grad_fn.name()}>")
    elif t.requires_grad:
        suffixes.append("requires_grad=True")
    return _with_suffixes(prefix + (text if contents is None else contents), suffixes, len(prefix))


def _with_suffixes(text: str, suffixes: list[str], indent: int) -> str:
    """The suffixes behind the text, each on a new line where it would not fit."""
    column = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if column + len(suffix) + 2 > OPTIONS.linewidth:
            text += ",\n" + " " * indent + suffix
            column = indent + len(suffix)
        else:
            text += ", " + suffix
            column += len(suffix) + 2
    return text + ")"
