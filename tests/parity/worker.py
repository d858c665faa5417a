"""Units of work in child processes, so that a crash or a hang costs one check and no more.

A unit is one operator with one dtype. A worker announces each check before it starts. If the
worker dies or stays silent past the limit, that check has failed, and a new worker runs the unit
again without it.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple


class Unit(NamedTuple):
    operator: str
    kind: str
    dtype: str


RunUnit = Callable[[Unit, frozenset[str], Callable[[str], None]], Iterator[Any]]
MAX_RESTARTS = 8


def context() -> Any:
    # A forked worker has torch and mortice imported already (3 s); spawn is all that Windows has.
    methods = multiprocessing.get_all_start_methods()
    return multiprocessing.get_context("fork" if "fork" in methods else "spawn")


def serve(pipe: Connection, run: RunUnit) -> None:
    """The worker's loop."""
    while True:
        order = pipe.recv()
        if order is None:
            return
        unit, skip = order
        # Results travel by the handful: a pipe message per check is a third of a small check's time.
        kept: list[Any] = []

        def begin(key: str, kept: list[Any] = kept) -> None:
            pipe.send(("begin", key, list(kept)))
            kept.clear()

        try:
            for result in run(unit, skip, begin):
                kept.append(tuple(result))
            pipe.send(("done", None, list(kept)))
        except BaseException as error:
            pipe.send(("failed", f"{type(error).__name__}: {error}"[:300], list(kept)))
            if not isinstance(error, Exception):
                raise


class Worker:
    def __init__(self, run: RunUnit) -> None:
        ctx = context()
        self.pipe, theirs = ctx.Pipe()
        self.process = ctx.Process(target=serve, args=(theirs, run), daemon=True)
        self.process.start()
        theirs.close()
        self.unit: Unit | None = None
        self.key = ""
        self.since = 0.0

    def start(self, unit: Unit, skip: frozenset[str]) -> None:
        self.unit, self.key, self.since = unit, "", time.monotonic()
        self.pipe.send((unit, skip))

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


class Pool:
    """``for unit, result in Pool(run, jobs, timeout).map(units)``.

    Besides the run's own results there are ``(unit, (key, aspect, message, sample))`` for checks
    that killed or hung their worker, and ``(unit, None)`` when a unit is finished.
    """

    def __init__(self, run: RunUnit, jobs: int, timeout: float) -> None:
        self.run, self.timeout = run, timeout
        self.workers = [Worker(run) for _ in range(jobs)]
        self.skips: dict[Unit, frozenset[str]] = {}

    def map(self, units: list[Unit]) -> Iterator[tuple[Unit, Any]]:
        todo = list(reversed(units))
        busy: dict[Connection, Worker] = {}
        idle = list(self.workers)
        while todo or busy:
            while todo and idle:
                worker = idle.pop()
                unit = todo.pop()
                worker.start(unit, self.skips.get(unit, frozenset()))
                busy[worker.pipe] = worker
            ready = wait(list(busy), timeout=1.0)
            for pipe in ready:
                worker = busy[pipe]
                unit = worker.unit
                try:
                    event, detail, results = pipe.recv()
                except (EOFError, OSError):
                    worker.process.join(5)
                    yield from self._lost(worker, f"killed its process ({worker.process.exitcode})")
                    idle.append(self._replace(worker, busy, todo))
                    continue
                worker.since = time.monotonic()
                for result in results:
                    yield unit, result
                if event == "begin":
                    worker.key = detail
                    continue
                if event == "failed":
                    yield unit, (f"{unit.dtype} {unit.kind} -", "forward", detail, "")
                yield unit, None
                del busy[pipe]
                idle.append(worker)
            for worker in [w for w in busy.values() if time.monotonic() - w.since > self.timeout]:
                yield from self._lost(worker, f"no answer in {self.timeout:g} s")
                idle.append(self._replace(worker, busy, todo))
        for worker in self.workers:
            worker.stop()

    def _lost(self, worker: Worker, why: str) -> Iterator[tuple[Unit, Any]]:
        unit = worker.unit
        key = worker.key or f"{unit.dtype} {unit.kind} -"
        aspect = key.split(" ")[1] if " " in key else "forward"
        self.skips[unit] = self.skips.get(unit, frozenset()) | {key}
        yield unit, (key, aspect, why, "")
        if not self._worth_restarting(worker):
            yield unit, None

    def _worth_restarting(self, worker: Worker) -> bool:
        return bool(worker.key) and len(self.skips[worker.unit]) <= MAX_RESTARTS

    def _replace(self, worker: Worker, busy: dict[Any, Worker], todo: list[Unit]) -> Worker:
        del busy[worker.pipe]
        worker.stop()
        if self._worth_restarting(worker):
            todo.append(worker.unit)
        fresh = Worker(self.run)
        self.workers[self.workers.index(worker)] = fresh
        return fresh
