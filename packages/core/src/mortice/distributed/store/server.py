"""The server of TCPStore: one thread, many connections, no waiting inside.

A request that waits for keys is put aside until they are there or its time is over. A connection
may leave a will: bytes appended to a key when the connection ends before it is revoked, which is how a
rank's death becomes known at once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable

from mortice.errors import DistNetworkError, InvalidValue

from . import wire
from .table import Table

_CHUNK = 1 << 16
_BIND_AGAIN = 0.1
_GREETING = wire.pack([wire.HELLO])


class Connection:
    """One client: what came in and is not whole yet, what is still to go out, its will."""

    __slots__ = ("greeted", "incoming", "outgoing", "socket", "will")

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.incoming = bytearray()
        self.outgoing = bytearray()
        self.greeted = False
        self.will: dict[str, bytes] = {}


class Waiting:
    """A request put aside."""

    __slots__ = ("answer", "connection", "deadline", "keys")

    def __init__(
        self,
        connection: Connection,
        keys: list[str],
        deadline: float,
        answer: Callable[[], list[bytes]],
    ) -> None:
        self.connection = connection
        self.keys = keys
        self.deadline = deadline
        self.answer = answer


def listen(host: str, port: int, patience: float) -> socket.socket:
    """A listening socket; a port in use is tried again for ``patience`` seconds.

    Raises DistNetworkError with the system's errno.
    """
    end = time.monotonic() + patience
    while True:
        try:
            return _bound(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() >= end:
                fix = "Choose another port, 0 for any free one, or end whoever has it."
                raise DistNetworkError(
                    f"a store cannot listen on {host or 'all interfaces'}, port {port}: "
                    f"{os.strerror(error.errno) if error.errno else error}. {fix}",
                    error.errno,
                ) from error
            time.sleep(_BIND_AGAIN)


def _bound(host: str, port: int) -> socket.socket:
    family, kind, proto, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, proto)
    try:
        if os.name == "posix":  # elsewhere it would let two listen on one port
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(1024)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


class Server:
    """The table and the thread that serves it; ``close`` ends both."""

    def __init__(self, sock: socket.socket) -> None:
        self.port: int = sock.getsockname()[1]
        self.users = 0
        self._table = Table()
        self._listening = sock
        self._waiting: list[Waiting] = []
        self._selector = selectors.DefaultSelector()
        self._wake_out, self._wake_in = socket.socketpair()
        self._selector.register(sock, selectors.EVENT_READ)
        self._selector.register(self._wake_out, selectors.EVENT_READ)
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="mortice-store", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and all connections."""
        self._closing = True
        self._wake_in.send(b"x")
        self._thread.join()

    def forget(self) -> None:
        """Close all descriptors: at the end, and after fork in the child, where no thread serves."""
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._wake_in.close()
        self._selector.close()

    # -- the thread ------------------------------------------------------------------------------

    def _serve(self) -> None:
        while not self._closing:
            for key, mask in self._selector.select(self._patience()):
                if key.fileobj is self._listening:
                    self._accept()
                elif key.data is not None:
                    self._attend(key.data, mask)
            self._late()
        self.forget()

    def _patience(self) -> float | None:
        if not self._waiting:
            return None
        return max(0.0, min(one.deadline for one in self._waiting) - time.monotonic())

    def _accept(self) -> None:
        try:
            sock, _ = self._listening.accept()
        except OSError:  # whoever knocked is gone already
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._selector.register(sock, selectors.EVENT_READ, Connection(sock))

    def _attend(self, connection: Connection, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE:
                self._flush(connection)
            if mask & selectors.EVENT_READ:
                self._receive(connection)
        except (OSError, ValueError):  # gone, or no client of ours
            self._drop(connection)

    def _receive(self, connection: Connection) -> None:
        data = connection.socket.recv(_CHUNK)
        if not data:
            raise ConnectionResetError
        connection.incoming += data
        if not connection.greeted and not _GREETING.startswith(
            connection.incoming[: len(_GREETING)]
        ):
            raise ValueError("no client of ours")
        while (request := wire.take(connection.incoming)) is not None:
            if not connection.greeted:
                connection.greeted = True
                self._send(connection, [wire.OK])
            else:
                self._do(connection, request)

    def _drop(self, connection: Connection) -> None:
        self._selector.unregister(connection.socket)
        connection.socket.close()
        self._waiting = [one for one in self._waiting if one.connection is not connection]
        for key, value in connection.will.items():
            self._table.append(key, value)
        if connection.will:
            self._changed()

    def _send(self, connection: Connection, parts: list[bytes]) -> None:
        connection.outgoing += wire.pack(parts)
        self._flush(connection)

    def _flush(self, connection: Connection) -> None:
        with contextlib.suppress(BlockingIOError):
            sent = connection.socket.send(connection.outgoing)
            del connection.outgoing[:sent]
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.outgoing else 0)
        if self._selector.get_key(connection.socket).events != events:
            self._selector.modify(connection.socket, events, connection)

    # -- requests --------------------------------------------------------------------------------

    def _do(self, connection: Connection, request: list[bytes]) -> None:
        word = request[0].decode()
        if word in ("wait", "get"):
            self._wait(connection, request)
            return
        try:
            answer = _REQUESTS[word](self._table, connection, request[1:])
        except InvalidValue as error:
            self._send(connection, [wire.BAD, str(error).encode()])
            return
        self._send(connection, [wire.OK, *answer])
        if word in _CHANGING:
            self._changed()

    def _wait(self, connection: Connection, request: list[bytes]) -> None:
        """``wait timeout key...`` answers nothing, ``get timeout key...`` the values."""
        keys = [key.decode() for key in request[2:]]
        values = self._table.values

        def answer() -> list[bytes]:
            return [values[key] for key in keys] if request[0] == b"get" else []

        if not self._table.missing(keys):
            self._send(connection, [wire.OK, *answer()])
        else:
            deadline = time.monotonic() + float(request[1])
            self._waiting.append(Waiting(connection, keys, deadline, answer))

    def _changed(self) -> None:
        """Answer those whose keys are there now."""
        ready = [one for one in self._waiting if not self._table.missing(one.keys)]
        if ready:
            self._waiting = [one for one in self._waiting if one not in ready]
            for one in ready:
                self._reply(one, [wire.OK, *one.answer()])

    def _late(self) -> None:
        now = time.monotonic()
        late = [one for one in self._waiting if one.deadline <= now]
        if late:
            self._waiting = [one for one in self._waiting if one not in late]
            for one in late:
                missing = self._table.missing(one.keys)
                self._reply(one, [wire.LATE, *(key.encode() for key in missing)])

    def _reply(self, one: Waiting, parts: list[bytes]) -> None:
        try:
            self._send(one.connection, parts)
        except OSError:
            self._drop(one.connection)


Request = Callable[[Table, Connection, list[bytes]], list[bytes]]


def _flag(value: bool) -> bytes:
    return b"1" if value else b"0"


def _set(table: Table, connection: Connection, words: list[bytes]) -> list[bytes]:
    for key, value in zip(words[::2], words[1::2]):
        table.set(key.decode(), value)
    return []


def _add(table: Table, connection: Connection, words: list[bytes]) -> list[bytes]:
    return [str(table.add(words[0].decode(), int(words[1]))).encode()]


def _append(table: Table, connection: Connection, words: list[bytes]) -> list[bytes]:
    table.append(words[0].decode(), words[1])
    return []


def _compare_set(table: Table, connection: Connection, words: list[bytes]) -> list[bytes]:
    return [table.compare_set(words[0].decode(), words[1], words[2])]


def _delete(table: Table, connection: Connection, words: list[bytes]) -> list[bytes]:
    return [_flag(table.delete(words[0].decode()))]


def _count(table: Table, connection: Connection, words: list[bytes]) -> list[bytes]:
    return [str(len(table.values)).encode()]


def _check(table: Table, connection: Connection, words: list[bytes]) -> list[bytes]:
    return [_flag(not table.missing([key.decode() for key in words]))]


def _will(table: Table, connection: Connection, words: list[bytes]) -> list[bytes]:
    connection.will[words[0].decode()] = words[1]
    return []


def _revoke(table: Table, connection: Connection, words: list[bytes]) -> list[bytes]:
    connection.will.pop(words[0].decode(), None)
    return []


_REQUESTS: dict[str, Request] = {
    "set": _set,
    "add": _add,
    "append": _append,
    "compare_set": _compare_set,
    "delete": _delete,
    "count": _count,
    "check": _check,
    "will": _will,
    "revoke": _revoke,
}
_CHANGING = frozenset(("set", "add", "append", "compare_set"))
