"""The backward pass, histories through views and in-place writes, and what is refused."""

from __future__ import annotations

import gc
import weakref

import pytest

import mortice
from mortice._autograd import engine


def leaf(*values: float) -> mortice.Tensor:
    return mortice.tensor([float(v) for v in values], requires_grad=True)


def test_gradients_accumulate_and_are_not_shared() -> None:
    x, y = leaf(1, 2), leaf(3, 4)
    (x + y).sum().backward()
    assert x.grad is not None and y.grad is not None
    x.grad.add_(1)
    assert y.grad.tolist() == [1.0, 1.0]
    (x * 3).sum().backward()
    assert x.grad.tolist() == [5.0, 5.0]


def test_a_gradient_that_somebody_holds_is_copied_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, kept, given = leaf(1, 2), [], mortice.ones(2)
    first, adopted = engine._first_gradient, []

    def noted(value: mortice.Tensor, is_ours: bool) -> mortice.Tensor:
        result = first(value, is_ours)
        adopted.append(result is value)
        return result

    monkeypatch.setattr(engine, "_first_gradient", noted)
    (x * 3).backward(given)
    assert adopted == [True]
    x.grad = None
    (x + 0).backward(given)  # passes it on
    assert adopted == [True, False]
    x.grad = None
    x.register_hook(kept.append)
    (x * 3).backward(given)
    assert adopted == [True, False, False]
    x.grad.zero_()
    assert given.tolist() == [1, 1] and kept[0].tolist() == [3, 3]


def test_broadcast_operands_get_gradients_of_their_own_shape_and_dtype() -> None:
    x = mortice.ones(3, 1, requires_grad=True)
    y = mortice.ones(4, dtype=mortice.float64, requires_grad=True)
    (x * y).sum().backward()
    assert x.grad.shape == (3, 1) and x.grad.dtype is mortice.float32
    assert y.grad.tolist() == [3.0] * 4


def test_higher_derivatives() -> None:
    x = leaf(2)
    (first,) = mortice.autograd.grad((x**4).sum(), x, create_graph=True)
    (second,) = mortice.autograd.grad(first.sum(), x, create_graph=True)
    (third,) = mortice.autograd.grad(second.sum(), x)
    assert [first.item(), second.item(), third.item()] == [32.0, 48.0, 48.0]


def test_a_graph_is_freed_after_backward_unless_retained() -> None:
    x = leaf(2)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_tensors_saved_for_backward_may_not_change() -> None:
    x = leaf(2)
    y = x * 1
    z = y * y
    y.add_(1)
    with pytest.raises(
        RuntimeError, match="MulBackward0 had saved, is at version 1; expected version 0"
    ):
        z.sum().backward()


def test_a_leaf_that_requires_grad_is_not_written_in_place() -> None:
    x = leaf(1)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        x.add_(1)
    with mortice.no_grad():
        x.add_(1)
    assert x.item() == 2.0


def test_writes_through_a_view_reach_the_base_and_its_other_views() -> None:
    x = leaf(1, 2, 3, 4)
    base = x * 1
    other = base[1]
    base.view(2, 2)[0].mul_(10)
    assert other.item() == 20.0
    (base.sum() + other).backward()
    assert x.grad.tolist() == [10.0, 20.0, 1.0, 1.0]


def test_writes_through_views_of_a_base_that_is_not_row_major() -> None:
    x = mortice.arange(6).float().reshape(2, 3).requires_grad_()
    base = x.t() * 1  # elementwise results keep the order of their input's dimensions
    assert not base.is_contiguous()
    early = base[:, 1]
    base[1].mul_(10)
    assert early.tolist() == [3.0, 40.0, 5.0]
    (base.sum() + early.sum()).backward()
    assert x.grad.tolist() == [[1.0, 10.0, 1.0], [2.0, 20.0, 2.0]]


def test_a_view_taken_before_a_write_to_its_base_has_the_new_history() -> None:
    x = leaf(1, 2)
    base = mortice.zeros(2)
    view = base[0]
    assert not view.requires_grad
    base.copy_(x)
    assert view.requires_grad
    (view * 3).backward()
    assert x.grad.tolist() == [3.0, 0.0]


def test_views_that_hide_a_base_with_history_are_not_written() -> None:
    x = leaf(1, 2)
    y = x * 1
    with mortice.no_grad():
        hidden, of_leaf = y.view(2), x.view(2)
        hidden.add_(1)
    for view in (hidden, of_leaf):
        with pytest.raises(RuntimeError, match="no_grad mode|view of a leaf"):
            view.add_(1)
    late = mortice.zeros(2)
    view = late.view(2)
    view.add_(1)
    late.requires_grad_()
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        view.add_(1)
    assert late.tolist() == [1.0, 1.0]


def test_unused_and_constant_inputs() -> None:
    x, y = leaf(1), leaf(1)
    z = (x * 2).sum()
    with pytest.raises(RuntimeError, match="not have been used in the graph"):
        mortice.autograd.grad(z, y, retain_graph=True)
    assert mortice.autograd.grad(z, (x, y), allow_unused=True)[1] is None
    with pytest.raises(RuntimeError, match="does not require grad"):
        mortice.ones(1).backward()
    with pytest.raises(RuntimeError, match="scalar outputs"):
        leaf(1, 2).mul(2).backward()


def test_a_gradient_that_does_not_fit_is_told_of_its_function() -> None:
    class Bad(mortice.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad[:1]

    with pytest.raises(
        RuntimeError, match=r"BadBackward .* gradient at index 0: got shape \[1\].* expected \[3\]"
    ):
        Bad.apply(leaf(1, 2, 3)).sum().backward()


def test_hooks_see_and_replace_gradients() -> None:
    x = leaf(1)
    y = x * 2
    seen = []
    y.register_hook(lambda g: seen.append(g.item()) or g * 10)
    y.retain_grad()
    handle = x.register_hook(lambda g: g + 1)
    y.sum().backward()
    assert seen == [1.0] and x.grad.item() == 21.0
    handle.remove()
    (x * 1).sum().backward()
    assert x.grad.item() == 22.0


def test_no_grad_enable_grad_and_inference_mode() -> None:
    x = leaf(1)
    with mortice.no_grad():
        assert not (x * 2).requires_grad
        with mortice.enable_grad():
            assert (x * 2).requires_grad
    with mortice.inference_mode():
        assert not (x * 2).requires_grad
    assert mortice.is_grad_enabled()

    @mortice.no_grad()
    def f(t):
        return t * 2

    assert not f(x).requires_grad


def test_graphs_die_without_the_garbage_collector() -> None:
    gc.disable()
    try:
        x = leaf(1, 2)
        y = (x.exp() * x).relu()
        node = weakref.ref(y.grad_fn)
        del y
        assert node() is None
    finally:
        gc.enable()


def test_a_long_chain_is_walked_and_freed_without_recursion() -> None:
    x = leaf(1)
    y = x
    for _ in range(50_000):
        y = y + 1
    y.sum().backward()
    del y
    assert x.grad.item() == 1.0


def test_anomaly_mode_names_the_forward_line_and_the_node() -> None:
    x = leaf(-1)
    with mortice.autograd.detect_anomaly():
        y = x.sqrt()  # the line that anomaly mode names
        with pytest.raises(
            RuntimeError, match="SqrtBackward0.*nan(.|\n)*the line that anomaly mode names"
        ):
            y.sum().backward()
