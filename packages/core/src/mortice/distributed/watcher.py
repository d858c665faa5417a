"""Watcher: ends the waits of callers whose operation is late, or whose peer is gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from mortice.errors import DistError, OperationTimeout

from .communicator import Call, Setup
from .work import Work

_EVERY = 0.1


class Watcher:
    """For libraries that may wait forever: what they are at is left to them, in its thread."""

    def __init__(self, setup: Setup, break_group: Callable[[BaseException], None]) -> None:
        self._setup = setup
        self._break = break_group
        self._lock = threading.Lock()
        self._under_way: list[tuple[float, Call, Work]] = []
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, call: Call, work: Work) -> None:
        """Watch over an operation."""
        with self._lock:
            self._under_way.append((time.monotonic() + call.timeout, call, work))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._watch, name=f"mortice-{self._setup.name}-watch", daemon=True
                )
                self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join(2.0)

    def _watch(self) -> None:
        while not self._closing.wait(_EVERY):
            with self._lock:
                self._under_way = [one for one in self._under_way if not one[2].is_completed()]
                left = [*self._under_way]
            if left:
                error = self._trouble(left[0])
                if error is not None:
                    self._break(error)
                    for _, call, work in left:
                        work.finish(self._setup.explain(call, error))

    def _trouble(self, first: tuple[float, Call, Work]) -> BaseException | None:
        ends, call, _ = first
        if time.monotonic() > ends:
            return OperationTimeout(f"not finished after {call.timeout:g} s")
        try:
            return self._setup.loss()
        except DistError as error:
            return error
