"""HashStore: for the threads of one process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta

from .base import DEFAULT_TIMEOUT, Deadline, Store, as_bytes, seconds, timed_out
from .table import Table


class HashStore(Store):
    """A store in this process's memory."""

    def __init__(self, timeout: timedelta | float = DEFAULT_TIMEOUT) -> None:
        super().__init__(timeout)
        self._table = Table()
        self._changed = threading.Condition()

    def set(self, key: str, value: str | bytes) -> None:
        data = as_bytes(value)
        with self._changed:
            self._table.set(key, data)
            self._changed.notify_all()

    def get(self, key: str) -> bytes:
        with self._changed:
            self._await([key], self._timeout)
            found = self._table.get(key)
            assert found is not None
            return found

    def add(self, key: str, amount: int) -> int:
        with self._changed:
            total = self._table.add(key, amount)
            self._changed.notify_all()
            return total

    def append(self, key: str, value: str | bytes) -> None:
        data = as_bytes(value)
        with self._changed:
            self._table.append(key, data)
            self._changed.notify_all()

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        with self._changed:
            result = self._table.compare_set(key, as_bytes(expected), as_bytes(desired))
            self._changed.notify_all()
            return result

    def delete_key(self, key: str) -> bool:
        with self._changed:
            return self._table.delete(key)

    def num_keys(self) -> int:
        return len(self._table.values)

    def check(self, keys: Sequence[str]) -> bool:
        with self._changed:
            return not self._table.missing(keys)

    def wait(self, keys: Sequence[str], timeout: timedelta | float | None = None) -> None:
        with self._changed:
            self._await(keys, self._timeout if timeout is None else seconds(timeout))

    def _await(self, keys: Sequence[str], timeout: float) -> None:
        deadline = Deadline(timeout)
        while missing := self._table.missing(keys):
            if not deadline.left():
                raise timed_out("HashStore", timeout, missing)
            self._changed.wait(deadline.left())
