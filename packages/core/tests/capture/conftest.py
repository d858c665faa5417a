"""Compiled functions whose graphs are interpreted: what is tested here is the recording."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import mortice
from mortice._capture.compiled import Compiled
from mortice._compile.settings import Settings
from mortice.fx import Interpreter, Node

sys.path.insert(0, str(Path(__file__).parent))


class ByOperator(Interpreter):
    """Runs a graph in eager, with history where the recording had it."""

    def run_node(self, n: Node) -> Any:
        with mortice.set_grad_enabled(bool(n.meta.get("grad"))):
            return super().run_node(n)


def interpreted(module: Any, example_inputs: Any, settings: Any) -> Any:
    module.graph.lint()
    return lambda *inputs: ByOperator(module).run(*inputs)


@pytest.fixture
def compile():
    """``compile(fn, **settings)``: a Compiled that interprets its graphs."""

    def make(fn: Any, **given: Any) -> Compiled:
        settings = Settings(
            backend=lambda *a, **k: None,
            backend_name="interpreted",
            compile_segment=given.pop("compile_segment", interpreted),
            **given,
        )
        return Compiled(fn, settings)

    return make
