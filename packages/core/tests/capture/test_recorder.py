"""Recording without gradients: segments, what ends them, what their graphs are."""

from __future__ import annotations

import gc
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from comparing import same

import mortice
from mortice import errors
from mortice._capture.segment import Segment


def chain(x: Any, y: Any) -> Any:
    z = (x * y + 2.5).relu()
    return (z @ x.t()).sum(), z.mean(0)


def test_one_segment_equals_eager(compile: Any) -> None:
    compiled = compile(chain)
    for _ in range(3):
        x, y = mortice.randn(4, 5), mortice.randn(4, 5)
        same(compiled(x, y), chain(x, y))
    assert len(compiled.segments) == 1
    assert compiled.segments[0].hits == 3


def test_only_living_results_leave_the_graph(compile: Any) -> None:
    compiled = compile(chain)
    compiled(mortice.ones(2, 2), mortice.ones(2, 2))
    output = list(compiled.segments[0].module.graph.nodes)[-1]
    assert len(output.args[0]) == 2


def test_nodes_say_the_users_line(compile: Any) -> None:
    compiled = compile(chain)
    compiled(mortice.ones(2, 2), mortice.ones(2, 2))
    nodes = [n for n in compiled.segments[0].module.graph.nodes if n.op == "call_function"]
    assert nodes[0].meta["stack"].endswith("in chain: z = (x * y + 2.5).relu()")
    assert nodes[0].meta["val"].shape == (2, 2)


def test_metadata_is_known_before_anything_runs(compile: Any) -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        y = (x @ x.t()).sum(0).to(mortice.float64)
        seen.append((y.shape, y.dtype, y.ndim, y.device, y.stride(), y.numel(), y.is_contiguous()))
        seen.append(len(compiled.segments))
        return y

    compiled = compile(f)
    compiled(mortice.ones(3, 2))
    assert seen[0] == ((3,), mortice.float64, 1, mortice.device("cpu"), (1,), 3, True)
    assert seen[1] == 0


READERS: dict[str, Any] = {
    "item": lambda t: t.sum().item(),
    "bool": lambda t: bool(t.sum() > 0),
    "int": lambda t: int(t.sum()),
    "float": lambda t: float(t.sum()),
    "index": lambda t: [10, 20, 30, 40, 50, 60, 70][t.sum().to(mortice.int64)],
    "numpy": lambda t: t.numpy().tolist(),
    "asarray": lambda t: np.asarray(t).tolist(),
    "tolist": lambda t: t.tolist(),
    "repr": repr,
    "format": lambda t: f"{t.sum():.2f}",
    "pickle": lambda t: pickle.loads(pickle.dumps(t)).tolist(),
    "deepcopy": lambda t: __import__("copy").deepcopy(t).tolist(),
    "storage": lambda t: t.untyped_storage().tolist(),
    "data_ptr": lambda t: (t.data_ptr() != 0, t.tolist()),
    "dlpack": lambda t: np.from_dlpack(t).tolist(),
    "equal": lambda t: mortice.equal(t, t),
    "contains": lambda t: 2.0 in t,
    "nonzero": lambda t: t.nonzero().tolist(),
    "mask": lambda t: t[t > 1].tolist(),
    "data": lambda t: t.data.tolist(),
    "iter": lambda t: [x.item() for x in t],
    "as_tensor": lambda t: mortice.tensor([t[0], t[1]]).tolist(),
    "share_memory": lambda t: t.share_memory_().tolist(),
    "view_dtype": lambda t: t.view(mortice.int32).tolist(),
    "parameter": lambda t: mortice.Tensor._make_subclass(mortice.Tensor, t, False).tolist(),
}


@pytest.mark.parametrize("reader", READERS)
def test_reading_runs_what_was_recorded(compile: Any, reader: str) -> None:
    def f(x: Any) -> Any:
        y = x * 2
        y[0] += 1
        seen = READERS[reader](y)
        return y + 1, seen

    compiled = compile(f)
    for _ in range(2):
        x = mortice.tensor([0.0, 1.0, 0.5])
        same(compiled(x), f(x))


@pytest.mark.parametrize("reader", READERS)
def test_reading_sees_writes_to_arguments(compile: Any, reader: str) -> None:
    def f(x: Any) -> Any:
        x.mul_(2)
        x[0] += 1
        return READERS[reader](x)

    compiled = compile(f)
    for _ in range(2):
        x, y = mortice.tensor([0.0, 1.0, 0.5]), mortice.tensor([0.0, 1.0, 0.5])
        same(compiled(x), f(y))
        same(x, y)


def test_branch_on_a_value_makes_a_segment_for_each_side(compile: Any) -> None:
    def f(x: Any) -> Any:
        y = x * 2
        if y.sum() > 3:
            return y + 1
        return y - 1

    compiled = compile(f)
    for x in (mortice.ones(3), -mortice.ones(3), mortice.ones(3), -mortice.ones(3)):
        same(compiled(x), f(x))
    assert [s.hits for s in compiled.segments] == [4, 2, 2]


def test_a_loop_until_a_value_shares_one_segment(compile: Any) -> None:
    def f(x: Any) -> Any:
        while x.sum() > 1:
            x = x * 0.5
        return x

    compiled = compile(f)
    for start in (2.0, 100.0, 1000.0):
        x = mortice.full((4,), start)
        same(compiled(x), f(x))
    assert len(compiled.segments) == 2  # the first test alone, then half and test


def test_shape_errors_rise_on_the_users_line(compile: Any) -> None:
    def f(x: Any, y: Any) -> Any:
        try:
            return x @ y
        except errors.ShapeError as error:
            return str(error)

    compiled = compile(f)
    x, y = mortice.ones(2, 3), mortice.ones(4, 5)
    assert compiled(x, y) == f(x, y)
    assert compiled.segments == []

    def g(x: Any, y: Any) -> Any:
        z = x + 1
        return z + y

    with pytest.raises(errors.ShapeError) as caught:
        compile(g)(x, y)
    lines = [entry.lineno for entry in caught.traceback if entry.name == "g"]
    assert lines == [g.__code__.co_firstlineno + 1]


def test_numbers_are_inputs_of_the_graph(compile: Any) -> None:
    compiled = compile(lambda x, n: x * n + n)
    x = mortice.ones(3)
    for n in range(2, 20):
        same(compiled(x, n), x * n + n)
    assert len(compiled.segments) == 1
    for n in range(20):
        same(compiled(x, n + 0.5), x * (n + 0.5) + (n + 0.5))
    assert len(compiled.segments) == 2
    same(compiled(x, True), x * True + True)


def test_a_changing_alpha_compiles_once(compile: Any) -> None:
    compiled = compile(lambda x, lr: x.add(x, alpha=-lr))
    x = mortice.ones(3)
    for i in range(10):
        lr = 0.1 / (i + 1)
        same(compiled(x, lr), x.add(x, alpha=-lr))
    assert len(compiled.segments) == 1


def test_numbers_of_other_kinds_and_zeros_with_signs(compile: Any) -> None:
    compiled = compile(lambda x, n: x / n)
    x = mortice.tensor([1.0, -1.0])
    for n in (0.0, -0.0, 1, 1.0, 1j, float("nan")):
        got, want = compiled(x, n), x / n
        assert got.dtype == want.dtype
        assert str(got) == str(want)


def test_strings_and_flags_are_part_of_the_recording(compile: Any) -> None:
    compiled = compile(lambda x, mode: mortice.div(x, 2, rounding_mode=mode))
    x = mortice.tensor([3.0, -3.0])
    for mode in (None, "floor", "trunc", "floor", None):
        same(compiled(x, mode), mortice.div(x, 2, rounding_mode=mode))
    assert len(compiled.segments) == 3


def test_factories_are_recorded(compile: Any) -> None:
    def f(x: Any) -> Any:
        a = mortice.arange(3)
        b = mortice.zeros(3, dtype=mortice.float64)
        c = mortice.full_like(x, 3)
        return x + a + b + c + mortice.ones(3) + mortice.eye(3).sum(0)

    compiled = compile(f)
    for _ in range(2):
        x = mortice.rand(3)
        same(compiled(x), f(x))
    assert len(compiled.segments) == 1


def test_structures_in_and_out_are_the_functions_own(compile: Any) -> None:
    def f(tree: Any) -> Any:
        return {"sum": tree["a"][0] + tree["b"], "same": tree["b"], "n": 3, "list": [tree["a"][0]]}

    compiled = compile(f)
    tree = {"a": [mortice.ones(2)], "b": mortice.ones(2)}
    result = compiled(tree)
    same(result["sum"], mortice.full((2,), 2.0))
    assert result["same"] is tree["b"]
    assert result["list"][0] is tree["a"][0]


def test_an_exception_leaves_what_was_done_before_it(compile: Any) -> None:
    kept: list[Any] = []

    def f(x: Any) -> Any:
        x.add_(1)
        kept.append(x * 2)
        raise KeyError("stop")

    compiled = compile(f)
    x = mortice.zeros(2)
    with pytest.raises(KeyError):
        compiled(x)
    assert x.tolist() == [1, 1]
    assert kept[0].tolist() == [2, 2]


def test_a_weak_reference_dies_with_its_tensor(compile: Any) -> None:
    import weakref

    log: list[Any] = []

    def f(x: Any) -> Any:
        y = x * 2
        r = weakref.ref(y, lambda _: log.append("dead"))
        log.append(r() is y)
        y = y + 1
        log.append(r() is None)
        return y

    compile(f)(mortice.ones(2))
    assert log == [True, "dead", True]


def test_a_backend_that_fails_is_reported_and_what_needed_it_too(compile: Any) -> None:
    kept: list[Any] = []
    fail = [True]

    def compile_segment(module: Any, inputs: Any, settings: Any) -> Any:
        if fail[0]:
            raise errors.BackendFailed("no luck")
        return lambda *inputs: (inputs[0] + 1,)

    def f(x: Any) -> Any:
        y = x + 1
        kept.append(y)
        return y

    compiled = compile(f, compile_segment=compile_segment)
    with pytest.raises(errors.BackendFailed, match="no luck"):
        compiled(mortice.ones(2))
    for read in (lambda: kept[0].tolist(), lambda: kept[0] + 1, lambda: kept[0].numpy()):
        with pytest.raises(errors.InvalidState, match="no luck"):
            read()
    fail[0] = False
    assert compiled(mortice.ones(2)).tolist() == [2, 2]


def test_nested_compiled_functions_are_one_recording(compile: Any) -> None:
    inner = compile(lambda x: x * 2)
    outer = compile(lambda x: inner(x) + 1)
    assert outer(mortice.ones(2)).tolist() == [3, 3]
    assert len(outer.segments) == 1
    assert inner.segments == []


def test_recursion(compile: Any) -> None:
    def f(x: Any, n: int) -> Any:
        return x if n == 0 else compiled(x * 2, n - 1)

    compiled = compile(f)
    assert compiled(mortice.ones(1), 5).tolist() == [32]
    assert len(compiled.segments) == 1


def test_the_limit_counts_per_place_and_is_said_once(compile: Any) -> None:
    def f(x: Any, n: int) -> Any:
        for _ in range(n):
            x = x * 2
        return x

    compiled = compile(f, recompile_limit=3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(1, 8):
            same(compiled(mortice.ones(2), n), f(mortice.ones(2), n))
    said = [w for w in caught if "recompile_limit" in str(w.message)]
    assert len(said) == 1
    assert "test_recorder.py" in str(said[0].message)
    assert sum(s.compiled for s in compiled.segments) == 3


def test_interrupted_while_it_runs(compile: Any) -> None:
    interrupt = [True]

    def compile_segment(module: Any, inputs: Any, settings: Any) -> Any:
        def run(x: Any, n: Any) -> Any:
            if interrupt[0]:
                raise KeyboardInterrupt
            return (x + 1,)

        return run

    compiled = compile(lambda x: x + 1, compile_segment=compile_segment)
    x = mortice.ones(2)
    with pytest.raises(KeyboardInterrupt):
        compiled(x)
    interrupt[0] = False
    assert compiled(x).tolist() == [2, 2]
    assert (x + 1).tolist() == [2, 2]


def test_interrupted_between_operators(compile: Any) -> None:
    stop = [True]

    def f(x: Any) -> Any:
        x.add_(1)
        if stop[0]:
            raise KeyboardInterrupt
        return x * 2

    compiled = compile(f)
    x = mortice.zeros(2)
    with pytest.raises(KeyboardInterrupt):
        compiled(x)
    assert x.tolist() == [1, 1]
    stop[0] = False
    assert compiled(x).tolist() == [4, 4]


def test_generators_made_inside_run_on_outside(compile: Any) -> None:
    def f(x: Any) -> Any:
        def numbers() -> Any:
            y = x
            for _ in range(3):
                y = y * 2
                yield y

        made = numbers()
        first = next(made)
        return first, made

    first, rest = compile(f)(mortice.ones(1))
    assert first.tolist() == [2]
    assert [t.tolist() for t in rest] == [[4], [8]]


BREAKS: dict[str, Any] = {
    "item": lambda x: x * x.sum().item(),
    "branch": lambda x: x * 2 if x.sum() > 0 else x,
    "argument": lambda x: x * x[0].item(),
    "numpy": lambda x: (x * 2).numpy(),
    "print": lambda x: repr(x * 2),
    "nonzero": lambda x: (x * 2).nonzero(),
    "mask": lambda x: x[x > 1],
    "tolist": lambda x: (x * 2).tolist(),
    "equal": lambda x: mortice.equal(x, x),
}


@pytest.mark.parametrize("name", BREAKS)
def test_fullgraph_refuses_with_line_and_hint(compile: Any, name: str) -> None:
    f = BREAKS[name]
    compiled = compile(f, fullgraph=True)
    with pytest.raises(errors.GraphBreak, match=r"fullgraph.*test_recorder\.py:\d+, in <lambda>"):
        compiled(mortice.ones(3))
    assert compile(f)(mortice.ones(3)) is not None


def test_fullgraph_lets_whole_functions_pass(compile: Any) -> None:
    def f(x: Any) -> Any:
        x.add_(1)
        y = x[mortice.tensor([0, 1])] * 2
        return y.sum(), x.shape, y.requires_grad

    compiled = compile(f, fullgraph=True)
    for _ in range(2):
        compiled(mortice.ones(3))
    compiled = compile(lambda x: (x * 2).sum(), fullgraph=True)
    x = mortice.ones(3, requires_grad=True)
    compiled(x).backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_finalizers_run_when_eager_runs_them(compile: Any) -> None:
    log: list[str] = []

    class Noisy:
        def __del__(self) -> None:
            log.append("gone")

    def f(x: Any) -> Any:
        thing = Noisy()
        y = x * 2
        log.append("made")
        del thing
        y = y + 1
        log.append("end")
        return y

    compiled = compile(f)
    for _ in range(2):
        compiled(mortice.ones(2))
    assert log == ["made", "gone", "end"] * 2


def test_warnings_and_logging_know_their_lines(compile: Any) -> None:
    import logging

    lines: list[int] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.lineno)

    logger = logging.getLogger("capture_tests")
    handler = Keep()
    logger.addHandler(handler)

    def f(x: Any) -> Any:
        y = x * 2
        warnings.warn("once", UserWarning, stacklevel=1)
        logger.warning("here")
        return y

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        compiled = compile(f)
        for _ in range(3):
            compiled(mortice.ones(2))
    logger.removeHandler(handler)
    first = f.__code__.co_firstlineno
    assert [w.lineno for w in caught] == [first + 2]
    assert lines == [first + 3] * 3


def test_a_generator_function_runs_as_ever(compile: Any) -> None:
    def numbers(x: Any) -> Any:
        for _ in range(2):
            x = x * 2
            yield x

    compiled = compile(numbers)
    assert [t.tolist() for t in compiled(mortice.ones(1))] == [[2], [4]]
    assert compiled.segments == []


def test_a_tensor_kept_from_an_earlier_call(compile: Any) -> None:
    kept: list[Any] = []

    def f(x: Any) -> Any:
        y = x * 2
        kept.append(y)
        return (kept[0] + y).sum() if len(kept) > 1 else y.sum()

    compiled = compile(f)
    assert [compiled(mortice.full((2,), float(i))).item() for i in (1, 2, 3)] == [4, 12, 16]


def test_interrupted_writes_leave_no_pending_tensor(compile: Any) -> None:
    def compile_segment(module: Any, inputs: Any, settings: Any) -> Any:
        def run(*inputs: Any) -> Any:
            raise KeyboardInterrupt

        return run

    kept: list[Any] = []

    def f(x: Any) -> Any:
        x.add_(1)
        kept.append(x * 2)
        return x

    x = mortice.ones(2)
    with pytest.raises(KeyboardInterrupt):
        compile(f, compile_segment=compile_segment)(x)
    assert (x * 2).tolist() == [2, 2]  # as when an operator is interrupted: nothing was written
    with pytest.raises(errors.InvalidState, match="KeyboardInterrupt"):
        kept[0].tolist()


def test_what_never_repeats_is_not_kept(compile: Any, monkeypatch: Any) -> None:
    from mortice._capture import compiled as module

    monkeypatch.setattr(module, "NATIVE_RECORDER", [])  # it has the limit from when it was made
    monkeypatch.setattr(module, "UNCOMPILED", 3)
    monkeypatch.setattr(module, "GIVEN_UP_AFTER", 1000)
    monkeypatch.setattr(module, "TREE_STEPS", 20)
    compiled = compile(lambda x, n: mortice.nn.functional.pad(x, (n, 0)) * 2, recompile_limit=2)
    for n in (1, 2):
        compiled(mortice.ones(2), n)
    with pytest.warns(UserWarning, match="recompile_limit"):
        compiled(mortice.ones(2), 3)
    for n in range(4, 40):
        compiled(mortice.ones(2), n)
    same(compiled(mortice.ones(2), 50), compiled.fn(mortice.ones(2), 50))
    assert len(compiled.segments) == 5
    assert sum(tree.size for tree in compiled._trees) <= 20


@pytest.mark.filterwarnings("ignore:.*recompile_limit")
def test_graphs_that_never_repeat_are_not_held(compile: Any, monkeypatch: Any) -> None:
    from mortice._capture import compiled as module

    monkeypatch.setattr(module, "NATIVE_RECORDER", [])  # it has the limit from when it was made
    monkeypatch.setattr(module, "UNCOMPILED", 3)
    monkeypatch.setattr(module, "GIVEN_UP_AFTER", 1000)
    monkeypatch.setattr(module, "TREE_STEPS", 2000)
    compiled = compile(lambda x, n: mortice.nn.functional.pad(x, (n, 0)) * 2, recompile_limit=2)
    gc.collect()
    before = sum(type(o) is Segment for o in gc.get_objects())
    for n in range(1, 80):
        same(compiled(mortice.ones(2), n), compiled.fn(mortice.ones(2), n))
    gc.collect()
    held = sum(type(o) is Segment for o in gc.get_objects()) - before
    assert held <= 5 + 2 * 2000 // module.UNKEPT  # the tree in use, and one that is given up


def test_a_result_comes_where_an_input_was_expected(compile: Any) -> None:
    def f(x: Any, y: Any, own: bool) -> Any:
        z = x + 1
        read = (z if own else y).sum().item()
        return read, mortice.stack([x, z])

    compiled = compile(f)
    x, y = mortice.ones(2), mortice.zeros(2)
    for own in (False, True, True, False):
        same(compiled(x, y, own), f(x, y, own))


@pytest.mark.parametrize("runs", [False, True])
def test_the_default_dtype_is_that_of_the_call(runs: bool) -> None:
    """Of what factories make, also where the same operators were recorded with another."""
    seen: list[int] = []

    def f(x: Any) -> Any:
        if runs:
            seen.append(1)
        return mortice.ones(3) + mortice.arange(3) / 2, x * 2

    c = mortice.compile(f, backend="eager")
    x = mortice.ones(2)
    before = mortice.get_default_dtype()
    try:
        for dtype in (mortice.float32, mortice.float64, mortice.float32):
            mortice.set_default_dtype(dtype)
            for _ in range(3):
                assert [t.dtype for t in c(x)] == [dtype, mortice.float32]
    finally:
        mortice.set_default_dtype(before)
