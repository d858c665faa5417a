"""The LLVM text of functions with Python's vectorcall signature.

A ``Code`` collects straight-line text with named blocks. Constants (objects, C functions,
addresses) are numbered; the text loads them from the table behind ``self``. Reference counts are
changed in place up to Python 3.11, and from then on through the C API, whose functions know about
immortal objects.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from . import layout

if TYPE_CHECKING:
    from ..runtime.library import Library

#: (result type, parameter types) of the C API functions that the text calls.
API: dict[str, tuple[str, str]] = {
    "Py_IncRef": ("void", "ptr"),
    "Py_DecRef": ("void", "ptr"),
    "PyType_GenericAlloc": ("ptr", "ptr, i64"),
    "PyObject_Vectorcall": ("ptr", "ptr, ptr, i64, ptr"),
    "_PyObject_MakeTpCall": ("ptr", "ptr, ptr, ptr, i64, ptr"),
    "PyThreadState_Get": ("ptr", ""),
    "PyDict_GetItemWithError": ("ptr", "ptr, ptr"),
    "PyErr_Clear": ("void", ""),
    "PyLong_AsLongLong": ("i64", "ptr"),
    "PyTuple_New": ("ptr", "i64"),
    "PyList_New": ("ptr", "i64"),
    "PyEval_SaveThread": ("ptr", ""),
    "PyEval_RestoreThread": ("void", "ptr"),
    "PyMem_RawMalloc": ("ptr", "i64"),
    "PyMem_RawFree": ("void", "ptr"),
    "PyBytes_FromStringAndSize": ("ptr", "ptr, i64"),
    "PyDict_Clear": ("void", "ptr"),
    "PyDict_Next": ("i32", "ptr, ptr, ptr, ptr"),
    "PyDict_SetItem": ("i32", "ptr, ptr, ptr"),
    "PyErr_Fetch": ("void", "ptr, ptr, ptr"),
    "PyErr_NormalizeException": ("void", "ptr, ptr, ptr"),
    "PyErr_Restore": ("void", "ptr, ptr, ptr"),
    "PyException_SetTraceback": ("i32", "ptr, ptr"),
    "PyList_Append": ("i32", "ptr, ptr"),
    "PyLong_AsLongLongAndOverflow": ("i64", "ptr, ptr"),
    "PyLong_FromLongLong": ("ptr", "i64"),
    "PyObject_GenericGetDict": ("ptr", "ptr, ptr"),
    "PyObject_GetAttr": ("ptr", "ptr, ptr"),
    "PySequence_Contains": ("i32", "ptr, ptr"),
    "PyThread_get_thread_ident": ("i64", ""),
    "PyType_IsSubtype": ("i32", "ptr, ptr"),
    "PyUnicode_Compare": ("i32", "ptr, ptr"),
    "PyWeakref_GetObject": ("ptr", "ptr"),
    "PyWeakref_NewRef": ("ptr", "ptr, ptr"),
    "_Py_Dealloc": ("void", "ptr"),
}
_COUNTING = {"Py_IncRef": 1, "Py_DecRef": -1}

#: Parameters of functions that Python calls; ``self`` is the table, or a function taken over.
CALLED = "ptr %self, ptr %args, i64 %nargs, ptr %kwnames"
#: The bit of a count of arguments that says that the place before the first may be written to.
OFFSET_FLAG = 0x7FFF_FFFF_FFFF_FFFF


class Code:
    """Text and constants of a function ``(self, args, nargs, kwnames) -> object``, and of others.

    ``table`` holds the numbers that ``constant`` was given, in order, after ``reserved`` ones that
    each function made of the text has for itself; ``kept`` the objects that must live as long as
    the function does. ``function`` begins another one, which shares the table.
    """

    def __init__(self, name: str = "entry", reserved: int = 0) -> None:
        self.name = name
        self.lines: list[str] = []
        self.table: list[int] = [0] * reserved
        self.kept: list[object] = []
        #: The machine code, once it is loaded; nothing is added to the text from then on.
        self.library: Library | None = None
        #: Whether there are functions that take over Python's: they find the table in ``@shared``.
        self.uses_shared = False
        self._numbers: dict[int, int] = {}
        self._next = 0

    def function(self, name: str, parameters: str = CALLED) -> None:
        """Ends the function before, and begins another one of the same table."""
        self.lines += ["}", f"define ptr @{name}({parameters}) {{"]

    def taken(self, name: str) -> None:
        """Begins one that takes over Python functions (``take_over``): its self is such a function."""
        self.function(name, CALLED.replace("%self", "%callable"))
        self.do("%self = load ptr, ptr @shared")
        self.uses_shared = True

    def untaken(self) -> None:
        """Ends a function begun by ``taken`` as if nobody had taken the Python function over."""
        usual = self.constant(layout.word(layout.vectorcall_place()))
        given = "ptr %callable, ptr %args, i64 %nargs, ptr %kwnames"
        self.do(f"ret ptr {self.value(f'musttail call ptr {usual}({given})')}")

    # -- values --------------------------------------------------------------------------------

    def fresh(self, stem: str = "v") -> str:
        """A name that is not used yet, without its sigil."""
        self._next += 1
        return f"{stem}{self._next}"

    def do(self, line: str) -> None:
        """A statement without a result."""
        self.lines.append("  " + line)

    def value(self, expression: str) -> str:
        """The name of a new value."""
        name = "%" + self.fresh()
        self.do(f"{name} = {expression}")
        return name

    def label(self, name: str) -> None:
        """Begins a block."""
        self.lines.append(f"{name}:")

    def constant(self, number: int) -> str:
        """A 64-bit number of the table, as a pointer."""
        at = self._numbers.setdefault(number, len(self.table))
        if at == len(self.table):
            self.table.append(number)
        return self.reserved(at)

    def reserved(self, at: int) -> str:
        """A number of the table by its place, as a pointer."""
        place = self.value(f"getelementptr i8, ptr %self, i64 {layout.BYTES_DATA + 8 * at}")
        return self.value(f"load ptr, ptr {place}, align 8, !invariant.load !0")

    def object(self, thing: object) -> str:
        """A borrowed reference to a Python object, which the function keeps alive."""
        if id(thing) not in self._numbers:
            self.kept.append(thing)
        return self.constant(id(thing))

    def field(self, base: str, offset: int, type_: str = "ptr") -> str:
        """What lies at an offset from a pointer."""
        place = self.value(f"getelementptr i8, ptr {base}, i64 {offset}")
        return self.value(f"load {type_}, ptr {place}")

    def put(self, base: str, offset: int, value: str, type_: str = "ptr") -> None:
        """Stores at an offset from a pointer."""
        place = self.value(f"getelementptr i8, ptr {base}, i64 {offset}")
        self.do(f"store {type_} {value}, ptr {place}")

    # -- calls and branches --------------------------------------------------------------------

    def call(self, api: str, *arguments: str) -> str:
        """Calls a function of ``API``; the name of its result, if it has one."""
        if api in _COUNTING and sys.version_info < (3, 12):
            self._count(arguments[0], _COUNTING[api])
            return ""
        if api == "PyObject_Vectorcall" and not layout.HAS_VECTORCALL:
            function, values, count, names = arguments
            count = self.value(f"and i64 {count}, {OFFSET_FLAG}")
            state = self.call("PyThreadState_Get")
            return self.call("_PyObject_MakeTpCall", state, function, values, count, names)
        result, parameters = API[api]
        return self.call_address(layout.python_function(api), result, parameters, arguments)

    def _count(self, x: str, more: int) -> None:
        """Changes a reference count; NULL has none. Ten recorded operators take 0.3 us less by it."""
        there, none, over = (self.fresh(n) for n in ("counted", "last", "over"))
        self.branch(f"icmp ne ptr {x}, null", there, over)
        self.label(there)
        count = self.value(f"add i64 {self.value(f'load i64, ptr {x}')}, {more}")
        self.do(f"store i64 {count}, ptr {x}")
        if more < 0:
            self.branch(f"icmp eq i64 {count}, 0", none, over)
            self.label(none)
            self.call("_Py_Dealloc", x)
        self.do(f"br label %{over}")
        self.label(over)

    def call_address(
        self, address: int, result: str, parameters: str, arguments: Sequence[str]
    ) -> str:
        """Calls a C function by its address."""
        target = self.constant(address)
        types = [p.strip() for p in parameters.split(",") if p.strip()]
        given = ", ".join(f"{t} {a}" for t, a in zip(types, arguments))
        text = f"call {result} {target}({given})"
        if result == "void":
            self.do(text)
            return ""
        return self.value(text)

    def unless(self, condition: str, target: str) -> None:
        """Goes on where the condition holds, else to a block."""
        on = self.fresh("on")
        self.do(f"br i1 {condition}, label %{on}, label %{target}, !prof !1")
        self.label(on)

    def same(self, a: str, b: str, target: str, type_: str = "ptr") -> None:
        """Goes to a block unless two values are equal."""
        self.unless(self.value(f"icmp eq {type_} {a}, {b}"), target)

    def each(self, count: str, body: Callable[[str], None]) -> None:
        """A loop over 0 .. count - 1."""
        tag = self.fresh("each")
        i, before, turn, last, done = (
            f"{tag}_{x}" for x in ("i", "before", "turn", "last", "done")
        )
        self.do(f"br label %{before}")
        self.label(before)
        self.branch(f"icmp sgt i64 {count}, 0", turn, done)
        self.label(turn)
        self.do(f"%{i} = phi i64 [0, %{before}], [%{tag}_next, %{last}]")
        body(f"%{i}")
        self.do(f"br label %{last}")
        self.label(last)
        self.do(f"%{tag}_next = add i64 %{i}, 1")
        self.branch(f"icmp slt i64 %{tag}_next, {count}", turn, done)
        self.label(done)

    def branch(self, condition: str, yes: str, no: str) -> None:
        """Goes to one of two blocks."""
        self.do(f"br i1 {self.value(condition)}, label %{yes}, label %{no}")

    # -- the whole -----------------------------------------------------------------------------

    def text(self) -> str:
        """The module."""
        head = f"define ptr @{self.name}({CALLED}) {{\n"
        tail = '}\n!0 = !{}\n!1 = !{!"branch_weights", i32 2000, i32 1}\n'
        if self.uses_shared:
            tail += (
                "@shared = internal global ptr null\n"
                "define void @share(ptr %table) {\n  store ptr %table, ptr @shared\n  ret void\n}\n"
            )
        return head + "\n".join(self.lines) + "\n" + tail
