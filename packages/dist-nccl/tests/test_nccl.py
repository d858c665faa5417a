"""The calls made of NCCL, against a stand-in that does on host memory, between threads, what NCCL
does between GPUs; and loading, against what is really installed.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mortice
import mortice.distributed as dist
from mortice import errors
from mortice.backend import DeviceRuntime, Unavailable
from mortice.distributed import Call, HashStore, ReduceOp, Setup
from mortice_nccl import library
from mortice_nccl.communicator import NcclCommunicator
from mortice_nccl.variants import VARIANTS

SIZE = 3
NUMPY = {
    0: np.int8, 1: np.uint8, 2: np.int32, 3: np.uint32, 4: np.int64, 5: np.uint64, 6: np.float16,
    7: np.float32, 8: np.float64, 9: ml_dtypes.bfloat16,
}  # fmt: skip
REDUCE: dict[int, Any] = {0: np.add, 1: np.multiply, 2: np.maximum, 3: np.minimum, 4: np.add}


class Memory(DeviceRuntime):
    """A device ``cuda`` in host memory, whose buffers have addresses."""

    here = True  # a device that was used stays known to the process
    finished = True  # whether what streams were given is done

    def count(self) -> int:
        return int(Memory.here)

    def mark_done(self, mark: Any) -> bool:
        return Memory.finished

    def allocate(self, nbytes: int, index: int) -> Any:
        return np.zeros(max(nbytes, 1), np.uint8)

    def copy_in(self, buffer: Any, offset: int, data: memoryview) -> None:
        buffer[offset : offset + data.nbytes] = np.frombuffer(data.cast("B"), np.uint8)

    def copy_out(self, buffer: Any, offset: int, data: memoryview) -> None:
        data.cast("B")[:] = buffer[offset : offset + data.nbytes].tobytes()

    def native_pointer(self, buffer: Any) -> int:
        return int(buffer.ctypes.data)


class Clique:
    """What the ranks of one communicator share."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size)
        self.posted: list[Any] = [None] * size


class Comm:
    def __init__(self, clique: Clique, rank: int) -> None:
        self.clique, self.rank = clique, rank

    def exchanged(self, value: Any) -> list[Any]:
        """Everybody's value; no rank goes on before all have theirs."""
        self.clique.posted[self.rank] = value
        self.clique.barrier.wait(60)
        found = list(self.clique.posted)
        self.clique.barrier.wait(60)
        return found


def at(pointer: int, count: int, kind: int) -> Any:
    nbytes = count * np.dtype(NUMPY[kind]).itemsize
    memory = (ctypes.c_uint8 * nbytes).from_address(pointer)
    return np.frombuffer(memory, NUMPY[kind])


class UniqueId(bytes):
    @staticmethod
    def from_buffer(data: bytes) -> UniqueId:
        return UniqueId(data)


class StandIn:
    """nccl4py's low-level functions."""

    UniqueId = UniqueId

    def __init__(self) -> None:
        self.cliques: dict[bytes, Clique] = {}
        self.messages: dict[Any, list[Any]] = {}
        self.lock = threading.Condition()
        self.made = 0
        self.error = 0
        self.aborted = 0
        self.factors: dict[int, float] = {}
        self.local = threading.local()

    def get_unique_id(self) -> UniqueId:
        with self.lock:
            self.made += 1
            return UniqueId(b"id%d" % self.made)

    def comm_init_rank(self, size: int, identity: bytes, rank: int) -> Comm:
        with self.lock:
            clique = self.cliques.setdefault(bytes(identity), Clique(size))
        return Comm(clique, rank)

    def comm_get_async_error(self, comm: Comm) -> int:
        return self.error

    def get_last_error(self, comm: Comm) -> str:
        return "the wire was cut"

    def comm_abort(self, comm: Comm) -> None:
        self.aborted += 1

    def comm_destroy(self, comm: Comm) -> None:
        pass

    def red_op_create_pre_mul_sum(self, scalar: int, kind: int, where: int, comm: Comm) -> int:
        assert where == 1
        with self.lock:
            number = 100 + len(self.factors)
            self.factors[number] = float(at(scalar, 1, kind)[0])
            return number

    def _reduced(self, comm: Comm, mine: Any, op: int) -> Any:
        scaled = mine * as_like(mine, self.factors[op]) if op >= 100 else mine.copy()
        parts = comm.exchanged(scaled)
        total = REDUCE.get(op, np.add).reduce([p.astype(p.dtype) for p in parts])
        return total / len(parts) if op == 4 else total

    def all_reduce(self, a: int, b: int, n: int, kind: int, op: int, comm: Comm, s: int) -> None:
        at(b, n, kind)[...] = self._reduced(comm, at(a, n, kind), op).astype(NUMPY[kind])

    def reduce(
        self, a: int, b: int, n: int, kind: int, op: int, root: int, comm: Comm, s: int
    ) -> None:
        total = self._reduced(comm, at(a, n, kind), op)
        if comm.rank == root:
            at(b, n, kind)[...] = total

    def broadcast(self, a: int, b: int, n: int, kind: int, root: int, comm: Comm, s: int) -> None:
        given = comm.exchanged(at(a, n, kind).copy())
        at(b, n, kind)[...] = given[root]

    def all_gather(self, a: int, b: int, n: int, kind: int, comm: Comm, s: int) -> None:
        parts = comm.exchanged(at(a, n, kind).copy())
        at(b, n * len(parts), kind)[...] = np.concatenate(parts)

    def reduce_scatter(
        self, a: int, b: int, n: int, kind: int, op: int, comm: Comm, s: int
    ) -> None:
        size = len(comm.clique.posted)
        total = self._reduced(comm, at(a, n * size, kind), op)
        at(b, n, kind)[...] = total.reshape(size, n)[comm.rank]

    # Sends are kept until they are received; receives of a group wait at its end.

    def group_start(self) -> None:
        self.local.waiting = []

    def group_end(self) -> None:
        waiting, self.local.waiting = self.local.waiting, None
        for receive in waiting:
            receive()

    def send(self, a: int, n: int, kind: int, peer: int, comm: Comm, s: int) -> None:
        with self.lock:
            box = self.messages.setdefault((id(comm.clique), comm.rank, peer), [])
            box.append(at(a, n, kind).copy())
            self.lock.notify_all()

    def recv(self, b: int, n: int, kind: int, peer: int, comm: Comm, s: int) -> None:
        def receive() -> None:
            key = id(comm.clique), peer, comm.rank
            with self.lock:
                assert self.lock.wait_for(lambda: self.messages.get(key), 60)
                at(b, n, kind)[...] = self.messages[key].pop(0)

        if getattr(self.local, "waiting", None) is None:
            receive()
        else:
            self.local.waiting.append(receive)


def as_like(like: Any, factor: float) -> Any:
    return np.asarray(factor).astype(like.dtype)


@pytest.fixture
def nccl(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    made = StandIn()
    monkeypatch.setattr(library, "load", lambda: made)
    Memory.here = True
    mortice.plugins.register("device", "cuda", Memory, replace=True)
    with mortice.config.override(accelerator="cuda", fallback="silent"):
        yield made
    mortice.plugins.unregister("device", "cuda")
    Memory.here = False


def together(
    name: str, work: Callable[[NcclCommunicator], Any], timeout: float = 60.0
) -> list[Any]:
    """Let SIZE ranks, each a thread, do something with communicators of a name."""
    store = HashStore(60)
    results: list[Any] = [None] * SIZE

    def run(rank: int) -> None:
        try:
            setup = Setup(store, rank, SIZE, tuple(range(SIZE)), timeout, "g", backend=name)
            comm = VARIANTS[name](setup)
            results[rank] = work(comm)
            comm.close()
        except BaseException as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(SIZE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def on_device(values: Any, dtype: Any = None) -> Any:
    return mortice.tensor(values, dtype=dtype).to("cuda")


def call(comm: NcclCommunicator, name: str, **parts: Any) -> None:
    work = comm.submit(Call(name, 1, 60.0, **parts))
    error = work.exception()
    if error is not None:
        raise error
    work.wait()


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_reductions(nccl: StandIn, name: str) -> None:
    def work(comm: NcclCommunicator) -> None:
        r = comm.rank
        for op, wanted in (
            ("SUM", 6.0),
            ("PRODUCT", 6.0),
            ("MAX", 3.0),
            ("MIN", 1.0),
            ("AVG", 2.0),
        ):
            t = on_device([r + 1.0] * 4)
            call(comm, "all_reduce", outputs=(t,), op=getattr(ReduceOp, op))
            assert t.tolist() == [wanted] * 4, op
        t = on_device([r + 1.0] * 2, mortice.bfloat16)
        call(comm, "all_reduce", outputs=(t,), op=ReduceOp.SUM)
        assert t.tolist() == [6.0] * 2
        t = on_device([complex(r, 1)] * 2)
        call(comm, "all_reduce", outputs=(t,), op=ReduceOp.SUM)
        assert t.tolist() == [3 + 3j] * 2
        t = on_device([r == 1, True])
        call(comm, "all_reduce", outputs=(t,), op=ReduceOp.PRODUCT)
        assert t.tolist() == [False, True]
        t = on_device([1.0, 2.0])
        call(comm, "all_reduce", outputs=(t,), op=ReduceOp.premul_sum(r + 1.0))
        assert t.tolist() == [6.0, 12.0]
        t = on_device([float(r)])
        call(comm, "reduce", outputs=(t,), op=ReduceOp.SUM, root=1)
        assert t.item() == (3.0 if r == 1 else float(r))
        out = on_device([0.0, 0.0])
        given = on_device([float(k) for k in range(2 * SIZE)])
        call(comm, "reduce_scatter", inputs=(given,), outputs=(out,), op=ReduceOp.SUM)
        assert out.tolist() == [6.0 * r, 6.0 * r + 3]

    together(name, work)


@pytest.mark.parametrize("name", ["nccl2", "nccl-lazy", "nccl4py"])
def test_movements(nccl: StandIn, name: str) -> None:
    def work(comm: NcclCommunicator) -> None:
        r = comm.rank
        t = on_device([r, r + 10])
        call(comm, "broadcast", outputs=(t,), root=2)
        assert t.tolist() == [2, 12]
        out = on_device([0] * 2 * SIZE)
        call(comm, "all_gather", inputs=(on_device([r, r]),), outputs=(out,))
        assert out.tolist() == [0, 0, 1, 1, 2, 2]
        outs = tuple(on_device([0] * (k + 1)) for k in range(SIZE))
        counts = tuple(k + 1 for k in range(SIZE))
        given = on_device([r] * (r + 1))
        call(comm, "all_gather", inputs=(given,), outputs=outs, counts=(counts, counts))
        assert [o.tolist() for o in outs] == [[k] * (k + 1) for k in range(SIZE)]
        outs = tuple(on_device([0]) for _ in range(SIZE)) if r == 1 else ()
        call(comm, "gather", inputs=(on_device([r]),), outputs=outs, root=1)
        assert [o.item() for o in outs] == ([0, 1, 2] if r == 1 else [])
        inputs = tuple(on_device([5 * k]) for k in range(SIZE)) if r == 0 else ()
        one = on_device([0])
        call(comm, "scatter", inputs=inputs, outputs=(one,), root=0)
        assert one.item() == 5 * r
        takes, gives = (r,) * SIZE, tuple(range(SIZE))
        out, given = on_device([0] * sum(takes)), on_device([r] * sum(gives))
        call(comm, "all_to_all", inputs=(given,), outputs=(out,), counts=(takes, gives))
        assert out.tolist() == [k for k in range(SIZE) for _ in range(r)]
        call(comm, "barrier")

    together(name, work)


def test_messages_of_pairs(nccl: StandIn) -> None:
    """nccl-lazy makes a communicator for two ranks only, when they first exchange a message."""

    def work(comm: NcclCommunicator) -> int:
        if comm.rank == 0:
            call(comm, "send", inputs=(on_device([7.0]),), root=2)
        elif comm.rank == 2:
            t = on_device([0.0])
            call(comm, "recv", outputs=(t,), root=0)
            assert t.item() == 7.0
        return len(comm._comms)

    assert together("nccl-lazy", work) == [2, 1, 2]
    assert together("nccl-legacy", work) == [1, 0, 1]
    assert together("nccl2", work) == [1, 1, 1]


@pytest.mark.filterwarnings("ignore:aten")  # the stand-in device has no kernels of its own
def test_strictness(nccl: StandIn) -> None:
    def work(comm: NcclCommunicator) -> None:
        strided = mortice.ones(4, 4).to("cuda").t()[1:3]
        with pytest.raises(errors.InvalidValue, match="contiguous"):
            call(comm, "all_reduce", outputs=(strided,), op=ReduceOp.SUM)

    together("nccl4py", work)

    def copied(comm: NcclCommunicator) -> None:
        base = mortice.zeros(3, 2).to("cuda")
        base.copy_(mortice.ones(3, 2).to("cuda") * 2)
        call(comm, "all_reduce", outputs=(base.t(),), op=ReduceOp.SUM)
        assert base.tolist() == [[6.0, 6.0]] * 3

    together("nccl2", copied)

    def unknown(comm: NcclCommunicator) -> None:
        with pytest.raises(errors.DTypeError, match="BXOR"):
            call(comm, "all_reduce", outputs=(on_device([1]),), op=ReduceOp.BXOR)

    together("nccl", unknown)


def test_errors_of_the_library_are_noticed(nccl: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watcher sees an error that no call returned, aborts, and later calls raise."""
    monkeypatch.setattr(Memory, "finished", False)

    def work(comm: NcclCommunicator) -> None:
        begun = comm.submit(Call("barrier", 1, 60.0))
        nccl.error = 6
        assert begun._done.wait(60)
        with pytest.raises(errors.DistBackendError, match="error 6: the wire was cut"):
            begun.wait()
        with pytest.raises(errors.DistBackendError):
            comm.submit(Call("barrier", 2, 60.0)).wait()

    together("nccl", work)
    assert nccl.aborted >= SIZE


def test_time_limits(nccl: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Memory, "finished", False)

    def work(comm: NcclCommunicator) -> None:
        begun = comm.submit(Call("barrier", 1, 0.2))
        assert begun._done.wait(60)
        with pytest.raises(errors.OperationTimeout, match=r"0\.2 s"):
            begun.wait()

    together("nccl", work)


# -- loading -------------------------------------------------------------------------------------


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_DRIVER", "/nonexistent/nvidiactl")
    with pytest.raises(Unavailable, match="no NVIDIA GPU"):
        library.load()


def test_without_nccl4py(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setattr(library, "_DRIVER", "/dev/null")
    monkeypatch.setitem(sys.modules, "nccl", None)
    monkeypatch.setitem(sys.modules, "nccl.bindings", None)
    with pytest.raises(Unavailable) as caught:
        library.load()
    assert "pip install" in caught.value.fix


def test_the_bindings_have_what_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real nccl4py: every function is there, and libnccl answers, where both are installed."""
    monkeypatch.setattr(library, "_DRIVER", "/dev/null")
    try:
        nccl = library.load()
    except Unavailable as reason:
        pytest.skip(reason.reason)
    for name in vars(StandIn):
        if not name.startswith("_"):
            assert hasattr(nccl, name), name
    identity = bytes(nccl.get_unique_id())
    assert len(identity) == 128
    assert bytes(nccl.UniqueId.from_buffer(identity)) == identity


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_asking_for_it_says_why_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("there is a GPU")
    with pytest.raises(errors.PluginUnavailable, match="driver|nccl4py"):
        dist.init_process_group(name, store=HashStore(), rank=0, world_size=1)
