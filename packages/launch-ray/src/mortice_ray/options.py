"""What is said to this engine alone, as ``--engine-option NAME=VALUE``."""

from __future__ import annotations

import os
from dataclasses import dataclass

from mortice.distributed.launch import Job
from mortice.errors import InvalidValue

_STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")


@dataclass(frozen=True)
class Options:
    """The options, checked.

    Attributes:
        address: of the cluster; "local" for a Ray on this machine for this run alone; empty for
            RAY_ADDRESS, else the cluster that this machine is part of, else "local".
        strategy: how nodes are laid on machines. By default several nodes are several machines.
        cpus, gpus: what Ray reserves for each rank.
        patience: seconds to wait for the cluster to have room.
        env: variables of this process that the ranks get, beside PYTHONPATH and MORTICE's.
    """

    address: str = ""
    strategy: str = "PACK"
    cpus: float = 1.0
    gpus: float = 0.0
    patience: float = 300.0
    env: tuple[str, ...] = ()

    @classmethod
    def of(cls, job: Job) -> Options:
        """A job's options. Raises InvalidValue for what there is not, or is no number."""
        given = dict(job.options)
        strategy = given.pop("strategy", "STRICT_SPREAD" if job.nodes > 1 else "PACK").upper()
        if strategy not in _STRATEGIES:
            raise InvalidValue(f"strategy is one of {', '.join(_STRATEGIES)}, found {strategy!r}")
        numbers = {name: _number(name, given.pop(name)) for name in _NUMBERS if name in given}
        made = cls(
            address=given.pop("address", ""),
            strategy=strategy,
            env=tuple(filter(None, given.pop("env", "").split(","))),
            **numbers,
        )
        if given:
            known = "address, strategy, cpus, gpus, patience, env"
            raise InvalidValue(f"the engine ray has no option {', '.join(given)}; it has {known}")
        return made

    def variables(self) -> dict[str, str]:
        """What the ranks get of this process's environment; nodes have their own else."""
        return {
            name: value
            for name, value in os.environ.items()
            if name == "PYTHONPATH" or name.startswith("MORTICE_") or name in self.env
        }

    def bundle(self, ranks: int) -> dict[str, float]:
        """What Ray reserves for the ranks of one node."""
        wanted = {"CPU": self.cpus * ranks, "GPU": self.gpus * ranks}
        return {name: amount for name, amount in wanted.items() if amount}


_NUMBERS = ("cpus", "gpus", "patience")


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if value < 0:
        raise InvalidValue(f"{name} is a number that is not negative, found {text!r}")
    return value
