"""Cases: objects with methods of their own, identities, and state in unusual places."""

# The programs are written for what they do, not for style.
# ruff: noqa: FURB192

from __future__ import annotations

import collections
import functools
import math
import sys
from typing import Any

from packages.core.tests.capture.world import ALWAYS, REPLAY, A, Lin, both, case, put, t

# -- adversaries ---------------------------------------------------------------------------------------


@case(REPLAY, 2)
def outer_set():
    q = {1}
    return lambda x: x * 2 if 2 in q else x, both((None, A), (lambda: q.add(2), A))


@case(ALWAYS)
def defaultdict():
    q: Any = collections.defaultdict(float)
    q["a"] = 1.0
    return lambda x: x * q["a"], both((None, A), (lambda: q.__setitem__("a", 5.0), A))


@case(ALWAYS)
def list_subclass():
    class L(list):
        pass

    q = L([1.0])
    return lambda x: x * q[0], both((None, A), (lambda: q.__setitem__(0, 4.0), A))


@case(REPLAY, 2)
def class_reassign():
    class P(Lin):
        def forward(self, x):
            return x - 5

    o = Lin()
    return lambda x: o(x), both((None, A), (put(o, "__class__", P), A))


@case(REPLAY, 2)
def bases_change():
    class B1:
        def m(self, x):
            return x * 2

    class B2:
        def m(self, x):
            return x * 3

    class C(B1):
        pass

    c = C()
    return lambda x: c.m(x), both((None, A), (put(C, "__bases__", (B2,)), A))


@case(REPLAY, 2)
def dict_replaced():
    o = Lin()
    return lambda x: o(x), both((None, A), (put(o, "__dict__", {"w": t(7.0), "train": False}), A))


@case(REPLAY, 2)
def eq_custom():
    class V:
        n = 1

        def __eq__(self, o):
            return self.n == o

        __hash__ = None  # type: ignore[assignment]

    v = V()
    return lambda x: x * 2 if v == 1 else x, both((None, A), (put(v, "n", 2), A))


@case(REPLAY, 2)
def iter_custom():
    class V:
        n = 2

        def __iter__(self):
            return iter([1.0] * self.n)

    v = V()

    def f(x):
        for q in v:
            x = x + q
        return x

    return f, both((None, A), (put(v, "n", 4), A))


@case(ALWAYS)
def sorted_key():
    q, k = [3.0, 1.0], [1]
    return lambda x: x * sorted(q, key=lambda z: z * k[0])[0], both(
        (None, A), (lambda: k.__setitem__(0, -1), A)
    )


@case(REPLAY, 2)
def str_custom():
    class V:
        s = "1"

        def __str__(self):
            return self.s

    v = V()
    return lambda x: x * float(str(v)), both((None, A), (put(v, "s", "4"), A))


@case(REPLAY, 2)
def property_state():
    o = Lin()
    return lambda x: x * 2 if o.p else x, both((None, A), (put(o, "train", False), A))


@case(REPLAY, 2)
def slots():
    class S:
        __slots__ = ("a",)

    q = S()
    q.a = 2.0
    return lambda x: x * q.a, both((None, A), (put(q, "a", 3.0), A))


@case(ALWAYS)
def sibling_nonlocal():
    n = 0

    def inc():
        nonlocal n
        n += 1
        return n

    return lambda x: x * inc(), both((None, A), (None, A))


@case(ALWAYS)
def iterator_arg():
    it = iter([1.0, 2.0, 3.0, 4.0])
    return lambda x, i: x * next(i), [(None, lambda: ((t(), it), {}))] * 4


@case(ALWAYS)
def iterator_for():
    it = iter([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])

    def f(x):
        for q in it:
            x = x * q
            if q > 1:
                break
        return x

    return f, both((None, A), (None, A))


@case(ALWAYS)
def frame_peek():
    z = [1]
    return lambda x: x * sys._getframe().f_lineno * 0 + len(z), both(
        (None, A), (lambda: z.append(1), A)
    )


@case(REPLAY, 2)
def nan_default():
    q = {"v": float("nan")}
    return lambda x: x * (0.0 if q["v"] != q["v"] else 1.0), both(
        (None, A), (lambda: q.__setitem__("v", 1.0), A)
    )


@case(REPLAY, 2)
def neg_zero():
    q = [0.0]
    return lambda x: x * math.copysign(1.0, q[0]), both(
        (None, A), (lambda: q.__setitem__(0, -0.0), A)
    )


@case(REPLAY, 2)
def bool_vs_int():
    q: list[Any] = [1]
    return lambda x: x * 2 if q[0] is True else x, both(
        (None, A), (lambda: q.__setitem__(0, True), A)
    )


@case(REPLAY, 2)
def nested_tuple_mut():
    q = ([1.0],)
    return lambda x: x * q[0][0], both((None, A), (lambda: q[0].__setitem__(0, 5.0), A))


@case(REPLAY, 2)
def partial():
    f0 = functools.partial(lambda x, k: x * k[0], k=[2.0])
    return lambda x: f0(x), both((None, A), (lambda: f0.keywords["k"].__setitem__(0, 3.0), A))


@case(REPLAY, 3)
def kwonly_ident():
    def f(x, o):
        return x * o.w

    o = Lin()
    return f, [
        (None, lambda: ((t(), o), {})),
        (put(o, "w", t(5.0, 1.0, 1.0)), lambda: ((t(), o), {})),
        (None, lambda: ((t(), Lin()), {})),
        (None, lambda: ((t(), o), {})),
    ]


@case(ALWAYS)
def instance_getattribute():
    count: list[int] = []

    class V:
        def __getattribute__(self, n):
            return count.append(1) or float(len(count))

    v = V()
    return lambda x: x * v.a, both((None, A))


@case(REPLAY, 2)
def super_call():
    class B(Lin):
        def forward(self, x):
            return super().forward(x) + 1

    o = B()
    return lambda x: o(x), both((None, A), (put(Lin, "forward", lambda s, x: x * 100), A))
