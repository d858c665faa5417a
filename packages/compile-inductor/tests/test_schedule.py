"""The order of steps: what gives back memory runs as soon as it can."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from inductor_graphs import graph

import mortice
from mortice import Tensor
from mortice.library import custom_op
from mortice_inductor import compile_fx
from mortice_inductor.compile import settings
from mortice_inductor.ir.values import Trace
from mortice_inductor.passes.fuse import Cycle, Kernel, Work
from mortice_inductor.passes.schedule import schedule
from mortice_inductor.pipeline import build
from mortice_inductor.specs import specs_of


def ordered(reads: dict[int, list[int]], sizes: list[int]) -> list[int]:
    """The order of steps 0, 1, ... that read what others made; step n makes ``sizes[n]`` bytes, of
    which 0 are no memory of its own.
    """
    t = Trace()
    values = [t.make("input", (), (1,), "f32", k) for k in range(len(sizes))]
    work: list[Work] = []
    for n in range(len(sizes)):
        kernel = Kernel(n, (1,), ())
        kernel.stores.append(values[n])
        kernel.reads = {values[m].uid for m in reads.get(n, [])}
        work.append(kernel)
    maker = {v.uid: w for v, w in zip(values, work, strict=True)}
    taken = {v.uid: size for v, size in zip(values, sizes, strict=True) if size}
    return [w.number for w in schedule(work, maker, taken)]


def test_the_last_reader_runs_at_once():
    # 3 makes 4 bytes of 0's 8, which it alone has yet to read after 1.
    reads = {1: [0], 2: [1], 3: [0], 4: [2, 3]}
    assert ordered(reads, [8, 8, 16, 4, 0]) == [0, 1, 3, 2, 4]
    # But not if it makes more than it gives back.
    assert ordered(reads, [8, 8, 16, 12, 0]) == [0, 1, 2, 3, 4]


def test_what_takes_no_memory_runs_at_once():
    assert ordered({1: [0], 2: [1], 3: [0]}, [8, 8, 0, 0]) == [0, 3, 1, 2]


def test_one_leads_to_another():
    # 4 can run when 3 has, and gives back what 3 made.
    reads = {1: [0], 2: [1], 3: [0], 4: [3], 5: [2]}
    assert ordered(reads, [8, 8, 16, 8, 0, 0]) == [0, 1, 3, 4, 2, 5]


def test_others_stay_in_order():
    assert ordered({2: [0], 3: [1], 4: [2, 3]}, [8, 8, 16, 16, 0]) == [0, 1, 2, 3, 4]


def test_nothing_runs_before_what_it_needs():
    assert ordered({0: [2], 1: [0]}, [8, 0, 8]) == [2, 0, 1]
    with pytest.raises(Cycle):
        ordered({0: [1], 1: [0]}, [8, 8])


def test_operators_of_others_keep_their_order():
    seen: list[str] = []

    @custom_op("schedule::first", mutates_args=())
    def first(x: Tensor) -> Tensor:
        seen.append("first")
        return x + 1

    @custom_op("schedule::second", mutates_args=())
    def second(x: Tensor) -> Tensor:
        seen.append("second")
        return x + 2

    for op in (first, second):
        op.register_fake(mortice.empty_like)

    def body(x: Tensor) -> tuple[Tensor, ...]:
        made = x.exp()
        wide = made.reshape(-1, 1) @ made.reshape(1, -1)  # takes memory: stays where it is
        return first(wide @ wide), second(made)

    x = mortice.ones(8, 8) / 8
    run = mortice.compile(body)
    for _ in range(3):
        seen.clear()
        found = run(x)
        assert seen == ["first", "second"]
    assert all(mortice.allclose(a, b) for a, b in zip(found, body(x), strict=True))


def layers(depth: int) -> Any:
    """A chain of products, with the sum of each one's rows, all sums last: as in a backward."""

    def body(call: Any, x: Any, w: Any) -> tuple[Any, ...]:
        made = [x]
        for _ in range(depth):
            made.append(call("mul.Tensor", call("mm", made[-1], w), 0.1))
        return (*(call("sum.dim_IntList", m, [0]) for m in made[1:]), made[-1])

    return graph(body, 2)


def test_memory_does_not_grow_with_depth():
    rng = np.random.default_rng(0)
    given = [mortice.from_numpy(rng.standard_normal(s).astype("f4")) for s in ((256, 64), (64, 64))]
    arenas: list[int] = []
    for depth in (3, 12):
        how = settings((0, 1), lambda x: x)
        arenas.append(build(layers(depth), specs_of(given), how).plan.arena)
        found = compile_fx(layers(depth), given)(*given)
        for a, b in zip(found, layers(depth)(*given), strict=True):
            assert np.allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-4)
    assert arenas[0] == arenas[1] < 4 * 256 * 64 * 4
