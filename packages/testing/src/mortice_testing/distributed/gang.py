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
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Client, Connection, Listener, wait
from typing import Any

from .words import FOLDER, PATIENCE, Words

# Seconds that processes may take to end by themselves.
_PARTING = 20.0


class RankError(AssertionError):
    """What a function raised on a rank, with its traceback there."""


def held_port() -> socket.socket:
    """A socket with a port of 127.0.0.1 that nobody is given until the socket is closed.

    It does not listen, so a server that lets addresses be reused can meanwhile do so there.
    """
    held = socket.socket()
    if os.name == "posix":  # elsewhere it would let others take the port
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held


class Gang:
    """``size`` processes. With ``backend``, they have a process group over it.

    ``launcher`` is the command that starts all of them at once, as ``("mpiexec", "-n", "3")``;
    without it each is started alone. They meet by ``init_method``: a file of the gang unless
    given, a store that rank 0 serves if it is "tcp", and the backend's own way if empty.
    ``timeout`` is the group's time limit, in seconds.

    Attributes:
        processes: what was started, as subprocess.Popen objects.
        pids: the ranks' process numbers.
        store: the file through which they meet.
        words: what ranks and test tell each other.
    """

    def __init__(
        self,
        size: int,
        backend: str | None = None,
        *,
        timeout: float = PATIENCE,
        environment: Mapping[str, str] | None = None,
        launcher: Sequence[str] = (),
        init_method: str | None = None,
    ) -> None:
        self.size = size
        self._folder = tempfile.TemporaryDirectory(prefix="mortice-gang-")
        self.store = os.path.join(self._folder.name, "store")
        words = os.path.join(self._folder.name, "words")
        os.mkdir(words)
        self.words = Words(words)
        self._listener = Listener(os.path.join(self._folder.name, "meet"), backlog=size)
        self._port: socket.socket | None = None
        self.processes: list[subprocess.Popen[bytes]] = []
        self.pids: list[int] = [0] * size
        self.pipes: list[Connection] = []
        self._errors: list[str] = []
        given = {FOLDER: words, **(environment or {})}
        method = f"file://{self.store}" if init_method is None else init_method
        try:
            if method == "tcp":
                self._port = held_port()
                method = f"tcp://127.0.0.1:{self._port.getsockname()[1]}"
            if launcher:
                self._start(None, given, launcher)
            else:
                for rank in range(size):
                    self._start(rank, given, ())
            self._meet()
            if backend is not None:
                self.run("mortice_testing.distributed.worker:begin", backend, method, timeout)
        except BaseException:
            self.close()
            raise

    def _start(self, rank: int | None, given: dict[str, str], launcher: Sequence[str]) -> None:
        program = [sys.executable, "-m", "mortice_testing.distributed.worker"]
        known = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "WORLD_SIZE": str(self.size)}
        if rank is not None:
            known |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        self._errors.append(os.path.join(self._folder.name, f"stderr-{len(self._errors)}"))
        with open(self._errors[-1], "wb") as error:
            process = subprocess.Popen(
                [*launcher, *program, str(self._listener.address)],
                stdin=subprocess.DEVNULL,
                stderr=error,
                env={**os.environ, **known, **given},
            )
        self.processes.append(process)

    def _meet(self) -> None:
        """Take the processes' calls; each tells its rank and its number."""
        found: dict[int, Connection] = {}
        watching = threading.Timer(PATIENCE, self._listener.close)
        watching.daemon = True
        watching.start()
        died = threading.Thread(target=self._notice_a_death, args=(watching,), daemon=True)
        died.start()
        try:
            while len(found) < self.size:
                pipe = self._listener.accept()
                rank, pid = pipe.recv()
                self.pids[rank] = pid
                found[rank] = pipe
        except (OSError, EOFError) as error:
            raise RankError(f"not all processes came: {sorted(found)}\n{self.stderr()}") from error
        finally:
            watching.cancel()
        self.pipes = [found[rank] for rank in range(self.size)]

    def _notice_a_death(self, watching: threading.Timer) -> None:
        """End the wait for the processes' calls when one of them has ended."""
        while not watching.finished.wait(0.1):
            if any(process.poll() is not None for process in self.processes):
                watching.finished.set()
                # accept() in another thread does not notice that its socket is closed: knock.
                try:
                    Client(self._listener.address).close()
                except OSError:
                    pass
                return

    # -- calls -----------------------------------------------------------------------------------

    def begin(
        self,
        function: Callable[..., Any] | str,
        *arguments: Any,
        ranks: Sequence[int] | None = None,
    ) -> None:
        """Let ranks (all if not given) call ``function(rank, size, *arguments)``."""
        target = function if isinstance(function, str) else _named(function)
        if ranks is None:
            self.words.forget()
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
            alone = len(self.processes) == self.size
            status = self.processes[rank].wait(PATIENCE) if alone else "unknown"
            return RankError(f"rank {rank} ended with status {status}\n{self.stderr()}")
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

    def stderr(self) -> str:
        """What the processes have written to standard error."""
        texts: list[str] = []
        for path in self._errors:
            with open(path, encoding="utf-8", errors="replace") as file:
                texts.append(file.read())
        return "".join(texts)

    # -- the end ---------------------------------------------------------------------------------

    def kill(self, rank: int, number: int = signal.SIGKILL) -> None:
        """Send a signal to a rank."""
        os.kill(self.pids[rank], number)

    def close(self) -> None:
        """End all processes."""
        for pipe in self.pipes:
            pipe.close()
        end = time.monotonic() + _PARTING
        for process in self.processes:
            try:
                process.wait(max(0.05, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._end(process)
        self._listener.close()
        if self._port is not None:
            self._port.close()
        self._folder.cleanup()

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a process that does not end; and, if it is a launcher, those that it started."""
        if len(self.processes) < self.size:
            process.terminate()
            for pid in filter(None, self.pids):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            try:
                process.wait(1.0)
            except subprocess.TimeoutExpired:
                pass
        process.kill()
        process.wait()

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
