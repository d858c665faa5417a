"""Join: training with uneven numbers of inputs.

A rank whose inputs are over goes on taking part in the others' collectives, with nothing, until
all are at the end::

    with Join([model]):
        for batch in batches:  # as many as this rank has
            ...
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np

from mortice._tensor.make import wrap_array
from mortice.errors import ArgumentError, DistError, InvalidValue

from .. import collectives
from ..group import ProcessGroup


class JoinHook(ABC):
    """What a joined rank does for one Joinable."""

    @abstractmethod
    def main_hook(self) -> None:
        """Shadow the collectives of one step of the others."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Called once when all ranks have joined; ``is_last_joiner`` on those that had most."""
        return


class Joinable(ABC):
    """What can be joined: it calls ``Join.notify_join_context(self)`` before each step's first
    collective.
    """

    @abstractmethod
    def join_hook(self, **options: Any) -> JoinHook:
        """What a joined rank is to do for this object."""

    @property
    @abstractmethod
    def join_process_group(self) -> ProcessGroup:
        """The group whose ranks are joined."""

    _join: Join | None = None


class Join:
    """See the module. ``options`` go to each object's ``join_hook``.

    With ``throw_on_early_termination`` all ranks raise as soon as one has no more inputs.
    """

    def __init__(
        self,
        joinables: Sequence[Any],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **options: Any,
    ) -> None:
        if not joinables:
            raise InvalidValue("Join: give at least one object to join.")
        for one in joinables:
            if not hasattr(one, "join_hook"):
                raise ArgumentError(
                    f"Join: {type(one).__name__} has no join_hook(); it cannot join."
                )
        self._joinables = list(joinables)
        self._enabled = enable
        self._throw = throw_on_early_termination
        self._group: ProcessGroup = joinables[0].join_process_group
        self._hooks = [one.join_hook(**options) for one in joinables]

    def __enter__(self) -> Join:
        if self._enabled:
            for one in self._joinables:
                one._join = None
            self._joinables[0]._join = self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._enabled:
            return
        for one in self._joinables:
            one._join = None
        if kind is not None:  # the others find out from the store or their time limit
            return
        last, active = True, self._count(0)
        while active:
            if self._throw:
                self._stop(1)
            last = False
            for hook in self._hooks:
                hook.main_hook()
            active = self._count(0)
        for hook in self._hooks:
            hook.post_hook(last)

    @staticmethod
    def notify_join_context(joinable: Any) -> int | None:
        """Say that this rank makes another step; how many do, or None outside a Join."""
        join: Join | None = getattr(joinable, "_join", None)
        if join is None:
            return None
        active = join._count(1)
        if join._throw:
            join._stop(int(active < join._group.size()))
        return active

    def _count(self, mine: int) -> int:
        """How many ranks have an input for this step."""
        return self._sum(mine)

    def _stop(self, mine: int) -> None:
        if self._sum(mine):
            raise DistError(
                "Join: a rank has no more inputs, and throw_on_early_termination was asked for."
            )

    def _sum(self, mine: int) -> int:
        device = "cpu" if "cpu" in self._group.backends else next(iter(self._group.backends))
        total = wrap_array(np.array([mine], np.int64)).to(device)
        collectives.all_reduce(total, group=self._group)
        return int(total.item())
