"""What is to be run, and what an engine is."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

#: A launcher's exit status when a signal ended the run.
SIGNALLED = 128


@dataclass(frozen=True)
class Job:
    """A command, and the gang that runs it.

    Attributes:
        command: program and arguments of each rank.
        processes: ranks on each node.
        nodes: how many machines take part; ``node`` is which this one is.
        address, port: of the store; port 0 lets the system choose (on one node only).
        max_restarts: how often the whole gang is started again after a failure.
        log_dir: where each rank's output is kept, too; None for nowhere.
        grace: seconds between asking processes to end and killing them.
        run_id: a name that all nodes share.
        environment: more variables for the ranks.
        options: what is for one engine alone.
    """

    command: tuple[str, ...]
    processes: int = 1
    nodes: int = 1
    node: int = 0
    address: str = "127.0.0.1"
    port: int = 0
    max_restarts: int = 0
    log_dir: str | None = None
    grace: float = 10.0
    run_id: str = "mortice"
    environment: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def world_size(self) -> int:
        return self.processes * self.nodes

    def shared(self, port: int, attempt: int) -> dict[str, str]:
        """The variables that are the same for all ranks; the names are torchrun's."""
        world = str(self.world_size)
        found = {
            "WORLD_SIZE": world,
            "LOCAL_WORLD_SIZE": str(self.processes),
            "GROUP_WORLD_SIZE": str(self.nodes),
            "ROLE_WORLD_SIZE": world,
            "ROLE_NAME": "default",
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(port),
            "TORCHELASTIC_RESTART_COUNT": str(attempt),
            "TORCHELASTIC_MAX_RESTARTS": str(self.max_restarts),
            "TORCHELASTIC_RUN_ID": self.run_id,
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }
        if self.world_size > 1 and "OMP_NUM_THREADS" not in os.environ:
            # Ranks on one machine must not each start a thread per core.
            found["OMP_NUM_THREADS"] = "1"
        return {**found, **self.environment}

    def own(self, rank: int, local_rank: int, node: int) -> dict[str, str]:
        """The variables that tell a rank who it is."""
        return {
            "RANK": str(rank),
            "LOCAL_RANK": str(local_rank),
            "GROUP_RANK": str(node),
            "ROLE_RANK": str(rank),
        }


class Launcher(ABC):
    """Base of all engines; a plug-in's ``mortice_launcher`` hook returns a subclass."""

    #: The names of the options it takes; None: it says itself what it does not take.
    OPTIONS: ClassVar[tuple[str, ...] | None] = None
    #: Whether ranks start on this machine, so that a script that is not on it is told of before.
    STARTS_HERE: ClassVar[bool] = False

    @abstractmethod
    def run(self, job: Job) -> int:
        """Run the job to its end, and tell on standard error of what went wrong.

        Returns the exit status: 0 if all ranks returned 0, else that of the first one that
        failed, 128 + n if signal n ended it.
        """
