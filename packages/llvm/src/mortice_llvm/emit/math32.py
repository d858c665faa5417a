"""Float32 functions as vector code: range reduction, a polynomial, reconstruction.

Polynomials are those of Cephes (S. Moshier) where named so; others were fitted for this file.
The greatest error of each, in units in the last place over strided bit patterns, is asserted by
tests/test_math32.py. Results are the same in every lane position and for every width.
"""

from __future__ import annotations

from collections.abc import Callable

from .lanes import Lanes

INF = float("inf")
NAN = float("nan")
LOG2E = 1.4426950408889634
# ln 2 in two parts; the first has few bits, so its product with a small integer is exact.
LN2_HI, LN2_LO = 0.693359375, -2.12194440e-4
# exp(r) = 1 + r + r*r*P(r), |r| <= ln(2)/2 (Cephes expf)
_EXP = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)


def _exp_parts(v: Lanes, x: str) -> tuple[str, str, str, str]:
    """(r, P(r), n, n as integer) with x = n ln 2 + r and exp(r) = 1 + r + r*r*P(r)."""
    n, ni = v.round_small(v.mul(x, v.c(LOG2E)))
    r = v.fma(n, v.c(-LN2_HI), x)
    r = v.fma(n, v.c(-LN2_LO), r)
    return r, v.poly(r, _EXP), n, ni


def exp(v: Lanes, x: str) -> str:
    """e**x."""
    x = v.at_most(v.c(89.0), v.at_least(v.c(-104.0), x))
    r, p, n, ni = _exp_parts(v, x)
    y = v.add(v.fma(p, v.mul(r, r), r), v.c(1.0))
    return v.scale(y, n, ni)


# log(1 + f) = f - f*f/2 + f**3 * P(f), sqrt(1/2) <= 1 + f < sqrt(2) (Cephes logf)
_LOG = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)


def _log_parts(v: Lanes, x: str) -> tuple[str, str]:
    """(exponent e as a float, f) with x = 2**e * (1 + f), for positive finite x."""
    ints = v.ints
    tiny = v.cmp("olt", x, v.c(1.17549435e-38))
    scaled = v.select(tiny, v.mul(x, v.c(8388608.0)), x)
    bits = v.bits(scaled)
    e = ints.op("ashr", ints.sub(bits, ints.c(0x3F3504F3)), ints.c(23))
    m = v.from_bits(ints.sub(bits, ints.op("shl", e, ints.c(23))))
    ef = ints.convert("sitofp", e, v)
    ef = v.select(tiny, v.sub(ef, v.c(23.0)), ef)
    return ef, v.sub(m, v.c(1.0))


def _log_special(v: Lanes, x: str, r: str) -> str:
    """``r`` with the values for zeros, negative numbers, infinity and NaN put in."""
    r = v.select(v.cmp("oeq", x, v.c(0.0)), v.c(-INF), r)
    r = v.select(v.cmp("ult", x, v.c(0.0)), v.c(NAN), r)
    return v.select(v.cmp("oeq", x, v.c(INF)), x, r)


def log(v: Lanes, x: str) -> str:
    """Natural logarithm."""
    e, f = _log_parts(v, x)
    z = v.mul(f, f)
    y = v.mul(v.mul(v.poly(f, _LOG), z), f)
    y = v.fma(e, v.c(LN2_LO), y)
    y = v.fma(z, v.c(-0.5), y)
    return _log_special(v, x, v.fma(e, v.c(LN2_HI), v.add(f, y)))


# tanh(x) = x + x**3 * P(x*x), |x| < 0.625 (Cephes tanhf)
_TANH = (
    -5.70498872745e-3,
    2.06390887954e-2,
    -5.37397155531e-2,
    1.33314422036e-1,
    -3.33332819422e-1,
)


def tanh(v: Lanes, x: str) -> str:
    """Hyperbolic tangent."""
    size = v.abs(x)
    e = exp(v, v.mul(v.at_most(v.c(10.0), size), v.c(2.0)))
    large = v.sub(v.c(1.0), v.div(v.c(2.0), v.add(e, v.c(1.0))))
    z = v.mul(x, x)
    small = v.fma(v.mul(v.poly(z, _TANH), z), size, size)
    return v.copysign(v.select(v.cmp("olt", size, v.c(0.625)), small, large), x)


def sigmoid(v: Lanes, x: str) -> str:
    """1 / (1 + e**-x)."""
    return v.div(v.c(1.0), v.add(exp(v, v.neg(x)), v.c(1.0)))


_ERF_P = (
    -2.72614225801306e-10,
    2.77068142495902e-08,
    -2.10102402082508e-06,
    -5.69250639462346e-05,
    -7.34990630326855e-04,
    -2.95459980854025e-03,
    -1.60960333262415e-02,
)
_ERF_Q = (
    -1.45660718464996e-05,
    -2.13374055278905e-04,
    -1.68282697438203e-03,
    -7.37332916720468e-03,
    -1.42647390514189e-02,
)


def erf(v: Lanes, x: str) -> str:
    """Error function: an odd rational function on [-4, 4], +-1 beyond."""
    x = v.at_most(v.c(4.0), v.at_least(v.c(-4.0), x))
    z = v.mul(x, x)
    r = v.mul(x, v.div(v.poly(z, _ERF_P), v.poly(z, _ERF_Q)))
    return v.at_most(v.c(1.0), v.at_least(v.c(-1.0), r))


FUNCTIONS: dict[str, Callable[..., str]] = {f.__name__: f for f in (exp, log, tanh, sigmoid, erf)}
