"""What UCC exchanges before it has connections, and after: through the group's store."""

from __future__ import annotations

import ctypes
import time
from typing import Any

from mortice.distributed import Setup
from mortice.errors import OperationTimeout

from . import structures as ucc

# Seconds between two looks at the store.
_PAUSE = 0.001


class Exchange:
    """All-gathers of bytes, numbered as they are begun, which all ranks do in one order.

    UCC waits for them in loops of its own, which only an error ends: so an exchange fails when its
    time is over, or a rank has ended. ``error`` is what was raised in a call of UCC's, from which
    nothing can be raised.
    """

    def __init__(self, setup: Setup, name: str) -> None:
        self._setup = setup
        self._name = name
        self._count = 0
        self._pending: dict[int, tuple[int, int]] = {}
        self.error: BaseException | None = None
        self.allow(setup.timeout)
        # Kept here: UCC calls them for as long as there is a context.
        functions = (
            ucc.AllGather(self._begin),
            ucc.OnRequest(self._test),
            ucc.OnRequest(self._free),
        )
        self.oob = ucc.Oob(*functions, None, setup.size, setup.rank)

    def allow(self, seconds: float) -> None:
        """Let exchanges take so long from now on."""
        self._end = time.monotonic() + seconds
        self._seconds = seconds

    def _keys(self, number: int) -> list[str]:
        return [f"{self._name}/{number}/{rank}" for rank in range(self._setup.size)]

    def _begin(self, data: int, room: int, size: int, info: Any, request: Any) -> int:
        try:
            self._count += 1
            key = self._keys(self._count)[self._setup.rank]
            self._setup.store.set(key, ctypes.string_at(data, size))
        except BaseException as error:
            self.error = error
            return ucc.NO_MESSAGE
        self._pending[self._count] = room, size
        request[0] = self._count
        return ucc.OK

    def _test(self, request: int) -> int:
        if request not in self._pending:
            return ucc.OK
        try:
            keys = self._keys(request)
            if not self._setup.store.check(keys):
                self._look_around()
                time.sleep(_PAUSE)
                return ucc.IN_PROGRESS
            room, size = self._pending.pop(request)
            for rank, data in enumerate(self._setup.store.multi_get(keys)):
                ctypes.memmove(room + rank * size, data, size)
        except BaseException as error:
            self.error = error
            return ucc.NO_MESSAGE
        return ucc.OK

    def _look_around(self) -> None:
        if time.monotonic() > self._end:
            raise OperationTimeout(f"not all ranks came to UCC within {self._seconds:g} s")
        if loss := self._setup.loss():
            raise loss

    def _free(self, request: int) -> int:
        self._pending.pop(request, None)
        return ucc.OK
