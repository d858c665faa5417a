"""Captured graphs kept on disk: a second process traces, lowers and compiles nothing, and is right."""

from __future__ import annotations

import json
import marshal
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inductor_graphs import assert_same

import mortice
from mortice._capture import captured
from mortice._compile import kept, stages
from mortice_inductor import cache, config, front
from mortice_inductor.lowering import LOWERINGS, user
from mortice_inductor.passes.custom import CustomGraphPass

PROGRAM = Path(__file__).with_name("kept_programs.py")
NOTHING = {"built": 0, "traced": 0, "given": 0, "compiled": 0}
#: Cases in which guards are asked again, or sizes are symbols: their captured graphs are built.
BUILT = {"exponents": 2, "second_size": 2, "dynamic": 1, "dynamic_inference": 1, "marked": 1}


def start(folder: Path, cases: str = "all", *changes: str) -> subprocess.Popen[str]:
    env = {**os.environ, "MORTICE_CACHE_DIR": str(folder)}
    command = [sys.executable, str(PROGRAM), cases, *changes]
    return subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def report(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, errors = process.communicate(timeout=1800)
    assert process.returncode == 0, errors
    found = json.loads(out.splitlines()[-1])
    wrong = [name for name, one in found.items() if name != "lowered" and not one["same"]]
    assert not wrong
    return found


def test_a_second_process_traces_and_lowers_nothing_and_computes_the_same(tmp_path: Path) -> None:
    first = report(start(tmp_path))
    assert all(one["given"] for name, one in first.items() if name != "lowered")
    second = report(start(tmp_path))
    assert not second.pop("lowered")
    for name, one in second.items():
        assert {k: one[k] for k in NOTHING} == {**NOTHING, "built": BUILT.get(name, 0)}, name


def test_processes_that_write_at_once(tmp_path: Path) -> None:
    cases = "inference,training,numbers,dynamic,some_gradients"
    for process in [start(tmp_path, cases) for _ in range(3)]:
        report(process)
    found = report(start(tmp_path, cases))
    assert not any(one["given"] for name, one in found.items() if name != "lowered")
    assert not [p for p in (tmp_path / "llvm").iterdir() if p.suffix == ".tmp"]


def test_another_process_with_another_core_or_dtype_misses(tmp_path: Path) -> None:
    report(start(tmp_path, "training"))
    for change in (
        "import mortice._compile.kept as k; k.__version__ = '0.0.0'",
        "import mortice._compile.kept as k; k._own_sources = b'edited'",
        "import mortice_inductor.cache as c; c._own_sources = b'edited'",
        "mortice.set_default_dtype(mortice.float64)",
    ):
        assert report(start(tmp_path, "training", change))["training"]["traced"] == 1, change
        assert report(start(tmp_path, "training", change))["training"]["traced"] == 0, change
    assert report(start(tmp_path, "training"))["training"]["traced"] == 0


# -- in one process: each compiled object looks on disk ------------------------------------------------


class Counts:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.traced = self.given = self.built = 0
        for module, name, what in (
            (stages, "trace_joint", "traced"),
            (stages, "call_backend", "given"),
            (captured, "build", "built"),
        ):
            self._count(monkeypatch, module, name, what)

    def _count(self, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, what: str) -> None:
        original = getattr(module, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            setattr(self, what, getattr(self, what) + 1)
            return original(*args, **kwargs)

        monkeypatch.setattr(module, name, counted)

    def of(self, f: Any, *args: Any, **given: Any) -> int:
        """How many graphs the backend is given for a new compiled object, forward and backward."""
        before = self.given
        wanted = f(*args)
        found = mortice.compile(f, backend="inductor", **given)(*args)
        assert_same(found.detach(), wanted.detach())
        if found.requires_grad:
            grads = mortice.autograd.grad(found.sum(), [x for x in args if x.requires_grad])
            theirs = mortice.autograd.grad(wanted.sum(), [x for x in args if x.requires_grad])
            for a, b in zip(grads, theirs, strict=True):
                assert_same(a, b)
        return self.given - before


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> Counts:
    return Counts(monkeypatch)


def f(x: Any, w: Any) -> Any:
    return (x @ w).relu().exp().sum(0)


def inputs() -> tuple[Any, Any]:
    return mortice.randn(6, 8), mortice.randn(8, 4).requires_grad_()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_plan_is_written_once(
    counts: Counts, monkeypatch: pytest.MonkeyPatch, training: bool, dynamic: bool
) -> None:
    """With the captured graph, unless sizes are symbols: then by the layout of its inputs."""
    plans: list[Any] = []
    write = cache.write
    monkeypatch.setattr(cache, "write", lambda *given: plans.append(given) or write(*given))
    monkeypatch.setattr(cache, "key_of", None)  # the graph itself is not written down
    x, w = mortice.randn(4, 5), mortice.randn(5, 6, requires_grad=training)
    graphs = 2 if training else 1
    assert [counts.of(f, x, w, dynamic=dynamic) for _ in range(2)] == [graphs, 0]
    assert len(plans) == (graphs if dynamic else 0)


def test_hits_and_misses(counts: Counts) -> None:
    x, w = inputs()
    assert [counts.of(f, x, w), counts.of(f, x, w)] == [2, 0]
    assert counts.built == counts.traced == 1
    assert [counts.of(f, x, w.detach()), counts.of(f, x, w.detach())] == [1, 0]
    assert counts.of(f, x.double(), w.detach().double().requires_grad_()) == 2
    assert counts.of(f, x.t().contiguous().t(), w) == 2  # other strides
    assert counts.of(lambda x, w: (x @ w).relu().exp().sum(1), x, w) == 2


def test_another_option_is_another_entry(counts: Counts) -> None:
    x, w = inputs()
    counts.of(f, x, w)
    for given in ({"fusion": False}, {"fusion_reach": 2}):
        assert [counts.of(f, x, w, options=given), counts.of(f, x, w, options=given)] == [2, 0]
    with config.patch(recompute_cost=3):
        assert [counts.of(f, x, w), counts.of(f, x, w)] == [2, 0]
    with config.patch(graph_cache=False):
        assert [counts.of(f, x, w), counts.of(f, x, w)] == [2, 2]
    assert counts.of(f, x, w) == 0


class Named(CustomGraphPass):
    def __init__(self, version: str) -> None:
        self.version = version

    def __call__(self, graph: Any) -> None:
        pass

    def uuid(self) -> Any:
        return self.version


def test_what_is_somebodys_function_is_not_kept(
    counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, w = inputs()
    counts.of(f, x, w)
    with config.patch(post_grad_custom_pre_pass=lambda graph: None):
        assert [counts.of(f, x, w), counts.of(f, x, w)] == [2, 2]
    with config.patch(post_grad_custom_pre_pass=Named("1")):
        assert [counts.of(f, x, w), counts.of(f, x, w)] == [2, 0]
    with config.patch(post_grad_custom_pre_pass=Named("2")):
        assert counts.of(f, x, w) == 2
    with monkeypatch.context() as m:
        m.setitem(user.USER, "exp.default", LOWERINGS["exp.default"])
        assert [counts.of(f, x, w), counts.of(f, x, w)] == [2, 2]
    with monkeypatch.context() as m:
        m.setattr(user, "FALLBACKS", {"exp.default"})
        assert [counts.of(f, x, w), counts.of(f, x, w)] == [2, 2]
    assert counts.of(f, x, w) == 0


def test_a_kernel_in_an_operators_place_is_no_hit(counts: Counts) -> None:
    """The same function means another thing then, and its old meaning is on disk."""

    def g(x: Any, w: Any) -> Any:
        return mortice.nn.functional.silu(x * w).sum(0)

    x, w = mortice.randn(6, 8), mortice.randn(8).requires_grad_()
    counts.of(g, x, w)
    with mortice.library.scoped_library("aten", "IMPL") as lib:
        lib.impl("silu", lambda t: t * 3, "Autograd")
        assert_same(g(x, w).detach(), (x * w * 3).sum(0).detach())
        # It runs between two graphs, each of which has a backward graph.
        assert [counts.of(g, x, w), counts.of(g, x, w)] == [4, 4]
    assert counts.of(g, x, w) == 0


def test_a_backward_graph_made_beside_a_kernel_is_not_kept(counts: Counts) -> None:
    def g(x: Any) -> Any:
        return (x * x).sum() * 3

    def given(between: Any = None) -> int:
        before = counts.given
        x = mortice.ones(3).requires_grad_()
        y = mortice.compile(g, backend="inductor")(x)
        with mortice.library.scoped_library("aten", "IMPL") as lib:
            if between is not None:
                lib.impl("mul.Tensor", between, "CPU")
            y.backward()
        assert x.grad is not None
        return counts.given - before

    assert given(lambda a, b: mortice.full_like(a, 9.0)) == 2
    assert given() == 1  # the forward graph is there
    assert given() == 0
    assert (
        given(lambda a, b: mortice.full_like(a, 9.0)) == 1
    )  # what is there is for the operator itself


def test_operators_of_others_are_not_kept(counts: Counts) -> None:
    with mortice.library.scoped_library("kept_test", "DEF") as lib:
        lib.define("twice(Tensor x) -> Tensor")
        lib.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
        mortice.library.register_fake("kept_test::twice", lambda x: x.new_empty(x.shape), lib=lib)
        op = mortice.ops.kept_test.twice

        def g(x: Any) -> Any:
            return op(x).exp()

        x = mortice.randn(6)
        assert [counts.of(g, x), counts.of(g, x)] == [1, 1]


def test_damaged_entries_are_misses(counts: Counts, tmp_path: Path) -> None:
    x, w = inputs()
    assert counts.of(f, x, w) == 2
    entries = sorted((tmp_path / "llvm").iterdir())
    whole = [p.read_bytes() for p in entries]
    for damage in (
        lambda b: b[:40], lambda b: b[:-1] + b"?", lambda b: b"", lambda b: b"\x80\x04N." + b,
    ):  # fmt: skip
        for path, data in zip(entries, whole, strict=True):
            path.write_bytes(damage(data))
        front_loaded(counts, x, w, 2)
        front_loaded(counts, x, w, 0)


def front_loaded(counts: Counts, x: Any, w: Any, given: int) -> None:
    from mortice_inductor.runtime import code

    code._LIBRARIES.clear()  # what this process has loaded does not help
    assert counts.of(f, x, w) == given


@pytest.mark.parametrize(
    "entry",
    [None, 3, "text", (), ("graph",), ("training", [], (1, 2), None),
     ("training", ([], []), (1, 2), None), ("training", ([], []), (), ([],)), ("other", 1, 2, 3),
     ("graph", ([], []), False, ([], False, (("T", "Plan", [1]), b"")))],
)  # fmt: skip
def test_foreign_entries_are_misses(
    counts: Counts, monkeypatch: pytest.MonkeyPatch, entry: Any
) -> None:
    """Whole, by their hash, and not what is written here."""
    x, w = inputs()
    counts.of(f, x, w)
    original = kept.Kept._read
    data = marshal.dumps(entry, 2)
    monkeypatch.setattr(kept.Kept, "_read", lambda self, key: kept.whole(marshal.loads(data)))
    assert counts.of(f, x, w) == 2
    monkeypatch.setattr(kept.Kept, "_read", original)
    assert counts.of(f, x, w) == 0


def test_code_that_is_gone_is_a_miss(counts: Counts, tmp_path: Path) -> None:
    x, w = inputs()
    counts.of(f, x, w)
    for path in (tmp_path / "llvm").iterdir():
        if path.read_bytes()[28:32] == b"\x7fELF":
            path.unlink()
    front_loaded(counts, x, w, 2)


# -- what is done with a graph that was found ----------------------------------------------------------


def test_a_graph_that_was_found_can_be_shown(counts: Counts) -> None:
    x, w = inputs()
    counts.of(f, x, w)
    found = mortice.compile(f, backend="inductor")
    found(x, w).sum().backward()
    assert counts.given == 2
    (segment,) = found.segments
    assert counts.built == 1
    shown = mortice.compiler.explain(found)(x, w)
    assert [p.name for p in shown.segments[0].parts] == ["forward", "backward"]
    assert all("define" in p.output_code for p in shown.segments[0].parts)
    assert shown.segments[0].nodes == 4
    assert segment.module.meta["stages"][0].results["forward"]


def test_who_wants_to_see_graphs_made_gets_them_made(
    counts: Counts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    x, w = inputs()
    counts.of(f, x, w)
    with mortice._base.config.override(dump=str(tmp_path / "dump")):
        assert counts.of(f, x, w) == 2
    assert len(list((tmp_path / "dump").iterdir())) == 2


def test_gradients_of_gradients_and_other_patterns(counts: Counts) -> None:
    """What the entry does not hold is traced: the joint graph of the same names."""

    def two(x: Any, w: Any) -> Any:
        h = (x @ w).tanh()
        return h.exp().sum(), (h * w.sum()).sum()

    x, w = inputs()
    mortice.compile(two, backend="inductor")(x, w)[0].backward()
    traced = counts.traced
    again = mortice.compile(two, backend="inductor")
    for pick in (lambda a, b: a, lambda a, b: b, lambda a, b: a * 2 + b):
        (found,) = mortice.autograd.grad(pick(*again(x, w)), [w])
        (wanted,) = mortice.autograd.grad(pick(*two(x, w)), [w])
        assert_same(found, wanted)
    assert counts.traced > traced
    (found,) = mortice.autograd.grad(again(x, w)[0], [w], create_graph=True)
    (twice,) = mortice.autograd.grad(found.sum(), [w])
    (first,) = mortice.autograd.grad(two(x, w)[0], [w], create_graph=True)
    (wanted,) = mortice.autograd.grad(first.sum(), [w])
    assert_same(twice, wanted)


def test_hooks_and_saved_tensor_hooks(counts: Counts) -> None:
    x, w = inputs()
    counts.of(f, x, w)
    g = mortice.compile(f, backend="inductor")
    packed: list[Any] = []

    def pack(t: Any) -> Any:
        packed.append(t.shape)
        return t

    seen: list[Any] = []
    handle = w.register_hook(lambda grad: seen.append(grad.clone()))
    with mortice.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = g(x, w)
    out.sum().backward()
    handle.remove()
    assert packed
    assert len(seen) == 1
    assert counts.given == 2
    (wanted,) = mortice.autograd.grad(f(x, w).sum(), [w])
    assert_same(seen[0], wanted)


def test_the_reason_is_logged(counts: Counts, caplog: pytest.LogCaptureFixture) -> None:
    x, w = inputs()
    with caplog.at_level("DEBUG", "mortice.cache"), config.patch(graph_cache=False):
        counts.of(f, x, w)
    assert "a graph is not kept: the option graph_cache is off" in caplog.text


def test_another_layout_of_a_found_graph(counts: Counts) -> None:
    """Strides are part of the recorder's key; sizes beyond those kept are compiled from the graph."""
    x, w = inputs()
    g = mortice.compile(f, backend="inductor", dynamic=True)
    g(x, w)
    given, built = counts.given, front._compiled
    h = mortice.compile(f, backend="inductor", dynamic=True)
    for n in (6, 7, 30):
        x = mortice.randn(n, 8)
        assert_same(h(x, w).detach(), f(x, w).detach())
    assert counts.given == given
    assert built is front._compiled


def test_a_graph_of_symbols_is_found_at_other_sizes(counts: Counts) -> None:
    def g(x: Any, w: Any) -> Any:
        return (x @ w).reshape(-1).tanh().sum()

    w = mortice.randn(8, 8).requires_grad_()
    assert counts.of(g, mortice.randn(6, 8), w, dynamic=True) == 2
    assert counts.of(g, mortice.randn(11, 8), w, dynamic=True) == 0
    assert counts.of(g, mortice.randn(1, 8), w, dynamic=True) == 2  # 1 is a number

    def h(x: Any) -> Any:
        return x.sum() if x.shape[0] == x.shape[1] else x.exp().sum()

    square, other = mortice.randn(4, 4), mortice.randn(4, 5)
    for _ in range(2):
        for x in (square, other):
            counts.of(h, x, dynamic=True)


def test_graphs_that_are_built_by_their_sizes_are_told_apart(counts: Counts) -> None:
    """Whether broadcasting, or a copy, is needed is asked when a graph is built or traced."""

    def add(x: Any, y: Any) -> Any:
        z = x.t() + y
        z[0] += x.sum()
        return z.reshape(-1).exp().sum()

    for n, m in ((4, 4), (4, 1), (5, 5), (3, 3), (3, 1), (1, 1), (4, 4)):
        for x in (mortice.randn(n, m), mortice.randn(m, n).t()):
            counts.of(add, x, mortice.randn(m, n).requires_grad_(), dynamic=True)


def test_backward_graphs_of_another_cut_are_told_apart(counts: Counts) -> None:
    """Whether the variance of one element is asked for decides what is kept for its gradient."""

    def tail(x: Any) -> Any:
        v = (x / (x.abs() + 1)).clamp(-8, 8)[1:]
        return v, v.var(0, correction=0, keepdim=True)

    for n in (2, 7, 2, 3, 107, 7):
        x = mortice.randn(n, requires_grad=True)
        found = mortice.compile(tail, dynamic=True)(x)
        for k in (0, 1):
            grads = [mortice.autograd.grad(y[k].sum(), [x], retain_graph=True)[0]
                     for y in (found, tail(x))]  # fmt: skip
            assert mortice.allclose(*grads, equal_nan=True), (n, k)


def test_plain_data_comes_back() -> None:
    value = (1, [2.5, "x", None], {"k": (True, b"y")}, mortice.float32, mortice.device("cpu"))
    assert cache.restored(marshal.loads(marshal.dumps(cache.plain(value), 2))) == value
    value = [mortice.float32, np.float64(2.5), signal.SIGTERM]
    assert cache.restored(marshal.loads(marshal.dumps(cache.plain(value), 2))) == value


def test_integers_that_no_machine_word_holds(counts: Counts) -> None:
    """Operators take them as floats do: so does a graph, compiled now or found."""

    def g(x: Any, k: int) -> Any:
        return x * (k * k) + k

    (x,) = inputs()[:1]
    for _ in range(2):
        h = mortice.compile(g, backend="inductor")
        for k in (3, *[3] * 10, 2**40, 2**31, 2**62, -(2**63) - 1, 10**18, 3):
            assert_same(h(x, k), g(x, k))
