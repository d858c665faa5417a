"""LBFGS: quasi-Newton steps from the last gradients (Nocedal 1980; Liu and Nocedal 1989)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mortice
from mortice import Tensor
from mortice.errors import InvalidValue
from mortice_nn.optim.optimizer import Closure, Optimizer, check_range, number

# loss at a step length, the gradient there, and its slope along the direction
Point = tuple[float, float, Tensor, float]


class LBFGS(Optimizer):
    """Up to ``max_iter`` iterations a ``step(closure)``; all parameters in one group.

    Keeps ``history_size`` pairs of steps and gradient changes. ``line_search_fn``: None takes
    ``lr`` times the direction, "strong_wolfe" searches (Nocedal and Wright 2006, 3.5 and 3.6).
    Ends where no gradient exceeds ``tolerance_grad`` or nothing changes by ``tolerance_change``.
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        check_range("learning rate", lr)
        if line_search_fn not in (None, "strong_wolfe"):
            raise InvalidValue(
                f"line_search_fn {line_search_fn!r} is unknown; only 'strong_wolfe' is supported"
            )
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise InvalidValue("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params: list[Tensor] = self.param_groups[0]["params"]

    def _gradient(self) -> Tensor:
        """All gradients as one vector; zeros where a parameter has none."""
        return mortice.cat(
            [
                (mortice.zeros_like(p) if p.grad is None else p.grad).detach().reshape(-1)
                for p in self._params
            ]
        )

    def _move(self, length: float, direction: Tensor) -> None:
        at = 0
        for p in self._params:
            n = p.numel()
            p.add_(direction[at : at + n].reshape(p.shape), alpha=length)
            at += n

    def step(self, closure: Closure = None) -> Any:
        if closure is None:
            raise InvalidValue(
                "LBFGS.step needs a closure that computes the loss and its gradients"
            )
        group = self.param_groups[0]
        evaluate = _with_gradients(closure)
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first = evaluate()
        loss = float(first)
        evaluations = 1
        state["func_evals"] += 1
        grad = self._gradient()
        if float(grad.abs().max()) <= group["tolerance_grad"]:
            return first
        direction, length = state.get("d"), state.get("t")
        previous_grad, previous_loss = state.get("prev_flat_grad"), state.get("prev_loss")
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            if state["n_iter"] == 1:
                direction = -grad
                state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
            else:
                _remember(state, grad - previous_grad, direction * length, group["history_size"])
                direction = _two_loops(state, grad)
            previous_grad, previous_loss = grad.clone(), loss
            rate = number(group["lr"])
            length = rate
            if state["n_iter"] == 1:
                length = min(1.0, 1.0 / float(grad.abs().sum())) * rate
            slope = float((grad * direction).sum())
            if slope > -group["tolerance_change"]:
                break
            if group["line_search_fn"] == "strong_wolfe":
                loss, grad, length, used = self._search(
                    evaluate, length, direction, loss, grad, slope
                )
            else:
                self._move(length, direction)
                used = 0
                if iteration != group["max_iter"]:
                    loss = float(evaluate())
                    grad = self._gradient()
                    used = 1
            evaluations += used
            state["func_evals"] += used
            if (
                evaluations >= group["max_eval"]
                or float(grad.abs().max()) <= group["tolerance_grad"]
                or float((direction * length).abs().max()) <= group["tolerance_change"]
                or abs(loss - previous_loss) < group["tolerance_change"]
            ):
                break
        state.update(d=direction, t=length, prev_flat_grad=previous_grad, prev_loss=previous_loss)
        return first

    def _search(
        self,
        evaluate: Callable[[], Any],
        length: float,
        direction: Tensor,
        loss: float,
        grad: Tensor,
        slope: float,
    ) -> tuple[float, Tensor, float, int]:
        """A step that satisfies the strong Wolfe conditions; the parameters are moved by it."""
        start = [p.clone() for p in self._params]

        def at(t: float) -> Point:
            self._move(t, direction)
            value = float(evaluate())
            found = self._gradient()
            for p, origin in zip(self._params, start, strict=True):
                p.copy_(origin)
            return t, value, found, float((found * direction).sum())

        tolerance = self.param_groups[0]["tolerance_change"]
        size = float(direction.abs().max())
        (t, value, found, _), used = strong_wolfe(
            at, length, (0.0, loss, grad, slope), size, tolerance
        )
        self._move(t, direction)
        return value, found, t, used


def _with_gradients(closure: Callable[[], Any]) -> Callable[[], Any]:
    def evaluate() -> Any:
        with mortice.enable_grad():
            return closure()

    return evaluate


def _remember(state: dict[str, Any], change: Tensor, step: Tensor, size: int) -> None:
    """Keep a pair if it has positive curvature."""
    curvature = float((change * step).sum())
    if curvature <= 1e-10:
        return
    if len(state["old_dirs"]) == size:
        for name in ("old_dirs", "old_stps", "ro"):
            state[name].pop(0)
    state["old_dirs"].append(change)
    state["old_stps"].append(step)
    state["ro"].append(1.0 / curvature)
    state["H_diag"] = curvature / float((change * change).sum())


def _two_loops(state: dict[str, Any], grad: Tensor) -> Tensor:
    """-H grad by the two-loop recursion."""
    changes, steps, inverses = state["old_dirs"], state["old_stps"], state["ro"]
    result = -grad
    factors: list[float] = []
    for change, step, inverse in zip(changes[::-1], steps[::-1], inverses[::-1], strict=True):
        factor = float((step * result).sum()) * inverse
        factors.append(factor)
        result = result - change * factor
    result = result * state["H_diag"]
    for change, step, inverse, factor in zip(changes, steps, inverses, factors[::-1], strict=True):
        result = result + step * (factor - float((change * result).sum()) * inverse)
    return result


def strong_wolfe(
    at: Callable[[float], Point],
    length: float,
    origin: Point,
    size: float,
    tolerance: float,
    c1: float = 1e-4,
    c2: float = 0.9,
    limit: int = 25,
) -> tuple[Point, int]:
    """A point with enough decrease and a small slope, and how many evaluations it took.

    Nocedal and Wright 2006, algorithms 3.5 (bracket) and 3.6 (zoom), by cubic interpolation;
    ``size`` is the largest element of the direction, for the smallest bracket worth splitting.
    """
    _, loss, _, slope = origin

    def too_high(point: Point, other: Point) -> bool:
        return point[1] > loss + c1 * point[0] * slope or point[1] >= other[1]

    def flat(point: Point) -> bool:
        return abs(point[3]) <= -c2 * slope

    previous, current, used = origin, at(length), 1
    while used < limit:
        if too_high(current, previous if used > 1 else (0.0, float("inf"), origin[2], 0.0)):
            low, high = previous, current
            break
        if flat(current):
            return current, used
        if current[3] >= 0:
            low, high = current, previous
            break
        lower, upper = current[0] + 0.01 * (current[0] - previous[0]), current[0] * 10
        step = cubic_minimum(previous, current, lower, upper)
        previous, current, used = current, at(step), used + 1
    else:
        return min(origin, current, key=lambda point: point[1]), used
    stalled = False
    while used < limit and abs(high[0] - low[0]) * size >= tolerance:
        lower, upper = sorted((low[0], high[0]))
        step = cubic_minimum(low, high, lower, upper)
        # near an end twice: take a tenth of the bracket from that end instead
        margin = 0.1 * (upper - lower)
        if min(upper - step, step - lower) < margin:
            if stalled or not lower < step < upper:
                step = upper - margin if upper - step < step - lower else lower + margin
                stalled = False
            else:
                stalled = True
        else:
            stalled = False
        point = at(step)
        used += 1
        if too_high(point, low):
            high = point
            continue
        if flat(point):
            return point, used
        if point[3] * (high[0] - low[0]) >= 0:
            high = low
        low = point
    return low, used


def cubic_minimum(a: Point, b: Point, lower: float, upper: float) -> float:
    """Minimiser within the bounds of the cubic with the two points' values and slopes."""
    if a[0] > b[0]:
        a, b = b, a
    (x1, f1, _, g1), (x2, f2, _, g2) = a, b
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1 * d1 - g1 * g2
    if square < 0:
        return (lower + upper) / 2
    d2 = square**0.5
    bottom = g2 - g1 + 2 * d2
    if bottom == 0:
        return (lower + upper) / 2
    return min(max(x2 - (x2 - x1) * ((g2 + d2 - d1) / bottom), lower), upper)
