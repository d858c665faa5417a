"""Cases: what a function reads, of every kind, and what each change of it must do."""

# The programs are written for what they do, not for style.
# ruff: noqa: E731, RET504, C417

from __future__ import annotations

import contextlib
import functools
import os
import random
import time
from typing import Any

from packages.core.tests.capture.world import (
    ALWAYS,
    GL,
    LOG,
    REPLAY,
    RESETS,
    A,
    D,
    E,
    G,
    Lin,
    both,
    case,
    mod,
    put,
    t,
)

import mortice

GT = t()
SCALE = 3.0


def reset_globals() -> None:
    globals().update(SCALE=3.0, GT=t(10.0, 10.0, 10.0))
    globals().pop("len", None)


RESETS.append(reset_globals)


def gset(name: str, value: Any) -> Any:
    return lambda: globals().__setitem__(name, value() if callable(value) else value)


# -- reads of every kind -------------------------------------------------------------------------------


@case(REPLAY, 4)
def closure_cell():
    c = 2.0

    def m():
        nonlocal c
        c += 1

    return lambda x: x * c, both((None, A), (m, A), (None, A))


@case(REPLAY, 2)
def global_scalar():
    return lambda x: x * SCALE, both((None, A), (gset("SCALE", lambda: SCALE + 1), A))


@case(REPLAY, 2)
def global_list_append():
    def f(x):
        for g in GL:
            x = x + g
        return x

    return f, both((None, A), (lambda: GL.append(t(5.0)), A))


@case(REPLAY, 3)
def module_attr():
    return lambda x: mod.f(x) * mod.c, both(
        (None, A), (put(mod, "f", lambda x: x * 7), A), (put(mod, "c", 3.0), A)
    )


@case(REPLAY, 6)
def object_attr():
    o = Lin()
    return lambda x: o(x), both(
        (None, A),
        (put(o, "train", False), A),
        (put(o, "w", t(9.0, 1.0, 1.0)), A),
        (put(o, "train", True), A),
    )


@case(REPLAY, 3)
def class_attr():
    o = Lin()
    return lambda x: x * o.k, both((None, A), (put(Lin, "k", 3.0), A), (put(o, "k", 50.0), A))


@case(REPLAY, 3)
def monkeypatch():
    class L(Lin):
        pass

    o = L()
    return lambda x: o(x), both(
        (None, A),
        (put(L, "forward", lambda s, x: x + 100), A),
        (put(o, "forward", lambda x: x * 5), A),
    )


@case(REPLAY, 3)
def dict_inplace():
    return lambda x: x * G["k"] if "k" in G else x, both(
        (None, A), (lambda: G.__setitem__("k", 4.0), A), (lambda: G.pop("k"), A)
    )


@case(REPLAY, 3)
def defaults():
    def h(x, a=2.0, *, b=1.0):
        return x * a + b

    return lambda x: h(x), both(
        (None, A),
        (put(h, "__defaults__", (5.0,)), A),
        (lambda: h.__kwdefaults__.__setitem__("b", 9.0), A),
    )


@case(REPLAY, 3)
def kwargs_varargs():
    def f(x, *a, s=1.0, **k):
        for q in a:
            x = x + q
        for v in k.values():
            x = x * v
        return x * s

    return f, both(
        (None, lambda: ((t(), t(), 2.0), {"s": 2.0, "z": 3.0})),
        (None, lambda: ((t(), t(), 2.0), {"s": 2.0, "z": 4.0})),
        (None, lambda: ((t(),), {"y": t()})),
    )


@case(REPLAY, 2)
def dataclass_field():
    d = D()
    return lambda x: x * d.a, both((None, A), (put(d, "a", 4.0), A))


@case(REPLAY, 2)
def enum_value():
    e = [E.A]
    return lambda x: x * 2 if e[0] is E.A else x * 3, both(
        (None, A), (lambda: e.__setitem__(0, E.B), A)
    )


@case(REPLAY, 2)
def env_var():
    return lambda x: x * float(os.environ["MORTICE_CASE"]), both(
        (None, A), (lambda: os.environ.__setitem__("MORTICE_CASE", "3"), A)
    )


@case(ALWAYS)
def time_time():
    return lambda x: x * (time.time() * 0 + 1), both((None, A), (None, A))


@case(ALWAYS)
def rng():
    return lambda x: x * random.random(), [(lambda: random.seed(1), A), *both((None, A))]


@case(ALWAYS)
def prints():
    def f(x):
        LOG.append("a")
        x = x * 2
        LOG.append(float(x.sum().item()))
        return x

    return f, both((None, A), (None, A))


@case(ALWAYS)
def attr_counter():
    o = Lin()

    def f(x):
        o.n += 1
        return x * o.n

    return f, both((None, A), (None, A))


@case(ALWAYS)
def generator():
    return lambda x: sum((x * i for i in range(3)), x), both((None, A))


@case(REPLAY, 7)
def raise_try():
    def f(x):
        try:
            if x.sum() > 3:
                raise ValueError("big")
            return x * 2
        except ValueError:
            return x * 3
        finally:
            x = x + 1

    small = lambda: ((t(0.0, 0.0),), {})
    big = lambda: ((t(9.0, 0.0),), {})
    return f, both((None, A), (None, small), (None, A), (None, small), (None, big))


@case(REPLAY, 5)
def early_return():
    def f(x):
        y = x * 2
        if y.sum() > 5:
            return y
        z = y + 1
        while z.sum() > 3:
            z = z - 1
        return z

    small = lambda: ((t(0.0, 0.0, 1.0),), {})
    return f, both((None, A), (None, small), (None, A)) + [(None, small)]


@case(REPLAY, 4)
def item_scalar():
    def f(x):
        s = x.sum().item()
        return x * s

    return f, both((None, A), (None, lambda: ((t(1.0, 1.0, 1.0),), {})), (None, A))


@case(REPLAY, 3)
def nested_fn():
    k = 2.0

    def f(x):
        def g(y):
            return y * k

        h = lambda y: g(y) + 1
        return [h(x), {"a": g(x)}]

    def m():
        nonlocal k
        k = 5.0

    return f, both((None, A), (m, A)) + [(None, A)]


@case(REPLAY, 1)
def decorator():
    def dec(g):
        @functools.wraps(g)
        def w(*a, **k):
            return g(*a, **k) * 2

        return w

    @dec
    def f(x):
        return x + 1

    return f, both((None, A))


@case(REPLAY, 1)
def ctx_manager():
    class C:
        def __init__(self, v):
            self.v = v

        def __enter__(self):
            return self.v

        def __exit__(self, *a):
            return True

    def f(x):
        with C(3.0) as v:
            x = x * v
            raise KeyError("q")
        return x

    return f, both((None, A))


@case(ALWAYS)
def contextlib_cm():
    @contextlib.contextmanager
    def cm():
        LOG.append("in")
        yield 2.0
        LOG.append("out")

    def f(x):
        with cm() as v:
            x = x * v
        return x

    return f, both((None, A))


@case(REPLAY, 1)
def nograd():
    def f(x):
        with mortice.no_grad():
            y = x * 2
        return y + x

    return f, both((None, A))


# -- writes in place -----------------------------------------------------------------------------------


@case(REPLAY, 1)
def inplace_input():
    def f(x):
        x.add_(1.0)
        x[0].mul_(5.0)
        return x * 2

    return f, both((None, A))


@case(REPLAY, 4)
def inplace_captured():
    b = t(0.0, 0.0, 0.0)

    def f(x):
        b.add_(x)
        return b * 2

    return f, both((None, A), (None, A)) + [(lambda: b.mul_(3.0), A)]


@case(REPLAY, 3)
def inplace_then_branch():
    b = t(0.0, 0.0, 0.0)

    def f(x):
        b.add_(x)
        if b.sum() > 15:
            return b * 0.5
        return b + 100

    return f, [(None, A)] * 5


@case(REPLAY, 4)
def alias_inputs():
    def f(x, y):
        x.add_(1.0)
        return x * y

    def same():
        q = t()
        return (q, q), {}

    two = lambda: ((t(), t()), {})
    return f, both((None, two), (None, same)) + [(None, two), (None, same)]


@case(REPLAY, 1)
def view_inputs():
    def f(x, y):
        y.add_(1.0)
        return x * 2

    def v():
        q = t()
        return (q, q[0:2]), {}

    return f, both((None, v))


# -- results -------------------------------------------------------------------------------------------


@case(REPLAY, 1)
def return_input():
    return lambda x: x, both((None, A))


@case(REPLAY, 2)
def return_global():
    return lambda x: GT, both((None, A), (gset("GT", t(4.0)), A))


@case(REPLAY, 1)
def return_fresh_obj():
    return lambda x: D(2.0), both((None, A))


@case(REPLAY, 2)
def scalar_arg():
    def step(v):
        return (None, lambda: ((t(), v), {}))

    return lambda x, a: x * a if a > 1 else x + a, both(step(0.5), step(2.5))


@case(REPLAY, 2)
def shape_branch():
    return lambda x: x * len(x.shape) if x.shape[0] > 2 else x, both(
        (None, A), (None, lambda: ((t(1.0),), {}))
    )


@case(ALWAYS)
def map_callback():
    c = [2.0]
    return lambda x: list(map(lambda q: q * c[0], [x, x]))[1], both(
        (None, A), (lambda: c.__setitem__(0, 3.0), A)
    )


@case(REPLAY, 2)
def getattr_hook():
    class M:
        def __init__(self):
            self._p = {"w": t(3.0)}

        def __getattr__(self, n):
            p = self.__dict__["_p"]
            if n in p:
                return p[n]
            raise AttributeError(n)

    m = M()
    return lambda x: x * m.w, both((None, A), (lambda: m._p.__setitem__("w", t(4.0, 1.0, 1.0)), A))


@case(REPLAY, 4)
def builtin_shadow():
    return lambda x: x * len("abc"), both(
        (None, A),
        (lambda: globals().__setitem__("len", lambda s: 7), A),
        (lambda: globals().pop("len"), A),
    )


@case(REPLAY, 1)
def local_list_build():
    def f(x):
        acc = []
        for i in range(3):
            acc.append(x * i)
        d = {}
        d["s"] = acc[0] + acc[2]
        return d["s"], acc

    return f, both((None, A))


@case(REPLAY, 2)
def code_swap():
    def h(x):
        return x * 2

    return lambda x: h(x), both((None, A), (put(h, "__code__", (lambda x: x * 9).__code__), A))


@case(ALWAYS)
def exception_escapes():
    def f(x):
        x.add_(1.0)
        if x.sum() > 3:
            raise ValueError(str(x.sum().item()))
        return x

    return f, [(None, A)] * 5
