"""Work: an operation under way, and the Future of its result."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from mortice.errors import InvalidState, OperationTimeout

from .store.base import seconds


class Work:
    """What ``async_op=True`` gives. ``wait()`` returns when the result can be used, or raises what
    the operation raised.
    """

    def __init__(self, operation: str = "", outputs: Any = None) -> None:
        self.operation = operation
        self.outputs = outputs
        self.source: int | None = None
        self._done = threading.Event()
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[Work], Any]] = []

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Wait for the end; True. Raises OperationTimeout if ``timeout`` passes first, which ends
        the waiting and not the operation.
        """
        limit = None if timeout is None or seconds(timeout) == 0 else seconds(timeout)
        if not self._done.wait(limit):
            raise OperationTimeout(
                f"{self.operation} has not ended after {limit:g} s of waiting; it goes on.",
                operation=self.operation,
            )
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        """Whether it has ended, well or not."""
        return self._done.is_set()

    def is_success(self) -> bool:
        """Whether it has ended well."""
        return self._done.is_set() and self._error is None

    def exception(self) -> BaseException | None:
        """What it raised, or None."""
        return self._error

    def result(self) -> Any:
        """The tensors that hold the result, after waiting for it."""
        self.wait()
        return self.outputs

    def source_rank(self) -> int:
        """The rank that a received message came from, after it has come."""
        self.wait()
        if self.source is None:
            raise InvalidState(f"{self.operation} received no message from one rank.")
        return self.source

    def synchronize(self) -> None:
        self.wait()

    def get_future(self) -> Future:
        """A Future of the result."""
        future = Future()
        self.when_done(future.follow)
        return future

    # -- for whoever runs it ---------------------------------------------------------------------

    def finish(self, error: BaseException | None = None) -> None:
        """Say that it has ended, and how; what is said first holds."""
        with self._lock:
            if self._done.is_set():
                return
            self._error = error
            self._done.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def when_done(self, callback: Callable[[Work], Any]) -> None:
        """Call ``callback`` at the end, in the thread that ends it; at once if it has ended."""
        with self._lock:
            if not self._done.is_set():
                self._callbacks.append(callback)
                return
        callback(self)

    def __repr__(self) -> str:
        state = "under way"
        if self._done.is_set():
            state = "done" if self._error is None else f"failed: {self._error}"
        return f"<Work {self.operation}, {state}>"


def finished(operation: str, outputs: Any = None) -> Work:
    """A Work that has ended."""
    work = Work(operation, outputs)
    work.finish()
    return work


class Future:
    """A value to come, with ``then``; as ``torch.futures.Future``."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[Future], Any]] = []

    def follow(self, work: Work) -> None:
        """Take a Work's result as one's own."""
        error = work.exception()
        if error is not None:
            self.set_exception(error)
        else:
            self.set_result(work.outputs)

    def set_result(self, value: Any) -> None:
        self._end(value, None)

    def set_exception(self, error: BaseException) -> None:
        self._end(None, error)

    def _end(self, value: Any, error: BaseException | None) -> None:
        with self._lock:
            if self._done.is_set():
                raise InvalidState("the Future has its value already.")
            self._value, self._error = value, error
            self._done.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def done(self) -> bool:
        return self._done.is_set()

    def wait(self) -> Any:
        """The value, after waiting for it; raises what went wrong instead."""
        self._done.wait()
        return self.value()

    def value(self) -> Any:
        """The value; InvalidState if it has not come yet."""
        if not self._done.is_set():
            raise InvalidState("the Future has no value yet. Call wait().")
        if self._error is not None:
            raise self._error
        return self._value

    def add_done_callback(self, callback: Callable[[Future], Any]) -> None:
        """Call ``callback(self)`` when the value has come; at once if it has."""
        with self._lock:
            if not self._done.is_set():
                self._callbacks.append(callback)
                return
        callback(self)

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """A Future of what ``callback(self)`` returns."""
        following = Future()

        def run(_: Future) -> None:
            try:
                following.set_result(callback(self))
            except BaseException as error:
                following.set_exception(error)

        self.add_done_callback(run)
        return following
