"""Threads that run a communicator's operations, one after the other in each lane."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from queue import SimpleQueue


class Lanes:
    """Jobs with the same key run in order, those with different keys side by side.

    Threads start with the first job of their key and end with ``close``.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._queues: dict[Hashable, SimpleQueue[Callable[[], None] | None]] = {}
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def put(self, key: Hashable, job: Callable[[], None]) -> None:
        """Run ``job`` after all others of its key."""
        queue = self._queues.get(key)
        if queue is None:
            with self._lock:
                queue = self._queues.get(key)
                if queue is None:
                    queue = self._queues[key] = SimpleQueue()
                    thread = threading.Thread(
                        target=_run, args=(queue,), name=f"{self._name}-{key}", daemon=True
                    )
                    self._threads.append(thread)
                    thread.start()
        queue.put(job)

    def close(self, patience: float) -> bool:
        """Let the threads end after what they were given; whether all did within ``patience`` s."""
        for queue in self._queues.values():
            queue.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(patience)
        return not any(thread.is_alive() for thread in self._threads)


def _run(queue: SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := queue.get()) is not None:
        job()
        del job  # what it holds is not to wait for the next one
