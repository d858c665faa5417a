"""StreamCommunicator: the base of backends whose operations are queued on a device's stream.

An operation is put on a stream of the communicator's own, behind what the caller's stream holds
now; waiting for it makes the caller's stream, and not the host, wait. A thread watches over what is
under way, since no call returns an error of it.
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from datetime import timedelta
from typing import Any

from mortice._tensor import streams
from mortice._tensor.rows import bump
from mortice._types.device import Device
from mortice.errors import OperationTimeout

from .communicator import Call, Communicator, Setup
from .work import Work

_WATCH_EVERY = 0.1


class StreamWork(Work):
    """A Work that is done when an event of a stream is."""

    def __init__(self, call: Call) -> None:
        super().__init__(str(call), call.outputs)
        self.call = call
        self.event: streams.Event | None = None
        self.ends = time.monotonic() + call.timeout
        # What the stream still reads must live as long as this.
        self.held = (call.inputs, call.outputs)

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Let the current stream wait for the result; on the host, only for errors known by now."""
        if self._error is not None:
            raise self._error
        if self.event is not None:
            self.event.wait(streams.current(self.event_device))
        return True

    event_device: Any = None


class StreamCommunicator(Communicator):
    """Write ``launch``, and ``failure`` and ``abort`` where the library can."""

    #: Whether each pair of ranks that exchange messages gets a stream of its own.
    stream_per_peer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        # Where none was given it is the current one.
        self.device: Device = setup.device or streams.current(Device(self.devices[0])).device
        self._streams: dict[Any, streams.Stream] = {}
        self._under_way: list[StreamWork] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._broken: BaseException | None = None
        self._watcher: threading.Thread | None = None

    @abstractmethod
    def launch(self, call: Call, stream: streams.Stream) -> None:
        """Put an operation on a stream."""

    def failure(self) -> BaseException | None:
        """An error of the library that came up since; None if there is none."""
        return None

    def submit(self, call: Call) -> Work:
        work = StreamWork(call)
        work.event_device = self.device
        for tensor in call.outputs:
            bump(tensor)
        if self._broken is not None:
            work.finish(self.setup.explain(call, self._broken))
            return work
        stream = self._stream_for(call)
        try:
            self.setup.before(call)
            stream.wait_stream(streams.current(self.device))
            self.launch(call, stream)
            work.event = stream.record_event()
        except Exception as error:
            self._broken = error
            work.finish(self.setup.explain(call, error))
            return work
        with self._lock:
            self._under_way.append(work)
            if self._watcher is None:
                self._watcher = threading.Thread(
                    target=self._watch, name=f"mortice-{self.setup.name}-watch", daemon=True
                )
                self._watcher.start()
        return work

    def _stream_for(self, call: Call) -> streams.Stream:
        key = call.root if self.stream_per_peer and call.name in ("send", "recv") else None
        found = self._streams.get(key)
        if found is None:
            found = self._streams[key] = streams.Stream(self.device)
        return found

    # -- the watcher -----------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._closing.wait(_WATCH_EVERY):
            self._look()

    def _look(self) -> None:
        """Finish what is done; give everything up when something is late or a rank is gone."""
        with self._lock:
            works = [*self._under_way]
        done = [work for work in works if work.event is not None and work.event.query()]
        for work in done:
            work.finish()
        left = [work for work in works if work not in done]
        with self._lock:
            self._under_way = [work for work in self._under_way if work not in done]
        if not left:
            return
        error = self.failure()
        if error is None and time.monotonic() > left[0].ends:
            error = OperationTimeout(f"not finished after {left[0].call.timeout:g} s")
        if error is None:
            error = self.setup.loss()
        if error is not None:
            self._give_up(left, error)

    def _give_up(self, works: list[StreamWork], error: BaseException) -> None:
        self._broken = error
        self.abort()
        for work in works:
            work.finish(self.setup.explain(work.call, error))
        with self._lock:
            self._under_way = []

    def close(self) -> None:
        self._closing.set()
        if self._watcher is not None:
            self._watcher.join(5.0)
        for stream in self._streams.values():
            if self._broken is None:
                stream.synchronize()
        self._look()
