"""Gloo's own sockets, found among the process's, so that waits can be ended from outside.

Gloo's binding has no way to abort an operation; but one whose connection is shut down ends with
an error. Linux only, where a process can look at its descriptors.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Generator, Iterator

Address = tuple[str, int]

_FOLDER = "/proc/self/fd"


@contextlib.contextmanager
def _opened(number: int) -> Generator[socket.socket | None, None, None]:
    """A second descriptor of a TCP socket; None for what is none."""
    try:
        copy = os.dup(number)
    except OSError:  # closed meanwhile
        yield None
        return
    try:
        sock = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        yield None
        return
    with sock:
        wanted = sock.family in (socket.AF_INET, socket.AF_INET6)
        yield sock if wanted and sock.type == socket.SOCK_STREAM else None


def _all() -> Iterator[socket.socket]:
    try:
        numbers = [int(name) for name in os.listdir(_FOLDER)]
    except OSError:
        return
    for number in numbers:
        with _opened(number) as sock:
            if sock is not None:
                yield sock


def listening() -> set[Address]:
    """Addresses on which this process listens."""
    found: set[Address] = set()
    for sock in _all():
        if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            found.add(sock.getsockname()[:2])
    return found


def shut_down(own: Address, others: set[Address]) -> int:
    """End the connections that came to ``own`` or go to one of ``others``; how many there were."""
    ended = 0
    for sock in _all():
        try:
            mine, theirs = sock.getsockname()[:2], sock.getpeername()[:2]
            if mine == own or theirs in others:
                sock.shutdown(socket.SHUT_RDWR)
                ended += 1
        except OSError:  # not connected, or not any more
            continue
    return ended
