"""Reducer: averages gradients over the ranks of a group, bucket by bucket, during backward.

Each parameter's hook puts its new gradient into its bucket; a full bucket is reduced at once,
beside the rest of backward, in the same order on all ranks; the last one waits for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from mortice._autograd.grad_mode import no_grad
from mortice._autograd.node import Leaf
from mortice._tensor.make import wrap_array
from mortice._tensor.tensor import Tensor
from mortice.errors import ArgumentError, InvalidState, InvalidValue

from .. import collectives, objects
from ..group import ProcessGroup
from ..reduce_op import ReduceOp
from ..work import Future, Work
from .buckets import MEGABYTE, Bucket, GradBucket, assign

CommHook = Callable[[Any, GradBucket], Any]


class Reducer:
    """Keeps the gradients of ``parameters``, which all ranks give in the same order, averaged.

    With ``views`` a gradient is its part of a bucket, and not copied back. With ``find_unused``
    parameters without a gradient in this pass are found from the outputs given to ``prepare``.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        group: ProcessGroup,
        *,
        bucket_megabytes: float = 25.0,
        views: bool = False,
        find_unused: bool = False,
        names: Sequence[str] = (),
    ) -> None:
        self.parameters = list(parameters)
        self.group = group
        self.views = views
        self.find_unused = find_unused
        self.names = list(names) or [str(k) for k in range(len(self.parameters))]
        self.synchronise = True
        self.divisor: int | None = None  # None: the group's size
        self._limit = int(bucket_megabytes * MEGABYTE)
        self._hook: tuple[Any, CommHook] | None = None
        self._check_agreement()
        # Gradients come roughly in the reverse of the order of use.
        self.buckets = assign(self.parameters, range(len(self.parameters))[::-1], self._limit)
        self._locate()
        self._prepared = False
        self._next = 0
        self._ready: list[bool] = [False] * len(self.parameters)
        self._used: list[bool] = [True] * len(self.parameters)
        self._order: list[int] = []
        self._rebuilt = find_unused
        self._passes = 0  # that were synchronised
        for place, p in enumerate(self.parameters):
            p.register_post_accumulate_grad_hook(self._hook_of(place))

    def _check_agreement(self) -> None:
        """Raise InvalidValue that names the rank whose parameters are others."""
        mine = [
            (name, tuple(p.shape), p.dtype.name) for name, p in zip(self.names, self.parameters)
        ]
        every: list[Any] = [None] * self.group.size()
        objects.all_gather_object(every, mine, self.group)
        for rank, theirs in enumerate(every):
            if theirs != every[0]:
                ranks = self.group.ranks
                differing = [pair for pair in zip(theirs, every[0]) if pair[0] != pair[1]]
                what = (
                    f"rank {ranks[rank]} has {differing[0][0]}, rank {ranks[0]} {differing[0][1]}"
                    if differing
                    else f"rank {ranks[rank]} has {len(theirs)}, rank {ranks[0]} {len(every[0])}"
                )
                raise InvalidValue(f"the ranks' parameters differ: {what}.")

    def _locate(self) -> None:
        self._where = {
            place: (bucket, k) for bucket in self.buckets for k, place in enumerate(bucket.places)
        }

    def register_comm_hook(self, state: Any, hook: CommHook) -> None:
        """Let ``hook(state, bucket)`` reduce buckets: it returns a Future of the flat result."""
        if self._hook is not None:
            raise InvalidState("register_comm_hook was called before; it can be called once.")
        self._hook = state, hook

    # -- a pass ----------------------------------------------------------------------------------

    def prepare(self, outputs: Any) -> None:
        """Get ready for the backward pass of a forward pass that returned ``outputs``."""
        if self._prepared and any(self._ready):
            self._complain()
        self._rebuild()
        self._prepared = True
        self._next = 0
        for bucket in self.buckets:
            bucket.pending = len(bucket.parameters)
            bucket.work = None
        self._ready = [False] * len(self.parameters)
        self._used = [True] * len(self.parameters)
        if self.find_unused:
            reached = leaves_of(outputs)
            for place, p in enumerate(self.parameters):
                if id(p) not in reached:
                    self._used[place] = False
                    self._fill(place)

    def _complain(self) -> None:
        missing = [name for name, ready in zip(self.names, self._ready) if not ready]
        if missing:
            shown = ", ".join(missing[:8]) + (" and more" if len(missing) > 8 else "")
            raise InvalidState(
                "the last backward pass gave no gradient to these parameters, so that the ranks "
                f"still wait for them: {shown}. Pass find_unused_parameters=True, or use every "
                "parameter in the loss."
            )

    def _hook_of(self, place: int) -> Callable[[Tensor], None]:
        def hook(parameter: Tensor) -> None:
            if self.synchronise and self._prepared:
                self._fill(place)

        return hook

    def _fill(self, place: int) -> None:
        """Put a parameter's gradient into its bucket; reduce the bucket if it is full."""
        if self._ready[place]:
            raise InvalidState(
                f"the gradient of {self.names[place]} came twice in one pass: backward was run "
                "twice after one forward, or the parameter is used by two wrapped modules."
            )
        self._ready[place] = True
        self._order.append(place)
        bucket, k = self._where[place]
        view, parameter = bucket.views[k], self.parameters[place]
        grad = parameter.grad
        with no_grad():
            if grad is None:
                view.zero_()
            elif grad._a is not view._a:
                view.copy_(grad)
        if self.views and grad is not None:
            parameter.grad = view
        bucket.pending -= 1
        while self._next < len(self.buckets) and not self.buckets[self._next].pending:
            self._reduce(self.buckets[self._next])
            self._next += 1
        if self._next == len(self.buckets):
            self._finish()

    def _reduce(self, bucket: Bucket) -> None:
        """Begin to average a bucket."""
        if self._hook is not None:
            state, hook = self._hook
            made = hook(state, GradBucket(bucket, len(self.buckets)))
            if not isinstance(made, (Future, Work)):
                raise ArgumentError(
                    f"the hook of register_comm_hook, {getattr(hook, '__name__', hook)}, returned "
                    f"{type(made).__name__}; expected a Future of the flat tensor, as "
                    "all_reduce(..., async_op=True).get_future() gives."
                )
            bucket.work = made
            return
        op = ReduceOp.AVG if self.divisor is None else ReduceOp.SUM
        bucket.work = collectives.all_reduce(bucket.flat, op, self.group, async_op=True)

    def _finish(self) -> None:
        """Wait for all buckets, and give the averages to the parameters."""
        self._prepared = False
        self._passes += 1
        globally = self._used_anywhere()
        with no_grad():
            for bucket in self.buckets:
                self._collect(bucket)
                for place, view in zip(bucket.places, bucket.views):
                    if globally[place]:
                        self._give(self.parameters[place], view)

    def _collect(self, bucket: Bucket) -> None:
        result = bucket.work.wait()
        bucket.work = None
        if self._hook is not None:
            found = result[0] if isinstance(result, (list, tuple)) else result
            if found is not bucket.flat:
                bucket.flat.copy_(found.reshape(-1))
        elif self.divisor is not None:
            bucket.flat.div_(self.divisor)

    def _give(self, parameter: Tensor, view: Tensor) -> None:
        if self.views:
            parameter.grad = view
        elif parameter.grad is None:
            parameter.grad = view.clone()
        elif parameter.grad._a is not view._a:
            parameter.grad.copy_(view)

    def _used_anywhere(self) -> list[bool]:
        """Whether each parameter got a gradient on some rank; the others keep what they have."""
        if not self.find_unused:
            return self._used
        used = wrap_array(np.array(self._used, np.uint8)).to(self.parameters[0].device)
        collectives.all_reduce(used, ReduceOp.MAX, self.group)
        return [bool(n) for n in used.tolist()]

    # -- the order of buckets --------------------------------------------------------------------

    def _rebuild(self) -> None:
        """After the first pass: buckets in the order in which gradients came, on rank 0."""
        if self._rebuilt or not self._passes:
            return
        self._rebuilt = True
        own = self._order[: len(self.parameters)]  # empty if this rank has had no input at all
        order = wrap_array(np.array(own or range(len(self.parameters)), np.int64))
        placed = order.to(self.parameters[0].device)
        collectives.broadcast(placed, group=self.group, group_src=0)
        held = {p for p in range(len(self.parameters)) if self._is_view(p)}
        self.buckets = assign(self.parameters, [int(n) for n in placed.tolist()], self._limit)
        self._locate()
        for place in held:  # gradients that are kept between passes move along
            bucket, k = self._where[place]
            parameter = self.parameters[place]
            grad = parameter.grad
            assert grad is not None
            with no_grad():
                bucket.views[k].copy_(grad)
            parameter.grad = bucket.views[k]

    def _is_view(self, place: int) -> bool:
        bucket, k = self._where[place]
        grad = self.parameters[place].grad
        return grad is not None and grad._a is bucket.views[k]._a

    # -- ranks that have no more inputs ----------------------------------------------------------

    def shadow(self) -> None:
        """Take part in others' pass with gradients of zero, which are thrown away."""
        self._rebuild()
        for bucket in self.buckets:
            bucket.flat.zero_()
            self._reduce(bucket)
        self._used = [False] * len(self.parameters)
        self._used_anywhere()
        for bucket in self.buckets:
            bucket.work.wait()
            bucket.work = None
        self._passes += 1


def leaves_of(outputs: Any) -> set[int]:
    """The ids of the leaf tensors from which outputs were computed."""
    stack = [t._g.node for t in tensors_in(outputs) if t._g is not None]
    seen: set[int] = set()
    found: set[int] = set()
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if type(node) is Leaf:
            found.add(id(node.tensor()))
        stack.extend(edge.node for edge in node.edges if edge is not None)
    return found


def tensors_in(value: Any) -> Iterable[Tensor]:
    """The tensors inside nested lists, tuples, dicts and objects with attributes."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from tensors_in(one)
    elif isinstance(value, (list, tuple, set)):
        for one in value:
            yield from tensors_in(one)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        for one in vars(value).values():
            if isinstance(one, (Tensor, dict, list, tuple)):
                yield from tensors_in(one)
