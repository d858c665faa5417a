"""ReduceLROnPlateau: lower the rate when a metric stops improving."""

from __future__ import annotations

from typing import Any

from mortice.errors import ArgumentError, InvalidValue
from mortice_nn.optim.optimizer import Optimizer
from mortice_nn.optim.schedules.base import LRScheduler, read_rate, write_rate


class ReduceLROnPlateau(LRScheduler):
    """Times ``factor`` after more than ``patience`` steps without improvement of the metric.

    ``mode``: "min" or "max" is better. An improvement is one by more than ``threshold``, relative
    ("rel") or absolute ("abs"). After a reduction, ``cooldown`` steps do not count.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: Any = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise InvalidValue(f"Factor should be < 1.0, found {factor}")
        if not isinstance(optimizer, Optimizer):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"{type(optimizer).__name__} is not an Optimizer")
        if mode not in ("min", "max"):
            raise InvalidValue(f"mode {mode!r} is unknown; use 'min' or 'max'")
        if threshold_mode not in ("rel", "abs"):
            raise InvalidValue(f"threshold mode {threshold_mode!r} is unknown; use 'rel' or 'abs'")
        self.factor = factor
        self.optimizer = optimizer
        groups = len(optimizer.param_groups)
        if isinstance(min_lr, (list, tuple)):
            if len(min_lr) != groups:  # pyright: ignore[reportUnknownArgumentType]
                raise InvalidValue(f"expected {groups} min_lrs, got {len(min_lr)}")  # pyright: ignore
            self.default_min_lr = None
            self.min_lrs: list[float] = list(min_lr)  # pyright: ignore
        else:
            self.default_min_lr = min_lr
            self.min_lrs = [min_lr] * groups
        self.patience = patience
        self.cooldown = cooldown
        self.eps = eps
        self.last_epoch = 0
        self._last_lr = self._now()
        self.mode_worse = float("inf") if mode == "min" else -float("inf")
        self.mode = mode
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self._reset()

    def _reset(self) -> None:
        self.best: float = self.mode_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    @property
    def in_cooldown(self) -> bool:
        """Whether steps do not count at present."""
        return self.cooldown_counter > 0

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # pyright: ignore
        """Take this step's metric into account."""
        current = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.is_better(current, self.best):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr()
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = self._now()

    def _reduce_lr(self) -> None:
        for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
            old = read_rate(group)
            new = max(old * self.factor, least)
            if old - new > self.eps:
                write_rate(group, new)

    def is_better(self, a: float, best: float) -> bool:
        """Whether ``a`` improves on ``best`` by more than the threshold."""
        if self.threshold_mode == "abs":
            return a < best - self.threshold if self.mode == "min" else a > best + self.threshold
        if self.mode == "min":
            return a < best * (1.0 - self.threshold)
        return a > best * (self.threshold + 1.0)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.__dict__.update(state_dict)
