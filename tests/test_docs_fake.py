"""docs/fake.md runs."""

from __future__ import annotations

import re
from pathlib import Path


def test_examples_run(root: Path) -> None:
    text = (root / "docs" / "fake.md").read_text(encoding="utf-8")
    scope: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        exec(compile(block, "docs/fake.md", "exec"), scope)
