"""Operators tagged inplace or out; handles of kernels; what else custom operators declare."""

from __future__ import annotations

import collections.abc
from collections.abc import Iterator
from typing import Any

import pytest

import mortice
from mortice import Tensor
from mortice.library import Library, Tag, custom_op, get_kernel, infer_schema, scoped_library


@custom_op("tagged::add_into", mutates_args={"x"}, tags=Tag.inplace)
def add_into(x: Tensor, y: Tensor) -> Tensor:
    x.add_(y)
    return x


@custom_op("tagged::both", mutates_args={"total", "product"}, tags=Tag.out)
def both(x: Tensor, y: Tensor, *, total: Tensor, product: Tensor) -> tuple[Tensor, Tensor]:
    total.copy_(x + y)
    product.copy_(x * y)
    return total, product


def test_the_schema_follows_from_the_tag() -> None:
    assert str(add_into._opoverload._schema) == (
        "tagged::add_into(Tensor(a0!) x, Tensor y) -> Tensor(a0!)"
    )
    schema = both._opoverload._schema
    assert [r.alias_info.is_write for r in schema.returns] == [True, True]
    assert [r.alias_info for r in schema.returns] == [a.alias_info for a in schema.arguments[2:]]
    assert schema.is_mutable

    def declared(x: Tensor) -> Tensor:
        return x

    text = infer_schema(declared, mutates_args={"x"}, tags=Tag.inplace)
    assert text == "(Tensor(a0!) x) -> Tensor(a0!)"


def test_what_is_written_to_is_what_is_returned() -> None:
    x, y = mortice.ones(3), mortice.ones(3)
    assert add_into(x, y) is x
    assert x.tolist() == [2, 2, 2]
    total, product = mortice.empty(3), mortice.empty(3)
    found = both(x, y, total=total, product=product)
    assert found[0] is total
    assert found[1] is product
    assert total.tolist() == [3, 3, 3]
    assert product.tolist() == [2, 2, 2]


def test_the_fake_follows_from_the_tag() -> None:
    with mortice.fake.FakeTensorMode():
        x = mortice.ones(3)
        assert add_into(x, x) is x
    with pytest.warns(UserWarning, match=r"Tag\.inplace"):
        add_into.register_fake(lambda x, y: x)


def test_gradients_of_tagged_operators() -> None:
    x = mortice.ones(3, requires_grad=True)
    y = x * 2
    add_into(y, mortice.ones(3))
    y.sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        both(x, x, total=mortice.empty(3), product=mortice.empty(3))
    with mortice.no_grad():
        both(x, x, total=mortice.empty(3), product=mortice.empty(3))
    with pytest.raises(RuntimeError, match="do not support autograd"):
        both.register_autograd(lambda ctx, *grads: grads)


def test_a_kernel_that_returns_another_tensor() -> None:
    @custom_op("tagged::other", mutates_args={"x"}, tags=Tag.inplace)
    def other(x: Tensor, y: Tensor) -> Tensor:
        return y

    with pytest.raises(RuntimeError, match="must return its first argument"):
        other(mortice.ones(1), mortice.ones(1))


def _positional(x: Tensor, out: Tensor) -> Tensor:
    return out


def _optional(x: Tensor, *, out: Tensor | None) -> Tensor:
    return x


def _one_of_two(x: Tensor, *, a: Tensor, b: Tensor) -> Tensor:
    return a


def _none(x: Tensor) -> None:
    return None


def _number(x: int, y: Tensor) -> Tensor:
    return y


@pytest.mark.parametrize(
    ("function", "mutates", "tag", "complaint"),
    [
        (_positional, {"out"}, Tag.out, "keyword-only"),
        (_optional, {"out"}, Tag.out, "only supports Tensor"),
        (_optional, (), Tag.out, "at least one"),
        (_one_of_two, {"a", "b"}, Tag.out, "return annotation"),
        (_none, {"x"}, Tag.inplace, "return annotation"),
        (_number, {"y"}, Tag.inplace, "first positional argument"),
        (_positional, {"out"}, Tag.inplace, "mutates_args"),
    ],
)
def test_what_does_not_fit_the_tag_is_refused(
    function: Any, mutates: Any, tag: Any, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        infer_schema(function, mutates_args=mutates, tags=tag)


def test_a_written_schema_is_held_against_the_tag() -> None:
    with scoped_library("tagged", "FRAGMENT") as library:
        with pytest.raises(ValueError, match="return must alias"):
            library.define("wrong(Tensor(a!) x) -> Tensor", tags=Tag.inplace)
        with pytest.raises(ValueError, match="mutually exclusive"):
            library.define("wrong(Tensor(a!) x) -> Tensor(a!)", tags=[Tag.inplace, Tag.out])


# -- kernels ---------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Overriding a previously registered kernel")  # once per process
def test_a_kernel_goes_on_to_the_one_it_replaced() -> None:
    own = get_kernel("aten::sin", "CPU")
    x = mortice.ones(2)
    expected = x.sin().tolist()
    with scoped_library("aten", "IMPL") as library:
        library.impl("sin", lambda self: own(self) * 2, "CPU")
        assert mortice.sin(x).tolist() == [2 * v for v in expected]
        ours = get_kernel("aten::sin", "CPU")
        library.impl("sin", lambda self: ours.call_boxed(None, self) * 2, "CPU")
        assert mortice.sin(x).tolist() == [4 * v for v in expected]
    assert mortice.sin(x).tolist() == expected
    with pytest.raises(RuntimeError, match="invalidated"):
        ours(x)


def test_there_is_no_kernel_for_a_device_that_has_none() -> None:
    with scoped_library("tagged", "FRAGMENT") as library:
        library.define("only_cpu(Tensor x) -> Tensor")
        library.impl("only_cpu", lambda x: x * 2, "CPU")
        assert get_kernel("tagged::only_cpu", "CPU")(mortice.ones(1)).item() == 2
        with pytest.raises(RuntimeError, match="no kernel for CUDA for tagged::only_cpu"):
            get_kernel("tagged::only_cpu", "CUDA")


def test_a_later_kernel_replaces_an_earlier_one_unless_that_is_refused() -> None:
    library = Library("tagged_again", "DEF")
    library.define("f(Tensor x) -> Tensor")
    library.impl("f", lambda x: x + 1, "CPU")
    with pytest.raises(RuntimeError, match="already a kernel registered"):
        library.impl("f", lambda x: x + 2, "CPU", allow_override=False)
    library.impl("f", lambda x: x + 3, "CPU")
    assert mortice.ops.tagged_again.f(mortice.zeros(1)).item() == 3


# -- arguments -------------------------------------------------------------------------------------


class _Sizes(collections.abc.Sequence[int]):
    def __getitem__(self, index: Any) -> Any:
        return (4, 5)[index]

    def __len__(self) -> int:
        return 2


def test_any_sequence_is_a_list_argument() -> None:
    seen: list[Any] = []
    with scoped_library("tagged", "FRAGMENT") as library:
        library.define("sized(Tensor x, int[] sizes, ScalarType[] kinds) -> Tensor y")
        library.impl("sized", lambda x, sizes, kinds: seen.append((sizes, kinds)) or x + 1, "CPU")
        mortice.ops.tagged.sized(mortice.ones(1), _Sizes(), [mortice.float32, mortice.bfloat16])
        with pytest.raises(RuntimeError, match="sizes"):
            mortice.ops.tagged.sized(mortice.ones(1), "45", [])
    assert seen == [((4, 5), (mortice.float32, mortice.bfloat16))]


def _one_name() -> Iterator[str]:
    yield "x"


def test_mutates_args_may_be_any_iterable() -> None:
    def declared(x: Tensor, y: Tensor) -> None:
        return None

    text = infer_schema(declared, mutates_args=_one_name())
    assert text == "(Tensor(a0!) x, Tensor y) -> ()"


def test_arguments_left_at_their_defaults_need_no_gradient() -> None:
    seen: list[Any] = []

    @custom_op("tagged::scaled", mutates_args=())
    def scaled(x: Tensor, y: Tensor | None = None, scale: float = 2.0) -> Tensor:
        return x * scale

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.scale = inputs[2]

    returned: list[Any] = []

    def backward(ctx: Any, grad: Any) -> Any:
        seen.append(ctx.needs_input_grad)
        return (grad * ctx.scale, *returned)

    scaled.register_autograd(backward, setup_context=setup)
    x = mortice.ones(2, requires_grad=True)
    scaled(x).sum().backward()  # one gradient, or one for each input
    returned += [None, None]
    scaled(x).sum().backward()
    scaled(x, None, 3.0).sum().backward()
    assert seen == [(True,), (True,), (True, False, False)]
    assert x.grad.tolist() == [7, 7]
    returned.pop()
    with pytest.raises(RuntimeError, match="expected 1 or 3, got 2"):
        scaled(x).sum().backward()


def test_enabling_what_is_enabled_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    @custom_op("tagged::twice", mutates_args=())
    def twice(x: Tensor) -> Tensor:
        return x * 2

    with twice.set_kernel_enabled("cpu", enabled=False):
        assert twice(mortice.ones(1)).item() == 2
    assert "no kernel was registered" in caplog.text
    twice.register_kernel("cpu", lambda x: x * 3)
    assert twice(mortice.ones(1)).item() == 3
    with twice.set_kernel_enabled("cpu", enabled=True):
        assert "already enabled" in caplog.text
    with twice.set_kernel_enabled("cpu", enabled=False):
        assert twice(mortice.ones(1)).item() == 2
