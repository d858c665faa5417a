"""``mortice run --engine ray`` on a real cluster of three nodes on this machine; real kills."""

from __future__ import annotations

import importlib.util
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mortice_testing.distributed.gang import held_port
from mortice_testing.distributed.waiting import PATIENCE, alive, until

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="pip install ray"),
    pytest.mark.timeout(1000),
]


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    # Not pytest's folder: the paths of Ray's sockets would be too long.
    folder = tempfile.mkdtemp(prefix="mr-")
    yield {
        **os.environ,
        "RAY_TMPDIR": folder,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
    }
    shutil.rmtree(folder, ignore_errors=True)


def node(stack: ExitStack, environment: dict[str, str], log: Path, *options: str) -> None:
    """Start a node, in a process group of its own; returns when it is part of the cluster."""
    program = str(Path(sys.executable).parent / "ray")
    output = stack.enter_context(log.open("wb"))
    process = subprocess.Popen(
        [program, "start", "--block", "--node-ip-address=127.0.0.1", "--num-cpus=2", *options],
        stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment,
        start_new_session=True,
    )  # fmt: skip
    stack.callback(end_node, process)
    until(
        lambda: b"Ray runtime started" in log.read_bytes() or process.poll() is not None,
        "a node's start",
    )
    assert process.poll() is None, log.read_text()


def end_node(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


@pytest.fixture(scope="module")
def cluster(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster."""
    logs = tmp_path_factory.mktemp("nodes")
    head = ("--head", "--port=0", "--include-dashboard=false")
    with ExitStack() as stack:
        node(stack, environment, logs / "head", *head, f"--temp-dir={environment['RAY_TMPDIR']}")
        told = re.search(r"--address='\S+:(\d+)'", (logs / "head").read_text())
        assert told, (logs / "head").read_text()
        address = f"127.0.0.1:{told[1]}"
        # One after the other: together they may choose the same port.
        for name in ("second", "third"):
            node(stack, environment, logs / name, f"--address={address}")
        yield address


SCRIPT = """
import os, signal, sys, time
import mortice, mortice.distributed as dist

rank, attempt = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"]
names = ("LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
dist.init_process_group("fake", timeout=200)
dist.monitored_barrier(timeout=200)

def bye(number, frame):
    print("bye", number, flush=True)
    os._exit(0)

signal.signal(signal.SIGTERM, bye)
print("attempt", attempt, *(os.environ[name] for name in names), flush=True)
print("to stderr", file=sys.stderr, flush=True)
with open(f"{attempt}.{rank}.new", "w") as file:
    file.write(f"{os.getpid()} {os.getppid()}")
os.rename(f"{attempt}.{rank}.new", f"{attempt}.{rank}")
if attempt == "0" and sys.argv[1] == "fail" and rank == 1:
    while not os.path.exists("0.0"):
        time.sleep(0.01)
    sys.exit(7)
if attempt == "0" and sys.argv[1] in ("wait", "fail"):
    time.sleep(1000)
dist.destroy_process_group()
"""


class Run:
    """``mortice run --engine ray`` of SCRIPT, in a folder of its own."""

    def __init__(
        self, folder: Path, environment: dict[str, str], *options: str, doing: str
    ) -> None:
        script = folder / "script.py"
        script.write_text(SCRIPT, encoding="utf-8")
        command = [sys.executable, "-m", "mortice", "run", "--engine", "ray", "--grace", "5"]
        self.folder = folder
        self.child = subprocess.Popen(
            [*command, *options, str(script), doing], cwd=folder, env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def pids(self, rank: int) -> tuple[int, int]:
        """(process of a rank, of its actor) in the first attempt, once it is at work."""
        path = self.folder / f"0.{rank}"
        until(lambda: path.exists() or self.child.poll() is not None, f"rank {rank}'s start")
        assert path.exists(), self.child.communicate()
        pid, actor = map(int, path.read_text().split())
        return pid, actor

    def finish(self) -> tuple[int, str, str]:
        out, err = self.child.communicate(timeout=PATIENCE)
        return self.child.returncode, out, err


Start = Callable[..., Run]


@pytest.fixture
def alone(environment: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    """Start a run; it is ended with the test."""
    made: list[Run] = []

    def start(*options: str, doing: str) -> Run:
        made.append(Run(tmp_path, environment, *options, doing=doing))
        return made[-1]

    yield start
    for run in made:
        run.child.kill()
        run.child.communicate()


@pytest.fixture
def start(alone: Start, cluster: str) -> Start:
    """Start a run on the cluster."""

    def begin(*options: str, doing: str) -> Run:
        return alone("--engine-option", f"address={cluster}", *options, doing=doing)

    return begin


def test_a_ray_of_its_own(alone: Start, tmp_path: Path) -> None:
    """Where there is no cluster; more ranks than cores are no matter."""
    count = (os.cpu_count() or 1) + 1
    options = ("--engine-option", "address=local", "-n", str(count), "--log-dir", "logs")
    status, out, err = alone(*options, doing="pass").finish()
    assert status == 0, err
    lines = [f"attempt 0 {k} 0 {count} {count}" for k in range(count)]
    assert sorted(out.splitlines()) == sorted(f"[{k}] {line}" for k, line in enumerate(lines))
    for rank, line in enumerate(lines):
        folder = tmp_path / "logs" / "attempt_0" / f"rank_{rank}"
        assert (folder / "stdout.log").read_text() == f"{line}\n"
        assert "to stderr\n" in (folder / "stderr.log").read_text()


def test_the_status_is_that_of_the_rank_that_failed(start: Start) -> None:
    run = start("-n", "2", doing="fail")
    other, _ = run.pids(0)
    status, _, err = run.finish()
    assert status == 7, err
    assert "mortice run: rank 1 (process" in err
    assert "ended with status 7" in err
    until(lambda: not alive(other), "the other rank's end")


def test_a_killed_rank_restarts_the_gang(start: Start) -> None:
    run = start("-n", "2", "--max-restarts", "1", doing="wait")
    first = [run.pids(rank)[0] for rank in (0, 1)]
    os.kill(first[1], signal.SIGKILL)
    status, out, err = run.finish()
    assert status == 0, err
    assert "ended with signal SIGKILL" in err
    assert "restart 1 of 1" in err
    assert out.count("attempt 1 ") == 2, out
    until(lambda: not any(map(alive, first)), "the first attempt's end")


def test_a_killed_actor_restarts_the_gang(start: Start) -> None:
    """Its rank ends with it."""
    run = start("-n", "2", "--max-restarts", "1", doing="wait")
    pids = [run.pids(rank) for rank in (0, 1)]
    os.kill(pids[0][1], signal.SIGKILL)
    status, out, err = run.finish()
    assert status == 0, err
    assert "the actor of rank 0 (process" in err
    assert out.count("attempt 1 ") == 2, out
    until(lambda: not any(alive(pid) for pair in pids for pid in pair), "the first attempt's end")


def test_restarts_have_a_limit(start: Start) -> None:
    run = start("-n", "2", doing="wait")
    os.kill(run.pids(1)[1], signal.SIGKILL)
    status, _, err = run.finish()
    assert status == 1, err
    assert "the actor of rank 1" in err
    assert "restart" not in err


def test_a_signal_is_passed_on(start: Start) -> None:
    run = start("-n", "2", "--max-restarts", "1", doing="wait")
    ranks = [run.pids(rank)[0] for rank in (0, 1)]
    run.child.send_signal(signal.SIGTERM)
    status, out, err = run.finish()
    assert status == 128 + signal.SIGTERM, err
    assert out.count(f"bye {int(signal.SIGTERM)}") == 2
    assert "restart" not in err
    until(lambda: not any(map(alive, ranks)), "the ranks' end")


def test_ranks_end_with_a_launcher_that_is_killed(start: Start) -> None:
    run = start("-n", "2", doing="wait")
    ranks = [run.pids(rank)[0] for rank in (0, 1)]
    run.child.kill()
    run.child.communicate()
    until(lambda: not any(map(alive, ranks)), "the ranks' end")


def test_no_room(start: Start) -> None:
    options = ("-n", "1", "--engine-option", "cpus=1000", "--engine-option", "patience=1")
    status, _, err = start(*options, doing="pass").finish()
    assert status == 1
    assert "no room for 1 times {'CPU': 1000.0} (PACK)" in err


def test_no_cluster(alone: Start) -> None:
    with held_port() as held:  # nobody listens there
        option = f"address=127.0.0.1:{held.getsockname()[1]}"
        status, _, err = alone("--engine-option", option, doing="pass").finish()
    assert status == 1
    assert "no Ray cluster answers at" in err


def test_a_lost_node(start: Start) -> None:
    """The gang of two nodes goes on on the third. Other tests need no third."""
    options = ("-n", "2", "--nnodes", "2", "--max-restarts", "1")
    run = start(*options, doing="wait")
    pids = [run.pids(rank) for rank in range(4)]
    nodes = [node_of(actor) for _, actor in pids]
    assert nodes[0] == nodes[1] != nodes[2] == nodes[3]
    victim = next(node for node in nodes if not is_head(node))
    os.killpg(victim, signal.SIGKILL)
    status, out, err = run.finish()
    assert status == 0, err
    assert "the actor of rank" in err
    assert sorted(line.split()[4] for line in out.splitlines() if "attempt 1 " in line) == [
        "0", "0", "1", "1",
    ]  # fmt: skip
    until(lambda: not any(alive(pid) for pair in pids for pid in pair), "the first attempt's end")


def node_of(actor: int) -> int:
    """A node's process group; actors are children of its raylet, in groups of their own."""
    raylet = int(Path(f"/proc/{actor}/stat").read_text().rpartition(")")[2].split()[1])
    return os.getpgid(raylet)


def is_head(group: int) -> bool:
    """Whether a node's process group is the head's; its leader is the command that started it."""
    return b"--head" in Path(f"/proc/{group}/cmdline").read_bytes()
