"""The collectives. Every rank of the group calls each, in the same order.

Without ``async_op`` they return None when the result is there; with it, a Work at once. On ranks
outside the group they do nothing and return None. Tensors are written in place; shapes and dtypes
are the same on all ranks unless said otherwise. ``timeout`` (a timedelta, or seconds) is the
group's unless given.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from mortice._tensor.tensor import Tensor
from mortice.errors import InvalidValue, OperationTimeout, StoreTimeout

from . import arguments
from .coalescing import submit
from .group import is_outside, resolved
from .reduce_op import ReduceOp, as_reduce_op
from .work import Work

Timeout = timedelta | float | None


def all_reduce(
    tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False,
    timeout: Timeout = None,
) -> Work | None:  # fmt: skip
    """Reduce all ranks' ``tensor`` into everybody's."""
    if is_outside(group):
        return None
    t = arguments.tensor(tensor, "all_reduce", "tensor")
    reduction = as_reduce_op(op, "all_reduce")
    reduction.check(t.dtype, "all_reduce")
    return submit("all_reduce", group, t, async_op, timeout, outputs=(t,), op=reduction)


def reduce(
    tensor: Tensor, dst: int | None = None, op: Any = ReduceOp.SUM, group: Any = None,
    async_op: bool = False, group_dst: int | None = None, timeout: Timeout = None,
) -> Work | None:  # fmt: skip
    """Reduce all ranks' ``tensor`` into that of ``dst`` (a rank of the whole); others keep theirs."""
    if is_outside(group):
        return None
    t = arguments.tensor(tensor, "reduce", "tensor")
    reduction = as_reduce_op(op, "reduce")
    reduction.check(t.dtype, "reduce")
    root = arguments.root(resolved(group), dst, group_dst, "reduce", "dst")
    return submit("reduce", group, t, async_op, timeout, outputs=(t,), op=reduction, root=root)


def broadcast(
    tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False,
    group_src: int | None = None, timeout: Timeout = None,
) -> Work | None:  # fmt: skip
    """Give everybody the ``tensor`` of ``src`` (a rank of the whole)."""
    if is_outside(group):
        return None
    t = arguments.tensor(tensor, "broadcast", "tensor")
    root = arguments.root(resolved(group), src, group_src, "broadcast", "src")
    return submit("broadcast", group, t, async_op, timeout, outputs=(t,), root=root)


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False,
    timeout: Timeout = None,
) -> Work | None:  # fmt: skip
    """Put rank k's ``tensor`` into ``tensor_list[k]`` of everybody.

    Ranks may give different numbers of elements if all lists are made accordingly.
    """
    if is_outside(group):
        return None
    where = "all_gather"
    t = arguments.tensor(tensor, where, "tensor")
    found = resolved(group)
    outputs = arguments.tensors(tensor_list, where, "tensor_list", t, found.size())
    counts = tuple(one.numel() for one in outputs)
    why = "as many as this rank gives"
    arguments.sized(outputs[found.rank()], t.numel(), where, f"tensor_list[{found.rank()}]", why)
    uneven = None if len(set(counts)) == 1 else (counts, counts)
    return submit(
        where, group, t, async_op, timeout, inputs=(t,), outputs=tuple(outputs), counts=uneven
    )


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False,
    timeout: Timeout = None,
) -> Work | None:  # fmt: skip
    """Put all ranks' ``input_tensor``, one after the other, into everybody's ``output_tensor``."""
    if is_outside(group):
        return None
    where = "all_gather_into_tensor"
    t = arguments.tensor(input_tensor, where, "input_tensor")
    out = arguments.tensor(output_tensor, where, "output_tensor")
    arguments.same(out, t, where, "output_tensor")
    size = resolved(group).size()
    why = f"{size} ranks give {t.numel()} each"
    arguments.sized(out, size * t.numel(), where, "output_tensor", why)
    return submit("all_gather", group, t, async_op, timeout, inputs=(t,), outputs=(out,))


def gather(
    tensor: Tensor, gather_list: list[Tensor] | None = None, dst: int | None = None,
    group: Any = None, async_op: bool = False, group_dst: int | None = None,
    timeout: Timeout = None,
) -> Work | None:  # fmt: skip
    """Put rank k's ``tensor`` into ``gather_list[k]`` of ``dst`` (rank 0 unless given)."""
    if is_outside(group):
        return None
    t = arguments.tensor(tensor, "gather", "tensor")
    found = resolved(group)
    dst = found.ranks[0] if dst is None and group_dst is None else dst
    root = arguments.root(found, dst, group_dst, "gather", "dst")
    why = "all ranks give as many"
    outputs = arguments.of_the_root(gather_list, "gather", "dst", t, found, root, why)
    return submit(
        "gather", group, t, async_op, timeout, inputs=(t,), outputs=tuple(outputs), root=root
    )


def scatter(
    tensor: Tensor, scatter_list: list[Tensor] | None = None, src: int | None = None,
    group: Any = None, async_op: bool = False, group_src: int | None = None,
    timeout: Timeout = None,
) -> Work | None:  # fmt: skip
    """Put ``scatter_list[k]`` of ``src`` (rank 0 unless given) into rank k's ``tensor``."""
    if is_outside(group):
        return None
    t = arguments.tensor(tensor, "scatter", "tensor")
    found = resolved(group)
    src = found.ranks[0] if src is None and group_src is None else src
    root = arguments.root(found, src, group_src, "scatter", "src")
    why = "all ranks get as many"
    inputs = arguments.of_the_root(scatter_list, "scatter", "src", t, found, root, why)
    return submit(
        "scatter", group, t, async_op, timeout, inputs=tuple(inputs), outputs=(t,), root=root
    )


def reduce_scatter(
    output: Tensor, input_list: list[Tensor], op: Any = ReduceOp.SUM, group: Any = None,
    async_op: bool = False, timeout: Timeout = None,
) -> Work | None:  # fmt: skip
    """Reduce all ranks' ``input_list[k]`` into the ``output`` of rank k."""
    if is_outside(group):
        return None
    where = "reduce_scatter"
    out = arguments.tensor(output, where, "output")
    reduction = as_reduce_op(op, where)
    reduction.check(out.dtype, where)
    size, why = resolved(group).size(), "as many as output has"
    inputs = arguments.tensors(input_list, where, "input_list", out, size, why)
    return submit(
        where, group, out, async_op, timeout, inputs=tuple(inputs), outputs=(out,), op=reduction
    )


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None,
    async_op: bool = False, timeout: Timeout = None,
) -> Work | None:  # fmt: skip
    """Reduce all ranks' ``input``; rank k's ``output`` gets the k-th of its equal parts."""
    if is_outside(group):
        return None
    where = "reduce_scatter_tensor"
    out = arguments.tensor(output, where, "output")
    given = arguments.tensor(input, where, "input")
    arguments.same(given, out, where, "input")
    reduction = as_reduce_op(op, where)
    reduction.check(out.dtype, where)
    size = resolved(group).size()
    why = f"{size} ranks get {out.numel()} each"
    arguments.sized(given, size * out.numel(), where, "input", why)
    return submit(
        "reduce_scatter", group, out, async_op, timeout,
        inputs=(given,), outputs=(out,), op=reduction,
    )  # fmt: skip


def all_to_all(
    output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: Any = None,
    async_op: bool = False, timeout: Timeout = None,
) -> Work | None:  # fmt: skip
    """Put ``input_tensor_list[k]`` into rank k's ``output_tensor_list`` at this rank's place."""
    if is_outside(group):
        return None
    where = "all_to_all"
    if not isinstance(input_tensor_list, (list, tuple)) or not input_tensor_list:
        raise InvalidValue(f"{where}: input_tensor_list has no tensors.")
    like = arguments.tensor(input_tensor_list[0], where, "input_tensor_list[0]")
    size = resolved(group).size()
    inputs = arguments.tensors(input_tensor_list, where, "input_tensor_list", like, size)
    outputs = arguments.tensors(output_tensor_list, where, "output_tensor_list", like, size)
    counts = tuple(t.numel() for t in outputs), tuple(t.numel() for t in inputs)
    return submit(
        where, group, like, async_op, timeout,
        inputs=tuple(inputs), outputs=tuple(outputs), counts=counts,
    )  # fmt: skip


def all_to_all_single(
    output: Tensor, input: Tensor, output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None, group: Any = None, async_op: bool = False,
    timeout: Timeout = None,
) -> Work | None:  # fmt: skip
    """Divide the rows of ``input`` among the ranks, and put what they send into ``output``.

    Split sizes are rows per rank; equal parts if not given.
    """
    if is_outside(group):
        return None
    where = "all_to_all_single"
    out = arguments.tensor(output, where, "output")
    given = arguments.tensor(input, where, "input")
    arguments.same(given, out, where, "input")
    size = resolved(group).size()
    counts = (
        arguments.splits(output_split_sizes, out, size, where, "output"),
        arguments.splits(input_split_sizes, given, size, where, "input"),
    )
    return submit(
        "all_to_all",
        group,
        given,
        async_op,
        timeout,
        inputs=(given,),
        outputs=(out,),
        counts=counts,
    )


def barrier(
    group: Any = None, async_op: bool = False, device_ids: Any = None, timeout: Timeout = None
) -> Work | None:
    """Return when all ranks have come."""
    if is_outside(group):
        return None
    return submit("barrier", group, None, async_op, timeout)


def monitored_barrier(
    group: Any = None, timeout: Timeout = None, wait_all_ranks: bool = False
) -> None:
    """A barrier that names the ranks that do not come; with ``wait_all_ranks`` all of them.

    Goes through the store, so it works when the backend no longer does. Raises OperationTimeout on
    every rank that came.
    """
    if is_outside(group):
        return
    found = resolved(group)
    limit = arguments.limit(timeout)
    limit = found.timeout if limit is None else limit
    turn = found.store.add(f"monitored/turn/{found.rank()}", 1)
    place = f"monitored/{turn}"
    found.store.set(f"{place}/{found.rank()}", b"")
    keys = [f"{place}/{rank}" for rank in range(found.size())]
    try:
        found.store.wait(keys, limit)
    except StoreTimeout as error:
        late = [found.ranks[int(key.rpartition("/")[2])] for key in error.keys]
        named = late if wait_all_ranks else late[:1]
        raise OperationTimeout(
            f"monitored_barrier of group {found.group_desc} on rank {found.watch.rank}: after "
            f"{limit:g} s, these ranks have not come: {', '.join(map(str, named))}"
            f"{' (and perhaps more)' if len(named) < len(late) else ''}.",
            operation="monitored_barrier",
            sequence=turn,
            rank=found.watch.rank,
        ) from error
