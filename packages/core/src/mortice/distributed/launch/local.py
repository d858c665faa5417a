"""The engine ``local``: a supervisor of processes on this machine, one on each of several nodes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pluggy

from .agreement import Agreement, part, serve
from .job import SIGNALLED, Job, Launcher
from .processes import Processes, described, say, status

_TICK = 0.1
_ASK_EVERY = 0.25
# A library's way to end: of those that backends use, some do where ranks give different sizes.
_ABORTED = "; MORTICE_DISTRIBUTED_DEBUG=1 tells whether the ranks did different things"


class Signalled(Exception):
    """The supervisor got a signal that ends the run."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def handling_signals() -> Generator[None, None, None]:
    """Let SIGINT and SIGTERM raise Signalled inside the block."""
    handlers = {n: signal.signal(n, _raise) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def attempts(job: Job, attempt: Callable[[int], int], end: Callable[[], None]) -> int:
    """The status of the last attempt: another is made while one fails and restarts are left.

    ``end()`` is called in any case; a signal ends the run, with the status that says so.
    """
    code = 1
    with handling_signals():
        try:
            for number in range(job.max_restarts + 1):
                code = attempt(number)
                if code == 0:
                    break
                if number < job.max_restarts:
                    say(f"restart {number + 1} of {job.max_restarts}")
        except Signalled as ended:
            code = SIGNALLED + ended.number
        finally:
            end()
    return code


class LocalLauncher(Launcher):
    """Starts the ranks, ends all when one fails, and starts all again while restarts are left."""

    OPTIONS = ()
    STARTS_HERE = True

    def run(self, job: Job) -> int:
        store = serve(job)
        return attempts(job, lambda n: self._attempt(job, store, n), lambda: part(store, job))

    def _attempt(self, job: Job, store: Any, attempt: int) -> int:
        agreement = Agreement(store, job, attempt)
        agreement.begin()
        processes = Processes()
        started, number = time.monotonic(), signal.SIGTERM
        try:
            shared = job.shared(store.port, attempt)
            for local in range(job.processes):
                _start(processes, job, shared, local, attempt)
            return self._watch(job, processes, agreement, started, attempt)
        except Signalled as ended:
            agreement.fail(f"{SIGNALLED + ended.number} node {job.node} was told to end")
            number = ended.number
            raise
        finally:
            processes.stop(job.grace, number)

    def _watch(
        self, job: Job, processes: Processes, agreement: Agreement, started: float, attempt: int
    ) -> int:
        """Wait for the end of the attempt; returns its status."""
        ask, finished = 0.0, False
        while True:
            processes.listen(_TICK)
            place = processes.failed()
            if place is not None:
                seconds = time.monotonic() - started
                text = _failure(job, processes, place, seconds, attempt)
                agreement.fail(text)
            if not finished and processes.ended() and place is None:
                agreement.finish()
                finished, ask = True, 0.0
            if place is None and time.monotonic() < ask:
                continue
            ask = time.monotonic() + _ASK_EVERY
            told = agreement.failure()
            if told is not None:
                code, _, reason = told.partition(" ")
                say(reason)
                return int(code)
            if finished and agreement.all_done():
                return 0


def _start(
    processes: Processes, job: Job, shared: dict[str, str], local: int, attempt: int
) -> None:
    rank = job.node * job.processes + local
    prefix = f"[{rank}] " if job.world_size > 1 else ""
    folder = _log_folder(job, rank, attempt)
    variables = {**shared, **job.own(rank, local, job.node)}
    processes.start(job.command, variables, prefix, folder)


def _log_folder(job: Job, rank: int, attempt: int) -> str | None:
    if job.log_dir is None:
        return None
    return os.path.join(job.log_dir, f"attempt_{attempt}", f"rank_{rank}")


def _failure(job: Job, processes: Processes, place: int, seconds: float, attempt: int) -> str:
    child = processes.children[place]
    rank = job.node * job.processes + place
    code = child.returncode
    folder = _log_folder(job, rank, attempt)
    kept = "" if folder is None else f"; its output is in {os.path.join(folder, 'stderr.log')}"
    hint = _ABORTED if code == -signal.SIGABRT else ""
    return (
        f"{status(code)} rank {rank} (process {child.pid}) ended with {described(code)} after "
        f"{seconds:.1f} s; the others are ended{kept}{hint}"
    )


def _raise(number: int, frame: FrameType | None) -> None:
    # A second one must not interrupt the clearing up.
    signal.signal(number, signal.SIG_IGN)
    raise Signalled(number)


@pluggy.HookimplMarker("mortice")
def mortice_launcher(name: str) -> type[LocalLauncher]:
    """The class of the engine."""
    return LocalLauncher
