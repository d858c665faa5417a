"""LRScheduler, and the schedules that are made of others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from mortice import Tensor
from mortice.errors import ArgumentError, InvalidValue
from mortice_nn.optim.optimizer import Optimizer


def read_rate(group: dict[str, Any], name: str = "lr") -> float:
    """A rate as a number; groups may hold it as a 0-d tensor."""
    value = group[name]
    return float(value.item()) if isinstance(value, Tensor) else value


def write_rate(group: dict[str, Any], value: float, name: str = "lr") -> None:
    """Set a rate; a tensor is filled, because a compiled step may hold it."""
    if isinstance(group.get(name), Tensor):
        group[name].fill_(value)
    else:
        group[name] = value


class LRScheduler:
    """Sets ``lr`` of the optimizer's groups to what ``get_lr()`` returns at each ``step()``.

    ``last_epoch`` counts steps from 0; to resume without a state_dict pass the last one done.
    """

    _get_lr_called_within_step = False
    _is_initial = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", read_rate(group))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}], which resuming a "
                    "schedule (last_epoch >= 0) needs"
                )
        self.base_lrs: list[float] = [
            read_rate(group, "initial_lr") for group in optimizer.param_groups
        ]
        self.last_epoch = last_epoch
        self._step_count = 0
        self._initial_step()

    def _initial_step(self) -> None:
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """All attributes but the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` returned; load the optimizer's own state as well."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[float]:
        """The rate of each group as last set."""
        return self._last_lr

    def get_lr(self) -> list[float]:
        """The rate of each group for step ``last_epoch``; each schedule defines it."""
        raise NotImplementedError(f"{type(self).__name__} does not define get_lr()")

    def step(self, epoch: int | None = None) -> None:
        """Go to the next step, or (deprecated) to ``epoch``, and set the rates."""
        early = self._step_count == 1 and not self._is_initial
        if early and not getattr(self.optimizer, "_opt_called", False):
            import warnings

            warnings.warn(
                "lr_scheduler.step() was called before optimizer.step(); call the optimizer's "
                "first, or the first value of the schedule is skipped",
                stacklevel=2,
            )
        self._step_count += 1
        if epoch is None:
            self.last_epoch += 1
            rates = self._rates()
        else:
            import warnings

            warnings.warn(
                "the epoch argument of scheduler.step() is deprecated; call step() once an epoch",
                stacklevel=2,
            )
            self.last_epoch = epoch
            closed = getattr(self, "_get_closed_form_lr", None)
            rates = closed() if closed is not None else self._rates()
        self._set(rates)

    def _rates(self) -> list[float]:
        self._get_lr_called_within_step = True
        try:
            return self.get_lr()
        finally:
            self._get_lr_called_within_step = False

    def _set(self, rates: Sequence[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            write_rate(group, rate)
        self._last_lr = [read_rate(group) for group in self.optimizer.param_groups]

    def _now(self) -> list[float]:
        return [read_rate(group) for group in self.optimizer.param_groups]

    def _warn_outside_step(self) -> None:
        if not self._get_lr_called_within_step:
            import warnings

            warnings.warn(
                "To get the last learning rate computed by the scheduler, please use "
                "`get_last_lr()`.",
                stacklevel=3,
            )


class _Composite(LRScheduler):
    """A schedule of schedules, which are saved in its state_dict under ``_schedulers``."""

    _schedulers: list[Any]

    def state_dict(self) -> dict[str, Any]:
        hidden = ("optimizer", "_schedulers")
        state = {key: value for key, value in self.__dict__.items() if key not in hidden}
        state["_schedulers"] = [schedule.state_dict() for schedule in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        own = dict(state_dict)
        for schedule, state in zip(self._schedulers, own.pop("_schedulers"), strict=True):
            schedule.load_state_dict(state)
        self.__dict__.update(own)


class SequentialLR(_Composite):
    """``schedulers`` one after the other, changing at ``milestones``."""

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: list[LRScheduler],
        milestones: list[int],
        last_epoch: int = -1,
    ) -> None:
        if not schedulers:
            raise InvalidValue("SequentialLR expects at least one scheduler")
        for i, schedule in enumerate(schedulers):
            if not hasattr(schedule, "optimizer") or schedule.optimizer is not optimizer:
                raise InvalidValue(
                    f"SequentialLR expects all schedulers to belong to its optimizer, but "
                    f"scheduler {i} has another"
                )
        if len(milestones) != len(schedulers) - 1:
            raise InvalidValue(
                f"SequentialLR expects one milestone less than schedulers, found "
                f"{len(schedulers)} schedulers and {len(milestones)} milestones"
            )
        self._schedulers = schedulers
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        # Each constructor has made its first step; only the first schedule's may count.
        for group in optimizer.param_groups:
            write_rate(group, read_rate(group, "initial_lr"))
        for schedule in schedulers:
            schedule.last_epoch -= 1
        schedulers[0]._initial_step()
        self._last_lr = schedulers[0].get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        """Step the schedule whose turn it is; a new one starts from its own beginning."""
        self.last_epoch += 1
        turn = bisect_right(self._milestones, self.last_epoch)
        schedule = self._schedulers[turn]
        if turn > 0 and self._milestones[turn - 1] == self.last_epoch:
            _restart(schedule)
        else:
            schedule.step()
        self._last_lr = schedule.get_last_lr()


def _restart(schedule: LRScheduler) -> None:
    """Step ``schedule`` to its epoch 0 as ``step(0)`` does, without the deprecation."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        schedule.step(0)


class ChainedScheduler(_Composite):
    """All ``schedulers`` at each step, one upon the other."""

    def __init__(
        self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None
    ) -> None:
        if not schedulers:
            raise InvalidValue("ChainedScheduler expects at least one scheduler")
        optimizer = schedulers[0].optimizer if optimizer is None else optimizer
        if any(schedule.optimizer is not optimizer for schedule in schedulers):
            raise InvalidValue("ChainedScheduler expects all schedulers to share one optimizer")
        self._schedulers = list(schedulers)
        self.optimizer = optimizer
        self._last_lr = self._now()

    def step(self, epoch: int | None = None) -> None:
        """Step every schedule."""
        for schedule in self._schedulers:
            schedule.step()
        self._last_lr = self._now()
