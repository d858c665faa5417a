"""Gradients are computed in memory of what the forward pass kept, where nobody else can see it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from inductor_graphs import graph

import mortice
import mortice.nn.functional as F
from mortice import Tensor
from mortice.errors import ArgumentError, AutogradError, DTypeError
from mortice.testing import assert_close
from mortice_inductor import compile_fx
from mortice_inductor.passes.memory import FILLED, LEAST_DONOR, LEAST_GUEST, Life, lend

ROWS, WIDTH, WIDE = 256, 128, 512


def _close(found: Any, expected: Any) -> None:
    """Equal but for the order of sums over some hundred products."""
    assert_close(found, expected, rtol=1e-4, atol=1e-2)


def _parameters() -> list[Tensor]:
    shapes = [(WIDTH, WIDE), (WIDE, WIDTH), (WIDE,)]
    return [(mortice.randn(*s) / 10).requires_grad_() for s in shapes]


def _loss(x: Tensor, w: Tensor, v: Tensor, b: Tensor) -> Tensor:
    return ((F.gelu(x @ w + b) @ v) ** 2).sum()


def _with_hidden(x: Tensor, w: Tensor, v: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    hidden = x @ w + b
    return ((F.gelu(hidden) @ v) ** 2).sum(), hidden


def _gradients(loss: Tensor, parameters: list[Tensor], **how: Any) -> list[Tensor]:
    for p in parameters:
        p.grad = None
    loss.backward(**how)
    return [p.grad for p in parameters]


def _owner(t: Tensor) -> Any:
    """Whose memory a gradient lies in; None if in its own."""
    return t._a.base


@pytest.fixture
def step() -> tuple[Any, Tensor, list[Tensor], list[Tensor]]:
    """A compiled loss, an input, parameters, and the gradients that eager gives."""
    mortice.manual_seed(0)
    parameters, x = _parameters(), mortice.randn(ROWS, WIDTH)
    expected = _gradients(_loss(x, *parameters), parameters)
    return mortice.compile(_loss, backend="inductor"), x, parameters, expected


def test_gradients_lie_in_what_was_kept(step: Any) -> None:
    f, x, parameters, expected = step
    for _ in range(4):
        found = _gradients(f(x, *parameters), parameters)
        _close(found, expected)
        assert [_owner(g) is not None for g in found] == [True, True, False]
        kept = _owner(found[0])
        assert kept is _owner(found[1])
        assert kept.nbytes == 4 * ROWS * WIDE == sum(g._a.nbytes for g in found[:2])
        assert not np.shares_memory(found[0]._a, found[1]._a)
        alike = np.empty_like(found[0]._a).flags
        assert (str(found[0]._a.flags)) == str(alike).replace("OWNDATA : True", "OWNDATA : False")


def test_gradients_stay_as_they_are(step: Any) -> None:
    f, x, parameters, expected = step
    first = _gradients(f(x, *parameters), parameters)
    for _ in range(4):
        _gradients(f(x * 2, *parameters), parameters)
    _close(first, expected)


def test_a_retained_graph_keeps_its_values(step: Any) -> None:
    f, x, parameters, expected = step
    for _ in range(3):
        loss = f(x, *parameters)
        for retained in (True, True, False):
            found = _gradients(loss, parameters, retain_graph=retained)
            _close(found, expected)
        with pytest.raises(RuntimeError, match="retain_graph"):
            loss.backward()


def test_what_a_hook_holds_is_not_written_to(step: Any) -> None:
    f, x, parameters, expected = step
    held: list[tuple[Tensor, Tensor]] = []

    def pack(t: Tensor) -> int:
        held.append((t, t.detach().clone()))
        return len(held) - 1

    for _ in range(3):
        held.clear()
        with mortice.autograd.graph.saved_tensors_hooks(pack, lambda n: held[n][0]):
            loss = f(x, *parameters)
        _close(_gradients(loss, parameters), expected)
        assert any(t.shape == (ROWS, WIDE) for t, _ in held)
        assert all(mortice.equal(t, before) for t, before in held)


def test_what_a_hook_makes_anew_may_be() -> None:
    """Values that come from disk, say, are nobody else's, also in a graph that is retained."""
    mortice.manual_seed(0)
    parameters, x = _parameters(), mortice.randn(ROWS, WIDTH)
    expected = _gradients(_loss(x, *parameters), parameters)
    f = mortice.compile(_loss, backend="inductor")
    for _ in range(3):
        with mortice.autograd.graph.saved_tensors_hooks(
            lambda t: t.detach().numpy().copy(), lambda a: mortice.tensor(a)
        ):
            loss = f(x, *parameters)
        for retained in (True, False):
            _close(_gradients(loss, parameters, retain_graph=retained), expected)


_OTHERS: dict[str, tuple[Callable[[Any], Any], type[Exception]]] = {
    "half": (lambda a: a[: len(a) // 2].copy(), AutogradError),
    "row": (lambda a: a[:1].copy(), AutogradError),
    "flat": (lambda a: a.reshape(-1), AutogradError),
    "integers": (lambda a: a.astype(np.int32), DTypeError),
    "nothing": (lambda a: None, ArgumentError),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("how", _OTHERS)
def test_what_a_hook_makes_otherwise_is_refused(
    step: Any, how: str, first: bool, dynamic: Any
) -> None:
    """Native code takes sizes on trust; also where the first backward pass of all has other ones."""
    _, x, parameters, expected = step
    change, refusal = _OTHERS[how]
    f = mortice.compile(_loss, backend="inductor", dynamic=dynamic)

    def unpack(a: Any) -> Any:
        a = change(a) if a.shape == (ROWS, WIDE) else a
        return None if a is None else mortice.tensor(a)

    for _ in range(2):
        if not first:
            _close(_gradients(f(x, *parameters), parameters), expected)
        with mortice.autograd.graph.saved_tensors_hooks(lambda t: t.detach().numpy(), unpack):
            loss = f(x, *parameters)
        with pytest.raises(refusal):
            loss.backward()
        first = False
    _close(_gradients(f(x, *parameters), parameters), expected)


@pytest.mark.parametrize("dynamic", [None, True])
def test_data_of_another_size_is_refused(step: Any, dynamic: Any) -> None:
    _, x, parameters, _ = step
    f = mortice.compile(_loss, backend="inductor", dynamic=dynamic)
    for _ in range(3):
        v = mortice.randn(WIDE, WIDTH).requires_grad_()
        loss = f(x, parameters[0], v, parameters[2])
        v.data = mortice.zeros(1, WIDTH)
        with pytest.raises(AutogradError, match=r"has size \[1, 128\], and had \[512, 128\]"):
            loss.backward()


def test_what_was_returned_is_not_written_to() -> None:
    mortice.manual_seed(0)
    parameters, x = _parameters(), mortice.randn(ROWS, WIDTH)
    loss, hidden = _with_hidden(x, *parameters)
    expected = _gradients(loss, parameters)
    f = mortice.compile(_with_hidden, backend="inductor")
    for _ in range(3):
        loss, seen = f(x, *parameters)
        found = _gradients(loss, parameters)
        _close(found, expected)
        _close(seen, hidden)


def test_gradients_of_gradients(step: Any) -> None:
    f, x, parameters, _ = step
    w = parameters[0]
    expected = mortice.autograd.grad(
        mortice.autograd.grad(_loss(x, *parameters), w, create_graph=True)[0].sum(), w
    )
    for _ in range(3):
        (g,) = mortice.autograd.grad(f(x, *parameters), w, create_graph=True)
        _close(mortice.autograd.grad(g.sum(), w), expected)


def test_a_gradient_is_a_tensor_like_any_other(step: Any) -> None:
    f, x, parameters, expected = step
    f(x, *parameters)
    found = _gradients(f(x, *parameters), parameters)[0]
    assert found.untyped_storage().nbytes() == found._a.nbytes
    file = io.BytesIO()
    mortice.save(found, file)
    assert found._a.nbytes < len(file.getvalue()) < found._a.nbytes + 4096
    flat = found.view(-1)
    flat.mul_(2)
    _close(found, expected[0] * 2)
    found.resize_(2 * WIDTH, WIDE)
    found.zero_()
    _close(parameters[1].grad, expected[1])


def _twice(call: Any, a: Any, w: Any) -> Any:
    return call("mm", call("mm", a, w), w)


@pytest.mark.parametrize("donated", [True, False])
def test_only_what_the_call_alone_has(donated: bool) -> None:
    """Of donated inputs, those that own their memory and that nobody else holds."""
    w = mortice.randn(256, 256)
    gm = graph(_twice, 2)
    next(iter(gm.graph.nodes)).meta["donated"] = donated
    compiled = compile_fx(gm, [mortice.randn(256, 256), w])
    compiled(mortice.randn(256, 256), w)
    run = compiled.fast
    data = np.random.default_rng(0).standard_normal((256, 256), np.float32)
    expected = mortice.tensor(data) @ w @ w

    def lies_there(tensors: list[Tensor]) -> bool:
        """Whether the result of a call with the first, which the list lets go, lies in its memory."""
        at = tensors[0]._a.ctypes.data
        (found,) = run(*_let_go(tensors), w)
        _close(found, expected)
        return found._a.ctypes.data == at

    assert lies_there([mortice.tensor(data)]) == donated
    for other in (mortice.tensor(data), mortice.tensor(data).view(256, 256)):
        assert not lies_there([other])
        _close(other, mortice.tensor(data))
    whole = mortice.tensor(np.concatenate([data, data]))
    assert not lies_there([whole[:256]])
    array = data.copy()
    assert not lies_there([mortice.from_numpy(array)])
    storage = (t := mortice.tensor(data)).untyped_storage()
    values = [t]
    del t
    assert not lies_there(values)
    values = [mortice.tensor(data)]
    values[0]._a.flags.writeable = False
    assert not lies_there(values)
    values = [mortice.tensor(data)]
    held = values[0]._a
    assert not lies_there(values)
    values = [mortice.tensor(data)]
    values[0].__class__ = Marked  # without the storage that a conversion makes
    assert not lies_there(values)
    for kept in (array, whole._a[:256], held):
        assert np.array_equal(kept, data)
    assert storage.nbytes() == data.nbytes


class Marked(Tensor):
    """Whose instances may look at themselves when they die."""


def _let_go(values: list[Any]) -> tuple[Any, ...]:
    given = tuple(values)
    values.clear()
    return given


def test_results_fill_what_they_lie_in() -> None:
    size = 4 * LEAST_DONOR
    donor = Life(0, size, 0, 3)
    fits = Life(7, size * FILLED // 4, 4, 9)
    assert lend([fits], [donor]) == ([donor], [(7, 0, 0)])
    assert lend([fits._replace(size=fits.size - 4)], [donor]) == ([], [])
    assert lend([fits._replace(size=size + 4)], [donor]) == ([], [])
    assert lend([fits._replace(first=3)], [donor]) == ([], [])  # it is still read
    least = Life(0, LEAST_DONOR, 0, 3)
    assert lend([Life(7, LEAST_DONOR, 4, 9)], [least]) == ([least], [(7, 0, 0)])
    assert lend([Life(7, LEAST_DONOR - 4, 4, 9)], [least._replace(size=LEAST_DONOR - 4)]) == (
        [],
        [],
    )
    small = [Life(n, LEAST_GUEST - 4, 4, 9) for n in range(4)]
    assert lend(small, [least]) == ([], [])


def test_each_result_lies_in_one_place() -> None:
    unit = LEAST_DONOR
    donors = [Life(0, 2 * unit, 0, 9), Life(1, 2 * unit, 0, 2), Life(2, unit, 0, 9)]
    results = [Life(3, unit, 3, 99), Life(4, unit - 4, 3, 99), Life(5, unit, 10, 99),
               Life(6, unit // 4, 10, 99), Life(7, unit // 2, 10, 99)]  # fmt: skip
    blocks, lent = lend(results, donors)
    assert blocks == [donors[0], donors[1]]  # nothing is left for the last
    assert lent == [
        (5, 0, 0), (7, 0, unit), (6, 0, unit + unit // 2), (3, 1, 0), (4, 1, unit),
    ]  # fmt: skip
