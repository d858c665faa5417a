"""Results of the next call come from memory that is there, counted in page faults."""

from __future__ import annotations

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


FIRST = """
import resource
import mortice
from mortice_inductor.runtime.heap import PAGES
x = mortice.ones(768, 1024)
def f(x):
    a = x.softmax(1)
    b = mortice.softmax(a @ a.t(), 0)
    return a, b @ x, x - 3
f = mortice.compile(f, backend="inductor")
small = mortice.compile(lambda x: (x + 1).softmax(0), backend="inductor")
for _ in range(4):
    small(mortice.ones(8, 8))
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
out = f(x)
found = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(found, int(PAGES.dear))
"""


# Linux with one memory node, and not set to never: the test below says that they are asked for there.
huge = pytest.mark.skipif(heap._madvise() is None, reason="the system gives no huge pages")


def test_who_gives_huge_pages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    enabled, second = tmp_path / "enabled", tmp_path / "node1"
    monkeypatch.setattr(heap, "_ENABLED", str(enabled))
    monkeypatch.setattr(heap, "_SECOND_NODE", str(second))
    asked = heap._madvise.__wrapped__
    assert asked() is None
    enabled.write_text("always madvise [never]")
    assert asked() is None
    enabled.write_text("always [madvise] never")
    assert (asked() is not None) == sys.platform.startswith("linux")
    second.mkdir()
    assert asked() is None


@huge
# Other C libraries give memory back at once: there results fault in anew, whatever is asked of them.
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps what is freed")
def test_the_first_call_faults_in_huge_pages(tmp_path: Path) -> None:
    """Three results of 3 MiB and what is between kernels are 2,900 pages."""
    _run(FIRST, tmp_path)
    faults, dear = _run(FIRST, tmp_path)
    assert dear or faults < 900, faults  # dear: no huge page was free
    plain, _ = _run(FIRST, tmp_path, MALLOC_TOP_PAD_="131072")
    assert plain > 1400, plain  # results are left alone where somebody has set glibc up


@pytest.fixture
def advice(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """What is asked of the system, which gives it."""
    asked: list[tuple[int, int, int]] = []
    monkeypatch.setattr(heap, "_madvise", lambda: lambda *a: asked.append(a) or 0)
    return asked


@huge
def test_dear_pages_end_it(
    advice: list[tuple[int, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = iter([0.0, 0.0001, 0.0002, 0.1])
    monkeypatch.setattr(heap.time, "thread_time", lambda: next(ticks))
    pages, size = heap.HugePages(), 8 * heap.HUGE
    at = memory.new(size + heap.HUGE)
    first = heap._up(at)
    assert pages.touch(at, size + heap.HUGE) == 3
    assert pages.dear
    assert advice[0][0] == first
    assert advice[0][2] == 14
    assert advice[1] == (first + 3 * heap.HUGE, sum(advice[0][:2]) - first - 3 * heap.HUGE, 15)
    assert pages.touch(at, size) == pages.results(size) == 0
    monkeypatch.setattr(heap.np, "empty", None)  # which asks for huge pages itself
    assert pages.workspace(size).size == size
    assert len(advice) == 2
    memory.give_back(at, size + heap.HUGE)


@huge
def test_a_workspace_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    back: list[tuple[int, int]] = []
    give_back = memory.give_back
    monkeypatch.setattr(memory, "give_back", lambda *a: back.append(a) or give_back(*a))
    made = heap.HugePages().workspace(5 * heap.HUGE + 100)
    at = made.__array_interface__["data"][0]
    assert (made.size, at % heap.HUGE) == (5 * heap.HUGE + 100, 0)
    made[:] = 1
    part = made[5:]
    del made
    assert not back
    del part
    assert len(back) == 1
    assert back[0][0] <= at < sum(back[0])


def test_small_ones_are_as_they_were(advice: list[tuple[int, int, int]]) -> None:
    pages = heap.HugePages()
    assert pages.workspace(1000).base is None
    assert pages.workspace(heap.LEAST - 1).base is None  # one that is dear would cost more
    assert pages.results(heap.LEAST - 1) == pages.touch(64, heap.HUGE) == 0
    assert not advice


@huge
def test_memory_in_common_grows_in_place(advice: list[tuple[int, int, int]]) -> None:
    pages = heap.HugePages()
    assert pages.shared(heap.LITTLE - 1) is None
    assert pages.shared(heap.SHARED + 1) is None
    at = pages.shared(5 * heap.HUGE // 2)
    assert at is not None
    assert at % heap.HUGE == 0
    assert advice == [(at, 3 * heap.HUGE, 14)]
    assert pages.shared(heap.LITTLE) == at
    assert pages.shared(3 * heap.HUGE + 100) == at  # the rest is not worth a huge page
    assert len(advice) == 1
    assert pages.shared(4 * heap.HUGE) == at
    assert advice[1:] == [(at + 3 * heap.HUGE, heap.HUGE, 14)]


FORKED = """
import os
from mortice_inductor.runtime.heap import PAGES
PAGES.busy.value = 1
child = os.fork()
if not child:
    os._exit(PAGES.busy.value)
print(os.waitpid(child, 0)[1], PAGES.busy.value)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork(2)")
def test_in_a_child_process_nobody_is_at_work(tmp_path: Path) -> None:
    """The thread that was is its parent's."""
    assert _run(FORKED, tmp_path) == [0, 1]
