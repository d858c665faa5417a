"""disable, allow_in_graph, is_compiling, reset, explain, and why graphs are made again."""

from __future__ import annotations

import pytest

import mortice
from mortice import compiler
from mortice.errors import ArgumentError

X = mortice.arange(4.0)


def equal(a, b) -> bool:
    return a.numpy().tobytes() == b.numpy().tobytes()


def test_disabled_functions_run_as_they_are() -> None:
    states = []

    @compiler.disable
    def outside(x):
        states.append(compiler.is_compiling())
        return x * 3

    def f(x):
        states.append(compiler.is_compiling())
        return outside(x + 1).exp()

    compiled = mortice.compile(f, backend="eager")
    assert equal(compiled(X), f(X))
    assert states == [True, False, False, False]
    assert len(compiled.segments) == 2
    assert outside.__name__ == "outside"


def test_disable_with_a_reason_and_of_compiled_functions() -> None:
    @compiler.disable(reason="it prints")
    def noisy(x):
        return x * 2

    assert noisy.mortice_disabled == "it prints"
    inner = mortice.compile(lambda x: x.sin(), backend="eager")
    assert equal(compiler.disable(inner)(X), X.sin())
    assert inner.segments == []
    assert compiler.disable(inner, recursive=False) is inner.fn
    with pytest.raises(ArgumentError, match="takes a function, not int"):
        compiler.disable(3)


def test_what_is_disabled_keeps_its_gradients() -> None:
    w = mortice.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    squared = compiler.disable(lambda x: x * x)
    compiled = mortice.compile(lambda x: squared(x * 2).sum(), backend="aot_eager")
    compiled(w).backward()
    assert w.grad.tolist() == [8.0, 16.0, 24.0, 32.0]


def test_is_compiling_is_of_this_thread_and_this_call() -> None:
    seen = []
    compiled = mortice.compile(
        lambda x: seen.append(compiler.is_compiling()) or x * 2, backend="eager"
    )
    assert not compiler.is_compiling()
    compiled(X)
    assert seen == [True]
    assert not compiler.is_compiling()


def test_allow_in_graph_gives_back_what_it_is_given() -> None:
    def mine(x):
        return x * 2

    assert compiler.allow_in_graph(mine) is mine
    assert compiler.allow_in_graph([mine]) == [mine]
    with pytest.raises(ArgumentError, match="not int"):
        compiler.allow_in_graph(3)
    compiled = mortice.compile(lambda x: mine(x) + 1, backend="eager")
    assert equal(compiled(X), X * 2 + 1)


def test_reset_forgets_the_graphs() -> None:
    compiled = mortice.compile(lambda x: x * 2, backend="eager")
    compiled(X)
    assert len(compiled.segments) == 1
    compiler.reset()
    assert compiled.segments == []
    assert equal(compiled(X), X * 2)
    assert len(compiled.segments) == 1


def branching(x, log):
    log.append(1)
    y = x * 2
    if y.sum() > 0:
        y = y.sin()
    return y + 1


def test_explain_runs_the_function_once_and_reports() -> None:
    log = []
    report = compiler.explain(branching)(X, log)
    assert log == [1]
    assert report.graph_count == 2
    assert report.graph_break_count == 1
    assert report.op_count == 5
    text = str(report)
    assert text.startswith("branching, backend eager: 2 graphs of 5 operators, 1 breaks")
    assert "segment0: 3 operators from " in text
    assert "test_control.py:" in text
    assert "ran once" in text


def test_explain_of_a_compiled_function_keeps_its_backend() -> None:
    compiled = mortice.compile(branching, backend="aot_eager")
    report = compiler.explain(compiled)(X.clone().requires_grad_(True), [])
    assert report.backend == "aot_eager"
    assert [part.name for s in report.segments for part in s.parts] == ["forward", "forward"]
    assert "partition" in str(report)


def test_reports_say_why_there_is_another_graph() -> None:
    compiled = mortice.compile(
        lambda x, n: (x * 2).sum(n) if n else x * 2, backend="eager", dynamic=False
    )
    compiled(mortice.ones(3, 4), 0)
    compiled(mortice.ones(5, 4), 0)
    compiled(mortice.ones(5, 4, dtype=mortice.float64), 0)
    compiled(mortice.ones(5, 4), 1)
    compiled(mortice.ones(5, 4, requires_grad=True), 1)
    reasons = [s.reason for s in compiled.segments]
    assert reasons[0] == ""
    assert reasons[1] == "input 0: shape (5, 4), and was (3, 4)"
    assert reasons[2] == "input 0: dtype mortice.float64, and was mortice.float32"
    assert reasons[3].startswith("input 0: dtype mortice.float32")
    assert "requires_grad True, and was False" in reasons[4]
    from mortice._compile.explain import report_of

    assert len(report_of(compiled).recompilations) == 4


def test_recompiling_is_logged(capsys) -> None:
    with mortice.config.override(logs="recompiles"):
        from mortice._base.logging import configure

        configure()
        compiled = mortice.compile(lambda x: x * 2, backend="eager", dynamic=False)
        compiled(mortice.ones(3))
        compiled(mortice.ones(4))
    configure()
    said = capsys.readouterr().err
    assert "graph 2 for " in said
    assert "input 0: shape (4,), and was (3,)" in said
