"""Data sets: by index (Dataset) or as a stream (IterableDataset), and combinations of them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Generic, TypeVar

import mortice
from mortice import Tensor
from mortice.errors import ArgumentError, InvalidValue

T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """Samples by index: subclasses define ``__getitem__`` and mostly ``__len__``.

    A ``__getitems__(indices) -> list`` is used, where it exists, to fetch a whole batch.
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError(f"{type(self).__name__} does not define __getitem__")

    def __add__(self, other: Dataset[Any]) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co]):
    """Samples as a stream: subclasses define ``__iter__``.

    With several workers each gets a copy of the data set and iterates all of it, unless
    ``__iter__`` shares the work by ``get_worker_info()``.
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__")

    def __add__(self, other: Dataset[Any]) -> Any:
        return ChainDataset([self, other])


class TensorDataset(Dataset[Any]):
    """Rows of tensors of equal first size: ``self[i]`` is a tuple of their rows i."""

    def __init__(self, *tensors: Tensor) -> None:
        if any(tensor.shape[0] != tensors[0].shape[0] for tensor in tensors):
            raise InvalidValue(
                "TensorDataset: size mismatch between tensors, their first sizes are "
                f"{[tensor.shape[0] for tensor in tensors]}"
            )
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return self.tensors[0].shape[0]


class StackDataset(Dataset[Any]):
    """Data sets side by side: ``self[i]`` is a tuple, or with keywords a dict, of samples i."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise InvalidValue("StackDataset takes data sets by position or by keyword, not both")
        self.datasets: Any = kwargs or args
        parts = list(kwargs.values()) if kwargs else list(args)
        if not parts:
            raise InvalidValue("StackDataset: at least one dataset should be passed")
        self._length = len(parts[0])
        if any(len(part) != self._length for part in parts):
            raise InvalidValue(
                f"StackDataset: size mismatch between datasets: {[len(part) for part in parts]}"
            )

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: part[index] for name, part in self.datasets.items()}  # pyright: ignore
        return tuple(part[index] for part in self.datasets)

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[Any]):
    """Data sets one after the other."""

    datasets: list[Any]
    cumulative_sizes: list[int]

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise InvalidValue("ConcatDataset: datasets should not be an empty iterable")
        if any(isinstance(part, IterableDataset) for part in self.datasets):
            raise ArgumentError("ConcatDataset does not support IterableDataset; use ChainDataset")
        self.cumulative_sizes = list(accumulate(len(part) for part in self.datasets))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, idx: int) -> Any:
        if idx < 0:
            if -idx > len(self):
                raise InvalidValue("absolute value of index should not exceed dataset length")
            idx += len(self)
        part = bisect_right(self.cumulative_sizes, idx)
        start = self.cumulative_sizes[part - 1] if part else 0
        return self.datasets[part][idx - start]


class ChainDataset(IterableDataset[Any]):
    """Streams one after the other."""

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = datasets

    def __iter__(self) -> Iterator[Any]:
        for part in self.datasets:
            if not isinstance(part, IterableDataset):
                raise ArgumentError("ChainDataset only supports IterableDataset")
            yield from part

    def __len__(self) -> int:
        return sum(len(part) for part in self.datasets)  # pyright: ignore[reportArgumentType]


class Subset(Dataset[T_co]):
    """``dataset`` restricted to ``indices``, in their order."""

    def __init__(self, dataset: Dataset[T_co], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, idx: Any) -> T_co:
        if isinstance(idx, list):
            return self.dataset[[self.indices[i] for i in idx]]  # pyright: ignore
        return self.dataset[self.indices[idx]]

    def __getitems__(self, indices: list[int]) -> list[T_co]:
        chosen = [self.indices[i] for i in indices]
        fetch: Any = getattr(self.dataset, "__getitems__", None)
        return [self.dataset[i] for i in chosen] if fetch is None else fetch(chosen)

    def __len__(self) -> int:
        return len(self.indices)


def random_split(
    dataset: Dataset[T_co], lengths: Sequence[int | float], generator: Any = None
) -> list[Subset[T_co]]:
    """Random parts of the given lengths, or fractions that sum to 1, without overlap."""
    total = len(dataset)  # pyright: ignore[reportArgumentType]
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        sizes: list[int] = []
        for i, fraction in enumerate(lengths):
            if not 0 <= fraction <= 1:
                raise InvalidValue(f"Fraction at index {i} is not between 0 and 1: {fraction}")
            sizes.append(math.floor(total * fraction))
        # what rounding left over goes one each to the first parts
        for i in range(total - sum(sizes)):
            sizes[i % len(sizes)] += 1
    else:
        sizes = [int(length) for length in lengths]
    if sum(sizes) != total:
        raise InvalidValue(
            f"Sum of input lengths {sum(sizes)} does not equal the length of the dataset {total}"
        )
    order = mortice.randperm(total, generator=generator).tolist()
    ends = list(accumulate(sizes))
    return [Subset(dataset, order[end - size : end]) for end, size in zip(ends, sizes, strict=True)]
