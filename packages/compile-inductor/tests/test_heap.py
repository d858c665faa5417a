"""Results of the next call come from memory that is there, counted in page faults."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from mortice_inductor.runtime import heap
from mortice_llvm.runtime import memory

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


def _run(program: str, cache: Path, **more: str) -> list[float]:
    env = {k: v for k, v in os.environ.items() if "MALLOC" not in k and k != "GLIBC_TUNABLES"}
    env |= {"MORTICE_CACHE_DIR": str(cache), "MORTICE_NUM_THREADS": "1", **more}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [float(word) for word in done.stdout.split()]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has such thresholds")
def test_results_of_the_next_call_do_not_fault_in(tmp_path: Path) -> None:
    """Three results of 2 MiB are 1536 pages."""
    assert _run(PROGRAM, tmp_path)[0] < 100
    assert (
        _run(PROGRAM, tmp_path, MALLOC_TRIM_THRESHOLD_="131072")[0] > 300
    )  # who has set it is obeyed


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere each graph has its own")
def test_graphs_have_memory_in_common() -> None:
    common = heap.Common()
    assert common.room(heap.LITTLE - 1) is None
    assert common.room(heap.ROOM + 1) is None
    at = common.room(heap.LITTLE)
    assert at is not None
    assert at % 4096 == 0
    assert common.room(heap.ROOM) == at
    ctypes.memset(at, 1, heap.ROOM)
    memory.give_back(at, heap.ROOM)


FORKED = """
import os
from mortice_inductor.runtime.heap import COMMON
COMMON.busy.value = 1
child = os.fork()
if not child:
    os._exit(COMMON.busy.value)
print(os.waitpid(child, 0)[1], COMMON.busy.value)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork(2)")
def test_in_a_child_process_nobody_is_at_work(tmp_path: Path) -> None:
    """The thread that was is its parent's."""
    assert _run(FORKED, tmp_path) == [0, 1]
