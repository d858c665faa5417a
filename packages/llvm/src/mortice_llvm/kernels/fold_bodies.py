"""Kernels that fold over a dimension: sums of columns, statistics of channels.

Column arrays are contiguous (rows, cols). Channel arrays are contiguous (n, c, hw); ``step`` is
c * hw. Statistics are float32 for the 16-bit floats.
"""

from __future__ import annotations

from collections.abc import Callable

from ..dtypes import computes_as
from ..ir import Build, Expr, Kernel
from .table import Entry

Body = Callable[[Build, str], None]
Strides = tuple[int | str, ...]

_COLUMN: Strides = (1, 0)
_ELEMENT: Strides = (1, "cols")
_ROW: Strides = (0, 1)


def build_column(e: Entry, symbol: str, element: str) -> Kernel:
    """Returns a column kernel: parameters cols, rows."""
    b = Build(symbol, ("cols",), over="rows")
    _COLUMN_BODIES[e.body](b, element)
    return b.done()


def build_channel(e: Entry, symbol: str, element: str) -> Kernel:
    """Returns a channel kernel: parameters c, hw, n, step; or n, c, hw, step (no fold)."""
    folds = e.body in _STATISTICS
    b = Build(symbol, ("c", "hw"), over="n") if folds else Build(symbol, ("n", "c", "hw"))
    (_STATISTICS if folds else _CHANNEL_POINTWISE)[e.body](b, element)
    return b.done()


def _sum(b: Build, element: str) -> None:
    """out = the sum of each column."""
    b.out("out", element, _COLUMN)
    b.input("x", element, _ELEMENT)
    b.fold()
    total = b.reduce("sum", b.load("x", computes_as(element)))
    b.each()
    b.store("out", total)


def _layer_norm_params_backward(b: Build, element: str) -> None:
    """dweight = sum(dy xhat), dbias = sum(dy) over rows."""
    compute = computes_as(element)
    b.out("dweight", element, _COLUMN)
    b.out("dbias", element, _COLUMN)
    b.input("dy", element, _ELEMENT)
    b.input("x", element, _ELEMENT)
    b.input("mean", compute, _ROW)
    b.input("rstd", compute, _ROW)
    b.fold()
    dy = b.load("dy", compute)
    xhat = (b.load("x", compute) - b.load("mean")) * b.load("rstd")
    dweight, dbias = b.dot(dy, xhat), b.reduce("sum", dy)
    b.each()
    b.store("dweight", dweight)
    b.store("dbias", dbias)


def _rms_norm_params_backward(b: Build, element: str) -> None:
    """dweight = sum(dy x rstd) over rows."""
    compute = computes_as(element)
    b.out("dweight", element, _COLUMN)
    b.input("dy", element, _ELEMENT)
    b.input("x", element, _ELEMENT)
    b.input("rstd", compute, _ROW)
    b.fold()
    x = b.load("x", compute) * b.load("rstd")
    dweight = b.dot(b.load("dy", compute), x)
    b.each()
    b.store("dweight", dweight)


# -- channels ----------------------------------------------------------------------------------

_WHOLE: Strides = ("hw", 1, "step")
_PER_CHANNEL: Strides = (1, 0, 0)


def _over_channel(b: Build, value: Callable[[], Expr]) -> Expr:
    """The sum of ``value()`` over a channel's elements."""
    b.fold()
    part = b.reduce("sum", value())
    b.each()
    return b.reduce("sum", part)


def _channel_stats(b: Build, element: str) -> None:
    """mean and variance (over n and hw, not corrected) of each channel, in two passes."""
    compute = computes_as(element)
    b.out("mean", compute, _PER_CHANNEL)
    b.out("var", compute, _PER_CHANNEL)
    b.input("x", element, _WHOLE)

    def square() -> Expr:
        d = b.load("x", compute) - mean
        return d * d

    total = _over_channel(b, lambda: b.load("x", compute))
    count = _over_channel(b, lambda: b.const(1.0, compute))
    b.row()
    mean = total / count
    squares = _over_channel(b, square)
    b.row()
    b.store("mean", mean)
    b.store("var", squares / count)


def _channel_sums(b: Build, element: str) -> None:
    """sum(dy) and sum(dy (x - mean)) of each channel."""
    compute = computes_as(element)
    b.out("sum_dy", compute, _PER_CHANNEL)
    b.out("sum_dyx", compute, _PER_CHANNEL)
    b.input("dy", element, _WHOLE)
    b.input("x", element, _WHOLE)
    b.input("mean", compute, _PER_CHANNEL)
    b.row()
    mean = b.load("mean")
    b.fold()
    dy = b.load("dy", compute)
    parts = (
        b.reduce("sum", dy),
        b.dot(dy, b.load("x", compute) - mean),
    )
    b.each()
    sums = [b.reduce("sum", p) for p in parts]
    b.row()
    b.store("sum_dy", sums[0])
    b.store("sum_dyx", sums[1])


_EACH: Strides = ("step", "hw", 1)
_OF_CHANNEL: Strides = (0, 1, 0)


def _channel_affine(b: Build, element: str) -> None:
    """y = x scale[c] + shift[c]."""
    compute = computes_as(element)
    b.out("y", element, _EACH)
    b.input("x", element, _EACH)
    b.input("scale", compute, _OF_CHANNEL)
    b.input("shift", compute, _OF_CHANNEL)
    b.each()
    b.store("y", b.op("fma", b.load("x", compute), b.load("scale"), b.load("shift")))


def _channel_affine2(b: Build, element: str) -> None:
    """dx = dy a[c] + x b[c] + d[c]: the gradient of a normalisation."""
    compute = computes_as(element)
    b.out("dx", element, _EACH)
    b.input("dy", element, _EACH)
    b.input("x", element, _EACH)
    for name in ("a", "b", "d"):
        b.input(name, compute, _OF_CHANNEL)
    b.each()
    inner = b.op("fma", b.load("x", compute), b.load("b"), b.load("d"))
    b.store("dx", b.op("fma", b.load("dy", compute), b.load("a"), inner))


_COLUMN_BODIES: dict[str, Body] = {
    "sum": _sum,
    "layer_norm_params_backward": _layer_norm_params_backward,
    "rms_norm_params_backward": _rms_norm_params_backward,
}
_STATISTICS: dict[str, Body] = {"stats": _channel_stats, "backward_sums": _channel_sums}
_CHANNEL_POINTWISE: dict[str, Body] = {
    "affine": _channel_affine,
    "affine_backward": _channel_affine2,
}
