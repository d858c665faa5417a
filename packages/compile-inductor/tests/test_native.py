"""Compiled graphs as one native function."""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from inductor_graphs import assert_same, graph
from tests.frames import frames

import mortice
from mortice_inductor import compile_fx
from mortice_inductor.front import build_program
from mortice_inductor.runtime import heap
from mortice_inductor.runtime.program import Program


def _compiled(body: Any, *inputs: Any) -> Any:
    program = compile_fx(graph(body, len(inputs)), list(inputs)).last
    assert isinstance(program, Program)
    assert program.fast is not program, "it stayed Python's"
    return program


def _chain(call: Any, x: Any, y: Any) -> Any:
    a = call("add.Tensor", call("mul.Tensor", x, y), x)
    return call("tanh", a), call("sum.dim_IntList", a, [1])


@pytest.mark.parametrize("shape", [(2, 3), (1, 1), (0, 4), (300, 200)])
@pytest.mark.parametrize("dtype", [mortice.float32, mortice.float64, mortice.int32])
def test_gives_what_the_program_gives(shape: tuple[int, ...], dtype: Any) -> None:
    def body(call: Any, x: Any, y: Any) -> Any:
        return call("add.Tensor", call("mul.Tensor", x, y), x), call("neg", y)

    x, y = ((mortice.randn(*shape) * 9).to(dtype) for _ in range(2))
    program = _compiled(body, x, y)
    for found, expected in zip(program.fast(x, y), program(x, y), strict=True):
        assert_same(found, expected)
        assert found.stride() == expected.stride()
        assert found._k == expected._k
        assert not found.requires_grad
        assert found.is_leaf
        found += 1  # its memory is its own
        assert found._version == 1


def test_several_outputs_inputs_returned_and_numbers() -> None:
    def body(call: Any, x: Any, y: Any) -> Any:
        return (*_chain(call, x, y), x, 3)

    x, y = mortice.randn(4, 5), mortice.randn(4, 5)
    program = _compiled(body, x, y)
    found, expected = program.fast(x, y), program(x, y)
    assert found[2] is x
    assert found[3] == 3
    for a, b in zip(found[:2], expected[:2], strict=True):
        assert_same(a, b)


def test_numbers_are_read_at_each_call() -> None:
    x = mortice.randn(6)
    program = _compiled(lambda call, t, s: call("mul.Tensor", t, s), x, 2.0)
    for scale in (2.0, -0.5, float("inf")):
        assert_same(program.fast(x, scale)[0], x * scale)
    assert_same(program.fast(x, 3)[0], x * 3)  # an int: the program takes it


def test_writes_back_to_an_input() -> None:
    def body(call: Any, x: Any, y: Any) -> Any:
        return call("copy_", x, call("add.Tensor", x, y)), call("exp", y)

    x, y = mortice.ones(5), mortice.ones(5)
    program = _compiled(body, x, y)
    program.fast(x, y)
    assert mortice.equal(x, mortice.full((5,), 2.0))


def test_parameters_and_views_are_tensors_too() -> None:
    x, y = mortice.nn.Parameter(mortice.randn(4, 5)), mortice.randn(9, 5)[2:6]
    program = _compiled(_chain, x.detach(), y)
    with mortice.no_grad():
        for found, expected in zip(program.fast(x, y), program(x, y), strict=True):
            assert_same(found, expected)


@pytest.mark.parametrize("wrong", [(), (1,), (None, None), ("a", "b")])
def test_what_is_no_tensor_gets_the_programs_error(wrong: tuple[Any, ...]) -> None:
    x, y = mortice.randn(4, 5), mortice.randn(4, 5)
    program = _compiled(_chain, x, y)
    with pytest.raises(Exception) as native:
        program.fast(*wrong)
    with pytest.raises(type(native.value)):
        program(*wrong)


def test_outputs_are_freed_and_the_program_too() -> None:
    x, y = mortice.randn(4, 5), mortice.randn(4, 5)
    program = _compiled(_chain, x, y)
    results = program.fast(x, y)
    gone = weakref.ref(results[0])
    arrays = weakref.ref(results[0]._a)
    del results
    assert gone() is None
    assert arrays() is None
    whole = weakref.ref(program)
    fast = program.fast
    del program
    gc.collect()
    fast(x, y)
    del fast
    gc.collect()
    assert whole() is None


def _in_threads(run: Callable[[int], None]) -> None:
    """``run(0)`` to ``run(3)``, each in a thread; raises what one of them does."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))


def test_calls_from_several_threads_overlap() -> None:
    x = mortice.randn(400, 500)
    program = _compiled(_chain, x, x)
    expected = program(x, x)
    inputs = [x * k for k in range(4)]
    wrong: list[int] = []

    def run(k: int) -> None:
        wanted = program(inputs[k], inputs[k])
        for _ in range(20):
            found = program.fast(inputs[k], inputs[k])
            if not all(mortice.equal(a, b) for a, b in zip(found, wanted, strict=True)):
                wrong.append(k)

    _in_threads(run)
    assert not wrong
    assert len(expected) == 2


def _products(call: Any, x: Any, y: Any) -> Any:
    """With 1.5 MiB and more between its kernels."""
    a = call("tanh", call("mm", x, y))
    return call("sum.dim_IntList", call("mm", a, y), [1]), call("mm", call("exp", a), x)


# It is address space of which pages are taken as they are touched, asked for by Linux's mmap(2) alone.
common = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="elsewhere each graph has memory of its own"
)


@common
def test_graphs_have_memory_in_common() -> None:
    x, y = mortice.randn(600, 600) / 30, mortice.randn(600, 600) / 30
    u, v = mortice.randn(700, 700) / 30, mortice.randn(700, 700) / 30
    small, large = _compiled(_products, x, y), _compiled(_products, u, v)
    assert small.plan.arena > heap.LITTLE
    states = [one.new_state(shared=True) for one in (small, large)]
    assert all(s.busy is heap.COMMON.busy for s in states)
    places = [{s.words[slot] for slot in _slots(one)} for one, s in zip((small, large), states)]
    assert min(places[0]) == min(places[1])
    for program, given in ((small, (x, y)), (large, (u, v)), (small, (y, x))):
        for found, expected in zip(program.fast(*given), program(*given), strict=True):
            assert_same(found, expected)


def _slots(program: Program) -> list[int]:
    """Words with the addresses of what lies in the arena."""
    offsets = dict(program.plan.offsets)
    return [row[1] for row in program.plan.slots if row[0] in offsets]


@common
def test_who_finds_the_memory_in_use_has_some_of_his_own() -> None:
    """Results are right whoever computes meanwhile; a flag that nobody takes back costs time alone."""
    x, y = mortice.randn(600, 600) / 30, mortice.randn(600, 600) / 30
    program = _compiled(_products, x, y)
    expected = program(x, y)
    place = heap.COMMON.room(program.plan.arena)
    assert place is not None
    before = ctypes.string_at(place, 4096)
    heap.COMMON.busy.value = 1
    try:
        ctypes.memset(place, 7, 4096)
        for found, want in zip(program.fast(x, y), expected, strict=True):
            assert_same(found, want)
        assert ctypes.string_at(place, 4096) == b"\7" * 4096
    finally:
        heap.COMMON.busy.value = 0
        ctypes.memmove(place, before, 4096)
    program.fast(x, y)
    assert heap.COMMON.busy.value == 0
    assert ctypes.string_at(place, 4096) != b"\7" * 4096


@common
def test_two_graphs_in_several_threads() -> None:
    pairs = [(mortice.randn(n, n) / 30, mortice.randn(n, n) / 30) for n in (600, 650)]
    programs = [_compiled(_products, *pair) for pair in pairs]
    wanted = [program(*pair) for program, pair in zip(programs, pairs)]
    wrong: list[int] = []

    def run(k: int) -> None:
        for turn in range(12):
            n = (k + turn) % 2
            found = programs[n].fast(*pairs[n])
            if not all(mortice.equal(a, b) for a, b in zip(found, wanted[n], strict=True)):
                wrong.append(n)

    _in_threads(run)
    assert not wrong


def test_no_python_runs_in_a_call() -> None:
    x, y = mortice.randn(4, 5), mortice.randn(4, 5)
    program = _compiled(_chain, x, y)
    events: list[str] = []
    fast = program.fast
    gc.collect()
    gc.disable()  # a collection would call what others have hung on it
    sys.setprofile(lambda frame, event, arg: events.append(event))
    try:
        fast(x, y)
    finally:
        sys.setprofile(None)
        gc.enable()
    assert events == ["c_call", "c_return", "c_call"]  # fast itself; setprofile


def _scaled(t: Any, s: float) -> Any:
    return (t * s + 0.5) * s


@pytest.mark.parametrize(
    ("scaled", "graphs"),
    [
        (_scaled, 1),
        (lambda t, s: mortice.lerp(t * t, t, s), 1),
        # The first exponent is part of its graph.
        (lambda t, s: t / (t.abs().sum(1, keepdim=True) + 1).pow(s + 0.1), 2),
    ],
    ids=["scaled", "computed", "kept"],
)
def test_other_numbers_make_no_other_program_of_training(scaled: Any, graphs: int) -> None:
    made: list[str] = []
    x = mortice.randn(4, 5, requires_grad=True)
    y = x.detach().clone().requires_grad_(True)
    compiled = mortice.compile(scaled)
    with pytest.MonkeyPatch.context() as patch:

        def build(*given: Any) -> Any:
            made.append("program")
            return build_program(*given)

        patch.setattr("mortice_inductor.front.build_program", build)
        for n in range(12):
            s = 1.25 + n / 8
            for f, leaf in ((compiled, x), (scaled, y)):
                leaf.grad = None
                f(leaf, s).sum().backward()
            assert_same(x.grad, y.grad)
    assert len(made) <= 2 * graphs, "forward, backward"


def test_few_python_functions_run_in_a_replay_of_training_with_numbers() -> None:
    x = mortice.randn(4, 5, requires_grad=True)
    compiled = mortice.compile(_scaled)
    for _ in range(60):
        compiled(x, 1.5)
    # Beside what looks at a view once some view's base has been written to in this process.
    names = [n for n in frames(lambda: compiled(x, 2.5)) if n != "_edge"]
    assert len(names) <= 2, names  # __call__, the compiled forward


def _heads(x: Any, w: Any, s: Any) -> Any:
    """``q`` is an operand of products, which want it row-major, and elementwise on what is not."""
    q = (x @ w).view(9, 8, 8).transpose(0, 1).view(2, 4, 9, 8) * s
    q = q.view(8, 9, 8)
    return (q @ q.transpose(1, 2)).softmax(-1) @ q


@pytest.mark.parametrize("scale", [0.35, mortice.full((), 0.35)])
def test_a_backward_pass_reads_what_is_kept_as_it_lies(scale: Any) -> None:
    weight = mortice.linspace(0, 1, 576).view(8, 9, 8)
    given = [mortice.randn(9, 32), mortice.randn(32, 64)]
    compiled = mortice.compile(_heads)
    found = []
    for f in (_heads, compiled, compiled):
        leaves = [x.clone().requires_grad_() for x in given]
        (f(*leaves, scale) * weight).sum().backward()
        found.append([x.grad for x in leaves])
    for grads in found[1:]:
        assert all(mortice.allclose(a, b, 1e-4, 1e-5) for a, b in zip(grads, found[0], strict=True))


def test_what_hooks_unpack_may_lie_otherwise() -> None:
    x, w = mortice.randn(9, 32).requires_grad_(), mortice.randn(64, 32).t().requires_grad_()
    f = mortice.compile(lambda x, w: ((x @ w).tanh() @ w.t()).sin().sum())
    plain = mortice.autograd.grad(f(x, w), (x, w))
    hooks = mortice.autograd.graph.saved_tensors_hooks(
        lambda t: t.detach().numpy().copy(order="C"), mortice.from_numpy
    )
    with hooks:
        y = f(x, w)
    for a, b in zip(mortice.autograd.grad(y, (x, w)), plain, strict=True):
        assert mortice.allclose(a, b, 1e-3, 1e-3)
