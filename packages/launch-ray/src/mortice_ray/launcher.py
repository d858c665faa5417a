"""RayLauncher: a gang of ranks, each started by an actor, and started again as a whole."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

import ray  # pyright: ignore[reportMissingImports]

from mortice.distributed.launch import SIGNALLED, Job, Launcher, say
from mortice.errors import Unavailable

from .gang import Gang, Signals
from .options import Options

# Seconds that the head of a cluster may take to accept a connection.
_KNOCK = 20.0


class RayLauncher(Launcher):
    """Starts the ranks on a Ray cluster; one node of the job is one bundle of a placement group.

    Any node of the cluster may be lost but the head, and this process's own.
    """

    def run(self, job: Job) -> int:
        options = Options.of(job)
        code = 1
        with _connected(job, options), _signals() as signals:
            for attempt in range(job.max_restarts + 1):
                with Gang(job, options, signals, attempt) as gang:
                    code = gang.watch()
                if code == 0 or signals.number:
                    break
                if attempt < job.max_restarts:
                    say(f"restart {attempt + 1} of {job.max_restarts}")
            if signals.number:
                code = SIGNALLED + signals.number
        return code


@contextmanager
def _connected(job: Job, options: Options) -> Generator[None, None, None]:
    """A block in which there is a cluster; one of our own where there was none."""
    address = options.address or os.environ.get("RAY_ADDRESS") or "auto"
    quiet = {"log_to_driver": False, "logging_level": "error", "namespace": job.run_id}
    try:
        if address != "local":
            _knock(address)
            ray.init(address=address, **quiet)
    except OSError as error:
        if address != "auto":
            raise Unavailable(
                f"no Ray cluster answers at {address}: {error}",
                "Start one by `ray start --head`, or give --engine-option address=...; a cluster with "
                "tokens wants RAY_AUTH_MODE=token here, too",
            ) from error
    if not ray.is_initialized():
        # Nobody is told of this machine's use of Ray.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        cpus = int(max(os.cpu_count() or 1, options.cpus * job.world_size))
        ray.init(address="local", num_cpus=cpus, include_dashboard=False, **quiet)
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Raise OSError where nobody listens; Ray would try for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), _KNOCK).close()


@contextmanager
def _signals() -> Generator[Signals, None, None]:
    """A block in which SIGINT and SIGTERM are noted: Ray lets no error of a handler through."""
    noted = Signals()

    def note(number: int, frame: FrameType | None) -> None:
        noted.number = noted.number or number

    handlers = {n: signal.signal(n, note) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield noted
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
