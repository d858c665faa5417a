"""disable, allow_in_graph, is_compiling, reset, explain, and why graphs are made again."""

from __future__ import annotations

from typing import Any

import pytest

import mortice
from mortice import compiler
from mortice.errors import ArgumentError, GraphBreak

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
    assert (
        "break: Python reads the value of a tensor (if, while, bool, int, float, item), at " in text
    )
    assert "in branching: if y.sum() > 0:" in text


def test_breaks_are_those_that_fullgraph_refuses_however_the_call_ran() -> None:
    compiled = mortice.compile(branching, backend="eager")
    for _ in range(3):
        compiled(X, [])
    report = compiler.explain(compiled)(X, [])  # replayed, or recorded once more
    assert (report.graph_break_count, report.ends) == (1, ())

    def inverse(x):
        return mortice.linalg.inv(x)

    square = mortice.eye(2) * 2
    mortice.compile(inverse, backend="eager", fullgraph=True)(square)
    report = compiler.explain(inverse)(square)
    assert (report.graph_break_count, len(report.ends)) == (0, 1)
    assert "end, which fullgraph allows: linalg_inv_ex may refuse the values" in str(report)


def test_breaks_of_a_replayed_call() -> None:
    compiled = mortice.compile(reads, backend="eager")
    for _ in range(3):
        compiled(X)
    assert compiled.verdict.replayed
    assert compiler.explain(compiled)(X).graph_break_count == 1
    compiled.reset()
    assert compiled.breaks == []


def test_explain_of_a_compiled_function_keeps_its_backend() -> None:
    compiled = mortice.compile(branching, backend="aot_eager")
    report = compiler.explain(compiled)(X.clone().requires_grad_(True), [])
    assert report.backend == "aot_eager"
    assert [part.name for s in report.segments for part in s.parts] == ["forward", "forward"]
    assert "partition" in str(report)


class Owner:
    @mortice.compile(backend="aot_eager")
    def method(self, x: mortice.Tensor) -> mortice.Tensor:
        return x + 1


def in_place() -> mortice.nn.Module:
    module = mortice.nn.Linear(3, 2)
    module.compile(backend="aot_eager")
    return module


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (lambda: Owner().method, "Owner.method"),
        (in_place, "Linear"),
        (lambda: mortice.compile(mortice.nn.Linear(3, 2), backend="aot_eager"), "Linear"),
    ],
    ids=["method", "in place", "wrapped"],
)
def test_explain_finds_what_is_compiled(made: Any, name: str) -> None:
    report = compiler.explain(made())(mortice.ones(1, 3))
    assert (report.name, report.backend, report.graph_count) == (name, "aot_eager", 1)


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


# -- where graphs end -----------------------------------------------------------------------------


def reads(x):
    y = x * 2
    if y.sum() > 0:
        return y.sin()
    return y


def converts(x):
    return mortice.from_numpy((x * 2).numpy() + 1)


def finds(x):
    return x.nonzero() + 1


def calls_disabled(x):
    return compiler.disable(lambda t: t.exp(), reason="for the test")(x * 2) + 1


W = mortice.ones(4, requires_grad=True)


def differentiates(x):
    (W * x).sum().backward()
    return x + 1


@pytest.mark.parametrize(
    ("fn", "said", "source"),
    [
        (reads, "Python reads the value of a tensor", "if y.sum() > 0:"),
        (converts, "numpy() gives its memory away", "return mortice.from_numpy"),
        (finds, "nonzero is not recorded", "return x.nonzero() + 1"),
        (calls_disabled, "<lambda> is disabled (for the test)", "return compiler.disable("),
        (differentiates, "backward() runs", "(W * x).sum().backward()"),
    ],
)
def test_fullgraph_names_what_ends_the_graph_and_the_line(fn, said, source) -> None:
    compiled = mortice.compile(fn, backend="eager", fullgraph=True)
    for _ in range(2):
        with pytest.raises(GraphBreak, match="compiled with fullgraph=True") as caught:
            compiled(X)
        assert said in str(caught.value)
        assert f"in {fn.__name__}: {source}" in str(caught.value)
        assert "mortice.where()" in str(caught.value)
    loose = mortice.compile(fn, backend="eager")
    assert equal(loose(X), fn(X))


def test_fullgraph_lets_whole_graphs_pass() -> None:
    def whole(x, y, n):
        for i in range(n):
            x = mortice.where(x > 0, x, y) + i
        y.add_(1)
        return x.softmax(0), mortice.multinomial(x.softmax(0), 2).shape

    compiled = mortice.compile(whole, backend="eager", fullgraph=True)
    a, b = X.clone(), X.clone()
    assert equal(compiled(X, a, 3)[0], whole(X, b, 3)[0])
    assert equal(a, b)


def test_a_result_read_after_the_call_is_no_break() -> None:
    compiled = mortice.compile(lambda x: x * 2, backend="eager", fullgraph=True)
    assert compiled(X).sum().item() == 12.0


def test_breaks_are_logged(capsys) -> None:
    with mortice.config.override(logs="graph_breaks"):
        from mortice._base.logging import configure

        configure()
        mortice.compile(reads, backend="eager")(X)
    configure()
    said = capsys.readouterr().err
    assert "mortice.graph_breaks INFO: reads: Python reads the value of a tensor" in said
    assert "test_control.py:" in said
