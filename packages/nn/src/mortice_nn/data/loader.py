"""DataLoader: batches from a data set, in this process or by workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import cycle, repeat
from typing import Any

from mortice.errors import InvalidValue
from mortice_nn.data.collate import default_collate, default_convert
from mortice_nn.data.dataset import IterableDataset
from mortice_nn.data.sampler import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    random_seed,
)
from mortice_nn.data.worker import Fetcher, Setup
from mortice_nn.data.workers import WorkerPool, unwrap

DEFAULT_PREFETCH = 2


class DataLoader:
    """Iterates over ``dataset`` in batches.

    ``batch_size`` None: samples as they are. ``shuffle``, ``sampler`` (indices) and
    ``batch_sampler`` (lists of them) choose the order. ``num_workers`` processes fetch ahead,
    ``prefetch_factor`` batches each; ``worker_init_fn(id)`` runs in each first. ``timeout``: most
    seconds to wait for a batch, 0 for ever. ``persistent_workers`` keeps them between passes.
    ``in_order=False`` gives batches as they come. ``pin_memory`` is accepted; there is no pinned
    memory on the host, so it does nothing.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = (
            DEFAULT_PREFETCH if num_workers > 0 and prefetch_factor is None else prefetch_factor
        )
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.generator = generator
        self.persistent_workers = persistent_workers
        self.in_order = in_order
        self._stream = isinstance(dataset, IterableDataset)
        if self._stream:
            _check_stream(shuffle, sampler, batch_sampler)
        if sampler is not None and shuffle:
            raise InvalidValue("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise InvalidValue(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, "
                    "and drop_last"
                )
            batch_size = None
        elif batch_size is None and drop_last:
            raise InvalidValue("batch_size=None is mutually exclusive with drop_last")
        if sampler is None:
            if self._stream:
                sampler = _Endless()
            elif shuffle:
                sampler = RandomSampler(dataset, generator=generator)
            else:
                sampler = SequentialSampler(dataset)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        if collate_fn is None:
            collate_fn = default_collate if self._auto_collation else default_convert
        self.collate_fn = collate_fn
        self._iterator: _WorkerIterator | None = None

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        return self.batch_sampler if self._auto_collation else self.sampler

    def __iter__(self) -> Iterator[Any]:
        if self.num_workers == 0:
            return _iterate_here(self)
        if self.persistent_workers:
            if self._iterator is None or self._iterator.closed:
                self._iterator = _WorkerIterator(self)
            else:
                self._iterator.restart()
            return self._iterator
        return _WorkerIterator(self)

    def __len__(self) -> int:
        """Number of batches; for a stream from the length of the data set, if it has one."""
        if not self._stream:
            return len(self._index_sampler)
        n = len(self.dataset)
        if self.batch_size is None:
            return n
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)


class _Endless:
    """The sampler of a stream: how many, never which."""

    def __iter__(self) -> Iterator[None]:
        return repeat(None)


def _check_workers(
    num_workers: int, timeout: float, prefetch_factor: int | None, persistent: bool
) -> None:
    if num_workers < 0:
        raise InvalidValue(
            f"num_workers option should be non-negative, found {num_workers}; use num_workers=0 to "
            "disable multiprocessing"
        )
    if timeout < 0:
        raise InvalidValue(f"timeout option should be non-negative, found {timeout}")
    if num_workers == 0 and prefetch_factor is not None:
        raise InvalidValue(
            "prefetch_factor option could only be specified in multiprocessing; let num_workers > 0"
        )
    if prefetch_factor is not None and prefetch_factor < 1:
        raise InvalidValue(f"prefetch_factor must be at least 1, found {prefetch_factor}")
    if persistent and num_workers == 0:
        raise InvalidValue("persistent_workers option needs num_workers > 0")


def _check_stream(shuffle: bool | None, sampler: Any, batch_sampler: Any) -> None:
    for name, value in (
        ("shuffle", shuffle),
        ("sampler", sampler),
        ("batch_sampler", batch_sampler),
    ):
        if value:
            raise InvalidValue(
                f"DataLoader with IterableDataset: expected unspecified {name} option, but got "
                f"{name}={value}; a stream has its own order"
            )


def _iterate_here(loader: DataLoader) -> Iterator[Any]:
    # Drawn although unused, so that the same seed gives the same order with and without workers.
    random_seed(loader.generator)
    fetcher = Fetcher(loader.dataset, loader._auto_collation, loader.collate_fn, loader.drop_last)
    for index in loader._index_sampler:
        try:
            batch = fetcher.fetch(index)
        except StopIteration:
            if fetcher.stream is None:
                raise
            return
        yield batch


class _WorkerIterator:
    """One pass, or with persistent workers several, over a loader by worker processes.

    Tasks are numbered; at most ``prefetch_factor`` per worker are under way.
    """

    def __init__(self, loader: DataLoader) -> None:
        self.loader = loader
        count = loader.num_workers
        seed = random_seed(loader.generator)
        setups = [
            Setup(
                i,
                count,
                seed + i,
                loader.dataset,
                loader.collate_fn,
                loader._auto_collation,
                loader.drop_last,
                loader.worker_init_fn,
            )
            for i in range(count)
        ]
        self.pool = WorkerPool(setups, loader.multiprocessing_context)
        self.closed = False
        self._begin()

    def _begin(self) -> None:
        self.indices = iter(self.loader._index_sampler)
        self.active = set(range(self.loader.num_workers))  # streams that have not ended
        self.turns = cycle(range(self.loader.num_workers))
        self.load = [0] * self.loader.num_workers
        self.sent = 0
        self.order: deque[int] = deque()  # tasks whose batches are due, in order
        self.ready: dict[int, tuple[str, Any]] = {}
        for _ in range(self.loader.num_workers * (self.loader.prefetch_factor or 1)):
            self._send_one()

    def restart(self) -> None:
        """Begin another pass with the same workers; what is under way is thrown away."""
        try:
            while any(self.load):
                worker, *_ = self._receive()
                self.load[worker] -= 1
            seed = random_seed(self.loader.generator)
            for worker in range(self.loader.num_workers):
                self.pool.send(worker, ("epoch", seed))
        except BaseException:
            self.close()
            raise
        self._begin()

    def _send_one(self) -> None:
        """Give the next task to the next worker that has room; none if the sampler is done."""
        limit = self.loader.prefetch_factor or 1
        for _ in range(self.loader.num_workers):
            worker = next(self.turns)
            if worker in self.active and self.load[worker] < limit:
                break
        else:
            return
        try:
            index = next(self.indices)
        except StopIteration:
            return
        self.pool.send(worker, ("fetch", self.sent, index))
        self.order.append(self.sent)
        self.load[worker] += 1
        self.sent += 1

    def _receive(self) -> tuple[int, int, str, Any]:
        busy = {worker for worker, load in enumerate(self.load) if load}
        return self.pool.receive(busy, self.loader.timeout)

    def __iter__(self) -> _WorkerIterator:
        return self

    def __next__(self) -> Any:
        try:
            kind, result = self._next_result()
        except StopIteration:
            if not self.loader.persistent_workers:
                self.close()
            raise
        except BaseException:
            # Ctrl-C, a dead worker or a time limit: nothing is left running.
            self.close()
            raise
        return unwrap(kind, result)

    def _next_result(self) -> tuple[str, Any]:
        while self.order:
            number = self._due()
            if number is not None:
                self.order.remove(number)
                kind, result = self.ready.pop(number)
                if kind == "end":
                    continue
                return kind, result
            worker, number, kind, result = self._receive()
            self.load[worker] -= 1
            self.ready[number] = (kind, result)
            if kind == "end":
                self.active.discard(worker)
            self._send_one()
        raise StopIteration

    def _due(self) -> int | None:
        """The task whose batch comes next, if it is here."""
        if self.loader.in_order:
            return self.order[0] if self.order[0] in self.ready else None
        return next(iter(self.ready), None)

    def __len__(self) -> int:
        return len(self.loader)

    def close(self) -> None:
        """End the workers."""
        self.closed = True
        self.pool.close()

    def __del__(self) -> None:
        pool = self.__dict__.get("pool")
        if pool is not None:
            pool.close()
