"""Trying a plug-in in a child process, where it may crash, exit or hang.

The result is kept on disk with the time it was found. Only ``crashed`` keeps a plug-in from being
loaded; other results are shown with their age, and the load is tried all the same.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from mortice._base import config
from mortice._base.logging import active

from . import markers, store
from .entry import Entry, Status

if TYPE_CHECKING:
    import subprocess

# How long a crash is believed before the plug-in is probed anew. An editable install changes
# without notice, so there it is probed at each use.
CRASH_BELIEVED_SECONDS = 86_400.0

_CHILD = (
    # the working directory goes first: a json.py in it must not be ours
    "import sys; sys.path = [path for path in sys.path if path]; "
    "import json; job = json.load(sys.stdin); sys.path[:] = job['path']; "
    "from mortice._plugins.probe_child import run; run(job)"
)


class Result:
    """What a probe found, and when (seconds since the epoch)."""

    __slots__ = ("at", "seconds", "status")

    def __init__(self, status: Status, at: float, seconds: float) -> None:
        self.status = status
        self.at = at
        self.seconds = seconds

    def age(self) -> str:
        """``3 h ago``."""
        return f"{_duration(max(0.0, time.time() - self.at))} ago"


def _duration(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def can_probe() -> bool:
    """Whether a child can be started: not in a frozen program, nor in a probe's own child."""
    return (
        bool(sys.executable)
        and not getattr(sys, "frozen", False)
        and markers.PROBE_VARIABLE not in os.environ
    )


def run(entry: Entry) -> Result:
    """Load the entry in a child process now, and remember what happened."""
    limit = config.probe_timeout
    started = time.monotonic()
    status = _run_child(entry, limit)
    result = Result(status, time.time(), time.monotonic() - started)
    _remember(entry, result)
    logger = active("plugins")
    if logger:
        logger.info("%s: %s in a probe of %.1f s", entry.described(), status, result.seconds)
    return result


def last(entry: Entry) -> Result | None:
    """The remembered result for this entry in its present version, or None."""
    path = _path(entry)
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            told: Any = json.load(file)
        if told["stamp"] != _stamp(entry):
            return None
        status = Status(str(told["state"]), str(told["reason"]), str(told["fix"]))
        return Result(status, float(told["at"]), float(told["seconds"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def last_crash(entry: Entry) -> tuple[Result | None, bool]:
    """A remembered crash, and whether it is still believed; if not, probe again before a load."""
    result = last(entry)
    if result is None or result.status.state != "crashed":
        return None, False
    fresh = time.time() - result.at < CRASH_BELIEVED_SECONDS
    return result, fresh and not entry.distribution.editable


def forget(entry: Entry) -> None:
    """Drop the remembered result."""
    path = _path(entry)
    if path is not None and os.path.exists(path):
        os.unlink(path)


# -- the child ----------------------------------------------------------------------------------


def _run_child(entry: Entry, limit: float) -> Status:
    import subprocess  # here, because every load asks this module for old results
    import tempfile

    with tempfile.TemporaryDirectory(prefix="mortice-probe-") as folder:
        result = os.path.join(folder, "result.json")
        errors = os.path.join(folder, "stderr")
        job = {
            "path": [os.fsdecode(path) for path in sys.path],
            "group": entry.group.name,
            "name": entry.name,
            "distribution": entry.distribution.name,
            "result": result,
        }
        environment = {**os.environ, markers.PROBE_VARIABLE: "1"}
        with open(errors, "wb") as stderr:
            child = subprocess.Popen(
                [sys.executable, "-c", _CHILD],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=environment,
                # its own group, so that what it started is ended with it
                start_new_session=sys.platform != "win32",
            )
            exit_status = _wait(child, json.dumps(job).encode(), limit)
        return _judge(exit_status, limit, result, errors)


def _wait(child: subprocess.Popen[bytes], job: bytes, limit: float) -> int | None:
    """The child's exit status, or None after ``limit`` seconds; it is gone in any case."""
    import subprocess

    assert child.stdin is not None
    try:
        child.stdin.write(job)
        child.stdin.close()
    except OSError:
        pass  # it died before it read its job; its exit status tells
    try:
        return child.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        child.kill()
    else:
        import signal

        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it and all it started have ended
        except PermissionError:
            child.kill()  # macOS answers so for a group of which only a zombie is left
    child.wait()


def _judge(exit_status: int | None, limit: float, result: str, errors: str) -> Status:
    if exit_status is None:
        return Status("crashed", f"loading it did not end within {limit:g} s")
    try:
        with open(result, "rb") as file:
            told: Any = json.load(file)
        return Status(told["state"], told["reason"], told["fix"])
    except (OSError, ValueError):
        return Status("crashed", _death(exit_status) + _last_place(errors))


def _death(exit_status: int) -> str:
    if exit_status >= 0x80000000:  # how Windows reports an unhandled exception
        return f"loading it ended the process with exception 0x{exit_status:08X}"
    if exit_status >= 0:
        return f"loading it ended the process with exit status {exit_status}"
    import signal

    try:
        name = signal.Signals(-exit_status).name
    except ValueError:
        name = "a signal"
    return f"loading it ended the process with {name} (signal {-exit_status})"


def _last_place(errors: str) -> str:
    """Where Python's fault handler saw the crash, if it did."""
    with open(errors, "rb") as file:
        lines = file.read().decode("utf-8", "replace").splitlines()
    # Every thread is told, in no particular order; the one that crashed is called the current one.
    current = [i for i, line in enumerate(lines) if line.startswith("Current thread")]
    lines = lines[current[0] :] if current else lines
    places = [line.strip() for line in lines if line.strip().startswith("File ")]
    if places:
        return f", at {places[0]}"
    said = [line.strip() for line in lines if line.strip()]
    return f"; it said: {said[-1][:200]}" if said else ""


# -- what is remembered -------------------------------------------------------------------------


def _path(entry: Entry) -> str | None:
    where = markers.folder("probes")
    return None if where is None else os.path.join(where, f"{markers.key(entry)}.json")


def _stamp(entry: Entry) -> int:
    """Changes when the distribution is installed again, even in the same version."""
    try:
        return os.stat(entry.distribution.path or entry.distribution.location).st_mtime_ns
    except OSError:
        return 0


def _remember(entry: Entry, result: Result) -> None:
    path = _path(entry)
    if path is None or entry.source == "registered":
        return
    told = {
        "entry": entry.described(),
        "state": result.status.state,
        "reason": result.status.reason,
        "fix": result.status.fix,
        "at": result.at,
        "seconds": result.seconds,
        "stamp": _stamp(entry),
    }
    store.replace_file(path, json.dumps(told, indent=1).encode())
