"""Views, in-place operators, aliases and foreign memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from comparing import aliases, same, tensors

import mortice
from mortice import errors


def check(compile: Any, f: Callable[..., Any], make: Callable[[], Any], calls: int = 3) -> Any:
    """``f`` compiled gives and leaves what eager does, every time; returns the Compiled."""
    compiled = compile(f)
    for _ in range(calls):
        mine, theirs = make(), make()
        got, want = compiled(*mine), f(*theirs)
        same(got, want)
        same(mine, theirs)
        for a, b in zip(tensors(got) + tensors(mine), tensors(want) + tensors(theirs)):
            assert a._version == b._version
        assert aliases(got, mine) == aliases(want, theirs)
    return compiled


def matrix() -> Any:
    return (mortice.arange(12, dtype=mortice.float32).reshape(3, 4).clone(),)


def two() -> Any:
    return (*matrix(), mortice.ones(3, 4))


VIEWS: dict[str, Callable[[Any], Any]] = {
    "select": lambda x: x[1],
    "select_last": lambda x: x[:, -1],
    "slice": lambda x: x[1:],
    "steps": lambda x: x[:, ::2],
    "transpose": lambda x: x.t(),
    "transpose_slice": lambda x: x.t()[1:3],
    "permute": lambda x: x.permute(1, 0),
    "view": lambda x: x.view(4, 3),
    "flatten": lambda x: x.view(-1),
    "reshape": lambda x: x.reshape(2, 6)[1],
    "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x.unsqueeze(0).squeeze(0),
    "squeeze_all": lambda x: x[None].squeeze(),
    "diagonal": lambda x: x.diagonal(),
    "unbind": lambda x: x.unbind(1)[2],
    "split": lambda x: x.split(2, 1)[1],
    "chunk": lambda x: x.chunk(2, 1)[0],
    "split_sizes": lambda x: x.split([1, 3], 1)[1],
    "detach": lambda x: x.detach(),
    "alias": lambda x: x[...],
    "expand_same": lambda x: x.expand(3, 4),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "as_strided": lambda x: x.as_strided((2, 2), (4, 1), 1),
    "unfold": lambda x: x.unfold(1, 2, 2),
    "movedim": lambda x: x.movedim(0, 1),
    "deep": lambda x: x.view(2, 6).t()[2:5][1].unsqueeze(0),
    "row_of_expanded": lambda x: x[:1].expand(3, 4)[1],
    "row_of_unfolded": lambda x: x.view(-1).unfold(0, 4, 2)[1],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("fresh", [False, True])
def test_writing_through_a_view(compile: Any, view: str, fresh: bool) -> None:
    def f(x: Any) -> Any:
        y = x * 2 if fresh else x
        v = VIEWS[view](y)
        v.add_(1)
        before = y.sum(0)
        v.mul_(3)
        return y, v, before

    check(compile, f, matrix)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("fresh", [False, True])
def test_a_view_follows_its_source(compile: Any, view: str, fresh: bool) -> None:
    def f(x: Any) -> Any:
        y = x + 1 if fresh else x
        v = VIEWS[view](y)
        y.mul_(2)
        w = v + 1
        y[0].zero_()
        return v, w

    check(compile, f, matrix)


@pytest.mark.parametrize("view", VIEWS)
def test_only_a_view_is_returned(compile: Any, view: str) -> None:
    compiled = check(compile, lambda x: VIEWS[view](x * 2), matrix)
    assert len(compiled.segments) == 1
    check(compile, lambda x: VIEWS[view](x), matrix)


IN_PLACE: dict[str, Callable[[Any, Any], Any]] = {
    "iadd": lambda x, y: x.__iadd__(y),
    "number": lambda x, y: x.mul_(3).sub_(1),
    "relu_": lambda x, y: x.relu_(),
    "clamp_": lambda x, y: x.clamp_(1, 5),
    "fill_": lambda x, y: x.fill_(7),
    "zero_": lambda x, y: x.zero_(),
    "copy_": lambda x, y: x.copy_(y),
    "copy_row": lambda x, y: x.copy_(y[0]),
    "copy_other_dtype": lambda x, y: x.copy_(y.to(mortice.float64)),
    "copy_self": lambda x, y: x.copy_(x),
    "copy_shifted": lambda x, y: x[1:].copy_(x[:-1].clone()),
    "setitem": lambda x, y: x.__setitem__(0, y[0]),
    "setitem_number": lambda x, y: x.__setitem__((slice(None), 1), 5.0),
    "setitem_list": lambda x, y: x.__setitem__(([0, 1], [1, 2]), 9.0),
    "setitem_mask": lambda x, y: x.__setitem__(x > 3, 0.0),
    "masked_fill_": lambda x, y: x.masked_fill_(x > 3, 1.0),
    "addcmul_": lambda x, y: x.addcmul_(y, y, value=2),
    "lerp_": lambda x, y: x.lerp_(y, 0.25),
    "addmm_": lambda x, y: x.addmm_(y, mortice.ones(4, 4)),
    "index_add_": lambda x, y: x.index_add_(0, mortice.tensor([0, 2]), y[:2]),
    "scatter_": lambda x, y: x.scatter_(1, mortice.tensor([[0], [1], [2]]), 4.0),
    "with_itself": lambda x, y: x.add_(x),
    "with_its_view": lambda x, y: x.add_(x[0]),
    "transposed": lambda x, y: x.t().sub_(y.t()),
    "comparison": lambda x, y: x.gt_(y),
    "cumsum_": lambda x, y: x.cumsum_(0),
    "triu_": lambda x, y: x.triu_(),
    "fill_diagonal_": lambda x, y: x.fill_diagonal_(3.0),
    "out": lambda x, y: mortice.add(y, y, out=x),
    "transpose_": lambda x, y: x.transpose_(0, 1).add_(1),
    "unsqueeze_": lambda x, y: x.unsqueeze_(0).add_(1),
    "resize_": lambda x, y: x.resize_(2, 2).add_(1),
    "set_": lambda x, y: x.set_(y).add_(1),
    "data": lambda x, y: x.data.add_(1),
    "data_set": lambda x, y: setattr(x, "data", y * 2),
    "elu_": lambda x, y: mortice.ops.aten.elu_(x - 3),
    "apply_": lambda x, y: x.apply_(lambda v: v + 1),
}


@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize("fresh", [False, True])
def test_in_place_operators(compile: Any, name: str, fresh: bool) -> None:
    def f(x: Any, y: Any) -> Any:
        a = x + 0 if fresh else x
        first = a * 2
        IN_PLACE[name](a, y)
        return first, a + 1, a

    check(compile, f, two)


def test_in_place_keeps_the_dtype(compile: Any) -> None:
    def f(x: Any, y: Any) -> Any:
        x.add_(y)
        return x

    check(compile, f, lambda: (mortice.ones(3, dtype=mortice.float16), mortice.ones(3) / 3))
    with pytest.raises(errors.DTypeError, match="can't be cast"):
        compile(f)(mortice.ones(3, dtype=mortice.int64), mortice.ones(3))
    with pytest.raises(errors.ShapeError, match="broadcast"):
        compile(f)(mortice.ones(1), mortice.ones(3))
    with pytest.raises(errors.ShapeError, match="single memory location"):
        compile(f)(mortice.ones(1).expand(3), mortice.ones(3))


OVERLAPS: dict[str, Callable[[Any], Any]] = {
    "same": lambda b: (b, b),
    "equal": lambda b: (b[2:6], b[2:6]),
    "overlapping": lambda b: (b[0:4], b[1:5]),
    "apart": lambda b: (b[0:4], b[4:8]),
    "base_and_view": lambda b: (b[0:4], b.view(2, 4)[0]),
    "detached": lambda b: (b[0:4], b[0:4].detach()),
    "data": lambda b: (b[0:4], b.data[2:6]),
    "numpy": lambda b: (b[0:4], mortice.from_numpy(b.numpy()[2:6])),
}


@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize("order", ["read_first", "write_first", "both_written", "at_once"])
def test_arguments_that_share_memory(compile: Any, overlap: str, order: str) -> None:
    def f(a: Any, b: Any) -> Any:
        made: list[Any] = []
        if order == "read_first":
            made.append(b * 2)
            a.add_(1)
        elif order == "write_first":
            a.add_(1)
            made.append(b * 2)
        elif order == "both_written":
            a.add_(1)
            b.mul_(3)
            a.sub_(b)
        else:
            a.add_(b)
        return *made, a + b, a, b

    def make() -> Any:
        buffer = mortice.arange(8, dtype=mortice.float32).clone()
        return OVERLAPS[overlap](buffer)

    compiled = compile(f)
    for _ in range(3):
        mine, theirs = make(), make()
        same(compiled(*mine), f(*theirs))
        same(mine, theirs)


def test_outputs_are_the_objects_that_eager_gives(compile: Any) -> None:
    held = mortice.ones(2)

    def f(x: Any) -> Any:
        y = x * 2
        return y, y, x, [x], y.view(-1), held, y.detach(), held.view(1, 2)

    compiled = check(compile, f, lambda: (mortice.ones(2),))
    got = compiled(mortice.ones(2))
    assert got[5] is held
    got[4].fill_(9)
    assert got[0].tolist() == [9, 9] == got[6].tolist()


def test_outputs_do_not_share_memory_that_eager_does_not_share(compile: Any) -> None:
    def f(x: Any) -> Any:
        y = mortice.empty_like(x)
        y.copy_(x)
        z = mortice.empty(2, 2)
        z.t().copy_(x)
        w = x.clone()
        return y, z, w, w.t().contiguous()

    got = check(compile, f, lambda: (mortice.arange(4.0).view(2, 2).clone(),)).fn
    x = mortice.arange(4.0).view(2, 2).clone()
    for t in compile(f)(x):
        t.fill_(-1)
    assert x.tolist() == [[0, 1], [2, 3]]
    assert got is f


def test_versions_count_as_in_eager_while_recording(compile: Any) -> None:
    def f(x: Any) -> Any:
        seen = [x._version]
        x.add_(1)
        seen.append(x._version)
        y = x * 2
        y.add_(1)
        seen.append(y._version)
        y.view(-1).mul_(2).add_(1)
        seen += [y._version, x.detach()._version, x.data._version]
        return seen, y

    check(compile, f, lambda: (mortice.ones(2),))


def test_numpy_alias_of_an_argument(compile: Any) -> None:
    x = mortice.ones(2)
    n = x.numpy()

    def f() -> Any:
        y = x * 2
        n[0] = 100
        z = x * 2
        x.add_(1)
        seen = n.tolist()
        n[1] = 7
        return y, z, x + 0, seen

    for _ in range(2):
        x.fill_(1)
        got = compile(f)()
        assert [t.tolist() for t in got[:3]] == [[2, 2], [200, 2], [101, 7]]
        assert got[3] == [101, 2]


def test_numpy_alias_larger_than_what_is_copied(compile: Any) -> None:
    n = np.ones(100_000, np.float32)
    x = mortice.from_numpy(n)

    def f() -> Any:
        y = x * 2
        n[0] = 100
        return y[:2] + 0, (x + 1)[:2] + 0

    compiled = compile(f)
    for _ in range(2):
        n[0] = 1
        y, z = compiled()
        assert (y.tolist(), z.tolist()) == ([2, 2], [101, 2])


def test_numpy_alias_made_inside(compile: Any) -> None:
    def f(x: Any) -> Any:
        y = x * 2
        n = y.numpy()
        z = y + 1
        n[0] = 50
        return z, y + 1

    compiled = compile(f)
    for _ in range(2):
        z, w = compiled(mortice.ones(2))
        assert (z.tolist(), w.tolist()) == ([3, 3], [51, 3])


def test_an_array_that_nobody_holds_is_no_alias(compile: Any) -> None:
    compiled = compile(lambda x: (x * 2).sum())
    for _ in range(2):
        x = mortice.from_numpy(np.ones(100_000, np.float32))
        assert compiled(x).item() == 200_000
    assert compiled.segments[0].nodes == 2


def test_memory_written_by_address(compile: Any) -> None:
    import ctypes

    x = mortice.ones(2)
    place = (ctypes.c_float * 2).from_address(x.data_ptr())

    def f() -> Any:
        y = x * 2
        place[0] = 10
        return y, x * 2

    y, z = compile(f)()
    assert (y.tolist(), z.tolist()) == ([2, 2], [20, 2])


def test_late_value_errors_come_before_later_effects(compile: Any) -> None:
    log: list[str] = []

    def f(x: Any, i: Any) -> Any:
        y = x.index_select(0, i)
        log.append("after")
        return y

    compiled = compile(f)
    assert compiled(mortice.ones(3), mortice.tensor([0, 2])).tolist() == [1, 1]
    for _ in range(2):
        with pytest.raises(errors.DimensionError) as caught:
            compiled(mortice.ones(3), mortice.tensor([5]))
        assert [e.lineno for e in caught.traceback if e.name == "f"] == [f.__code__.co_firstlineno]
    assert log == ["after"]


def test_integer_division_by_zero(compile: Any) -> None:
    log: list[str] = []

    def f(x: Any, y: Any) -> Any:
        z = x // y
        log.append("after")
        return z

    compiled = compile(f)
    x = mortice.tensor([4, 6])
    for y in (mortice.tensor([2, 3]), mortice.tensor([0, 1])):
        try:
            want: Any = f(x, y)
        except Exception as error:
            want = type(error)
        logged = len(log)
        log.clear()
        try:
            got: Any = compiled(x, y)
        except Exception as error:
            got = type(error)
        assert len(log) == min(logged, 1)
        log.clear()
        same(got, want)


LOOKUPS: dict[str, Callable[[Any, Any], Any]] = {
    "embedding": lambda x, i: mortice.nn.functional.embedding(i, x) * 2,
    "index": lambda x, i: x[i] * 2,
    "index_second": lambda x, i: x[:, i] * 2,
    "index_select": lambda x, i: x.index_select(0, i) * 2,
    "gather": lambda x, i: x.gather(0, i.view(-1, 1)) * 2,
    "index_add_": lambda x, i: x.index_add_(0, i, mortice.ones(i.numel(), 3)) * 2,
    "index_put_": lambda x, i: x.index_put_((i,), mortice.ones(3)) * 2,
    "scatter_": lambda x, i: x.scatter_(0, i.view(-1, 1), 5.0) * 2,
    "nll_loss": lambda x, i: mortice.nn.functional.nll_loss(x[: i.numel()], i) * 2,
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_indices_in_memory_end_no_segment(compile: Any, name: str) -> None:
    f = LOOKUPS[name]
    compiled = compile(f)
    for indices in ([0, 2], [1, 1], [2, 0]):
        x = mortice.arange(9.0).view(3, 3).clone()
        y, i = x.clone(), mortice.tensor(indices)
        same(compiled(x, i), f(y, i))
        same(x, y)
    assert len(compiled.segments) == 1
    log: list[str] = []

    def g(x: Any, i: Any) -> Any:
        y = f(x, i)
        log.append("after")
        return y

    for run in (g, compile(g)):
        with pytest.raises(errors.MorticeError):
            run(mortice.ones(3, 3), mortice.tensor([0, 7]))
    assert log == []


def test_indices_computed_inside_end_the_segment(compile: Any) -> None:
    log: list[str] = []

    def f(x: Any, i: Any) -> Any:
        y = x[i + 1]
        log.append("after")
        return y * 2

    compiled = compile(f)
    same(compiled(mortice.ones(3), mortice.tensor([0, 1])), mortice.ones(2) * 2)
    with pytest.raises(errors.DimensionError):
        compiled(mortice.ones(3), mortice.tensor([0, 2]))
    assert log == ["after"]

    def g(x: Any, i: Any) -> Any:
        i.add_(5)
        y = x[i]
        log.append("wrong")
        return y

    with pytest.raises(errors.DimensionError):
        compile(g)(mortice.ones(3), mortice.tensor([0, 1]))
    assert log == ["after"]


OUT: dict[str, Callable[[Any, Any], Any]] = {
    "fits": lambda x, o: mortice.add(x, x, out=o),
    "itself": lambda x, o: mortice.mul(x, 2, out=x),
    "view": lambda x, o: mortice.sin(x[0], out=o[1]),
    "other_dtype": lambda x, o: mortice.gt(x, 1, out=o),
    "mm": lambda x, o: mortice.mm(x, x.t(), out=o),
    "empty": lambda x, o: mortice.exp(x, out=mortice.empty(0)),
    "values": lambda x, o: mortice.max(x, 0, out=(mortice.empty(4), mortice.empty(4).long())),
}


@pytest.mark.parametrize("name", OUT)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_out(compile: Any, name: str) -> None:
    def f(x: Any, o: Any) -> Any:
        result = OUT[name](x, o)
        return result, o + 1, result is o

    compiled = check(compile, f, two)
    if name in ("fits", "itself", "view", "other_dtype"):
        assert len(compiled.segments) == 1
    with pytest.raises(errors.DTypeError, match="can't be cast"):
        compile(lambda x: mortice.add(x, 0.5, out=mortice.empty(3).long()))(mortice.ones(3))


@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize("view", VIEWS)
def test_views_of_arguments_that_begin_elsewhere(compile: Any, view: str, replay: bool) -> None:
    """The parts of a larger tensor are one recording, wherever they begin."""
    see = VIEWS[view]

    def f(x: Any) -> Any:
        y = see(x)
        y.add_(1.0)
        return y, y.detach(), y * 2

    compiled = mortice.compile(f, backend="eager") if replay else compile(f)
    for i in (1, 0, 3, 2, 3, 0):
        mine, theirs = (mortice.arange(48.0).reshape(4, 3, 4) for _ in range(2))
        got, want = compiled(mine[i]), f(theirs[i])
        same(got, want)
        same(mine, theirs)
        assert [t.storage_offset() for t in got] == [t.storage_offset() for t in want]


def test_where_a_view_begins_can_be_asked(compile: Any) -> None:
    def f(x: Any) -> Any:
        y = x[1:]
        return y, y.storage_offset(), y[0].item(), (y.view(-1)[1:] * 2).sum()

    compiled, replayed = compile(f), mortice.compile(f, backend="eager")
    for i in (1, 0, 3, 2):
        x = mortice.arange(48.0).reshape(4, 12)[i]
        same(compiled(x), f(x))
        same(replayed(x), f(x))


def test_elements_that_are_seen_as_larger_ones_begin_at_one() -> None:
    compiled = mortice.compile(lambda x: mortice.view_as_complex(x), backend="eager")
    x = mortice.arange(13.0)
    same(compiled(x[2:8].reshape(3, 2)), mortice.view_as_complex(x[2:8].reshape(3, 2)))
    with pytest.raises(ValueError, match="begins within an element|must be divisible"):
        compiled(x[1:7].reshape(3, 2))


@pytest.mark.parametrize(
    "view",
    [lambda x: x.permute(0, 3, 1, 2), lambda x: x.permute(0, 3, 1, 2)[:, ::2], lambda x: x[:1]],
)
def test_results_are_laid_out_by_memory_that_is_shared_with_numpy(compile: Any, view: Any) -> None:
    def f(x: Any) -> Any:
        return x + 1, mortice.cat([x, x], 1), x.exp()

    x = view(mortice.ones(5, 3, 2, 4))
    shared = x.numpy()
    run = compile(f)
    for _ in range(3):
        found, wanted = run(x), f(x)
        assert [t.stride() for t in found] == [t.stride() for t in wanted]
        same(found, wanted)
        shared += 1
