"""Functions for the observer: those that read and change nothing outside, and those that do."""

# The code that is observed is written for its instructions.
# ruff: noqa: C405, C408, C409, C416, F821, FLY002, UP031, FURB171

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import math
import operator
import os
import types
from typing import Any

PURE: list[tuple[Any, tuple[Any, ...]]] = []
IMPURE: list[tuple[Any, tuple[Any, ...]]] = []


def pure(*args: Any) -> Any:
    def add(f: Any) -> Any:
        PURE.append((f, args))
        return f

    return add


def impure(*args: Any) -> Any:
    def add(f: Any) -> Any:
        IMPURE.append((f, args))
        return f

    return add


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass
class Point:
    x: float = 1.0
    y: list[Any] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: int = 1


Pair = collections.namedtuple("Pair", "a b")


class Base:
    scale = 2

    def __init__(self, v: float) -> None:
        self.v = v

    @property
    def double(self) -> float:
        return self.v * 2

    @staticmethod
    def helper(x: Any) -> Any:
        return x + 1

    @classmethod
    def make(cls, v: float) -> Any:
        return cls(v)

    def method(self, x: Any) -> Any:
        return x * self.v

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.v == other.v  # pyright: ignore

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Any) -> Any:
        if type(other) is not Base:
            return NotImplemented
        return Base(self.v + other.v)

    def __radd__(self, other: Any) -> Any:
        return other + self.v

    def __len__(self) -> int:
        return 3

    def __getitem__(self, k: int) -> int:
        if k > 2:
            raise IndexError(k)
        return k * 10

    def __contains__(self, x: Any) -> bool:
        return x == self.v

    def __iter__(self) -> Any:
        return iter([1, 2, 3])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.v, args, kwargs

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: Any, value: Any, tb: Any) -> bool:
        self.v = kind
        return kind is KeyError


class Derived(Base):
    def __init__(self, v: float) -> None:
        super().__init__(v)
        self.extra = 5

    def method(self, x: Any) -> Any:
        return super().method(x) + self.extra


class Slots:
    __slots__ = ("a",)

    def __init__(self) -> None:
        self.a = 4


class Hooked:
    def __init__(self) -> None:
        self.__dict__["p"] = {"w": 3}

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["p"][name]
        except KeyError:
            raise AttributeError(name) from None


class Stepper:
    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> int:
        if not self.n:
            raise StopIteration
        self.n -= 1
        return self.n


OUTER = Derived(3.0)
SLOTS = Slots()
HOOKED = Hooked()
LIST = [1, 2, 3]
TABLE: dict[Any, Any] = {"a": 1, "b": [2]}
ORDERED = collections.OrderedDict(x=1, y=2)
SET = {5}
POINT = Point()
MODULE = types.ModuleType("some_module")
MODULE.value = 7  # type: ignore[attr-defined]
os.environ["MORTICE_TEST_OBSERVER"] = "12"


@pure(3, 4)
def arithmetic(a, b):
    return a + b, a - b, a * b, a / b, a // b, a % b, a**b, -a, +a, ~a, a << b, a & b, a | b, a ^ b


@pure(2)
def in_place(a):
    a += 1
    a *= 3
    x = [1]
    x += [2]
    y = {1: 2}
    y |= {3: 4}
    return a, x, y


@pure(5)
def comparisons(a):
    return a < 3, a == 5, a != 5, 1 < a < 9, a is None, a is not None, a in (1, 5), a not in [1]


@pure()
def containers():
    a = [1, 2, *range(3)]
    b = {"x": 1, "y": 2}
    c = {1, 2}
    d = (*a, 3)
    e, *f, g = a
    a[1:3] = [9]
    del a[0]
    b["z"] = 3
    del b["x"]
    return a, b, c, d, e, f, g, a[-1], a[:2], d[::2], [x for x in b], {k: v for k, v in b.items()}


@pure("q")
def text(s):
    return (
        f"{s!r:>5}|{1.5:.2f}|{s}",
        s.upper() + "x" * 3,
        "-".join([s, "b"]),
        s.replace("q", "r"),
        "%s" % s,
    )


@pure(4)
def loops(n):
    found = []
    for i in range(n):
        if i == 1:
            continue
        if i == 3:
            break
        found.append(i)
    else:
        found.append("else")
    while n > 0:
        n -= 1
    found.append("done")
    for k, (a, b) in enumerate(zip([1, 2], "ab")):
        found.append((k, a, b))
    return found, [x * y for x in range(3) for y in (1, 2) if x != y], {x for x in "aab"}


@pure(1)
def exceptions(a):
    log = []
    try:
        try:
            raise ValueError("one")
        except KeyError:
            log.append("no")
        finally:
            log.append("finally")
    except (TypeError, ValueError) as e:
        log.append((type(e).__name__, str(e)))
        try:
            raise RuntimeError("two") from e
        except RuntimeError as f:
            log.append(f.__cause__ is e)
            log.append(f.__context__ is e)
    else:
        log.append("else")
    try:
        [][a]
    except IndexError as e:
        log.append(str(e))
    try:
        {}["k"]
    except KeyError:
        log.append("key")
    try:
        return log
    finally:
        log.append("last")


@pure()
def nested_exceptions():
    log = []
    try:
        try:
            1 / 0
        except ZeroDivisionError:
            try:
                raise KeyError("inner")
            except KeyError as e:
                log.append(type(e.__context__).__name__)
            raise
    except ZeroDivisionError as e:
        log.append(e.__context__)
    try:
        raise ValueError
    except ValueError as e:
        log.append(e.__context__)
    for i in range(3):
        try:
            if i == 1:
                raise KeyError(i)
        except KeyError:
            continue
        finally:
            log.append(i)
    return log


@pure()
def managers():
    log = []
    with Base(1) as a:
        log.append(a.v)
    log.append(a.v)
    with Base(2) as b, Base(3):
        raise KeyError("swallowed")
    log.append(b.v)
    try:
        with Base(4):
            raise TypeError("out")
    except TypeError as e:
        log.append(str(e))
    return log


@pure(3)
def closures(a):
    k = 1

    def inner(b, c=2, *, d=3):
        nonlocal k
        k += b
        return a + b + c + d + k

    add = lambda z: z + k  # noqa: E731
    return inner(1), inner(1, 2, d=9), add(1), [f(2) for f in (lambda x: x + a, add)]


@pure(1)
def calls(a):
    def f(x, /, y, *rest, z=3, **more):
        return x, y, rest, z, more

    return f(1, 2), f(1, y=2, q=4), f(*[1, 2, 3], z=5, w=6), f(1, 2, *(3,), z=a)


@pure()
def classes():
    d = Derived(2.0)
    b = Base.make(1.5)
    p = Point()
    p.y.append(1)
    q = Pair(1, b=2)
    f = Frozen(4)
    return (
        d.method(3), d.double, b.v, Base.helper(1), d.helper(2), p.x, p.y, q.a, q[1], f.x,
        d.scale, isinstance(d, Base), type(d) is Derived, d == Derived(2.0), d != b, len(d),
        d[1], 2.0 in d, list(d), d(1, k=2), (b + Base(2.5)).v, 10 + b, issubclass(Derived, Base),
        Point(1.0) == Point(1.0), bool(d), Slots().a, [x for x in Stepper(3)],
    )  # fmt: skip


@pure()
def outer_reads():
    return (
        OUTER.v, OUTER.method(2), OUTER.extra, SLOTS.a, HOOKED.w, LIST[0], LIST[-1], len(LIST),
        TABLE["a"], TABLE["b"][0], "c" in TABLE, TABLE.get("zz", 4), list(TABLE), ORDERED["x"],
        5 in SET, POINT.x, Color.RED.value, Color.RED is Color.BLUE, Color.BLUE == Color.BLUE,
        MODULE.value, math.pi, os.environ["MORTICE_TEST_OBSERVER"], getattr(OUTER, "nope", 1),
        hasattr(OUTER, "v"), [x for x in LIST], dict(TABLE)["a"], sum(LIST), max(1, 2), Color(1),
    )  # fmt: skip


@pure()
def builtins_of_values():
    return (
        abs(-3), round(2.567, 2), divmod(7, 2), pow(2, 3), min([3, 1]), max(2, 5), sum([1, 2], 3),
        sorted([3, 1, 2]), any([0, 1]), all([]), ord("a"), chr(98), bin(5), hex(255), int("12"),
        float("1.5"), str(12), bool([]), list("ab"), tuple([1]), dict(a=1), set([1]),
        list(reversed([1, 2])), list(zip([1, 2], [3, 4])), list(enumerate("ab")), math.sqrt(4),
        operator.add(1, 2), callable(len), slice(1, 2).start, range(5)[2], int, complex(1, 2),
        functools.reduce(lambda x, y: x + y, [1, 2, 3]), next(iter([7])), "abc".find("c"),
        functools.partial(pow, 2)(5),
    )  # fmt: skip


@pure()
def imports():
    import math as m
    from os import path

    return m.floor(2.5), path.sep


@pure(2)
def decorated(a):
    def twice(g):
        @functools.wraps(g)
        def w(*args, **kwargs):
            return g(*args, **kwargs) * 2

        return w

    @twice
    def f(x):
        """Doc."""
        return x + 1

    return f(a), f.__name__


_SCOPE: dict[str, Any] = {}
exec(  # pytest rewrites the asserts of test modules
    """
def asserts():
    try:
        assert 1 == 2, "message"
    except AssertionError as e:
        return str(e)
""",
    _SCOPE,
)
pure()(_SCOPE["asserts"])


@pure(0)
def short_circuits(a):
    return a or "b", a and "c", not a, (a or 0) if a else "d", a if a is None else 5


@pure()
def deletes():
    x = [1]
    del x
    try:
        return x
    except UnboundLocalError as e:
        return str(e)


@impure()
def appends():
    LIST.append(4)
    return LIST.pop()


@impure()
def sets_attribute():
    OUTER.v = OUTER.v
    return OUTER.v


@impure()
def sets_item():
    TABLE["a"] = 1


@impure()
def generator():
    return sum(x for x in range(3))


class Texted:
    def __str__(self) -> str:
        return "text"

    def keys(self) -> Any:
        return ["k"]

    def __getitem__(self, k: Any) -> Any:
        return 5

    def __reversed__(self) -> Any:
        return iter([2, 1])


TEXTED = Texted()
BIG, NAME = 1 << 70, "na" + "me"


@impure()
def formats_an_object():
    return "%s" % (TEXTED,), f"{TEXTED}"


@impure()
def joins_objects():
    return f"{Texted} {[TEXTED.__class__]}"


@impure()
def dict_of_a_mapping():
    return dict(TEXTED)


@impure()
def identity_of_values():
    return BIG is G_BIG, NAME is G_NAME


G_BIG, G_NAME = 1 << 70, "".join(["na", "me"])


@pure()
def reverses():
    return (
        list(reversed(TEXTED)),
        list(reversed({"a": 1, "b": 2})),
        list(reversed(range(3))),
        list(reversed((1, 2))),
    )


@pure()
def small_identities():
    five, letter = 5, "a"
    return five is LIST[0], letter is None, (LIST[0] == 1) is True


@impure()
def callbacks():
    return sorted([3, 1], key=lambda x: -x), list(map(str, [1]))


@impure()
def prints():
    print("observed", end="")


@impure()
def global_store():
    global _G
    _G = 3
    return _G


@contextlib.contextmanager
def manager():
    yield 3


@impure()
def with_generator():
    with manager() as x:
        return x


@impure()
def has_locals(a=1):
    b = 2
    return sorted(locals()), eval("a + b")
