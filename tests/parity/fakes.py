"""Fake tensors against real ones: the same call on both must give the same metadata.

Compared are structure, dtype, device, sizes, strides (where they matter), offsets, and which results
share a storage with which arguments. With symbolic sizes, the expressions must have the values of
the real sizes. Both calls are mortice's own; torch's part is the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mortice
from mortice.errors import DataDependentOutput, FakeTensorError, GuardOnDataDependent

#: OpInfos and overloads whose results, or whose checks, depend on values: on fakes they may refuse.
DATA_DEPENDENT = frozenset(
    (
        "allclose", "combinations", "equal", "item", "masked_select", "nonzero", "argwhere", "unique",
        "unique_consecutive", "bincount", "histogram", "histogramdd", "repeat_interleave",
        "_local_scalar_dense.default", "equal.default", "nn.functional.one_hot",
        "index_put", "masked_scatter",  # the gradients: how many elements a mask chose
        "matrix_exp",  # the gradient: how often the exponent was halved
        "scatter",  # a complex number given as a tensor
        "narrow", "tensor_split",  # where to cut is given as a tensor
        "normal",  # 0-d tensors that are taken for numbers
        "nn.functional.ctc_loss",  # lengths given as a tensor
    )
)  # fmt: skip


def tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, mortice.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item)


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """``change`` of each tensor in nested containers, which keep their types."""
    if isinstance(value, mortice.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and type(value) is not mortice.Size:
        items = [mapped(item, change) for item in value]
        if hasattr(value, "_fields"):
            return type(value)(*items)
        return items if isinstance(value, list) else tuple(items)
    return value


def gradients(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call's first derivatives, and those of them where they have some."""

    def run(*args: Any, **kwargs: Any) -> Any:
        leaves = [t for t in tensors([args, kwargs]) if t.requires_grad]
        first = _grads([t for t in tensors(call(*args, **kwargs)) if t.requires_grad], leaves)
        return first, _grads([g for g in first if g is not None and g.requires_grad], leaves)

    return run


def _grads(outputs: list[Any], leaves: list[Any]) -> Any:
    if not outputs or not leaves:
        return []
    ones = [mortice.ones_like(t) for t in outputs]
    return mortice.autograd.grad(outputs, leaves, ones, allow_unused=True, create_graph=True)


def spaced(t: Any) -> Any:
    """The same elements with gaps between them."""
    if not t.ndim or not t.numel():
        return t
    wide = mortice.zeros((*t.shape[:-1], t.shape[-1] * 2), dtype=t.dtype)
    return wide[..., ::2].copy_(t)


def turned(t: Any) -> Any:
    """The same elements with the first dimension innermost in memory."""
    if t.ndim < 2:
        return t
    order = tuple(reversed(range(t.ndim)))
    return t.permute(order).contiguous().permute(order)


LAYOUTS = {"": lambda t: t, "spaced: ": spaced, "turned: ": turned}


def difference(
    call: Callable[..., Any], args: Any, kwargs: Any, name: str, *, symbolic: bool
) -> str | None:
    """None, or what differs between the call on real tensors and on their fakes, in any layout."""
    for label, layout in LAYOUTS.items():

        def laid(t: Any, layout: Any = layout) -> Any:
            with mortice.no_grad():
                return layout(t.detach().clone()).detach().requires_grad_(t.requires_grad)

        given = (args, kwargs) if not label else (mapped(args, laid), mapped(kwargs, laid))
        message = _difference(call, *given, name, symbolic=symbolic)
        if message is not None:
            return label + message
    return None


def _difference(
    call: Callable[..., Any], args: Any, kwargs: Any, name: str, *, symbolic: bool
) -> str | None:
    env = mortice.fake.ShapeEnv()
    mode = mortice.fake.FakeTensorMode(env)

    def fake(t: Any) -> Any:
        return mode.from_tensor(t, range(t.ndim) if symbolic else ())

    fake_args, fake_kwargs = mapped(args, fake), mapped(kwargs, fake)
    try:  # the fakes are made: the call may write to its arguments
        real = call(*args, **kwargs)
    except Exception:  # nothing to compare; forward and grad tell of real calls that fail
        return None
    try:
        with mode:
            found = call(*fake_args, **fake_kwargs)
    except (DataDependentOutput, FakeTensorError, GuardOnDataDependent):
        if name in DATA_DEPENDENT:
            return None
        raise
    compare = Compare(list(tensors([args, kwargs])), list(tensors([fake_args, fake_kwargs])))
    message = compare(found, real)
    if message is None:  # what was written to: resized, perhaps
        pairs = zip(compare.fake_arguments, compare.real_arguments, strict=True)
        message = next((m for m in (compare(f, r, "an argument: ") for f, r in pairs) if m), None)
    if message is None:
        bad = [str(g) for g in env.guards if not g.holds(env.hints)]
        message = f"guard {bad[0]} does not hold of the sizes at hand" if bad else None
    return message


class Compare:
    """``Compare(real arguments, fake arguments)(fake result, real result)``."""

    def __init__(self, real: list[Any], fake: list[Any]) -> None:
        self.real_arguments, self.fake_arguments = real, fake
        self.real_storages = [t.untyped_storage() for t in real]
        self.fake_storages = [t.untyped_storage() for t in fake]

    def __call__(self, found: Any, real: Any, where: str = "") -> str | None:
        if isinstance(real, mortice.Tensor):
            if not mortice.fake.is_fake(found):
                return f"{where}a {type(found).__name__}, not a fake tensor"
            return self._tensor(found, real, where)
        if isinstance(real, dict):
            found, real = list(found.values()), list(real.values())
        if isinstance(real, (list, tuple)):
            if type(found) is not type(real) or len(found) != len(real):
                return f"{where}{type(found).__name__} of {len(found)}, expected {len(real)}"
            messages = (self(f, r, f"{where}{i}: ") for i, (f, r) in enumerate(zip(found, real)))
            return next((m for m in messages if m is not None), None)
        if getattr(found, "_is_symbolic", False):
            hint = found.hint
            return None if hint is None or hint == real else f"{where}{hint}, expected {real}"
        same = type(found) is type(real) and (found == real or found != found)
        return None if same else f"{where}{found!r}, expected {real!r}"

    def _tensor(self, found: Any, real: Any, where: str) -> str | None:
        if found.dtype != real.dtype or found.device != real.device:
            return f"{where}{found.dtype} on {found.device}, expected {real.dtype} on {real.device}"
        if len(found.shape) != len(real.shape):
            return f"{where}shape {tuple(found.shape)}, expected {tuple(real.shape)}"
        for ours, theirs in zip(found.shape, real.shape):
            if not agrees(ours, theirs):
                return f"{where}shape {values(found.shape)}, expected {tuple(real.shape)}"
        if real.numel():
            for n, ours, theirs in zip(real.shape, found.stride(), real.stride()):
                if n > 1 and not agrees(ours, theirs):
                    return f"{where}strides {values(found.stride())}, expected {real.stride()}"
        if not agrees(found.storage_offset(), real.storage_offset()) and real.numel():
            return f"{where}offset {found.storage_offset()}, expected {real.storage_offset()}"
        if found.requires_grad != real.requires_grad:
            return f"{where}requires_grad {found.requires_grad}, expected {real.requires_grad}"
        return self._aliases(found, real, where)

    def _aliases(self, found: Any, real: Any, where: str) -> str | None:
        ours, theirs = found.untyped_storage(), real.untyped_storage()
        which = [next((i for i, s in enumerate(l) if s is x), None) for l, x in
                 ((self.fake_storages, ours), (self.real_storages, theirs))]  # fmt: skip
        self.fake_storages.append(ours)
        self.real_storages.append(theirs)
        if which[0] != which[1] and real.numel():
            return f"{where}shares the storage of argument {which[0]}, expected {which[1]}"
        return None


def agrees(ours: Any, real: int) -> bool:
    """Whether a size has the real value, or, where it depends on data, may have it."""
    if type(ours) is int:
        return ours == real
    hint = ours.hint
    if hint is not None:
        return hint == real
    low, high = ours.env.range_of(ours.expr)
    return low <= real <= high


def values(sizes: Any) -> tuple[Any, ...]:
    return tuple(n if type(n) is int else f"{n} = {n.hint}" for n in sizes)
