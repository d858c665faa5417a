"""One attempt: a placement group, an actor for each rank, and what became of them."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass, replace
from typing import Any

import ray  # pyright: ignore[reportMissingImports]
import ray.util.scheduling_strategies  # pyright: ignore[reportMissingImports]
from ray.exceptions import RayActorError, RayError  # pyright: ignore[reportMissingImports]

from mortice.distributed.launch import Job, Output, described, say, status
from mortice.errors import Unavailable

from .options import Options
from .rank import Chunk, Rank

_TICK = 0.25
_LISTEN = 0.5
# Seconds in which others may tell what they found, once one has failed.
_LINGER = 1.0
# Seconds beyond the grace that an actor may take to end its rank.
_PARTING = 5.0
# How long the store waits for what ranks ask of it.
_PATIENCE = 300.0


@dataclass
class Signals:
    """The first signal that said to end; 0 for none."""

    number: int = 0


class Signalled(Exception):
    """A signal said to end."""


@dataclass(frozen=True)
class Failure:
    """A rank that did not end as it should: which, the exit status, and how it is told."""

    rank: int
    code: int
    text: str
    #: Whether it is more likely a cause than a consequence.
    cause: bool


class Gang:
    """A block in which the ranks of one attempt run; afterwards all are ended."""

    def __init__(self, job: Job, options: Options, signals: Signals, attempt: int) -> None:
        self._job = job
        self._options = options
        self._signals = signals
        self._attempt = attempt
        self._actors: list[Any] = []
        self._outputs: list[dict[bool, Output]] = []
        self._group: Any = None
        self._open: set[tuple[int, bool]] = set()
        self._where: list[str] = []

    def __enter__(self) -> Gang:
        return self

    # -- starting --------------------------------------------------------------------------------

    def watch(self) -> int:
        """Run the ranks to their end; returns the attempt's status."""
        try:
            self._reserve()
            self._start()
            failure = self._listen()
        except Signalled:
            return 1
        except RayError as error:
            failure = Failure(-1, 1, f"the ranks cannot be started: {_short(error)}", cause=True)
        if failure is None:
            return 0
        say(failure.text)
        return failure.code

    def _reserve(self) -> None:
        bundle = self._options.bundle(self._job.processes)
        strategy = self._options.strategy
        self._group = ray.util.placement_group([bundle] * self._job.nodes, strategy=strategy)
        ready = self._group.ready()
        end = time.monotonic() + self._options.patience
        while not ray.wait([ready], timeout=_TICK)[0]:
            self._look_for_signals()
            if time.monotonic() > end:
                raise Unavailable(
                    f"the cluster has no room for {self._job.nodes} times {bundle} ({strategy}) "
                    f"after {self._options.patience:g} s; it has {ray.cluster_resources()}",
                    "Take fewer ranks, or options cpus=, gpus=, strategy= that fit",
                )

    def _start(self) -> None:
        job, options = self._job, self._options
        for rank in range(job.world_size):
            place = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
                self._group, placement_group_bundle_index=rank // job.processes
            )
            made = ray.remote(Rank).options(
                num_cpus=options.cpus, num_gpus=options.gpus, scheduling_strategy=place
            )
            self._actors.append(made.remote())
            self._outputs.append(self._output_of(rank))
        nodes = self._all([actor.node.remote() for actor in self._actors])
        addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
        hosts = [addresses[node] for node in nodes]
        (port,) = self._all([self._actors[0].serve.remote(_PATIENCE)])
        shared = replace(job, address=hosts[0]).shared(port, self._attempt)
        started: list[Any] = []
        for rank, actor in enumerate(self._actors):
            own = job.own(rank, rank % job.processes, rank // job.processes)
            variables = {**options.variables(), **shared, **own}
            started.append(actor.start.remote(job.command, variables, os.getcwd()))
        pids = self._all(started)
        self._where = [f"process {pid} on {host}" for pid, host in zip(pids, hosts)]

    def _output_of(self, rank: int) -> dict[bool, Output]:
        folder = None
        if self._job.log_dir is not None:
            attempt = f"attempt_{self._attempt}"
            folder = os.path.join(self._job.log_dir, attempt, f"rank_{rank}")
            os.makedirs(folder, exist_ok=True)
        prefix = f"[{rank}] ".encode() if self._job.world_size > 1 else b""
        made: dict[bool, Output] = {}
        for is_error, target in ((False, sys.stdout), (True, sys.stderr)):
            name = "stderr.log" if is_error else "stdout.log"
            path = None if folder is None else os.path.join(folder, name)
            made[is_error] = Output(prefix, target.buffer, path)
            self._open.add((rank, is_error))
        return made

    def _all(self, calls: list[Any]) -> list[Any]:
        """What the calls return; waits for all, and for signals."""
        pending = calls
        while pending:
            _, pending = ray.wait(pending, num_returns=len(pending), timeout=_TICK)
            self._look_for_signals()
        return ray.get(calls)

    def _look_for_signals(self) -> None:
        if self._signals.number:
            raise Signalled

    # -- listening -------------------------------------------------------------------------------

    def _listen(self) -> Failure | None:
        """Pass on what the ranks write until all have ended, or one has failed."""
        calls = {actor.listen.remote(_LISTEN): rank for rank, actor in enumerate(self._actors)}
        failures: list[Failure] = []
        end = float("inf")
        while calls and time.monotonic() < end:
            ready, _ = ray.wait(list(calls), timeout=_TICK)
            self._look_for_signals()
            for call in ready:
                rank = calls.pop(call)
                found = self._heard(rank, call)
                if isinstance(found, Failure):
                    failures.append(found)
                    end = min(end, time.monotonic() + _LINGER)
                elif found is None:
                    calls[self._actors[rank].listen.remote(_LISTEN)] = rank
        return min(failures, key=lambda failure: not failure.cause, default=None)

    def _heard(self, rank: int, call: Any) -> Failure | int | None:
        """What a call to a rank brought: its failure, 0, or None where it goes on."""
        try:
            chunks, code = ray.get(call)
        except RayActorError as error:
            where = self._where[rank]
            text = f"the actor of rank {rank} ({where}) has ended: {_short(error)}"
            return Failure(rank, 1, f"{text}; the others are ended", cause=True)
        self._pass_on(rank, chunks)
        if not code:
            return code
        text = f"rank {rank} ({self._where[rank]}) ended with {described(code)}"
        return Failure(rank, status(code), f"{text}; the others are ended", cause=code < 0)

    def _pass_on(self, rank: int, chunks: list[Chunk]) -> None:
        for is_error, data in chunks:
            if (rank, is_error) in self._open:
                self._outputs[rank][is_error].take(data)
                if not data:
                    self._open.remove((rank, is_error))

    # -- ending ----------------------------------------------------------------------------------

    def __exit__(self, *_: object) -> None:
        number = self._signals.number or signal.SIGTERM
        grace = self._job.grace
        calls = {actor.stop.remote(number, grace): k for k, actor in enumerate(self._actors)}
        if calls:
            ray.wait(list(calls), num_returns=len(calls), timeout=grace + _PARTING)
        for call, rank in calls.items():
            try:
                self._pass_on(rank, ray.get(call, timeout=0))
            except RayError:
                pass  # it has ended, with all that it had started
        for rank, is_error in sorted(self._open):
            self._outputs[rank][is_error].take(b"")
        for actor in self._actors:
            ray.kill(actor)
        if self._group is not None:
            ray.util.remove_placement_group(self._group)


def _short(error: BaseException) -> str:
    """The first line of an error of Ray's, which are long."""
    return str(error).strip().partition("\n")[0]
