"""Sizes that change: a graph is planned for a few of them, and right at all."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inductor_graphs import assert_same

import mortice
import mortice.nn.functional as F
from mortice_inductor import config, front, sizing, templates
from mortice_inductor.compile import compile_graph
from mortice_inductor.runtime import code
from mortice_llvm.runtime import library

DIM, HEADS = 32, 4


class Counts:
    """How often graphs were planned and compiled, and what became of templates."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.planned = self.compiled = 0
        self.reasons: list[str] = []
        self.made: list[templates.Template] = []
        planned, load, template = front._compiled, library.load_entry, sizing.template

        def plan(*args: Any) -> Any:
            self.planned += 1
            return planned(*args)

        def make(*args: Any) -> Any:
            found = template(*args)
            (self.reasons if isinstance(found, str) else self.made).append(found)  # type: ignore[arg-type]
            return found

        def entry(*args: Any, **kwargs: Any) -> Any:
            self.compiled += 1
            return load(*args, **kwargs)

        monkeypatch.setattr(front, "_compiled", plan)
        monkeypatch.setattr(sizing, "template", make)
        monkeypatch.setattr(library, "load_entry", entry)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> Counts:
    return Counts(monkeypatch)


def decoder() -> Callable[..., Any]:
    """A step of a decoder, with keys and values that grow by one."""
    mortice.manual_seed(0)
    wq, wk, wv, wo = (mortice.randn(DIM, DIM) / DIM for _ in range(4))

    def step(x: Any, k: Any, v: Any) -> Any:
        h = F.layer_norm(x, (DIM,))
        q, new, old = ((h @ w).view(1, HEADS, 1, DIM // HEADS) for w in (wq, wk, wv))
        k, v = mortice.cat([k, new], 2), mortice.cat([v, old], 2)
        a = mortice.softmax(q @ k.transpose(-1, -2) * 0.35, -1) @ v
        return x + a.reshape(1, DIM) @ wo, k, v

    return step


def cache_of(length: int) -> tuple[Any, Any]:
    return tuple(mortice.randn(1, HEADS, length, DIM // HEADS) for _ in range(2))  # type: ignore[return-value]


def test_a_growing_cache_is_planned_a_few_times(counts: Counts) -> None:
    step = decoder()
    compiled = mortice.compile(step, backend="inductor")
    x, (k, v) = mortice.randn(1, DIM), cache_of(2)
    counted: list[tuple[int, int]] = []
    for _ in range(60):
        wanted = step(x, k, v)
        found = compiled(x, k, v)
        for a, b in zip(found, wanted, strict=True):
            assert_same(a, b, rtol=5)
        _, k, v = found
        counted.append((counts.planned, counts.compiled))
    # The first graph; the graph with symbols at two sizes, of the second of which its template is
    # made; lengths at which another dimension is as long, or steps go in another order.
    assert counted[-1][0] <= 6, counted
    assert set(counted[9:]) == {counted[-1]}, counted


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[int, int], tuple[Any, ...]]]] = {
    "pointwise": (lambda x, y: (x * y + 1).tanh() - y, lambda n, m: (rand(n), rand(n))),
    "broadcast": (lambda x, y: x.exp() + y, lambda n, m: (rand(n, 1), rand(m))),
    "columns": (lambda x: x.sin().t().contiguous() * 2, lambda n, m: (rand(n, m),)),
    "flat": (lambda x: x.cos().reshape(-1) * 2, lambda n, m: (rand(n, m),)),
    "unflat": (lambda x: x.cos().reshape(-1, 4).sum(1), lambda n, m: (rand(4 * n),)),
    "halves": (lambda x: x[: x.shape[0] // 2] * x.shape[0], lambda n, m: (rand(n, m),)),
    "strided": (lambda x: x[::2, 1:].sin() + 1, lambda n, m: (rand(n, m + 1),)),
    "flipped": (lambda x: x.flip(0).roll(1, 1), lambda n, m: (rand(n, m),)),
    "padded": (lambda x: F.pad(x.sin(), (1, 2)) * 3, lambda n, m: (rand(n, m),)),
    "joined": (lambda x, y: mortice.cat([x, y, x]).exp(), lambda n, m: (rand(n, 3), rand(m, 3))),
    "stacked": (lambda x: mortice.stack([x, x * 2], 1), lambda n, m: (rand(n, m),)),
    "rows": (lambda x: x.softmax(-1), lambda n, m: (rand(n, m),)),
    "sums": (lambda x: (x.sum(0), x.mean(1), (x * x).sum()), lambda n, m: (rand(n, m),)),
    "spread": (lambda x: x.var(0) + x.amax(0), lambda n, m: (rand(n + 1, m),)),
    "normed": (lambda x: F.layer_norm(x, x.shape[1:]), lambda n, m: (rand(n, m),)),
    "product": (lambda x, w: (x @ w).relu() @ w.t(), lambda n, m: (rand(n, m), rand(m, 24))),
    "products": (lambda x, y: (x @ y).tanh(), lambda n, m: (rand(2, n, m), rand(2, m, n))),
    "outer": (lambda x: x[:, None] * x + x.shape[0], lambda n, m: (rand(n),)),
    "counted": (lambda x: mortice.arange(x.shape[0]) + x, lambda n, m: (rand(n),)),
    "counted by two": (
        lambda x: mortice.arange(2, 2 * x.shape[0], 2) + x[1:], lambda n, m: (rand(n),),
    ),
    "filled": (lambda x: mortice.full_like(x, x.shape[0]) + x, lambda n, m: (rand(n, m),)),
    "bounded": (lambda x: x.clamp(-1, x.shape[0]) ** 2, lambda n, m: (rand(n, m),)),
    "chosen": (lambda x, y: mortice.where(x > 0, x, y), lambda n, m: (rand(n, m), rand(m))),
    "written": (lambda x: x.mul_(2).add_(x.shape[1]) + 1, lambda n, m: (rand(n, m) + 0,)),
    "attended": (F.scaled_dot_product_attention,
                 lambda n, m: (rand(1, 2, n, 8), rand(1, 2, m, 8), rand(1, 2, m, 8))),
    "narrow": (lambda x: (x.half() * 3).sum(1), lambda n, m: (rand(n, m),)),
    "scattered": (
        lambda x, y: x.index_add(0, (y * 0).long(), x[:1].expand(y.shape[0], x.shape[1])),
        lambda n, m: (rand(n, 3), rand(m)),
    ),
    "triangle": (lambda x: x.tril() + x.triu(1), lambda n, m: (rand(n, m),)),
    "looked up": (
        lambda x: F.embedding((x * 0 + 1).long(), mortice.ones(3, 5)) * 2, lambda n, m: (rand(n),),
    ),
    "foreign": (lambda x: x.cumsum(0).sin() + x, lambda n, m: (rand(n, m),)),
    "whole numbers": (lambda x: (x.int() // 2 + x.shape[1]).sum(1), lambda n, m: (rand(n, m),)),
    "turned": (lambda x: x.sin() + x.sum(0), lambda n, m: (rand(m, n).t(),)),
}  # fmt: skip


def rand(*shape: int) -> Any:
    return mortice.randn(*shape)


def same(found: Any, wanted: Any) -> None:
    if isinstance(wanted, tuple):
        for a, b in zip(found, wanted, strict=True):
            same(a, b)
    else:
        assert_same(found, wanted, rtol=10)


#: Of vector tails, tiles and registers; sizes of 0 and 1; where whole plans change.
SIZES = st.sampled_from([0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 33, 63, 64, 65, 100, 129])
#: What eager refuses without elements, or gives NaN for.
NOT_EMPTY = ("spread", "normed", "rows", "strided", "flipped", "unflat", "counted by two", "attended",
             "scattered")  # fmt: skip
EXAMPLES = int(os.environ.get("MORTICE_TEST_EXAMPLES", "6"))
SHAPES = st.lists(st.tuples(SIZES, SIZES), min_size=4, max_size=9)


@pytest.mark.parametrize("name", PROGRAMS)
@settings(deadline=None, max_examples=EXAMPLES)
@given(shapes=SHAPES, dynamic=st.sampled_from([None, True]))
def test_every_size_is_as_in_eager(
    name: str, shapes: list[tuple[int, int]], dynamic: bool | None
) -> None:
    f, inputs = PROGRAMS[name]
    compiled = mortice.compile(f, backend="inductor", dynamic=dynamic)
    for n, m in shapes:
        if name == "sums" and not n * m:
            continue  # the mean of nothing
        if name in NOT_EMPTY and not (n and m):
            continue
        args = inputs(n, m)
        copies = [x.clone() if x.is_contiguous() else x for x in args]
        same(compiled(*args), f(*copies))
        if name == "written":
            assert_same(args[0], copies[0])


@pytest.mark.parametrize("name", PROGRAMS)
def test_templates_are_made_and_give_the_plans_of_numbers(
    name: str, counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At sizes that a template was not made at, too, its plan is that of the passes."""
    f, inputs = PROGRAMS[name]
    compiled = mortice.compile(f, backend="inductor", dynamic=True)
    compared: list[bool] = []
    by_template = front._by_template

    def checked(variants: Any, given: Any, specs: Any, layout: Any, shared: Any) -> Any:
        found = by_template(variants, given, specs, layout, shared)
        if found is not None:
            gm = variants.graph()
            made = compile_graph(gm, specs, shared, front.numbers_of(gm, given))
            assert found.plan == made.plan
            compared.append(found.library is made.library)
        return found

    monkeypatch.setattr(front, "_by_template", checked)
    for n, m in [(n, m) for n in (20, 21, 26, 34, 35) for m in (50, 53)]:
        args = inputs(n, m)
        copies = [x.clone() if x.is_contiguous() else x for x in args]
        same(compiled(*args), f(*copies))
    assert counts.made, counts.reasons
    assert compared and all(compared)
    assert not [x for x in counts.reasons if "take symbols" in x]


def test_a_batch_that_grows_in_training(counts: Counts) -> None:
    """The mean's count is no part of the code, in the backward graph neither."""
    mortice.manual_seed(0)
    w = mortice.randn(16, 8, requires_grad=True)

    def loss(x: Any) -> Any:
        return (x @ w).relu().square().mean()

    compiled = mortice.compile(loss, backend="inductor")
    counted: list[tuple[int, int]] = []
    for n in [5, *range(6, 40)]:
        x = mortice.randn(n, 16)
        (found,) = mortice.autograd.grad(compiled(x), [w])
        (wanted,) = mortice.autograd.grad(loss(x), [w])
        assert_same(found, wanted, rtol=10)
        counted.append((counts.planned, counts.compiled))
    # Forward and backward, of each the first graph, and that with symbols at two sizes; a batch of 16,
    # which is the size of rows as well.
    assert counted[-1][0] <= 8, counted
    assert set(counted[12:]) == {counted[-1]}, counted


def test_what_is_fixed_by_its_sizes_is_planned_by_itself(counts: Counts) -> None:
    """A sum is cut by a divisor of its length, for which no template is tried again and again."""
    compiled = mortice.compile(lambda x: (x * 2).sum(), backend="inductor", dynamic=True)
    for n in range(70000, 70012):
        x = mortice.ones(n)
        assert compiled(x).item() == 2 * n
    assert counts.planned == 12
    assert counts.reasons == ["the conditions hold for these sizes alone"] * front.ATTEMPTS
    assert not counts.made


def test_no_more_templates_than_the_limit(counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no more programs: both go on to be right."""
    monkeypatch.setattr(templates, "LIMIT", 3)
    monkeypatch.setattr(front.Variants, "LIMIT", 4)
    variants: list[front.Variants] = []
    set_up = front.Variants.__init__
    monkeypatch.setattr(
        front.Variants, "__init__", lambda self, *a: variants.append(self) or set_up(self, *a)
    )
    compiled = mortice.compile(lambda x: x.sin().sum(0), backend="inductor", dynamic=True)
    for n in range(64, 90):  # divisors of every kind
        x = mortice.randn(n, 256)
        assert_same(compiled(x), x.sin().sum(0), rtol=10)
    (one,) = variants
    assert len(counts.made) == len(one.templates.known) == 3
    assert len(one.programs) == 4
    assert one.held == sum(p.plan.arena for p in one.programs.values()) > 0
    monkeypatch.setattr(front.Variants, "ARENAS", 0)
    compiled(mortice.randn(105, 256))
    assert len(one.programs) == 1
    assert one.held == next(iter(one.programs.values())).plan.arena


@pytest.mark.parametrize("keep", [True, False])
def test_templates_without_a_cache_on_disk(counts: Counts, keep: bool) -> None:
    with config.patch(graph_cache=keep):
        compiled = mortice.compile(lambda x: x.sin() + 1, backend="inductor", dynamic=True)
        for n in range(10, 20):
            compiled(mortice.ones(n))
    assert counts.planned == 2


def test_passes_of_users_see_numbers(counts: Counts) -> None:
    seen: list[type] = []

    def look(values: list[Any]) -> list[Any]:
        seen.extend(type(n) for v in values for n in v.shape)
        return values

    with config.patch(pre_fusion_custom_pass=look):
        compiled = mortice.compile(lambda x: x.sin() + 1, backend="inductor", dynamic=True)
        for n in range(10, 14):
            compiled(mortice.ones(n))
    assert set(seen) == {int}
    assert counts.planned == 4


def test_refused_indices_name_the_size_at_hand() -> None:
    compiled = mortice.compile(lambda x, i: x[i] * 2, backend="inductor", dynamic=True)
    for n in (5, 6, 7, 8):
        x, i = mortice.randn(n), mortice.tensor([0, n - 1])
        assert_same(compiled(x, i), x[i] * 2)
        with pytest.raises(mortice.errors.DimensionError, match=f"with size {n}"):
            compiled(x, mortice.tensor([0, n]))


SECOND = """
import sys
import mortice
from mortice_inductor import front
planned = 0
original = front._planned
def counting(*args):
    global planned
    planned += 1
    return original(*args)
front._planned = counting
f = mortice.compile(lambda x, y: (x @ y).tanh().sum(1), backend="inductor", dynamic=True)
for n in map(int, sys.argv[1:]):
    x, y = mortice.randn(n, 12), mortice.randn(12, n)
    assert mortice.allclose(f(x, y), (x @ y).tanh().sum(1), 1e-4, 1e-4)
print(planned, "mortice_inductor.pipeline" in sys.modules)
"""


def test_another_process_plans_no_size_that_a_template_is_for(tmp_path: Path) -> None:
    def run(*sizes: int) -> list[str]:
        env = {**os.environ, "MORTICE_CACHE_DIR": str(tmp_path)}
        command = [sys.executable, "-c", SECOND, *map(str, sizes)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    assert run(20, 21, 22, 23) == ["2", "True"]
    entries = len(list((tmp_path / "llvm").iterdir()))
    assert run(24, 25, 26, 27, 28, 29, 20) == ["0", "False"]
    assert len(list((tmp_path / "llvm").iterdir())) == entries  # nothing is written for a size
    for entry in (tmp_path / "llvm").iterdir():
        entry.write_bytes(entry.read_bytes()[:-1])
    assert run(24, 25, 26) == ["2", "True"]  # damaged entries are misses


@pytest.mark.usefixtures("counts")
def test_a_range_that_ends_at_a_size_is_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[front.Variants] = []
    set_up = front.Variants.__init__
    monkeypatch.setattr(
        front.Variants, "__init__", lambda self, *a: made.append(self) or set_up(self, *a)
    )
    for name in ("counted", "counted by two"):
        f, inputs = PROGRAMS[name]
        compiled = mortice.compile(f, backend="inductor", dynamic=True)
        for n in (5, 6, 7):
            compiled(*inputs(n, n))
    assert len(made) >= 2
    for one in made:
        assert {step[0] for p in one.programs.values() for step in p.plan.steps} == {"native"}


def test_a_template_whose_code_is_gone_is_none(
    counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version of numpy may lack a routine of BLAS that it calls."""
    compiled = mortice.compile(lambda x: x.sin() + 1, backend="inductor", dynamic=True)
    for n in (10, 11, 12):
        compiled(mortice.ones(n))
    assert counts.planned == 2
    load = code.load_code

    def gone(key: bytes, make_text: Any) -> Any:
        if make_text is None:
            raise code.NoCode
        return load(key, make_text)

    monkeypatch.setattr(code, "load_code", gone)
    x = mortice.randn(13)
    assert_same(compiled(x), x.sin() + 1)
    assert counts.planned == 3


def test_a_graph_with_a_symbol_is_for_no_size_of_0_or_1() -> None:
    """The slice has two rows less than the input only where that has two."""

    def drawn(x: Any) -> Any:
        return mortice.randn_like(x[2:100])

    compiled = mortice.compile(drawn, backend="inductor", dynamic=True)
    for n in (8, 1, 9, 0, 2, 150):
        x = mortice.ones(n, 4)
        mortice.manual_seed(n)
        found = compiled(x)
        mortice.manual_seed(n)
        assert_same(found, drawn(x))


def test_a_size_is_not_read_from_a_stride_of_one_element() -> None:
    """Of two columns every second one is one: the gradient's graph is given it, laid out anyhow."""

    def f(x: Any) -> Any:
        v = x.sum(-2, keepdim=True) * 2
        v[..., ::2].tanh_()
        return v

    for backend in ("aot_eager", "inductor"):
        compiled = mortice.compile(f, backend=backend, dynamic=True)
        for n in (47, 2, 46, 3, 2):
            x = mortice.randn(1, n, requires_grad=True)
            found, wanted = (mortice.autograd.grad(y.sum(), [x])[0] for y in (compiled(x), f(x)))
            assert mortice.allclose(found, wanted, 1e-4, 1e-5)
