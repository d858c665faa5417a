"""How much is compiled, and how much work that is: counted, never timed."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest

import mortice
from mortice import nn, optim


def chain(x: Any, depth: int) -> Any:
    for i in range(depth):
        x = x.sin() if i % 2 else x * 1.5
    return x


def tree(x: Any, depth: int) -> Any:
    values = [x * i for i in range(depth)]
    while len(values) > 1:
        values = [a + b for a, b in zip(values[::2], values[1::2])] + values[len(values) & ~1 :]
    return values[0]


def doubling(x: Any, depth: int) -> Any:
    values = [x, x * 0.5]
    for _ in range(depth):
        a, b = values[-1], values[-2]
        values += [a + b, a * b]
    return values[-1] + values[-2]


def calls(pattern: Any, depth: int) -> float:
    """Function calls, of Python and C, for the first call and backward pass, per operator."""
    compiled = mortice.compile(pattern, backend="aot_eager")
    x = mortice.full((3,), 0.5, requires_grad=True)
    count = [0]

    def profile(frame: Any, event: str, argument: Any) -> None:
        count[0] += event in ("call", "c_call")

    # A collection would call what others have hung on it.
    gc.collect()
    gc.disable()
    sys.setprofile(profile)
    try:
        compiled(x, depth).sum().backward()
    finally:
        sys.setprofile(None)
        gc.enable()
    assert len(compiled.segments) == 1
    return count[0] / compiled.segments[0].nodes


@pytest.mark.parametrize("pattern", [chain, tree, doubling])
def test_work_grows_with_the_length_of_the_graph(pattern: Any) -> None:
    calls(pattern, 14)  # imports, and tables that are filled once
    short, long = calls(pattern, 14), calls(pattern, 112)
    assert long < 1.15 * short


@pytest.mark.parametrize("depth", [14, 28])
def test_the_doubling_pattern_is_right(depth: int) -> None:
    x, y = (mortice.full((3,), 0.5, dtype=mortice.float64, requires_grad=True) for _ in range(2))
    mortice.compile(doubling, backend="aot_eager")(x, depth).sum().backward()
    doubling(y, depth).sum().backward()
    assert x.grad.tolist() == y.grad.tolist()


# -- how many graphs --------------------------------------------------------------------------------


def graphs(f: Any, arguments: list[tuple[Any, ...]], **settings: Any) -> int:
    """Segments compiled for calls with each of the arguments, whose results are checked."""
    compiled = mortice.compile(f, backend="aot_eager", **settings)
    for given in arguments:
        assert compiled(*given).tolist() == f(*given).tolist()
    return len(compiled.segments)


X = mortice.arange(8.0).reshape(4, 2)


def test_numbers_are_one_graph() -> None:
    assert graphs(lambda x, n: x * n + n, [(X, n) for n in range(20)]) == 1
    assert graphs(lambda x, n: x * n + n, [(X, n / 3) for n in range(20)]) == 1


@pytest.mark.parametrize(("dynamic", "count"), [(None, 2), (True, 1)])
@pytest.mark.parametrize("grad", [False, True])
def test_sizes_are_one_graph_from_the_second_on(dynamic: Any, count: int, grad: bool) -> None:
    def f(x: Any) -> Any:
        return (x * 2).sum(0) + x.shape[0]

    inputs = [(mortice.ones(n, 3, requires_grad=grad),) for n in range(2, 22)]
    assert graphs(f, inputs, dynamic=dynamic) == count


def test_strings_are_one_graph_for_each_thing_they_choose() -> None:
    def f(x: Any, name: str) -> Any:
        return x.sin() if name < "s1" else x.cos() if name < "s15" else x * 2

    assert graphs(f, [(X, f"s{i}") for i in range(20)]) == 3


def test_a_changing_learning_rate_is_one_graph() -> None:
    w = mortice.ones(3)
    compiled = mortice.compile(lambda rate: w.sub_(w * rate), backend="aot_eager")
    for i in range(20):
        compiled(0.1 / (i + 1))
    assert len(compiled.segments) == 1


RULES: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda p: optim.SGD(p, lr=0.01),
    "momentum": lambda p: optim.SGD(p, lr=0.01, momentum=0.9, dampening=0.1, weight_decay=0.1),
    "adam": lambda p: optim.Adam(p, lr=1, amsgrad=True),
    "adamw": lambda p: optim.AdamW(p, lr=0.01),
    "adamax": lambda p: optim.Adamax(p, lr=0.01),
    "nadam": lambda p: optim.NAdam(p, lr=0.01),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.01),
    "adadelta": lambda p: optim.Adadelta(p, lr=0.5),
    "rprop": lambda p: optim.Rprop(p, lr=0.01),
    "asgd": lambda p: optim.ASGD(p, lr=0.01),
}
SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "steps": lambda o: optim.lr_scheduler.StepLR(o, 3),
    "cosine": lambda o: optim.lr_scheduler.CosineAnnealingLR(o, 20),
}


def trained(rule: str, schedule: str, compiled: bool) -> tuple[list[int], list[Any]]:
    """Graphs after each of 22 steps, and the parameters after the last."""
    mortice.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    optimizer = RULES[rule](model.parameters())
    scheduler = SCHEDULES[schedule](optimizer)
    step = mortice.compile(optimizer.step, backend="aot_eager") if compiled else optimizer.step
    made = []
    for _ in range(22):
        optimizer.zero_grad()
        model(X).square().sum().backward()
        step()
        scheduler.step()
        made.append(len(step.segments) if compiled else 0)
    return made, [p.tolist() for p in model.parameters()]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("rule", RULES)
def test_an_optimizer_with_a_scheduler_is_one_graph(rule: str, schedule: str) -> None:
    """From the first step on: the state is made outside of the graph."""
    made, parameters = trained(rule, schedule, compiled=True)
    assert made == [1] * 22
    assert parameters == trained(rule, schedule, compiled=False)[1]
