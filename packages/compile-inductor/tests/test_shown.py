"""What is shown of compiled graphs: code and decisions, made when somebody asks."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import mortice
from mortice_inductor import pipeline


def rows(x: Any) -> Any:
    return (x.relu() * 2.5).sum(-1)


def asked(compiled: Any, kind: str) -> str:
    return compiled.segments[-1].module.meta[kind]()


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """One entry for each time that the passes run."""
    ran: list[Any] = []
    build = pipeline.build

    def counted(gm: Any, *args: Any) -> Any:
        ran.append(gm)
        return build(gm, *args)

    monkeypatch.setattr(pipeline, "build", counted)
    monkeypatch.setattr("mortice_inductor.compile.build", counted)
    return ran


def test_loop_ir_and_llvm_are_shown_when_asked_for(passes: list[Any]) -> None:
    first, second = (mortice.compile(rows, backend="inductor") for _ in range(2))
    first(mortice.ones(3, 8))
    before = len(passes)
    second(mortice.ones(3, 8))
    assert len(passes) == before  # found on disk: nothing ran, also not to be shown
    code = asked(second, "output_code")
    assert len(passes) == before + 1
    assert "f32 [3, 8] strides [8, 1]" in code
    assert "reduce_sum" in code  # loop IR
    assert "define void @segment0" in code  # LLVM
    assert code == asked(first, "output_code")
    assert "kernel 0" in asked(second, "fusion")


def test_who_logs_all_there_is_does_not_pay_for_code(passes: list[Any]) -> None:
    """A level of the root logger asks for no texts that have to be made first."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.INFO)
    try:
        mortice.compile(lambda x: (x * 3.75).amax(), backend="inductor")(mortice.ones(7))
    finally:
        root.setLevel(level)
    assert len(passes) <= 1


def test_every_layout_is_shown() -> None:
    compiled = mortice.compile(rows, backend="inductor", dynamic=True)
    for n in (3, 5):
        compiled(mortice.ones(n, 8))
    code = asked(compiled, "output_code")
    assert code.index("f32 [3, 8]") < code.index("f32 [5, 8]")


def test_backward_graphs_and_reports() -> None:
    x = mortice.ones(3, 8, requires_grad=True)
    compiled = mortice.compile(rows, backend="inductor")
    report = mortice.compiler.explain(compiled)(x)
    (part,) = [p for p in report.segments[0].parts if p.name == "forward"]
    assert "; LLVM" in part.output_code
    assert part.fusion


def test_logs_show_graphs_with_symbols(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("mortice.output_code")
    logger.addHandler(caplog.handler)
    logger.setLevel(logging.INFO)
    try:
        compiled = mortice.compile(rows, backend="inductor", dynamic=True)
        compiled(mortice.ones(3, 8))
    finally:
        logger.setLevel(logging.NOTSET)
        logger.removeHandler(caplog.handler)
    assert "f32 [3, 8] strides [8, 1]" in caplog.text


def test_a_graph_that_is_not_compiled_says_so() -> None:
    compiled = mortice.compile(lambda x: x.nonzero(), backend="inductor")
    compiled(mortice.ones(3))
    for segment in compiled.segments:
        assert "operator by operator" in segment.module.meta["output_code"]()
