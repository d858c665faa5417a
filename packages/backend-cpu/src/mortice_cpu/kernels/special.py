"""Special functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mortice.backend import dtypes, named_returns
from mortice_cpu.kernels import _special
from mortice_cpu.kernels._elementwise import (
    FLOAT,
    Kernel,
    binary,
    compute_type,
    finished,
    in_order,
    operand,
    silence,
    unary,
    wrap,
)

FrExp = named_returns("frexp", ("mantissa", "exponent"))


def frexp(self: Any) -> Any:
    t = self._t
    if t.kind != FLOAT:
        raise TypeError("floating")
    mantissa, exponent = np.frexp(operand(self, compute_type(t)))
    return FrExp(finished(mantissa, t), wrap(np.asarray(exponent, np.int32), dtypes.int32))


def _xlog1py(a: Any, b: Any) -> Any:
    if a.dtype.kind == "c":
        raise TypeError("complex")
    r = np.where(a == 0, a.dtype.type(0), a * np.log1p(b))
    return np.where(np.isnan(b), b, r)


def _zeta(a: Any, b: Any) -> Any:
    if a.dtype.kind == "c":
        raise TypeError("complex")
    return _special.zeta(a, b).astype(a.dtype)


def _real(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def checked(a: Any) -> Any:
        if a.dtype.kind == "c":
            raise TypeError("complex")  # the shape rule words it
        return function(a)

    return checked


_UNARY = ("entr", "erfcx", "i0e", "i1e", "ndtr", "ndtri", "log_ndtr")

KERNELS: dict[str, Kernel] = {
    **{
        f"special_{name}": in_order(unary(_real(getattr(_special, name)), to_float=True))
        for name in _UNARY
    },
    "special_xlog1py": binary(_xlog1py, to_float=True),
    "special_zeta": in_order(binary(_zeta, to_float=True)),
    "frexp.Tensor": frexp,
}

silence(globals())
