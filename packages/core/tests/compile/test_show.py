"""Logs and dumps of what was compiled."""

from __future__ import annotations

import pytest

import mortice
from mortice._capture.fake import FakeTensorMode
from mortice._capture.observer import decode as observer
from mortice._compile.front import _settings
from mortice._compile.segment import compile_segment
from mortice.fx import make_fx


class Result:
    output_code = "the code"
    fusion = "all of it"

    def __init__(self, gm):
        self.gm = gm

    def __call__(self, *inputs):
        return self.gm(*inputs)


def backend(gm, example_inputs):
    return Result(gm)


def train() -> None:
    x = mortice.ones(3, requires_grad=True)
    fake = FakeTensorMode().from_tensor(x)
    gm = make_fx(lambda x: (x.sin().cos(),))(fake.detach())
    run = compile_segment(gm, [fake], _settings(False, None, backend, None, None, None))
    run(x)[0].sum().backward()


def test_logs_say_what_was_compiled(capsys) -> None:
    with mortice.config.override(logs="graph,output_code=info"):
        from mortice._base.logging import configure

        configure()
        train()
    configure()
    said = capsys.readouterr().err
    assert "mortice.graph INFO: forward of 6 nodes for backend backend" in said
    assert "mortice.ops.aten.sin.default(" in said
    assert "mortice.graph INFO: backward of" in said
    assert "mortice.output_code INFO: backward of" in said
    assert "the code" in said
    assert "all of it" not in said


def test_texts_may_stand_in_the_graphs_meta(capsys, tmp_path) -> None:
    made = []

    def leaving(gm, example_inputs):
        gm.meta["output_code"] = lambda: made.append(1) or "made when wanted"
        return gm

    def run() -> None:
        mortice.compile(lambda x: x * 2, backend=leaving)(mortice.ones(3))

    run()
    assert made == []
    with mortice.config.override(dump=str(tmp_path)):
        run()
    (folder,) = tmp_path.iterdir()
    assert (folder / "output_code.txt").read_text() == "made when wanted"
    assert not (folder / "fusion.txt").exists()


def test_a_dump_that_cannot_be_written_names_the_setting(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with (
        mortice.config.override(dump=str(tmp_path / "file" / "graphs")),
        pytest.raises(mortice.errors.ConfigError, match=r"dump is '.*graphs' \(config.override\)"),
    ):
        mortice.compile(lambda x: x * 2, backend="eager")(mortice.ones(3))


def test_without_logs_nothing_is_said(capsys) -> None:
    train()
    assert capsys.readouterr() == ("", "")


def test_an_empty_variable_is_unset(site) -> None:
    code = "import mortice; print(mortice.config.logs, mortice.config.dump)"
    assert site.run(code, MORTICE_LOGS="", MORTICE_DUMP="").split() == ["None", "None"]


def test_dumps_hold_the_graphs(tmp_path) -> None:
    with mortice.config.override(dump=str(tmp_path)):
        train()
    parts = sorted(tmp_path.iterdir())
    assert [p.name.rpartition("-")[2] for p in parts] == ["forward", "backward"]
    assert "mortice.ops.aten.sin.default" in (parts[0] / "graph.py").read_text()
    assert "placeholder" in (parts[1] / "graph.txt").read_text()
    assert (parts[1] / "graph.svg").read_text().startswith("<svg")
    assert (parts[1] / "output_code.txt").read_text() == "the code"
    assert (parts[1] / "fusion.txt").read_text() == "all of it"


def test_verdicts_and_guards_are_logged(capsys) -> None:
    scale = 2.0
    log = []

    def pure(x):
        return x * scale

    def impure(x):
        log.append(1)
        return x * 2

    with mortice.config.override(logs="guards,replay"):
        from mortice._base.logging import configure

        configure()
        for fn in (pure, impure):
            compiled = mortice.compile(fn, backend="eager")
            for _ in range(3):
                compiled(mortice.ones(3))
        mortice.compile(pure, backend="eager")
    configure()
    said = capsys.readouterr().err
    if observer.support() is not None:
        assert "observing calls is not supported" in said
        return
    assert (
        "mortice.guards INFO: test_verdicts_and_guards_are_logged.<locals>.pure is replayed" in said
    )
    assert "args[0] is a mortice.float32 tensor of shape (3) on cpu" in said
    assert "impure: verdict: always run" in said
    assert "calls append() of a list made outside" in said
