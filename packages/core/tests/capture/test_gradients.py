"""Gradients through compiled calls: flags at once, histories at the end, eager's checks and hooks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from comparing import aliases, same, tensors

import mortice
from mortice import errors


@pytest.fixture(params=["interpreted", "aot_eager"])
def train(request: Any, compile: Any) -> Any:
    """``train(fn)``: compiled by an interpreter with gradients on, or by joint graphs."""
    if request.param == "interpreted":
        return compile
    from mortice._compile.front import compile as real

    return lambda fn, **given: real(fn, backend="aot_eager", **given)


def leaf(*shape: int, seed: int = 0) -> Any:
    g = mortice.Generator().manual_seed(seed + 1)
    return mortice.randn(shape, generator=g).requires_grad_(True)


def gradients(result: Any, leaves: Any) -> list[Any]:
    """Gradients of every output that has a history, weighted unevenly, at the leaves."""
    tracked = [t for t in tensors(result) if t.requires_grad and t.grad_fn is not None]
    if tracked:
        loss: Any = sum(((t * t.detach().cos()).sum() for t in tracked), mortice.zeros(()))
        loss.backward()
    return [x.grad for x in leaves if x.is_leaf and x.requires_grad]


def check(train: Any, f: Callable[..., Any], make: Callable[[], Any], calls: int = 3) -> Any:
    compiled = train(f)
    for _ in range(calls):
        mine, theirs = make(), make()
        got, want = compiled(*mine), f(*theirs)
        same(got, want)
        assert [t.requires_grad for t in tensors(got)] == [t.requires_grad for t in tensors(want)]
        assert [t.is_leaf for t in tensors(got)] == [t.is_leaf for t in tensors(want)]
        assert aliases(got, mine) == aliases(want, theirs)
        for a, b in zip(gradients(got, tensors(mine)), gradients(want, tensors(theirs))):
            assert (a is None) == (b is None)
            if a is not None:
                assert mortice.allclose(a, b, rtol=1e-5, atol=1e-6), (a, b)
    return compiled


def pair() -> Any:
    return leaf(3, 4), leaf(4, 3, seed=1)


def mixed() -> Any:
    return leaf(3, 4), leaf(4, 3, seed=1).detach()


FORWARDS: dict[str, Callable[..., Any]] = {
    "product": lambda x, y: x @ y,
    "chain": lambda x, y: ((x @ y).relu() * 2 + 1).sum(),
    "several": lambda x, y: (x * 2, y.sum(0), (x @ y).tanh()),
    "detached": lambda x, y: (x.detach() * 2, (x * x.detach()).sum(), y * 2),
    "unused": lambda x, y: x.exp(),
    "a_view": lambda x, y: (x * 2).t(),
    "views": lambda x, y: ((x * 2)[0], (y * 3).view(2, 6).t(), (x + 1)[:, 1:][0]),
    "view_of_argument": lambda x, y: (x.t(), y[0], x.view(-1)),
    "view_and_source": lambda x, y: [(z, z[0], z.t()) for z in [x * y.t()]],
    "parts": lambda x, y: (x * 2).unbind(0),
    "split": lambda x, y: (x * 2).split(2, 1),
    "integers": lambda x, y: (x.argmax(1), x.max(0), (x > 0)),
    "no_grad": lambda x, y: _no_grad(x, y),
    "mixed_modes": lambda x, y: _mixed_modes(x, y),
    "softmax": lambda x, y: mortice.softmax(x @ y, -1).log().mean(),
    "layer_norm": lambda x, y: mortice.nn.functional.layer_norm(x, (4,)),
    "the_same_twice": lambda x, y: [x * 2] * 2,
    "the_argument": lambda x, y: (x, y * 2),
    "number_first": lambda x, y: 2 / (x * x + 1),
    "cat": lambda x, y: mortice.cat([x, y.t(), x * 2]),
    "where": lambda x, y: mortice.where(x > 0, x, y.t()),
    "gather": lambda x, y: x[[0, 2]] * y.t()[mortice.tensor([1, 1])],
    "double": lambda x, y: (x.double() @ y.double()).float(),
    "branch": lambda x, y: x * 2 if (x @ y).sum() > 0 else y * 3,
    "two_segments": lambda x, y: _two_segments(x, y),
}


def _no_grad(x: Any, y: Any) -> Any:
    with mortice.no_grad():
        z = x * 2
    return z, z * y.t()


def _mixed_modes(x: Any, y: Any) -> Any:
    a = x * 2
    with mortice.no_grad():
        b = a * 3
        with mortice.enable_grad():
            c = a * b
    return a + b, c


def _two_segments(x: Any, y: Any) -> Any:
    a = (x @ y).tanh()
    n = a.sum().item()
    b = a * n
    return b, a * 2


@pytest.mark.parametrize("name", FORWARDS)
@pytest.mark.parametrize("make", [pair, mixed])
def test_gradients_of(train: Any, name: str, make: Any) -> None:
    check(train, FORWARDS[name], make)


WRITES: dict[str, Callable[..., Any]] = {
    "result": lambda x, y: (x * 2).mul_(3).add_(y.t()),
    "row": lambda x, y: _row(x * 2, y),
    "row_then_all": lambda x, y: _row(x * 2, y).mul_(2),
    "columns": lambda x, y: _columns(x * 2, y),
    "setitem": lambda x, y: _setitem(x * 2, y),
    "copy": lambda x, y: mortice.zeros(3, 4).copy_(x * 2),
    "copy_broadcast": lambda x, y: y.detach().t().amax(1).copy_(x[:, 0]),
    "copy_of_argument": lambda x, y: mortice.zeros(3, 4).copy_(x),
    "into_zeros": lambda x, y: _row(mortice.zeros(3, 4), y),
    "into_zeros_from_both": lambda x, y: _setitem(mortice.zeros(3, 4), x.t()),
    "no_grad_write": lambda x, y: _no_grad_write(x * 2, y),
    "detached_write": lambda x, y: _detached_write(x * 2, y),
    "data_write": lambda x, y: _data_write(x * 2, y),
    "view_first": lambda x, y: _view_first(x * 2, y),
    "masked": lambda x, y: (x * 2).masked_fill_(x > 0, 0.5),
    "accumulate": lambda x, y: _accumulate(x, y),
    "intermediate": lambda x, y: _intermediate(x, y),
}


def _row(z: Any, y: Any) -> Any:
    z[0].mul_(y[:, 0])
    return z


def _columns(z: Any, y: Any) -> Any:
    v = z.t()
    v[1:3].add_(y[1:3])
    return z, v


def _setitem(z: Any, y: Any) -> Any:
    z[0] = y[:, 0] * 2
    z[1:, ::2] = 5.0
    return z


def _no_grad_write(z: Any, y: Any) -> Any:
    with mortice.no_grad():
        z.mul_(2)
    return z + y.t(), z


def _detached_write(z: Any, y: Any) -> Any:
    z.detach().mul_(2)
    return z + y.t(), z


def _data_write(z: Any, y: Any) -> Any:
    z.data.mul_(2)
    return z + y.t(), z


def _view_first(z: Any, y: Any) -> Any:
    v = z[1]
    w = z.view(-1)
    z.mul_(2)
    v.add_(y[:, 1])
    return v, w, z * 1


def _accumulate(x: Any, y: Any) -> Any:
    total = mortice.zeros(3, 3)
    for i in range(3):
        total += (x * i) @ y
        total[i].mul_(0.5)
    return total


def _intermediate(x: Any, y: Any) -> Any:
    a = x * 2
    b = a * y.t()
    a.add_(1)  # what b saved is a's old value, and nobody asks for it
    return a, b.detach()


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("make", [pair, mixed])
def test_in_place_with_history(train: Any, name: str, make: Any) -> None:
    check(train, WRITES[name], make)


def inner() -> Any:
    """An argument that is no leaf, with the leaf it came from."""
    x = leaf(3, 4)
    return x * 1, x, leaf(4, 3, seed=1)


def _view_without(z: Any) -> Any:
    with mortice.no_grad():
        return z[1]


ON_ARGUMENTS: dict[str, Callable[..., Any]] = {
    "scaled": lambda z, x, y: z.mul_(2),
    "row": lambda z, x, y: _row(z, y),
    "view_kept": lambda z, x, y: (z[1], z.mul_(y.t()), z * 2),
    "no_grad": lambda z, x, y: _no_grad_write(z, y),
    "detached": lambda z, x, y: _detached_write(z, y),
    "then_a_view_without": lambda z, x, y: (z.relu_(), _view_without(z)),
}


@pytest.mark.parametrize("name", ON_ARGUMENTS)
def test_in_place_on_an_argument_with_history(train: Any, name: str) -> None:
    check(train, ON_ARGUMENTS[name], inner)


def test_a_view_made_before_the_call(train: Any) -> None:
    def make() -> Any:
        x = leaf(3, 4)
        z = x * 1
        return z[0], z, x, leaf(4, 3, seed=1)

    check(train, lambda v, z, x, y: (v.mul_(2), z * 3), make)
    check(train, lambda v, z, x, y: (z.mul_(2), v * 3, v.add_(1)), make)


def every_other() -> Any:
    """An argument without history that sees every other element of its base, and one with."""
    return mortice.zeros(6, 4)[::2, ::2], leaf(3, 2)


def _read_without(y: Any, x: Any) -> Any:
    y += x
    first = y.detach() * 2  # reads the new value in y's layout, without history
    return first + y, y


def _viewed_without(y: Any, x: Any) -> Any:
    y += x
    with mortice.no_grad():
        first = y[1] * 2
    return first + y, y[0]


@pytest.mark.parametrize("f", [_read_without, _viewed_without])
def test_a_first_reader_without_history_takes_nobody_elses(train: Any, f: Any) -> None:
    check(train, f, every_other)
    check(train, lambda y, x: f(y * 1, x), lambda: (every_other()[0].t(), leaf(2, 3)))


REFUSED: dict[str, Callable[..., Any]] = {
    "leaf": lambda x: x.add_(1),
    "view_of_leaf": lambda x: x[0].add_(1),
    "part": lambda x: (x * 2).unbind(0)[0].add_(1),
    "view_from_no_grad": lambda x: _view_from_no_grad(x * 2),
    "out": lambda x: mortice.add(x, x, out=mortice.zeros(3, 4)),
    "numpy": lambda x: (x * 2).numpy(),
    "leaf_flag": lambda x: (x * 2).requires_grad_(False),
}


def _view_from_no_grad(z: Any) -> Any:
    with mortice.no_grad():
        v = z[0]
    v.add_(1)


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_are_eagers(train: Any, name: str) -> None:
    f = REFUSED[name]
    with pytest.raises(errors.AutogradError) as eager:
        f(leaf(3, 4))
    with pytest.raises(errors.AutogradError) as mine:
        train(f)(leaf(3, 4))
    assert str(mine.value) == str(eager.value)


def test_flags_are_known_while_recording(train: Any) -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        y = x * 2
        z = y.detach()
        seen.extend([y.requires_grad, y.is_leaf, z.requires_grad, z.is_leaf, (y > 0).requires_grad])
        return y, z

    train(f)(leaf(2))
    assert seen == [True, False, False, True, False]


def test_grad_fn_hooks_and_retain_grad(train: Any) -> None:
    def f(x: Any, log: list[Any]) -> Any:
        y = x * 2
        log.append(y.grad_fn is not None)
        y.register_hook(lambda g: log.append(g.tolist()))
        y.retain_grad()
        z = (y * y).sum()
        return z, y

    logs: list[Any] = []
    for run in (f, train(f)):
        x = leaf(3)
        log: list[Any] = []
        z, y = run(x, log)
        z.backward()
        logs.append((log, y.grad.tolist(), x.grad.tolist()))
    assert logs[0] == logs[1]


def test_backward_inside(train: Any) -> None:
    def f(x: Any, y: Any) -> Any:
        loss = (x @ y).tanh().sum()
        loss.backward()
        g = x.grad * 2
        x.grad = None
        (again,) = mortice.autograd.grad((x * y.t()).sum(), (x,))
        return g, again, loss.detach()

    check(train, f, pair)


def test_training_steps_inside(train: Any) -> None:
    def f(w: Any, x: Any, lr: float) -> Any:
        losses: list[float] = []
        loss: Any = None
        for _ in range(3):
            loss = ((x @ w).tanh() ** 2).sum()
            loss.backward()
            with mortice.no_grad():
                w.sub_(w.grad, alpha=lr)
            w.grad.zero_()
            losses.append(loss.item())
        return losses, loss

    runs: list[Any] = []
    compiled = train(f)
    for run in (f, compiled):
        w, x = leaf(4, 2), leaf(3, 4, seed=1).detach()
        runs.append([run(w, x, 0.1 / (i + 1))[0] for i in range(4)] + [w.detach().tolist()])
    for a, b in zip(runs[0], runs[1]):
        assert mortice.allclose(mortice.tensor(a), mortice.tensor(b), rtol=1e-5)


def test_a_saved_tensor_that_was_written_to_is_noticed(train: Any) -> None:
    def f(x: Any, w: Any) -> Any:
        y = x * w
        x.add_(1)
        return y.sum()

    x, w = mortice.ones(3), leaf(3)
    got = train(f)(x, w)
    assert x.tolist() == [2, 2, 2]
    assert_refused_or(lambda: got.backward(), w, [1, 1, 1])


def assert_refused_or(backward: Callable[[], None], w: Any, want: list[float]) -> None:
    """Eager refuses; a compiled graph may have kept another value, and then is right."""
    refused = ""
    try:
        backward()
    except errors.AutogradError as error:
        refused = str(error)
    assert "modified by an inplace operation" in refused or w.grad.tolist() == want


def test_written_after_the_call(train: Any) -> None:
    x, w = mortice.ones(3), leaf(3)
    got = train(lambda x, w: (x * w).sum())(x, w)
    x.add_(1)
    with pytest.raises(errors.AutogradError, match="modified by an inplace operation"):
        got.backward()
    w = leaf(3)
    y = train(lambda w: w.exp())(w)
    y.add_(1)
    assert_refused_or(lambda: y.sum().backward(), w, w.detach().exp().tolist())


def test_requires_grad_inside(train: Any) -> None:
    def f(x: Any) -> Any:
        y = x * 2
        y.requires_grad_(True)
        z = (y * y).sum()
        z.backward()
        return y.grad, y.is_leaf

    check(train, f, lambda: (mortice.ones(3),))


def test_functions_of_the_users_own(train: Any) -> None:
    class Double(mortice.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.saved_tensors[0]

    check(train, lambda x, y: Double.apply(x * 3) @ y, pair)


def test_a_leaf_made_inside(train: Any) -> None:
    def f(x: Any) -> Any:
        w = mortice.ones(3, requires_grad=True)
        loss = (w * x).sum()
        loss.backward()
        return w.grad

    check(train, f, lambda: (mortice.ones(3),))


def test_inference_mode_and_flags_after_the_call(train: Any) -> None:
    compiled = train(lambda x: x * 2)
    with mortice.no_grad():
        assert not compiled(leaf(2)).requires_grad
    assert compiled(leaf(2)).requires_grad
    assert not compiled(mortice.ones(2)).requires_grad
    with mortice.inference_mode():
        assert not compiled(leaf(2)).requires_grad


def test_an_optimizer_with_its_state(train: Any) -> None:
    results: list[Any] = []
    for compiled in (False, True):
        model = mortice.nn.Linear(4, 2)
        with mortice.no_grad():
            for p in model.parameters():
                p.copy_(leaf(*p.shape).detach())
        optimizer = mortice.optim.Adam(model.parameters(), lr=0.05)
        schedule = mortice.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

        def step(x: Any, model: Any = model, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        run = train(step) if compiled else step
        x = leaf(3, 4, seed=2).detach()
        losses: list[float] = []
        for _ in range(6):
            losses.append(run(x).item())
            schedule.step()
        results.append((losses, [p.detach().tolist() for p in model.parameters()]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for a, b in zip(results[0][0], results[1][0]):
            assert abs(a - b) < 1e-5
    for a, b in zip(results[0][1], results[1][1]):
        assert mortice.allclose(mortice.tensor(a), mortice.tensor(b), rtol=1e-4, atol=1e-6)


def test_views_have_the_histories_that_eager_gives(compile: Any) -> None:
    def f(x: Any) -> Any:
        y = x * 2
        return y.t(), y.view(2, 6)[1], y.unbind(0)[1], x[0], y.detach()

    def names(result: Any) -> list[Any]:
        return [None if t.grad_fn is None else t.grad_fn.name() for t in result]

    compiled = compile(f)
    assert names(compiled(leaf(3, 4))) == names(f(leaf(3, 4)))
    with pytest.raises(errors.AutogradError, match="returns multiple views"):
        compiled(leaf(3, 4))[2].add_(1)


def _part_written_later(x: Any) -> Any:
    a = x * 1
    v = a.unbind(0)[1]
    a.mul_(2)
    a.sum().item()  # ends the segment between the two writes
    return v.add_(1), a * 1


def _part_written_twice(x: Any) -> Any:
    a = x * 1
    v = a.unbind(0)[1]
    a.mul_(2)
    v.add_(1)
    a.sum().item()
    return v.mul_(2), a * 1


@pytest.mark.parametrize("f", [_part_written_later, _part_written_twice])
def test_a_part_whose_base_was_written_to_is_a_strided_view(train: Any, f: Any) -> None:
    check(train, f, lambda: (leaf(2, 3),))


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("dtype", [mortice.int64, mortice.bool, mortice.uint8])
def test_integers_written_to_have_no_history(compile: Any, dtype: Any, recorded: bool) -> None:
    def f(x: Any, source: Any) -> Any:
        x.copy_(source)
        x[0] = source[1]
        return x

    x, source = mortice.zeros(3, dtype=dtype), mortice.ones(3, requires_grad=True)
    got = (compile(f) if recorded else f)(x, source)
    assert got is x
    assert (x.requires_grad, x.grad_fn, x.is_leaf) == (False, None, True)
    assert x.tolist() == [1, 1, 1]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("tracked", ["x", "y", "xy"])
def test_tensors_copied_crosswise_keep_their_histories(backend: str, tracked: str) -> None:
    def f(x: Any, y: Any) -> Any:
        y.add_(0.5)
        x[0] = y[0]
        y[0] = x[0]
        x.copy_(y)
        y.copy_(x)
        return x, y, x * y

    def results(g: Any) -> Any:
        leaves = [mortice.tensor([1.0, 2.0]), mortice.tensor([3.0, 4.0])]
        for leaf, name in zip(leaves, "xy"):
            leaf.requires_grad_(name in tracked)
        made = g(*[leaf * 1 for leaf in leaves])
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        total = sum((t.sum() for t in made), mortice.tensor(0.0))
        grads = mortice.autograd.grad(total, wanted, allow_unused=True)
        return (
            [t.requires_grad for t in made],
            [t.tolist() for t in made],
            [None if g is None or not g.any() else g.tolist() for g in grads],
        )

    compiled = mortice.compile(f, backend=backend)
    for _ in range(3):
        assert results(compiled) == results(f)
