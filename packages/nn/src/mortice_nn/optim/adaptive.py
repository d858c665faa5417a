"""Adagrad, Adadelta, RMSprop, Rprop and ASGD."""

from __future__ import annotations

from typing import Any

import mortice
from mortice.errors import InvalidValue
from mortice_nn.optim.optimizer import (
    Closure,
    Optimizer,
    begin,
    check_common,
    check_range,
    count_step,
    gradient,
    new_step,
    number,
    run_closure,
    zeros,
)

_Table = dict[str, Any]


def _rmsprop_state(p: Any, state: _Table, group: _Table) -> None:
    state["step"] = new_step()
    state["square_avg"] = zeros(p)
    if group["momentum"] > 0:
        state["momentum_buffer"] = zeros(p)
    if group["centered"]:
        state["grad_avg"] = zeros(p)


def _adadelta_state(p: Any, state: _Table, group: _Table) -> None:
    state.update(step=new_step(), square_avg=zeros(p), acc_delta=zeros(p))


def _rprop_state(p: Any, state: _Table, group: _Table) -> None:
    size = mortice.full_like(p, number(group["lr"]), requires_grad=False)
    state.update(step=new_step(), prev=zeros(p), step_size=size)


def _asgd_state(p: Any, state: _Table, group: _Table) -> None:
    eta = mortice.tensor(number(group["lr"]), dtype=mortice.float32)
    mu = mortice.ones((), dtype=mortice.float32)
    state.update(step=new_step(), eta=eta, mu=mu, ax=zeros(p))


class RMSprop(Optimizer):
    """Steps by gradient / root mean square of the gradients (Tieleman and Hinton 2012).

    ``centered`` divides by the standard deviation instead.
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_common(lr, weight_decay, eps)
        check_range("momentum value", momentum)
        check_range("alpha value", alpha)
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "alpha": alpha,
            "eps": eps,
            "centered": centered,
            "weight_decay": weight_decay,
            "capturable": capturable,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def step(self, closure: Closure = None) -> Any:
        loss = run_closure(closure)
        begin(self, _rmsprop_state)
        for group in self.param_groups:
            rate, alpha, momentum = number(group["lr"]), group["alpha"], group["momentum"]
            for p in group["params"]:
                grad = gradient(p, group, group["weight_decay"])
                if grad is None:
                    continue
                state = self.state[p]
                count_step(state)
                square = state["square_avg"]
                square.mul_(alpha).add_(grad * grad, alpha=1 - alpha)
                if group["centered"]:
                    mean = state["grad_avg"]
                    mean.mul_(alpha).add_(grad, alpha=1 - alpha)
                    divisor = (square - mean * mean).sqrt_().add_(group["eps"])
                else:
                    divisor = square.sqrt().add_(group["eps"])
                if momentum > 0:
                    velocity = state["momentum_buffer"]
                    p.add_(velocity.mul_(momentum).add_(grad / divisor), alpha=-rate)
                else:
                    p.add_(grad / divisor, alpha=-rate)
        return loss


class Adagrad(Optimizer):
    """Steps by gradient / root of the sum of squares (Duchi et al. 2011)."""

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_common(lr, weight_decay, eps)
        check_range("lr_decay value", lr_decay)
        check_range("initial_accumulator_value value", initial_accumulator_value)
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)
        for group in self.param_groups:
            for p in group["params"]:
                start = mortice.full_like(
                    p, group["initial_accumulator_value"], requires_grad=False
                )
                self.state[p] = {"step": new_step(), "sum": start}

    def step(self, closure: Closure = None) -> Any:
        loss = run_closure(closure)
        for group in self.param_groups:
            rate = number(group["lr"])
            for p in group["params"]:
                grad = gradient(p, group, group["weight_decay"])
                if grad is None:
                    continue
                state = self.state[p]
                step = count_step(state)
                total = state["sum"].add_(grad * grad)
                scale = rate / (1 + (step - 1) * group["lr_decay"])
                p.add_(grad / total.sqrt().add_(group["eps"]), alpha=-scale)
        return loss


class Adadelta(Optimizer):
    """Steps by gradient * rms of the last steps / rms of the gradients (Zeiler 2012)."""

    def __init__(
        self,
        params: Any,
        lr: Any = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_common(lr, weight_decay, eps)
        if not 0.0 <= rho <= 1.0:
            raise InvalidValue(f"Invalid rho value: {rho}; it must be in [0, 1]")
        defaults = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "capturable": capturable,
            "foreach": foreach,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def step(self, closure: Closure = None) -> Any:
        loss = run_closure(closure)
        begin(self, _adadelta_state)
        for group in self.param_groups:
            rate, rho, eps = number(group["lr"]), group["rho"], group["eps"]
            for p in group["params"]:
                grad = gradient(p, group, group["weight_decay"])
                if grad is None:
                    continue
                state = self.state[p]
                count_step(state)
                square, moved = state["square_avg"], state["acc_delta"]
                square.mul_(rho).add_(grad * grad, alpha=1 - rho)
                delta = (moved + eps).sqrt_().div_((square + eps).sqrt_()).mul_(grad)
                moved.mul_(rho).add_(delta * delta, alpha=1 - rho)
                p.add_(delta, alpha=-rate)
        return loss


class Rprop(Optimizer):
    """Steps by the sign of the gradient, longer while it stays (Riedmiller and Braun 1993)."""

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_common(lr, 0)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise InvalidValue(f"Invalid eta values: {etas}; they must be in (0, 1) and above 1")
        defaults = {
            "lr": lr,
            "etas": etas,
            "step_sizes": step_sizes,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def step(self, closure: Closure = None) -> Any:
        loss = run_closure(closure)
        begin(self, _rprop_state)
        for group in self.param_groups:
            shrink, grow = group["etas"]
            smallest, largest = group["step_sizes"]
            for p in group["params"]:
                grad = gradient(p, group)
                if grad is None:
                    continue
                state = self.state[p]
                count_step(state)
                agreement = grad * state["prev"]
                one = mortice.ones_like(agreement)
                factor = mortice.where(agreement > 0, one * grow, one)
                factor = mortice.where(agreement < 0, one * shrink, factor)
                size = state["step_size"].mul_(factor).clamp_(smallest, largest)
                # where the sign turned, no step is taken and the next one starts afresh
                grad = mortice.where(agreement < 0, mortice.zeros_like(grad), grad)
                p.sub_(grad.sign() * size)
                state["prev"].copy_(grad)
        return loss


class ASGD(Optimizer):
    """SGD that also keeps the average of the parameters, as ``state[p]["ax"]`` (Polyak 1992)."""

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_common(lr, weight_decay)
        defaults = {
            "lr": lr,
            "lambd": lambd,
            "alpha": alpha,
            "t0": t0,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def step(self, closure: Closure = None) -> Any:
        loss = run_closure(closure)
        begin(self, _asgd_state)
        for group in self.param_groups:
            rate, lambd = number(group["lr"]), group["lambd"]
            for p in group["params"]:
                grad = gradient(p, group, group["weight_decay"])
                if grad is None:
                    continue
                state = self.state[p]
                step = count_step(state)
                eta, mu = float(state["eta"].item()), float(state["mu"].item())
                p.mul_(1 - lambd * eta)
                p.add_(grad, alpha=-eta)
                if mu == 1:
                    state["ax"].copy_(p)
                else:
                    state["ax"].add_((p - state["ax"]).mul_(mu))
                state["eta"].fill_(rate / (1 + lambd * rate * step) ** group["alpha"])
                state["mu"].fill_(1 / max(1.0, step - group["t0"]))
        return loss
