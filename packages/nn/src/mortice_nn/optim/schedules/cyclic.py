"""CyclicLR and OneCycleLR, which move momentum against the rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from mortice.errors import InvalidState, InvalidValue
from mortice_nn.optim.optimizer import Optimizer
from mortice_nn.optim.schedules.base import LRScheduler, read_rate, write_rate


def per_group(optimizer: Optimizer, value: Any, name: str) -> list[float]:
    """One value for all groups, or a list of one each."""
    count = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:  # pyright: ignore[reportUnknownArgumentType]
        raise InvalidValue(
            f"{name} must have the same length as optimizer.param_groups: "
            f"{len(value)} values for {count} groups"  # pyright: ignore
        )
    return list(value)  # pyright: ignore[reportUnknownArgumentType]


def momentum_of(optimizer: Optimizer) -> bool:
    """Whether momentum is called beta1 in this optimizer; raises where it has none."""
    if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
        raise InvalidValue(f"{type(optimizer).__name__} has no momentum; pass cycle_momentum=False")
    return "betas" in optimizer.defaults


def write_momentum(group: dict[str, Any], value: float, use_beta1: bool) -> None:
    """Set momentum, or the first of betas."""
    if use_beta1:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


class CyclicLR(LRScheduler):
    """Between ``base_lr`` and ``max_lr`` and back (Smith 2017), stepped every batch.

    ``mode``: "triangular"; "triangular2", halving each cycle; "exp_range", times gamma ** step;
    or ``scale_fn``, a function of cycles or iterations as ``scale_mode`` says.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: Any,
        max_lr: Any,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.8,
        max_momentum: Any = 0.9,
        last_epoch: int = -1,
    ) -> None:
        self.optimizer = optimizer
        bases = per_group(optimizer, base_lr, "base_lr")
        if last_epoch == -1:
            for group, rate in zip(optimizer.param_groups, bases, strict=True):
                write_rate(group, rate)
                # another schedule may have set it; this one's base is what counts
                group["initial_lr"] = rate
        self.max_lrs = per_group(optimizer, max_lr, "max_lr")
        up = float(step_size_up)
        down = float(step_size_down) if step_size_down is not None else up
        self.total_size = up + down
        self.step_ratio = up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise InvalidValue(
                f"mode {mode!r} is invalid and scale_fn is None; use triangular, triangular2 or "
                "exp_range"
            )
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else (
            "iterations" if mode == "exp_range" else "cycle"
        )  # fmt: skip
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1 = momentum_of(optimizer)
            self.base_momentums = per_group(optimizer, base_momentum, "base_momentum")
            self.max_momentums = per_group(optimizer, max_momentum, "max_momentum")
            if last_epoch == -1:
                for group, high, low in zip(
                    optimizer.param_groups, self.max_momentums, self.base_momentums, strict=True
                ):
                    write_momentum(group, high, self.use_beta1)
                    group["max_momentum"] = high
                    group["base_momentum"] = low
        super().__init__(optimizer, last_epoch)
        self.base_lrs = bases

    def scale_fn(self, x: float) -> float:
        """Height of the cycle, from the number of cycles or iterations."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular":
            return 1.0
        if self.mode == "triangular2":
            return 1 / 2.0 ** (x - 1)
        return self.gamma**x

    def get_lr(self) -> list[float]:
        self._warn_outside_step()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        up = x <= self.step_ratio
        height = x / self.step_ratio if up else (x - 1) / (self.step_ratio - 1)
        scale = height * self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group, low, high in zip(
                self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True
            ):
                write_momentum(group, high - (high - low) * scale, self.use_beta1)
        return [
            base + (high - base) * scale
            for base, high in zip(self.base_lrs, self.max_lrs, strict=True)
        ]

    def state_dict(self) -> dict[str, Any]:
        """A scale function is saved by its attributes if it is an object, else not."""
        state = super().state_dict()
        custom = state.pop("_scale_fn_custom")
        saved = getattr(custom, "__dict__", None)
        state["_scale_fn_custom"] = dict(saved) if saved else None
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        own = dict(state_dict)
        saved = own.pop("_scale_fn_custom", None)
        super().load_state_dict(own)
        if saved is not None and self._scale_fn_custom is not None:
            self._scale_fn_custom.__dict__.update(saved)


class OneCycleLR(LRScheduler):
    """Up to ``max_lr``, then down below where it began (Smith and Topin 2019); every batch.

    ``total_steps``, or ``epochs`` and ``steps_per_epoch``. Starts at max_lr / div_factor and ends
    at that / final_div_factor; momentum goes the other way.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: Any,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.85,
        max_momentum: Any = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        self.optimizer = optimizer
        self.total_steps = _total_steps(total_steps, epochs, steps_per_epoch)
        if not 0 <= pct_start <= 1:
            raise InvalidValue(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise InvalidValue(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self._schedule_phases = _phases(self.total_steps, pct_start, three_phase)
        self._anneal_func_type = anneal_strategy
        self.cycle_momentum = cycle_momentum
        if last_epoch == -1:
            for group, high in zip(
                optimizer.param_groups, per_group(optimizer, max_lr, "max_lr"), strict=True
            ):
                group["initial_lr"] = high / div_factor
                group["max_lr"] = high
                group["min_lr"] = group["initial_lr"] / final_div_factor
        if cycle_momentum:
            self.use_beta1 = momentum_of(optimizer)
            if last_epoch == -1:
                highs = per_group(optimizer, max_momentum, "max_momentum")
                lows = per_group(optimizer, base_momentum, "base_momentum")
                for group, high, low in zip(optimizer.param_groups, highs, lows, strict=True):
                    write_momentum(group, high, self.use_beta1)
                    group["max_momentum"] = high
                    group["base_momentum"] = low
        super().__init__(optimizer, last_epoch)

    def _anneal(self, start: float, end: float, done: float) -> float:
        if self._anneal_func_type == "cos":
            return end + (start - end) / 2.0 * (math.cos(math.pi * done) + 1)
        return (end - start) * done + start

    def get_lr(self) -> list[float]:
        self._warn_outside_step()
        step = self.last_epoch
        if step > self.total_steps:
            raise InvalidState(
                f"Tried to step {step} times. The specified number of total steps is "
                f"{self.total_steps}"
            )
        rates: list[float] = []
        for group in self.optimizer.param_groups:
            start = 0.0
            for i, phase in enumerate(self._schedule_phases):
                end = phase["end_step"]
                if step <= end or i == len(self._schedule_phases) - 1:
                    done = (step - start) / (end - start)
                    rates.append(
                        self._anneal(
                            read_rate(group, phase["start_lr"]),
                            read_rate(group, phase["end_lr"]),
                            done,
                        )
                    )
                    if self.cycle_momentum:
                        low, high = group[phase["start_momentum"]], group[phase["end_momentum"]]
                        write_momentum(group, self._anneal(low, high, done), self.use_beta1)
                    break
                start = end
        return rates


def _total_steps(total: int | None, epochs: int | None, per_epoch: int | None) -> int:
    if total is not None:
        if total <= 0:
            raise InvalidValue(f"Expected positive integer total_steps, but got {total}")
        return total
    if epochs is None or per_epoch is None:
        raise InvalidValue("You must define either total_steps OR (epochs AND steps_per_epoch)")
    if epochs <= 0 or per_epoch <= 0:
        raise InvalidValue(
            f"epochs and steps_per_epoch must be positive, found {epochs} and {per_epoch}"
        )
    return epochs * per_epoch


def _phases(total: int, pct_start: float, three_phase: bool) -> list[dict[str, Any]]:
    def phase(end: float, rates: tuple[str, str], momenta: tuple[str, str]) -> dict[str, Any]:
        return {
            "end_step": end,
            "start_lr": rates[0],
            "end_lr": rates[1],
            "start_momentum": momenta[0],
            "end_momentum": momenta[1],
        }

    top = float(pct_start * total) - 1
    fall, rise = ("max_momentum", "base_momentum"), ("base_momentum", "max_momentum")
    if not three_phase:
        return [
            phase(top, ("initial_lr", "max_lr"), fall),
            phase(total - 1, ("max_lr", "min_lr"), rise),
        ]
    return [
        phase(top, ("initial_lr", "max_lr"), fall),
        phase(float(2 * pct_start * total) - 2, ("max_lr", "initial_lr"), rise),
        phase(total - 1, ("initial_lr", "min_lr"), ("max_momentum", "max_momentum")),
    ]
