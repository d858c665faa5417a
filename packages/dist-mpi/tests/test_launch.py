"""``mortice run --engine mpi``: mpiexec starts the ranks; a death is told, and the gang restarted."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from mortice_testing.distributed.faults import mpiexec
from mortice_testing.distributed.shared_memory import nothing_left

SCRIPT = """
import os, signal, sys
import mortice, mortice.distributed as dist
dist.init_process_group("mpi", timeout=60)
t = mortice.ones(3) * (dist.get_rank() + 1)
dist.all_reduce(t)
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
# In one piece: mpiexec passes on what it gets, and the ranks' pieces would mix.
os.write(1, f"sum {t[0].item()} attempt {attempt}\\n".encode())
if sys.argv[1:] == ["die"] and dist.get_rank() == 1:
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
dist.all_reduce(t)
dist.destroy_process_group()
"""


def run(tmp_path: Path, *arguments: str, script: str = SCRIPT) -> tuple[int, str, str]:
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(script))
    program, _ = mpiexec()
    engine = ["--engine", "mpi", "--engine-option", f"mpiexec={program}", "--grace", "60"]
    options, rest = [a for a in arguments if a != "die"], [a for a in arguments if a == "die"]
    done = subprocess.run(
        [sys.executable, "-m", "mortice", "run", *engine, *options, str(path), *rest],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_ranks(tmp_path: Path) -> None:
    status, out, err = run(tmp_path, "-n", "3")
    assert (status, out.count("sum 6.0 attempt 0")) == (0, 3), err


def test_restart(tmp_path: Path) -> None:
    with nothing_left():
        status, out, err = run(tmp_path, "-n", "2", "--max-restarts", "1", "die")
    assert status == 0, err
    assert out.count("sum 3.0 attempt 1") == 2
    assert "rank 1 ended with signal SIGKILL" in err
    assert "rank 1 ended" in err.partition("DistBackendError")[2]  # what rank 0 was told


def test_status(tmp_path: Path) -> None:
    status, _, err = run(
        tmp_path, "-n", "2", script="import sys, os; sys.exit(int(os.environ['RANK']) * 7)"
    )
    assert status == 7
    assert "status 7" in err


def test_no_mpiexec(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text("")
    options = ["--engine", "mpi", "--engine-option", "mpiexec=/nonexistent/mpiexec"]
    done = subprocess.run(
        [sys.executable, "-m", "mortice", "run", *options, str(path)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "no mpiexec at /nonexistent/mpiexec. pip install mpich" in done.stderr
