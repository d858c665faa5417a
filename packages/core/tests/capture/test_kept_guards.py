"""Guards and the files that they rely on, as another process reads them."""

from __future__ import annotations

import gc
import json
import marshal
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import mortice
from mortice._capture.guard_check import first_failure
from mortice._capture.guard_code import Unreachable, compile_check
from mortice._capture.guards import (
    AllArguments,
    Argument,
    ClassAttribute,
    DictItem,
    Element,
    Equals,
    GlobalState,
    Guard,
    HasForm,
    HasKeys,
    HasLength,
    HasType,
    Holds,
    InstanceDict,
    IsMissing,
    IsObject,
    IsSame,
    Ref,
    Root,
    Slot,
    TensorLike,
)
from mortice._capture.kept import files
from mortice._capture.kept.files import Unnamed, mark_of
from mortice._capture.kept.guards import GuardReader, GuardWriter, Missed
from mortice._capture.kept.naming import Writer, describe
from mortice._compile import kept


class Thing:
    size = 3

    def __init__(self) -> None:
        self.items = [1.0, 2.0]


def compiled(*args: Any) -> None:
    pass


def like(t: Any) -> TensorLike:
    return TensorLike(type(t), t._k, t.dtype, tuple(t.shape), t.stride(), t.requires_grad, t.device)


def some_guards(args: tuple[Any, ...]) -> list[Guard]:
    x, y, _ = args
    first, second, third = map(Argument, range(3))
    inner = InstanceDict(third)
    items = DictItem(inner, "items")
    names = Root("globals", Ref(globals(), strong=True))
    fn = Root("the compiled callable", Ref(compiled))
    return [
        Guard(AllArguments(), HasForm(3, ())),
        Guard(GlobalState("default dtype"), Equals(mortice.float32)),
        Guard(first, like(x)),
        Guard(second, like(y)),
        Guard(second, IsSame(first, same=False)),
        Guard(third, HasType(Thing)),
        Guard(ClassAttribute(Thing, "size"), Equals(3)),
        Guard(ClassAttribute(Thing, "other"), IsMissing()),
        Guard(inner, HasKeys(("items",))),
        Guard(items, HasType(list)),
        Guard(items, HasLength(2)),
        Guard(Element(items, 0), Equals(1.0)),
        Guard(Element(items, 1), Equals(2.0)),
        Guard(Slot(fn, "__code__"), IsObject(Ref(compiled.__code__))),
        Guard(Slot(fn, "__defaults__"), Equals(None)),
        Guard(Slot(fn, "__kwdefaults__"), Equals(None)),
        Guard(names, Holds("Thing", True)),
        Guard(DictItem(names, "like"), IsObject(Ref(like))),
        Guard(DictItem(names, "nothing"), IsMissing()),
    ]


def some_args() -> tuple[Any, ...]:
    return mortice.ones(2, 3), mortice.zeros(2, 3), Thing()


@pytest.fixture(autouse=True)
def _any_file_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are as old as is wanted here, however new they are."""
    monkeypatch.setattr(files, "STARTED", 1 << 62)
    monkeypatch.setattr(files, "_process", 1 << 62)


def through_disk(guards: list[Guard]) -> Any:
    data = GuardWriter(Writer(), compiled).guards(guards)
    return marshal.loads(marshal.dumps(data, 4))


def text_of(check: Any) -> str:
    return check.text


def test_guards_are_as_they_were_written() -> None:
    guards = some_guards(some_args())
    data = through_disk(guards)
    args = some_args()
    reader = GuardReader(data, compiled, args, {})
    reader.check()
    found = reader.found()
    assert list(map(str, found)) == list(map(str, guards))
    assert first_failure(found, args, {}) is None
    # The code of one is then known for the other.
    wanted = [[g.source for g in x if isinstance(g.source, Argument)] for x in (guards, found)]
    first, second = (compile_check(g, w) for g, w in zip((guards, found), wanted))
    assert text_of(first) == text_of(second)
    assert type(second(args, {})) is tuple
    assert second((*args[:2], 1), {}) == 5


def test_a_call_needs_no_guards() -> None:
    data = through_disk(some_guards(some_args()))
    args = some_args()
    reader = GuardReader(data, compiled, args, {})
    reader.check()
    made = {type(x) for x in reader.found.sources.values()}
    assert made <= {Root, Argument}  # what another one is the same as
    numbers = {row: n for n, row in enumerate(data[2])}
    assert reader.value(numbers["argument", 0]) is args[0]
    assert reader.source(numbers["argument", 0]) is reader.found()[2].source


@pytest.mark.parametrize("at", range(3))
def test_what_does_not_hold_is_missed(at: int) -> None:
    data = through_disk(some_guards(some_args()))
    args: list[Any] = list(some_args())
    args[at] = mortice.ones(3, 2) if at < 2 else object()
    reader = GuardReader(data, compiled, args, {})
    with pytest.raises(Missed):
        reader.check()
    assert reader.at == {0: 2, 1: 3, 2: 5}[at]
    with pytest.raises(Missed):
        GuardReader(data, compiled, args, {}).refuse(reader.at)
    GuardReader(data, compiled, args, {}).refuse(len(data[4]))


@pytest.mark.parametrize("values", [(1, 1.0, True), (0.0, -0.0, 0), ((1,), (1.0,), 1)])
def test_values_that_are_equal_and_not_the_same_stay_apart(values: tuple[Any, ...]) -> None:
    guards = [Guard(Argument(i), Equals(value)) for i, value in enumerate(values)]
    data = through_disk(guards)
    GuardReader(data, compiled, values, {}).check()
    for i in range(len(values)):
        moved = (*values[:i], values[i - 1], *values[i + 1 :])
        with pytest.raises(Missed):
            GuardReader(data, compiled, moved, {}).check()


def test_guards_in_common_are_one_object() -> None:
    args = some_args()
    guards = some_guards(args)
    data = through_disk(guards)
    reader = GuardReader(data, compiled, args, {})
    reader.check()
    found = reader.found()
    assert found[2].condition is found[3].condition
    assert found[14].condition is found[15].condition
    assert len(data[3]) == len({id(g.condition) for g in found}) == len(guards) - 3


def test_what_is_gone_before_guards_are_made_is_no_error() -> None:
    thing = Thing()
    namespace: dict[str, Any] = {"__name__": __name__}
    exec("def inner(): pass", globals(), namespace)
    thing.items.append(namespace["inner"])
    inner = Element(DictItem(InstanceDict(Argument(0)), "items"), 2)
    globals()["inner"] = namespace["inner"]
    try:
        data = through_disk([Guard(inner, IsObject(Ref(namespace["inner"])))])
        reader = GuardReader(data, compiled, (thing,), {})
        reader.check()
    finally:
        del globals()["inner"]
    made = reader.found
    del reader
    del namespace, thing.items[:]
    gc.collect()
    (guard,) = made()
    assert guard.condition.ref.get() is None  # it is not kept alive
    try:
        check = compile_check([guard], [])
    except Unreachable:
        return
    assert check((Thing(),), {}) in (0, -1)


# -- names that are not bound yet ------------------------------------------------------------------

#: A function and what the guard on it says in another process, which has not imported it.
UNBOUND = """
import json, marshal, sys
import mortice
from mortice._capture.guard_check import first_failure
from mortice._capture.guards import DictItem, Equals, Guard, IsObject, Ref, Root, Slot
from mortice._capture.kept.guards import GuardReader, GuardWriter, Missed
from mortice._capture.kept.naming import Writer

f = len
FAMILY = "mortice._generated.norm"

def other(input):
    return input

def write():
    names = Root("mortice", Ref(vars(mortice), strong=True))
    item = DictItem(names, "layer_norm")
    guards = [Guard(item, IsObject(Ref(mortice.layer_norm)))]
    if "through" in sys.argv:
        guards.append(Guard(Slot(item, "__kwdefaults__"), Equals(None)))
    return marshal.dumps(GuardWriter(Writer(), f).guards(guards), 4).hex()

def read(data):
    if "before" in sys.argv:
        mortice.layer_norm = other
    reader = GuardReader(marshal.loads(bytes.fromhex(data)), f, (), {})
    try:
        reader.check()
    except Missed:
        return "missed", FAMILY in sys.modules
    checked = FAMILY in sys.modules
    if "between" in sys.argv:
        mortice.layer_norm = other
    found = reader.found()
    holds = first_failure(found, (), {}) is None
    bound = vars(mortice)["layer_norm"] is other or FAMILY in sys.modules
    mortice.layer_norm = other
    assert first_failure(found, (), {}) is not None
    return "held", checked, holds, bound

print(json.dumps(write() if sys.argv[1] == "write" else read(sys.argv[2])))
"""


def played(program: Path, *words: str) -> Any:
    command = [sys.executable, str(program), *words]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1800)
    return json.loads(said.stdout)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("unbound") / "program.py"
    file.write_text(UNBOUND)
    return file


def test_a_function_that_is_not_imported_need_not_be(program: Path) -> None:
    written = played(program, "write")
    assert played(program, "read", written) == ["held", False, True, True]
    # Another one in its place is seen, whenever it is put there.
    assert played(program, "read", written, "before") == ["missed", False]
    assert played(program, "read", written, "between") == ["held", False, False, True]


def test_a_function_that_more_is_reached_through_is_imported(program: Path) -> None:
    written = played(program, "write", "through")
    assert played(program, "read", written) == ["held", True, True, True]


# -- files -----------------------------------------------------------------------------------------

PACKAGE = """
from mortice_of_files.{other} import CLOSED

def wrap(f, held):
    def wrapper(x, scale={scale}, *, type=None, by=len):
        return f(x * held), scale
    return wrapper

class Thing:
    pass

wrapped = wrap(CLOSED, {held})
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of the framework with two modules alike, of which one has defaults of another value."""
    folder = tmp_path / "mortice_of_files"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "closed.py").write_text("def CLOSED(x):\n    return x\n")
    texts = {
        "used": {}, "scaled": {"scale": 2.0}, "held": {"held": 5}
    }  # fmt: skip
    for name, change in texts.items():
        values = {"other": "closed", "scale": 1.0, "held": 4, **change}
        (folder / f"{name}.py").write_text(PACKAGE.format(**values))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [n for n in sys.modules if n.partition(".")[0] == folder.name]:
        del sys.modules[name]


def files_behind(value: Any) -> dict[str, Any]:
    names = Writer()
    names.number(value)
    return names.files


def size_and_time(file: Path) -> tuple[int, int]:
    stat = file.stat()
    return stat.st_size, stat.st_mtime_ns


def test_a_package_is_known_by_the_files_that_have_a_part(package: Path) -> None:
    used = import_module("mortice_of_files.used")
    marks = {n: size_and_time(package / f"{n.rpartition('.')[2]}.py") for n in (
        "mortice_of_files.used", "mortice_of_files.closed"
    )}  # fmt: skip
    assert files_behind(used.wrapped) == marks  # with what it closes over
    assert files_behind(used.Thing) == {used.__name__: marks[used.__name__]}
    assert files_behind(mortice.sum) == files_behind(len) == files_behind(json.dumps) == {}
    text = files_behind(like)[__name__]  # a user's
    assert type(text) is bytes


def test_what_a_packages_function_has_in_it_is_part_of_its_name(package: Path) -> None:
    modules = [import_module(f"mortice_of_files.{name}") for name in ("used", "scaled", "held")]
    rows = [describe(m.wrapped) for m in modules]
    assert {row[2] for row in rows} == {"wrap.<locals>.wrapper"}
    assert len({row[3] for row in rows}) == 1  # of one code
    assert len({row[4:] for row in rows}) == 3
    used = modules[0].wrapped
    used.__kwdefaults__["by"] = max
    assert describe(used) != rows[0]
    used.__kwdefaults__["by"] = len
    assert describe(used) == rows[0]


def test_a_file_that_was_changed(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = import_module("mortice_of_files.used").__name__
    file = package / "used.py"
    before, stat = mark_of(name), file.stat()
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns - 1_000_000_000))
    assert mark_of(name) != before
    file.write_text(file.read_text() + "# more\n")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert mark_of(name) != before
    monkeypatch.setattr(files, "_process", stat.st_mtime_ns - 1)
    with pytest.raises(Unnamed, match="changed since"):
        mark_of(name)
    file.unlink()
    with pytest.raises(Unnamed, match="gone"):
        mark_of(name)


def test_core_is_known_by_all_folders_that_say_what_is_recorded() -> None:
    """A guard that was missing must not be missing in what an earlier process has kept."""
    root = Path(kept.__file__).parents[1]
    known = {root / folder for folder in kept._SOURCES}
    within = {f.parent for top in ("_capture", "_ops", "fx") for f in (root / top).rglob("*.py")}
    assert within <= known
    assert {root, root / "_capture" / "observer", root / "_capture" / "kept"} <= known
    assert all(kept._contents(str(folder)) for folder in known)
