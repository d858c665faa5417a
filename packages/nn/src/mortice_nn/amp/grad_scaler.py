"""GradScaler: keeps float16 gradients from vanishing by scaling the loss."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import mortice
from mortice import Tensor
from mortice.errors import ArgumentError, InvalidState, InvalidValue
from mortice_nn.optim.optimizer import Optimizer


class OptState(Enum):
    """Where an optimizer stands between two updates of the scale."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


class GradScaler:
    """Multiplies the loss, divides the gradients, and leaves out steps whose gradients overflow.

    ``scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()``. The scale starts at
    ``init_scale``, is multiplied by ``backoff_factor`` after an overflow and by ``growth_factor``
    after ``growth_interval`` steps without one. Not ``enabled``: all of it does nothing.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device = device
        self._enabled = enabled
        if not enabled:
            return
        if growth_factor <= 1.0:
            raise InvalidValue(f"The growth factor must be > 1.0, found {growth_factor}")
        if backoff_factor >= 1.0:
            raise InvalidValue(f"The backoff factor must be < 1.0, found {backoff_factor}")
        self._scale = float(init_scale)
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._growth_tracker = 0
        self._stages: defaultdict[int, OptState] = defaultdict(lambda: OptState.READY)
        # whether the gradients of each optimizer overflowed, since the last update
        self._found_inf: dict[int, bool] = {}

    def scale(self, outputs: Any) -> Any:
        """``outputs``, a tensor or nested iterables of tensors, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._scale
        if isinstance(outputs, Iterable):
            scaled = [self.scale(output) for output in outputs]  # pyright: ignore
            return tuple(scaled) if isinstance(outputs, tuple) else scaled
        raise ArgumentError(
            f"outputs must be a Tensor or an iterable of Tensors, found {type(outputs).__name__}"
        )

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of ``optimizer`` by the scale, once before clipping them."""
        if not self._enabled:
            return
        stage = self._stages[id(optimizer)]
        if stage is OptState.UNSCALED:
            raise InvalidState(
                "unscale_() has already been called on this optimizer since the last update()."
            )
        if stage is OptState.STEPPED:
            raise InvalidState("unscale_() is being called after step().")
        self._found_inf[id(optimizer)] = self._unscale(optimizer)
        self._stages[id(optimizer)] = OptState.UNSCALED

    def _unscale(self, optimizer: Optimizer) -> bool:
        """Divide all gradients in place; whether any is infinite or NaN."""
        inverse = 1.0 / self._scale
        finite: list[Tensor] = []
        with mortice.no_grad():
            for group in optimizer.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    if p.grad.dtype == mortice.float16:
                        raise InvalidValue(
                            "Attempting to unscale FP16 gradients: keep the parameters in float32"
                        )
                    p.grad.mul_(inverse)
                    finite.append(p.grad.isfinite().all())
        return not all(bool(value) for value in finite)

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """``optimizer.step(...)`` on unscaled gradients, unless they overflowed."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise InvalidState("Closure use is not currently supported if GradScaler is enabled.")
        key = id(optimizer)
        if self._stages[key] is OptState.STEPPED:
            raise InvalidState("step() has already been called since the last update().")
        if self._stages[key] is OptState.READY:
            self.unscale_(optimizer)
        overflow = self._found_inf[key]
        result = None if overflow else optimizer.step(*args, **kwargs)
        self._stages[key] = OptState.STEPPED
        return result

    def update(self, new_scale: Any = None) -> None:
        """Change the scale by what the steps since the last update found, or to ``new_scale``."""
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale = float(new_scale)
        elif not self._found_inf:
            raise InvalidState("No inf checks were recorded prior to update; call step() first.")
        elif any(self._found_inf.values()):
            self._scale *= self._backoff_factor
            self._growth_tracker = 0
        else:
            self._growth_tracker += 1
            if self._growth_tracker == self._growth_interval:
                self._scale *= self._growth_factor
                self._growth_tracker = 0
        self._found_inf.clear()
        self._stages.clear()

    def get_scale(self) -> float:
        """The present scale; 1 if not enabled."""
        return self._scale if self._enabled else 1.0

    def get_growth_factor(self) -> float:
        """By what the scale grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set by what the scale grows."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """By what the scale shrinks."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set by what the scale shrinks."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """After how many steps the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set after how many steps the scale grows."""
        self._growth_interval = new_interval

    def is_enabled(self) -> bool:
        """Whether scaling happens at all."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """Scale, factors and tracker; empty if not enabled. Call it after ``update``."""
        if not self._enabled:
            return {}
        return {
            "scale": self._scale,
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._growth_tracker,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` returned."""
        if not self._enabled:
            return
        if not state_dict:
            raise InvalidState(
                "The source state dict is empty, possibly because it was saved from a disabled "
                "instance of GradScaler."
            )
        self._scale = float(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._growth_tracker = state_dict["_growth_tracker"]
