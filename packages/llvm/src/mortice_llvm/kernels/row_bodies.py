"""Row kernels: reductions along the last axis and what is built on them.

Arrays are contiguous (rows, cols); statistics are (rows,). f16 and bf16 compute in f32.
"""

from __future__ import annotations

from collections.abc import Callable

from ..dtypes import computes_as
from ..ir import Build, Expr, Kernel
from .table import Entry

Body = Callable[[Build, str], None]

_PER_ROW: tuple[int | str, ...] = (1, 0)
_PER_COLUMN: tuple[int | str, ...] = (0, 1)


def build(e: Entry, symbol: str, element: str) -> Kernel:
    """Returns the kernel of entry ``e``; buffers are named as the bodies below say."""
    b = Build(symbol, ("rows", "cols"))
    _BODIES[e.body](b, element)
    return b.done()


def _softmax(b: Build, element: str) -> None:
    """y = exp(x - max) / sum."""
    b.out("y", element)
    b.input("x", element)
    compute = computes_as(element)
    b.each()
    top = b.reduce("fmax", b.load("x", compute))
    # 16-bit results would lose the exponentials if they were kept in y between the passes.
    kept = compute == element
    b.each()
    e = b.op("exp", b.load("x", compute) - top)
    if kept:
        b.store("y", e)
    total = b.reduce("sum", e)
    b.row()
    scale = 1.0 / total
    b.each()
    again = b.load("y") if kept else b.op("exp", b.load("x", compute) - top)
    b.store("y", again * scale)


def _log_softmax(b: Build, element: str) -> None:
    """y = x - max - log(sum(exp(x - max)))."""
    b.out("y", element)
    b.input("x", element)
    compute = computes_as(element)
    b.each()
    top = b.reduce("fmax", b.load("x", compute))
    b.each()
    total = b.reduce("sum", b.op("exp", b.load("x", compute) - top))
    b.row()
    log_total = b.op("log", total)
    b.each()
    b.store("y", b.load("x", compute) - top - log_total)


def _softmax_backward(b: Build, element: str) -> None:
    """dx = y (dy - sum(dy y))."""
    b.out("dx", element)
    b.input("dy", element)
    b.input("y", element)
    compute = computes_as(element)
    b.each()
    dot = b.dot(b.load("dy", compute), b.load("y", compute))
    b.each()
    b.store("dx", b.load("y", compute) * (b.load("dy", compute) - dot))


def _log_softmax_backward(b: Build, element: str) -> None:
    """dx = dy - exp(y) sum(dy)."""
    b.out("dx", element)
    b.input("dy", element)
    b.input("y", element)
    compute = computes_as(element)
    b.each()
    total = b.reduce("sum", b.load("dy", compute))
    b.each()
    b.store("dx", b.load("dy", compute) - b.op("exp", b.load("y", compute)) * total)


def _layer_norm(*, affine: bool) -> Body:
    def body(b: Build, element: str) -> None:
        """y = (x - mean) * rstd [* weight + bias]; mean and rstd are kept."""
        compute = computes_as(element)
        b.out("y", element)
        b.out("mean", compute, _PER_ROW)
        b.out("rstd", compute, _PER_ROW)
        b.input("x", element)
        if affine:
            b.input("weight", element, _PER_COLUMN)
            b.input("bias", element, _PER_COLUMN)
        b.scalar("eps")
        b.each()
        total = b.reduce("sum", b.load("x", compute))
        count = b.reduce("sum", b.const(1.0, compute))
        b.row()
        mean = total / count
        b.each()
        d = b.load("x", compute) - mean
        squares = b.dot(d, d)
        b.row()
        rstd = b.op("rsqrt", squares / count + b.param("eps", compute))
        b.store("mean", mean)
        b.store("rstd", rstd)
        b.each()
        y = (b.load("x", compute) - mean) * rstd
        if affine:
            y = b.op("fma", y, b.load("weight", compute), b.load("bias", compute))
        b.store("y", y)

    return body


def _layer_norm_backward(*, affine: bool) -> Body:
    def body(b: Build, element: str) -> None:
        """dx = rstd (g - mean(g) - xhat mean(g xhat)), g = dy [* weight]."""
        compute = computes_as(element)
        b.out("dx", element)
        b.input("dy", element)
        b.input("x", element)
        b.input("mean", compute, _PER_ROW)
        b.input("rstd", compute, _PER_ROW)
        if affine:
            b.input("weight", element, _PER_COLUMN)

        def terms() -> tuple[Expr, Expr]:
            g = b.load("dy", compute)
            if affine:
                g = g * b.load("weight", compute)
            return g, (b.load("x", compute) - mean) * rstd

        b.row()
        mean, rstd = b.load("mean"), b.load("rstd")
        b.each()
        g, xhat = terms()
        sum_g = b.reduce("sum", g)
        sum_gx = b.dot(g, xhat)
        count = b.reduce("sum", b.const(1.0, compute))
        b.row()
        mean_g, mean_gx = sum_g / count, sum_gx / count
        b.each()
        g, xhat = terms()
        b.store("dx", (g - mean_g - xhat * mean_gx) * rstd)

    return body


def _rms_norm(*, affine: bool) -> Body:
    def body(b: Build, element: str) -> None:
        """y = x / sqrt(mean(x x) + eps) [* weight]; rstd is kept."""
        compute = computes_as(element)
        b.out("y", element)
        b.out("rstd", compute, _PER_ROW)
        b.input("x", element)
        if affine:
            b.input("weight", element, _PER_COLUMN)
        b.scalar("eps")
        b.each()
        x = b.load("x", compute)
        squares = b.dot(x, x)
        count = b.reduce("sum", b.const(1.0, compute))
        b.row()
        rstd = b.op("rsqrt", squares / count + b.param("eps", compute))
        b.store("rstd", rstd)
        b.each()
        y = b.load("x", compute) * rstd
        b.store("y", y * b.load("weight", compute) if affine else y)

    return body


def _reduce(how: str) -> Body:
    def body(b: Build, element: str) -> None:
        """out = the reduction of each row; positions are i64."""
        compute = computes_as(element)
        positional = how in ("argmax", "argmin")
        b.out("out", "i64" if positional else element, _PER_ROW)
        b.input("x", element)
        b.each()
        result = b.reduce(how, b.load("x", compute))
        b.row()
        b.store("out", result)

    return body


def _mean(b: Build, element: str) -> None:
    """out = sum / cols."""
    compute = computes_as(element)
    b.out("out", element, _PER_ROW)
    b.input("x", element)
    b.each()
    total = b.reduce("sum", b.load("x", compute))
    count = b.reduce("sum", b.const(1.0, compute))
    b.row()
    b.store("out", total / count)


def _logsumexp(b: Build, element: str) -> None:
    """out = max + log(sum(exp(x - max))); infinite maxima are their own result."""
    compute = computes_as(element)
    b.out("out", element, _PER_ROW)
    b.input("x", element)
    b.each()
    found = b.reduce("max", b.load("x", compute))
    b.row()
    top = b.select(b.op("isinf", found), 0.0, found)
    b.each()
    total = b.reduce("sum", b.op("exp", b.load("x", compute) - top))
    b.row()
    b.store("out", b.op("log", total) + top)


_BODIES: dict[str, Body] = {
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "softmax_backward": _softmax_backward,
    "log_softmax_backward": _log_softmax_backward,
    "layer_norm": _layer_norm(affine=False),
    "layer_norm_affine": _layer_norm(affine=True),
    "layer_norm_backward": _layer_norm_backward(affine=False),
    "layer_norm_affine_backward": _layer_norm_backward(affine=True),
    "rms_norm": _rms_norm(affine=False),
    "rms_norm_affine": _rms_norm(affine=True),
    "mean": _mean,
    "logsumexp": _logsumexp,
    **{how: _reduce(how) for how in ("sum", "max", "min", "prod", "argmax", "argmin")},
}
