"""Strides of tensors without elements: row-major ones count a size of 0 as 1, views follow them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import mortice
from mortice._tensor import host, indexing, make

F = mortice.nn.functional

#: (what makes it, sizes, strides): PyTorch's, of host tensors.
MADE: dict[str, tuple[Callable[[], Any], tuple[int, ...], tuple[int, ...]]] = {
    "empty": (lambda: mortice.empty(0, 3), (0, 3), (3, 1)),
    "zeros": (lambda: mortice.zeros(2, 0, 4), (2, 0, 4), (4, 4, 1)),
    "ones": (lambda: mortice.ones(2, 3, 0), (2, 3, 0), (3, 1, 1)),
    "full": (lambda: mortice.full((0, 0), 2.0), (0, 0), (1, 1)),
    "randn": (lambda: mortice.randn(3, 0), (3, 0), (1, 1)),
    "of one dimension": (lambda: mortice.empty(0), (0,), (1,)),
    "a list": (lambda: mortice.tensor([[], []]), (2, 0), (1, 1)),
    "channels last": (
        lambda: mortice.empty(0, 3, 4, 5, memory_format=mortice.channels_last),
        (0, 3, 4, 5), (60, 1, 15, 3),
    ),
    "new_zeros": (lambda: mortice.ones(1).new_zeros(2, 0, 4), (2, 0, 4), (4, 4, 1)),
    "resize_": (lambda: mortice.ones(3).resize_(0, 5), (0, 5), (5, 1)),
    "mul": (lambda: mortice.randn(0, 3) * 2, (0, 3), (3, 1)),
    "add": (lambda: mortice.empty(2, 0, 4) + mortice.empty(4), (2, 0, 4), (4, 4, 1)),
    "in place": (lambda: mortice.empty(2, 0, 4).add_(1), (2, 0, 4), (4, 4, 1)),
    "gt": (lambda: mortice.empty(0, 3) > 0, (0, 3), (3, 1)),
    "relu": (lambda: F.relu(mortice.empty(0, 3)), (0, 3), (3, 1)),
    "sum": (lambda: mortice.empty(2, 0, 4).sum(0), (0, 4), (4, 1)),
    "sum of rows": (lambda: mortice.empty(2, 0, 4).sum(-1, keepdim=True), (2, 0, 1), (1, 1, 1)),
    "softmax": (lambda: mortice.empty(2, 0, 4).softmax(-1), (2, 0, 4), (4, 4, 1)),
    "sort": (lambda: mortice.empty(0, 3).sort(0)[1], (0, 3), (3, 1)),
    "cat": (lambda: mortice.cat([mortice.empty(2, 0, 4)] * 2), (4, 0, 4), (4, 4, 1)),
    "stack": (lambda: mortice.stack([mortice.empty(2, 0, 4)] * 2), (2, 2, 0, 4), (8, 4, 4, 1)),
    "mm": (lambda: mortice.empty(0, 3) @ mortice.empty(3, 2), (0, 2), (2, 1)),
    "linear": (lambda: F.linear(mortice.empty(0, 3), mortice.ones(4, 3)), (0, 4), (4, 1)),
    "conv2d": (
        lambda: F.conv2d(mortice.empty(0, 3, 4, 4), mortice.ones(2, 3, 1, 1)),
        (0, 2, 4, 4), (32, 16, 4, 1),
    ),
    "embedding": (
        lambda: F.embedding(mortice.zeros(0, 2, dtype=mortice.int64), mortice.ones(4, 3)),
        (0, 2, 3), (6, 3, 1),
    ),
    "mask": (lambda: mortice.ones(2, 3)[mortice.ones(2, 3) > 9], (0,), (1,)),
    "index": (
        lambda: mortice.ones(2, 3)[mortice.zeros(0, dtype=mortice.int64)], (0, 3), (3, 1)
    ),
    "clone": (lambda: mortice.empty(2, 0, 4).clone(), (2, 0, 4), (4, 4, 1)),
    "to": (lambda: mortice.empty(2, 0, 4).double(), (2, 0, 4), (4, 4, 1)),
    "deepcopy": (lambda: copy.deepcopy(mortice.empty(0, 3)), (0, 3), (3, 1)),
    "pickle": (lambda: pickle.loads(pickle.dumps(mortice.empty(0, 3))), (0, 3), (3, 1)),
    "dlpack": (lambda: mortice.from_dlpack(mortice.empty(0, 3)), (0, 3), (3, 1)),
    "detach": (lambda: mortice.empty(0, 3).detach(), (0, 3), (3, 1)),
    "parameter": (lambda: mortice.nn.Parameter(mortice.empty(0, 3)), (0, 3), (3, 1)),
}  # fmt: skip

#: (sizes, a view of an empty tensor of those sizes, its sizes, its strides).
SEEN: dict[str, tuple[tuple[int, ...], Callable[[Any], Any], tuple[int, ...], tuple[int, ...]]] = {
    "t": ((0, 3), lambda x: x.t(), (3, 0), (1, 3)),
    "transpose": ((2, 0, 4), lambda x: x.transpose(0, 2), (4, 0, 2), (1, 4, 4)),
    "and back": ((2, 0, 4), lambda x: x.transpose(0, 2).transpose(0, 2), (2, 0, 4), (4, 4, 1)),
    "permute": ((2, 0, 4), lambda x: x.permute(1, 2, 0), (0, 4, 2), (4, 1, 4)),
    "transposed clone": ((2, 0, 4), lambda x: x.transpose(0, 2).clone(), (4, 0, 2), (1, 4, 4)),
    "transposed to": ((2, 0, 4), lambda x: x.transpose(0, 2).double(), (4, 0, 2), (1, 4, 4)),
    "contiguous": ((2, 0, 4), lambda x: x.transpose(0, 2).contiguous(), (4, 0, 2), (1, 4, 4)),
    "sum of two": (
        (2, 0, 4),
        lambda x: x.transpose(0, 2) + x.transpose(0, 2),
        (4, 0, 2),
        (2, 2, 1),
    ),
    "zeros_like": ((0, 3), lambda x: mortice.zeros_like(x.t()), (3, 0), (1, 3)),
    "view": ((2, 0, 4), lambda x: x.view(4, 0, 2), (4, 0, 2), (2, 2, 1)),
    "view of one": ((2, 0, 4), lambda x: x.view(0), (0,), (1,)),
    "reshape": ((3, 0), lambda x: x.reshape(0, 5), (0, 5), (5, 1)),
    "flatten": ((2, 0, 4), lambda x: x.flatten(), (0,), (1,)),
    "unsqueeze": ((2, 0, 4), lambda x: x.unsqueeze(0), (1, 2, 0, 4), (8, 4, 4, 1)),
    "unsqueeze last": ((0, 3), lambda x: x.unsqueeze(-1), (0, 3, 1), (3, 1, 1)),
    "None": ((0, 3), lambda x: x[None], (1, 0, 3), (0, 3, 1)),
    "None inside": ((0, 3), lambda x: x[:, None], (0, 1, 3), (3, 3, 1)),
    "squeeze": ((0, 1, 5), lambda x: x.squeeze(), (0, 5), (5, 1)),
    "slice": ((2, 0, 4), lambda x: x[:1], (1, 0, 4), (4, 4, 1)),
    "step": ((2, 0, 4), lambda x: x[..., ::2], (2, 0, 2), (4, 4, 2)),
    "select": ((2, 0, 4), lambda x: x[0], (0, 4), (4, 1)),
    "select last": ((2, 0, 4), lambda x: x.select(-1, 0), (2, 0), (4, 4)),
    "unbind": ((2, 0, 4), lambda x: x.unbind(-1)[0], (2, 0), (4, 4)),
    "split": ((2, 0, 4), lambda x: x.split(1)[0], (1, 0, 4), (4, 4, 1)),
    "expand": ((2, 0, 4), lambda x: x.expand(2, 2, 0, 4), (2, 2, 0, 4), (0, 4, 4, 1)),
    "as_strided": ((0, 3), lambda x: x.as_strided((0, 2), (7, 3)), (0, 2), (7, 3)),
    "view of a dtype": ((0, 3), lambda x: x.view(mortice.int32), (0, 3), (3, 1)),
}

#: Views without elements of a tensor of sizes (2, 3, 4).
PARTS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...], tuple[int, ...]]] = {
    "rows": (lambda x: x[:0], (0, 3, 4), (12, 4, 1)),
    "columns": (lambda x: x[:, :0], (2, 0, 4), (12, 4, 1)),
    "narrow": (lambda x: x.narrow(1, 3, 0), (2, 0, 4), (12, 4, 1)),
    "split": (lambda x: x.split([0, 3], 1)[0], (2, 0, 4), (12, 4, 1)),
    "transposed": (lambda x: x[:0].transpose(0, 2), (4, 3, 0), (1, 4, 12)),
    "of a transposed": (lambda x: x.transpose(0, 2)[:, :0], (4, 0, 2), (1, 4, 12)),
    "clone": (lambda x: x[:, :0].clone(), (2, 0, 4), (12, 4, 1)),
    "contiguous": (lambda x: x[:, :0].contiguous(), (2, 0, 4), (12, 4, 1)),
    "mul": (lambda x: x[:0] * 2, (0, 3, 4), (12, 4, 1)),
    "add": (lambda x: x[:, :0] + mortice.ones(4), (2, 0, 4), (4, 4, 1)),
    "view": (lambda x: x[:, :0].view(0, 5), (0, 5), (5, 1)),
    "select": (lambda x: x[:, :0][0], (0, 4), (4, 1)),
}


@pytest.mark.parametrize("name", MADE)
def test_of_what_is_made(name: str) -> None:
    make_it, sizes, strides = MADE[name]
    x = make_it()
    assert (tuple(x.shape), x.stride()) == (sizes, strides)
    assert x.is_contiguous() or name == "channels last"
    x.detach()  # now it has a storage
    assert x.stride() == strides


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("name", SEEN)
def test_of_views(name: str, stored: bool) -> None:
    shape, see, sizes, strides = SEEN[name]
    for x in (mortice.empty(*shape), mortice.empty(*shape) * 2):
        if stored:
            x.untyped_storage()
        y = see(x)
        assert (tuple(y.shape), y.stride()) == (sizes, strides)


@pytest.mark.parametrize("name", PARTS)
def test_of_parts_without_elements(name: str) -> None:
    see, sizes, strides = PARTS[name]
    y = see(mortice.arange(24.0).reshape(2, 3, 4))
    assert (tuple(y.shape), y.stride()) == (sizes, strides)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiled(backend: str) -> None:
    def f(x: Any) -> tuple[Any, ...]:
        return x.t(), x * 2, x[None], x.sum(0), x.unsqueeze(1), (x + 1).t()

    compiled = mortice.compile(f, backend=backend)
    for x in (
        mortice.empty(0, 3), mortice.randn(0, 3) * 2, mortice.ones(5, 3)[:0], mortice.empty(3, 0),
        mortice.empty(3, 0).t(),
    ):  # fmt: skip
        assert [y.stride() for y in compiled(x)] == [y.stride() for y in f(x)]
        assert compiled(x)[0].stride() == x.stride()[::-1]


def test_graphs_are_not_made_again() -> None:
    made: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        made.append(gm)
        return gm.forward

    compiled = mortice.compile(lambda x: (x.t(), x * 2), backend=backend)
    for x in (mortice.empty(0, 3), mortice.randn(0, 3) + 1, mortice.ones(5, 3)[:0]):
        assert compiled(x)[0].stride() == (1, 3)
    assert len(made) == 1


def test_tensors_with_elements_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What strides an empty tensor has is asked of empty tensors alone, and once."""
    asked: list[Any] = []
    laid = make.laid
    for room in (make, host, indexing):
        monkeypatch.setattr(room, "laid", lambda t: (asked.append(t), laid(t))[1])
    x = mortice.ones(2, 3, 4) * 2
    for _, see, _, _ in (SEEN[name] for name in ("transpose", "permute", "slice", "select")):
        see(x)
    assert x.stride() == (12, 4, 1)
    assert not asked
    x = mortice.empty(2, 0, 4) * 2
    for name in ("transpose", "permute", "slice", "select"):
        SEEN[name][1](x)
    assert len(asked) <= 2  # by the first view, and for its storage
