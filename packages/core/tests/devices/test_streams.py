"""Streams and events: the defaults, and what a device that has queues is asked."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import mortice
from mortice.backend import Features

from .conftest import Toy


class Queued(Toy):
    """Notes everything that is asked about queues; its kernels take the queue."""

    class features(Features):
        streams = True

    def stream(self, index: int, priority: int | None) -> Any:
        return f"queue {index} {priority}"

    def stream_done(self, stream: Any, index: int) -> bool:
        return False

    def stream_synchronize(self, stream: Any, index: int) -> None:
        self.calls.append(("wait for", stream))

    def record(self, stream: Any, index: int) -> Any:
        self.calls.append(("record", stream))
        return len(self.calls)

    def mark_done(self, mark: Any) -> bool:
        return mark > 1

    def mark_synchronize(self, mark: Any) -> None:
        self.calls.append(("host waits", mark))

    def stream_wait(self, stream: Any, mark: Any) -> None:
        self.calls.append(("waits", stream, mark))

    def elapsed(self, start: Any, end: Any) -> float:
        return float(end - start)

    def kernel(self, op: str, dtypes: Any) -> Any:
        if op == "neg":
            return lambda x, out, stream: self.calls.append(("neg", stream))
        return None


def asked(name: str) -> list[Any]:
    from mortice._dispatch.backends import runtime

    return runtime(name).calls


def test_a_device_with_queues_is_asked_for_everything(device: Any) -> None:
    name = device(Queued)
    module = mortice.get_device_module(name)
    one, two = mortice.Stream(name), mortice.Stream(f"{name}:0", priority=-1)
    assert (one.native_handle, two.native_handle) == ("queue 0 0", "queue 0 -1")
    assert not one.query()
    start = module.Event(enable_timing=True)
    assert start.query()  # nothing recorded
    start.record(one)
    assert not start.query()
    end = mortice.Event(name, enable_timing=True)
    with two:
        end.record()
        assert module.current_stream() == two
    assert module.current_stream() == module.default_stream() != two
    two.wait_event(start)
    one.wait_stream(two)
    assert start.elapsed_time(end) == 1.0
    one.synchronize()
    assert asked(name) == [
        ("record", "queue 0 0"),
        ("record", "queue 0 -1"),
        ("waits", "queue 0 -1", 1),
        ("record", "queue 0 -1"),
        ("waits", "queue 0 0", 4),
        ("host waits", 2),
        ("wait for", "queue 0 0"),
    ]


def test_kernels_get_the_current_queue(device: Any) -> None:
    name = device(Queued)
    x = mortice.empty(2, device=name)
    _ = -x
    with mortice.Stream(name, priority=3):
        _ = -x
    found = [call for call in asked(name) if call[0] == "neg"]
    assert found == [("neg", "queue 0 None"), ("neg", "queue 0 3")]


def test_memory_in_use_by_another_stream_waits_for_it(device: Any) -> None:
    name = device(Queued)
    stream = mortice.Stream(name)
    x = mortice.empty(2, device=name)
    x.record_stream(stream)
    del x
    assert asked(name)[-2:] == [("wait for", "queue 0 0"), ("free", 8)]
    mortice.ones(2).record_stream(mortice.cpu.Stream())


def test_a_device_without_queues_has_them_all_the_same(device: Any) -> None:
    name = device()
    stream = mortice.Stream(name)
    start, end = (mortice.Event(name, enable_timing=True) for _ in range(2))
    start.record()
    end.record(stream)
    assert start.query()
    assert stream.query()
    assert 0 <= start.elapsed_time(end) < 60_000
    stream.wait_stream(mortice.get_device_module(name).current_stream())


def test_so_has_the_cpu() -> None:
    with mortice.cpu.Stream() as stream:
        assert mortice.cpu.current_stream() == stream
    assert mortice.cpu.current_stream() == mortice.cpu.default_stream()
    mortice.cpu.synchronize()


def test_a_stream_makes_its_device_current_for_its_block_and_thread(device: Any) -> None:
    name = device()
    module = mortice.get_device_module(name)
    seen: list[Any] = []
    with module.Stream(device=1) as stream:
        assert isinstance(stream, module.Stream)
        assert isinstance(stream, mortice.Stream)
        assert module.current_device() == 1
        assert mortice.ones(2, device=name).device.index == 1
        thread = threading.Thread(
            target=lambda: seen.extend([module.current_device(), module.current_stream(1)])
        )
        thread.start()
        thread.join()
    assert seen == [0, module.default_stream(1)]
    assert module.current_device() == 0


def test_mistakes(device: Any) -> None:
    name, other = device(), device()
    timed, untimed = mortice.Event(name, enable_timing=True), mortice.Event(name)
    with pytest.raises(RuntimeError, match="enable_timing=True"):
        timed.elapsed_time(untimed)
    with pytest.raises(RuntimeError, match="must be recorded"):
        timed.elapsed_time(mortice.Event(name, enable_timing=True))
    with pytest.raises(RuntimeError, match="does not match"):
        timed.record(mortice.Stream(other))
    with pytest.raises(TypeError, match=r"expected a mortice\.Stream"):
        timed.record(name)
    with pytest.raises(RuntimeError, match="2 device"):
        mortice.Stream(f"{name}:2")
    with pytest.raises(RuntimeError, match="does no work"):
        mortice.Stream("meta")
    with pytest.raises(RuntimeError, match="interprocess"):
        mortice.Event(name, interprocess=True)


def test_events_order_devices_of_two_types(device: Any) -> None:
    queued, other = device(Queued), device()
    event = mortice.Event(queued)
    event.record()
    mortice.Stream(other).wait_event(event)
    assert asked(queued)[-1] == ("host waits", 1)
