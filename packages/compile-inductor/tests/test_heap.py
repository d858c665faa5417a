"""Results of the next call come from memory that is there, counted in page faults."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import resource
import mortice
f = mortice.compile(lambda x: (x + 1, x * 2, x - 3), backend="inductor")
x = mortice.ones(512, 1024)
for _ in range(8):
    f(x)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    f(x)
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 20)
"""


def _faults(cache: Path, **more: str) -> float:
    env = {k: v for k, v in os.environ.items() if "MALLOC" not in k and k != "GLIBC_TUNABLES"}
    env |= {"MORTICE_CACHE_DIR": str(cache), "MORTICE_NUM_THREADS": "1", **more}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has such thresholds")
def test_results_of_the_next_call_do_not_fault_in(tmp_path: Path) -> None:
    """Three results of 2 MiB are 1536 pages."""
    assert _faults(tmp_path) < 100
    assert _faults(tmp_path, MALLOC_TRIM_THRESHOLD_="131072") > 300  # who has set it is obeyed
