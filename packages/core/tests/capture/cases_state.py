"""Cases: dtypes, shapes, modes, arguments, errors, warnings, threads, finalizers, modules."""

# The programs are written for what they do, not for style.
# ruff: noqa: E731, B007

from __future__ import annotations

import collections
import gc
import logging
import threading
import typing
import warnings
import weakref
from typing import Any

from packages.core.tests.capture.world import (
    ALWAYS,
    LOG,
    REPLAY,
    A,
    D,
    G,
    Lin,
    both,
    case,
    put,
    t,
)

import mortice

P = collections.namedtuple("P", "x y")


def leaf(*values: float) -> Any:
    return t(*values, requires_grad=True)


def L() -> Any:
    return (leaf(),), {}


# -- dtypes, shapes, state of the framework ----------------------------------------------------------------


@case(REPLAY, 4)
def dtypes():
    kinds = (mortice.float32, mortice.float64, mortice.int64, mortice.bfloat16)
    return lambda x: x * 2 + x.sum(), both(*[(None, lambda k=k: ((t().to(k),), {})) for k in kinds])


@case(REPLAY, 5)
def shapes():
    def sized(*n):
        return lambda: ((mortice.ones(*n),), {})

    return lambda x: x * x.shape[0] + len(x), both(
        *[(None, sized(*n)) for n in ((2,), (3,), (2, 2), (4, 1), (1,))]
    )


@case(REPLAY, 2)
def strides():
    return lambda x: (x * 2, x.reshape(-1)), both(
        (None, lambda: ((mortice.ones(2, 3),), {})), (None, lambda: ((mortice.ones(3, 2).t(),), {}))
    )


@case(REPLAY, 3)
def default_dtype():
    def change():
        mortice.set_default_dtype(mortice.float64)

    return lambda x: x + mortice.ones(3), both((None, A), (change, A)) + [
        (lambda: mortice.set_default_dtype(mortice.float32), lambda: ((t(),), {}))
    ]


@case(REPLAY, 1)
def autocast_inside():
    def f(x):
        with mortice.autocast("cpu", dtype=mortice.bfloat16):
            y = x @ x
        return y, x @ x

    return f, both((None, lambda: ((mortice.ones(2, 2),), {})))


@case(ALWAYS)
def leaves_grad_mode_changed():
    def f(x):
        mortice.set_grad_enabled(False)
        return x * 2

    return f, [(lambda: mortice.set_grad_enabled(True), L)] * 4


@case(ALWAYS)
def seed_inside():
    def f(x):
        mortice.manual_seed(3)
        return x + mortice.rand(3)

    return f, both((None, A))


@case(REPLAY, 3)
def random_numbers():
    def f(x):
        return x + mortice.rand(3) * mortice.randn(3), mortice.rand_like(x)

    return f, [
        (None, A),
        (None, A),
        (lambda: mortice.manual_seed(5), A),
        (lambda: mortice.rand(2), A),
    ]


@case(REPLAY, 3)
def random_numbers_and_values():
    def f(x):
        y = x + mortice.rand(3)
        if x.sum() > 3:
            return y + mortice.rand(3)
        z = mortice.bernoulli(mortice.full((3,), 0.5))
        return y - z, mortice.randint(0, 9, (2,))

    small = lambda: ((t(0.0, 0.0, 1.0),), {})
    return f, both((None, A), (None, small)) + [(None, A)]


@case(REPLAY, 2)
def dropout():
    from mortice import nn

    net = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2), nn.Dropout(0.2))
    return net, [(None, A)] * 3, list(net.parameters())


@case(ALWAYS)
def generator_given():
    g = mortice.Generator()
    return lambda x: x + mortice.rand(3, generator=g), both((lambda: g.manual_seed(1), A))


@case(ALWAYS)
def metadata_of_argument_changed():
    def f(x):
        x.unsqueeze_(0)
        return x * 2

    return f, both((None, A))


@case(ALWAYS)
def requires_grad_set():
    def f(x):
        x.requires_grad_()
        return x * 2

    return f, both((None, A))


# -- arguments -------------------------------------------------------------------------------------------


def numbers(*values):
    return [
        (None, lambda v=v: ((t(), *v) if isinstance(v, tuple) else (t(), v), {})) for v in values
    ]


@case(REPLAY, 7)
def numbers_as_inputs():
    def f(x, a):
        return x * a + (a * 2 - 1), x.mul(-a).add_(a), x > a

    return f, numbers(1.5, 2.5, -0.0, 0.0, float("inf"), float("nan"), 1e30, -1.0)


@case(REPLAY, 3)
def whole_numbers_as_inputs():
    return lambda x, n: x * n + (n - 3), numbers(1, 2, 3, 1 << 40)


@case(REPLAY, 2)
def numbers_of_several_types():
    return lambda x, n: x * n, numbers(1, 1.0, True, 2, 2.0)


@case(REPLAY, 4)
def numbers_through_calls():
    def g(x, s, t=1.0):
        return x * s + t

    def f(x, a, *, b=2.0):
        s = a
        s *= 3
        h = lambda y, k, m: g(y, k, t=m)
        return h(x, a + b, s)

    return f, numbers(1.0, 2.0, 3.0) + [
        (None, lambda b=b: ((t(), 1.0), {"b": b})) for b in (1.0, 5.0, 7.0)
    ]


@case(REPLAY, 2)
def numbers_looked_at():
    def f(x, a, n):
        y = x[:n]
        return y * a if a > 1 else y - a

    return f, numbers((2.0, 1), (2.0, 1), (3.0, 1), (3.0, 2), (0.5, 2), (0.5, 2))


@case(REPLAY, 3)
def numbers_in_containers():
    def f(x, a):
        d = {"a": a}
        return x * d["a"], [a, a + 1], f"{a}"

    return f, numbers(1.0, 2.0, 1.0, 2.0, 1.0)


@case(REPLAY, 3)
def numbers_equal_and_apart():
    return lambda x, a, b: mortice.clamp(x, a, b) + a * b, numbers(
        (1.0, 2.0), (2.0, 2.0), (0.0, 5.0), (3.0, 1.0)
    )


@case(REPLAY, 2)
def numbers_that_make_sizes():
    return lambda x, n: x.repeat(n) + mortice.full((n,), 2.0).sum(), numbers(1, 2, 1, 2)


@case(REPLAY, 3)
def learning_rate():
    w = leaf_of_zeros()

    def f(x, lr):
        with mortice.no_grad():
            w.sub_(x * lr)
        return w * 1

    return f, numbers(0.1, 0.01, 0.5, 0.25), [w]


def leaf_of_zeros() -> Any:
    return mortice.zeros(3)


@case(REPLAY, 2)
def nested_arguments():
    def f(batch, scale=1.0):
        return {"out": batch["x"][0] * batch["p"].y + batch["d"].a * scale}

    def args():
        return ({"x": [t(), t()], "p": P(1, t()), "d": D(2.0)},), {"scale": 3.0}

    return f, [(None, args)] * 3


@case(REPLAY, 3)
def list_argument():
    def step(n):
        return (None, lambda: (([t() for _ in range(n)],), {}))

    return lambda xs: sum(xs[1:], xs[0]), both(step(2), step(3)) + [step(2)]


@case(REPLAY, 1)
def keywords_in_another_order():
    def f(**k):
        x = None
        for v in k.values():
            x = v if x is None else x * 2 + v
        return x, list(k)

    def first():
        return (), {"a": t(), "b": t(4.0, 5.0, 6.0)}

    def second():
        return (), {"b": t(4.0, 5.0, 6.0), "a": t()}

    return f, [(None, first), (None, second), (None, first)]


@case(REPLAY, 4)
def text_and_none():
    def f(x, how=None):
        if how is None:
            return x
        return x * 2 if how == "twice" else x * 3

    return f, both(
        *[(None, lambda h=h: ((t(), h), {})) for h in (None, "twice", "thrice", "twice")]
    )[:-1]


@case(REPLAY, 2)
def keyword_named_self():
    return lambda x, self: x * self, [(None, lambda: ((t(),), {"self": 2.0}))] * 3


@case(REPLAY, 3)
def bound_method():
    o = Lin()
    return o.forward, both((None, A), (put(o, "train", False), A)) + [(None, A)]


# -- errors, warnings, logs, finalizers --------------------------------------------------------------------


@case(ALWAYS)
def late_value_error():
    def f(x, i):
        LOG.append("before")
        y = x[i]
        LOG.append("after")
        return y

    good = lambda: ((t(), mortice.tensor([0, 1])), {})
    bad = lambda: ((t(), mortice.tensor([7])), {})
    return f, both((None, good), (None, bad))


@case(REPLAY, 3)
def late_value_error_replayed():
    good = lambda: ((t(), mortice.tensor([0, 1])), {})
    bad = lambda: ((t(), mortice.tensor([7, 1])), {})
    return lambda x, i: x[i] * 2, both((None, good), (None, bad))


@case(REPLAY, 2)
def shape_error():
    good = lambda: ((t(), t()), {})
    bad = lambda: ((t(), t(1.0, 2.0)), {})
    return lambda x, y: x + y, [(None, good), (None, bad), (None, good), (None, bad), (None, good)]


@case(ALWAYS)
def finalizer():
    class F:
        def __init__(self, v):
            self.v = v

        def __del__(self):
            LOG.append("gone")

    def f(x):
        return x * F(2.0).v

    return f, both((None, A))


@case(ALWAYS)
def weakref_callback():
    def f(x):
        y = x * 2
        r = weakref.ref(y, lambda _: LOG.append("dead"))
        z = y + 1
        del y
        LOG.append(r() is None)
        return z

    return f, both((None, A))


@case(REPLAY, 3)
def keyboard_interrupt():
    stop = [False]

    def f(x):
        y = x * 2
        if stop[0]:
            LOG.append("stopping")
            raise KeyboardInterrupt
        return y

    return f, [
        (None, A), (None, A), (lambda: stop.__setitem__(0, True), A), (None, A),
        (lambda: stop.__setitem__(0, False), A), (None, A), (lambda: stop.__setitem__(0, True), A),
        (None, A), (None, A),
    ]  # fmt: skip


@case(ALWAYS)
def warns():
    def f(x):
        warnings.warn("careful", UserWarning, stacklevel=1)
        return x * 2

    return f, both((None, A))


@case(ALWAYS)
def logs():
    logger = logging.getLogger("mortice.cases")
    logger.handlers = [_Keep()]
    logger.propagate = False

    def f(x):
        logger.warning("value %s", x.shape)
        return x * 2

    return f, both((None, A))


class _Keep(logging.Handler):
    def emit(self, record: Any) -> None:
        LOG.append((record.getMessage(), record.lineno, record.funcName))


@case(REPLAY, 1)
def recursion():
    def f(x, n=3):
        return x if n == 0 else f(x * 2, n - 1)

    return f, both((None, A))


@case(ALWAYS)
def thread_changes_state():
    def f(x):
        y = x * G["k"]
        other = threading.Thread(target=lambda: G.__setitem__("k", G["k"] + 1))
        other.start()
        other.join()
        return y * G["k"]

    return f, both((None, A))


@case(ALWAYS)
def thread_reads_pending():
    def f(x):
        y = x * 2
        seen = []
        other = threading.Thread(target=lambda: seen.append(y.sum().item()))
        other.start()
        other.join()
        return y + seen[0]

    return f, both((None, A))


@case(REPLAY, 1)
def collected_world():
    """Objects that guards speak of may die."""
    boxes = [Lin()]

    def f(x):
        return x * boxes[0].w

    def renew():
        boxes[0] = Lin()
        gc.collect()

    return f, [(None, A), (renew, A)]


@case(REPLAY, 2)
def lazy_initialisation():
    """Only the first call has an effect."""
    o = Lin()
    o.cache = None  # type: ignore[attr-defined]

    def f(x):
        if o.cache is None:
            o.cache = x * 0 + 5
        return x * o.cache

    return f, [(None, A)] * 4


@case(REPLAY, 3)
def effect_on_one_way_only():
    def f(x):
        if x.sum() > 100:
            LOG.append("large")
        return x * 2

    large = lambda: ((t(200.0, 0.0, 0.0),), {})
    return f, [
        (None, A),
        (None, A),
        (None, large),
        (None, A),
        (None, large),
        (None, A),
        (None, large),
    ]


@case(REPLAY, 2)
def error_handled_inside():
    def f(x):
        try:
            return x.reshape(2, 2)
        except RuntimeError as e:
            return x * len(str(e)[:3])

    return f, [(None, A)] * 3


# -- modules ---------------------------------------------------------------------------------------------


def _net() -> Any:
    from mortice import nn

    mortice.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


@case(REPLAY, 3)
def module_trained():
    net = _net()
    return net, [(None, A)] * 4, list(net.parameters())


@case(REPLAY, 5)
def module_changed():
    from mortice import nn

    net = _net().requires_grad_(False)
    return (
        net,
        both(
            (None, A),
            (lambda: net.__setitem__(1, nn.Tanh()), A),
            (lambda: put(net[0], "weight", nn.Parameter(mortice.ones(4, 3)))(), A),
            (lambda: net.append(nn.Sigmoid()), A),
            (lambda: net[0].register_forward_hook(lambda m, i, o: o * 2), A),
        ),
    )


@case(REPLAY, 2)
def module_mode():
    from mortice import nn

    net = nn.Sequential(nn.Dropout(0.0), nn.Linear(3, 2)).requires_grad_(False)
    return net, both((lambda: net.eval(), A)) + [(None, A)]


@case(REPLAY, 2)
def module_buffers():
    from mortice import nn

    norm = nn.BatchNorm1d(3)
    x = lambda: ((mortice.arange(6.0).reshape(2, 3),), {})
    return norm.eval(), both((None, x)) + [(None, x)], list(norm.buffers())


@case(REPLAY, 2)
def module_methods():
    from mortice import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])
            self.scale = nn.Parameter(mortice.ones(1))
            self.register_buffer("shift", mortice.ones(3))

        def forward(self, x: Any) -> Any:
            for i, layer in enumerate(self.layers):
                x = nn.functional.gelu(layer(x)) * self.scale
            return {"y": x + self.shift, "n": len(self.layers)}

    mortice.manual_seed(2)
    net = Net()
    return net, [(None, A)] * 3, list(net.parameters())


class Out(typing.NamedTuple):
    a: Any
    b: Any


@case(REPLAY, 2)
def named_results():
    return lambda x: Out(x * 2, [x.max(0).values, x.sort()]), [(None, A)] * 3
