"""What an actor does: it starts one rank's process, listens to it, and ends it."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Sequence

from mortice.distributed import TCPStore
from mortice.distributed.launch import tethered

_CHUNK = 1 << 16
# Seconds for which what a rank's own children hold open is read after its end.
_DRAIN = 1.0

#: What was written: whether to standard error, and what; no bytes end the stream.
Chunk = tuple[bool, bytes]


class Rank:
    """One rank's process, which ends with the actor's. Its methods are called from afar."""

    def __init__(self) -> None:
        self._store: TCPStore | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._selector = selectors.DefaultSelector()

    def node(self) -> str:
        """The node on which this is, as Ray names it."""
        import ray  # pyright: ignore[reportMissingImports]

        return ray.get_runtime_context().get_node_id()

    def serve(self, patience: float) -> int:
        """Serve the gang's store, which outlives rank 0's process; returns its port."""
        self._store = TCPStore("127.0.0.1", 0, is_master=True, timeout=patience)
        return self._store.port

    def start(self, command: Sequence[str], environment: dict[str, str], folder: str) -> int:
        """Start the rank in ``folder``; returns its process's number."""
        if not os.path.isdir(folder):
            raise FileNotFoundError(f"{socket.gethostname()} has no folder {folder}")
        child = subprocess.Popen(
            tethered(command),
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._child = child
        for stream, is_error in ((child.stdout, False), (child.stderr, True)):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ, is_error)
        return child.pid

    def listen(self, seconds: float) -> tuple[list[Chunk], int | None]:
        """(what the rank wrote, its return code if it has ended); waits a while for either."""
        child = self._begun()
        end = time.monotonic() + seconds
        while True:
            chunks = self._read(0.05)
            code = child.poll()
            if code is not None:
                return chunks + self._rest(), code
            if chunks or time.monotonic() > end:
                return chunks, None

    def stop(self, number: int, grace: float) -> list[Chunk]:
        """End the rank, and what it started: ask, wait, kill; returns the last that it wrote."""
        child = self._begun()
        chunks: list[Chunk] = []
        self._send(number)
        end = time.monotonic() + grace
        while child.poll() is None and time.monotonic() < end:
            chunks += self._read(0.05)
        self._send(signal.SIGKILL)
        child.wait()
        return chunks + self._rest()

    def _begun(self) -> subprocess.Popen[bytes]:
        assert self._child is not None
        return self._child

    def _send(self, number: int) -> None:
        try:
            os.killpg(self._begun().pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # ended, and nothing of it is left

    def _read(self, seconds: float) -> list[Chunk]:
        if not self._selector.get_map():
            time.sleep(seconds)
            return []
        chunks: list[Chunk] = []
        for key, _ in self._selector.select(seconds):
            data = os.read(key.fd, _CHUNK)
            chunks.append((key.data, data))
            if not data:
                self._selector.unregister(key.fileobj)
        return chunks

    def _rest(self) -> list[Chunk]:
        """What is still in the pipes of a process that has ended."""
        chunks: list[Chunk] = []
        end = time.monotonic() + _DRAIN
        while self._selector.get_map() and time.monotonic() < end:
            chunks += self._read(0.05)
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
            chunks.append((key.data, b""))
        return chunks
