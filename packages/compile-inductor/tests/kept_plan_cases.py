"""Functions whose plans are kept, and what may differ in another process that no guard on a use says.

Each row is a module, and what another process does before it compiles ``f``.
"""

from __future__ import annotations

# Functions of more than one row.
OF_METACLASS = """
class M(type): pass
class C(metaclass=M):
    k = 2.0
def f(x, w):
    return x @ w * C.k
"""
MADE_INSIDE = """
class C:
    def __init__(self): self.k = 2.0
def f(x, w):
    return x @ w * C().k
"""
IN_AUTOCAST = """
K = mortice.autocast('cpu', dtype=mortice.bfloat16)
def f(x, w):
    with K:
        y = x.sign() @ w.sign()
    return y * 2
"""

CHANGED: dict[str, tuple[str, str]] = {
    "an operator in a variable": (
        """
K = mortice.ops.aten.relu
def f(x, w):
    return K(x) * 2
""",
        "lib.K = mortice.ops.aten.sin",
    ),
    "an overload in a variable": (
        """
K = mortice.ops.aten.relu.default
def f(x, w):
    return K(x) * 2
""",
        "lib.K = mortice.ops.aten.sin.default",
    ),
    "isinstance of a global tuple": (
        """
class A: pass
class B(A): pass
T = (int, B)
T2 = (int, str)
c = A()
b = B()
def f(x, w):
    return x @ w if isinstance(b, T) else x.sum()
""",
        "lib.T = (int, str)",
    ),
    "issubclass of a global tuple": (
        """
class A: pass
class B(A): pass
T = (int, A)
def f(x, w):
    return x @ w if issubclass(B, T) else x.sum()
""",
        "lib.T = (int, str)",
    ),
    "except of a global tuple": (
        """
T = (KeyError, ValueError)
def f(x, w):
    try:
        {}['a']
    except T:
        return x @ w
    except KeyError:
        return x.sum()
""",
        "lib.T = (ValueError, TypeError)",
    ),
    "metaclass call": (
        """
class M(type): pass
class C(metaclass=M):
    def __init__(self): self.k = 2.0
def f(x, w):
    return x @ w * C().k
""",
        "lib.M.__call__ = lambda cls: type('o', (), {'k': 3.0})()",
    ),
    "metaclass data descriptor": (
        OF_METACLASS,
        "lib.M.k = property(lambda cls: 3.0)",
    ),
    "metaclass getattribute": (
        OF_METACLASS,
        "lib.M.__getattribute__ = lambda cls, n: 3.0 if n == 'k' else type.__getattribute__(cls, n)",
    ),
    "metaclass bool": (
        """
class M(type): pass
class C(metaclass=M):
    k = 2.0
def f(x, w):
    return x @ w if C else x.sum()
""",
        "lib.M.__bool__ = lambda cls: False",
    ),
    "metaclass eq": (
        """
class M(type): pass
class C(metaclass=M): pass
class D(metaclass=M): pass
def f(x, w):
    return x @ w if C == D else x.sum()
""",
        "lib.M.__eq__ = lambda cls, o: True; lib.M.__hash__ = type.__hash__",
    ),
    "instancecheck": (
        """
class M(type): pass
class C(metaclass=M): pass
class D: pass
d = D()
def f(x, w):
    return x @ w if isinstance(d, C) else x.sum()
""",
        "lib.M.__instancecheck__ = lambda cls, o: True",
    ),
    "subclasscheck": (
        """
class M(type): pass
class C(metaclass=M): pass
class D: pass
d = D()
def f(x, w):
    return x @ w if issubclass(D, C) else x.sum()
""",
        "lib.M.__subclasscheck__ = lambda cls, o: True",
    ),
    "gains add over radd": (
        """
class C: pass
class D:
    def __radd__(self, o): return 2.0
c, d = C(), D()
def f(x, w):
    return x @ w * (c + d)
""",
        "lib.C.__add__ = lambda s, o: 3.0",
    ),
    "gains iadd": (
        """
class C:
    def __add__(self, o): return 2.0
c = C()
def f(x, w):
    a = c
    a += 1
    return x @ w * a
""",
        "lib.C.__iadd__ = lambda s, o: 3.0",
    ),
    "named tuple iter": (
        """
from typing import NamedTuple
class P(NamedTuple):
    a: float
    b: float
c = P(2.0, 3.0)
def f(x, w):
    a, b = c
    return x @ w * a
""",
        "lib.P.__iter__ = lambda s: iter((7.0, 8.0))",
    ),
    "super": (
        """
class P:
    def g(self): return 2.0
class Q:
    def g(self): return 3.0
class C(P):
    def g(self): return super().g() + 1
c = C()
def f(x, w):
    return x @ w * c.g()
""",
        "lib.C.__bases__ = (lib.Q,)",
    ),
    "slots swapped": (
        """
class C:
    __slots__ = ('k', 'j')
c = C()
c.k, c.j = 2.0, 3.0
def f(x, w):
    return x @ w * c.k
""",
        "lib.C.k, lib.C.j = lib.C.j, lib.C.k",
    ),
    "gains getattribute": (
        """
class C:
    k = 2.0
c = C()
def f(x, w):
    return x @ w * c.k
""",
        "lib.C.__getattribute__ = lambda s, n: 3.0",
    ),
    "gains bool": (
        """
class C:
    k = 2.0
c = C()
def f(x, w):
    return x @ w if c else x.sum()
""",
        "lib.C.__bool__ = lambda s: False",
    ),
    "gains new": (
        MADE_INSIDE,
        "def new(cls):\n    o = object.__new__(type('Q', (lib.C,), {'__init__': lambda s: setattr(s, 'k', 3.0)}))\n    return o\nlib.C.__new__ = staticmethod(new)",
    ),
    "gains del": (
        MADE_INSIDE,
        "lib.N = []\nlib.C.__del__ = lambda s: lib.N.append(1)",
    ),
    "other globals same name": (
        """
K = 2.0
def g(x): return x * K
def f(x, w):
    return g(x) @ w
""",
        "import types; lib.g = types.FunctionType(lib.g.__code__, {**vars(lib), 'K': 3.0}, 'g')",
    ),
    "own other globals": (
        """
K = 2.0
def f(x, w):
    return x @ w * K
""",
        "import types; lib.f = types.FunctionType(lib.f.__code__, {**vars(lib), 'K': 3.0}, 'f')",
    ),
    "isinstance reloaded base": (
        """
def make():
    class P: pass
    P.__qualname__ = 'P'
    return P
P = make()
class C(P): pass
c = C()
def f(x, w):
    return x @ w if isinstance(c, P) else x.sum()
""",
        "lib.P = lib.make()",
    ),
    "issubclass reloaded base": (
        """
def make():
    class P: pass
    P.__qualname__ = 'P'
    return P
P = make()
class C(P): pass
def f(x, w):
    return x @ w if issubclass(C, P) else x.sum()
""",
        "lib.P = lib.make()",
    ),
    "callable instance reloaded class": (
        """
def make(k):
    class C:
        def __call__(self, x, w): return x @ w * self.k
    C.k = k
    C.__qualname__ = 'C'
    return C
C = make(2.0)
f = C()
""",
        "lib.f = lib.make(3.0)()",
    ),
    "bound method subclass": (
        """
class C:
    k = 2.0
    def g(self, x, w): return x @ w * self.k
class D(C):
    k = 3.0
f = C().g
""",
        "lib.f = lib.D().g",
    ),
    "closure over same code": (
        """
def mk(k): return lambda x: x * k
def make(g):
    def h(x): return g(x)
    return h
G = make(mk(2.0))
def f(x, w):
    return G(x) @ w
""",
        "lib.G = lib.make(lib.mk(3.0))",
    ),
    "mutable default": (
        """
def g(x, l=[2.0]): return x * l[0]
def f(x, w):
    return g(x) @ w
""",
        "lib.g.__defaults__[0][0] = 3.0",
    ),
    "tuple types": (
        """
K = (1, 2)
def f(x, w):
    return x.int() * K[0]
""",
        "lib.K = (1.0, 2)",
    ),
    "dict order": (
        """
K = {'a': 1.0, 'b': 2.0}
def f(x, w):
    for k, v in K.items(): x = x * v + 1
    return x @ w
""",
        "lib.K = {'b': 2.0, 'a': 1.0}",
    ),
    "list to tuple": (
        """
K = [1.0, 2.0]
def f(x, w):
    return x @ w if isinstance(K, list) else x.sum()
""",
        "lib.K = (1.0, 2.0)",
    ),
    "is same objects": (
        """
class C: pass
a = C()
b = C()
def f(x, w):
    return x @ w if a is b else x.sum()
""",
        "lib.b = lib.a",
    ),
    "ctx grad": (
        """
K = mortice.set_grad_enabled(False)
mortice.set_grad_enabled(True)
def f(x, w):
    with K:
        y = x @ w
    return y * 2
def calls():
    return [(data(6, 8).requires_grad_(), data(8, 4))]
""",
        "lib.K = mortice.set_grad_enabled(True)",
    ),
    "ctx autocast": (
        IN_AUTOCAST,
        "lib.K = mortice.autocast('cpu', dtype=mortice.float16)",
    ),
    "ctx autocast off": (
        IN_AUTOCAST,
        "lib.K = mortice.autocast('cpu', dtype=mortice.bfloat16, enabled=False)",
    ),
    "nested compiled other": (
        """
def a(x): return x + 1
def b(x): return x - 1
g = mortice.compile(a)
def f(x, w):
    return g(x) @ w
""",
        "lib.g = mortice.compile(lib.b)",
    ),
    "index error path": (
        """
L = [1.0]
def f(x, w):
    try: return x * L[2]
    except IndexError: return x * 3
""",
        "lib.L += [2.0, 7.0]",
    ),
}

#: Functions whose values may differ from process to process.
PROCESS: dict[str, str] = {
    "config threads": """
def f(x, w):
    return x * mortice.config.num_threads
""",
    "str subclass": """
class I(str): pass
K = I('relu')
def f(x, w):
    return getattr(F, K)(x)
""",
    "hash of str": """
def f(x, w):
    return x @ w * (hash('mortice') % 1000)
""",
    "set order": """
def f(x, w):
    for i, s in enumerate(set(['a', 'b', 'c', 'd', 'e'])): x = x * (i + 1) + ord(s)
    return x @ w
""",
    "set pop": """
def f(x, w):
    return x @ w * ord(set(['a', 'b', 'c', 'd', 'e']).pop())
""",
    "list of set": """
def f(x, w):
    return x @ w * ord(list(set('abcdefg'))[0])
""",
    "set join": """
def f(x, w):
    return x @ w * ord(''.join(set('abcdefg'))[0])
""",
    "set update dict": """
def f(x, w):
    l = [*set('abcdefg')]
    return x @ w * ord(l[0])
""",
}
