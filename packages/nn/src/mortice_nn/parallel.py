"""``mortice.nn.parallel``: a module trained on several ranks at once."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import mortice
import mortice.distributed as dist
from mortice import Tensor
from mortice.distributed.algorithms.join import Join, JoinHook
from mortice.distributed.parallel import Reducer
from mortice.errors import ArgumentError, InvalidValue
from mortice_nn.modules.module import Module

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(Module):
    """Wraps ``module`` so that each rank computes on its part of a batch, and all take the same step.

    Parameters and buffers are rank 0's at the start. Gradients are averaged over the ranks of
    ``process_group`` while backward goes on, in buckets of ``bucket_cap_mb`` MiB; buffers are
    rank 0's at each forward unless ``broadcast_buffers`` is false. With
    ``find_unused_parameters``, parameters that have no part in an output are found in each pass;
    ``static_graph`` is taken as the same. With ``gradient_as_bucket_view``, gradients are views of
    the buckets, which saves their memory and a copy.

    Raises InvalidValue if the ranks' parameters differ, or none requires a gradient.
    """

    _join: Any = None

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(module, Module):
            raise ArgumentError(
                f"DistributedDataParallel: expected a Module, found {type(module).__name__}."
            )
        named = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
        if not named:
            raise InvalidValue(
                "DistributedDataParallel: no parameter of the module requires a gradient."
            )
        if bucket_cap_mb is not None and bucket_cap_mb <= 0:
            raise InvalidValue(f"bucket_cap_mb is {bucket_cap_mb}; expected more than 0.")
        self.module = module
        self.process_group = process_group if process_group is not None else whole()
        self.broadcast_buffers = broadcast_buffers
        self.find_unused_parameters = find_unused_parameters or static_graph
        self.reducer = Reducer(
            [p for _, p in named],
            self.process_group,
            bucket_megabytes=25.0 if bucket_cap_mb is None else bucket_cap_mb,
            views=gradient_as_bucket_view,
            find_unused=self.find_unused_parameters,
            names=[n for n, _ in named],
        )
        if init_sync:
            self._broadcast([*module.parameters(), *module.buffers()], 0)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Call the module; the following backward averages gradients."""
        training = mortice.is_grad_enabled() and self.training
        if training and self.reducer.synchronise:
            active = Join.notify_join_context(self)
            self.reducer.divisor = self._divisor(active)
        if self.broadcast_buffers and self.training and self.reducer.synchronise:
            self._broadcast(list(self.module.buffers()), self._source())
        outputs = self.module(*inputs, **kwargs)
        if training and self.reducer.synchronise:
            self.reducer.prepare(outputs)
        return outputs

    @contextmanager
    def no_sync(self) -> Generator[None, None, None]:
        """Let gradients accumulate on each rank alone; the first pass afterwards averages the sums."""
        before = self.reducer.synchronise
        self.reducer.synchronise = False
        try:
            yield
        finally:
            self.reducer.synchronise = before

    def register_comm_hook(self, state: Any, hook: Any) -> None:
        """Let ``hook(state, bucket)`` average the buckets; it returns a Future of the flat tensor."""
        if not callable(hook):
            raise ArgumentError(f"register_comm_hook: {hook!r} cannot be called.")
        self.reducer.register_comm_hook(state, hook)

    # -- joining ---------------------------------------------------------------------------------

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Join:
        """A ``Join`` of this module alone."""
        return Join(
            [self],
            enable,
            throw_on_early_termination,
            divide_by_initial_world_size=divide_by_initial_world_size,
        )

    def join_hook(self, **options: Any) -> JoinHook:
        return _Shadow(self, bool(options.get("divide_by_initial_world_size", True)))

    @property
    def join_process_group(self) -> Any:
        return self.process_group

    _divides_by_active: bool = False

    def _divisor(self, active: int | None) -> int | None:
        return active if self._divides_by_active and active is not None else None

    def _source(self) -> int:
        """Whose buffers count: rank 0's, or inside a Join those of the first rank with an input."""
        if self._join is None:
            return 0
        return self._first_active(1)

    def _first_active(self, mine: int) -> int:
        rank, size = self.process_group.rank(), self.process_group.size()
        place = mortice.tensor([rank if mine else size])
        dist.all_reduce(place, dist.ReduceOp.MIN, group=self.process_group)
        return int(place.item())

    def _broadcast(self, tensors: list[Any], source: int) -> None:
        """Give everybody the tensors of a rank of the group, those of one dtype in one message."""
        kinds: dict[Any, list[Tensor]] = {}
        for t in tensors:
            if t is not None:
                kinds.setdefault((t.dtype, t.device), []).append(t.detach())
        for same in kinds.values():
            flat = mortice.cat([t.reshape(-1) for t in same])
            dist.broadcast(flat, group=self.process_group, group_src=source)
            at = 0
            with mortice.no_grad():
                for t in same:
                    t.copy_(flat[at : at + t.numel()].reshape(t.shape))
                    at += t.numel()

    def __getstate__(self) -> Any:
        raise ArgumentError(
            "a DistributedDataParallel cannot be pickled: it is tied to its process group. Pickle "
            "its .module, or save its state_dict()."
        )


class _Shadow(JoinHook):
    """What a rank without inputs does for a wrapped module."""

    def __init__(self, model: DistributedDataParallel, by_initial: bool) -> None:
        self._model = model
        model._divides_by_active = not by_initial

    def main_hook(self) -> None:
        model = self._model
        if model.broadcast_buffers and model.training and model.reducer.synchronise:
            model._broadcast(list(model.module.buffers()), model._first_active(0))
        model.reducer.divisor = None if not model._divides_by_active else 1
        model.reducer.shadow()

    def post_hook(self, is_last_joiner: bool) -> None:
        """Take the model of a rank that has made all steps."""
        model = self._model
        source = model._first_active(int(is_last_joiner))
        model._broadcast([*model.module.parameters(), *model.module.buffers()], source)


def whole() -> Any:
    """The group of all ranks; raises NotAGroup before ``init_process_group``."""
    from mortice.distributed import group

    return group.WORLD
