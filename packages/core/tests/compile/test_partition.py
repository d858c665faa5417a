"""The two halves of a joint graph compute what the joint graph does, and keep what is cheapest."""

from __future__ import annotations

import random

import pytest

import mortice
from mortice._compile.costs import KEEP, size_in_bytes
from mortice._compile.partition import (
    Joint,
    backward_half,
    choose_saved,
    forward_half,
    forward_nodes,
)
from mortice.fx import Graph, GraphModule, Interpreter

aten = mortice.ops.aten
UNARY = [aten.tanh.default, aten.relu.default, aten.neg.default, aten.exp.default, aten.t.default]
BINARY = [aten.add.Tensor, aten.mul.Tensor, aten.mm.default, aten.sub.Tensor]


class Build:
    """A joint graph by hand; every value is a 4 x 4 float32."""

    def __init__(self, primals: int, tangents: int) -> None:
        self.graph = Graph()
        self.primals = [self.graph.placeholder(f"p{i}") for i in range(primals)]
        self.tangents = [self.graph.placeholder(f"t{i}") for i in range(tangents)]

    def __call__(self, target, *args):
        return self.graph.call_function(target, args)

    def joint(self, outputs, grads) -> Joint:
        self.graph.output((*outputs, *grads))
        module = GraphModule(None, self.graph)
        self.values = [mortice.rand(4, 4) for _ in (*self.primals, *self.tangents)]

        class Note(Interpreter):
            def run_node(self, n):
                n.meta["val"] = value = super().run_node(n)
                return value

        self.results = Note(module).run(*self.values)
        return Joint(
            module, tuple(self.primals), tuple(self.tangents), tuple(outputs), tuple(grads)
        )


def run_halves(build, joint, saved):
    """Results of the two halves, one after the other."""
    n = len(joint.primals)
    primals, tangents = build.values[:n], build.values[n:]
    forward, backward = forward_half(joint, saved), backward_half(joint, saved)
    forward.graph.lint()
    backward.module.graph.lint()
    results = forward(*primals)
    outputs, kept = results[: len(joint.outputs)], iter(results[len(joint.outputs) :])
    found = {**dict(zip(joint.outputs, outputs)), **dict(zip(joint.primals, primals))}
    inputs = [found[s] if s in found else next(kept) for s in saved]
    inputs += [tangents[i] for i in backward.tangents]
    return outputs + backward.module(*inputs), forward, backward.module


def targets(module):
    return [node.target for node in module.graph.nodes if node.op == "call_function"]


def equal(a, b) -> bool:
    return a is b is None or (a.numpy().tobytes() == b.numpy().tobytes())


@pytest.mark.parametrize("seed", range(60))
def test_halves_compute_the_joint_graph(seed) -> None:
    rng = random.Random(seed)
    build = Build(rng.randint(1, 3), rng.randint(1, 2))

    def grow(values, n):
        for _ in range(n):
            if rng.random() < 0.5:
                values.append(build(rng.choice(UNARY), rng.choice(values)))
            else:
                values.append(build(rng.choice(BINARY), rng.choice(values), rng.choice(values)))

    early = list(build.primals)
    grow(early, rng.randint(1, 12))
    outputs = [rng.choice(early) for _ in range(rng.randint(1, 3))]
    late = [*early[-6:], *build.tangents]
    grow(late, rng.randint(1, 15))
    grads = [rng.choice([*late, None]) for _ in build.primals]
    joint = build.joint(outputs, grads)
    saved, _ = choose_saved(joint)
    results, _, backward = run_halves(build, joint, saved)
    assert all(equal(a, b) for a, b in zip(results, build.results, strict=True))
    early = set(forward_nodes(joint))
    again = {n.name for n in backward.graph.nodes} & {n.name for n in early} - {
        n.name for n in saved
    }
    assert not {n for n in early if n.name in again and n.target is aten.mm.default}


def test_cheap_arithmetic_is_done_again_and_products_are_not() -> None:
    b = Build(2, 1)
    (x, w), (t,) = b.primals, b.tangents
    h = b(aten.mm.default, x, w)
    r = b(aten.relu.default, h)
    y = b(aten.mul.Tensor, r, r)
    slope = b(aten.mul.Tensor, r, b(aten.mul.Tensor, h, t))
    joint = b.joint([y], [b(aten.mm.default, slope, w), b(aten.mm.default, x, slope)])
    saved, _ = choose_saved(joint)
    _, forward, backward = run_halves(b, joint, saved)
    assert {n.name for n in saved} == {x.name, w.name, h.name}  # not relu's result
    assert targets(forward) == [aten.mm.default, aten.relu.default, aten.mul.Tensor]
    assert aten.relu.default in targets(backward)


def test_what_is_wanted_twice_is_kept_once_where_that_is_cheaper() -> None:
    b = Build(1, 1)
    (x,), (t,) = b.primals, b.tangents
    h = b(aten.mm.default, x, x)
    chain = h
    for _ in range(12):  # 12 exponentials cost more than one value kept
        chain = b(aten.exp.default, chain)
    joint = b.joint([chain], [b(aten.mul.Tensor, chain, t)])
    saved, _ = choose_saved(joint)
    assert [n.name for n in saved] == [chain.name]


def test_views_are_made_again() -> None:
    b = Build(1, 1)
    (x,), (t,) = b.primals, b.tangents
    h = b(aten.mm.default, x, x)
    joint = b.joint([h], [b(aten.mm.default, t, b(aten.t.default, h))])
    saved, _ = choose_saved(joint)
    assert [n.name for n in saved] == [h.name]


def test_random_numbers_are_drawn_once() -> None:
    b = Build(1, 1)
    (x,), (t,) = b.primals, b.tangents
    noise = b(aten.rand_like.default, x)
    y = b(aten.mul.Tensor, x, noise)
    joint = b.joint([y], [b(aten.mul.Tensor, t, noise)])
    saved, _ = choose_saved(joint)
    _, _, backward = run_halves(b, joint, saved)
    assert [n.name for n in saved] == [noise.name]
    assert aten.rand_like.default not in targets(backward)


def test_forward_order_and_unused_results() -> None:
    """A gradient that needs nothing of the forward pass keeps nothing."""
    b = Build(1, 1)
    (x,), (t,) = b.primals, b.tangents
    y = b(aten.add.Tensor, b(aten.exp.default, x), x)
    joint = b.joint([y], [t])
    saved, _ = choose_saved(joint)
    assert saved == []
    backward = backward_half(joint, saved)
    assert targets(backward.module) == []
    assert backward.tangents == (0,)


def test_what_is_recomputed_stands_before_its_first_use() -> None:
    b = Build(1, 1)
    (x,), (t,) = b.primals, b.tangents
    h1 = b(aten.relu.default, x)
    h2 = b(aten.neg.default, x)
    first = b(aten.mul.Tensor, t, h1)
    second = b(aten.mul.Tensor, first, h2)
    joint = b.joint([b(aten.add.Tensor, h1, h2)], [second])
    saved, _ = choose_saved(joint)
    assert [n.name for n in saved] == [x.name]
    order = [aten.relu.default, aten.mul.Tensor, aten.neg.default, aten.mul.Tensor]
    assert targets(backward_half(joint, saved).module) == order


def work(kind: str, depth: int) -> float:
    """Edges looked at, per node, for a graph of some depth."""
    b = Build(1, 1)
    (x,), (t,) = b.primals, b.tangents
    values = [x, b(aten.relu.default, x)]
    for i in range(depth):
        if kind == "chain":
            values.append(
                b(
                    aten.tanh.default if i % 3 else aten.mm.default,
                    *(values[-1:] * (1 if i % 3 else 2)),
                )
            )
        elif kind == "unused":
            values.append(b(aten.neg.default, values[-1]))
        else:
            pair = values[-1], values[-2]
            values += [b(aten.add.Tensor, *pair), b(aten.mul.Tensor, *pair)]
    late = t
    for value in reversed(values if kind != "unused" else values[-1:]):
        late = b(aten.mul.Tensor, late, value)
    joint = b.joint([values[-1]], [late])
    _, count = choose_saved(joint)
    return count / len(forward_nodes(joint))


@pytest.mark.parametrize("kind", ["chain", "doubling", "unused"])
def test_finding_the_cut_grows_with_the_length(kind) -> None:
    assert work(kind, 400) < 1.5 * work(kind, 100)


def test_costs_are_of_bytes() -> None:
    x = mortice.zeros(3, 5, dtype=mortice.float64)
    assert size_in_bytes(x) == 120
    assert KEEP > 1


def test_of_a_view_its_base_is_kept() -> None:
    b = Build(2, 1)
    (x, w), (t,) = b.primals, b.tangents
    h = b(aten.mm.default, x, w)
    part = b(aten.slice.Tensor, h, 1, 0, 1)
    y = b(aten.mul.Tensor, part, part)
    joint = b.joint([y], [b(aten.mul.Tensor, b(aten.mul.Tensor, part, t), 2.0), None])
    saved, _ = choose_saved(joint)
    assert saved == [h]
