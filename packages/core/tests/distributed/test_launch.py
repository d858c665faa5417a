"""``mortice run``: real processes, real signals."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mortice.distributed.launch import adopt, tethered
from mortice_testing.distributed.gang import held_port
from mortice_testing.distributed.waiting import alive
from mortice_testing.distributed.words import Words

# Seconds that end a hang, and measure nothing: less than what a test may take.
PATIENCE = 100.0

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and sessions are POSIX's")


class Runs:
    """Starts ``mortice run`` in a folder of its own, and knows every rank's process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pids = folder / "pids"
        self.pids.mkdir()
        self.words = folder / "words"
        self.words.mkdir()
        self.started: list[subprocess.Popen[str]] = []

    def script(self, text: str) -> str:
        head = f"""
        import os, sys, time, signal
        rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        open({str(self.pids)!r} + f"/{{os.getpid()}}", "w").close()
        # What ranks tell each other, and the test: who is quicker must not matter.
        def tell(word):
            open(os.path.join({str(self.words)!r}, word), "w").close()
        def hear(*words):
            while not all(os.path.exists(os.path.join({str(self.words)!r}, w)) for w in words):
                time.sleep(0.01)
        """
        path = self.folder / "script.py"
        path.write_text(textwrap.dedent(head) + textwrap.dedent(text))
        return str(path)

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-m", "mortice", "run", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={**os.environ, **environment},
        )
        self.started.append(child)
        return child

    def run(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        return self.finish(self.start(*arguments, **environment))

    def finish(self, child: subprocess.Popen[str]) -> tuple[int, str, str]:
        out, err = child.communicate(timeout=PATIENCE)
        return child.returncode, out, err

    def hear(self, *words: str) -> None:
        """Wait until ranks have told these words."""
        Words(str(self.words)).hear(*words)

    def left(self) -> list[int]:
        """Ranks that are still alive, after a while in which they may end."""
        end = time.monotonic() + 30
        while True:
            there = [int(p.name) for p in self.pids.iterdir() if alive(int(p.name))]
            if not there or time.monotonic() > end:
                return there
            time.sleep(0.05)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    made = Runs(tmp_path)
    yield made
    for child in made.started:
        if child.poll() is None:
            child.kill()
            child.communicate()
    left = made.left()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, "a rank outlived its launcher"


# -- what ranks are told -------------------------------------------------------------------------


def test_variables_and_output(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    script = runs.script("""
        names = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
                 "GROUP_WORLD_SIZE", "MASTER_ADDR", "TORCHELASTIC_RUN_ID", "OMP_NUM_THREADS")
        print(*(os.environ[name] for name in names), sys.argv[1:])
        print("to stderr", file=sys.stderr)
    """)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    status, out, err = runs.run("-n", "2", "--rdzv-id", "me", script, "a", "--b", "-n", "7")
    assert status == 0
    assert sorted(out.splitlines()) == [
        f"[{rank}] {rank} {rank} 0 2 2 1 127.0.0.1 me 1 ['a', '--b', '-n', '7']" for rank in (0, 1)
    ]
    assert sorted(err.splitlines()) == ["[0] to stderr", "[1] to stderr"]


def test_one_rank_has_no_prefix(runs: Runs) -> None:
    assert runs.run(runs.script("print('alone', end='')"))[:2] == (0, "alone\n")


def test_modules_and_programs(runs: Runs) -> None:
    (runs.folder / "package.py").write_text("import os; print('module', os.environ['RANK'])")
    assert runs.run("-m", "package")[:2] == (0, "module 0\n")
    assert runs.run("--no-python", "sh", "-c", "echo program $RANK")[:2] == (0, "program 0\n")


def test_logs(runs: Runs) -> None:
    script = runs.script("""
        print("out", rank)
        print("err", rank, file=sys.stderr)
        sys.exit(rank if attempt == 0 else 0)
    """)
    status, _, err = runs.run("-n", "2", "--max-restarts", "1", "--log-dir", "logs", script)
    assert status == 0
    log = os.path.join("logs", "attempt_0", "rank_1", "stderr.log")
    assert f"the others are ended; its output is in {log}\n" in err
    for attempt in (0, 1):
        folder = runs.folder / "logs" / f"attempt_{attempt}" / "rank_1"
        assert (folder / "stdout.log").read_text() == "out 1\n"
        assert (folder / "stderr.log").read_text() == "err 1\n"


# -- failures ------------------------------------------------------------------------------------


def test_the_status_is_that_of_the_rank_that_failed(runs: Runs) -> None:
    script = runs.script("""
        if rank == 1:
            sys.exit(7)
        time.sleep(600)
    """)
    status, _, err = runs.run("-n", "3", script)
    assert status == 7
    assert "rank 1 (process" in err
    assert "status 7" in err


def test_a_signal_is_told(runs: Runs) -> None:
    script = runs.script("""
        if rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(600)
    """)
    status, _, err = runs.run("-n", "2", script)
    assert status == 128 + signal.SIGKILL
    assert "signal SIGKILL" in err


def test_the_gang_is_restarted(runs: Runs) -> None:
    script = runs.script("""
        print("attempt", attempt, flush=True)
        tell(f"printed-{attempt}-{rank}")
        if attempt < 2 and rank == 1:
            hear(f"printed-{attempt}-0")
            sys.exit(3)
        if attempt < 2:
            time.sleep(600)
    """)
    status, out, err = runs.run("-n", "2", "--max-restarts", "3", script)
    assert status == 0
    assert [out.count(f"attempt {k}") for k in range(4)] == [2, 2, 2, 0]
    assert "restart 1 of 3" in err
    assert "restart 2 of 3" in err


def test_restarts_have_a_limit(runs: Runs) -> None:
    status, _, err = runs.run("--max-restarts", "1", runs.script("sys.exit(4 + attempt)"))
    assert status == 5
    assert "restart 1 of 1" in err


def test_what_ignores_being_asked_is_killed(runs: Runs) -> None:
    script = runs.script("""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        tell(f"ignores-{rank}")
        if rank == 0:
            hear("ignores-1")
            sys.exit(1)
        time.sleep(600)
    """)
    status, _, _ = runs.run("-n", "2", "--grace", "0.5", script)
    assert status == 1


def test_what_ranks_started_ends_with_them(runs: Runs) -> None:
    script = runs.script(f"""
        child = os.fork()
        if child == 0:
            open({str(runs.pids)!r} + f"/{{os.getpid()}}", "w").close()
            tell("started")
            time.sleep(600)
        hear("started")
        sys.exit(2)
    """)
    assert runs.run(script)[0] == 2
    assert len(list(runs.pids.iterdir())) == 2


# -- signals to the launcher ---------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_passed_on(runs: Runs, number: signal.Signals) -> None:
    script = runs.script(f"""
        def bye(number, frame):
            print("bye", number)
            sys.exit(0)
        signal.signal({int(number)}, bye)
        tell(f"ready-{{rank}}")
        time.sleep(600)
    """)
    child = runs.start("-n", "2", "--grace", "60", script)
    runs.hear("ready-0", "ready-1")
    child.send_signal(number)
    status, out, _ = runs.finish(child)
    assert status == 128 + number
    assert out.count(f"bye {int(number)}") == 2


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the tether is Linux's")
def test_ranks_end_with_a_launcher_that_is_killed(runs: Runs) -> None:
    child = runs.start("-n", "2", runs.script("tell(str(rank)); time.sleep(600)"))
    runs.hear("0", "1")
    child.kill()
    child.communicate()
    assert runs.left() == []


# -- groups --------------------------------------------------------------------------------------

GROUP = """
    import mortice, mortice.distributed as dist
    dist.init_process_group("fake", timeout=60)
    assert dist.get_rank() == rank
    assert dist.is_torchelastic_launched()
    dist.monitored_barrier(timeout=60)
    size = dist.get_world_size()
    os.write(1, f"group of {size}\\n".encode())  # in one piece: ranks of srun share the pipe
    tell(f"printed-{attempt}-{rank}")
    if attempt == 0 and len(sys.argv) > 1 and rank == 1:
        hear(*(f"printed-0-{other}" for other in range(size)))
        os.kill(os.getpid(), signal.SIGKILL)
    dist.destroy_process_group()
"""


def test_ranks_make_a_group(runs: Runs) -> None:
    status, out, err = runs.run("-n", "3", runs.script(GROUP))
    assert (status, out.count("group of 3")) == (0, 3), err


def test_a_group_after_a_restart(runs: Runs) -> None:
    status, out, err = runs.run("-n", "2", "--max-restarts", "1", runs.script(GROUP), "die")
    assert status == 0, err
    assert out.count("group of 2") == 4


def two_nodes(runs: Runs, *arguments: str) -> list[tuple[int, str, str]]:
    with held_port() as held:
        port = str(held.getsockname()[1])
        common = ("-n", "2", "--nnodes", "2", "--master-port", port)
        nodes = [runs.start(*common, "--node-rank", str(node), *arguments) for node in (0, 1)]
        return [runs.finish(node) for node in nodes]


def test_two_nodes(runs: Runs) -> None:
    """Two supervisors, as on two machines: one gang, restarted together."""
    results = two_nodes(runs, "--max-restarts", "1", runs.script(GROUP), "die")
    assert [status for status, _, _ in results] == [0, 0], results
    assert sum(out.count("group of 4") for _, out, _ in results) == 8
    assert all("rank 1 (process" in err for _, _, err in results)


def test_two_nodes_fail_together(runs: Runs) -> None:
    script = runs.script("""
        if rank == 3:
            sys.exit(9)
        time.sleep(600)
    """)
    assert [status for status, _, _ in two_nodes(runs, script)] == [9, 9]


# -- engines -------------------------------------------------------------------------------------


def test_mistakes(runs: Runs) -> None:
    status, _, err = runs.run("--engine", "slrm", "x.py")
    assert status == 2
    assert "slurm" in err
    assert runs.run("--nnodes", "2", "x.py")[0] == 2
    assert runs.run("-n", "0", "x.py")[0] == 2
    assert runs.run("--engine", "mpi", "--engine-option", "nonsense", "x.py")[0] == 2


def srun(folder: Path) -> Path:
    """A srun that does what srun does with these options, on this machine."""
    path = folder / "bin" / "srun"
    path.parent.mkdir()
    path.write_text(
        textwrap.dedent(f"""\
        #!{sys.executable}
        import os, subprocess, sys
        options, command = {{}}, sys.argv[1:]
        while command[0].startswith("--"):
            name, _, value = command.pop(0)[2:].partition("=")
            options[name] = value
        open({str(folder / "srun-options")!r}, "w").write(repr(options))
        count = int(options["ntasks"])
        ranks = [
            subprocess.Popen(command, env={{
                **os.environ, "SLURM_PROCID": str(k),
                "SLURM_LOCALID": str(k % int(options["ntasks-per-node"])),
            }})
            for k in range(count)
        ]
        sys.exit(max(rank.wait() for rank in ranks))
        """)
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_slurm(runs: Runs) -> None:
    path = f"{srun(runs.folder).parent}{os.pathsep}{os.environ['PATH']}"
    script = runs.script(GROUP)
    options = ("--engine", "slurm", "-n", "2", "--engine-option", "partition=big")
    status, out, err = runs.run(*options, script, PATH=path)
    assert (status, out.count("group of 2")) == (0, 2), err
    given: dict[str, Any] = eval((runs.folder / "srun-options").read_text())
    assert {k: given[k] for k in ("nodes", "ntasks", "ntasks-per-node", "partition")} == {
        "nodes": "1", "ntasks": "2", "ntasks-per-node": "2", "partition": "big",
    }  # fmt: skip
    assert given["kill-on-bad-exit"] == "0"
    assert "MASTER_PORT" in given["export"]


def test_slurm_restarts(runs: Runs) -> None:
    path = f"{srun(runs.folder).parent}{os.pathsep}{os.environ['PATH']}"
    options = ("--engine", "slurm", "-n", "2", "--max-restarts", "1", "--grace", "1")
    status, _, err = runs.run(*options, runs.script(GROUP), "die", PATH=path)
    assert status == 0, err
    assert "rank 1 ended with signal SIGKILL" in err


def test_slurm_is_not_there(runs: Runs) -> None:
    status, _, err = runs.run("--engine", "slurm", "x.py", PATH=str(runs.folder))
    assert status == 1
    assert "no srun" in err
    assert "apt install" in err


def test_a_launcher_that_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for rank, local in adopt._NUMBERS:
        monkeypatch.delenv(rank, raising=False)
        monkeypatch.delenv(local, raising=False)
    with pytest.raises(SystemExit, match="does not know who it is"):
        adopt.numbers()
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "5")
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert adopt.numbers() == (5, 1)
    assert adopt.variables(5, 1) == {
        "RANK": "5", "ROLE_RANK": "5", "LOCAL_RANK": "1", "GROUP_RANK": "1",
    }  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="ranks are tethered on Linux alone")
def test_a_program_that_is_not_where_a_rank_starts() -> None:
    """What engines that start ranks elsewhere cannot know beforehand."""
    child = subprocess.run(
        tethered(["no-such-program", "x"]), capture_output=True, text=True, check=False
    )
    assert child.returncode == 127
    said = "mortice run: no-such-program cannot be started: No such file or directory\n"
    assert child.stderr == said


# -- what is refused before any rank starts ------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--nprocc", "3", "X"], "No such option --nprocc. Did you mean '--nproc-per-node'?"),
        (["--nproc_per_node=3", "X"], "Did you mean '--nproc-per-node'?"),
        (["--logdir", "a", "X"], "No such option --logdir. Did you mean '--log-dir'?"),
        (["--zzz", "X"], "No such option --zzz. `mortice run --help` lists them."),
        (["nofile.py"], "There is no script 'nofile.py' in "),
        (["-m", "no_such_module.part"], "There is no module 'no_such_module.part'"),
        (["--no-python", "no-such-program"], "There is no program 'no-such-program'"),
        (["--engine-option", "foo=1", "X"], "'local' has no option 'foo'. It takes none."),
        (["--engine", "mpi", "--engine-option", "host=a", "X"], "Did you mean 'hosts'?"),
        (["--engine", "slrm", "X"], "mortice: no launch engine 'slrm' is installed."),
        (["--log-dir", "X/logs", "X"], "--log-dir X/logs cannot be made"),
    ],
)
def test_what_is_refused(runs: Runs, arguments: list[str], said: str) -> None:
    (runs.folder / "X").write_text("print('a rank started')")
    status, out, err = runs.run("-n", "2", *arguments)
    assert (status, out) == (2, "")
    assert err.count(said) == 1
    assert "Traceback" not in err


def test_what_the_script_takes_is_its_own(runs: Runs) -> None:
    script = runs.script("print(sys.argv[1:])")
    assert runs.run(script, "--nprocc", "3", "-n", "--zzz=1")[:2] == (
        0,
        "['--nprocc', '3', '-n', '--zzz=1']\n",
    )


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("-n", "0"), ("--nnodes", "0"), ("--node-rank", "-1"), ("--node-rank", "1"),
        ("--master-port", "99999"), ("--master-port", "-1"), ("--max-restarts", "-1"),
        ("--grace", "-1"), ("--grace", "soon"),
    ],
)  # fmt: skip
def test_numbers_out_of_range_are_usage_errors(runs: Runs, option: str, value: str) -> None:
    status, out, err = runs.run(option, value, runs.script("print('ran')"))
    assert (status, out) == (2, "")
    assert option in err
    assert value in err


def test_an_abort_has_a_hint(runs: Runs) -> None:
    status, _, err = runs.run(runs.script("os.abort()"))
    assert status == 128 + signal.SIGABRT
    assert "MORTICE_DISTRIBUTED_DEBUG=1" in err
