"""The parent's side of a DataLoader's worker processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import time
import weakref
from multiprocessing import connection
from typing import Any

from mortice.errors import InvalidState
from mortice_nn.data.worker import Failure, Setup, run

JOIN_SECONDS = 5.0


class WorkerPool:
    """Worker processes, each with a pipe for tasks and one for results.

    ``receive`` notices a dead worker at once, because it waits for their exits as well.
    """

    def __init__(self, setups: list[Setup], context: Any) -> None:
        context = _context(context)
        forked = context.get_start_method() == "fork"
        self.processes: list[Any] = []
        self.tasks: list[Any] = []
        self.results: list[Any] = []
        self._closed = False
        try:
            for setup in setups:
                self._start(setup, context, forked)
        except BaseException:
            self.close()
            raise
        # Also when the interpreter exits with an iterator alive; daemon processes would be
        # terminated then, which cuts off what their data sets clean up.
        self._finalizer = weakref.finalize(self, _close, self.processes, self.tasks, self.results)

    def _start(self, setup: Setup, context: Any, forked: bool) -> None:
        task_reader, task_writer = context.Pipe(duplex=False)
        result_reader, result_writer = context.Pipe(duplex=False)
        close = (task_writer, result_reader) if forked else ()
        process = context.Process(
            target=run,
            args=(setup, task_reader, result_writer, close),
            name=f"DataLoader worker {setup.id}",
            daemon=True,
        )
        process.start()
        self.processes.append(process)
        self.tasks.append(task_writer)
        self.results.append(result_reader)
        task_reader.close()
        result_writer.close()

    def send(self, worker: int, task: Any) -> None:
        """Give ``worker`` a task."""
        try:
            self.tasks[worker].send(task)
        except OSError:
            self._raise_dead([worker])

    def receive(self, busy: set[int], timeout: float) -> tuple[int, int, str, Any]:
        """``(worker, task number, kind, result)`` of one of the ``busy`` workers.

        Raises if one of them died, or if ``timeout`` seconds (0: for ever) pass.
        """
        readers = {self.results[worker]: worker for worker in busy}
        exits = {self.processes[worker].sentinel: worker for worker in busy}
        ready = connection.wait([*readers, *exits], timeout or None)
        if not ready:
            raise InvalidState(
                f"DataLoader timed out after {timeout} seconds; a worker is still busy, or pass a "
                "larger timeout"
            )
        for reader in ready:
            worker = readers.get(reader)
            if worker is None:
                continue
            try:
                number, kind, result = self.results[worker].recv()
            except (EOFError, OSError):
                # it died while sending
                self._raise_dead([worker])
                raise
            return worker, number, kind, result
        self._raise_dead([exits[sentinel] for sentinel in ready if sentinel in exits])
        raise AssertionError

    def _raise_dead(self, workers: list[int]) -> None:
        for worker in workers:
            self.processes[worker].join(JOIN_SECONDS)
        deaths = ", ".join(
            f"worker {worker} (pid {self.processes[worker].pid}, "
            f"{describe_exit(self.processes[worker].exitcode)})"
            for worker in workers
        )
        self.close()
        raise InvalidState(
            f"DataLoader {deaths} exited unexpectedly; run with num_workers=0 to see the error in "
            "this process"
        )

    def close(self) -> None:
        """End all workers: by request, then by terminate, then by kill."""
        if not self._closed:
            self._closed = True
            finalizer = getattr(self, "_finalizer", None)
            if finalizer is not None:
                finalizer.detach()
            _close(self.processes, self.tasks, self.results)


def _close(processes: list[Any], tasks: list[Any], results: list[Any]) -> None:
    for writer in tasks:
        with contextlib.suppress(OSError):
            writer.send(None)
        with contextlib.suppress(OSError):
            writer.close()
    # A worker that is sending a batch nobody will read wakes up by the closed pipe.
    for reader in results:
        with contextlib.suppress(OSError):
            reader.close()
    deadline = time.monotonic() + JOIN_SECONDS
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.terminate()
            process.join(1.0)
        if process.is_alive():
            process.kill()
            process.join()


def _context(context: Any) -> Any:
    """A multiprocessing context from None (the platform's), a start method or a context."""
    if context is None or isinstance(context, str):
        return multiprocessing.get_context(context)
    return context


def describe_exit(code: int | None) -> str:
    """An exit code in words."""
    if code is None:
        return "not yet ended"
    if code >= 0:
        return f"exit code {code}"
    import signal

    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def unwrap(kind: str, result: Any) -> Any:
    """The batch, or the worker's exception raised here."""
    if kind == "failure":
        failure: Failure = result
        failure.reraise()
    return result
