"""Ctrl-C during an operation that the calling thread itself waits in, outside Python.

Python runs its handler only when the library returns. So while such an operation is on, the signal
also wakes a thread, which aborts the operation; it then returns, and KeyboardInterrupt is raised.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

# The C function itself: the module's own turns what it finds into an enum, and fails to (3 us).
_getsignal: Callable[[int], Any] = importlib.import_module("_signal").getsignal
# Whether the descriptor is still ours is asked, and it set, at most so often: that takes 5 us.
# Event loops that want Ctrl-C set a handler, too, and that is looked at each time.
_PERIOD = 0.05
_opened = float("-inf")
_lock = threading.Lock()
_sockets: tuple[socket.socket, socket.socket] | None = None
_abort: Callable[[], None] | None = None
_main = threading.main_thread()


class Abortable:
    """A block in which Ctrl-C calls ``abort``. Enter it only if ``possible()``.

    The signal's way to the thread is opened by the first one, and stays open: outside such a block
    the thread does nothing.
    """

    __slots__ = ("_new",)

    def __init__(self, abort: Callable[[], None]) -> None:
        self._new = abort

    @staticmethod
    def possible() -> bool:
        """Whether Ctrl-C would be noticed, or does not concern this thread."""
        if threading.get_ident() != _main.ident:
            return True
        if _getsignal(signal.SIGINT) is not signal.default_int_handler:
            return False  # it may not be meant to end anything
        return time.monotonic() - _opened < _PERIOD or _open()

    def __enter__(self) -> None:
        global _abort
        if threading.get_ident() == _main.ident:
            _abort = self._new

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        global _abort
        if threading.get_ident() == _main.ident:
            _abort = None


def _open() -> bool:
    """Let the signal wake our thread; False where an event loop has that."""
    global _opened
    number = _wakeup()
    others = signal.set_wakeup_fd(number, warn_on_full_buffer=False)
    if others in (-1, number):
        _opened = time.monotonic()
        return True
    signal.set_wakeup_fd(others, warn_on_full_buffer=False)
    return False


def _wakeup() -> int:
    """The descriptor to which Python's C handler writes; its reader is started with it."""
    global _sockets
    if _sockets is None:
        with _lock:
            reader, writer = socket.socketpair()
            writer.setblocking(False)
            _sockets = reader, writer
            threading.Thread(
                target=_listen, args=(reader,), name="mortice-interrupts", daemon=True
            ).start()
    return _sockets[1].fileno()


def _forget() -> None:
    """In a forked child: its signals do not concern the parent's operations, nor it the parent's."""
    global _sockets, _abort, _main, _opened
    _opened = float("-inf")
    if _sockets is not None:
        signal.set_wakeup_fd(-1)
    _sockets = _abort = None
    _main = threading.main_thread()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _listen(reader: socket.socket) -> None:
    while data := reader.recv(1):
        abort = _abort
        if data[0] == signal.SIGINT and abort is not None:
            abort()
