"""docs/devices.md: its table is what is so, and its sample runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path


def test_the_table_promises_no_more_than_is_so(root: Path) -> None:
    """For the devices that every environment has; the others' columns have tests beside them."""
    script = str(root / "docs" / "devices_table.py")
    done = subprocess.run(
        [sys.executable, script, "--check", "cpu", "ref", "null"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_number_is_seen(root: Path, tmp_path: Path) -> None:
    script = (root / "docs" / "devices_table.py").read_text(encoding="utf-8")
    page = (root / "docs" / "devices.md").read_text(encoding="utf-8")
    (tmp_path / "devices_table.py").write_text(script, encoding="utf-8")
    found = re.search(r"\| all \| (\d+) \| \1 / 0 \|", page)
    assert found
    n = int(found[1])
    more = page.replace(f"| {n} / 0 |", f"| {n + 1} / 0 |")
    (tmp_path / "devices.md").write_text(more, encoding="utf-8")
    command = [sys.executable, str(tmp_path / "devices_table.py")]
    done = subprocess.run([*command, "--check", "cpu"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == f"all on cpu: {n} / 0, written {n + 1} / 0\n"
    subprocess.run([*command, "cpu"], check=True)
    assert (tmp_path / "devices.md").read_text(encoding="utf-8") == page
