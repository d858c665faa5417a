"""Averages of a model over training: stochastic weight averaging and exponential means."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import mortice
from mortice import Tensor
from mortice.errors import InvalidValue
from mortice_nn.modules.module import Module
from mortice_nn.modules.normalization import BatchNorm1d, BatchNorm2d, BatchNorm3d
from mortice_nn.optim.optimizer import Optimizer
from mortice_nn.optim.schedules.base import LRScheduler, read_rate
from mortice_nn.optim.schedules.cyclic import per_group

# (average, new value, how many were averaged) -> average
AverageFn = Callable[[Tensor, Tensor, Any], Tensor]
MultiAverageFn = Callable[[list[Tensor], list[Tensor], Any], None]


def get_swa_avg_fn() -> AverageFn:
    """The mean of all values so far (Izmailov et al. 2018)."""

    def average(averaged: Tensor, current: Tensor, num_averaged: Any) -> Tensor:
        return averaged + (current - averaged) / (int(num_averaged) + 1)

    return average


def get_ema_avg_fn(decay: float = 0.999) -> AverageFn:
    """decay * average + (1 - decay) * value."""
    _check_decay(decay)

    def average(averaged: Tensor, current: Tensor, num_averaged: Any) -> Tensor:
        return decay * averaged + (1 - decay) * current

    return average


def get_swa_multi_avg_fn() -> MultiAverageFn:
    """As get_swa_avg_fn for lists of tensors, in place."""
    return _in_place(get_swa_avg_fn())


def get_ema_multi_avg_fn(decay: float = 0.999) -> MultiAverageFn:
    """As get_ema_avg_fn for lists of tensors, in place."""
    return _in_place(get_ema_avg_fn(decay))


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise InvalidValue(f"Invalid decay value {decay} provided. It must be in [0, 1]")


def _in_place(average: AverageFn) -> MultiAverageFn:
    def update(averaged: list[Tensor], current: list[Tensor], num_averaged: Any) -> None:
        with mortice.no_grad():
            for mean, value in zip(averaged, current, strict=True):
                mean.copy_(average(mean, value, num_averaged))

    return update


class AveragedModel(Module):
    """A copy of ``model`` whose parameters are averages, by ``update_parameters(model)``.

    ``avg_fn`` (one tensor) or ``multi_avg_fn`` (lists, in place); the plain mean by default.
    ``use_buffers`` averages buffers too, otherwise they are copied.
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: AverageFn | None = None,
        multi_avg_fn: MultiAverageFn | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise InvalidValue("only one of avg_fn and multi_avg_fn may be given")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", mortice.tensor(0, dtype=mortice.int64, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def _averaged(self, model: Module) -> list[Tensor]:
        tensors: list[Tensor] = list(model.parameters())
        return tensors + (list(model.buffers()) if self.use_buffers else [])

    def update_parameters(self, model: Module) -> None:
        """Take ``model``'s present parameters into the average."""
        ours = [tensor.detach() for tensor in self._averaged(self.module)]
        theirs = [
            tensor.detach().to(mine.device)
            for tensor, mine in zip(self._averaged(model), ours, strict=True)
        ]
        with mortice.no_grad():
            if int(self.n_averaged.item()) == 0:
                for mine, value in zip(ours, theirs, strict=True):
                    mine.copy_(value)
            else:
                self._update(ours, theirs)
            if not self.use_buffers:
                for mine, value in zip(self.module.buffers(), model.buffers(), strict=True):
                    mine.copy_(value)
            self.n_averaged.add_(1)

    def _update(self, ours: list[Tensor], theirs: list[Tensor]) -> None:
        floating = [i for i, tensor in enumerate(ours) if tensor.is_floating_point()]
        count = self.n_averaged
        if self.multi_avg_fn is not None:
            self.multi_avg_fn([ours[i] for i in floating], [theirs[i] for i in floating], count)
        else:
            average = self.avg_fn or get_swa_avg_fn()
            for i in floating:
                ours[i].copy_(average(ours[i], theirs[i], count))
        for i, tensor in enumerate(ours):
            if not tensor.is_floating_point():
                tensor.copy_(theirs[i])


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Compute running statistics of all batch norms anew by one pass over ``loader``.

    A batch that is a list or tuple counts by its first element.
    """
    kinds = (BatchNorm1d, BatchNorm2d, BatchNorm3d)
    momenta: dict[Any, float | None] = {}
    for module in model.modules():
        if isinstance(module, kinds):
            module.reset_running_stats()
            momenta[module] = module.momentum
    if not momenta:
        return
    was_training = model.training
    model.train()
    for module in momenta:
        module.momentum = None  # the plain mean over batches
    try:
        with mortice.no_grad():
            for batch in loader:
                input = batch[0] if isinstance(batch, (list, tuple)) else batch  # pyright: ignore
                model(input if device is None else input.to(device))  # pyright: ignore
    finally:
        for module, momentum in momenta.items():
            module.momentum = momentum
        model.train(was_training)


class SWALR(LRScheduler):
    """From the present rate to ``swa_lr`` in ``anneal_epochs`` steps ("cos" or "linear"), then
    constant.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: Any,
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        for group, rate in zip(
            optimizer.param_groups, per_group(optimizer, swa_lr, "swa_lr"), strict=True
        ):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise InvalidValue(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:  # pyright: ignore
            raise InvalidValue(
                f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}"
            )
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        """How much of the way is gone at ``step``."""
        done = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return (1 - math.cos(math.pi * done)) / 2 if self._anneal_strategy == "cos" else done

    def get_lr(self) -> list[float]:
        self._warn_outside_step()
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(step - 1), self._share(step)
        rates: list[float] = []
        for group in self.optimizer.param_groups:
            rate, target = read_rate(group), float(group["swa_lr"])
            start = target if before == 1 else (rate - before * target) / (1 - before)
            rates.append(start + (target - start) * now)
        return rates
