"""Run as a program: each case compiled and eager, and what compiling took, as one line of JSON.

A case is a function that makes (function, arguments); it is called, and what requires grad is
differentiated, eagerly and compiled, and all values are compared.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import mortice
import mortice.nn
from mortice._capture import captured
from mortice._compile import stages
from mortice_inductor import front

F = mortice.nn.functional
COUNTS = {"built": 0, "traced": 0, "given": 0, "compiled": 0}


def counted(module: Any, name: str, what: str) -> None:
    original = getattr(module, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        COUNTS[what] += 1
        return original(*args, **kwargs)

    setattr(module, name, wrapped)


counted(captured, "build", "built")
counted(stages, "trace_joint", "traced")
counted(stages, "call_backend", "given")
counted(front, "_compiled", "compiled")


def weights(*shapes: tuple[int, ...]) -> list[Any]:
    generator = mortice.Generator().manual_seed(3)
    return [mortice.randn(*s, generator=generator).requires_grad_() for s in shapes]


def data(*shape: int) -> Any:
    return mortice.randn(*shape, generator=mortice.Generator().manual_seed(5))


# -- cases: (function, arguments of each call, options of compile) -----------------------------------

Case = tuple[Callable[..., Any], list[Any], dict[str, Any]]


def inference() -> Case:
    x = data(6, 8)
    return lambda x: (x.softmax(-1) * 2.5 + x.sum(0)).relu(), [(x,)], {}


def training() -> Case:
    w, b = weights((8, 4), (4,))
    return lambda x, w, b: F.gelu(x @ w + b).sum(), [(data(6, 8), w, b)], {}


def numbers() -> Case:
    (w,) = weights((8, 4))
    return lambda w, a: (w * a).tanh().sum(), [(w, 0.5), (w, 0.75)], {}


def exponents() -> Case:
    """What is traced depends on the number: another exponent is another graph."""
    (w,) = weights((5,))
    return lambda w, p: (w.abs() + 1).pow(p).sum(), [(w, 2.0), (w, 3.0)], {}


def second_size() -> Case:
    (w,) = weights((8, 4))
    rows = [(data(n, 8), w) for n in (6, 9, 11)]
    return lambda x, w: (x @ w).tanh().sum(), rows, {}


def dynamic() -> Case:
    (w,) = weights((8, 4))
    return lambda x, w: (x @ w).exp().mean(), [(data(6, 8), w), (data(7, 8), w)], {"dynamic": True}


def dynamic_inference() -> Case:
    rows = [(data(n, 8),) for n in (6, 7)]
    return lambda x: x.reshape(-1).cos() * x.shape[0], rows, {"dynamic": True}


def marked() -> Case:
    (w,) = weights((8, 4))
    x = data(6, 8)
    mortice.compiler.mark_dynamic(x, 0)
    return lambda x, w: (x @ w).sigmoid().sum(), [(x, w), (data(5, 8), w)], {}


def grad_modes() -> Case:
    w, v = weights((8, 4), (8, 4))

    def f(w: Any, v: Any) -> Any:
        with mortice.no_grad():
            scale = (v * 2).exp()
        return (w * scale).sum() + v.sum()

    return f, [(w, v)], {}


def without_grad() -> Case:
    (w,) = weights((8, 4))

    def f(w: Any) -> Any:
        with mortice.no_grad():
            return (w * 3).exp()

    return f, [(w,)], {}


def autocast() -> Case:
    (w,) = weights((8, 4))

    def f(x: Any, w: Any) -> Any:
        with mortice.autocast("cpu", dtype=mortice.bfloat16):
            return (x @ w).float().sum()

    return f, [(data(6, 8), w)], {}


def dropout() -> Case:
    (w,) = weights((8, 4))
    return lambda x, w: F.dropout(x @ w, 0.5).sum() + mortice.rand(3).sum(), [(data(6, 8), w)], {}


def generator() -> Case:
    g = mortice.Generator()

    def f(x: Any) -> Any:
        g.manual_seed(7)
        return x + mortice.randn(6, 8, generator=g)

    return f, [(data(6, 8),)], {}


def write_back() -> Case:
    def f(x: Any) -> Any:
        x.mul_(2).add_(1)
        return x.sum()

    return f, [(data(6, 8),)], {}


def write_back_with_history() -> Case:
    (w,) = weights((6, 8))

    def f(w: Any) -> Any:
        x = mortice.zeros(6, 8)
        x.copy_(w * 2)
        x[1] += w[0]
        return x.exp().sum()

    return f, [(w,)], {}


def aliases() -> Case:
    (w,) = weights((6, 8))

    def f(x: Any, w: Any) -> Any:
        h = (x * w).tanh()
        return h, h.t(), h[0], x, w.reshape(-1)

    return f, [(data(6, 8), w)], {}


def some_gradients() -> Case:
    w, v = weights((6, 8), (6, 8))

    def f(w: Any, v: Any) -> Any:
        return (w * v).sum(), (v.exp() * 1e3).sum().detach(), (v * 2).sum()

    return f, [(w, v)], {}


def options() -> Case:
    (w,) = weights((8, 4))
    return lambda w: (w.exp() + 1).log().sum(), [(w,)], {"options": {"fusion": False}}


def shared_memory() -> Case:
    x = data(12)

    def f(a: Any, b: Any) -> Any:
        a.add_(1)
        return b * 2

    return f, [(x[:8], x[4:])], {}


CASES = {
    f.__name__: f
    for f in (
        inference, training, numbers, exponents, second_size, dynamic, dynamic_inference, marked,
        grad_modes, without_grad, autocast, dropout, generator, write_back, write_back_with_history,
        aliases, some_gradients, options, shared_memory,
    )
}  # fmt: skip


# -- running them -------------------------------------------------------------------------------------


def values(f: Callable[..., Any], calls: list[Any]) -> list[Any]:
    """What each call gives, what it leaves in its arguments, and the gradients."""
    found: list[Any] = []
    for args in calls:
        mortice.manual_seed(11)
        for x in args:
            if hasattr(x, "grad"):
                x.grad = None
        out = f(*args)
        outs = out if isinstance(out, tuple) else (out,)
        tracked = [y.sum() for y in outs if y.requires_grad]
        if tracked:
            sum(tracked[1:], tracked[0]).backward()
        found += [y.detach().clone() for y in outs]
        found += [x.detach().clone() for x in args if hasattr(x, "grad")]
        found += [x.grad.clone() for x in args if getattr(x, "grad", None) is not None]
    return found


def run(name: str) -> dict[str, Any]:
    f, calls, _ = CASES[name]()
    wanted = values(f, calls)
    f, calls, given = CASES[name]()
    before = dict(COUNTS)
    found = values(mortice.compile(f, backend="inductor", **given), calls)
    tolerance = 1e-2 if name == "autocast" else 1e-5
    same = len(found) == len(wanted) and all(
        a.dtype == b.dtype and a.shape == b.shape and mortice.allclose(a, b, tolerance, tolerance)
        for a, b in zip(found, wanted)
    )
    return {"same": same, **{k: COUNTS[k] - before[k] for k in COUNTS}}


if __name__ == "__main__":
    for change in sys.argv[2:]:
        exec(change)
    chosen = sys.argv[1].split(",") if sys.argv[1] != "all" else list(CASES)
    report: dict[str, Any] = {name: run(name) for name in chosen}
    report["lowered"] = "mortice_inductor.lowering" in sys.modules
    print(json.dumps(report))
