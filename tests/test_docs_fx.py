"""docs/fx.md: its samples run, one after the other, and its messages are what is said."""

import re
from pathlib import Path

import pytest

import mortice
from mortice.errors import InputGuardError


def test_samples_run(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (root / "docs" / "fx.md").read_text(encoding="utf-8")
    samples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(samples) == 4
    scope: dict[str, object] = {"__name__": "sample"}
    exec("\n".join(samples), scope)
    assert "s0 = x.shape[0]" in capsys.readouterr().out
    x, w = scope["x"], scope["w"]
    for found, expected in zip(scope["gm"](x, w), scope["f"](x, w)):
        assert found.shape == expected.shape
    with pytest.raises(InputGuardError) as told:
        scope["module"](mortice.randn(5, 4), mortice.randn(9, 4))
    assert str(told.value).rstrip(".") in text
