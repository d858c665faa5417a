"""The tour in docs/ is a program whose claims are assertions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOUR = Path(__file__).parents[1] / "docs" / "tour.py"


@pytest.mark.timeout(600)
def test_every_claim_of_the_tour_holds() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(TOUR)],
        capture_output=True,
        text=True,
        timeout=590,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "every claim held" in done.stdout
