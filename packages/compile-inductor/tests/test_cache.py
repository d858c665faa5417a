"""Graphs on disk, second processes, no subprocess, validation, threads, layouts."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from inductor_graphs import assert_same, graph

import mortice
from mortice_inductor import cache, compile_fx, config, front
from mortice_inductor.lowering import LOWERINGS, user
from mortice_inductor.runtime import code
from mortice_llvm import blas

PROGRAM = """
import sys, time
import mortice
from mortice.fx import Graph, GraphModule
aten = mortice.ops.aten
g = Graph()
a, w = g.placeholder("a"), g.placeholder("w")
s = g.call_function(aten._softmax.default, (g.call_function(aten.mm.default, (a, w)), -1, False))
g.output((g.call_function(aten.mul.Tensor, (s, 2.0)),))
x, y = mortice.ones(3, 4), mortice.eye(4)
import mortice_inductor
from mortice_inductor import config, front
from mortice_inductor.runtime import code
start = time.perf_counter()
run = mortice_inductor.compile_fx(GraphModule({}, g), [x, y])
out = run(x, y)[0]
took = time.perf_counter() - start
assert mortice.allclose(out, mortice.full((3, 4), 0.5)), out
print("llvmlite" in sys.modules, "mortice_inductor.lowering" in sys.modules, took)
"""


def child(cache: Path, **environ: str) -> list[str]:
    env = {**os.environ, "MORTICE_CACHE_DIR": str(cache), **environ}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_second_process_neither_compiles_nor_lowers(tmp_path: Path) -> None:
    assert child(tmp_path)[:2] == ["True", "True"]
    assert child(tmp_path)[:2] == ["False", "False"]
    for entry in (tmp_path / "llvm").iterdir():
        entry.write_bytes(entry.read_bytes()[:50])
    assert child(tmp_path)[:2] == ["True", "True"]  # damaged entries are misses
    assert child(tmp_path)[:2] == ["False", "False"]


def test_no_tool_is_looked_for_and_no_process_started(tmp_path: Path) -> None:
    watch = tmp_path / "sitecustomize.py"
    watch.write_text(
        "import sys\n"
        "def hook(event, args):\n"
        "    if event in ('subprocess.Popen', 'os.system', 'os.exec', 'os.posix_spawn', 'os.fork'):\n"
        "        raise RuntimeError(f'{event} {args}')\n"
        "sys.addaudithook(hook)\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    found = child(tmp_path / "cache", PATH="/nonexistent", PYTHONPATH=path)
    assert found[:2] == ["True", "True"]


def test_a_hit_is_for_the_same_in_everything(
    monkeypatch: pytest.MonkeyPatch, fresh_cache: Path
) -> None:
    """Another option, another version, another source, a lowering of one's own: each is a miss."""
    compiled: list[Any] = []
    original = front._compiled
    monkeypatch.setattr(front, "_compiled", lambda *a: compiled.append(a) or original(*a))
    x, y = mortice.full((3, 4), 0.5), mortice.full((4,), 2.0)

    def misses() -> int:
        before = len(compiled)
        assert_same(compile_fx(graph(chain, 2), [x, y])(x, y)[0], (x * y).exp().sum(1))
        return len(compiled) - before

    assert [misses(), misses()] == [1, 0]
    with config.patch(fusion=False):
        assert [misses(), misses()] == [1, 0]
    with monkeypatch.context() as m:
        m.setattr(mortice, "__version__", "0.0.0")
        assert [misses(), misses()] == [1, 0]
    with monkeypatch.context() as m:
        m.setattr(cache, "_own_sources", b"other sources")
        assert [misses(), misses()] == [1, 0]
    with monkeypatch.context() as m:
        m.setitem(user.USER, "exp.default", LOWERINGS["exp.default"])
        assert [misses(), misses()] == [1, 1]  # what a function does cannot be written down
    assert misses() == 0
    for entry in (fresh_cache / "llvm").iterdir():
        entry.write_bytes(entry.read_bytes()[:-1] + b"?")
    assert [misses(), misses()] == [1, 0]


def test_a_plan_whose_blas_is_gone_is_a_miss(
    monkeypatch: pytest.MonkeyPatch, fresh_cache: Path
) -> None:
    monkeypatch.setattr("mortice_inductor.passes.epilogue.prefers_blas", lambda *given: "asked for")
    compiled: list[Any] = []
    original = front._compiled
    monkeypatch.setattr(front, "_compiled", lambda *a: compiled.append(a) or original(*a))
    x, y = mortice.randn(8, 4), mortice.randn(4, 8)

    def misses() -> int:
        before = len(compiled)
        run = compile_fx(graph(lambda c, a, b: c("mm.default", a, b), 2), [x, y])
        assert_same(run(x, y)[0], x @ y)
        return len(compiled) - before

    assert [misses(), misses()] == [1, 0]
    routine = blas.routine
    monkeypatch.setattr(blas, "routine", lambda n: routine(n) if n.startswith("tile_") else None)
    assert misses() == 1


def chain(c: Any, a: Any, b: Any) -> Any:
    return c("sum.dim_IntList", c("exp", c("mul.Tensor", a, b)), [1])


def test_another_size_needs_no_new_code(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compile_fx(graph(chain, 2), [mortice.randn(4, 5), mortice.randn(5)])
    monkeypatch.setattr(code, "load", None)  # nothing is compiled or loaded from here on
    with config.patch(graph_cache=False):
        for shape in ((8, 9), (1000, 70), (4, 5)):
            x, y = mortice.randn(*shape), mortice.randn(shape[1])
            assert_same(compiled(x, y)[0], (x * y).exp().sum(1))


def test_another_layout_or_dtype_is_another_program() -> None:
    compiled = compile_fx(graph(chain, 2), [mortice.randn(4, 5), mortice.randn(5)])
    x, y = mortice.randn(5, 4).t(), mortice.randn(10)[::2]
    assert_same(compiled(x, y)[0], (x * y).exp().sum(1))
    x, y = x.double(), y.double()
    assert_same(compiled(x, y)[0], (x * y).exp().sum(1))
    assert len(compiled.programs) == 3


def test_calls_in_many_threads_at_once() -> None:
    compiled = compile_fx(graph(chain, 2), [mortice.randn(200, 100), mortice.randn(100)])
    wrong: list[Any] = []

    def work(seed: int) -> None:
        x = mortice.full((200, 100), seed / 10)
        y = mortice.ones(100)
        expected = (x * y).exp().sum(1)
        for _ in range(20):
            if not mortice.allclose(compiled(x, y)[0], expected):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_validation_names_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = mortice.randn(20, 30), mortice.randn(30)
    with config.patch(validate=True):
        good = compile_fx(graph(chain, 2), [x, y])
    assert_same(good(x, y)[0], (x * y).exp().sum(1))

    def wrong(t: Any, a: Any) -> Any:
        return t.fn("sin", a)

    monkeypatch.setitem(LOWERINGS, "exp.default", wrong)
    with config.patch(validate=True):
        bad = compile_fx(graph(chain, 2), [x, y])
    with pytest.raises(
        mortice.errors.CompileError, match=r"aten\.exp\.default \(node exp, .* is off"
    ):
        bad(x, y)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "bool"])
def test_validation_of_single_numbers(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def body(c: Any, a: Any) -> Any:
        return c("amax", a), c("amin", c("bitwise_not", a) if a_is_bool else c("neg", a))

    a_is_bool = dtype == "bool"
    values = [1.0, 0.0] if dtype in ("int64", "bool") else [1.0, float("inf"), 0.0]
    x = mortice.tensor(values).to(getattr(mortice, dtype))
    with config.patch(validate=True):
        good = compile_fx(graph(body, 1), [x])
    for found, wanted in zip(good(x), graph(body, 1)(x), strict=True):
        assert_same(found, wanted)
    y = mortice.tensor([float("nan"), 1.0])
    with config.patch(validate=True):
        of_nan = compile_fx(graph(lambda c, a: c("sum", a), 1), [y])
    assert_same(of_nan(y)[0], y.sum())
    monkeypatch.setitem(LOWERINGS, "cos.default", lambda t, a: t.fn("sin", a))
    z = mortice.tensor(0.5)
    with config.patch(validate=True):
        bad = compile_fx(graph(lambda c, a: c("cos", a), 1), [z])
    with pytest.raises(
        mortice.errors.CompileError, match=r"aten\.cos\.default \(node cos in .* is off by"
    ):
        bad(z)


def test_validation_leaves_writes_and_random_numbers_as_they_are() -> None:
    def body(c: Any, a: Any) -> Any:
        c("copy_", a, c("add.Scalar", a, 1.0))
        return c("rand_like", a)

    x = mortice.zeros(10)
    with config.patch(validate=True):
        run = compile_fx(graph(body, 1), [x])
    mortice.manual_seed(4)
    (r,) = run(x)
    assert mortice.equal(x, mortice.ones(10))
    mortice.manual_seed(4)
    assert mortice.equal(r, mortice.rand(10))


def test_symbolic_sizes_and_numbers_that_are_sizes() -> None:
    def f(a: Any, n: int) -> Any:
        return a.reshape(n, -1).sum(1) * a.shape[0]

    gm = mortice.fx.make_fx(f, tracing_mode="symbolic")(mortice.randn(12), 3)
    examples = [n.meta["val"] for n in gm.graph.nodes if n.op == "placeholder"]
    compiled = compile_fx(gm, examples)
    for size, n in ((12, 3), (12, 4), (20, 5), (6, 2)):
        x = mortice.randn(size)
        assert_same(compiled(x, n)[0], f(x, n))


def test_tensors_that_the_graph_holds() -> None:
    held = mortice.arange(5.0)
    gm = mortice.fx.make_fx(lambda a: (a * held).sum())(mortice.ones(5))
    compiled = compile_fx(gm, [mortice.ones(5)])
    x = mortice.randn(5)
    assert_same(_one(compiled(x)), (x * held).sum())


def _one(out: Any) -> Any:
    return out[0] if isinstance(out, tuple) else out
