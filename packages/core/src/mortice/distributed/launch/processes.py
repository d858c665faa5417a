"""The ranks of one machine as child processes: started, listened to, ended."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import IO, Any

# Ends with whoever started it: the kernel sends the signal even if that one was killed. Then the
# command takes the process's place.
_TETHERED = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() != int(sys.argv[1]): sys.exit(137)
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    print("mortice run:", sys.argv[2], "cannot be started:", error.strerror, file=sys.stderr)
    sys.exit(127)
"""
_CHUNK = 1 << 16
# The most that a pipe can be made to hold without rights.
_PIPE = 1 << 20


def tethered(command: Sequence[str]) -> list[str]:
    """The command, so that it is killed when this process ends; on Linux alone."""
    if not sys.platform.startswith("linux"):
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _TETHERED, str(os.getpid()), *command]


class Output:
    """One stream of one rank: copied to ours line by line, with the rank before each, and to a file."""

    def __init__(self, prefix: bytes, target: IO[bytes], path: str | None) -> None:
        self._prefix = prefix
        self._target = target
        self._file = None if path is None else open(path, "ab", buffering=0)  # noqa: SIM115 - closed with the stream
        self._rest = b""

    def take(self, data: bytes) -> None:
        """Take what came; an empty chunk ends the stream."""
        if self._file is not None:
            self._file.write(data)
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        if not data and self._rest:
            lines, self._rest = [self._rest], b""
        if lines:
            self._target.write(b"".join(self._prefix + line + b"\n" for line in lines))
            self._target.flush()
        if not data and self._file is not None:
            self._file.close()


class Processes:
    """Child processes, each in a session of its own, so that its own children end with it."""

    def __init__(self) -> None:
        self.children: list[subprocess.Popen[bytes]] = []
        self._selector = selectors.DefaultSelector()

    def start(
        self,
        command: Sequence[str],
        environment: dict[str, str],
        prefix: str,
        log_dir: str | None,
    ) -> None:
        """Start one; its standard output and error go to ours with ``prefix`` before each line."""
        if log_dir is not None:
            os.makedirs(log_dir, exist_ok=True)
        child = subprocess.Popen(
            tethered(command),
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.children.append(child)
        for stream, name, target in (
            (child.stdout, "stdout.log", sys.stdout),
            (child.stderr, "stderr.log", sys.stderr),
        ):
            assert stream is not None
            path = None if log_dir is None else os.path.join(log_dir, name)
            output = Output(prefix.encode(), target.buffer, path)
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ, output)

    def listen(self, seconds: float) -> None:
        """Pass on what the children write, for at most ``seconds``."""
        if not self._selector.get_map():
            time.sleep(seconds)
            return
        for key, _ in self._selector.select(seconds):
            self._read(key)

    def _read(self, key: Any) -> bool:
        """Take a chunk from a pipe; whether there may be more."""
        try:
            data = os.read(key.fileobj.fileno(), _CHUNK)
        except BlockingIOError:
            return False
        key.data.take(data)
        if not data:
            self._selector.unregister(key.fileobj)
            key.fileobj.close()
        return bool(data)

    def failed(self) -> int | None:
        """A child that ended with another status than 0, as its place; None if there is none.

        Of several, one that a signal ended: the others have probably failed for want of it.
        """
        bad = [place for place, child in enumerate(self.children) if child.poll()]
        return min(bad, key=lambda place: self.children[place].returncode > 0, default=None)

    def ended(self) -> bool:
        """Whether all have ended."""
        return all(child.poll() is not None for child in self.children)

    def send(self, number: int) -> None:
        """Send a signal to all, and to what they started."""
        for child in self.children:
            try:
                os.killpg(child.pid, number)
            except (ProcessLookupError, PermissionError):
                pass  # ended, and nothing of it is left

    def stop(self, grace: float, number: int = signal.SIGTERM) -> None:
        """End all: ask, wait, kill; and take the last of what they wrote."""
        self.send(number)
        end = time.monotonic() + grace
        while not self.ended() and time.monotonic() < end:
            self.listen(0.05)
        self.send(signal.SIGKILL)
        for child in self.children:
            child.wait()
        # What they started may hold the pipes open a moment longer.
        end = time.monotonic() + 1.0
        while self._selector.get_map() and time.monotonic() < end:
            self.listen(0.05)
        for key in list(self._selector.get_map().values()):
            # What is in the pipe was written in time, however late we come to read it.
            for _ in range(_PIPE // _CHUNK):
                if not self._read(key):
                    break
        for key in list(self._selector.get_map().values()):
            key.data.take(b"")
            self._selector.unregister(key.fileobj)
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()


def status(code: int) -> int:
    """A shell's exit status for a return code of subprocess."""
    return code if code >= 0 else 128 - code


def described(code: int) -> str:
    """``status 3`` or ``signal SIGKILL``."""
    if code >= 0:
        return f"status {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def say(text: str) -> None:
    """Tell whoever started the run."""
    print(f"mortice run: {text}", file=sys.stderr, flush=True)
