"""DistributedSampler: each rank's share of a data set."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import mortice
from mortice.errors import InvalidValue
from mortice_nn.data.sampler import Sampler


class DistributedSampler(Sampler[int]):
    """Every ``num_replicas``-th index from ``rank`` on, the same number for every rank.

    Indices are repeated, or with ``drop_last`` left out, to make it so. With ``shuffle`` call
    ``set_epoch`` before each pass, or the order is the same every time.
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        num_replicas = (
            int(mortice.distributed.get_world_size()) if num_replicas is None else num_replicas
        )
        rank = int(mortice.distributed.get_rank()) if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise InvalidValue(
                f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]"
            )
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        self.shuffle = shuffle
        self.seed = seed
        n = len(dataset)
        each = n // num_replicas if drop_last else math.ceil(n / num_replicas)
        self.num_samples = each
        self.total_size = each * num_replicas

    def __iter__(self) -> Iterator[int]:
        n = len(self.dataset)
        if self.shuffle:
            generator = mortice.Generator().manual_seed(self.seed + self.epoch)
            indices = mortice.randperm(n, generator=generator).tolist()
        else:
            indices = list(range(n))
        if len(indices) < self.total_size and indices:
            indices *= math.ceil(self.total_size / len(indices))
        return iter(indices[: self.total_size][self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass's order depend on ``epoch``."""
        self.epoch = epoch
