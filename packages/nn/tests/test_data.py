"""Data sets, samplers, collation and the DataLoader, also with real worker processes."""

from __future__ import annotations

import collections
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import mortice
from mortice.utils import data
from mortice_nn.data import workers

Point = collections.namedtuple("Point", "x y")


class Squares(data.Dataset):
    def __init__(self, n: int = 10) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int):
        return mortice.tensor([float(i * i)]), i


class Stream(data.IterableDataset):
    def __iter__(self):
        info = data.get_worker_info()
        start, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(start, 10, step))


class Failing(Squares):
    def __getitem__(self, i: int):
        if i == 5:
            raise ValueError("sample five is bad")
        return i


class Dying(Squares):
    def __getitem__(self, i: int):
        if i == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return i


class Slow(Squares):
    def __getitem__(self, i: int):
        if i == 5:
            time.sleep(600)
        return i


class Info(Squares):
    def __getitem__(self, i: int):
        info = data.get_worker_info()
        return info.id, info.num_workers, info.seed, os.getpid()


def values(loader) -> list:
    return [x for batch in loader for x in batch.tolist()]


def test_tensor_dataset_rows_and_sizes() -> None:
    rows = data.TensorDataset(mortice.arange(6).reshape(3, 2), mortice.arange(3))
    assert len(rows) == 3
    assert [part.tolist() for part in rows[1]] == [[2, 3], 1]
    with pytest.raises(ValueError, match=r"size mismatch .* \[3, 2\]"):
        data.TensorDataset(mortice.zeros(3), mortice.zeros(2))


def test_combined_data_sets() -> None:
    both = Squares(3) + Squares(4)
    assert len(both) == 7
    assert both[4][1] == 1
    assert both[-1][1] == 3
    stacked = data.StackDataset(a=Squares(3), b=[7, 8, 9])
    assert stacked[2]["b"] == 9
    chained = Stream() + Stream()
    assert len(list(chained)) == 20
    part = data.Subset(Squares(), [5, 2])
    assert [part[i][1] for i in range(len(part))] == [5, 2]


@pytest.mark.parametrize("lengths", [[7, 3], [0.7, 0.3], [0.25, 0.25, 0.5]])
def test_random_split_covers_everything_once(lengths: list) -> None:
    parts = data.random_split(Squares(), lengths, mortice.Generator().manual_seed(1))
    assert sorted(i for part in parts for i in part.indices) == list(range(10))
    again = data.random_split(Squares(), lengths, mortice.Generator().manual_seed(1))
    assert [part.indices for part in parts] == [part.indices for part in again]


def test_random_split_names_the_sum() -> None:
    with pytest.raises(ValueError, match="9 does not equal the length of the dataset 10"):
        data.random_split(Squares(), [4, 5])


def test_samplers() -> None:
    assert list(data.SequentialSampler([7, 8, 9])) == [0, 1, 2]
    assert sorted(data.RandomSampler(range(20))) == list(range(20))
    drawn = list(data.RandomSampler(range(3), replacement=True, num_samples=50))
    assert len(drawn) == 50
    assert set(drawn) <= {0, 1, 2}
    assert sorted(data.SubsetRandomSampler([4, 9])) == [4, 9]
    batches = data.BatchSampler(data.SequentialSampler(range(5)), 2, False)
    assert list(batches) == [[0, 1], [2, 3], [4]]
    assert len(batches) == 3
    batches = data.BatchSampler(data.SequentialSampler(range(5)), 2, True)
    assert list(batches) == [[0, 1], [2, 3]]
    assert len(batches) == 2


def test_weighted_sampler_follows_the_weights() -> None:
    generator = mortice.Generator().manual_seed(0)
    drawn = list(data.WeightedRandomSampler([0, 1, 3], 4000, generator=generator))
    assert 0 not in drawn
    # 3 in 4 expected; 5 standard deviations are 0.034
    assert abs(drawn.count(2) / 4000 - 0.75) < 0.035
    without = data.WeightedRandomSampler([1, 0, 3, 2], 3, replacement=False, generator=generator)
    assert sorted(without) == [0, 2, 3]
    with pytest.raises(ValueError, match="2 positive weights"):
        data.WeightedRandomSampler([0, 1, 1], 3, replacement=False)


def test_distributed_sampler_shares_evenly() -> None:
    shares = [list(data.DistributedSampler(range(10), 3, rank, shuffle=False)) for rank in range(3)]
    assert shares == [[0, 3, 6, 9], [1, 4, 7, 0], [2, 5, 8, 1]]
    sampler = data.DistributedSampler(range(10), 2, 0)
    first = list(sampler)
    assert list(sampler) == first
    sampler.set_epoch(1)
    assert list(sampler) != first


def test_collate() -> None:
    batch = data.default_collate(
        [
            {"a": np.ones(2), "b": 1, "c": "x", "d": Point(1.5, [1, 2])},
            {"a": np.zeros(2), "b": 2, "c": "y", "d": Point(2.5, [3, 4])},
        ]
    )
    assert batch["a"].tolist() == [[1, 1], [0, 0]]
    assert batch["b"].dtype == mortice.int64
    assert batch["c"] == ["x", "y"]
    assert batch["d"].x.dtype == mortice.float64
    assert [column.tolist() for column in batch["d"].y] == [[1, 3], [2, 4]]
    assert isinstance(data.default_collate([(1, 2), (3, 4)]), list)
    assert data.default_collate([(1, "x"), (2, "y")])[1] == ("x", "y")  # PyTorch's tuple
    with pytest.raises(TypeError, match="found object; pass a collate_fn"):
        data.default_collate([object()])
    with pytest.raises(RuntimeError, match=r"equal size; found \[1, 2\]"):
        data.default_collate([[1], [1, 2]])


def test_loader_in_this_process() -> None:
    loader = data.DataLoader(Squares(), batch_size=4)
    assert len(loader) == 3
    batches = list(loader)
    assert [tuple(x.shape) for x, _ in batches] == [(4, 1), (4, 1), (2, 1)]
    assert batches[1][1].tolist() == [4, 5, 6, 7]
    assert len(list(data.DataLoader(Squares(), batch_size=4, drop_last=True))) == 2
    shuffled = values(data.DataLoader(range(50), batch_size=7, shuffle=True))
    assert sorted(shuffled) == list(range(50))
    assert shuffled != list(range(50))
    assert [x[1] for x in data.DataLoader(Squares(3), batch_size=None)] == [0, 1, 2]
    assert values(data.DataLoader(Stream(), batch_size=4)) == list(range(10))


def test_seed_decides_the_order() -> None:
    def order(workers: int) -> list:
        mortice.manual_seed(3)
        return values(data.DataLoader(range(30), 4, shuffle=True, num_workers=workers))

    assert order(0) == order(0) == order(2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shuffle": True, "sampler": [1]}, "mutually exclusive with shuffle"),
        ({"batch_sampler": [[1]], "batch_size": 3}, "batch_sampler option is mutually exclusive"),
        ({"num_workers": -1}, "non-negative, found -1"),
        ({"prefetch_factor": 2}, "num_workers > 0"),
        ({"persistent_workers": True}, "num_workers > 0"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"batch_size": None, "drop_last": True}, "mutually exclusive with drop_last"),
    ],
)
def test_options_that_contradict(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        data.DataLoader(Squares(), **options)


class Images(Squares):
    def __getitem__(self, i: int):
        return mortice.full((1, 1024, 1024), float(i)), i


def test_large_batches_come_in_shared_memory() -> None:
    batches = list(data.DataLoader(Images(4), batch_size=2, num_workers=2))
    images, index = batches[1]
    assert images.is_shared() == (sys.platform != "win32")
    assert not index.is_shared()
    assert images[:, 0, 5, 7].tolist() == [2.0, 3.0]
    images.add_(1)


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_give_the_same_batches(workers: int) -> None:
    loader = data.DataLoader(Squares(23), batch_size=4, num_workers=workers)
    batches = list(loader)
    assert [i for _, index in batches for i in index.tolist()] == list(range(23))
    assert batches[2][0].flatten().tolist() == [64, 81, 100, 121]
    unordered = data.DataLoader(Squares(23), 4, num_workers=workers, in_order=False)
    assert sorted(i for _, index in unordered for i in index.tolist()) == list(range(23))


def test_spawned_workers() -> None:
    loader = data.DataLoader(
        Squares(5), batch_size=2, num_workers=1, multiprocessing_context="spawn"
    )
    assert [index.tolist() for _, index in loader] == [[0, 1], [2, 3], [4]]


def test_stream_is_shared_by_workers() -> None:
    loader = data.DataLoader(Stream(), batch_size=2, num_workers=2)
    assert sorted(values(loader)) == list(range(10))


def test_workers_know_themselves() -> None:
    loader = data.DataLoader(Info(8), batch_size=None, num_workers=2)
    rows = list(loader)
    assert data.get_worker_info() is None
    assert {row[0] for row in rows} == {0, 1}
    assert {row[1] for row in rows} == {2}
    assert len({row[2] for row in rows}) == 2
    assert os.getpid() not in {row[3] for row in rows}


def test_persistent_workers_stay() -> None:
    loader = data.DataLoader(Info(6), batch_size=None, num_workers=2, persistent_workers=True)
    first = {row[3] for row in loader}
    assert {row[3] for row in loader} == first
    part = iter(loader)
    next(part)
    assert len(list(loader)) == 6
    loader._iterator.close()


def init_that_fails(worker: int) -> None:
    raise KeyError(f"no configuration for worker {worker}")


def test_errors_in_a_worker_carry_its_traceback() -> None:
    loader = data.DataLoader(Failing(), batch_size=2, num_workers=1)
    with pytest.raises(ValueError, match="sample five is bad") as caught:
        list(loader)
    assert "Caught ValueError in DataLoader worker process 0" in str(caught.value)
    assert "__getitem__" in str(caught.value)
    loader = data.DataLoader(Squares(), num_workers=1, worker_init_fn=init_that_fails)
    with pytest.raises(KeyError, match="no configuration for worker 0"):
        list(loader)


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is POSIX")
def test_a_dead_worker_is_named_at_once() -> None:
    # Without a time limit: who did not notice would wait for ever.
    loader = data.DataLoader(Dying(), batch_size=2, num_workers=2)
    with pytest.raises(RuntimeError, match=r"worker \d \(pid \d+, killed by SIGKILL\)"):
        list(loader)


def test_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "JOIN_SECONDS", 0.1)
    loader = data.DataLoader(Slow(), batch_size=1, num_workers=1, timeout=0.5)
    with pytest.raises(RuntimeError, match=r"timed out after 0.5 seconds"):
        list(loader)


def test_unpicklable_batch_is_reported() -> None:
    loader = data.DataLoader(Squares(2), num_workers=1, collate_fn=lambda _: (x for x in "ab"))
    if loader.num_workers and sys.platform.startswith("linux") and sys.version_info < (3, 14):
        with pytest.raises(TypeError, match="generator"):
            list(loader)


def test_large_index_lists_do_not_block() -> None:
    # 300 kB of indices each way fills any pipe
    loader = data.DataLoader(range(160_000), batch_size=40_000, num_workers=1, prefetch_factor=4)
    assert sum(len(batch) for batch in loader) == 160_000


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_ctrl_c_leaves_no_worker(tmp_path) -> None:
    script = tmp_path / "loop.py"
    script.write_text(
        textwrap.dedent("""
        import time
        import mortice
        from mortice.utils import data

        class Slow(data.Dataset):
            def __len__(self):
                return 100_000
            def __getitem__(self, i):
                time.sleep(0.02)
                return i

        if __name__ == "__main__":
            it = iter(data.DataLoader(Slow(), num_workers=2))
            next(it), next(it)  # one of each worker: both have begun
            print(*[p.pid for p in it.pool.processes], flush=True)
            for _ in it:
                pass
    """)
    )
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    pids = [int(pid) for pid in process.stdout.readline().split()]
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=100)
    assert errors.count("Traceback") == 1
    assert "KeyboardInterrupt" in errors
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
