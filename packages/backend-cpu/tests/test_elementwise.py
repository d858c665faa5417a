"""Elementwise kernels: values, dtypes, memory, warnings."""

from __future__ import annotations

import math
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mortice as m
from mortice._dispatch.schema import parse
from mortice._generated.registry import ROWS
from mortice.testing import assert_close, gradcheck, gradgradcheck

RANDOM = np.random.default_rng(0)


def positive(*shape: int) -> Any:
    return m.from_numpy(RANDOM.uniform(0.2, 0.8, shape)).requires_grad_()


UNARY = [
    "abs", "acos", "asin", "asinh", "atan", "atanh", "cos", "cosh", "digamma", "erf", "erfc",
    "erfinv", "exp", "exp2", "expm1", "lgamma", "log", "log10", "log1p", "log2", "logit", "neg",
    "reciprocal", "rsqrt", "sigmoid", "sin", "sinc", "sinh", "sqrt", "square", "tan", "tanh",
]  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_unary_gradients(name: str) -> None:
    x = positive(3)
    assert gradcheck(getattr(m, name), (x,))
    assert gradgradcheck(getattr(m, name), (x,))


@pytest.mark.parametrize(
    "name", ["add", "sub", "mul", "div", "pow", "atan2", "hypot", "maximum", "logaddexp", "xlogy"]
)
def test_binary_gradients_with_broadcasting(name: str) -> None:
    assert gradcheck(getattr(m, name), (positive(2, 1), positive(3)))
    assert gradgradcheck(getattr(m, name), (positive(2, 1), positive(3)))


@pytest.mark.parametrize(
    "call",
    [
        m.gelu, m.silu, m.mish, m.elu, m.selu, m.celu, m.leaky_relu, m.hardswish, m.softplus,
        m.hardsigmoid, m.log_sigmoid, m.hardtanh, m.softshrink, m.hardshrink, m.glu,
        lambda x: m.gelu(x, approximate="tanh"),
    ],
)  # fmt: skip
def test_activation_gradients(call: Any) -> None:
    x = m.from_numpy(RANDOM.uniform(-2.7, 2.7, (2, 4))).requires_grad_()
    assert gradcheck(call, (x,))
    assert gradgradcheck(call, (x,))


@pytest.mark.parametrize("name", ["exp", "tanh", "erf", "sigmoid", "log1p"])
def test_large_arrays_agree_with_small(name: str) -> None:
    """Large contiguous float32 arrays take the fused kernels."""
    x = m.from_numpy(RANDOM.uniform(0.1, 3, 20_000).astype(np.float32))
    large = getattr(m, name)(x)
    small = m.cat([getattr(m, name)(part) for part in x.split(1000)])
    assert_close(large, small, rtol=2e-6, atol=2e-6)


def test_numbers_convert_as_in_c() -> None:
    assert (m.tensor([1], dtype=m.uint8) + 300).tolist() == [45]
    assert (m.tensor([1], dtype=m.int8) * -3).tolist() == [-3]
    assert math.copysign(1, (m.tensor([0.0]) * -0.0).item()) == -1
    assert math.copysign(1, (m.tensor([0.0]) * 0.0).item()) == 1
    assert (m.tensor([True]) + True).dtype is m.bool


def test_integer_division_and_remainder_signs() -> None:
    a, b = m.tensor([7, -7, 7, -7]), m.tensor([2, 2, -2, -2])
    assert m.div(a, b, rounding_mode="floor").tolist() == [3, -4, -4, 3]
    assert m.div(a, b, rounding_mode="trunc").tolist() == [3, -3, -3, 3]
    assert (a % b).tolist() == [1, 1, -1, -1]
    assert m.fmod(a, b).tolist() == [1, -1, 1, -1]
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        a // 0


def test_half_types_round_once() -> None:
    x = m.tensor([1.0, 2.0, 3.0], dtype=m.bfloat16)
    expected = m.tensor(np.exp(np.float32([1, 2, 3])), dtype=m.float32).to(m.bfloat16)
    assert m.exp(x).tolist() == expected.tolist()
    assert (x + x).dtype is m.bfloat16


def test_nan_travels() -> None:
    x = m.tensor([math.nan, -1.0])
    assert math.isnan(m.relu(x)[0].item())
    assert math.isnan(x.clamp(0, 1)[0].item())
    assert math.isnan(m.maximum(x, m.zeros(2))[0].item())
    assert m.fmax(x, m.zeros(2)).tolist() == [0.0, 0.0]
    assert m.sign(x).tolist() == [0.0, -1.0]


def test_no_warnings_even_where_warnings_are_errors() -> None:
    x = m.tensor([3e38, math.inf, 0.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for y in (x + x, x * x, x - x, x / 0, 1 / x, x.exp(), (-x).sqrt(), x.log(), x**3, x.sum()):
            assert y.numel()
        x.clone().mul_(x).add_(x)
        with pytest.raises(RuntimeWarning):
            x.numpy() * x.numpy()  # numpy's own warnings stay as they are


def test_numpy_told_to_raise_does_not_reach_us() -> None:
    x = m.tensor([3e38])
    with np.errstate(all="raise"):
        assert (x * x).tolist() == [math.inf]
        assert x.exp().tolist() == [math.inf]


def test_results_own_their_memory() -> None:
    x = m.tensor([1.0, 2.0])
    for y in (x.round(), x.abs(), x.clamp(0, 5), x.pow(1), x.fill(3.0), m.nan_to_num(x), x.relu()):
        assert not np.shares_memory(x.numpy(), y.numpy())


def test_in_place_writes_into_the_same_memory() -> None:
    x = m.arange(6.0).view(2, 3)
    before = x.data_ptr()
    x.add_(1).mul_(2).sub_(m.ones(2, 3), alpha=3).div_(2).addcmul_(x, x, value=0.5).zero_()
    assert x.data_ptr() == before
    assert x.tolist() == [[0.0] * 3] * 2
    column = x.t()[0]
    column += 5
    assert x.tolist() == [[5.0, 0.0, 0.0], [5.0, 0.0, 0.0]]


def test_reflected_operators() -> None:
    x = m.tensor([2.0, 4.0])
    assert (1 - x).tolist() == [-1.0, -3.0]
    assert (8 / x).tolist() == [4.0, 2.0]
    assert (2**x).tolist() == [4.0, 16.0]
    assert (9 // x).tolist() == [4.0, 2.0]
    assert (9 % x).tolist() == [1.0, 1.0]
    assert (np.float64(1) - x).tolist() == [-1.0, -3.0]
    assert (~m.tensor([True, False])).tolist() == [False, True]
    assert (1 << m.tensor([1, 2])).tolist() == [2, 4]


def test_real_and_imag_are_views() -> None:
    z = m.tensor([1 + 2j, 3 - 4j])
    z.real.mul_(10)
    z.imag = 0
    assert z.tolist() == [10 + 0j, 30 + 0j]
    assert z.conj().tolist() == [10 + 0j, 30 + 0j]


@pytest.mark.parametrize("size", [100, 20_000])
def test_scaled_sums_in_place(size: int) -> None:
    """Large arrays are updated by one fused pass, except where memory overlaps."""
    a, b, c = (RANDOM.standard_normal(size).astype(np.float32) for _ in range(3))
    x = m.from_numpy(a.copy()).add_(m.from_numpy(b), alpha=0.5)
    np.testing.assert_allclose(x.numpy(), a + b * np.float32(0.5), rtol=1e-6, atol=1e-6)
    x.sub_(m.from_numpy(c), alpha=2).addcmul_(m.from_numpy(b), m.from_numpy(c), value=-3)
    wanted = a + b * np.float32(0.5) - 2 * c - 3 * b * c
    np.testing.assert_allclose(x.numpy(), wanted, rtol=1e-5, atol=1e-5)
    y = m.from_numpy(a.copy())
    y[1:].add_(y[:-1], alpha=2)
    np.testing.assert_allclose(y.numpy()[1:], a[1:] + 2 * a[:-1], rtol=1e-6, atol=1e-6)


def _one_tensor_in() -> list[str]:
    """Elementwise operators of one tensor, with defaults for all else, that make a new tensor."""
    found: list[str] = []
    for name, row in ROWS.items():
        schema = parse(row["schema"])
        makes_one = not schema.mutated and len(schema.returns) == 1
        if "pointwise" not in row.get("tags", ()) or not makes_one:
            continue
        first, *rest = schema.arguments
        if first.type.is_tensor and all(a.has_default and not a.type.is_tensor for a in rest):
            found.append(name)
    return found


@pytest.mark.parametrize("name", _one_tensor_in())
def test_results_lie_as_their_operand_does(name: str) -> None:
    """Dense operands in another order than row-major give results in that order."""
    packet, _, overload = name.partition(".")
    call = getattr(getattr(m.ops.aten, packet), overload or "default")
    values = m.from_numpy(RANDOM.uniform(0.25, 0.75, (3, 4, 5)))
    needed = {"min": 0} if name in ("clamp", "clip") else {}
    tried = 0
    for dtype in (
        m.float32,
        m.float64,
        m.float16,
        m.bfloat16,
        m.int64,
        m.uint8,
        m.bool,
        m.complex64,
    ):
        for order in ((1, 0, 2), (2, 1, 0), (2, 0, 1)):
            x = values.to(dtype).permute(*order)
            try:
                result = call(x, **needed)
            except (RuntimeError, TypeError, NotImplementedError):
                continue  # not of this dtype
            assert result.stride() == x.stride(), (dtype, order)
            tried += 1
    assert tried


@pytest.mark.parametrize("dtype", [m.float32, m.float64, m.float16, m.bfloat16])
@pytest.mark.parametrize("count", [1, 4000])
def test_gelu_of_infinities(dtype: m.dtype, count: int) -> None:
    """Whichever way it is computed: few elements by numpy, many by a kernel."""
    inf = float("inf")
    x = m.tensor([-inf, inf, -100.0, 100.0, -0.0], dtype=dtype).repeat(count).requires_grad_()
    y = m.nn.functional.gelu(x)
    y.sum().backward()
    assert m.equal(y[-5:], m.tensor([0, inf, 0, 100, 0], dtype=dtype))
    assert x.grad is not None
    assert m.equal(x.grad[-5:], m.tensor([0, 1, 0, 1, 0.5], dtype=dtype))


def test_code_is_kept_where_the_configuration_has_it(tmp_path: Path) -> None:
    pytest.importorskip("mortice_llvm")
    code = (
        "import mortice, sys\n"
        "mortice.config.cache_dir = sys.argv[1]\n"
        "mortice.rand(100_000).exp()\n"
    )  # fmt: skip
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert list((tmp_path / "llvm").glob("*.o"))
