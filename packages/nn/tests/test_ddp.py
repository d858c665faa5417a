"""DistributedDataParallel on real processes, beside the same training in one."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import mortice
import mortice.distributed as dist
from mortice import nn
from mortice.errors import InvalidState, InvalidValue
from mortice.nn.parallel import DistributedDataParallel as DDP
from mortice_testing.distributed.gang import Gang

BATCH = 6


@pytest.fixture(scope="module")
def gang() -> Iterator[Gang]:
    with Gang(2, "gloo") as made:
        yield made


@pytest.fixture(scope="module")
def three() -> Iterator[Gang]:
    with Gang(3, "gloo") as made:
        yield made


# -- what the ranks train ------------------------------------------------------------------------


def model(seed: int = 0) -> nn.Module:
    mortice.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3)
    )


def batches(steps: int, size: int, rank: int | None = None) -> list[tuple[Any, Any]]:
    """The whole's batches, or a rank's part of each."""
    rng = np.random.default_rng(7)
    found = []
    for _ in range(steps):
        x = rng.standard_normal((BATCH * size, 5)).astype(np.float32)
        y = rng.integers(0, 3, BATCH * size)
        part = slice(None) if rank is None else slice(rank * BATCH, (rank + 1) * BATCH)
        found.append((mortice.from_numpy(x[part].copy()), mortice.from_numpy(y[part].copy())))
    return found


def train(net: nn.Module, data: list[tuple[Any, Any]]) -> list[float]:
    optimizer = mortice.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for x, y in data:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def close(a: Any, b: Any, error: float = 1e-5) -> None:
    for (name, p), q in zip(a.named_parameters(), b.parameters()):
        assert np.allclose(p.detach().numpy(), q.detach().numpy(), rtol=error, atol=error), name


def alone(size: int, steps: int = 8) -> tuple[nn.Module, list[float]]:
    net = model()
    return net, train(net, batches(steps, size))


OPTIONS: list[dict[str, Any]] = [
    {},
    {"gradient_as_bucket_view": True},
    {"bucket_cap_mb": 0.0005},
    {"bucket_cap_mb": 0.0005, "gradient_as_bucket_view": True},
    {"find_unused_parameters": True},
    {"static_graph": True, "gradient_as_bucket_view": True},
]


def same_as_alone(rank: int, size: int, options: dict[str, Any]) -> None:
    # Each rank begins elsewhere: rank 0's parameters are everybody's.
    net = DDP(model(rank), **options)
    losses = train(net, batches(8, size, rank))
    mean = mortice.tensor(losses)
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    reference, expected = alone(size)
    assert np.allclose(mean.numpy(), expected, rtol=1e-5, atol=1e-6)
    close(net.module, reference)
    if options.get("gradient_as_bucket_view"):
        views = [v for bucket in net.reducer.buckets for v in bucket.views]
        for p in net.parameters():
            assert any(p.grad._a is v._a for v in views)
    if options.get("bucket_cap_mb"):
        assert len(net.reducer.buckets) > 1


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_training_is_that_of_one_process(gang: Gang, options: dict[str, Any]) -> None:
    gang.run(same_as_alone, options)


def test_on_three_ranks(three: Gang) -> None:
    three.run(same_as_alone, {"bucket_cap_mb": 0.0005})


def accumulates(rank: int, size: int, view: bool) -> None:
    net = DDP(model(), gradient_as_bucket_view=view)
    data = batches(2, size, rank)
    with net.no_sync():
        nn.functional.cross_entropy(net(data[0][0]), data[0][1]).backward()
    own = next(net.parameters()).grad.clone()
    everybodys = [mortice.zeros_like(own) for _ in range(size)]
    dist.all_gather(everybodys, own)
    assert not np.allclose(everybodys[0].numpy(), everybodys[1].numpy())
    nn.functional.cross_entropy(net(data[1][0]), data[1][1]).backward()
    reference = model()
    for x, y in batches(2, size):
        nn.functional.cross_entropy(reference(x), y).backward()
    for p, q in zip(net.parameters(), reference.parameters()):
        assert np.allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("view", [False, True])
def test_no_sync(gang: Gang, view: bool) -> None:
    gang.run(accumulates, view)


# -- overlap, hooks ------------------------------------------------------------------------------


def overlaps(rank: int, size: int) -> None:
    """Buckets are on their way while backward has not come to the first layer."""
    net = DDP(model(), bucket_cap_mb=0.0005)
    started: list[tuple[int, bool]] = []
    first = net.module[0].weight
    reduce = net.reducer._reduce

    def watching(bucket: Any) -> None:
        started.append((bucket.index, first.grad is None))
        reduce(bucket)

    net.reducer._reduce = watching
    for x, y in batches(2, size, rank):
        net.zero_grad()
        started.clear()
        nn.functional.cross_entropy(net(x), y).backward()
        assert [index for index, _ in started] == list(range(len(net.reducer.buckets)))
        assert sum(before for _, before in started) >= 2


def test_communication_begins_during_backward(gang: Gang) -> None:
    gang.run(overlaps)


def hooked(rank: int, size: int, name: str, error: float) -> None:
    from mortice.distributed.algorithms.ddp_comm_hooks import default_hooks as hooks

    hook = getattr(hooks, f"{name}_hook")
    net = DDP(model())
    net.register_comm_hook(None, hook)
    losses = train(net, batches(4, size, rank))
    reference, _ = alone(size, 4)
    close(net.module, reference, error)
    assert losses[0] > 0
    with pytest.raises(InvalidState, match="once"):
        net.register_comm_hook(None, hook)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("allreduce", 1e-5),
        ("fp16_compress", 2e-3),
        ("bf16_compress", 2e-2),
    ],
)
def test_communication_hooks(gang: Gang, name: str, error: float) -> None:
    gang.run(hooked, name, error)


def wrapped(rank: int, size: int) -> None:
    from mortice.distributed.algorithms.ddp_comm_hooks import default_hooks as hooks

    seen: list[Any] = []

    def inner(state: Any, bucket: Any) -> Any:
        seen.append((bucket.buffer().dtype, len(bucket.gradients()), bucket.is_last()))
        assert bucket.gradients()[0].shape == bucket.parameters()[0].shape
        return hooks.allreduce_hook(state, bucket)

    net = DDP(model())
    net.register_comm_hook(None, hooks.bf16_compress_wrapper(inner))
    train(net, batches(1, size, rank))
    assert seen == [(mortice.bfloat16, 6, True)]
    reference, _ = alone(size, 1)
    close(net.module, reference, 2e-2)


def test_a_hook_inside_another(gang: Gang) -> None:
    gang.run(wrapped)


# -- parts that are not used ---------------------------------------------------------------------


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        mortice.manual_seed(3)
        self.left = nn.Linear(5, 3)
        self.right = nn.Linear(5, 3)
        self.never = nn.Linear(5, 3)

    def forward(self, x: Any, left: bool) -> dict[str, Any]:
        return {"out": [self.left(x) if left else self.right(x)]}


def unused(rank: int, size: int) -> None:
    net = DDP(Branches(), find_unused_parameters=True)
    x = mortice.ones(2, 5)
    for _ in range(2):
        net.zero_grad()
        net(x, rank == 0)["out"][0].sum().backward()
        # Used by one rank of two: half of what that rank alone would have.
        for part in (net.module.left, net.module.right):
            assert np.allclose(part.weight.grad.numpy(), 2 / size)
        assert net.module.never.weight.grad is None


def test_unused_parameters_are_found(gang: Gang) -> None:
    gang.run(unused)


def unused_is_told(rank: int, size: int) -> None:
    net = DDP(Branches())
    x = mortice.ones(2, 5)
    net(x, True)["out"][0].sum().backward()
    with pytest.raises(InvalidState, match=r"right\.weight.*find_unused_parameters=True"):
        net(x, True)


def test_unused_parameters_that_are_not_looked_for() -> None:
    with Gang(2, "gloo") as gang:
        gang.run(unused_is_told)


# -- buffers -------------------------------------------------------------------------------------


def buffers(rank: int, size: int, broadcast: bool) -> None:
    net = DDP(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), broadcast_buffers=broadcast)
    mortice.manual_seed(rank)
    for _ in range(2):
        net(mortice.randn(8, 4)).sum().backward()
        net.zero_grad()
    mean = net.module[1].running_mean
    if broadcast:
        net(mortice.randn(8, 4))  # rank 0's are given before this forward changes them
        net.eval()
    every = [mortice.zeros_like(mean) for _ in range(size)]
    dist.all_gather(every, mean)
    # Each rank's own data are in its own statistics, broadcast or not.
    assert np.abs(every[0].numpy() - every[1].numpy()).max() > 1e-4
    if broadcast:
        before = [mortice.zeros(()) for _ in range(size)]
        dist.all_gather(before, net.module[1].num_batches_tracked.float())
        assert [int(t.item()) for t in before] == [3, 3]


def seen_buffers(rank: int, size: int) -> None:
    """At each forward every rank computes with rank 0's buffers."""

    class Shows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(mortice.ones(1))
            self.register_buffer("state", mortice.tensor([float(rank), 5.0]))

        def forward(self, x: Any) -> Any:
            self.seen = self.state.tolist()
            self.state += rank + 1
            return x * self.weight

    net = DDP(Shows())
    for step in range(3):
        net(mortice.ones(1)).sum().backward()
        assert net.module.seen == [float(step), 5.0 + step]


def test_buffers(gang: Gang) -> None:
    gang.run(seen_buffers)
    gang.run(buffers, True)
    gang.run(buffers, False)


# -- uneven inputs -------------------------------------------------------------------------------


def joined(rank: int, size: int, initial: bool, norm: bool) -> list[float]:
    mortice.manual_seed(0)
    layers = [nn.Linear(3, 2)] + ([nn.BatchNorm1d(2)] if norm else [])
    net = DDP(nn.Sequential(*layers), bucket_cap_mb=1e-5)
    optimizer = mortice.optim.SGD(net.parameters(), lr=0.1)
    with net.join(divide_by_initial_world_size=initial):
        for _ in range(2 + 2 * rank):
            optimizer.zero_grad()
            net(mortice.ones(4, 3) * (rank + 1)).sum().backward()
            optimizer.step()
    # All ranks end with the model of the one that made most steps.
    flat = mortice.cat([p.detach().reshape(-1) for p in net.parameters()])
    first = flat.clone()
    dist.broadcast(first, src=0)
    assert flat.tolist() == first.tolist()
    return flat.tolist()


@pytest.mark.parametrize("initial", [True, False])
@pytest.mark.parametrize("norm", [False, True])
def test_join(three: Gang, initial: bool, norm: bool) -> None:
    results = three.run(joined, initial, norm)
    assert results[0] == results[1] == results[2]
    if norm:
        return
    # By hand: the weight's gradient is 4 (rank + 1), summed over the active ranks.
    weight = 0.0
    for step in range(6):
        active = [rank for rank in range(3) if step < 2 + 2 * rank]
        weight -= 0.1 * sum(4 * (r + 1) for r in active) / (3 if initial else len(active))
    mortice.manual_seed(0)
    start = nn.Linear(3, 2).weight.detach().reshape(-1).tolist()
    assert np.allclose(results[0][:6], [w + weight for w in start], rtol=1e-5, atol=1e-5)


def throws(rank: int, size: int) -> str:
    net = DDP(nn.Linear(2, 2))
    try:
        with net.join(throw_on_early_termination=True):
            for _ in range(1 + rank):
                net(mortice.ones(1, 2)).sum().backward()
    except dist.DistError as error:
        return str(error)
    return ""


def test_join_that_throws(gang: Gang) -> None:
    assert all("no more inputs" in text for text in gang.run(throws))


# -- mistakes ------------------------------------------------------------------------------------


def differing(rank: int, size: int) -> str:
    try:
        DDP(nn.Linear(3, 2 + rank))
    except InvalidValue as error:
        return str(error)
    return ""


def test_ranks_whose_models_differ(gang: Gang) -> None:
    for text in gang.run(differing):
        assert "rank 1 has ('weight', (3, 3), 'float32'), rank 0 ('weight', (2, 3)" in text


def nothing_to_train(rank: int, size: int) -> None:
    with pytest.raises(InvalidValue, match="no parameter"):
        DDP(nn.ReLU())
    with pytest.raises(InvalidValue, match="bucket_cap_mb"):
        DDP(nn.Linear(1, 1), bucket_cap_mb=0)
    net = DDP(nn.Linear(1, 1))
    assert list(net.state_dict()) == ["module.weight", "module.bias"]
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(net)


def test_mistakes(gang: Gang) -> None:
    gang.run(nothing_to_train)


def dies(rank: int, size: int) -> str:
    import os

    net = DDP(model())
    data = batches(5, size, rank)
    try:
        train(net, data[:2])
        if rank == 1:
            os._exit(3)
        train(net, data)
    except dist.DistBackendError as error:
        return str(error)
    return ""


def test_a_rank_that_dies_in_training() -> None:
    # Who waited for the time limit would not be back when the test gives up.
    with Gang(2, "gloo", timeout=300) as gang:
        gang.begin(dies)
        (text,) = gang.end(ranks=[0])
        assert "rank 1 ended" in text


def hook_without_a_future(rank: int, size: int) -> list[str]:
    said: list[str] = []
    for given in (None, mortice.ones(1)):
        net = DDP(model())

        def hook(state: Any, bucket: Any, given: Any = given) -> Any:
            return given

        net.register_comm_hook(None, hook)
        (x, _), *_ = batches(1, size, rank)
        try:
            net(x).sum().backward()
        except TypeError as error:
            said.append(str(error))
    return said


def test_a_hook_that_returns_no_future_is_named(gang: Gang) -> None:
    for said in gang.run(hook_without_a_future):
        assert [text.count("register_comm_hook, hook, returned") for text in said] == [1, 1]
        assert "NoneType; expected a Future" in said[0]
        assert "Tensor; expected a Future" in said[1]


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(TypeError, match="expected a Module, found function"):
        DDP(lambda x: x)  # type: ignore[arg-type]
