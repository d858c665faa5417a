"""Samplers: the order in which a DataLoader visits indices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import islice
from typing import Any, Generic, TypeVar

import numpy as np

import mortice
from mortice.errors import InvalidValue

T_co = TypeVar("T_co", covariant=True)


def random_seed(generator: Any = None) -> int:
    """A seed drawn from ``generator``, or from the default one."""
    return int(mortice.randint(0, 2**31 - 1, (1,), generator=generator).item())


def _own_generator(generator: Any) -> Any:
    """``generator``, or a new one seeded by the default one: an iterator's order then does not
    depend on what else draws while it runs.
    """
    if generator is not None:
        return generator
    return mortice.Generator().manual_seed(random_seed())


class Sampler(Generic[T_co]):
    """An iterable over indices (or lists of them); ``__len__`` is optional."""

    def __init__(self, data_source: Sized | None = None) -> None:
        pass

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__")


class SequentialSampler(Sampler[int]):
    """0, 1, 2, ..."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """All indices in random order, or ``num_samples`` drawn with ``replacement``."""

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Any = None,
    ) -> None:
        if num_samples is not None and (
            not isinstance(num_samples, int) or num_samples <= 0  # pyright: ignore
        ):
            raise InvalidValue(
                f"num_samples should be a positive integer value, but got num_samples={num_samples}"
            )
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator

    @property
    def num_samples(self) -> int:
        """How many indices one pass gives; the data set may grow between passes."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n = len(self.data_source)
        generator = _own_generator(self.generator)
        left = self.num_samples
        if self.replacement:
            while left > 0:
                count = min(left, 1024)
                yield from mortice.randint(0, n, (count,), generator=generator).tolist()
                left -= count
            return
        while left > 0:
            yield from mortice.randperm(n, generator=generator).tolist()[:left]
            left -= n

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """``indices`` in random order."""

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for i in mortice.randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """``num_samples`` indices with probability proportional to ``weights``."""

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Any = None,
    ) -> None:
        if not isinstance(num_samples, int) or isinstance(num_samples, bool) or num_samples <= 0:
            raise InvalidValue(
                f"num_samples should be a positive integer value, but got num_samples={num_samples}"
            )
        self.weights = mortice.as_tensor(weights, dtype=mortice.float64)
        if self.weights.ndim != 1:
            raise InvalidValue(
                f"weights should be a 1d sequence, found shape {tuple(self.weights.shape)}"
            )
        values = self.weights.numpy()
        if not (values >= 0).all() or not values.sum() > 0:
            raise InvalidValue("weights must be at least 0 and not all 0")
        if not replacement and num_samples > int((values > 0).sum()):
            raise InvalidValue(
                f"cannot draw {num_samples} different indices from {int((values > 0).sum())} "
                "positive weights; pass replacement=True"
            )
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        weights = self.weights.numpy()
        if self.replacement:
            uniform = self._uniform(self.num_samples)
            bounds = weights.cumsum()
            chosen = np.searchsorted(bounds, uniform * bounds[-1], side="right")
            # rounding may put the largest uniform number beyond the last bound
            yield from np.minimum(chosen, np.flatnonzero(weights)[-1]).tolist()
            return
        # Efraimidis and Spirakis 2006: the largest of u ** (1 / w), here by their logarithms.
        uniform = np.maximum(self._uniform(len(weights)), np.finfo(np.float64).tiny)
        with np.errstate(divide="ignore"):
            keys = np.where(weights > 0, np.log(uniform) / weights, -np.inf)
        yield from np.argsort(-keys, kind="stable")[: self.num_samples].tolist()

    def _uniform(self, n: int) -> Any:
        return mortice.rand(n, dtype=mortice.float64, generator=self.generator).numpy()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of ``batch_size`` indices from ``sampler``; a short last one unless ``drop_last``."""

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise InvalidValue(
                f"batch_size should be a positive integer value, but got batch_size={batch_size}"
            )
        if not isinstance(drop_last, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(
                f"drop_last should be a boolean value, but got drop_last={drop_last}"
            )
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(islice(indices, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield batch

    def __len__(self) -> int:
        n = len(self.sampler)  # pyright: ignore[reportArgumentType]
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)
