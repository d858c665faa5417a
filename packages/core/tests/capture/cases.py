"""Programs and what changes around them: compiled must equal eager after every change.

A case gives a function and steps; a step changes something (or nothing), then calls. With it stands
the verdict to be reached, and how many of the calls are answered by a replay.

``python cases.py`` prints the table of all cases as Markdown.
"""

# The programs are written for what they do, not for style.
# ruff: noqa: C4, PLW0602, PLW0604, B023, EXE001, PLW0642, RUF015, PLW0128, LOG015, G, B018, PT012

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import math
import os
import random
import sys
import time
import types
import warnings
from collections.abc import Callable
from typing import Any

import mortice
import numpy as np
from mortice import Tensor

REPLAY, ALWAYS = "replay", "always run"


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    make: Callable[[], Any]
    verdict: str
    replays: int


CASES: list[Case] = []


def case(verdict: str, replays: int = 0) -> Any:
    def add(make: Any) -> Any:
        CASES.append(Case(make.__name__.rstrip("_"), make, verdict, replays))
        return make

    return add


def t(*values: float, **more: Any) -> Tensor:
    return mortice.tensor(list(values) or [1.0, 2.0, 3.0], **more)


def A() -> Any:
    return (t(),), {}


def both(*steps: Any) -> list[Any]:
    """Each step twice: the second call shows whether the first left something to replay."""
    return [s for step in steps for s in (step, (None, step[1]))]


# -- the world, reset before each run ------------------------------------------------------------------

LOG: list[Any] = []
G: dict[str, Any] = {}
GL: list[Any] = []
GT = t()
SCALE = 3.0
mod = types.ModuleType("mod")


class Lin:
    k = 2.0

    def __init__(self) -> None:
        self.w = t(2.0, 2.0, 2.0)
        self.train = True
        self.n = 0

    def __call__(self, x: Any) -> Any:
        return self.forward(x)

    def forward(self, x: Any) -> Any:
        return x * self.w if self.train else x + self.w

    @property
    def p(self) -> bool:
        return self.train


_FORWARD = Lin.forward


@dataclasses.dataclass
class D:
    a: float = 1.0


class E(enum.Enum):
    A = 1
    B = 2


def reset() -> None:
    G.clear()
    G["k"] = 2.0
    GL[:] = [t(1.0)]
    LOG.clear()
    globals().update(SCALE=3.0, GT=t(10.0, 10.0, 10.0))
    globals().pop("len", None)
    mod.f = lambda x: x * 2  # type: ignore[attr-defined]
    mod.c = 1.0  # type: ignore[attr-defined]
    Lin.k = 2.0
    Lin.forward = _FORWARD  # type: ignore[method-assign]
    random.seed(0)
    mortice.manual_seed(7)
    mortice.set_grad_enabled(True)
    mortice.set_default_dtype(mortice.float32)
    os.environ["MORTICE_CASE"] = "2"


def gset(name: str, value: Any) -> Any:
    return lambda: globals().__setitem__(name, value() if callable(value) else value)


def put(o: Any, name: str, value: Any) -> Any:
    return lambda: setattr(o, name, value)


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
        (None, A), (put(o, "train", False), A), (put(o, "w", t(9.0, 1.0, 1.0)), A), (put(o, "train", True), A)
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
        (None, A), (put(L, "forward", lambda s, x: x + 100), A), (put(o, "forward", lambda x: x * 5), A)
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
        (None, A), (put(h, "__defaults__", (5.0,)), A), (lambda: h.__kwdefaults__.__setitem__("b", 9.0), A)
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
    return lambda x: x * 2 if e[0] is E.A else x * 3, both((None, A), (lambda: e.__setitem__(0, E.B), A))


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
        (None, A), (lambda: globals().__setitem__("len", lambda s: 7), A), (lambda: globals().pop("len"), A)
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
    return lambda x: x * sys._getframe().f_lineno * 0 + len(z), both((None, A), (lambda: z.append(1), A))


@case(REPLAY, 2)
def nan_default():
    q = {"v": float("nan")}
    return lambda x: x * (0.0 if q["v"] != q["v"] else 1.0), both(
        (None, A), (lambda: q.__setitem__("v", 1.0), A)
    )


@case(REPLAY, 2)
def neg_zero():
    q = [0.0]
    return lambda x: x * math.copysign(1.0, q[0]), both((None, A), (lambda: q.__setitem__(0, -0.0), A))


@case(REPLAY, 2)
def bool_vs_int():
    q: list[Any] = [1]
    return lambda x: x * 2 if q[0] is True else x, both((None, A), (lambda: q.__setitem__(0, True), A))


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


# -- the command ---------------------------------------------------------------------------------------


def norm(o: Any) -> Any:
    """A value that can be compared, and does not change any more."""
    if isinstance(o, Tensor):
        has_grad = o.is_leaf or o.retains_grad
        grad = o.grad.tolist() if has_grad and o.grad is not None else None
        return (str(o.dtype), tuple(o.shape), o.stride(), o.requires_grad, o.tolist(), grad)
    if isinstance(o, np.ndarray):
        return ("ndarray", o.tolist())
    if isinstance(o, (list, tuple)):
        return [type(o).__name__, *map(norm, o)]
    if isinstance(o, dict):
        return {"": type(o).__name__} | {k: norm(v) for k, v in o.items()}
    return repr(o) if type(o) in (int, float, str, bool, type(None)) else type(o).__name__


def differentiate(result: Any) -> None:
    """Backward from everything that a call returned, so that gradients are compared, too."""
    for x in result if isinstance(result, (list, tuple)) else [result]:
        if isinstance(x, Tensor) and x.requires_grad and x.grad_fn is not None:
            x.float().pow(2).sum().backward(retain_graph=True)


def play(make: Any, compile: Callable[[Any], Any]) -> tuple[list[Any], Any]:
    """What each step shows to a user, and the compiled function."""
    reset()
    f, steps, *more = make()
    kept = more[0] if more else []
    compiled = compile(f)
    out: list[Any] = []
    for change, arguments in steps:
        if change:
            change()
        args, kwargs = arguments()
        same: Any = None
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("default")
            try:
                result = compiled(*args, **kwargs)
                same = [result is x for x in args]
                differentiate(result)
                result = norm(result)
            except BaseException as error:  # noqa: BLE001  compared, message and all
                result = f"{type(error).__name__}: {error}"
        noted = [(w.category.__name__, str(w.message), w.lineno, w.filename) for w in seen]
        state = norm([*args, *kwargs.values(), *kept])
        out.append((result, same, state, list(LOG), noted))
    return out, getattr(compiled, "compiled", compiled)


def table() -> str:
    """The cases with their verdicts as a Markdown table."""
    lines = [
        "| case | verdict | replays of calls | why it always runs |",
        "|---|---|---|---|",
    ]
    counts = collections.Counter()
    for c in CASES:
        _, compiled = play(c.make, lambda f: mortice.compile(f, backend="eager"))
        steps = len(c.make()[1])
        v = compiled.verdict
        counts[v.name] += 1
        reason = v.reasons[0].text if v.reasons and v.name == ALWAYS else ""
        lines.append(f"| {c.name} | {v.name} | {v.replayed} of {steps} | {reason} |")
    total = f"{len(CASES)} cases: {counts[REPLAY]} are replayed, {counts[ALWAYS]} always run."
    return "\n".join([*lines, "", total])


def main() -> None:
    import pathlib

    from packages.core.tests.capture import cases, cases_more  # noqa: F401  it adds its own

    text = cases.table()
    page = pathlib.Path(__file__).parents[4] / "docs" / "capture-cases.md"
    page.write_text(HEAD + text + "\n")
    print(text)


HEAD = """# What a compiled call does when the world changes

Each case is a small function and what changes between its calls: a global, a method, a hook, a
dtype. A compiled call must then do what the function itself does: same results, aliases, gradients,
errors and side effects, in the same order. Either it is *replayed*, because everything that it reads
is guarded and it changes nothing outside; or the function *always runs* and only its operators are
compiled. The tests assert verdict and number of replays of every case.

`python -m packages.core.tests.capture.cases` writes this page.

"""

if __name__ == "__main__":
    main()
