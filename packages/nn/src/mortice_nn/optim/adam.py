"""Adam and its relatives: AdamW, Adamax, NAdam, RAdam."""

from __future__ import annotations

import math
from typing import Any

import mortice
from mortice_nn.optim.optimizer import (
    Closure,
    MakeState,
    Optimizer,
    begin,
    check_betas,
    check_common,
    check_range,
    count_step,
    gradient,
    new_step,
    number,
    run_closure,
    zeros,
)


def _moments(*names: str) -> MakeState:
    """Makes the state of a parameter seen for the first time: a step count and zeros."""

    def make(p: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        state["step"] = new_step()
        for name in names:
            state[name] = zeros(p)

    return make


_TWO_MOMENTS = _moments("exp_avg", "exp_avg_sq")
_WITH_LARGEST = _moments("exp_avg", "exp_avg_sq", "max_exp_avg_sq")
_WITH_NORM = _moments("exp_avg", "exp_inf")


def _adam_state(p: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
    (_WITH_LARGEST if group["amsgrad"] else _TWO_MOMENTS)(p, state, group)


def _nadam_state(p: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
    state["step"] = new_step()
    state["mu_product"] = mortice.ones((), dtype=mortice.float32)
    state["exp_avg"] = zeros(p)
    state["exp_avg_sq"] = zeros(p)


class Adam(Optimizer):
    """Steps by mean / sqrt(mean square) of the gradients (Kingma and Ba 2015).

    ``betas`` are the decay rates of the two means. ``weight_decay`` adds to the gradient, or with
    ``decoupled_weight_decay`` shrinks the parameter. ``amsgrad`` never lets the divisor fall.
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        check_common(lr, weight_decay, eps)
        check_betas(betas)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)

    def step(self, closure: Closure = None) -> Any:
        loss = run_closure(closure)
        begin(self, _adam_state)
        for group in self.param_groups:
            rate = number(group["lr"])
            beta1, beta2 = (number(beta) for beta in group["betas"])
            decay, eps, amsgrad = group["weight_decay"], group["eps"], group["amsgrad"]
            decoupled = group["decoupled_weight_decay"]
            for p in group["params"]:
                grad = gradient(p, group, 0 if decoupled else decay)
                if grad is None:
                    continue
                state = self.state[p]
                step = count_step(state)
                mean, square = state["exp_avg"], state["exp_avg_sq"]
                if decoupled and decay:
                    p.mul_(1 - rate * decay)
                mean.mul_(beta1).add_(grad, alpha=1 - beta1)
                square.mul_(beta2).add_(grad * grad, alpha=1 - beta2)
                if amsgrad:
                    square = state["max_exp_avg_sq"].copy_(
                        mortice.maximum(state["max_exp_avg_sq"], square)
                    )
                divisor = square.sqrt().mul_((1 - beta2**step) ** -0.5).add_(eps)
                p.add_(mean / divisor, alpha=-rate / (1 - beta1**step))
        return loss


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        # Files from before this option existed, loaded into AdamW, mean the decoupled form.
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True


class Adamax(Optimizer):
    """Adam with the infinity norm in place of the root mean square (Kingma and Ba 2015)."""

    def __init__(
        self,
        params: Any,
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_common(lr, weight_decay, eps)
        check_betas(betas)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def step(self, closure: Closure = None) -> Any:
        loss = run_closure(closure)
        begin(self, _WITH_NORM)
        for group in self.param_groups:
            rate = number(group["lr"])
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                grad = gradient(p, group, group["weight_decay"])
                if grad is None:
                    continue
                state = self.state[p]
                step = count_step(state)
                mean, largest = state["exp_avg"], state["exp_inf"]
                mean.mul_(beta1).add_(grad, alpha=1 - beta1)
                largest.copy_(mortice.maximum(largest * beta2, grad.abs().add_(group["eps"])))
                p.add_(mean / largest, alpha=-rate / (1 - beta1**step))
        return loss


class NAdam(Optimizer):
    """Adam with Nesterov momentum (Dozat 2016)."""

    def __init__(
        self,
        params: Any,
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_common(lr, weight_decay, eps)
        check_betas(betas)
        check_range("momentum_decay value", momentum_decay)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def step(self, closure: Closure = None) -> Any:
        loss = run_closure(closure)
        begin(self, _nadam_state)
        for group in self.param_groups:
            rate = number(group["lr"])
            beta1, beta2 = group["betas"]
            decay, drift = group["weight_decay"], group["momentum_decay"]
            decoupled = group["decoupled_weight_decay"]
            for p in group["params"]:
                grad = gradient(p, group, 0 if decoupled else decay)
                if grad is None:
                    continue
                state = self.state[p]
                step = count_step(state)
                mean, square = state["exp_avg"], state["exp_avg_sq"]
                if decoupled and decay:
                    p.mul_(1 - rate * decay)
                mu = beta1 * (1 - 0.5 * 0.96 ** (step * drift))
                mu_next = beta1 * (1 - 0.5 * 0.96 ** ((step + 1) * drift))
                state["mu_product"].mul_(mu)
                product = float(state["mu_product"].item())
                mean.mul_(beta1).add_(grad, alpha=1 - beta1)
                square.mul_(beta2).add_(grad * grad, alpha=1 - beta2)
                divisor = square.div(1 - beta2**step).sqrt_().add_(group["eps"])
                p.add_(grad / divisor, alpha=-rate * (1 - mu) / (1 - product))
                p.add_(mean / divisor, alpha=-rate * mu_next / (1 - product * mu_next))
        return loss


class RAdam(Optimizer):
    """Adam that starts as momentum until the variance of its divisor is known (Liu et al. 2020)."""

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_common(lr, weight_decay, eps)
        check_betas(betas)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def step(self, closure: Closure = None) -> Any:
        loss = run_closure(closure)
        begin(self, _TWO_MOMENTS)
        for group in self.param_groups:
            rate = number(group["lr"])
            beta1, beta2 = group["betas"]
            decay, decoupled = group["weight_decay"], group["decoupled_weight_decay"]
            for p in group["params"]:
                grad = gradient(p, group, 0 if decoupled else decay)
                if grad is None:
                    continue
                state = self.state[p]
                step = count_step(state)
                mean, square = state["exp_avg"], state["exp_avg_sq"]
                if decoupled and decay:
                    p.mul_(1 - rate * decay)
                mean.mul_(beta1).add_(grad, alpha=1 - beta1)
                square.mul_(beta2).add_(grad * grad, alpha=1 - beta2)
                # length of the simple moving average that the running mean approximates
                longest = 2 / (1 - beta2) - 1
                length = longest - 2 * step * beta2**step / (1 - beta2**step)
                scale = rate / (1 - beta1**step)
                if length <= 5:
                    p.add_(mean, alpha=-scale)
                    continue
                rectified = math.sqrt(
                    (length - 4) * (length - 2) * longest
                    / ((longest - 4) * (longest - 2) * length)
                )  # fmt: skip
                adaptive = math.sqrt(1 - beta2**step)
                p.add_(mean / square.sqrt().add_(group["eps"]), alpha=-scale * rectified * adaptive)
        return loss
