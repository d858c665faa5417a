"""A compiled graph as one native function: no Python runs between the call and the kernels.

It does what ``Program.__call__`` does, for programs without foreign steps: reads the inputs'
addresses, allocates the outputs, fills the table, calls the driver, wraps. Whatever is unusual (a
subclass of ndarray behind an input, a number of another type, a call while another one runs) goes
to the program itself. 0.3 us for two inputs and one output; the program takes 5.

The machine code is one for all graphs, so that a graph costs no compilation here: it follows rows
of words that say what the graph has (``rows``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from mortice.native import layout
from mortice_llvm.cpython import Code, make, unsupported
from mortice_llvm.cpython import layout as c

from .rows import ARGUMENT, FLOAT, FRESH, INTEGER, OBJECT, PLACE, ROWS, TENSOR, Form, Rows

if TYPE_CHECKING:
    from ..runtime.program import Program

NAME = "compiled graph"


def runner(program: Program, form: Form | None) -> Callable[..., tuple[Any, ...]] | None:
    """``program`` as a builtin function, which goes to the program when anything is unusual; None
    where it must stay Python's. ``form``: of its plan.
    """
    if unsupported() is not None or form is None or program.constants:
        return None
    rows = Rows(program, form)
    return make(_machine(), NAME, first=(rows.address,), kept=(rows, *rows.kept))


def is_runner(function: Any) -> bool:
    """Whether it is a compiled graph, which does the same in any dispatch mode."""
    return type(function) is BuiltinFunctionType and function.__name__ == NAME


# -- the machine code ------------------------------------------------------------------------------


@cache
def _machine() -> Code:
    """The text; the same for all graphs, and so compiled once for all time."""
    return _Writer().code


class _Writer:
    """Writes the text in the order in which it runs."""

    def __init__(self) -> None:
        self.code = code = Code("run", reserved=1)
        self.core = layout()
        self.tensor = code.object(self.core.tensor)
        self.ndarray = code.object(np.ndarray)
        self.head = code.reserved(0)
        self.table = self.word("table")
        self.overflow = code.value("alloca i64, align 8")
        self.thread = code.value("alloca ptr, align 8")
        self.count = self.word("made", "i64")
        self.arrays = code.value(f"alloca ptr, i64 {self.count}, align 8")
        self.blocks = code.value(f"alloca ptr, i64 {self.word('blocks', 'i64')}, align 8")
        code.same("%nargs", self.word("arguments", "i64"), "miss", "i64")
        code.same("%kwnames", "null", "miss")
        self.busy = self.word("busy")
        code.same(code.field(self.busy, 0, "i64"), "0", "miss", "i64")
        self.rows("arguments", self.argument)
        self.rows("inputs", self.input)
        code.each(self.count, lambda i: self.keep(i, "null"))
        code.each(self.word("blocks", "i64"), lambda i: self.hold(i, "null"))
        self.rows("blocks", self.block)
        self.rows("made", self.allocate)
        self.launch()
        self.rows("checks", self.check)
        self.outputs = self.word("outputs", "i64")
        self.result = code.call("PyTuple_New", self.outputs)
        code.unless(code.value(f"icmp ne ptr {self.result}, null"), "failed")
        self.rows("outputs", self.output)
        self.free()
        code.do(f"ret ptr {self.result}")
        self.ends()

    # -- pieces --------------------------------------------------------------------------------

    def word(self, name: str, type_: str = "ptr", more: int = 0) -> str:
        """A word of the head."""
        return self.code.field(self.head, PLACE[name] + more, type_)

    def rows(self, name: str, body: Callable[[str, str], None]) -> None:
        """``body(i, where row i lies)`` for each row."""
        code = self.code
        first = self.word(name, "ptr", 8)

        def turn(i: str) -> None:
            far = code.value(f"mul i64 {i}, {8 * ROWS[name]}")
            body(i, code.value(f"getelementptr i8, ptr {first}, i64 {far}"))

        code.each(self.word(name, "i64"), turn)

    def at(self, base: str, index: str, unit: str = "ptr") -> str:
        return self.code.value(f"getelementptr {unit}, ptr {base}, i64 {index}")

    def load(self, base: str, index: str) -> str:
        return self.code.value(f"load ptr, ptr {self.at(base, index)}, align 8")

    def put(self, row: str, word: int, value: str, type_: str = "ptr") -> None:
        """Into the table, at the byte that a row's word names."""
        place = self.at(self.table, self.code.field(row, 8 * word, "i64"), "i8")
        self.code.do(f"store {type_} {value}, ptr {place}, align 8")

    def keep(self, index: str, array: str) -> None:
        self.code.do(f"store ptr {array}, ptr {self.at(self.arrays, index)}, align 8")

    def hold(self, index: str, array: str) -> None:
        self.code.do(f"store ptr {array}, ptr {self.at(self.blocks, index)}, align 8")

    def free(self) -> None:
        """Gives up the arrays that nobody has taken over."""
        for count, arrays in (
            (self.count, self.arrays), (self.word("blocks", "i64"), self.blocks)
        ):  # fmt: skip
            self.code.each(
                count, lambda i, a=arrays: void(self.code.call("Py_DecRef", self.load(a, i)))
            )

    def choose(
        self, tag: str, number: str, cases: Sequence[tuple[int, Callable[[], None]]]
    ) -> None:
        """Runs the case of a number, and goes on behind all of them."""
        code = self.code
        labels = " ".join(f"i64 {n}, label %{tag}_{n}" for n, _ in cases)
        code.do(f"switch i64 {number}, label %miss [{labels}]")
        for n, write in cases:
            code.label(f"{tag}_{n}")
            write()
            code.do(f"br label %{tag}_end")
        code.label(f"{tag}_end")

    # -- the call ------------------------------------------------------------------------------

    def argument(self, i: str, row: str) -> None:
        """Is what the graph was compiled for; numbers go to the table."""
        code = self.code
        given = self.load("%args", i)
        kind = code.field(given, c.OB_TYPE)

        def is_float() -> None:
            code.same(kind, code.object(float), "miss")
            self.put(row, 1, code.field(given, c.FLOAT_VALUE, "double"), "double")

        def is_integer() -> None:
            """One of more than 64 bits goes to the program, which refuses it."""
            code.same(kind, code.object(int), "miss")
            value = code.call("PyLong_AsLongLongAndOverflow", given, self.overflow)
            code.same(code.field(self.overflow, 0, "i32"), "0", "miss", "i32")
            self.put(row, 1, value, "i64")

        cases = [(TENSOR, lambda: self.is_tensor(given, kind)), (FLOAT, is_float),
                 (INTEGER, is_integer)]  # fmt: skip
        self.choose("argument", code.field(row, 0, "i64"), cases)

    def is_tensor(self, given: str, kind: str) -> None:
        """A Tensor or an instance of a subclass, over a numpy array."""
        code = self.code
        same = code.value(f"icmp eq ptr {kind}, {self.tensor}")
        code.do(f"br i1 {same}, label %plain, label %sub")
        code.label("sub")
        found = code.call("PyType_IsSubtype", kind, self.tensor)
        derived = code.value(f"icmp ne i32 {found}, 0")
        code.do(f"br i1 {derived}, label %plain, label %miss")
        code.label("plain")
        handle = code.field(given, self.core.slots["_a"])
        code.unless(code.value(f"icmp ne ptr {handle}, null"), "miss")
        code.same(code.field(handle, c.OB_TYPE), self.ndarray, "miss")

    def input(self, i: str, row: str) -> None:
        code = self.code
        handle = code.field(
            self.load("%args", code.field(row, 0, "i64")), self.core.slots["_a"]
        )  # fmt: skip
        self.put(row, 1, code.field(handle, c.ARRAY_DATA))

    def block(self, i: str, row: str) -> None:
        """The array of an argument that nobody but this call has, in which results may then lie; of
        others, which may not be written to, a new one of as many bytes.
        """
        code = self.code
        given = self.load("%args", code.field(row, 0, "i64"))
        array = code.field(given, self.core.slots["_a"])
        flags = code.field(array, c.ARRAY_FLAGS, "i32")
        own = code.value(f"and i32 {flags}, {c.OWN_DATA | c.WRITEABLE}")
        conditions = [
            f"icmp eq i32 {code.field(given, c.OB_REFCOUNT, 'i32')}, 1",
            f"icmp eq ptr {code.field(given, c.OB_TYPE)}, {self.tensor}",
            f"icmp eq ptr {code.field(given, self.core.slots['_s'])}, {code.object(None)}",
            f"icmp eq i32 {code.field(array, c.OB_REFCOUNT, 'i32')}, 1",
            f"icmp eq i32 {own}, {c.OWN_DATA | c.WRITEABLE}",
        ]
        mine = "true"
        for condition in conditions:
            mine = code.value(f"and i1 {mine}, {code.value(condition)}")
        take, make, taken = (code.fresh(x) for x in ("take", "make", "taken"))
        code.do(f"br i1 {mine}, label %{take}, label %{make}")
        code.label(take)
        code.call("Py_IncRef", array)
        self.hold(i, array)
        code.do(f"br label %{taken}")
        code.label(make)
        new = self.array(code.object(np.dtype(np.uint8)), "1", code.field(row, 8))
        self.hold(i, new)
        code.do(f"br label %{taken}")
        code.label(taken)

    def allocate(self, i: str, row: str) -> None:
        """A new array, in a block or with memory of its own."""
        code = self.code
        dimensions = code.value(f"trunc i64 {code.field(row, 8, 'i64')} to i32")
        what = (code.field(row, 0), dimensions, code.field(row, 16), code.field(row, 24))
        inside, alone, made = (code.fresh(x) for x in ("inside", "alone", "made"))
        code.branch(f"icmp sge i64 {code.field(row, 40, 'i64')}, 0", inside, alone)
        code.label(inside)
        block = self.load(self.blocks, code.field(row, 40, "i64"))
        data = self.at(code.field(block, c.ARRAY_DATA), code.field(row, 48, "i64"), "i8")
        row_major = code.value(f"icmp eq ptr {what[3]}, null")
        writeable = c.ALIGNED | c.WRITEABLE
        flags = code.value(
            f"select i1 {row_major}, i32 {writeable | c.C_CONTIGUOUS}, i32 {writeable}"
        )
        array = self.array(*what, data, flags)
        self.keep(i, array)
        code.call("Py_IncRef", block)
        code.put(array, c.ARRAY_BASE, block)
        self.put(row, 4, data)
        code.do(f"br label %{made}")
        code.label(alone)
        array = self.array(*what)
        self.keep(i, array)
        self.put(row, 4, code.field(array, c.ARRAY_DATA))
        code.do(f"br label %{made}")
        code.label(made)

    def array(
        self, descr: str, dimensions: str, sizes: str, strides: str = "null", data: str = "null",
        flags: str = "0",
    ) -> str:  # fmt: skip
        """A new array; without memory for one, those before it are freed."""
        code = self.code
        code.call("Py_IncRef", descr)  # NewFromDescr keeps it
        array = code.call_address(
            c.numpy_function(c.NEW_FROM_DESCR), "ptr", "ptr, ptr, i32, ptr, ptr, ptr, i32, ptr",
            [code.constant(c.numpy_function(c.ARRAY_TYPE)), descr, dimensions, sizes, strides, data,
             flags, "null"],
        )  # fmt: skip
        code.unless(code.value(f"icmp ne ptr {array}, null"), "failed")
        return array

    def launch(self) -> None:
        """Runs the driver's functions, without the GIL if that takes a while."""
        code = self.code
        free = code.value(f"icmp ne i64 {self.word('release', 'i64')}, 0")
        code.do(f"br i1 {free}, label %give, label %given")
        code.label("give")
        code.put(self.busy, 0, "1", "i64")
        code.do(f"store ptr {code.call('PyEval_SaveThread')}, ptr {self.thread}, align 8")
        code.do("br label %given")
        code.label("given")

        def start(i: str, row: str) -> None:
            code.do(f"call void {code.field(row, 0)}(ptr {self.table})")

        self.rows("functions", start)
        code.do(f"br i1 {free}, label %take, label %taken")
        code.label("take")
        code.call("PyEval_RestoreThread", code.value(f"load ptr, ptr {self.thread}, align 8"))
        code.put(self.busy, 0, "0", "i64")
        code.do("br label %taken")
        code.label("taken")

    def check(self, i: str, row: str) -> None:
        """Where a check of values failed the program runs again, and raises."""
        array = self.load(self.arrays, self.code.field(row, 0, "i64"))
        data = self.code.field(array, c.ARRAY_DATA)
        self.code.same(self.code.field(data, 0, "i8"), "0", "wrong", "i8")

    # -- the result ----------------------------------------------------------------------------

    def output(self, i: str, row: str) -> None:
        code = self.code
        place = self.at(self.at(self.result, str(c.TUPLE_ITEMS), "i8"), i)
        what = code.field(row, 8, "i64")

        def give(item: str) -> None:
            code.call("Py_IncRef", item)
            code.do(f"store ptr {item}, ptr {place}, align 8")

        def take() -> None:
            """A Tensor over a new array, as ``mortice.backend.wrap`` makes it."""
            slots = self.core.slots
            made = code.call("PyType_GenericAlloc", self.tensor, "0")
            code.unless(code.value(f"icmp ne ptr {made}, null"), "halfway")
            code.put(made, slots["_a"], self.load(self.arrays, what))
            self.keep(what, "null")
            for slot in ("_k", "_t", "_g", "_s", "_b"):
                value = code.object(self.core.host_keys if slot == "_k" else None)
                value = code.field(row, 16) if slot == "_t" else value
                code.call("Py_IncRef", value)
                code.put(made, slots[slot], value)
            code.do(f"store ptr {made}, ptr {place}, align 8")

        cases = [(FRESH, take), (ARGUMENT, lambda: give(self.load("%args", what))),
                 (OBJECT, lambda: give(code.field(row, 8)))]  # fmt: skip
        self.choose("output", code.field(row, 0, "i64"), cases)

    def ends(self) -> None:
        """Where what fails and what is unusual goes."""
        code = self.code
        code.label("halfway")
        code.call("Py_DecRef", self.result)
        code.do("br label %failed")
        code.label("failed")
        self.free()
        code.do("ret ptr null")
        code.label("wrong")
        self.free()
        code.do("br label %miss")
        code.label("miss")
        given = [self.word("program"), "%args", "%nargs", "%kwnames"]
        code.do(f"ret ptr {code.call('PyObject_Vectorcall', *given)}")


def void(_: object) -> None:
    """A statement's value is of no use."""
