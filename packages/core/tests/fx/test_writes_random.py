"""Random programs of views and writes: their graphs, without in-place operators, do the same."""

import random

import pytest

import mortice
from mortice import decompositions, fx

VIEWS = [
    lambda t, r: t.select(d := r.randrange(t.ndim), r.randrange(t.shape[d])) if t.ndim else t,
    lambda t, r: t.narrow(d := r.randrange(t.ndim), a := r.randrange(t.shape[d]), r.randint(1, t.shape[d] - a))
    if t.ndim
    else t,
    lambda t, r: t[:: r.randint(1, 2)] if t.ndim else t,
    lambda t, r: t.transpose(0, -1) if t.ndim else t,
    lambda t, r: t.permute(r.sample(range(t.ndim), t.ndim)),
    lambda t, r: t.unsqueeze(r.randint(0, t.ndim)) if t.ndim < 4 else t,
    lambda t, r: t.squeeze(),
    lambda t, r: t.view(-1) if t.is_contiguous() else t,
    lambda t, r: t.flatten(),
    lambda t, r: t.reshape(-1, 2) if t.numel() % 2 == 0 else t,
    lambda t, r: t.diagonal() if t.ndim > 1 else t,
    lambda t, r: r.choice(t.split(r.randint(1, 2))) if t.ndim else t,
    lambda t, r: r.choice(t.unbind(0)) if t.ndim else t,
    lambda t, r: r.choice(t.chunk(2, -1)) if t.ndim else t,
    lambda t, r: t.unfold(0, 2, 1) if t.ndim == 1 and t.shape[0] > 1 else t,
    lambda t, r: t.view(mortice.int32).view(mortice.float32),
    lambda t, r: t.detach(),
    lambda t, r: t.data,
    lambda t, r: t.expand(2, *t.shape) if t.ndim < 3 else t,
    lambda t, r: t.as_strided((2, 2), (1, 2), t.storage_offset())
    if t.is_contiguous() and t.numel() >= 4
    else t,
]  # fmt: skip
WRITES = [
    lambda t, o, r: t.add_(1),
    lambda t, o, r: t.mul_(o.sum() * 0.1),
    lambda t, o, r: t.fill_(r.random()),
    lambda t, o, r: t.zero_(),
    lambda t, o, r: t.neg_(),
    lambda t, o, r: t.copy_(o.mean()),
    lambda t, o, r: t.clamp_(-1, 1),
    lambda t, o, r: t.__setitem__(..., 2.5),
    lambda t, o, r: t.masked_fill_(t > 0.5, -1.0),
    lambda t, o, r: mortice.sub(t, 1, out=t),
    lambda t, o, r: t.relu_(),
    lambda t, o, r: t.index_fill_(0, mortice.tensor([0]), 3.0) if t.ndim else t,
]


def overlaps(t):
    """Writes to tensors whose elements share memory are refused in eager mode, too."""
    places = [0]
    for n, s in zip(t.shape, t.stride()):
        places = [p + i * s for p in places for i in range(n)]
    return len(set(places)) < len(places)


def program(seed):
    """A function of two tensors whose steps the seed decides; shapes are the same in each run."""

    def run(x, y):
        r = random.Random(seed)
        pool = [x, y, x.clone(), mortice.ones(4)]
        for _ in range(r.randint(3, 12)):
            t, other = r.choice(pool), r.choice(pool)
            kind = r.random()
            if kind < 0.5:
                pool.append(r.choice(VIEWS)(t, r))
            elif kind < 0.9:
                write = r.choice(WRITES)
                if not overlaps(t):
                    write(t, other, r)
            else:
                pool.append(t * 2 + other.sum())
        return [t * 1 for t in pool[-4:]]

    return run


def check(seed, mode, table=None):
    f = program(seed)
    with mortice.no_grad():
        gm = fx.make_fx(f, table, mode)(mortice.randn(2, 4), mortice.randn(3, 2))
        gm.graph.lint()
        for node in gm.graph.find_nodes(op="call_function"):
            schema = getattr(node.target, "_schema", None)
            if schema is not None and schema.mutated:
                assert node.args[0].op in ("placeholder", "get_attr"), node.format_node()
        inputs = mortice.randn(2, 4), mortice.randn(3, 2)
        ours, theirs = [t.clone() for t in inputs], [t.clone() for t in inputs]
        expected, found = f(*theirs), gm(*ours)
    for a, b in zip([*expected, *theirs], [*found, *ours]):
        assert a.shape == b.shape
        assert mortice.equal(a, b), (seed, gm.code)


@pytest.mark.parametrize("seed", range(150))
def test_random_programs(seed):
    check(seed, ("real", "fake")[seed % 2])


@pytest.mark.parametrize("seed", range(150, 200))
def test_random_programs_down_to_core(seed):
    check(seed, "real", decompositions.core_aten_decompositions())
