"""The engine slurm against a real Slurm: munged, slurmctld and slurmd, for these tests alone."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mortice_testing.distributed.gang import held_port
from mortice_testing.distributed.waiting import PATIENCE, alive, until

pytestmark = [pytest.mark.system, pytest.mark.timeout(1000)]

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo", "squeue")

# One node, this machine; no cgroups, which a container may not let us have.
CONFIGURATION = """\
ClusterName=mortice
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def ended(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The variables by which Slurm's commands find this Slurm."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if sys.platform != "linux" or os.geteuid() != 0 or missing:
        pytest.skip("needs Linux, root and: apt install slurmd slurmctld slurm-client munge")
    folder = tmp_path_factory.mktemp("slurm")
    (folder / "spool").mkdir()
    key = folder / "munge.key"
    key.touch(0o600)
    key.write_bytes(os.urandom(64))
    configuration = folder / "slurm.conf"
    host = socket.gethostname().partition(".")[0]
    environment = {**os.environ, "SLURM_CONF": str(configuration)}

    def asked(*command: str) -> str:
        answer = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        return answer.stdout.strip()

    munged = ["munged", "--foreground", "--force", f"--key-file={key}",
              f"--socket={folder}/munge.socket", f"--pid-file={folder}/munge.pid",
              f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed"]  # fmt: skip
    with ExitStack() as stack:
        ports = [stack.enter_context(held_port()).getsockname()[1] for _ in range(2)]
        configuration.write_text(
            CONFIGURATION.format(host=host, folder=folder, ports=ports), encoding="utf-8"
        )

        def started(*command: str) -> None:
            output = stack.enter_context(open(folder / f"{command[0]}.out", "wb"))
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
            )
            stack.callback(ended, process)

        started(*munged)
        until((folder / "munge.socket").exists, "munged's socket")
        started("slurmctld", "-D", "-f", str(configuration))
        started("slurmd", "-D", "-f", str(configuration), "-N", host)
        until(lambda: asked("sinfo", "-h", "-o", "%T") == "idle", "an idle node")
        yield environment
        until(lambda: not asked("squeue", "-h"), "an empty queue")


SCRIPT = """
import os, signal, sys, time
import mortice, mortice.distributed as dist

rank, attempt = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
dist.init_process_group("gloo", timeout=100)
t = mortice.ones(4)
dist.all_reduce(t)
print(f"sum {t[0].item():g} in attempt {attempt} as task", os.environ["SLURM_PROCID"], flush=True)
with open(f"{attempt}.{rank}.new", "w") as file:
    file.write(str(os.getpid()))
os.rename(f"{attempt}.{rank}.new", f"{attempt}.{rank}")
if attempt == "0" and sys.argv[1] == "wait":
    time.sleep(1000)
if attempt == "0" and sys.argv[1] == "fail" and rank == "1":
    sys.exit(7)
dist.destroy_process_group()
"""


class Run:
    """``mortice run --engine slurm -n 2`` of SCRIPT, in a folder of its own."""

    def __init__(self, folder: Path, slurm: dict[str, str], *options: str, doing: str) -> None:
        script = folder / "script.py"
        script.write_text(textwrap.dedent(SCRIPT), encoding="utf-8")
        command = [sys.executable, "-m", "mortice", "run", "--engine", "slurm", "-n", "2"]
        self.folder = folder
        self.child = subprocess.Popen(
            [*command, *options, str(script), doing],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=slurm,
        )

    def pid(self, rank: int) -> int:
        """A rank's process in the first attempt, once it is at work."""
        path = self.folder / f"0.{rank}"
        until(lambda: path.exists() or self.child.poll() is not None, f"rank {rank}'s start")
        assert path.exists(), self.child.communicate()
        return int(path.read_text())

    def finish(self) -> tuple[int, str, str]:
        out, err = self.child.communicate(timeout=PATIENCE)
        return self.child.returncode, out, err


Start = Callable[..., Run]


@pytest.fixture
def start(slurm: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    """Start a run; it is ended with the test."""
    made: list[Run] = []

    def begin(*options: str, doing: str) -> Run:
        made.append(Run(tmp_path, slurm, *options, doing=doing))
        return made[-1]

    yield begin
    for run in made:
        run.child.kill()
        run.child.communicate()


def test_ranks_are_tasks(start: Start) -> None:
    status, out, err = start(doing="pass").finish()
    assert status == 0, err
    assert sorted(out.splitlines()) == [
        f"{rank}: sum 2 in attempt 0 as task {rank}" for rank in (0, 1)
    ]


def test_the_status_is_that_of_the_rank_that_failed(start: Start) -> None:
    status, _, err = start(doing="fail").finish()
    assert status == 7, err
    assert "rank 1 ended with status 7" in err


def test_a_killed_rank_restarts_the_gang(start: Start) -> None:
    run = start("--max-restarts", "1", "--grace", "3", doing="wait")
    first = [run.pid(rank) for rank in (0, 1)]
    os.kill(first[1], signal.SIGKILL)
    status, out, err = run.finish()
    assert status == 0, err
    assert "rank 1 ended with signal SIGKILL" in err
    assert out.count("sum 2 in attempt 1") == 2, out
    until(lambda: not any(map(alive, first)), "the end of the first attempt's ranks")


def test_a_signal_ends_the_job(start: Start) -> None:
    run = start("--grace", "3", doing="wait")
    ranks = [run.pid(rank) for rank in (0, 1)]
    run.child.send_signal(signal.SIGTERM)
    status, _, err = run.finish()
    assert status == 128 + signal.SIGTERM, err
    until(lambda: not any(map(alive, ranks)), "the ranks' end")
