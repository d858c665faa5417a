"""Numbers and wider 0-d tensors beside 16-bit tensors, against PyTorch's on the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mortice

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.parity

NUMBERS = (0.1, 0.3, 0.7, 3.3, -1.7, 1e-3, 129.3, 2.0033, 1.0049)
VALUES = np.random.default_rng(0).standard_normal((2, 500)).astype(np.float32) * 2
#: What takes one operand: by a function, by a method in place.
OF_ONE = (
    "add", "sub", "rsub", "mul", "div", "floor_divide", "pow", "fmod", "remainder", "copysign", "add_", "sub_",
    "mul_", "div_", "pow_", "eq", "ge",
)  # fmt: skip
OF_TENSORS = "add sub mul div pow fmod remainder atan2 hypot logaddexp maximum fmin".split()
#: With a factor, whose product PyTorch adds without rounding it: 1 or 2 sums in a hundred differ; with
#: another factor 10 to 30 do.
SCALED = ("add", "sub", "rsub", "add_", "sub_", "addcmul", "addcdiv")


def apply(lib: Any, name: str, *operands: Any, **keywords: Any) -> Any:
    x, *others = operands
    if name.endswith("_"):
        return getattr(x.clone(), name)(*others, **keywords)
    return getattr(lib, name)(x, *others, **keywords)


def differing(name: str, dtype: str, make: Any, **keywords: Any) -> float:
    """The share of elements that differ; ``make`` gives the operands from (library, x, y)."""
    found: list[Any] = []
    for lib in (mortice, torch):
        x, y = (lib.tensor(v.tolist(), dtype=getattr(lib, dtype)) for v in VALUES)
        if "pow" in name:
            x = x.abs()
        r = apply(lib, name, *make(lib, x, y), **keywords)
        found.append(np.array(r.float().tolist()))
    return float(np.mean((found[0] != found[1]) & ~np.isnan(found[0] + found[1])))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", OF_ONE)
def test_a_number(name: str, dtype: str) -> None:
    for s in NUMBERS:
        assert not differing(name, dtype, lambda lib, x, y, s=s: (x, s)), s


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", OF_TENSORS)
def test_a_wider_tensor_of_no_dimensions(name: str, dtype: str) -> None:
    for s in map(abs, NUMBERS):
        assert not differing(name, dtype, lambda lib, x, y, s=s: (x, lib.tensor(s))), s
        assert not differing(name, dtype, lambda lib, x, y, s=s: (lib.tensor(s), x)), s


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", SCALED)
def test_a_factor(name: str, dtype: str) -> None:
    third = name.startswith("addc")
    key = "value" if third else "alpha"
    for s in NUMBERS:
        operands = lambda lib, x, y: (x, y, y.flip(0)) if third else (x, y)  # noqa: E731
        assert differing(name, dtype, operands, **{key: s}) < 0.03, s
        if not third:
            assert differing(name, dtype, lambda lib, x, y: (x, 0.3), alpha=s) < 0.03, s
