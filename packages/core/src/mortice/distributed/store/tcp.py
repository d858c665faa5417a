"""TCPStore: a table in one process, served to all others over TCP."""

from __future__ import annotations

import os
import socket
import threading
import time
import weakref
from collections.abc import Sequence
from datetime import timedelta

from mortice.errors import (
    ArgumentError,
    DistNetworkError,
    DistStoreError,
    InvalidValue,
)

from . import wire
from .base import DEFAULT_TIMEOUT, Deadline, Store, as_bytes, seconds, timed_out
from .server import Server, listen

# A port in use is often one that the last run has just left.
BIND_PATIENCE = 5.0
_CONNECT_AGAIN = 0.05
# What the server may take beyond a request's own time before it counts as gone.
_GRACE = 30.0
_KNOWN_PATIENCE = 1.0
_USERS = "\0users"

_servers: dict[int, Server] = {}
_servers_lock = threading.Lock()
_stores: weakref.WeakSet[TCPStore] = weakref.WeakSet()


class TCPStore(Store):
    """A store at ``host_name``, ``port``; the one with ``is_master`` serves it, from a thread.

    ``port`` 0 lets the system choose (``port`` tells). With ``world_size``, the master waits for
    that many users, itself among them, unless ``wait_for_workers`` is false. ``multi_tenant`` lets
    several masters of one process share a server.

    Raises DistNetworkError where the port cannot be had or nobody answers in time.
    """

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta | float = DEFAULT_TIMEOUT,
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
    ) -> None:
        super().__init__(timeout)
        if not isinstance(host_name, str) or not isinstance(port, int):
            raise ArgumentError(
                f"TCPStore: expected a host's name and a port's number, found {host_name!r} and {port!r}."
            )
        if not 0 <= port <= 65535:
            raise InvalidValue(f"port {port} is not between 0 and 65535.")
        if port == 0 and not is_master:
            raise InvalidValue("port 0 is for the master; others need the port it was given.")
        self.host = host_name
        self._server: Server | None = None
        if is_master:
            self._server = _serve(port, min(BIND_PATIENCE, self._timeout), share=multi_tenant)
            port = self._server.port
        self.port = port
        self._lock = threading.Lock()
        self._idle: list[socket.socket] = []
        self._will: socket.socket | None = None
        self._closed = False
        _stores.add(self)
        try:
            self._give_back(self._connected(Deadline(self._timeout)))
            self.add(_USERS, 1)
            if is_master and world_size and wait_for_workers:
                self._await_users(world_size)
        except BaseException:
            self.close()
            raise

    def set(self, key: str, value: str | bytes) -> None:
        self._ask(b"set", key.encode(), as_bytes(value))

    def get(self, key: str) -> bytes:
        return self.multi_get([key])[0]

    def add(self, key: str, amount: int) -> int:
        return int(self._ask(b"add", key.encode(), str(int(amount)).encode())[0])

    def append(self, key: str, value: str | bytes) -> None:
        self._ask(b"append", key.encode(), as_bytes(value))

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        return self._ask(b"compare_set", key.encode(), as_bytes(expected), as_bytes(desired))[0]

    def delete_key(self, key: str) -> bool:
        return self._ask(b"delete", key.encode())[0] == b"1"

    def num_keys(self) -> int:
        return int(self._ask(b"count")[0]) - 1

    def check(self, keys: Sequence[str]) -> bool:
        return self._ask(b"check", *(key.encode() for key in keys))[0] == b"1"

    def wait(self, keys: Sequence[str], timeout: timedelta | float | None = None) -> None:
        limit = self._timeout if timeout is None else seconds(timeout)
        self._ask(b"wait", repr(limit).encode(), *(key.encode() for key in keys), limit=limit)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        limit = self._timeout
        return self._ask(b"get", repr(limit).encode(), *(k.encode() for k in keys), limit=limit)

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        if len(keys) != len(values):
            raise InvalidValue(
                f"multi_set: {len(keys)} keys and {len(values)} values; give one for each."
            )
        self._ask(b"set", *(x for k, v in zip(keys, values) for x in (k.encode(), as_bytes(v))))

    def leave_will(self, key: str, value: str | bytes) -> bool:
        # A connection of its own: it ends with the process and with nothing else.
        if self._will is None:
            self._will = self._connected(Deadline(min(self._timeout, _KNOWN_PATIENCE)))
        self._talk(self._will, [b"will", key.encode(), as_bytes(value)], self._timeout)
        return True

    def revoke_will(self, key: str) -> None:
        if self._will is not None:
            self._talk(self._will, [b"revoke", key.encode()], self._timeout)

    def close(self) -> None:
        """Close the connections, and the server if no other store of this process uses it."""
        with self._lock:
            self._closed = True
            sockets = [*self._idle, *([self._will] if self._will else [])]
            self._idle = []
            self._will = None
        for sock in sockets:
            sock.close()
        server, self._server = self._server, None
        if server is not None:
            _leave(server)

    def _forget(self) -> None:
        """After fork, in the child: let go of the parent's sockets, and connect anew when used."""
        for sock in [*self._idle, *([self._will] if self._will else [])]:
            sock.close()
        self._lock = threading.Lock()
        self._idle, self._will, self._server = [], None, None

    def __repr__(self) -> str:
        return f"TCPStore({self.host!r}, {self.port})"

    # -- connections -----------------------------------------------------------------------------

    def _ask(self, *request: bytes, limit: float = 0.0) -> list[bytes]:
        """Send a request over a connection that no other thread uses; returns the answer."""
        sock = self._taken()
        try:
            answer = self._talk(sock, request, limit)
        except BaseException:
            sock.close()  # an answer may still come, and would be taken for the next one's
            raise
        self._give_back(sock)
        if answer[0] == wire.LATE:
            raise timed_out(repr(self), limit, [key.decode() for key in answer[1:]])
        if answer[0] == wire.BAD:
            raise InvalidValue(answer[1].decode())
        return answer[1:]

    def _taken(self) -> socket.socket:
        with self._lock:
            if self._closed:
                raise DistStoreError(f"{self!r} is closed.")
            if self._idle:
                return self._idle.pop()
        # It has answered before: it is there, or it has ended.
        return self._connected(Deadline(min(self._timeout, _KNOWN_PATIENCE)))

    def _give_back(self, sock: socket.socket) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(sock)
                return
        sock.close()

    def _talk(self, sock: socket.socket, request: Sequence[bytes], limit: float) -> list[bytes]:
        try:
            sock.settimeout(limit + _GRACE)
            sock.sendall(wire.pack(request))
            buffer = bytearray()
            while True:
                data = sock.recv(1 << 16)
                if not data:
                    raise ConnectionResetError("the server closed the connection")
                buffer += data
                answer = wire.take(buffer)
                if answer is not None:
                    return answer
        except ValueError as error:
            raise DistStoreError(
                f"what answers at {self.host}, port {self.port}, is no store of mortice's ({error})"
            ) from error
        except OSError as error:
            word = request[0].decode()
            raise DistStoreError(
                f"{self!r} does not answer ({word}): {error}. The process that serves it has "
                "ended, or cannot be reached."
            ) from error

    def _connected(self, deadline: Deadline) -> socket.socket:
        """A new connection; refused and broken ones are tried again: the server may not be up yet,
        or be that of a run that is ending.
        """
        while True:
            try:
                return self._greeted(deadline)
            except (OSError, DistStoreError) as error:
                if isinstance(error.__cause__, ValueError):  # and it will not become one
                    raise DistNetworkError(f"{error}. Name another port.") from error
                if not deadline.left() or isinstance(error, socket.gaierror):
                    raise DistNetworkError(
                        f"no store answers at {self.host}, port {self.port}, within "
                        f"{deadline.limit:g} s: {str(error).rstrip('.')}. Is rank 0 running, and is MASTER_ADDR "
                        "an address of its machine?",
                        error.errno if isinstance(error, OSError) else None,
                    ) from error
                time.sleep(min(_CONNECT_AGAIN, deadline.left()))

    def _greeted(self, deadline: Deadline) -> socket.socket:
        patience = max(0.1, min(5.0, deadline.left()))
        sock = socket.create_connection((self.host, self.port), patience)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._talk(sock, [wire.HELLO], min(5.0, deadline.limit))
        except BaseException:
            sock.close()
            raise
        return sock

    def _await_users(self, world_size: int) -> None:
        deadline = Deadline(self._timeout)
        while (users := self.add(_USERS, 0)) < world_size:
            if not deadline.left():
                raise timed_out(
                    f"{self!r}: {users} of {world_size} users have come", self._timeout, ["users"]
                )
            time.sleep(min(_CONNECT_AGAIN, deadline.left()))


def _serve(port: int, patience: float, *, share: bool) -> Server:
    with _servers_lock:
        found = _servers.get(port) if share else None
        if found is None:
            found = Server(listen("", port, patience))
            _servers[found.port] = found
        found.users += 1
        return found


def _leave(server: Server) -> None:
    with _servers_lock:
        server.users -= 1
        if server.users:
            return
        _servers.pop(server.port, None)
    server.close()


def _after_fork() -> None:
    """In the child: the parent's connections are not ours, and must not outlive the parent."""
    global _servers_lock
    _servers_lock = threading.Lock()
    for server in _servers.values():
        server.forget()
    _servers.clear()
    for store in _stores:
        store._forget()  # pyright: ignore[reportPrivateUsage]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
