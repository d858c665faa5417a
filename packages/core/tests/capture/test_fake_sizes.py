"""Shapes computed once with symbols hold at other sizes, wherever the guards hold."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import mortice
from mortice.fake import FakeTensorMode, ShapeEnv

F = mortice.nn.functional

# name -> (shapes of the inputs over the letters a, b, c, what is computed)
CALLS = {
    # pointwise
    "add": (("a b", "b"), lambda x, y: x + y),
    "where": (("a b", "a 1"), lambda x, y: mortice.where(x > 0, x, y)),
    "gelu": (("a b c",), F.gelu),
    "turned": (("a b", "b a"), lambda x, y: x.T * y + 1),
    "mean of squares": (("a b",), lambda x: x.square().mean(0, keepdim=True) + x),
    # reductions
    "sum": (("a b c",), lambda x: x.sum((0, 2))),
    "argmax": (("a b",), lambda x: x.argmax(1, keepdim=True)),
    "var": (("a b c",), lambda x: x.var(1)),
    "cumsum": (("a b",), lambda x: x.cumsum(0)),
    "max": (("a b",), lambda x: x.max(0)),
    "softmax": (("a b",), lambda x: x.softmax(-1)),
    # views
    "reshape": (("a b c",), lambda x: x.reshape(x.shape[0] * x.shape[1], -1)),
    "flatten": (("a b c",), lambda x: x.transpose(0, 1).flatten(1)),
    "split": (("a b",), lambda x: x.split(3, 1)[0]),
    "slice": (("a b",), lambda x: x[1:, ::2]),
    "last": (("a b",), lambda x: x[:, -1]),
    "expand": (("a 1", "b"), lambda x, y: x.expand(-1, y.shape[0])),
    "unfold": (("a b",), lambda x: x.unfold(1, 2, 1)),
    "cat": (("a b", "c b"), lambda x, y: mortice.cat([x, y, x])),
    "stack": (("a b", "a b"), lambda x, y: mortice.stack([x, y], -1)),
    "repeat": (("a b",), lambda x: x.repeat(2, 1, x.shape[0])),
    "pad": (("a b",), lambda x: F.pad(x, (1, x.shape[1]))),
    "diagonal": (("a a",), lambda x: x.diagonal()),
    # products
    "mm": (("a b", "b c"), lambda x, y: x @ y),
    "bmm": (("a b c", "a c b"), mortice.bmm),
    "matmul": (("a b c", "c b"), mortice.matmul),
    "linear": (("a b c", "4 c", "4"), F.linear),
    "einsum": (("a b c", "a c"), lambda x, y: mortice.einsum("ijk,ik->jk", x, y)),
    "attention": (("a 2 b 4", "a 2 c 4"), lambda q, k: F.scaled_dot_product_attention(q, k, k)),
    # windows
    "conv2d": (("a 3 b c", "4 3 3 3"), lambda x, w: F.conv2d(x, w, stride=2, padding=1)),
    "conv transposed": (("a 3 b c", "3 4 2 2"), lambda x, w: F.conv_transpose2d(x, w, stride=2)),
    "max_pool2d": (("a 3 b c",), lambda x: F.max_pool2d(x, 2, ceil_mode=True)),
    "interpolate": (("a 3 b c",), lambda x: F.interpolate(x, scale_factor=1.5)),
    "layer_norm": (("a b 4",), lambda x: F.layer_norm(x, (4,))),
    "batch_norm": (("a 3 b",), lambda x: F.batch_norm(x, None, None, training=True)),
    # factories and indices
    "arange": (("a b",), lambda x: mortice.arange(x.shape[0] * x.shape[1])),
    "zeros": (("a b",), lambda x: x.new_zeros(x.shape[1] + 1, x.shape[0] // 2)),
    "index_select": (("a b",), lambda x: x.index_select(1, mortice.arange(0, x.shape[1], 2))),
    "embedding": (("a 4", "b c"), lambda w, i: F.embedding(i.long(), w)),
    "gather": (("a b", "a b"), lambda x, i: x.gather(1, i.long())),
    "topk": (("a b",), lambda x: x.topk(2, 1)),
}

letters = st.fixed_dictionaries({n: st.integers(3, 9) for n in "abc"})


def sized(text, sizes):
    return tuple(sizes[n] if n in sizes else int(n) for n in text.split())


def metadata(result):
    found = result if isinstance(result, tuple) else (result,)
    return [(tuple(t.shape), t.dtype, t.stride(), t.storage_offset()) for t in found]


def evaluated(value, values):
    if isinstance(value, tuple):
        return tuple(evaluated(v, values) for v in value)
    return value.evaluate(values) if hasattr(value, "evaluate") else value


@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=12, deadline=None)
@given(first=letters, second=letters)
def test_shapes_hold_at_other_sizes(name, first, second):
    texts, call = CALLS[name]
    env = ShapeEnv()
    mode = FakeTensorMode(env)
    symbols = {n: env.size(size) for n, size in first.items()}
    with mode:
        inputs = [mode.empty(sized(text, symbols), mortice.float32) for text in texts]
        symbolic = metadata(call(*inputs))
    values = {symbols[n].symbol: size for n, size in second.items()}
    assert all(g.holds(env.hints) for g in env.guards)
    assume(all(g.holds(values) for g in env.guards))
    with mortice.device("meta"):
        real = metadata(call(*[mortice.empty(sized(text, second)) for text in texts]))
    assert [evaluated(one, values) for one in symbolic] == real


#: Calls that need to know more of the sizes than that they are at least 2: how many parts there are.
NEEDS = {"split": 3}


@pytest.mark.parametrize("name", CALLS)
def test_no_guard_without_need(name):
    texts, call = CALLS[name]
    env = ShapeEnv()
    mode = FakeTensorMode(env)
    symbols = {n: env.size(size) for n, size in zip("abc", (5, 6, 7))}
    with mode:
        call(*[mode.empty(sized(text, symbols), mortice.float32) for text in texts])
    assert len(env.guards) <= NEEDS.get(name, 0), env.guards
