"""The demo on two processes: one process's losses, and the accuracy that is promised."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(600)
def test_two_processes(root: Path) -> None:
    script = root / "examples" / "demo_distributed.py"
    command = [sys.executable, "-m", "mortice", "run", "-n", "2", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=590, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    difference = re.search(r"largest difference (\S+)", done.stdout)
    accuracy = re.search(r"test accuracy (\S+)", done.stdout)
    assert difference
    assert float(difference[1]) <= 1e-5
    assert accuracy
    assert float(accuracy[1]) >= 0.97
