"""The operators of ``prims`` that are none of ATen's."""

from __future__ import annotations

from typing import Any

import numpy as np

from mortice.backend import shape_rule, wrap
from mortice_cpu.kernels import _bessel
from mortice_cpu.kernels._elementwise import FLOAT, Kernel, binary, in_order, silence, unary


def _bessel_j(order: int) -> Any:
    def function(a: Any) -> Any:
        if a.dtype.kind == "c":
            raise TypeError("complex")
        return _bessel.bessel_j(a.astype(np.float64), order).astype(a.dtype)

    return in_order(unary(function, to_float=True))


def _gamma(upper: bool) -> Any:
    def function(a: Any, x: Any) -> Any:
        if np.asarray(a).dtype.kind == "c":
            raise TypeError("complex")
        return _bessel.gamma_p(a, x, upper).astype(np.result_type(a, x))

    return in_order(binary(function, to_float=True))


def xor_sum(inp: Any, dims: Any, output_dtype: Any) -> Any:
    if inp._t.kind >= FLOAT:
        raise TypeError("integers")
    shape, dtype = shape_rule("prims::xor_sum")(inp, dims, output_dtype)
    axes = tuple(range(inp._a.ndim)) if dims is None else tuple(dims)
    result = np.bitwise_xor.reduce(inp._a, axis=axes)
    return wrap(np.asarray(result).astype(dtype.numpy).reshape(shape), dtype)


KERNELS: dict[str, Kernel] = {
    "prims::bessel_j0": _bessel_j(0),
    "prims::bessel_j1": _bessel_j(1),
    "prims::igamma": _gamma(False),
    "prims::igammac": _gamma(True),
    "prims::xor_sum": xor_sum,
}

silence(globals())
