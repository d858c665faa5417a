"""Beginning operations one by one, or several at once."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from mortice._tensor.tensor import Tensor
from mortice.errors import InvalidState

from . import arguments
from .group import ProcessGroup, is_outside, resolved
from .reduce_op import ReduceOp
from .work import Work


class _Local(threading.local):
    """What this thread is collecting."""

    manager: CoalescingManager | None = None


_local = _Local()


def submit(
    name: str,
    group: Any,
    like: Tensor | None,
    async_op: bool,
    timeout: Any,
    inputs: tuple[Tensor, ...] = (),
    outputs: tuple[Tensor, ...] = (),
    op: ReduceOp | None = None,
    root: int = -1,
    tag: int = 0,
    counts: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
) -> Work | None:
    """Begin an operation on the communicator of ``like``'s device, and wait unless ``async_op``.

    Inside ``_coalescing_manager`` the operation is begun, and waited for at its end.
    """
    found = resolved(group)
    device = like.device.type if like is not None else _first_device(found)
    manager = _local.manager
    wait = manager is None and not async_op
    limit = None if timeout is None else arguments.limit(timeout)
    # By position all the way: each round of names costs 0.2 us.
    work = found.submit(name, device, limit, wait, (inputs, outputs, op, root, tag, counts))
    if manager is not None and work is not None:
        manager.append(work)
    return work


def _first_device(group: ProcessGroup) -> str:
    """Where an operation without tensors runs: the CPU if there is a backend for it."""
    return "cpu" if "cpu" in group.backends else next(iter(group.backends))


class CoalescingManager:
    """What ``_coalescing_manager`` gives: the operations begun inside it."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def append(self, work: Work) -> None:
        self.works.append(work)

    def wait(self) -> None:
        """Wait for all; raises the first error."""
        for work in self.works:
            work.wait()


@contextmanager
def _coalescing_manager(
    group: Any = None, device: Any = None, async_ops: bool = False
) -> Generator[CoalescingManager, None, None]:
    """Begin the operations of the block without waiting between them.

    At its end all are waited for; with ``async_ops`` the manager's ``wait()`` does that.
    """
    if _local.manager is not None:
        raise InvalidState("_coalescing_manager: this thread is inside one already.")
    manager = _local.manager = CoalescingManager()
    try:
        yield manager
    finally:
        _local.manager = None
    if not async_ops and not is_outside(group):
        manager.wait()
