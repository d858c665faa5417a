"""What a recorded call costs, in calls and nodes rather than in seconds."""

from __future__ import annotations

from typing import Any

import pytest
from tests.frames import frames

import mortice
from mortice._capture import build, infer
from mortice._capture.kernels import uninstall_recorder
from mortice._capture.recorder import Recorder


@pytest.fixture(autouse=True)
def recorded_in_python() -> None:
    """Whatever tests before have installed."""
    uninstall_recorder()


def null(module: Any, inputs: Any, settings: Any) -> Any:
    """A backend that returns results made beforehand."""
    outputs = tuple(
        mortice.zeros(n.meta["val"].shape) for n in list(module.graph.nodes)[-1].args[0]
    )
    return lambda *inputs: outputs


def ten(x: Any, y: Any) -> Any:
    for _ in range(5):
        x = x * y
        x = x + y
    return x


def test_a_call_as_before_infers_nothing(compile: Any) -> None:
    compiled = compile(ten, compile_segment=null)
    x, y = mortice.ones(4), mortice.ones(4)
    for _ in range(2):  # what records an operator is compiled when its step is first expected
        compiled(x, y)
    calls = frames(lambda: compiled(x, y))
    assert "record" not in calls  # Recorder.record: every step was the one expected
    assert calls.count("recording") == 10
    per_operator = [c for c in calls if c in ("recording", "adjust") or c.startswith("Tensor_op")]
    assert len(per_operator) == 20
    assert "this_thread" not in calls  # the recorder is this thread's already
    others = [c for c in calls if c not in per_operator]
    assert len(others) <= 21, others


def test_a_call_as_before_with_views_writes_and_numbers(compile: Any) -> None:
    def f(x: Any, n: float) -> Any:
        y = (x * n).t()
        y.add_(1)
        z = y.sum(0, keepdim=True).relu()
        return mortice.where(z > 0, z, -z)

    compiled = compile(f, compile_segment=null)
    x = mortice.ones(2, 3)
    compiled(x, 1.5)
    calls = frames(lambda: compiled(x, 2.5))
    assert "record" not in calls
    assert "by_rule" not in calls


def test_either_side_of_a_branch_is_remembered(compile: Any) -> None:
    compiled = compile(lambda x, up: (x * 2 + 1) if up else (x * 3 - 1), compile_segment=null)
    x = mortice.ones(4)
    for up in (True, False, True, False):
        compiled(x, up)
    calls = frames(lambda: compiled(x, True))
    assert calls.count("record") == 1  # the first that is not the one expected
    assert "by_rule" not in calls


def counted(monkeypatch: Any, owner: Any, name: str) -> list[int]:
    """Counts the calls of a function, in the list's only element."""
    count = [0]
    function = getattr(owner, name)

    def counting(*args: Any, **kwargs: Any) -> Any:
        count[0] += 1
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, name, counting)
    return count


def doubling(x: Any, depth: int) -> Any:
    """Every value is used twice: a recording that followed uses would grow as 2 ** depth."""
    values = [x, x * 2]
    for _ in range(depth):
        c = values[-1] + values[-2]
        d = values[-1] * values[-2]
        values += [c * 0.5, d * 0.25]
    return values[-1]


def test_capture_grows_linearly(compile: Any, monkeypatch: Any) -> None:
    inferred = counted(monkeypatch, infer, "by_rule")
    followed = counted(monkeypatch, Recorder, "record")
    emitted = counted(monkeypatch, build.Builder, "_node")
    found: list[tuple[int, ...]] = []
    for depth in (14, 28, 56):
        before = inferred[0], followed[0], emitted[0]
        compiled = compile(lambda x, n=depth: doubling(x, n).sum())
        x = mortice.full((2,), 0.5, requires_grad=True)
        compiled(x).backward()
        want = mortice.full((2,), 0.5, requires_grad=True)
        doubling(want, depth).sum().backward()
        assert mortice.equal(x.grad, want.grad)
        found.append(tuple(a - b for a, b in zip((inferred[0], followed[0], emitted[0]), before)))
    assert found[0][0] == found[0][1] == found[0][2] == 4 * 14 + 2
    assert [f[0] for f in found] == [4 * n + 2 for n in (14, 28, 56)]
    assert [f[2] for f in found] == [4 * n + 2 for n in (14, 28, 56)]


def test_a_tree_of_operators_grows_linearly(compile: Any, monkeypatch: Any) -> None:
    def tree(x: Any, depth: int) -> Any:
        return x * 2 if depth == 0 else tree(x, depth - 1) + tree(x, depth - 1)

    emitted = counted(monkeypatch, build.Builder, "_node")
    for depth in (4, 6):
        before = emitted[0]
        compile(lambda x, n=depth: tree(x, n))(mortice.ones(2))
        assert emitted[0] - before == 2 ** (depth + 1) - 1


def test_lists_of_tensors_are_predicted_too(compile: Any) -> None:
    def f(x: Any, i: Any) -> Any:
        y = mortice.cat([x, x * 2, x[:1]])
        return mortice.stack([y, y + 1])[:, i]

    compiled = compile(f)
    x, i = mortice.ones(4), mortice.tensor([0, 2])
    for _ in range(2):
        assert mortice.equal(compiled(x, i), f(x, i))
    assert "record" not in frames(lambda: compiled(x, i))
