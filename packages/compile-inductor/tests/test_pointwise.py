"""Fused elementwise kernels compared with eager."""

from __future__ import annotations

from typing import Any

import pytest
from inductor_graphs import check, graph

import mortice
import mortice.nn.functional
from mortice_inductor import compile_fx

UNARY = (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh atanh "
    "sqrt rsqrt reciprocal sigmoid erf erfc neg abs sign floor ceil trunc round relu isnan isinf "
    "isfinite signbit square frac sgn logical_not"
).split()
FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")


def values(dtype: str, *shape: int, seed: int = 0) -> Any:
    mortice.manual_seed(seed)
    if dtype == "bool":
        return mortice.rand(*shape) > 0.5
    made = mortice.rand(*shape, dtype=mortice.float64) * 1.6 - 0.8
    if dtype in INTEGERS:
        return (made * 50).abs().to(getattr(mortice, dtype))
    return made.to(getattr(mortice, dtype))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str, dtype: str) -> None:
    x = values(dtype, 5, 37)
    if name.startswith(("log", "sqrt", "rsqrt")) and name != "logical_not":
        x = x.abs() + 0.25
    # The 16-bit types are compared loosely: eager rounds where compiled code does not.
    check(lambda c, a: c(name, a), x)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", ["exp", "sqrt", "abs", "neg", "sign", "relu", "floor"])
def test_unary_of_integers(name: str, dtype: str) -> None:
    check(lambda c, a: c(name, a), values(dtype, 70))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "bool"])
@pytest.mark.parametrize(
    "name",
    ["add.Tensor", "mul.Tensor", "maximum", "minimum", "eq.Tensor", "lt.Tensor", "ge.Tensor",
     "div.Tensor", "logical_and", "logical_xor"],
)  # fmt: skip
def test_binary(name: str, dtype: str) -> None:
    x, y = values(dtype, 3, 50), values(dtype, 50, seed=1)
    if name == "div.Tensor":
        y = y + 1 if dtype != "bool" else ~(y & ~y)
    check(lambda c, a, b: c(name, a, b), x, y)


@pytest.mark.parametrize("pair", [("float32", "int64"), ("float16", "float32"), ("bool", "int8"),
                                  ("uint8", "int8"), ("bfloat16", "float16"),
                                  ("int32", "float16")])  # fmt: skip
def test_promotion(pair: tuple[str, str]) -> None:
    x, y = values(pair[0], 4, 33), values(pair[1], 4, 33, seed=2)
    check(lambda c, a, b: (c("add.Tensor", a, b), c("mul.Tensor", b, a)), x, y)
    check(lambda c, a, b: c("add.Tensor", a, b), x, y[0, 0])
    check(lambda c, a: (c("mul.Scalar", a, 2), c("mul.Scalar", a, 2.5)), x)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "bool"])
def test_bits(dtype: str) -> None:
    x, y = values(dtype, 65), values(dtype, 65, seed=1)
    check(
        lambda c, a, b: (
            c("bitwise_and.Tensor", a, b), c("bitwise_or.Tensor", a, b),
            c("bitwise_xor.Tensor", a, b), c("bitwise_not", a),
        ),
        x, y,
    )  # fmt: skip


def test_chain_is_one_kernel_over_broadcast_operands() -> None:
    x, y = values("float32", 40, 50), values("float32", 50, seed=1)

    def body(c: Any, a: Any, b: Any) -> Any:
        p = c("add.Tensor", c("mul.Tensor", a, b), a)
        q = c("log1p", c("exp", c("neg", c("abs", p))))
        return c("mul.Tensor", c("tanh", q), c("sigmoid", a))

    compiled = check(body, x, y)
    assert native_kernels(compiled) == 1


def native_kernels(compiled: Any) -> int:
    return sum(len(s[2]) for s in compiled.plan.steps if s[0] == "native")


def test_broadcast_in_the_middle_and_three_operands() -> None:
    x, y, z = values("float32", 4, 1, 6), values("float32", 5, 1), values("float32", 4, 5, 6)
    check(lambda c, a, b, d: c("where.self", c("gt.Tensor", a, b), d, c("mul.Tensor", a, b)),
          x, y, z)  # fmt: skip
    check(lambda c, a, b, d: c("addcmul", d, a, b, value=0.5), x, y, z)
    check(lambda c, a, b, d: c("addcdiv", d, a, c("add.Scalar", b, 2.0), value=-2), x, y, z)
    check(lambda c, a, b, d: c("lerp.Tensor", d, a, b), x, y, z)
    check(lambda c, a, b, d: c("lerp.Scalar", d, a, 0.7), x, y, z)


def test_strided_inputs() -> None:
    x, y = values("float32", 30, 20), values("float32", 20, 30, seed=1)
    check(lambda c, a, b: c("add.Tensor", a, b), x.t(), y)
    check(lambda c, a, b: c("mul.Tensor", a, b), x[::2, 1::3], y.t()[::2, 1::3])
    check(lambda c, a, b: c("mul.Tensor", a, b), x[:, :1].expand(30, 20), x)


def test_limits_and_rounding_modes() -> None:
    x = values("float32", 100) * 10
    check(lambda c, a: (c("clamp", a, -1.0, 2.5), c("clamp_min", a, 0), c("clamp_max", a, 1.5)), x)
    for mode in (None, "floor", "trunc"):
        check(lambda c, a: c("div.Tensor_mode", a, 0.7, rounding_mode=mode), x)  # noqa: B023
    check(lambda c, a: (c("remainder.Scalar", a, 0.7), c("fmod.Scalar", a, 0.7)), x)
    i = values("int64", 50)
    check(lambda c, a: (c("remainder.Scalar", a, 7), c("floor_divide.Scalar", a, -7)), i)


def test_powers() -> None:
    x = values("float32", 64).abs() + 0.1
    for e in (2, 3, 0.5, -0.5, -1, 1.7, 0):
        check(lambda c, a: c("pow.Tensor_Scalar", a, e), x)  # noqa: B023
    check(lambda c, a, b: c("pow.Tensor_Tensor", a, b), x, values("float32", 64))
    check(lambda c, a: c("pow.Tensor_Scalar", a, 2), values("int32", 64))


@pytest.mark.parametrize("exponent", [0, 0.5, -0.5, 1, 1.5, -1, 2, -2, 3])
@pytest.mark.parametrize("dtype", FLOATS)
def test_powers_of_special_numbers(dtype: str, exponent: float) -> None:
    inf = float("inf")
    x = mortice.tensor([inf, -inf, 0.0, -0.0, 1.5, -1.5, 4.0, float("nan")])
    x = x.to(getattr(mortice, dtype))
    found, expected = mortice.compile(lambda x: x**exponent)(x), x**exponent
    assert found.dtype is expected.dtype
    number = ~expected.isnan()
    assert mortice.equal(number, ~found.isnan()), (found, expected)
    assert mortice.allclose(found[number].double(), expected[number].double())
    assert mortice.equal(found.signbit()[number], expected.signbit()[number]), (found, expected)


@pytest.mark.parametrize("name", ["hardswish", "hardtanh", "hardsigmoid", "softshrink", "celu"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_slopes_at_special_numbers(name: str, dtype: str) -> None:
    f = getattr(mortice.nn.functional, name)
    numbers = [float("nan"), float("inf"), -float("inf"), 3.0, -3.0, 0.0, -0.0, 1.0, -1.0, 0.5]
    slopes: list[Any] = []
    for run in (f, mortice.compile(f)):
        x = mortice.tensor(numbers, dtype=getattr(mortice, dtype)).requires_grad_(True)
        run(x).backward(mortice.ones(len(numbers), dtype=x.dtype))
        slopes.append(x.grad)
    assert mortice.allclose(slopes[1], slopes[0], equal_nan=True), slopes


@pytest.mark.parametrize("dtype", ["int64", "uint8", "float32"])
def test_squares_and_cubes_are_products(dtype: str) -> None:
    x = values(dtype, 70)
    for exponent in (2, 3):
        compiled = mortice.compile(lambda x: x**exponent, backend="inductor")  # noqa: B023
        assert mortice.allclose(compiled(x).double(), (x**exponent).double())
        code = compiled.segments[0].module.meta["output_code"]()
        assert " mul " in code
        assert " pow " not in code


def test_special_values() -> None:
    inf, nan = float("inf"), float("nan")
    x = mortice.tensor([0.0, -0.0, inf, -inf, nan, 1.0, -1.0, 1e-42])
    y = mortice.tensor([nan, 0.0, inf, 1.0, nan, -0.0, inf, -1e-42])
    check(lambda c, a, b: (c("maximum", a, b), c("minimum", a, b), c("mul.Tensor", a, b),
                           c("relu", a), c("sub.Scalar", a, 0), c("div.Scalar", a, 2.0),
                           c("eq.Tensor", a, b), c("isnan", a)), x, y)  # fmt: skip
    check(lambda c, a: c("nan_to_num", a), x)


def test_conversions() -> None:
    x = values("float32", 50) * 100
    for dtype in (*FLOATS, *INTEGERS[:-1], "bool"):
        check(lambda c, a: c("_to_copy", a, dtype=getattr(mortice, dtype)), x)  # noqa: B023
    check(lambda c, a: c("masked_fill.Scalar", a, c("gt.Scalar", a, 0.5), -1.0), x)


def test_numbers_are_arguments_of_the_kernel() -> None:
    x = values("float32", 64)
    gm = graph(lambda c, a, s, n: c("add.Scalar", c("mul.Scalar", a, s), n), 3)
    compiled = compile_fx(gm, [x, 0.5, 2])
    for s, n in ((0.5, 2), (1.5, -3), (-2.25, 7)):
        assert mortice.allclose(compiled(x, s, n)[0], x * s + n)


def test_equal_results_are_tensors_of_their_own() -> None:
    x = values("float32", 8)
    gm = graph(lambda c, a: (c("add.Scalar", a, 1), c("add.Scalar", a, 1), c("clone", a), a), 1)
    one, two, copy, same = compile_fx(gm, [x])(x)
    assert same is x
    one += 1
    copy += 1
    assert mortice.equal(two, x + 1)
    assert mortice.equal(copy, x + 1)


def test_writes_to_placeholders() -> None:
    x, y = values("float32", 100), values("float32", 100, seed=1)

    def body(c: Any, a: Any, b: Any) -> Any:
        s = c("add.Tensor", a, b)
        c("copy_", a, s)
        return c("mul.Scalar", s, 2.0)

    gm = graph(body, 2)
    given = x.clone()
    compiled = compile_fx(gm, [given, y])
    (out,) = compiled(given, y)
    assert mortice.equal(given, x + y)
    assert mortice.equal(out, (x + y) * 2)
    assert native_kernels(compiled) == 1


def test_placeholders_that_are_exchanged() -> None:
    x, y = values("float32", 100), values("float32", 100, seed=1)

    def body(c: Any, a: Any, b: Any) -> Any:
        p, q = c("mul.Scalar", b, 2.0), c("add.Scalar", a, 1.0)
        c("copy_", a, p)
        c("copy_", b, q)
        return c("sub.Tensor", a, b)

    a, b = x.clone(), y.clone()
    (out,) = compile_fx(graph(body, 2), [a, b])(a, b)
    assert mortice.allclose(a, y * 2)
    assert mortice.allclose(b, x + 1)
    del out


def test_a_tensor_that_is_given_twice_and_written_to() -> None:
    x = values("float32", 64, 64)
    expected = x + x.t()

    def body(c: Any, a: Any, b: Any) -> Any:
        c("copy_", a, c("add.Tensor", a, c("permute", b, [1, 0])))
        return c("neg", b)

    for given in (x * 1, x.clone().view(64, 64)):  # without a storage yet, and with one
        compile_fx(graph(body, 2), [given, given])(given, given)
        assert mortice.equal(given, expected)


def test_empty_and_zero_dimensional() -> None:
    check(lambda c, a: c("exp", a), mortice.empty(0, 3))
    check(lambda c, a: c("exp", a), mortice.tensor(0.5))
    check(lambda c, a, b: c("add.Tensor", a, b), mortice.tensor(0.5), values("float32", 3))


def test_what_has_no_kernel_is_left_to_the_dispatcher() -> None:
    x = values("float32", 4, 6)
    check(lambda c, a: c("exp", c("flip", c("mul.Scalar", a, 2.0), [1])), x)
    check(lambda c, a: c("mul.Scalar", c("flip", a, [0]), 3.0), x)


def test_a_placeholder_that_gets_its_own_rows_in_another_order() -> None:
    x = values("float32", 3, 5)

    def body(c: Any, a: Any) -> Any:
        both = c("cat", [a, c("neg", a)], 0)
        c("copy_", a, c("slice.Tensor", both, 0, 1, 6, 2))
        return c("sum", a)

    given = x.clone()
    compile_fx(graph(body, 1), [given])(given)
    assert mortice.equal(given, mortice.stack([x[1], -x[0], -x[2]]))
