"""What runs in a DataLoader's worker process.

The parent sends tasks down one pipe, the worker sends results up another. A pipe per worker, not
a shared queue, so that a worker that dies in the middle of a write hurts only itself.
"""

from __future__ import annotations

import os
import pickle
import queue
import threading
import traceback
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import mortice

# Importing it teaches pickle to share the memory of storages between processes.
import mortice.multiprocessing
from mortice_nn.data.dataset import IterableDataset

PARENT_POLL_SECONDS = 5.0
# Handing over a descriptor costs about 5 ms, copying a megabyte through a pipe 1 to 2 ms.
SHARE_FROM_BYTES = 4 << 20
_Storage: type = type(mortice.empty(0).untyped_storage())
_info: WorkerInfo | None = None


class WorkerInfo(NamedTuple):
    """What ``get_worker_info()`` returns in a worker: its number, their number, its seed and its
    copy of the data set.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


def get_worker_info() -> WorkerInfo | None:
    """This worker process's WorkerInfo, or None in the main process."""
    return _info


class Setup(NamedTuple):
    """What a worker needs to start."""

    id: int
    num_workers: int
    seed: int
    dataset: Any
    collate_fn: Any
    auto_collation: bool
    drop_last: bool
    init_fn: Any


class Failure:
    """An exception on its way from a worker to the parent, with its traceback as text."""

    def __init__(self, error: BaseException, where: str) -> None:
        self.type: Any = type(error)
        self.where = where
        self.text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        try:
            pickle.loads(pickle.dumps(self.type))
        except Exception:
            # a class that the parent cannot find, such as one defined in a function
            self.type = RuntimeError

    def reraise(self) -> None:
        """Raise an exception of the same class that shows the worker's traceback."""
        message = f"Caught {self.type.__name__} {self.where}.\nOriginal {self.text}"
        if self.type is KeyError:
            raise _ReadableKeyError(message)
        try:
            error = self.type(message)
        except Exception:
            # a class that takes other arguments than a message
            error = RuntimeError(message)
        raise error


class _ReadableKeyError(KeyError):
    """KeyError shows the repr of its message, on one line; this shows it as it is."""

    def __str__(self) -> str:
        return str(self.args[0])


class Fetcher:
    """Turns a task (indices, or for a stream how many) into a batch."""

    def __init__(
        self, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool
    ) -> None:
        self.dataset = dataset
        self.auto_collation = auto_collation
        self.collate_fn = collate_fn
        self.drop_last = drop_last
        self.stream = iter(dataset) if isinstance(dataset, IterableDataset) else None

    def fetch(self, index: Any) -> Any:
        """The batch for ``index``; raises StopIteration at the end of a stream."""
        if self.stream is not None:
            return self._fetch_stream(index)
        if not self.auto_collation:
            return self.collate_fn(self.dataset[index])
        together = getattr(self.dataset, "__getitems__", None)
        samples = together(index) if callable(together) else [self.dataset[i] for i in index]
        return self.collate_fn(samples)

    def _fetch_stream(self, index: Any) -> Any:
        stream: Any = self.stream
        if not self.auto_collation:
            return self.collate_fn(next(stream))
        samples: list[Any] = []
        for _ in index:
            try:
                samples.append(next(stream))
            except StopIteration:
                break
        if not samples or (self.drop_last and len(samples) < len(index)):
            raise StopIteration
        return self.collate_fn(samples)


def seed_everything(seed: int) -> None:
    """Seed Python's, numpy's and mortice's random numbers."""
    import random

    import numpy as np

    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - data sets that use the old interface exist
    mortice.manual_seed(seed)


def run(setup: Setup, tasks: Any, results: Any, close: tuple[Any, ...]) -> None:
    """The worker's main function; ``close`` are the parent's pipe ends that fork copied.

    Tasks: ``("epoch", seed)`` starts a pass, ``("fetch", number, index)`` asks for a batch, None
    ends. Results: ``(number, batch)``, ``(number, Failure)`` or ``(number, END_OF_STREAM)``.
    """
    import signal

    # Ctrl-C reaches the whole group; the parent decides and closes the pipes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for connection in close:
        connection.close()
    global _info
    _info = WorkerInfo(setup.id, setup.num_workers, setup.seed, setup.dataset)
    where = f"in DataLoader worker process {setup.id}"
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(tasks, inbox), daemon=True).start()
    fetcher: Fetcher | None = None
    problem: Failure | None = None
    seed_everything(setup.seed)
    try:
        if setup.init_fn is not None:
            setup.init_fn(setup.id)
    except Exception as error:
        problem = Failure(error, where)
    while (task := inbox.get()) is not None:
        if task[0] == "epoch":
            _info = _info._replace(seed=task[1] + setup.id)
            fetcher = None
            continue
        number, index = task[1:]
        try:
            if problem is not None:
                result: Any = problem
            else:
                if fetcher is None:
                    fetcher = Fetcher(
                        setup.dataset, setup.auto_collation, setup.collate_fn, setup.drop_last
                    )
                result = fetcher.fetch(index)
        except StopIteration as error:
            stream = isinstance(setup.dataset, IterableDataset)
            result = END_OF_STREAM if stream else Failure(error, where)
        except Exception as error:
            result = Failure(error, where)
        if not _send(results, number, result, where):
            return


END_OF_STREAM = "end of stream"


def _send(results: Any, number: int, result: Any, where: str) -> bool:
    """Whether the parent could be told."""
    kind = "end" if result is END_OF_STREAM else "failure" if isinstance(result, Failure) else "ok"
    try:
        try:
            results.send_bytes(BatchPickler.dumps((number, kind, result)))
        except OSError:
            raise
        except Exception as error:
            # the batch cannot be pickled
            results.send((number, "failure", Failure(error, where)))
    except OSError:
        return False
    return True


class BatchPickler(ForkingPickler):
    """Shares the memory of large storages, and copies small ones."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is _Storage and obj.nbytes() < SHARE_FROM_BYTES:
            return obj.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return NotImplemented


def _receive(tasks: Any, inbox: queue.SimpleQueue[Any]) -> None:
    """Move tasks from the pipe to ``inbox`` at once: the parent must never wait to send while
    the worker waits to send a batch. Ends the worker when the parent is gone.
    """
    parent = os.getppid()
    try:
        while True:
            if not tasks.poll(PARENT_POLL_SECONDS):
                if os.getppid() != parent:
                    break
                continue
            task = tasks.recv()
            inbox.put(task)
            if task is None:
                return
    except (EOFError, OSError):
        pass
    inbox.put(None)
