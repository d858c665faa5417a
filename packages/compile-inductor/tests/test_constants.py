"""Tensors without dimensions that are made of numbers are tensors: they promote by their dtype, and
operators that the dispatcher runs get them as tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import mortice
from mortice.nn import functional as F

DTYPES = ("bfloat16", "float16", "float32", "float64", "int32", "int64", "bool")
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda c, y: c + y,
    "mul": lambda c, y: y * c,
    "sub": lambda c, y: c.to(c.dtype) * 2 - y,
    "maximum": mortice.maximum,
    "where": lambda c, y: mortice.where(y > 0, y, c),
    "lt": lambda c, y: c < y,
}


def results(f: Callable[..., Any], *args: Any) -> list[Any]:
    """What a function of tensors gives, then the gradients of those that require one."""
    own = [
        x.detach().clone().requires_grad_(x.requires_grad) if hasattr(x, "grad") else x
        for x in args
    ]
    out = f(*own)
    if not out.requires_grad:
        return [out]
    out.sum().backward()
    return [out.detach(), *(x.grad for x in own if hasattr(x, "grad") and x.requires_grad)]


def same(f: Callable[..., Any], *args: Any, rounding: float = 0.0) -> None:
    expected = results(f, *args)
    for found, want in zip(results(mortice.compile(f), *args), expected, strict=True):
        assert found.dtype == want.dtype
        tolerance = {"bfloat16": 0.02, "float16": 2e-3, "float32": 1e-6}.get(want.dtype.name, 1e-15)
        tolerance = max(tolerance, rounding)
        close = mortice.isclose(found, want, rtol=tolerance, atol=0.0, equal_nan=True)
        assert bool(close.all()), (found, want)


@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPERATORS)
def test_a_constant_promotes_as_the_tensor_that_it_is(
    name: str, dtype: str, shape: tuple[int, ...]
) -> None:
    op = OPERATORS[name]
    constant = getattr(mortice, dtype)
    values = (0, 0.1, -float("inf"), -0.0) if constant.is_floating_point else (1,)
    if name == "sub" and dtype == "bool":
        return
    for value in values:
        for other in DTYPES[:-1]:
            y = mortice.ones(shape).to(getattr(mortice, other))
            if y.dtype.is_floating_point:
                y = (y * 0.7).detach().requires_grad_()
            same(lambda y: op(mortice.full((), value, dtype=constant), y), y)  # noqa: B023


def test_a_number_is_no_tensor() -> None:
    x = mortice.tensor(0.5, dtype=mortice.bfloat16)
    assert mortice.compile(lambda x, v: x + v)(x, 2.0).dtype == mortice.bfloat16
    made = mortice.compile(lambda x, v: x + mortice.full((), v, dtype=mortice.float64))
    for v in (0.1, 0.3):
        assert made(x, v).dtype == mortice.float64
        assert made(x, v).item() == 0.5 + v


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_number_in_a_narrow_tensor_is_rounded(dtype: str) -> None:
    y = mortice.full((3,), 0.7)
    for grad in (False, True):
        for v in (0.1, 0.3):
            same(
                lambda y, v: mortice.full((), v, dtype=getattr(mortice, dtype)) + y,
                y.clone().requires_grad_(grad),
                v,
            )


def test_a_loss_is_summed_from_zero_under_autocast() -> None:
    def total(x: Any, w: Any) -> Any:
        found = mortice.zeros(())
        with mortice.autocast("cpu", dtype=mortice.bfloat16):
            for _ in range(2):
                found = found + F.linear(x, w).mean()
        return found

    mortice.manual_seed(0)
    x, w = mortice.randn(4, 5), mortice.randn(3, 5)
    same(total, x, w.requires_grad_(), rounding=0.05)  # of products to 8 bits


def test_constants_have_the_precision_of_their_dtype() -> None:
    made = mortice.compile(lambda y: y + mortice.full((), 0.1))(
        mortice.zeros((), dtype=mortice.float64)
    )
    assert made.item() == mortice.tensor(0.1).item()
    made = mortice.compile(lambda y: y + mortice.full((), 1e39, dtype=mortice.float64).float())(
        mortice.zeros((), dtype=mortice.float64)
    )
    assert made.item() == float("inf")


@pytest.mark.parametrize("value", [1, 3.0])
def test_elements_are_written_from_numbers(value: float) -> None:
    def write(x: Any, i: Any, v: Any) -> Any:
        x = x.clone()
        x[i] = v
        return x

    x = mortice.arange(5).to(mortice.int64 if isinstance(value, int) else mortice.float64)
    i = mortice.tensor([0, 3])
    same(lambda x, i: write(x, i, value), x, i)
    same(write, x, i, value)


def test_what_the_dispatcher_runs_gets_tensors() -> None:
    x = mortice.randn(3, 3, dtype=mortice.float64)

    def full(v: Any) -> Any:
        return mortice.full((), v, dtype=mortice.float64)

    same(lambda x, v: mortice.digamma(full(v)) + x, x, 0.3)
    same(lambda x: mortice.digamma(full(2.0) * full(3.0)) + x, x)
    same(lambda x, v: full(v).cumsum(0) + x, x, 0.3)
    same(lambda x, v: x @ full(v).expand(3, 3), x, 0.3)
