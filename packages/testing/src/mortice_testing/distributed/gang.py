"""Real processes for tests of ``mortice.distributed``: started once, given functions to call.

::

    with Gang(3, "gloo") as gang:
        gang.run(case)  # calls case(rank, size) in 3 processes, in one process group

A function is named by its module and name, and its module is imported in the processes. Whatever
happens, no process outlives the gang.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

#: Seconds after which a process that says nothing is taken to hang.
PATIENCE = 60.0


class RankError(AssertionError):
    """What a function raised on a rank, with its traceback there."""


class Gang:
    """``size`` processes. With ``backend``, they have a process group over it.

    Attributes:
        processes: the ranks' subprocess.Popen objects.
        store: the file through which they meet.
    """

    def __init__(
        self,
        size: int,
        backend: str | None = None,
        *,
        timeout: float = 20.0,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] = (),
        init_method: str | None = None,
    ) -> None:
        self.size = size
        self._folder = tempfile.TemporaryDirectory(prefix="mortice-gang-")
        self.store = os.path.join(self._folder.name, "store")
        self.pipes: list[Connection] = []
        self.processes: list[subprocess.Popen[str]] = []
        self._errors: list[Any] = []
        method = init_method or f"file://{self.store}"
        try:
            for rank in range(size):
                self._start(rank, dict(environment or {}), command)
            if backend is not None:
                self.run("mortice_testing.distributed.worker:begin", backend, method, timeout)
        except BaseException:
            self.close()
            raise

    def _start(self, rank: int, environment: dict[str, str], command: Sequence[str]) -> None:
        ours, theirs = Pipe()
        number = theirs.fileno()
        os.set_inheritable(number, True)
        error = open(os.path.join(self._folder.name, f"stderr-{rank}"), "w+")  # noqa: SIM115
        self._errors.append(error)
        program = [sys.executable, "-m", "mortice_testing.distributed.worker"]
        known = {
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "RANK": str(rank),
            "WORLD_SIZE": str(self.size),
            "LOCAL_RANK": str(rank),
        }
        process = subprocess.Popen(
            [*command, *program, str(number), str(rank), str(self.size)],
            pass_fds=(number,),
            stdin=subprocess.DEVNULL,
            stderr=error,
            env={**os.environ, **known, **environment},
            text=True,
        )
        theirs.close()
        self.pipes.append(ours)
        self.processes.append(process)

    # -- calls -----------------------------------------------------------------------------------

    def begin(
        self,
        function: Callable[..., Any] | str,
        *arguments: Any,
        ranks: Sequence[int] | None = None,
    ) -> None:
        """Let ranks (all if not given) call ``function(rank, size, *arguments)``."""
        target = function if isinstance(function, str) else _named(function)
        for rank in range(self.size) if ranks is None else ranks:
            self.pipes[rank].send((target, arguments))

    def end(self, *, ranks: Sequence[int] | None = None, patience: float = PATIENCE) -> list[Any]:
        """What the ranks returned; an exception that a function raised stands in its place."""
        waited = list(range(self.size) if ranks is None else ranks)
        found: dict[int, Any] = {}
        end = time.monotonic() + patience
        while len(found) < len(waited):
            pending = [self.pipes[rank] for rank in waited if rank not in found]
            ready = wait(pending, max(0.0, end - time.monotonic()))
            if not ready:
                silent = [rank for rank in waited if rank not in found]
                raise RankError(f"ranks {silent} did not answer within {patience:g} s")
            for rank in waited:
                if rank not in found and self.pipes[rank] in ready:
                    found[rank] = self._answer(rank)
        return [found[rank] for rank in waited]

    def _answer(self, rank: int) -> Any:
        try:
            kind, value = self.pipes[rank].recv()
        except (EOFError, OSError):
            status = self.processes[rank].wait(10)
            return RankError(f"rank {rank} ended with status {status}\n{self.stderr(rank)}")
        if kind == "returned":
            return value
        error, text = value
        if isinstance(error, BaseException):
            error.__cause__ = RankError(f"on rank {rank}:\n{text}")
            return error
        return RankError(f"on rank {rank}:\n{text}")

    def run(self, function: Callable[..., Any] | str, *arguments: Any, **options: Any) -> list[Any]:
        """``begin`` and ``end``; raises the first error of a rank."""
        self.begin(function, *arguments)
        results = self.end(**options)
        for rank, result in enumerate(results):
            if isinstance(result, BaseException):
                raise RankError(f"rank {rank}: {result}\n{result.__cause__ or ''}") from result
        return results

    def stderr(self, rank: int) -> str:
        """What a rank has written to standard error."""
        with open(self._errors[rank].name) as file:
            return file.read()

    # -- the end ---------------------------------------------------------------------------------

    def kill(self, rank: int, number: int = signal.SIGKILL) -> None:
        """Send a signal to a rank."""
        self.processes[rank].send_signal(number)

    def close(self) -> None:
        """End all processes."""
        for pipe in self.pipes:
            pipe.close()
        end = time.monotonic() + 2.0
        for process in self.processes:
            try:
                process.wait(max(0.05, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for file in self._errors:
            file.close()
        self._folder.cleanup()

    def __enter__(self) -> Gang:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _named(function: Callable[..., Any]) -> str:
    """``path.py:name`` of a function at the top level of its module."""
    source = sys.modules[function.__module__].__file__
    if function.__module__.startswith("mortice_testing."):
        return f"{function.__module__}:{function.__name__}"
    return f"{source}:{function.__name__}"
