"""Fits the polynomials of mortice_llvm.emit.coefficients and prints them (needs mpmath).

Each is the interpolant in Chebyshev nodes, computed with 60 digits: within a small factor of the
best approximation, and reproducible. Run it, compare, paste. Powers go from high to low.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import mpmath as mp

mp.mp.dps = 60


def interpolate(
    fn: Callable[[mp.mpf], mp.mpf], low: float, high: float, degree: int
) -> list[float]:
    """Coefficients, highest power first, of the interpolant of ``fn`` on [low, high]."""
    n = degree + 1
    nodes = [
        (low + high) / mp.mpf(2) + (high - low) / mp.mpf(2) * mp.cos(mp.pi * (2 * k + 1) / (2 * n))
        for k in range(n)
    ]
    nodes = [x if abs(x) > mp.mpf(10) ** -30 else mp.mpf(0) for x in nodes]
    rows = mp.matrix([[x ** (degree - k) for k in range(n)] for x in nodes])
    return [float(c) for c in mp.lu_solve(rows, mp.matrix([fn(x) for x in nodes]))]


def _over(fn: Callable[[mp.mpf], mp.mpf], at_zero: float) -> Callable[[mp.mpf], mp.mpf]:
    return lambda x: mp.mpf(at_zero) if x == 0 else fn(x)


def scaled_erfc(k: float) -> Callable[[mp.mpf], mp.mpf]:
    """erfc(x) exp(x*x) (1 + 2x) as a function of t = (x - k) / (x + k)."""

    def fn(t: mp.mpf) -> mp.mpf:
        x = k * (1 + t) / (1 - t)
        return mp.erfc(x) * mp.exp(x * x) * (1 + 2 * x)

    return fn


def atanh_tail(z: mp.mpf) -> mp.mpf:
    """(2 atanh(s) / s - 2 - 2 z / 3) / z**2 as a function of z = s*s."""
    if z < mp.mpf(10) ** -15:
        return mp.mpf(2) / 5 + 2 * z / 7
    s = mp.sqrt(z)
    return (2 * mp.atanh(s) / s - 2 - 2 * z / 3) / z**2


FITS: dict[str, tuple[Callable[[mp.mpf], mp.mpf], float, float, int]] = {
    # (exp(r) - 1 - r) / r**2
    "EXP64": (_over(lambda r: (mp.expm1(r) - r) / r**2, 0.5), -0.34658, 0.34658, 10),
    # (atan(t) - t) / t**3 in z = t*t
    "ATAN32": (_over(lambda z: (mp.atan(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, 1 / 3), 1e-9, 0.17158, 4),
    "ATAN64": (_over(lambda z: (mp.atan(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, 1 / 3), 1e-9, 0.17158, 12),
    # (asin(s) - s) / s**3 in z = s*s
    "ASIN64": (_over(lambda z: (mp.asin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, 1 / 6), 1e-9, 0.25, 14),
    # erf(x) / x - 1 in z = x*x
    "ERF64": (_over(lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1, 0.128), 1e-9, 1.0, 12),
    "ERFC32": (scaled_erfc(2.0), -1.0, 0.68, 10),
    "ERFC64": (scaled_erfc(4.0), -1.0, 0.75, 24),
    # The logarithm of a power: see atanh_tail
    "ATANH64": (atanh_tail, 0.0, 0.02944, 8),
    # (tanh(x) - x) / x**3 in z = x*x
    "TANH64": (
        _over(lambda z: (mp.tanh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, -1 / 3), 1e-9, 0.3907, 14,
    ),
}  # fmt: skip


def erf_log(a: mp.mpf) -> mp.mpf:
    """-log(1 - erf(a)) / a."""
    return 2 / mp.sqrt(mp.pi) if a == 0 else -mp.log(mp.erfc(a)) / a


def erf_weight(a: mp.mpf) -> mp.mpf:
    """How much a relative error of erf_log changes erf(a), relatively."""
    u = a * erf_log(a)
    return mp.mpf(1) if u < mp.mpf(10) ** -8 else u * mp.exp(-u) / (1 - mp.exp(-u))


def weighted(degree: int, high: float, count: int = 120, rounds: int = 12) -> list[float]:
    """Coefficients of the polynomial next to erf_log on [0, high] under erf_weight (Lawson)."""
    nodes = [high / 2 * (1 + mp.cos(mp.pi * (2 * k + 1) / (2 * count))) for k in range(count)]
    values = [erf_log(x) for x in nodes]
    scale = [erf_weight(x) / y for x, y in zip(nodes, values, strict=True)]
    weight = [mp.mpf(1)] * count
    solved: list[mp.mpf] = []
    for _ in range(rounds):
        factor = [w * s for w, s in zip(weight, scale, strict=True)]
        rows = mp.matrix(
            [[f * x ** (degree - k) for k in range(degree + 1)]
             for f, x in zip(factor, nodes, strict=True)]
        )  # fmt: skip
        right = mp.matrix([f * y for f, y in zip(factor, values, strict=True)])
        solved = list(mp.lu_solve(rows.T * rows, rows.T * right))
        errors = [
            abs(s * (mp.polyval(solved, x) - y))
            for s, x, y in zip(scale, nodes, values, strict=True)
        ]
        greatest = max(errors)
        weight = [
            max(w * (mp.mpf("0.3") + mp.mpf("0.7") * e / greatest), mp.mpf(10) ** -6)
            for w, e in zip(weight, errors, strict=True)
        ]
    return [float(c) for c in solved]


def error(name: str) -> float:
    """Greatest relative error of the fitted polynomial on a grid."""
    fn, low, high, degree = FITS[name]
    c = interpolate(fn, low, high, degree)
    grid = [low + (high - low) * mp.mpf(k) / 201 for k in range(202)]
    return float(max(abs(mp.polyval([mp.mpf(v) for v in c], x) / fn(x) - 1) for x in grid))


def lines() -> list[str]:
    """The tables as Python text."""
    out = ["# -log(1 - erf(a)) / a on [0, 4], weighted", "ERF_LOG32 = ("]
    out += [f"    {c!r}," for c in weighted(8, 4.0)]
    out.append(")")
    for name, (fn, low, high, degree) in FITS.items():
        out += [f"# relative error {error(name):.1e}", f"{name} = ("]
        out += [f"    {c!r}," for c in interpolate(fn, low, high, degree)]
        out.append(")")
    return out


if __name__ == "__main__":
    sys.stdout.write("\n".join([*lines(), ""]))
