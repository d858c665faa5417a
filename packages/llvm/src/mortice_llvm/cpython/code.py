"""The LLVM text of one function with Python's vectorcall signature.

A ``Code`` collects straight-line text with named blocks. Constants (objects, C functions,
addresses) are numbered; the text loads them from the table behind ``self``. Reference counts are
changed through the C API, whose functions know about immortal objects.
"""

from __future__ import annotations

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
}


class Code:
    """Text and constants of a function ``(self, args, nargs, kwnames) -> object``.

    ``table`` holds the numbers that ``constant`` was given, in order, after ``reserved`` ones that
    each function made of the text has for itself; ``kept`` the objects that must live as long as
    the function does.
    """

    def __init__(self, name: str = "entry", reserved: int = 0) -> None:
        self.name = name
        self.lines: list[str] = []
        self.table: list[int] = [0] * reserved
        self.kept: list[object] = []
        #: The machine code, once it is loaded; nothing is added to the text from then on.
        self.library: Library | None = None
        self._numbers: dict[int, int] = {}
        self._next = 0

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
        if api == "PyObject_Vectorcall" and not layout.HAS_VECTORCALL:
            function, values, count, names = arguments
            count = self.value(f"and i64 {count}, {0x7FFF_FFFF_FFFF_FFFF}")  # flags are above
            state = self.call("PyThreadState_Get")
            return self.call("_PyObject_MakeTpCall", state, function, values, count, names)
        result, parameters = API[api]
        return self.call_address(layout.python_function(api), result, parameters, arguments)

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

    def each(self, tag: str, count: str, body: Callable[[str], None]) -> None:
        """A loop over 0 .. count - 1; ``tag`` names its blocks, once in a text."""
        before, turn, done = f"{tag}_before", f"{tag}_turn", f"{tag}_done"
        self.do(f"br label %{before}")
        self.label(before)
        self.do(f"%{tag}_some = icmp sgt i64 {count}, 0")
        self.do(f"br i1 %{tag}_some, label %{turn}, label %{done}")
        self.label(turn)
        self.do(f"%{tag}_i = phi i64 [0, %{before}], [%{tag}_j, %{tag}_last]")
        body(f"%{tag}_i")
        self.do(f"br label %{tag}_last")
        self.label(f"{tag}_last")
        self.do(f"%{tag}_j = add i64 %{tag}_i, 1")
        self.do(f"%{tag}_more = icmp slt i64 %{tag}_j, {count}")
        self.do(f"br i1 %{tag}_more, label %{turn}, label %{done}")
        self.label(done)

    # -- the whole -----------------------------------------------------------------------------

    def text(self) -> str:
        """The module."""
        head = f"define ptr @{self.name}(ptr %self, ptr %args, i64 %nargs, ptr %kwnames) {{\n"
        tail = '}\n!0 = !{}\n!1 = !{!"branch_weights", i32 2000, i32 1}\n'
        return head + "\n".join(self.lines) + "\n" + tail
