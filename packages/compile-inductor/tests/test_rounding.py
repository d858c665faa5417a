"""What is decided upon 16-bit values, and its gradient, is what eager decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from inductor_graphs import assert_same

import mortice
from mortice.nn import functional as F

Function = Callable[..., Any]
DTYPES = (mortice.bfloat16, mortice.float16)
AT = mortice.tensor([[0, 1, 0, 2, 1, 2, 0]])


def scaled(x: Any) -> Any:
    """Rounded twice in eager, not at all where compiled code need not."""
    return x * 1.1 * 1.7


def flat(x: Any) -> Any:
    """Many equal values in 16 bits, few in 32."""
    return x * 0.01 + 1


def choice(name: str) -> Function:
    return lambda x, y: getattr(scaled(x), name)(-1)


def step(name: str) -> Function:
    return lambda x, y: getattr(mortice, name)(scaled(x))


def comparison(name: str) -> Function:
    def compared(x: Any, y: Any) -> Any:
        whole = getattr(mortice, name)(scaled(x), scaled(x).amax(-1, keepdim=True))
        return whole, getattr(mortice, name)(flat(x), flat(y))

    return compared


def by(name: str) -> Function:
    return lambda x, y: getattr(mortice, name)(scaled(x), 0.7)


def conversion(x: Any, y: Any) -> Any:
    big = x * 1.1 * 20
    return big.int(), big.long(), big.abs().to(mortice.uint8), (x * 1e-5 * 1e-4).bool()


def limits(x: Any, y: Any) -> Any:
    big = x * 3e4 * 1.3
    return big.isfinite(), big.isinf(), (big - big).isnan(), scaled(x - y).signbit()


def positions(x: Any, y: Any) -> Any:
    v = flat(x)
    return v.argmax(-1), v.argmin(0), v.max(1), v.min(1), v.argmax()


def foreign(x: Any, y: Any) -> Any:
    v = flat(x)
    return v.topk(3, -1), v.sort(-1, stable=True), v.cummax(-1), v.median(-1)


def chosen(x: Any, y: Any) -> Any:
    v = scaled(x)
    return mortice.where(v == v.amax(-1, keepdim=True), 1.0, 0.0), v.masked_fill(v < v.mean(), 0)


def scattered(how: str) -> Function:
    def scatter(x: Any, y: Any) -> Any:
        start = mortice.zeros(5, 3, dtype=x.dtype)
        return start.scatter_reduce(1, AT.expand(5, 7), scaled(x), how, include_self=False)

    return scatter


def constants(x: Any, y: Any) -> Any:
    tenth = mortice.tensor(0.1, dtype=x.dtype).expand(7)
    whole = mortice.full((7,), 0.1, dtype=x.dtype)
    return whole == tenth, whole.float() == tenth.float(), whole * 10 == 1


DECIDED: dict[str, Function] = {
    **{name: choice(name) for name in ("amax", "amin", "max", "min")},
    **{name: step(name) for name in ("floor", "ceil", "round", "trunc", "sign")},
    **{name: comparison(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{name: by(name) for name in ("fmod", "remainder")},
    "all of it": lambda x, y: (scaled(x).max(), scaled(x).min()),
    "conversion": conversion,
    "limits": limits,
    "positions": positions,
    "foreign": foreign,
    "chosen": chosen,
    "scattered amax": scattered("amax"),
    "scattered amin": scattered("amin"),
    "constants": constants,
    "edge of domain": lambda x, y: mortice.acos(x.sign() * 1.001),
    "edge of angle": lambda x, y: mortice.atan2((x * 1.001 - x) * -1e-6, -x.abs()) > 0,
    "power": lambda x, y: (-x.abs()) ** (y.sign() * 1.001 + 2).reshape(x.shape),
}
#: Continuous themselves, but their gradient chooses: results as near as two orders of rounding.
NEAR: dict[str, Function] = {
    "norm of order inf": lambda x, y: mortice.linalg.vector_norm(scaled(x), float("inf"), -1),
    "norm of order -inf": lambda x, y: mortice.linalg.vector_norm(scaled(x), -float("inf"), -1),
    "divided by the greatest": lambda x, y: (x * 0.7) / (x * 0.7).abs().amax(),
    "softmax": lambda x, y: (scaled(x) - scaled(x).amax(-1, keepdim=True)).exp(),
    "clamp": lambda x, y: scaled(x).clamp(-0.5, 0.75),
    "hardtanh": lambda x, y: F.hardtanh(scaled(x), -0.5, 0.75),
    "relu6": lambda x, y: F.relu6(scaled(x)),
    "hardshrink": lambda x, y: F.hardshrink(scaled(x), 0.5),
    "greater": lambda x, y: mortice.maximum(flat(x), flat(y)),
    "product, relu": lambda x, y: F.relu(F.linear(x, y) * 1.1).amax(-1),
    "pooling": lambda x, y: F.max_pool2d(flat(x)[None, None], 2),
}


def tensors(found: Any) -> list[Any]:
    if isinstance(found, tuple):
        return [t for part in found for t in tensors(part)]
    return [found]


def ran(fn: Function, *inputs: Any) -> tuple[list[Any], list[Any]]:
    """Results and gradients."""
    given = [x.clone().requires_grad_() for x in inputs]
    out = tensors(fn(*given))
    sums = [t.float().nan_to_num().sum() for t in out if t.requires_grad]
    if sums:
        sum(sums[1:], sums[0]).backward()
    return [t.detach() for t in out], [x.grad for x in given if x.grad is not None]


def operands(dtype: Any) -> tuple[Any, Any]:
    mortice.manual_seed(0)
    return tuple((mortice.randn(5, 7) * 3).to(dtype) for _ in range(2))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", DECIDED)
def test_decides_as_eager(name: str, dtype: Any) -> None:
    expected, slopes = ran(DECIDED[name], *operands(dtype))
    found, grads = ran(mortice.compile(DECIDED[name]), *operands(dtype))
    for f, e in zip(found, expected, strict=True):
        assert f.dtype is e.dtype
        assert mortice.equal(f.double().nan_to_num(1e9), e.double().nan_to_num(1e9)), (f, e)
    for f, e in zip(grads, slopes, strict=True):
        assert_same(f, e)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NEAR)
def test_slopes_as_eager(name: str, dtype: Any) -> None:
    expected, slopes = ran(NEAR[name], *operands(dtype))
    found, grads = ran(mortice.compile(NEAR[name]), *operands(dtype))
    for f, e in zip([*found, *grads], [*expected, *slopes], strict=True):
        assert_same(f, e)


def test_the_greatest_of_three() -> None:
    def fn(x: Any) -> Any:
        return (x * 1.1).amax(-1)

    x = mortice.tensor([[1.0, 2.0, 3.0]], dtype=mortice.bfloat16)
    _, (found,) = ran(mortice.compile(fn), x)
    assert mortice.equal(found, mortice.tensor([[0, 0, 1.1]], dtype=mortice.bfloat16))


def test_the_greatest_under_autocast() -> None:
    def fn(x: Any, y: Any) -> Any:
        with mortice.autocast("cpu", dtype=mortice.bfloat16):
            return F.relu(F.linear(x, y)).amax(-1)

    x, y = operands(mortice.float32)
    (expected,), slopes = ran(fn, x, y)
    (found,), grads = ran(mortice.compile(fn), x, y)
    assert mortice.equal(found, expected)
    for f, e in zip(grads, slopes, strict=True):
        # Gradients of bfloat16 products, though they are float32.
        assert_same(f.bfloat16(), e.bfloat16())


def test_what_decides_nothing_is_rounded_once() -> None:
    # 1 + 2**-9 is 1 in bfloat16: eager loses it, compiled code does not.
    x = mortice.ones(8, dtype=mortice.bfloat16)

    def fn(x: Any) -> Any:
        return (x + 2.0**-9 - 1) * 2.0**9

    assert fn(x).sum().item() == 0.0
    assert mortice.compile(fn)(x).sum().item() == 8.0
    assert mortice.compile(lambda x: fn(x).floor())(x).sum().item() == 0.0


@pytest.mark.parametrize("dtype", [mortice.bfloat16, mortice.float16])
@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge", "remainder", "fmod"])
def test_numbers_are_rounded_before_they_decide(dtype, name):
    """What was made from 0.1 is equal to 0.1, given as a number or as a wider 0-d tensor."""
    x = mortice.tensor([0.1, 0.3, 0.7, 3.3], dtype=dtype)
    function = getattr(mortice, name)
    for number in (0.1, 0.3, 0.7, 3.3):
        expected = function(x, mortice.full((4,), number, dtype=dtype)).tolist()
        assert function(x, number).tolist() == expected
        assert function(x, mortice.tensor(number)).tolist() == expected
        for other in (number, mortice.tensor(number)):
            compiled = mortice.compile(lambda x, y: function(x * 1, y), backend="inductor")
            assert [compiled(x, other).tolist() for _ in range(3)] == [expected] * 3
            fixed = mortice.compile(lambda x, y=other: function(x * 1, y), backend="inductor")
            assert fixed(x).tolist() == expected


#: With operands that are rounded to 16 bits first: x, y and a number.
ROUNDED: dict[str, Function] = {
    "add": lambda x, y, n: x + n,
    "sub": lambda x, y, n: x - n,
    "rsub": lambda x, y, n: n - x,
    "scaled add": lambda x, y, n: mortice.add(x, y, alpha=n),
    "scaled sub": lambda x, y, n: mortice.sub(x, y, alpha=n),
    "scaled rsub": lambda x, y, n: mortice.rsub(x, n, alpha=n),
    "add_": lambda x, y, n: x.clone().add_(n),
    "scaled add_": lambda x, y, n: x.clone().add_(y, alpha=n),
    "pow": lambda x, y, n: x.abs() ** n,
    "rpow": lambda x, y, n: n**x,
    "xlogy": lambda x, y, n: mortice.xlogy(x, n),
    "xlogy of a number": lambda x, y, n: mortice.xlogy(n, x.abs()),
}
#: What multiplies or divides, and the factors of others, are not.
WIDE: dict[str, Function] = {
    "mul": lambda x, y, n: x * n,
    "div": lambda x, y, n: x / n,
    "floor": lambda x, y, n: x // n,
    "trunc": lambda x, y, n: mortice.div(x, n, rounding_mode="trunc"),
    "addcmul": lambda x, y, n: mortice.addcmul(x, y, y, value=n),
    "addcdiv": lambda x, y, n: mortice.addcdiv(x, y, x, value=n),
    "lerp": lambda x, y, n: mortice.lerp(x, y, n),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*ROUNDED, *WIDE])
def test_numbers_beside_16_bits(name: str, dtype: Any) -> None:
    fn = {**ROUNDED, **WIDE}[name]
    x, y = operands(dtype)
    as_wide = 0
    for number in (0.1, 0.7, 3.3, 1e-3):
        expected = fn(x, y, number)
        near = mortice.tensor(number, dtype=dtype).item()
        wide = fn(x.float(), y.float(), number).to(dtype)
        rounded = fn(x.float(), y.float(), near).to(dtype)
        assert mortice.equal(nan_is(7, expected), nan_is(7, rounded if name in ROUNDED else wide))
        as_wide += mortice.equal(nan_is(7, rounded), nan_is(7, wide))
        fixed = mortice.compile(lambda x, y, n=number: fn(x, y, n), backend="inductor")
        for found in (fixed(x, y), mortice.compile(fn, backend="inductor")(x, y, number)):
            assert found.dtype is dtype
            assert (nan_is(7, found) != nan_is(7, expected)).sum() <= 1  # of sums with a product
    assert as_wide < 4  # it makes a difference


def nan_is(number: float, x: Any) -> Any:
    return x.double().nan_to_num(number)
