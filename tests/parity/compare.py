"""Whether a result of mortice is torch's: structure, dtype, shape, values.

Tolerances are torch.testing.assert_close's, widened by what the OpInfo itself asks for
(``toleranceOverride``), and for half types by two units in the last place. A result outside them
is accepted if it is as near to torch's own result in double precision as torch's is: a sum in
another order is not an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from convert import dtype_name, tensor_from_mortice

import mortice

TOLERANCE: dict[torch.dtype, tuple[float, float]] = {
    torch.float16: (2e-3, 1e-3),
    torch.bfloat16: (3.2e-2, 1e-2),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex64: (1.3e-6, 1e-5),
    torch.complex128: (1e-7, 1e-7),
}
# A gradient is a chain of roundings; torch compares it in double only. Ours in float32 gets the
# tolerance with which torch compares one device with another.
GRADIENT_TOLERANCE = {
    **TOLERANCE,
    torch.float16: (1e-2, 5e-3),
    torch.bfloat16: (6.4e-2, 3e-2),
    torch.float32: (1e-4, 1e-4),
    torch.complex64: (1e-4, 1e-4),
}


def merged(ops: list[Any]) -> dict[torch.dtype, tuple[float, float]]:
    """The widest tolerance that any of these OpInfos asks for, by dtype."""
    found: dict[torch.dtype, tuple[float, float]] = {}
    for op in ops:
        for dtype, (rtol, atol) in overrides(op).items():
            have = found.get(dtype, (0.0, 0.0))
            found[dtype] = (max(have[0], rtol), max(have[1], atol))
    return found


def overrides(op: Any) -> dict[torch.dtype, tuple[float, float]]:
    """The widest tolerance that this OpInfo asks for, by dtype."""
    found: dict[torch.dtype, tuple[float, float]] = {}
    for info in op.decorators:
        for decorator in getattr(info, "decorators", ()):
            for dtype, tol in getattr(decorator, "d", {}).items():
                if not hasattr(tol, "atol"):
                    continue  # precisionOverride: a bare number, for another assertEqual
                atol, rtol = found.get(dtype, (0.0, 0.0))
                found[dtype] = (max(atol, tol.atol), max(rtol, tol.rtol))
    return {dtype: (rtol, atol) for dtype, (atol, rtol) in found.items()}


class Comparison:
    """``Comparison(op)(actual, expected)`` is None, or one line that says what differs."""

    def __init__(self, op: Any = None, *, values: bool = True, gradient: bool = False) -> None:
        self.values = values
        self.table = dict(GRADIENT_TOLERANCE if gradient else TOLERANCE)
        sources = op if isinstance(op, list) else [] if op is None else [op]
        for dtype, (rtol, atol) in merged(sources).items():
            base = self.table.get(dtype, (0.0, 0.0))
            self.table[dtype] = (max(base[0], rtol), max(base[1], atol))

    def __call__(
        self, actual: Any, expected: Any, precise: Callable[[], Any] | None = None, where: str = ""
    ) -> str | None:
        if isinstance(expected, torch.Tensor):
            return self._tensor(actual, expected, precise, where)
        if isinstance(expected, torch.Size):
            same = tuple(actual) == tuple(expected)
            return None if same else f"{where}{tuple(actual)}, expected {tuple(expected)}"
        if isinstance(expected, (list, tuple)):
            return self._sequence(actual, expected, precise, where)
        if isinstance(expected, torch.dtype):
            same = dtype_name(actual) == dtype_name(expected)
            return None if same else f"{where}{actual}, expected {expected}"
        if isinstance(expected, (bool, int, float, complex)):
            return self._number(actual, expected, where)
        return None if actual == expected else f"{where}{actual!r}, expected {expected!r}"

    def _number(self, actual: Any, expected: Any, where: str) -> str | None:
        if isinstance(actual, mortice.Tensor) or type(actual) is not type(expected):
            found = type(actual).__name__
            return f"{where}a {found}, expected a {type(expected).__name__}"
        if not self.values:
            return None
        close = abs(actual - expected) <= 1e-5 + 1e-5 * abs(expected) or actual == expected
        both_nan = actual != actual and expected != expected
        return None if close or both_nan else f"{where}{actual!r}, expected {expected!r}"

    def picked(self, source: torch.Tensor, dim: int, actual: Any, expected: Any) -> str | None:
        """(values, indices) against torch's: equal values, and indices that pick those values."""
        difference = self(actual[0], expected[0]) or self._metadata(actual[1], expected[1])
        if difference is not None or not source.ndim or not expected[1].numel():
            return difference
        index = tensor_from_mortice(actual[1])
        if index.ndim != source.ndim:  # keepdim=False
            index = index.unsqueeze(dim)
        found = source.detach().gather(dim, index).reshape(expected[0].shape)
        difference = self._values(found, expected[0].detach())
        return difference and f"indices pick other values: {difference}"

    def ordered(self, source: torch.Tensor, dim: int, actual: Any, expected: Any) -> str | None:
        """Indices that put the source in order: equal elements may change places."""
        difference = self._metadata(actual, expected)
        if difference is not None or not source.ndim or not expected.numel():
            return difference
        ours, theirs = (source.gather(dim, i) for i in (tensor_from_mortice(actual), expected))
        return self._values(ours, theirs)

    def _values(self, ours: torch.Tensor, theirs: torch.Tensor) -> str | None:
        bad = ~torch.isclose(ours, theirs, rtol=0, atol=0, equal_nan=True)
        return describe(ours, theirs, bad, 0, 0) if bad.any() else None

    def _metadata(self, actual: Any, expected: torch.Tensor) -> str | None:
        return Comparison(values=False)(actual, expected)

    def _sequence(self, actual: Any, expected: Any, precise: Any, where: str) -> str | None:
        if not isinstance(actual, (list, tuple)):
            return f"{where}a {type(actual).__name__}, expected {len(expected)} results"
        if len(actual) != len(expected):
            return f"{where}{len(actual)} results, expected {len(expected)}"
        for i, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
            inner = None if precise is None else lambda i=i: precise()[i]
            difference = self(ours, theirs, inner, f"{where}result {i}: ")
            if difference is not None:
                return difference
        return None

    def _tensor(self, actual: Any, expected: torch.Tensor, precise: Any, where: str) -> str | None:
        if not isinstance(actual, mortice.Tensor):
            return f"{where}a {type(actual).__name__}, expected a tensor"
        if dtype_name(actual.dtype) != dtype_name(expected.dtype):
            found, wanted = dtype_name(actual.dtype), dtype_name(expected.dtype)
            return f"{where}dtype {found}, expected {wanted}"
        if tuple(actual.shape) != tuple(expected.shape):
            return f"{where}shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
        if not self.values or expected.numel() == 0 or expected.is_meta:
            return None
        theirs = expected.detach().resolve_conj().resolve_neg()
        ours = tensor_from_mortice(actual)
        rtol, atol = self.table.get(theirs.dtype, (0.0, 0.0))
        bad = ~torch.isclose(ours, theirs, rtol=rtol, atol=atol, equal_nan=True)
        if not bad.any():
            return None
        if precise is not None and self._as_precise(ours, theirs, precise):
            return None
        return where + describe(ours, theirs, bad, rtol, atol)

    def _as_precise(self, ours: torch.Tensor, theirs: torch.Tensor, precise: Any) -> bool:
        if not (theirs.is_floating_point() or theirs.is_complex()):
            return False
        try:
            exact = precise()
        except Exception:  # torch has no double precision variant of this call: no second chance
            return False
        if not isinstance(exact, torch.Tensor) or exact.shape != theirs.shape:
            return False
        dtype, wide = theirs.dtype, exact.dtype
        ours, theirs = ours.to(wide), theirs.to(wide)
        finite = exact.isfinite() & theirs.isfinite()
        if not theirs.isfinite().any() and exact.isfinite().all():
            # torch overflowed on the way: ours must be the exact result, rounded (maybe to inf).
            rtol, atol = self.table[dtype]
            rounded = exact.to(dtype).to(wide)
            return bool(torch.isclose(ours, rounded, rtol=rtol, atol=atol).all())
        if not torch.equal(ours.isfinite() & exact.isfinite(), finite) or not finite.any():
            return False
        off = (ours - exact)[finite].abs()
        allowed = (theirs - exact)[finite].abs()
        # A tenth more than torch's worst error: two roundings that err on different elements.
        return bool(off.max() <= 1.1 * allowed.max() or off.norm() <= allowed.norm())


def describe(
    ours: torch.Tensor, theirs: torch.Tensor, bad: torch.Tensor, rtol: float, atol: float
) -> str:
    """Count of differing elements, and the worst one."""
    if ours.dtype is torch.bool:
        off = bad.to(torch.float64)
    else:
        wide = torch.complex128 if ours.is_complex() else torch.float64
        off = (ours.to(wide) - theirs.to(wide)).abs()
    off = torch.where(bad, off.nan_to_num(nan=float("inf")), torch.zeros_like(off))
    index = tuple(int(i) for i in torch.unravel_index(off.argmax(), off.shape))
    got, want = ours[index].item(), theirs[index].item()
    return (
        f"{int(bad.sum())} of {bad.numel()} values differ, worst at {list(index)}: {got:.8g}, "
        f"expected {want:.8g} (rtol {rtol:g}, atol {atol:g})"
    )
