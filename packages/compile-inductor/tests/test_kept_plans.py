"""Replay plans kept on disk: a second process observes and records nothing, and is never wrong."""

from __future__ import annotations

import enum
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import kept_plan_cases
import numpy as np
import pytest
from inductor_graphs import assert_same

import mortice

PROGRAM = Path(__file__).with_name("kept_plan_program.py")
HEAD = "import mortice\nimport mortice.nn as nn\nF = nn.functional\n"
CALLS = """
def data(*shape, seed=5):
    return mortice.randn(*shape, generator=mortice.Generator().manual_seed(seed))

def calls():
    return [(data(6, 8), data(8, 4, seed=3))]
"""


class Folder:
    """A folder with modules and a cache; each run is a process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        env = os.environ
        places = [str(path), *filter(None, [env.get("PYTHONPATH")])]
        self.env = {
            **env, "MORTICE_CACHE_DIR": str(path / "cache"), "PYTHONPATH": os.pathsep.join(places)
        }  # fmt: skip

    def write(self, text: str, name: str = "lib") -> None:
        """A module; older than any process that imports it."""
        file = self.path / f"{name}.py"
        file.write_text(HEAD + CALLS + text)
        past = time.time() - 100
        os.utime(file, (past, past))

    def start(self, rows: list[tuple[str, str, int]]) -> subprocess.Popen[str]:
        command = [sys.executable, str(PROGRAM), json.dumps(rows)]
        return subprocess.Popen(
            command, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def play(self, rows: list[tuple[str, str, int]]) -> dict[str, dict[str, Any]]:
        """What a process found, whose results were eager's."""
        return found_by(self.start(rows))

    def run(self, change: str = "", times: int = 2) -> dict[str, Any]:
        return self.play([("lib", change, times)])["lib"]


def found_by(process: subprocess.Popen[str]) -> dict[str, dict[str, Any]]:
    out, errors = process.communicate(timeout=1800)
    assert process.returncode == 0, errors
    found = json.loads(out.splitlines()[-1])
    wrong = {name: one for name, one in found.items() if not one["same"]}
    assert not wrong
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


PLAIN = "def f(x, w):\n    return (x @ w).relu().exp().sum(0)\n"

#: Functions whose plans are kept.
KEPT = {
    "plain": PLAIN,
    "gradients": """
W = data(8, 4, seed=9).requires_grad_()
def f(x, w):
    return F.gelu(x @ (w * W)).sum()
def calls():
    return [(data(6, 8), data(8, 4, seed=3).requires_grad_())]
""",
    "a module's parameters": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        mortice.manual_seed(3)
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 8)
        self.scale = 0.5
    def forward(self, x):
        return self.second(F.relu(self.first(x))) * self.scale + x
f = Block()
def calls():
    return [(data(6, 8),)]
""",
    "numbers as operands": """
def f(x, w, a):
    return (x * a + a * 2).tanh() @ w
def calls():
    return [(data(6, 8), data(8, 4, seed=3), a) for a in (0.5, 1.5, 2.5)]
""",
    "operators by name": """
OPS = (mortice.ops.aten.relu, mortice.ops.aten.add.Tensor)
def f(x, w):
    return OPS[1](OPS[0](x), OPS[0](w).sum())
""",
    "containers": """
def f(x, w):
    y = x @ w
    return {"sum": y.sum(), "parts": [y.relu(), (y.exp(), 3, None)], "in": x}
""",
    "zip and enumerate": """
def f(x, w):
    total = 0.0
    for i, (a, b) in enumerate(zip((x, x + 1), [w, w * 2])):
        total = total + (a @ b) * i
    (first, _), = list(zip([total], [1]))
    return first.sum()
""",
    "closures, defaults and partial": """
import functools
def make(k):
    def inner(x, *, power=2.0):
        return (x * k) ** power
    return inner
G = functools.partial(make(3.0), power=2.0)
def f(x, w, act=F.relu):
    return act(G(x) @ w)
""",
    "a value that is kept in another layout": """
S = mortice.full((), 0.35)
def f(x, w):
    q = (x @ w).view(6, 2, 2).transpose(0, 1) * S
    return ((q @ q.transpose(1, 2)).softmax(-1) @ q * mortice.linspace(0, 1, 24).view(2, 6, 2)).mean()
def calls():
    return [(data(6, 8).requires_grad_(), data(8, 4, seed=3).requires_grad_())]
""",
    "a named tuple": """
from typing import NamedTuple
class Pair(NamedTuple):
    a: object
    b: object
P = Pair(data(8, 4, seed=1), 2.0)
def f(x, w):
    return (x @ (w + P.a)) * P.b
""",
}  # fmt: skip


def named(cases: Iterable[str]) -> dict[str, str]:
    return {name: "case_" + "".join(c if c.isalnum() else "_" for c in name) for name in cases}


def test_a_second_process_observes_and_records_nothing(folder: Folder) -> None:
    modules = named(KEPT)
    for name, module in modules.items():
        folder.write(KEPT[name], module)
    first = folder.play([(m, "", 2) for m in modules.values()])
    assert all(one["kept"] == 0 and one["observed"] for one in first.values())
    for times in (2, 40):  # native code answers the last of many
        second = folder.play([(m, "", times) for m in modules.values()])
        for module, one in second.items():
            assert (one["kept"], one["observed"], one["recorded"]) == (1, 0, 0), (module, one)
            assert one["nodes"] == first[module]["nodes"], module  # it can be shown
    assert all(one["nodes"][0] for one in first.values())


def test_plans_of_one_graph_have_it_in_common(folder: Folder) -> None:
    """A plan is for one value of a number that the operator looks at; its graph is for all of them."""
    folder.write("""
def f(x, v):
    return x.masked_fill(x > 0, v)
def calls():
    return [(data(6, 8), k / 16) for k in range(20)]
""")
    found = [folder.run() for _ in range(4)]
    assert found[-1]["kept"] > 2, "plans"
    assert all(len(one["nodes"]) <= 3 for one in found), "graphs"


def test_a_report_says_that_a_plan_was_found(folder: Folder) -> None:
    folder.write(PLAIN)
    assert folder.run()["calls"].startswith("verdict: replay; calls observed 1, ")
    assert folder.run()["calls"].startswith("verdict: replay; calls found 1, observed 0, ")


def test_a_function_called_once_is_not_kept(folder: Folder) -> None:
    folder.write(PLAIN)
    for _ in range(2):
        assert folder.run(times=1)["kept"] == 0


def test_other_calls_are_observed_and_kept_as_well(folder: Folder) -> None:
    """What a call was recorded with is known again, though a plan of before answers others."""
    folder.write(PLAIN)
    folder.run()
    other = (
        "lib.calls = lambda: [(lib.data(6, 8), lib.data(8, 4)), (lib.data(5, 8), lib.data(8, 4))]"
    )
    found = folder.run(other)
    assert found["kept"] == 1
    assert found["observed"] == 1
    found = folder.run(other)
    assert (found["kept"], found["observed"]) == (1, 1)  # the second is for any sizes, and not kept
    assert folder.run("lib.calls = lambda: [(lib.data(9, 8), lib.data(8, 4))]")["kept"] == 0


STANCES = ("fail_on_recompile", "eager_on_recompile")
READS = """
def f(x, w):
    y = (x @ w).relu()
    return y.exp().sum(0) if float(y.sum()) > 0 else y
"""


@pytest.mark.parametrize("stance", STANCES)
@pytest.mark.parametrize(("text", "kept"), [(PLAIN, 1), (READS, 0)], ids=["plan", "graphs"])
def test_what_is_on_disk_is_compiled(folder: Folder, text: str, kept: int, stance: str) -> None:
    """A plan, or where there is none, the graphs: nothing is compiled, so that nothing is refused."""
    folder.write(text)
    change = f"mortice.compiler.set_stance({stance!r})"
    if stance == "fail_on_recompile":
        with pytest.raises(AssertionError, match="f has to be compiled for the segment"):
            folder.run(change)
    folder.run()
    found = folder.run(change, 12)
    assert (found["kept"], found["observed"]) == (kept, 0)
    assert len(found["nodes"]) == 2 - kept  # none of them "not compiled"
    other = "lib.calls = lambda: [(lib.data(7, 8), lib.data(8, 4))]\n" + change
    if stance == "fail_on_recompile":
        with pytest.raises(AssertionError, match="f has to be compiled for the segment"):
            folder.run(other)
    else:
        assert folder.run(other)["nodes"] == []


#: Between two calls, another kernel for an operator comes, and goes.
KERNEL_BETWEEN = """
class Calls(list):
    def __iter__(self):
        yield self[0]
        own = mortice.library.Library("aten", "IMPL")
        own.impl("exp", lambda x: x * 0 + 3, "CPU")
        yield self[0]
        yield self[0]
        own._destroy()
        yield self[0]
lib.calls = lambda: Calls([(lib.data(6, 8), lib.data(8, 4, seed=3))])
"""


def test_a_kernel_that_comes_after_a_plan_was_found(folder: Folder) -> None:
    folder.write(PLAIN)
    folder.run()
    for times in (1, 12):
        folder.run(KERNEL_BETWEEN, times)
    assert folder.run()["kept"] == 1


#: Function, and what another process does before it compiles: its plan must not be used.
CHANGED = {
    "a global number": ("K = 2.0\ndef f(x, w):\n    return x @ w * K\n", "lib.K = 3.0"),
    "its type": ("K = 2\ndef f(x, w):\n    return x @ w * K\n", "lib.K = 2.0"),
    "a global function": (
        "def g(x):\n    return x.exp()\ndef f(x, w):\n    return g(x) @ w\n",
        "lib.g = lambda x: x.sin()",
    ),
    "a function's code": (
        "def g(x):\n    return x.exp()\ndef f(x, w):\n    return g(x) @ w\n",
        "lib.g.__code__ = (lambda x: x.sin()).__code__",
    ),
    "a default": (
        "def f(x, w, k=2.0):\n    return x @ w * k\n", "lib.f.__defaults__ = (3.0,)",
    ),
    "an attribute": (
        "class C:\n    k = 2.0\nc = C()\ndef f(x, w):\n    return x @ w * c.k\n", "lib.C.k = 3.0",
    ),
    "an attribute of an instance": (
        "class C:\n    k = 2.0\nc = C()\ndef f(x, w):\n    return x @ w * c.k\n", "lib.c.k = 3.0",
    ),
    "a method": (
        ("class C:\n    def k(self, x):\n        return x + 1\nc = C()\n"
        "def f(x, w):\n    return c.k(x) @ w\n"),
        "lib.C.k = lambda self, x: x - 1",
    ),
    "a property": (
        ("class C:\n    @property\n    def k(self):\n        return 2.0\nc = C()\n"
        "def f(x, w):\n    return x @ w * c.k\n"),
        "lib.C.k = property(lambda self: 3.0)",
    ),
    "a list": ("L = [1.0, 2.0]\ndef f(x, w):\n    return x @ w * sum(L)\n", "lib.L.append(3.0)"),
    "what a closure holds": (
        "def make(k):\n    return lambda x, w: x @ w * k\nf = make(2.0)\n", "lib.f = lib.make(3.0)",
    ),
    "training": (
        ("class M(nn.Module):\n    def forward(self, x, w):\n"
        "        return x @ w if self.training else w.sum() + x\nf = M()\n"),
        "lib.f.eval()",
    ),
    "the framework's function": (
        "def f(x, w):\n    return mortice.relu(x @ w)\n", "mortice.relu = mortice.sin",
    ),
    "a built-in of the module": (
        "def f(x, w):\n    return x @ w * max(2.0, 1.0)\n", "lib.max = lambda a, b: b",
    ),
    "grad mode": (
        PLAIN + "def calls():\n    return [(data(6, 8), data(8, 4).requires_grad_())]\n",
        "mortice.set_grad_enabled(False)",
    ),
    "the sizes": (PLAIN, "lib.calls = lambda: [(lib.data(7, 8), lib.data(8, 4))]"),
    "the dtype": (
        PLAIN, "lib.calls = lambda: [(lib.data(6, 8).double(), lib.data(8, 4).double())]",
    ),
    "the strides": (PLAIN, "lib.calls = lambda: [(lib.data(8, 6).t(), lib.data(8, 4))]"),
    "requires_grad": (
        PLAIN, "lib.calls = lambda: [(lib.data(6, 8), lib.data(8, 4).requires_grad_())]",
    ),
    "the class of an argument": (
        "def f(x, w):\n    return x @ w\n",
        "lib.calls = lambda: [(lib.data(6, 8), lib.nn.Parameter(lib.data(8, 4)))]",
    ),
    "which of two functions": (
        ("def make():\n    return lambda x: x + 1\nA, B = make(), make()\n"
        "def f(x, w):\n    return (x if A is B else -x) @ w\n"),
        "lib.B = lib.A",
    ),
    "a base class": (
        ("class P:\n    k = 2.0\nclass Q:\n    k = 3.0\nclass C(P):\n    pass\nc = C()\n"
        "def f(x, w):\n    return x @ w * c.k\n"),
        "lib.C.__bases__ = (lib.Q,)",
    ),
    "the default dtype": (
        "def f(x, w):\n    return (x @ w).double() + mortice.ones(4)\n",
        ("mortice.set_default_dtype(mortice.float64); "
        "lib.calls = lambda: [(lib.data(6, 8).float(), lib.data(8, 4).float())]"),
    ),
}  # fmt: skip


def test_another_process_in_which_something_differs(folder: Folder) -> None:
    cases = {**CHANGED, **kept_plan_cases.CHANGED}
    modules = named(cases)
    for name, module in modules.items():
        folder.write(cases[name][0], module)
    same = [(m, "", 2) for m in modules.values()]
    changed = [(modules[name], change, 2) for name, (_, change) in cases.items()]
    assert {m: one["kept"] for m, one in folder.play(same).items() if one["kept"]} == {}
    for name, one in folder.play(same).items():
        assert one["kept"] == 1, (name, one)  # it would be used
    for name, one in folder.play(changed).items():
        assert (one["kept"], one["observed"] > 0) == (0, True), (name, one)
    assert {m: one for m, one in folder.play(same).items() if one["kept"] != 1} == {}
    found = folder.play(changed)  # both are kept, but where code has come from no file
    unnamed = {"a global function", "a method", "a property", "a built-in of the module"}
    assert {name for name in CHANGED if not found[modules[name]]["kept"]} == unnamed


def test_a_file_that_was_changed(folder: Folder) -> None:
    """Of a class not everything is guarded: its file says that it is as it was."""
    text = "class C:\n    k = 2.0\nc = C()\ndef f(x, w):\n    return x @ w * c.k\n"
    folder.write(text)
    folder.run()
    assert folder.run()["kept"] == 1
    folder.write(text + "# a comment\n")
    assert folder.run()["kept"] == 0
    assert folder.run()["kept"] == 1


def test_a_file_newer_than_the_process_is_not_trusted(folder: Folder) -> None:
    folder.write("class C:\n    k = 2.0\nc = C()\ndef f(x, w):\n    return x @ w * c.k\n")
    future = "import os, time; t = time.time() + 5; os.utime(lib.__file__, (t, t))"
    folder.run(future)
    assert folder.run()["kept"] == 0


def test_a_module_of_the_same_name_from_another_place(folder: Folder) -> None:
    """Its text counts, and neither the path nor the time of its file."""
    text = "class C:\n    k = 2.0\nc = C()\ndef f(x, w):\n    return x @ w * c.k\n"
    folder.write(text)
    folder.run()
    (folder.path / "other").mkdir()
    (folder.path / "lib.py").rename(folder.path / "other" / "lib.py")
    folder.env["PYTHONPATH"] = os.pathsep.join(
        [str(folder.path / "other"), folder.env["PYTHONPATH"]]
    )
    assert folder.run()["kept"] == 1
    folder.write(text.replace("c.k", "c.k "))
    (folder.path / "lib.py").rename(folder.path / "other" / "lib.py")
    assert folder.run()["kept"] == 0
    assert folder.run()["kept"] == 1


def test_a_file_edited_while_a_process_runs_is_not_trusted(folder: Folder) -> None:
    """Nor where its time is put back."""
    folder.write("class C:\n    k = 2.0\nc = C()\ndef f(x, w):\n    return x @ w * c.k\n")
    edited = (
        "import os, pathlib; p = pathlib.Path(lib.__file__); t = p.stat().st_mtime_ns; "
        "p.write_text(p.read_text().replace('2.0', '3.0')); os.utime(p, ns=(t, t))"
    )
    folder.run(edited)
    assert folder.run()["kept"] == 0
    assert folder.run()["kept"] == 1


def test_modules_named_as_pythons_own(folder: Folder) -> None:
    """``this`` is a module of Python's, which no file is compared for."""
    text = "class C:\n    k = 2.0\nc = C()\ndef f(x, w):\n    return x @ w * c.k\n"
    for kept in (0, 1):
        folder.write(text, "this")
        assert folder.play([("this", "", 2)])["this"]["kept"] == kept
    folder.write(text + "# edited\n", "this")
    assert folder.play([("this", "", 2)])["this"]["kept"] == 0


#: Functions of plans that differ in what is in their last argument: two for which there are plans, one for
#: which there is none, and one of another type, whose code is the function's alone to run.
OWN_CODE = {
    "a property": (
        """
class C:
    __slots__ = ('k',)
    def __init__(self, k): self.k = k
class Refused(Exception): pass
class Own:
    @property
    def k(self): raise Refused
def f(x, c):
    return x * c.k if type(c) is C else x - 1
""",
        ("lib.C(2.0)", "lib.C(3.0)", "lib.C(9.0)", "lib.Own()"),
    ),
    "an index": (
        """
class Refused(Exception): pass
class Own(list):
    def __getitem__(self, i): raise Refused
def f(x, c):
    return x * c[0] if type(c) is list else x - 1
""",
        ("[2.0]", "[3.0]", "[9.0]", "lib.Own([1.0])"),
    ),
}  # fmt: skip


def test_looking_for_a_plan_runs_nobodys_code(folder: Folder) -> None:
    modules = named(OWN_CODE)
    for name, module in modules.items():
        folder.write(OWN_CODE[name][0], module)
    one = "lib.calls = lambda: [(lib.data(6, 8), {})]"
    for k in range(2):
        rows = [(modules[name], one.format(args[k]), 2) for name, (_, args) in OWN_CODE.items()]
        assert {m: found["kept"] for m, found in folder.play(rows).items() if found["kept"]} == {}
    both = "lib.calls = lambda: [(lib.data(6, 8), {}), (lib.data(6, 8), {})]"
    rows = [(modules[name], both.format(*args[2:]), 1) for name, (_, args) in OWN_CODE.items()]
    folder.play(rows)


def test_names_that_are_no_plain_str(tmp_path: Path) -> None:
    """Neither of a function, nor of one that it calls, nor by which an argument is given."""

    class Name(str):
        __slots__ = ()

    class Choice(str, enum.Enum):
        OF_W = "w"

    def inner(x: Any) -> Any:
        return x + 1

    def outer(x: Any, w: Any) -> Any:
        return inner(x) @ w

    def named(x: Any, w: Any) -> Any:
        return x @ w

    inner.__qualname__ = named.__qualname__ = Name("some")
    x, w = mortice.ones(2, 3), mortice.ones(3, 2)
    with mortice.config.override(cache_dir=str(tmp_path)):
        for f in (outer, named):
            for key in ("w", Name("w"), np.str_("w"), Choice.OF_W):
                compiled = mortice.compile(f, backend="inductor")
                for k in (key, "w", key):
                    for _ in range(12):
                        assert_same(compiled(x, **{k: w}), f(x, w))


def test_damaged_plans_are_misses(folder: Folder) -> None:
    folder.write(PLAIN)
    folder.run()
    entries = {p: p.read_bytes() for p in (folder.path / "cache").rglob("*") if p.is_file()}
    for damage in (lambda b: b[:40], lambda b: b[:-1] + b"?", lambda b: b""):
        for path, data in entries.items():
            path.write_bytes(damage(data))
        assert folder.run()["kept"] == 0
        assert folder.run()["kept"] == 1


def test_processes_that_keep_plans_at_once(folder: Folder) -> None:
    folder.write(PLAIN)
    for process in [folder.start([("lib", "", 3)]) for _ in range(3)]:
        found_by(process)
    assert folder.run()["kept"] == 1


#: Functions whose plans are not kept, being written with what only one process knows.
UNKEPT = {
    "random numbers": "def f(x, w):\n    mortice.manual_seed(1)\n    return mortice.rand(3) + x.sum()\n",
    "a write": "def f(x, w):\n    x.add_(0.0)\n    return x @ w\n",
    "inputs that share memory": (
        "def f(x, y):\n    return x.sin() + y\n"
        "def calls():\n    a = data(6, 8)\n    return [(a[:4], a[1:5])]\n"
    ),
    "a view": "def f(x, w):\n    return (x @ w).t()\n",
    "a value that Python reads": "def f(x, w):\n    return x @ w if x.sum() > 0 else x - 1\n",
    "what isinstance says of an abstract class": (
        "from collections.abc import Sized\ndef f(x, w):\n"
        "    return x @ w if isinstance([1], Sized) else x\n"
    ),
}  # fmt: skip


def test_what_cannot_be_kept_is_observed_again(folder: Folder) -> None:
    cases = {**UNKEPT, **kept_plan_cases.PROCESS}
    modules = named(cases)
    for name, module in modules.items():
        folder.write(cases[name], module)
    for _ in range(2):
        found = folder.play([(m, "", 2) for m in modules.values()])
        assert not [m for m, one in found.items() if one["kept"]]


@pytest.mark.parametrize("name", kept_plan_cases.CHANGED)
def test_what_differs_is_seen_in_one_process_as_well(name: str) -> None:
    text, change = kept_plan_cases.CHANGED[name]
    lib = ModuleType("lib")
    exec(HEAD + CALLS + text, vars(lib))
    function = lib.f
    compiled = mortice.compile(function, backend="eager")
    (args,) = lib.calls()
    for changed in ("", change):
        exec(changed, {"lib": lib, "mortice": mortice})
        for _ in range(3):
            assert_same(compiled(*args), function(*args))


def test_containers_of_classes_are_looked_into_natively() -> None:
    class C:
        table: Any = {"a": 2.0}
        items: Any = [1.0, 2.0]

    def f(x: Any) -> Any:
        for v in (*C.items, *C.table.values()):
            x = x * v + 1
        return x

    compiled = mortice.compile(f, backend="inductor")
    x = mortice.ones(2)
    for change in (lambda: None, lambda: C.items.append(3.0), lambda: C.table.update(b=5.0)):
        change()
        for _ in range(20):
            assert_same(compiled(x), f(x))
