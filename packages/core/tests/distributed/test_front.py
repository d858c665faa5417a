"""Names of backends, beginning and ending, in one process with the backend ``fake``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import mortice
import mortice.distributed as dist
from mortice import errors
from mortice.distributed import arguments, registry
from mortice.distributed.comparison import told_apart


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def begin(**options: Any) -> None:
    dist.init_process_group(
        **{"backend": "fake", "store": dist.HashStore(2), "rank": 0, "world_size": 1, **options}
    )


@pytest.fixture
def taken_back() -> Iterator[list[str]]:
    names: list[str] = []
    yield names
    for name in names:
        mortice.plugins.unregister("distributed", name)


# -- names ---------------------------------------------------------------------------------------


def test_strings() -> None:
    assert registry.parse("fake") == {"cpu": "fake"}
    assert registry.parse("FAKE ") == {"cpu": "fake"}
    assert registry.parse(" cpu : Gloo,cuda:nccl ") == {"cpu": "gloo", "cuda": "nccl"}
    assert registry.canonical({"cpu": "gloo", "cuda": "nccl"}) == "cpu:gloo,cuda:nccl"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        (" ", "empty"),
        ("cpu:", "empty"),
        ("cpu:gloo,cuda:", "empty"),
        (":gloo", "no device"),
        ("cpu:gloo,", "no pair"),
        ("cpu:gloo:x", "no pair"),
        ("gloo,nccl", "with their devices"),
        ("cpu:gloo,nccl", "no pair"),
        ("cpu:gloo, CPU:mpi", "twice: gloo and mpi"),
    ],
)
def test_strings_that_mean_nothing(text: str, said: str) -> None:
    with pytest.raises(errors.InvalidValue, match=said):
        registry.parse(text)


def test_a_name_is_text() -> None:
    assert dist.Backend("GLOO") == "gloo" == dist.Backend.GLOO
    with pytest.raises(errors.ArgumentError):
        dist.Backend(3)  # type: ignore[arg-type]


def test_a_name_that_nobody_has_says_what_to_install() -> None:
    with pytest.raises(errors.PluginNotFound, match="nosuch"):
        begin(backend="nosuch")
    with pytest.raises(errors.PluginNotFound, match="fake"):
        begin(backend="fakee")
    for name in ("gloo", "mpi", "nccl", "nccl-legacy", "nccl2", "nccl-lazy", "nccl4py", "ucc"):
        from mortice._plugins.groups import not_installed_hint

        assert "mortice-" in not_installed_hint("distributed", name)
    assert not dist.is_initialized()


# -- registering ---------------------------------------------------------------------------------


def test_register_a_class(taken_back: list[str]) -> None:
    from mortice.distributed.fake import FakeCommunicator

    class Mine(FakeCommunicator):
        pass

    dist.Backend.register_backend("mine", Mine)
    taken_back.append("mine")
    assert "mine" in dist.list_backends()
    begin(backend="MINE")
    assert dist.get_backend() == "mine"
    with pytest.raises(errors.RegistrationError, match="there already"):
        dist.Backend.register_backend("mine", Mine)


def test_register_a_function(taken_back: list[str]) -> None:
    from mortice.distributed.fake import FakeCommunicator

    seen: list[Any] = []

    def make(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
        seen.append((rank, size, timeout, store.num_keys() >= 0))
        return FakeCommunicator(dist.Setup(store, rank, size, (0,), 1.0, "x"))

    def extended(setup: Any, options: Any) -> Any:
        seen.append((setup.rank, options))
        return FakeCommunicator(setup)

    dist.Backend.register_backend("plain", make)
    dist.Backend.register_backend("rich", extended, extended_api=True, devices="cpu")
    taken_back += ["plain", "rich"]
    begin(backend="plain", timeout=timedelta(seconds=7))
    dist.destroy_process_group()
    begin(backend="cpu:rich", pg_options={"a": 1})
    assert seen == [(0, 1, timedelta(seconds=7), True), (0, {"a": 1})]


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        (lambda store, rank, size, timeout: None, "returned None"),
        (lambda store, rank, size, timeout: 1 / 0, "ZeroDivisionError"),
        (lambda: None, "TypeError"),
    ],
)
def test_a_factory_that_fails_is_named(taken_back: list[str], factory: Any, said: str) -> None:
    dist.Backend.register_backend("bad", factory)
    taken_back.append("bad")
    with pytest.raises(errors.DistBackendError, match=f"'bad' .*registered.*{said}"):
        begin(backend="bad")
    assert not dist.is_initialized()


def test_missing_hardware_is_told(taken_back: list[str]) -> None:
    def make(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
        raise mortice.backend.Unavailable("there is no frobnicator", "buy one")

    dist.Backend.register_backend("frob", make)
    taken_back.append("frob")
    with pytest.raises(errors.DistBackendError, match=r"no frobnicator\. buy one"):
        begin(backend="frob")


def test_the_default_is_what_is_there(taken_back: list[str]) -> None:
    from mortice.distributed.fake import FakeCommunicator

    dist.Backend.register_backend("zz", FakeCommunicator, devices=["cpu", "npu"])
    taken_back.append("zz")
    assert registry.defaults()["cpu"] == "zz"  # what this process registered comes first
    begin(backend=None)
    assert dist.get_backend_config().startswith("cpu:zz,npu:zz")
    assert "fake" not in registry.defaults().values()


# -- beginning and ending ------------------------------------------------------------------------


def test_begin_and_end() -> None:
    assert not dist.is_initialized()
    with pytest.raises(errors.NotAGroup, match="init_process_group"):
        dist.get_rank()
    begin()
    assert (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (0, 1, "fake")
    assert dist.get_process_group_ranks() == [0]
    with pytest.raises(errors.InvalidState, match="already"):
        begin()
    dist.destroy_process_group()
    assert not dist.is_initialized()
    with pytest.raises(ValueError):
        dist.destroy_process_group()


def test_arguments_that_contradict() -> None:
    with pytest.raises(errors.InvalidValue, match="not both"):
        begin(init_method="env://")
    with pytest.raises(errors.InvalidValue, match="rank and world_size"):
        begin(rank=-1)
    with pytest.raises(errors.InvalidValue, match="not below"):
        begin(rank=1)
    with pytest.raises(errors.InvalidValue, match="world size is 0"):
        begin(world_size=0)
    with pytest.raises(TypeError, match="timedelta"):
        begin(timeout="1")
    for method in ("tpc://localhost:1", "nonsense"):
        with pytest.raises(errors.InvalidValue, match="no such way"):
            dist.init_process_group("fake", method)
    for method in ("tcp://localhost", "tcp://localhost:abc", "tcp://localhost:99999"):
        with pytest.raises(errors.InvalidValue, match="HOST:PORT"):
            dist.init_process_group("fake", method, rank=0, world_size=1)
    with pytest.raises(errors.InvalidValue, match="needs rank"):
        dist.init_process_group("fake", "tcp://localhost:1", world_size=1)


def test_env_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(errors.InvalidValue, match="RANK, which is not set .*MASTER_PORT"):
        dist.init_process_group("fake")
    monkeypatch.setenv("RANK", "zero")
    with pytest.raises(errors.InvalidValue, match="no number"):
        dist.init_process_group("fake")


def test_env_tcp_and_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from mortice.distributed.store.server import listen

    with listen("", 0, 0) as free:
        port = free.getsockname()[1]
    for name, value in (
        ("RANK", 0), ("WORLD_SIZE", 1), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", port),
    ):  # fmt: skip
        monkeypatch.setenv(name, str(value))
    dist.init_process_group("fake", timeout=5)
    dist.destroy_process_group()
    dist.init_process_group("fake", f"tcp://127.0.0.1:{port}?rank=0&world_size=1", timeout=5)
    dist.destroy_process_group()
    dist.init_process_group("fake", f"file://{tmp_path}/s", rank=0, world_size=1, timeout=5)
    dist.destroy_process_group()
    assert not (tmp_path / "s").exists()


def test_who_does_not_come_is_named() -> None:
    with pytest.raises(errors.StoreTimeout) as caught:
        begin(world_size=2, timeout=0.1)
    assert caught.value.keys == ("agree/1",)


def test_ranks_that_disagree() -> None:
    store = dist.HashStore(2)
    store.set("mortice/default/1/group/default/agree/1", "cpu:other 2")
    with pytest.raises(errors.InvalidValue, match=r"rank 1 .*cpu:other.*must agree"):
        begin(world_size=2, store=store)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        (["sum", "max"], "rank 5: max; rank 3: sum"),
        (["sum", "max", "sum"], "rank 5: max; ranks 3, 7: sum"),
    ],
)
def test_who_does_what_else(told: list[str], message: str) -> None:
    assert told_apart(told, (3, 5, 7)[: len(told)]) == message


def test_one_store_for_several_begins() -> None:
    store = dist.HashStore(2)
    for _ in range(3):
        begin(store=store)
        dist.barrier()
        dist.destroy_process_group()


def test_groups() -> None:
    begin()
    group = dist.new_group([0])
    assert dist.get_rank(group) == 0
    assert dist.get_global_rank(group, 0) == dist.get_group_rank(group, 0) == 0
    dist.all_reduce(mortice.ones(2), group=group)
    with pytest.raises(errors.InvalidValue, match="expected some of 0 to 0"):
        dist.new_group([0, 1])
    with pytest.raises(errors.InvalidValue, match="twice"):
        dist.new_group([0, 0])
    with pytest.raises(errors.InvalidValue, match="not in group"):
        dist.get_group_rank(group, 3)
    dist.destroy_process_group(group)
    with pytest.raises(errors.InvalidState, match="destroyed"):
        dist.all_reduce(mortice.ones(2), group=group)


def test_outside_a_group_nothing_happens() -> None:
    begin()
    outside = dist.GroupMember.NON_GROUP_MEMBER
    assert dist.get_rank(outside) == dist.get_world_size(outside) == -1
    assert dist.all_reduce(mortice.ones(1), group=outside) is None
    assert dist.recv(mortice.ones(1), 0, group=outside) == -1
    dist.all_gather_object([], 1, group=outside)
    dist.destroy_process_group(outside)
    assert dist.is_initialized()


def test_listeners_hear_of_groups() -> None:
    heard: list[Any] = []

    class Listener:
        @mortice.backend.hookimpl
        def mortice_group_created(self, backend: str, ranks: tuple[int, ...]) -> None:
            heard.append((backend, ranks))

    mortice.plugins.register("listener", "ears", Listener())
    try:
        begin()
    finally:
        mortice.plugins.unregister("listener", "ears")
    assert heard == [("cpu:fake", (0,))]


# -- arguments of collectives --------------------------------------------------------------------


def test_mistakes_are_found_before_anything_is_sent() -> None:
    begin()
    t, other = mortice.ones(3), mortice.ones(3, dtype=mortice.float64)
    with pytest.raises(TypeError, match="expected a Tensor"):
        dist.all_reduce([1.0])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="ReduceOp"):
        dist.all_reduce(t, op="mean")
    with pytest.raises(errors.DTypeError, match="BAND is not defined for mortice.float32"):
        dist.all_reduce(t, op=dist.ReduceOp.BAND)
    with pytest.raises(errors.DTypeError, match="MAX is not defined for mortice.complex64"):
        dist.all_reduce(mortice.ones(1, dtype=mortice.complex64), op=dist.ReduceOp.MAX)
    with pytest.raises(errors.DTypeError, match="AVG is not defined for mortice.int64"):
        dist.reduce(mortice.ones(1, dtype=mortice.int64), 0, dist.ReduceOp.AVG)
    with pytest.raises(errors.InvalidValue, match="2 tensors; expected 1"):
        dist.all_gather([t, t], t)
    with pytest.raises(errors.DTypeError, match="must agree"):
        dist.all_gather([other], t)
    with pytest.raises(errors.ShapeError, match="expected 3"):
        dist.all_gather_into_tensor(mortice.ones(4), t)
    with pytest.raises(errors.InvalidValue, match="not in group"):
        dist.broadcast(t, src=1)
    with pytest.raises(errors.InvalidValue, match="src or group_src"):
        dist.broadcast(t)
    with pytest.raises(errors.ShapeError, match="add up"):
        dist.all_to_all_single(t, t, [2], [3])
    with pytest.raises(errors.InvalidValue, match="this rank itself"):
        dist.send(t, 0)
    with pytest.raises(errors.DeviceError, match="meta"):
        dist.all_reduce(mortice.ones(2, device="meta"))
    with pytest.raises(errors.InvalidValue, match="isend or"):
        dist.P2POp(dist.all_reduce, t, 0)


def test_mistakes_in_lists_for_each_rank() -> None:
    begin()
    t, long = mortice.ones(3), mortice.ones(4)
    with pytest.raises(
        errors.ShapeError, match=r"gather_list\[0\] has 4 .* all ranks give as many"
    ):
        dist.gather(t, [long], dst=0)
    with pytest.raises(
        errors.ShapeError, match=r"scatter_list\[0\] has 4 .* all ranks get as many"
    ):
        dist.scatter(t, [long], src=0)
    with pytest.raises(errors.ShapeError, match=r"input_list\[0\] has 4 .* as many as output has"):
        dist.reduce_scatter(t, [long])
    with pytest.raises(
        errors.ArgumentError, match="gather_list is a NoneType; expected a list of 1"
    ):
        dist.gather(t)
    group: Any = dist.group.WORLD
    with pytest.raises(errors.InvalidValue, match="gather_list is for the rank dst alone"):
        arguments.of_the_root([t], "gather", "dst", t, group, 1, "")
    assert arguments.of_the_root(None, "gather", "dst", t, group, 1, "") == []


def test_a_device_without_a_backend_is_told() -> None:
    begin()
    group = dist.new_group()
    with pytest.raises(errors.DistBackendError, match=r"no backend for tensors on npu"):
        group.communicator("npu")


def test_works_and_futures() -> None:
    begin()
    t = mortice.ones(2)
    work = dist.all_reduce(t, async_op=True)
    assert work is not None
    assert work.wait()
    assert work.is_completed()
    assert work.is_success()
    assert work.exception() is None
    (result,) = work.result()
    assert result is t
    doubled = work.get_future().then(lambda future: future.value()[0] * 2)
    assert doubled.wait().tolist() == [2.0, 2.0]
    failing = work.get_future().then(lambda future: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        failing.wait()
    with pytest.raises(errors.InvalidState, match="from one rank"):
        work.source_rank()


def test_a_write_by_a_collective_counts() -> None:
    begin()
    x = mortice.ones(2, requires_grad=True)
    y = x * 2
    z = (y * y).sum()
    dist.all_reduce(y.detach())
    with pytest.raises(RuntimeError, match="in-place|inplace|modified"):
        z.backward()


def test_two_methods_are_a_backend() -> None:
    """A backend that only sends and receives has every collective: ranks are threads here."""
    import queue
    import threading

    size = 3
    boxes: dict[tuple[int, int, int], queue.Queue[Any]] = {}
    lock = threading.Lock()

    def box(key: tuple[int, int, int]) -> queue.Queue[Any]:
        with lock:
            return boxes.setdefault(key, queue.Queue())

    class Pigeon(dist.HostCommunicator):
        def send(self, data: Any, peer: int, tag: int) -> None:
            box((self.rank, peer, tag)).put(data.copy())

        def recv(self, data: Any, peer: int, tag: int) -> int:
            data[...] = box((peer, self.rank, tag)).get(timeout=60)
            return peer

    def run(rank: int, results: list[Any]) -> None:
        setup = dist.Setup(dist.HashStore(), rank, size, (0, 1, 2), 60.0, "g")
        comm = Pigeon(setup)
        made = {}

        def call(name: str, **parts: Any) -> None:
            comm.submit(dist.Call(name, 1, 60.0, **parts)).wait()

        for count in (2, 30_000):
            t = mortice.full((count,), rank + 1.0)
            call("all_reduce", outputs=(t,), op=dist.ReduceOp.SUM)
            made[f"sum {count}"] = sorted(set(t.tolist()))
        t = mortice.tensor([rank])
        call("broadcast", outputs=(t,), root=2)
        made["broadcast"] = t.tolist()
        out = mortice.zeros(size)
        call("all_gather", inputs=(mortice.tensor([float(rank)]),), outputs=(out,))
        made["all_gather"] = out.tolist()
        out, given = mortice.zeros(size), mortice.arange(size) + 10.0 * rank
        call("all_to_all", inputs=(given,), outputs=(out,), counts=((1, 1, 1), (1, 1, 1)))
        made["all_to_all"] = (out - rank).tolist()
        out = mortice.zeros(1)
        parts = tuple(mortice.tensor([float(k)]) for k in range(size)) if rank == 1 else ()
        call("scatter", inputs=parts, outputs=(out,), root=1)
        made["scatter"] = out.item() - rank
        call("barrier")
        comm.close()
        results[rank] = made

    results: list[Any] = [None] * size
    threads = [threading.Thread(target=run, args=(rank, results)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert (
        results
        == [
            {
                "sum 2": [6.0],
                "sum 30000": [6.0],
                "broadcast": [2],
                "all_gather": [0.0, 1.0, 2.0],
                "all_to_all": [0.0, 10.0, 20.0],
                "scatter": 0.0,
            }
        ]
        * size
    )


def test_a_rank_that_cannot_be_is_refused_before_any_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_store(*_: Any, **__: Any) -> Any:
        raise AssertionError("it went to meet the others")

    monkeypatch.setattr("mortice.distributed.rendezvous.TCPStore", no_store)
    monkeypatch.setattr("mortice.distributed.rendezvous.FileStore", no_store)
    for name, value in (("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "1"), ("RANK", "2")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WORLD_SIZE", "1")
    for method in (
        "env://",
        "tcp://127.0.0.1:1?rank=2&world_size=1",
        "file:///x?rank=2&world_size=1",
    ):
        with pytest.raises(errors.InvalidValue, match="rank 2 is not below world size 1"):
            dist.init_process_group("fake", method)
    monkeypatch.setenv("WORLD_SIZE", "0")
    with pytest.raises(errors.InvalidValue, match="world size is 0"):
        dist.init_process_group("fake")


def test_who_has_not_come_is_named() -> None:
    with pytest.raises(errors.StoreTimeout, match=r"on rank 0: .*ranks 1, 2 of 3 have not come"):
        begin(world_size=3, timeout=0.05)


def test_who_destroyed_the_group_is_named() -> None:
    from mortice.distributed.watch import Explainer, Watch

    store = dist.HashStore(2)
    mine, theirs = Watch(store, 0), Watch(store, 1)
    theirs.say_left(["default", "other"])
    explain = Explainer(mine, "default", (0, 1), "fake", "default")
    error = explain(dist.Call("all_reduce", 3, 1.0), RuntimeError("Connection closed"))
    assert "rank 1 destroyed the group; Connection closed" in str(error)
    elsewhere = Explainer(mine, "third", (0, 1), "fake", "third")
    assert "destroyed" not in str(elsewhere(dist.Call("barrier", 1, 1.0), TimeoutError("late")))
