"""Cases: gradients, aliases of arguments and results, and values read between writes."""

# The programs are written for what they do, not for style.
# ruff: noqa: E731

from __future__ import annotations

import collections
from typing import Any

import numpy as np
from packages.core.tests.capture.world import (
    ALWAYS,
    LOG,
    REPLAY,
    A,
    both,
    case,
    t,
)

import mortice

P = collections.namedtuple("P", "x y")


def leaf(*values: float) -> Any:
    return t(*values, requires_grad=True)


def L() -> Any:
    return (leaf(),), {}


# -- gradients -----------------------------------------------------------------------------------------


@case(REPLAY, 3)
def grad_of_argument():
    return lambda x: (x * x).sum() + x.exp()[0], [(None, L)] * 4


@case(REPLAY, 4)
def grad_on_and_off():
    return lambda x: x * 2 + 1, both((None, L), (None, A)) + [(None, L), (None, A)]


@case(REPLAY, 3)
def grad_of_captured():
    w = leaf()
    return lambda x: (x * w).sum(), [(None, A)] * 4, [w]


@case(REPLAY, 3)
def grad_frozen_later():
    w = leaf()
    return (
        lambda x: (x * w).sum(),
        [(None, A), (None, A), (lambda: w.requires_grad_(False), A), (None, A), (None, A)],
        [w],
    )


@case(REPLAY, 1)
def grad_of_non_leaf():
    def step():
        x = leaf()
        y = x * 3
        y.retain_grad()
        return (y,), {}

    return lambda x: x * x, both((None, step))


@case(REPLAY, 1)
def grad_detached():
    def f(x):
        y = x * 2
        return y * y.detach(), y.detach()

    return f, both((None, L))


@case(REPLAY, 3)
def grad_mode_around():
    def modes():
        mortice.set_grad_enabled(not mortice.is_grad_enabled())

    return lambda x: x * 2, both((None, L), (modes, L)) + [(modes, L)]


@case(REPLAY, 3)
def grad_through_a_branch():
    w = leaf(1.0, -1.0, 2.0)

    def f(x):
        y = x * w
        if y.sum() > 0:
            return (y * w).sum()
        return (y - w).sum()

    negative = lambda: ((t(-1.0, -2.0, -3.0),), {})
    return f, both((None, A), (None, negative)) + [(None, A)], [w]


@case(REPLAY, 1)
def grad_with_views():
    def f(x):
        y = x * 2
        return y[1:], y.reshape(3, 1)

    return f, both((None, L))


@case(ALWAYS)
def grad_inplace_on_argument():
    def step():
        return (leaf() * 1,), {}

    def f(x):
        x.mul_(3.0)
        return x * x

    return f, both((None, step))


@case(ALWAYS)
def backward_inside():
    w = leaf()

    def f(x):
        w.grad = None
        loss = (x * w).sum()
        loss.backward()
        return w.grad * 2

    return f, both((None, A)), [w]


@case(ALWAYS)
def hook_inside():
    def f(x):
        y = x * 2
        y.register_hook(lambda g: LOG.append("hook") or g * 2)
        return y.sum()

    return f, both((None, L))


@case(REPLAY, 2)
def hook_on_argument():
    def step():
        x = leaf()
        x.register_hook(lambda g: LOG.append("hook") or g * 10)
        return (x,), {}

    return lambda x: (x * x).sum(), [(None, step)] * 3


# -- aliases and identities ------------------------------------------------------------------------------


@case(REPLAY, 2)
def results_written_to():
    """What a caller writes to a result shows in its aliases, and in no later call."""

    def f(x):
        y = x * 2
        return y, y[0], y

    def check(result):
        result[1].add_(100.0)
        LOG.append([result[0].tolist(), result[2] is result[0]])

    return f, [(None, A)] * 3, [], check


@case(REPLAY, 2)
def view_of_argument_returned():
    return lambda x: (x[1:], x.view(3, 1), x), [(None, A)] * 3


@case(REPLAY, 2)
def constant_returned():
    def f(x):
        c = mortice.tensor([1.0, 2.0, 3.0])
        c.add_(x)
        return c, mortice.tensor([5.0])

    return f, [(None, A)] * 3


@case(REPLAY, 2)
def same_list_twice():
    def f(x):
        a = [x * 2]
        return a, {"a": a}, a

    return f, [(None, A)] * 3


@case(ALWAYS)
def numpy_alias():
    n = np.array([1.0, 2.0, 3.0], np.float32)
    x = mortice.from_numpy(n)

    def f(q):
        y = x * 2
        n[0] = n[0] + 100
        return y + q

    return f, both((None, A))


@case(ALWAYS)
def numpy_inside():
    return lambda x: mortice.from_numpy((x * 2).numpy() + 1), both((None, A))


@case(REPLAY, 3)
def written_argument_with_changing_aliases():
    def f(x, y, z):
        x.mul_(2.0)
        y.add_(1.0)
        return x + y + z

    def apart():
        return (t(), t(), t()), {}

    def shared():
        q = t()
        return (t(), q, q[:]), {}

    return f, both((None, apart), (None, shared)) + [(None, apart)]


@case(REPLAY, 2)
def write_through_a_detached_alias():
    """Inputs become one tensor, and the replay gives up after memory was written to."""

    def f(x, y):
        z = y.detach()
        v = x[:]
        if v.sum() > 50:
            return v
        z.add_(1.0)
        return x * 2 if v[0] < v[1] else x * 3

    def one(a, b):
        q = t(a, b)
        return lambda: ((q, q), {})

    return f, both((None, lambda: ((t(), t()), {})), (None, one(5.0, 1.0)))


@case(REPLAY, 2)
def one_input_after_a_write_to_a_result():
    """Inputs become one tensor, and the replay gives up after it wrote to memory of its own."""

    def f(x, y):
        z = x + y
        if z.sum() > 50:
            return z
        z.mul_(x).add_(y)
        return z * 2 if z[0] < z[1] else z * 3

    def one(a, b):
        q = t(a, b)
        return lambda: ((q, q), {})

    return f, both((None, lambda: ((t(), t()), {})), (None, one(5.0, 1.0)))


@case(REPLAY, 1)
def tensor_identity():
    def f(x, y):
        return x * 2 if x is y else x * 3

    def same():
        q = t()
        return (q, q), {}

    return f, [(None, lambda: ((t(), t()), {})), (None, same), (None, lambda: ((t(), t()), {}))]


# -- values read between writes --------------------------------------------------------------------------


@case(REPLAY, 6)
def values_between_writes():
    b = t(0.0, 0.0, 0.0)

    def f(x):
        b.add_(x)
        if b[0] > 2:
            b.mul_(2.0)
            if b[0] > 7:
                b.zero_()
        y = b * 1
        if y[1] > 3:
            y.add_(1.0)
            if y[1] > 100:
                return y - 1
        return y

    return f, [(None, A)] * 10, [b]


@case(REPLAY, 4)
def loop_until_small():
    def f(x):
        n = 0
        while x.max() > 1:
            x = x / 2
            n += 1
        return x, n

    big = lambda: ((t(9.0, 3.0, 1.0),), {})
    return f, both((None, A), (None, big)) + [(None, A), (None, big)]


@case(REPLAY, 3)
def bool_of_a_number():
    def f(x):
        return x + 1 if x.sum() else x - 1  # the sum itself differs from call to call

    return f, [(None, lambda v=v: ((t(v, 1.0, 1.0),), {})) for v in (1.0, 2.0, 3.0, 4.0)]


@case(ALWAYS)
def result_sizes_from_values():
    return lambda x: x[x > 1] * 2, both((None, A))


@case(ALWAYS)
def tolist_inside():
    return lambda x: (x * 2).tolist(), both((None, A))
