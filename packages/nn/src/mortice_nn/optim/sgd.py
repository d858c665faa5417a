"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from mortice.errors import InvalidValue
from mortice_nn.optim.optimizer import (
    Closure,
    Optimizer,
    begin,
    check_common,
    check_range,
    gradient,
    number,
    run_closure,
    zeros,
)


def _velocity(p: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
    if group["momentum"]:
        state["momentum_buffer"] = zeros(p)


class SGD(Optimizer):
    """p -= lr * g, or with momentum v = momentum * v + (1 - dampening) * g; p -= lr * v.

    ``nesterov`` steps along g + momentum * v (Sutskever et al. 2013). ``weight_decay`` adds
    weight_decay * p to g; ``maximize`` climbs.
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: Any = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_common(lr, weight_decay)
        check_range("momentum value", momentum)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise InvalidValue("Nesterov momentum requires a momentum and zero dampening")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)

    def step(self, closure: Closure = None) -> Any:
        loss = run_closure(closure)
        new: set[int] = set()
        if any(group["momentum"] for group in self.param_groups):
            new = begin(self, _velocity, "momentum_buffer")
        for group in self.param_groups:
            rate = number(group["lr"])
            decay = number(group["weight_decay"])
            if group["momentum"]:
                self._momentum_step(group, rate, decay, new)
                continue
            alpha = rate if group["maximize"] else -rate
            for p in group["params"]:
                grad = p.grad
                if grad is not None:
                    if decay:
                        # (-g + decay p) when climbing: the penalty keeps its sign
                        grad = grad.add(p, alpha=-decay if group["maximize"] else decay)
                    p.add_(grad, alpha=alpha)
        return loss

    def _momentum_step(
        self, group: dict[str, Any], rate: float, decay: float, new: set[int]
    ) -> None:
        momentum, dampening = group["momentum"], group["dampening"]
        for p in group["params"]:
            grad = gradient(p, group, decay)
            if grad is None:
                continue
            velocity = self.state[p]["momentum_buffer"]
            # The first velocity is the gradient, undampened. Added to zeros by the operators of
            # later steps, it leaves a compiled step one graph.
            dampened = dampening * (id(p) not in new)
            velocity.mul_(momentum).add_(grad, alpha=1 - dampened)
            p.add_(grad.add(velocity, alpha=momentum) if group["nesterov"] else velocity,
                   alpha=-rate)  # fmt: skip
