"""Engines that leave starting to another launcher: ``mpi`` to mpiexec, ``slurm`` to srun.

One process of theirs per gang; it is given a wrapper around the command (adopt.py), through which
the supervisor knows which rank failed.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import abstractmethod
from dataclasses import replace
from typing import Any

import pluggy

from mortice.errors import Unavailable

from .agreement import Agreement, serve
from .job import Job, Launcher
from .local import Signalled, attempts
from .processes import Processes, say, status

_ASK_EVERY = 0.25


class ForeignLauncher(Launcher):
    """Runs a gang by one command of another launcher, again while restarts are left."""

    @abstractmethod
    def command(self, job: Job, variables: dict[str, str]) -> list[str]:
        """The other launcher's command line; ``variables`` are those that all ranks get."""

    def run(self, job: Job) -> int:
        if job.nodes > 1 and job.address == "127.0.0.1":
            job = replace(job, address=socket.gethostname())
        store = serve(job)
        return attempts(job, lambda n: self._attempt(job, store, n), store.close)

    def _attempt(self, job: Job, store: Any, attempt: int) -> int:
        agreement = Agreement(store, replace(job, nodes=1), attempt)
        variables = job.shared(store.port, attempt)
        folder = None
        if job.log_dir is not None:
            folder = os.path.join(job.log_dir, f"attempt_{attempt}")
        processes, number = Processes(), signal.SIGTERM
        try:
            processes.start(self.command(job, variables), variables, "", folder)
            while not processes.ended():
                processes.listen(_ASK_EVERY)
                told = agreement.failure()
                if told is not None:
                    # The others may be about to tell what they found, and to end by themselves.
                    _linger(processes, job.grace)
                    code, _, reason = told.partition(" ")
                    say(reason)
                    return int(code)
            return _ended(processes, agreement)
        except Signalled as ended:
            number = ended.number
            raise
        finally:
            processes.stop(job.grace, number)


def _linger(processes: Processes, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not processes.ended() and time.monotonic() < end:
        processes.listen(0.05)


def _ended(processes: Processes, agreement: Agreement) -> int:
    """The status of a launcher that has ended by itself."""
    told = agreement.failure()
    if told is not None:
        code, _, reason = told.partition(" ")
        say(reason)
        return int(code)
    code = status(processes.children[0].returncode)
    if code:
        say(f"the launcher ended with status {code}, and no rank told of a failure")
    return code


def adopted(job: Job) -> list[str]:
    """The command as the other launcher is to start it."""
    return [sys.executable, "-m", "mortice.distributed.launch.adopt", *job.command]


class MpiLauncher(ForeignLauncher):
    """By mpiexec: the environment's own, or the one on PATH.

    Options: ``mpiexec`` (its path), ``hosts`` (comma-separated, for more than one node).
    """

    OPTIONS = ("mpiexec", "hosts")
    STARTS_HERE = True

    def command(self, job: Job, variables: dict[str, str]) -> list[str]:
        program = _mpiexec(job)
        line = [program, *_leave_survivors_alone(program), "-n", str(job.world_size)]
        hosts = job.options.get("hosts")
        if hosts:
            line += ["-hosts", hosts] if _is_hydra(program) else ["--host", hosts]
        if job.nodes > 1:
            line += ["-ppn", str(job.processes)] if _is_hydra(program) else [
                "--npernode", str(job.processes)
            ]  # fmt: skip
        return [*line, *adopted(job)]


def _mpiexec(job: Job) -> str:
    own = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    found = job.options.get("mpiexec") or (own if os.path.exists(own) else shutil.which("mpiexec"))
    if found is None or shutil.which(found) is None:
        where = "" if found is None else f" at {found}"
        raise Unavailable(f"there is no mpiexec{where}", "pip install mpich, or apt install mpich")
    return str(found)


def _is_hydra(program: str) -> bool:
    """Whether mpiexec is hydra (MPICH, Intel MPI); Open MPI's takes other options."""
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return "HYDRA" in told.stdout.upper() or "INTEL" in told.stdout.upper()


def _leave_survivors_alone(program: str) -> list[str]:
    """Options with which the death of one rank does not kill the others before they can tell."""
    if _is_hydra(program):
        return ["-disable-auto-cleanup"]
    return ["--allow-run-as-root", "--oversubscribe", "--enable-recovery"]


class SlurmLauncher(ForeignLauncher):
    """By srun, inside an allocation or asking for one.

    Options are srun's own, as ``--engine-option partition=gpu``.
    """

    def command(self, job: Job, variables: dict[str, str]) -> list[str]:
        program = shutil.which("srun")
        if program is None:
            raise Unavailable("there is no srun on this machine", "apt install slurm-client")
        line = [
            program,
            f"--nodes={job.nodes}",
            f"--ntasks={job.world_size}",
            f"--ntasks-per-node={job.processes}",
            "--kill-on-bad-exit=0",
            f"--export=ALL,{','.join(variables)}",
            f"--job-name={job.run_id}",
        ]
        if job.world_size > 1:
            line.append("--label")
        line += [
            f"--{name}={value}" if value else f"--{name}" for name, value in job.options.items()
        ]
        return [*line, *adopted(job)]


_ENGINES: dict[str, type[ForeignLauncher]] = {"mpi": MpiLauncher, "slurm": SlurmLauncher}


@pluggy.HookimplMarker("mortice")
def mortice_launcher(name: str) -> type[ForeignLauncher]:
    """The class of the engine."""
    return _ENGINES[name]
