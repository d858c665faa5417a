"""Operators from outside core."""

from __future__ import annotations

import gc
from typing import Literal

import pytest

import mortice
from mortice import Tensor
from mortice.library import Library, custom_op, infer_schema, missing, scoped_library


def test_definitions_and_kernels_go_with_their_library() -> None:
    library = Library("lt_life", "DEF")
    assert library.define("twice(Tensor x) -> Tensor") == "twice"
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
    handle = mortice.ops.lt_life.twice.default
    assert handle(mortice.ones(2)).tolist() == [2.0, 2.0]
    del library
    gc.collect()
    with pytest.raises(RuntimeError, match=r"Library made at .*test_library.py:\d+ .*destroyed"):
        handle(mortice.ones(2))
    with pytest.raises(
        AttributeError, match=r"test_library.py:\d+ defined it and has been destroyed"
    ):
        mortice.ops.lt_life.twice
    with scoped_library("lt_life", "DEF") as again:
        again.define("twice(Tensor x) -> Tensor")


def test_kernels_are_a_stack() -> None:
    with scoped_library("lt_stack", "DEF") as base:
        base.define("f(Tensor x) -> Tensor")
        base.impl("f", lambda x: x + 1, "CPU")
        x = mortice.zeros(1)
        with (
            pytest.warns(UserWarning, match="Overriding a previously registered kernel")
            if _first()
            else _quiet()
        ):
            with scoped_library("lt_stack", "IMPL") as later:
                later.impl("f", lambda x: x + 10, "CPU")
                assert mortice.ops.lt_stack.f(x).item() == 10.0
        assert mortice.ops.lt_stack.f(x).item() == 1.0


def _first() -> bool:
    from mortice._library import registration

    return not registration._warned_override[0]


def _quiet():
    import contextlib

    return contextlib.nullcontext()


@pytest.mark.parametrize("order", [("implicit", "explicit"), ("explicit", "implicit")])
def test_the_explicit_composite_wins_whatever_the_order(order: tuple[str, str]) -> None:
    kernels = {
        "implicit": ("CompositeImplicitAutograd", lambda x: x + 1),
        "explicit": ("CompositeExplicitAutograd", lambda x: x + 2),
    }
    with scoped_library("lt_order", "DEF") as library:
        library.define("f(Tensor x) -> Tensor")
        for name in order:
            key, kernel = kernels[name]
            library.impl("f", kernel, key)
        assert mortice.ops.lt_order.f(mortice.zeros(1)).item() == 2.0


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Library("x", "FOO"), "Unsupported kind: FOO"),
        (lambda: Library("prim", "DEF"), "prim is a reserved namespace"),
        (lambda: Library("aten", "DEF"), "Only a single Library"),
        (lambda: Library("x", "IMPL", "CUP"), "could not parse dispatch key"),
        (lambda: Library("x", "IMPL").define("f(Tensor x) -> Tensor"), "Cannot define an operator"),
        (
            lambda: Library("x", "FRAGMENT").define("y::f(Tensor x) -> Tensor"),
            "does not match namespace",
        ),
        (lambda: Library("x", "FRAGMENT").impl("f", 3), "required to be a callable"),
        (lambda: custom_op("a.b", mutates_args=())(lambda x: x), "Did you mean 'a::b'"),
    ],
)
def test_what_is_refused_says_why(make: object, complaint: str) -> None:
    with pytest.raises((RuntimeError, ValueError, TypeError), match=complaint):
        make()  # type: ignore[operator]


def test_custom_op_with_fake_and_gradient() -> None:
    @custom_op("lt_custom::scale", mutates_args=())
    def scale(x: Tensor, factor: float = 2.0) -> Tensor:
        return x.clone() * factor

    @scale.register_fake
    def _(x, factor=2.0):
        return mortice.empty_like(x)

    def setup(ctx, inputs, output):
        ctx.factor = inputs[1]

    scale.register_autograd(lambda ctx, grad: (grad * ctx.factor, None), setup_context=setup)
    x = mortice.ones(3, requires_grad=True)
    scale(x, 5.0).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [5.0] * 3
    assert scale(mortice.empty(2, device="meta")).shape == (2,)
    assert "lt_custom::scale" not in missing("fake")


@pytest.mark.parametrize(
    ("returned", "found"), [(1, "one Tensor"), (3, "returned 3"), (None, "None")]
)
def test_a_wrong_number_of_outputs_is_an_error_that_counts(returned: object, found: str) -> None:
    with scoped_library("lt_count", "DEF") as library:
        library.define("two(Tensor x) -> (Tensor, Tensor)")
        results = {1: lambda x: x + 1, 3: lambda x: (x + 1, x + 2, x + 3), None: lambda x: None}
        library.impl("two", results[returned], "CPU")  # type: ignore[index]
        with pytest.raises(RuntimeError, match=f"lt_count::two: expected 2 outputs.*{found}"):
            mortice.ops.lt_count.two(mortice.ones(1))


def test_outputs_that_alias_inputs_are_refused() -> None:
    @custom_op("lt_alias::same", mutates_args=())
    def same(x: Tensor) -> Tensor:
        return x

    with pytest.raises(RuntimeError, match="must not also be an input"):
        same(mortice.ones(2))


def test_literals_are_checked_strings() -> None:
    @custom_op("lt_literal::reduce", mutates_args=())
    def reduce(x: Tensor, how: Literal["mean", "sum"] = "mean") -> Tensor:
        return x.mean() if how == "mean" else x.sum()

    assert reduce(mortice.ones(4), "sum").item() == 4.0
    with pytest.raises(ValueError, match="must be one of .*'mean', 'sum'.*Did you mean 'mean'"):
        reduce(mortice.ones(4), "maen")


def test_optional_mutable_arguments_may_be_none() -> None:
    @custom_op("lt_opt::inc", mutates_args=("x", "y"))
    def inc(x: Tensor, y: Tensor | None) -> None:
        x.add_(1)

    x = mortice.zeros(2)
    inc(x, None)
    assert x.tolist() == [1.0, 1.0] and x._version > 0


def test_a_fake_or_setup_that_does_not_fit_is_refused_at_registration() -> None:
    @custom_op("lt_fit::f", mutates_args=())
    def f(x: Tensor) -> Tensor:
        return x.clone()

    with pytest.raises(RuntimeError, match="does not fit the operator's schema"):
        f.register_fake(lambda a, b, c: a)
    with pytest.raises(RuntimeError, match="called with the keywords ctx, inputs, output"):
        f.register_autograd(lambda ctx, g: g, setup_context=lambda c, i, o: None)


def test_schemas_are_inferred_from_annotations() -> None:
    def f(x: Tensor, n: int, s: str = "a", *, y: Tensor | None = None) -> tuple[Tensor, int]:
        raise NotImplementedError

    assert infer_schema(f, mutates_args=()) == (
        "(Tensor x, SymInt n, str s='a', *, Tensor? y=None) -> (Tensor, SymInt)"
    )

    def bare(x) -> Tensor:
        raise NotImplementedError

    with pytest.raises(ValueError, match="Parameter x must have a type annotation"):
        infer_schema(bare, mutates_args=())


def test_an_operator_may_be_declared_not_differentiable() -> None:
    @custom_op("lt_nograd::f", mutates_args=())
    def f(x: Tensor) -> Tensor:
        return x.clone()

    f.register_autograd(None)
    assert not f(mortice.ones(2, requires_grad=True)).requires_grad


def test_a_misspelt_operator_of_a_library_is_recognised() -> None:
    library = mortice.library.Library("misspelt", "DEF")
    library.define("stretch(Tensor x) -> Tensor")
    with pytest.raises(AttributeError, match="Did you mean 'stretch'"):
        _ = mortice.ops.misspelt.strech


def test_a_kernel_before_its_definition() -> None:
    with scoped_library("lt_early", "FRAGMENT") as library:
        library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
        assert missing("definition", "lt_early") == ["lt_early::twice"]
        library.define("twice(Tensor x) -> Tensor")
        assert missing("definition", "lt_early") == []
        assert mortice.ops.lt_early.twice(mortice.ones(1)).item() == 2.0


def test_a_kernel_without_a_definition_is_told() -> None:
    with scoped_library("lt_never", "FRAGMENT") as library:
        library.define("scale(Tensor x) -> Tensor")
        library.impl("scala", lambda x: x, "CPU")
        told = r"registered at .*test_library.py:\d+, but nothing defines it.*Did you mean 'scale'"
        with pytest.raises(AttributeError, match=told):
            mortice.ops.lt_never.scala
        with pytest.raises(RuntimeError, match=told):
            mortice.library.register_fake("lt_never::scala", lambda x: x)
    assert missing("definition", "lt_never") == []


def test_a_kernel_for_an_unknown_operator_of_core() -> None:
    with scoped_library("aten", "IMPL") as library:
        with pytest.warns(UserWarning, match="no operator aten::siin.*'sin'"):
            library.impl("siin", lambda x: x, "CPU")
        assert "aten::siin" in missing("definition")


@pytest.mark.filterwarnings("ignore:vmap. aten")
def test_vmap_is_a_loop_over_samples() -> None:
    x = mortice.arange(6.0).reshape(2, 3).requires_grad_()
    w = mortice.ones(3)
    assert mortice.vmap(mortice.dot, (0, None))(x, w).tolist() == [3.0, 12.0]
    assert mortice.vmap(lambda a: a * 2, in_dims=1, out_dims=1)(x).tolist() == (x * 2).tolist()
    assert mortice.vmap(lambda a: (a.sum(), a), chunk_size=1)(x)[1].tolist() == x.tolist()
    nested = mortice.vmap(mortice.vmap(lambda a, b: a * b, (0, None)), (None, 0))
    assert nested(w, mortice.tensor([1.0, 2.0])).shape == (2, 3)
    closed = mortice.vmap(lambda a: mortice.vmap(lambda b: a * b)(w))
    assert closed(mortice.tensor([1.0, 2.0])).tolist() == [[1.0] * 3, [2.0] * 3]
    mortice.vmap(lambda a: a.square().sum())(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == (2 * x).tolist()


@pytest.mark.filterwarnings("ignore:vmap. aten")
def test_vmap_says_what_is_wrong() -> None:
    x = mortice.ones(2, 3)
    with pytest.raises(ValueError, match="in_dims has 2 entries"):
        mortice.vmap(lambda a: a, (0, 0))(x)
    with pytest.raises(ValueError, match=r"batches of \[2, 3\] meet"):
        mortice.vmap(lambda a, b: a, (0, 1))(x, x)
    with pytest.raises(ValueError, match="must only return Tensors"):
        mortice.vmap(lambda a: 3)(x)
    with pytest.raises(ValueError, match="different numbers"):
        mortice.vmap(lambda a: a * float(a[0]))(mortice.tensor([[1.0], [2.0]]))


def test_a_batching_rule() -> None:
    @custom_op("lt_vmap::scale", mutates_args=())
    def scale(x: Tensor, factor: float) -> Tensor:
        return x * factor

    seen = []

    @scale.register_vmap
    def _(info, in_dims, x, factor):
        seen.append((info.batch_size, info.randomness, in_dims))
        return scale(x, factor), in_dims[0]

    x = mortice.ones(4, 2)
    assert mortice.vmap(lambda a: scale(a, 3.0), 1)(x).tolist() == [[3.0] * 4] * 2
    assert seen == [(2, "error", (1, None))]


def test_tensors_as_keywords_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="kwarg-only Tensor args"):

        @custom_op("lt_keyword::f", mutates_args=())
        def f(x: Tensor, *, y: Tensor) -> Tensor:
            return x + y


def test_schemas_as_pytorch_writes_them() -> None:
    with scoped_library("lt_spaces", "FRAGMENT") as library:
        library.define("f(Tensor x, Tensor (a!) y, Tensor(b!)? z) -> ()")
        assert mortice.ops.lt_spaces.f.default._schema.mutated == (1, 2)


def test_a_kernel_goes_on_to_the_next() -> None:
    seen = []
    with scoped_library("lt_next", "DEF") as library:
        library.define("f(Tensor x) -> Tensor")
        library.impl("f", lambda x: x * 2, "CPU")

        def above(keys, x):
            seen.append("Autograd" in str(keys))
            below = keys & mortice.library.after_autograd_keyset
            return mortice.ops.lt_next.f.default.redispatch(below, x) + 1

        library.impl("f", above, "Autograd", with_keyset=True)
        x = mortice.ones(1, requires_grad=True)
        assert mortice.ops.lt_next.f(x).item() == 3.0 and seen == [True]
        with pytest.raises(RuntimeError, match="missing required argument"):
            mortice.ops.lt_next.f.default.redispatch(mortice.library.after_autograd_keyset)


def test_python_kernels_of_an_overload() -> None:
    with scoped_library("lt_py", "DEF") as library:
        library.define("f(Tensor x) -> Tensor")
        op = mortice.ops.lt_py.f.default

        @op.py_impl("CPU")
        def _(x):
            return x + 1

        assert op(mortice.ones(1)).item() == 2.0
        with pytest.raises(RuntimeError, match="Trying to override a python impl"):
            op.py_impl("CPU")(lambda x: x)
        with pytest.raises(ValueError, match="give the class"):
            op.py_impl("Python")

        class Mode(mortice.utils.dispatch.MorticeDispatchMode):
            pass

        @op.py_impl(Mode)
        def _(mode, func, types, args, kwargs):
            return func(*args) * 10

        x = mortice.ones(1)
        with Mode():
            found = op(x)
        assert found.item() == 20.0
