"""Threads that run a communicator's operations, one after the other in each lane."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from queue import Empty, SimpleQueue

# A lane that has had nothing to do for so many seconds gives its thread back.
_IDLE = 5.0

Job = Callable[[], None]


class Lanes:
    """Jobs with the same key run in order, those with different keys side by side.

    A thread starts with the first job of its key, and ends when there is none for a while.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lanes: dict[Hashable, tuple[SimpleQueue[Job | None], threading.Thread]] = {}
        self._lock = threading.Lock()

    def put(self, key: Hashable, job: Job) -> None:
        """Run ``job`` after all others of its key."""
        with self._lock:
            lane = self._lanes.get(key)
            if lane is None:
                queue: SimpleQueue[Job | None] = SimpleQueue()
                thread = threading.Thread(
                    target=self._run, args=(key, queue), name=f"{self._name}-{key}", daemon=True
                )
                lane = self._lanes[key] = queue, thread
                thread.start()
            lane[0].put(job)

    def close(self, patience: float) -> bool:
        """Let the threads end after what they were given; whether all did within ``patience`` s."""
        with self._lock:
            lanes = [*self._lanes.values()]
            self._lanes.clear()
        for queue, _ in lanes:
            queue.put(None)
        threads = [thread for _, thread in lanes if thread is not threading.current_thread()]
        for thread in threads:
            thread.join(patience)
        return not any(thread.is_alive() for thread in threads)

    def _run(self, key: Hashable, queue: SimpleQueue[Job | None]) -> None:
        while True:
            try:
                job = queue.get(timeout=_IDLE)
            except Empty:
                with self._lock:
                    if not queue.empty():
                        continue
                    self._lanes.pop(key, None)
                    return
            if job is None:
                return
            job()
            del job  # what it holds is not to wait for the next one
