"""What is refused: arguments of ``compile_fx``, inputs of its result, users' lowerings; and which
operator validation names.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from inductor_graphs import assert_same, graph

import mortice
from mortice.errors import ArgumentError, BackendFailed, CompileError, InvalidState, InvalidValue
from mortice.fx import make_fx
from mortice_inductor import compile_fx, config, register_lowering
from mortice_inductor.lowering import user
from mortice_inductor.runtime.rounding import is_rounding

X, Y = mortice.rand(8, 4) + 1, mortice.randn(4)
TANH = mortice.ops.aten.tanh.default


def body(x: Any, y: Any) -> Any:
    return (x + y).tanh() * 2


@pytest.fixture
def no_lowerings_stay() -> Generator[None]:
    yield
    user.USER.clear()


# -- inputs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["real", "symbolic"])
@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ((X,), r"takes 2 inputs \(x, y\), and 1 were given"),
        ((X, Y, Y), r"takes 2 inputs \(x, y\), and 3 were given"),
        ((X, Y.numpy()), r"y is numpy\.ndarray; expected a tensor\. mortice\.from_numpy"),
        ((X, 2.0), r"y is float; expected a tensor"),
        ((None, Y), r"x is NoneType; expected a tensor"),
    ],
)
@pytest.mark.parametrize("called", [False, True])
def test_inputs_of_another_number_or_kind(
    mode: str, inputs: tuple[Any, ...], said: str, called: bool
) -> None:
    run = compile_fx(make_fx(body, None, mode)(X, Y), [X, Y])
    if called:
        run(X, Y)
    with pytest.raises(ArgumentError, match=said):
        run(*inputs)
    (out,) = run(X[:3], Y)  # another layout is compiled, and works all the same
    assert_same(out, body(X[:3], Y))


def test_numbers_are_not_tensors() -> None:
    run = compile_fx(graph(lambda c, a, n: c("mul.Scalar", a, n), 2), [X, 2.0])
    with pytest.raises(ArgumentError, match="x1 is mortice.*Tensor; expected a number"):
        run(X, Y)
    assert_same(run(X, True)[0], X)


# -- arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"config_patches": [1]}, r"config_patches is \[1\]; expected a dict of options"),
        ({"decompositions": [TANH]}, r"expected a dict \{overload: function\}"),
        ({"inner_compile": 5}, "inner_compile is 5; expected a function"),
    ],
)
def test_arguments_of_another_type(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        compile_fx(make_fx(body)(X, Y), [X, Y], **given)


def test_an_inner_compiler_that_gives_nothing() -> None:
    with pytest.raises(BackendFailed, match="returned NoneType, and a callable is expected"):
        compile_fx(make_fx(body)(X, Y), [X, Y], lambda *_: None)  # pyright: ignore


def test_a_table_of_decompositions_that_is_none() -> None:
    gm = make_fx(lambda x: x * 2)(X)  # whether or not the graph has such operators
    with pytest.raises(InvalidValue, match=r"str 'tanh'\. Did you mean mortice\.ops\.aten\.tanh\."):
        compile_fx(gm, [X], decompositions={"tanh": mortice.cos})


@pytest.mark.parametrize(
    ("fn", "error", "said"),
    [
        (
            lambda x: x.sum(),
            InvalidValue,
            r"gives float32\[\], and the operator gives float32\[8, 4\]",
        ),
        (
            lambda x: x.double(),
            InvalidValue,
            r"gives float64\[8, 4\], and the operator gives float32",
        ),
        (lambda x: x.tanh(), InvalidState, r"calls aten\.tanh\.default itself"),
    ],
)
def test_decompositions_that_do_not_fit(fn: Any, error: type[Exception], said: str) -> None:
    where = r"decomposition of aten\.tanh\.default, .*test_refusals\.py:\d+\), "
    with pytest.raises(error, match=where + said):
        compile_fx(make_fx(body)(X, Y), [X, Y], decompositions={TANH: fn})


# -- users' lowerings ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fn", "said", "cause"),
    [
        (lambda t, a: 1 / 0, "raised ZeroDivisionError: division by zero", ZeroDivisionError),
        (lambda t, a: t.fn("tanhh", a), "raised UnknownKernel: .*Did you mean 'tanh'", Exception),
        (lambda t, a: None, r"gave NoneType; expected f32\[8, 4\]", None),
        (lambda t, a: (a, a), r"gave f32\[8, 4\], f32\[8, 4\]; expected f32\[8, 4\]\.", None),
        (lambda t, a: t.cast(a, "f64"), r"gave f64\[8, 4\]; expected f32\[8, 4\]", None),
        (lambda t, a: t.reduce("sum", (0,), a), r"gave f32\[4\]; expected f32\[8, 4\]", None),
    ],
)
@pytest.mark.usefixtures("no_lowerings_stay")
def test_a_lowering_that_fails_is_named(fn: Any, said: str, cause: Any) -> None:
    register_lowering(TANH)(fn)
    where = r"the lowering of aten\.tanh\.default, .*test_refusals\.py:\d+\), "
    with pytest.raises(CompileError, match=where + said) as caught:
        compile_fx(make_fx(body)(X, Y), [X, Y])
    assert isinstance(caught.value.__cause__, cause or type(None))


@pytest.mark.usefixtures("no_lowerings_stay")
def test_a_lowering_of_nothing_is_named_where_no_shape_is_known() -> None:
    register_lowering(TANH)(lambda t, a: None)
    with pytest.raises(CompileError, match=r"gave NoneType; expected a value of the trace"):
        compile_fx(graph(lambda c, a: c("tanh", a), 1), [X])


# -- validation ----------------------------------------------------------------------------------

VALIDATED: dict[str, Any] = {
    "digamma, one of [add, digamma, mul]": lambda x: (x + 1).digamma() * 3,
    "digamma, one of [add, digamma, mul, _softmax]": lambda x: (
        ((x + 1).digamma() * 3).softmax(-1) @ x.T
    ),
    "digamma, one of [digamma, sum_1]": lambda x: (x @ x.T).digamma().sum(0),
}


@pytest.mark.parametrize("named", VALIDATED)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.usefixtures("no_lowerings_stay")
def test_validation_names_the_operator_of_a_fused_kernel(named: str, dynamic: bool) -> None:
    register_lowering(mortice.ops.aten.digamma.default)(lambda t, a: t.fn("mul", a, a))
    run = mortice.compile(VALIDATED[named], options={"validate": True}, dynamic=dynamic)
    with pytest.raises(CompileError) as caught:
        run(X)
    assert f"operator aten.digamma.default (node {named} in kernel" in str(caught.value)
    assert "make_fallback(mortice.ops.aten.digamma.default)" in str(caught.value)


def test_validation_compares_values_of_the_calls_own_sizes() -> None:
    run = mortice.compile(lambda x: x.mean(), options={"validate": True})
    for n in (130, 4, 55, 4):
        x = mortice.randn(1).expand(n).detach().requires_grad_(True)
        run(x).backward()
        assert mortice.allclose(x.grad, mortice.full((n,), 1 / n))


@pytest.mark.usefixtures("no_lowerings_stay")
def test_validation_names_the_fusion_where_no_operator_differs_alone() -> None:
    @register_lowering(mortice.ops.aten.exp.default)
    def only_wrong_when_fused(t: Any, a: Any) -> Any:
        return t.fn("exp" if a.op == "input" else "cos", a)

    with config.patch(validate=True):
        run = compile_fx(make_fx(lambda x: (x + 1).exp() * 3)(X), [X])
    with pytest.raises(CompileError, match=r"the fusion of \[add, exp, mul\] in kernel .* alone"):
        run(X)


@pytest.mark.parametrize(("dtype", "short"), [(mortice.bfloat16, "bf16"), (mortice.float16, "f16")])
@pytest.mark.usefixtures("no_lowerings_stay")
def test_validation_takes_no_fault_for_rounding(dtype: Any, short: str) -> None:
    def wrong(t: Any, a: Any) -> Any:
        return t.cast(t.fn("cos", t.cast(a, "f32")), short)

    register_lowering(mortice.ops.aten.exp.default)(wrong)
    run = mortice.compile(lambda x: ((x + 1).exp() * 3).log(), options={"validate": True})
    with pytest.raises(CompileError, match=r"operator aten\.exp\.default \(node exp"):
        run(X.to(dtype))


def _drawn_and_rounded(x: Any) -> Any:
    drawn = mortice.rand_like(x)
    return drawn, x.clone().uniform_(), ((drawn + x) * 100).cos()


@pytest.mark.parametrize(
    ("f", "shape"),
    [
        (lambda x: (x.sigmoid().sum(1) * 3).cos(), (5, 99)),
        (_drawn_and_rounded, (64,)),
    ],
)
@pytest.mark.parametrize("dtype", [mortice.bfloat16, mortice.float16])
def test_validation_allows_for_rounding_that_fusion_leaves_out(
    f: Any, shape: tuple[int, ...], dtype: Any
) -> None:
    run = mortice.compile(f, options={"validate": True})
    for seed in range(3):
        mortice.manual_seed(seed)
        run(mortice.randn(*shape).to(dtype))


def test_what_counts_as_rounding() -> None:
    wide = mortice.tensor([1.0, 2.0, float("inf"), float("nan")])
    eager = mortice.tensor([1.1, 2.0, float("inf"), float("nan")])

    def counts(*values: float) -> bool:
        return is_rounding(mortice.tensor(values), eager, wide, 0.01)

    inf, nan = float("inf"), float("nan")
    assert counts(1.1, 2.2, inf, nan)
    assert not counts(1.3, 2.0, inf, nan)
    assert not counts(1.0, 2.0, 5.0, nan)
    assert not counts(1.0, 2.0, -inf, nan)
    assert not counts(1.0, 2.0, inf, 0.0)
    flags = [mortice.tensor(x) for x in ([True, False], [False, False], [True, False])]
    assert is_rounding(*flags, 0.01)
    assert not is_rounding(mortice.tensor([True, True]), *flags[1:], 0.01)
