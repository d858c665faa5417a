"""Compiled functions whose graphs are interpreted: what is tested here is the recording."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from mortice._capture.compiled import Compiled
from mortice._capture.interpret import by_operator
from mortice._compile.settings import Settings

sys.path.insert(0, str(Path(__file__).parent))


def interpreted(module: Any, example_inputs: Any, settings: Any) -> Any:
    module.graph.lint()
    return by_operator(module)


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
        compiled = Compiled(fn, settings)
        compiled.replay = None  # every call is recorded
        return compiled

    return make
