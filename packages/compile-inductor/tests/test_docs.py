"""The examples of the documentation run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "inductor.md"
BLOCKS = re.findall(
    r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)


@pytest.mark.parametrize("code", [b for b in BLOCKS if "mylib" not in b])
def test_examples(code: str) -> None:
    exec(compile("import mortice\n" + code, "documentation", "exec"), {})


def test_options_are_all_listed() -> None:
    from mortice_inductor import config

    text = PAGE.read_text(encoding="utf-8")
    for name in config.names():
        assert f"`{name}`" in text, name
