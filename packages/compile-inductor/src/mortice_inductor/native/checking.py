"""The machine's instructions that find objects and look at them; see ``machine``."""

from __future__ import annotations

from functools import cache
from types import CellType

from mortice.native import layout as core_layout
from mortice_llvm.cpython import Code
from mortice_llvm.cpython import layout as c

#: Words of an instruction: the operation and three operands.
WIDTH = 4

#: Words of a tensor block: class, dtype, keys, dimensions, then sizes and strides in bytes.
TENSOR_HEAD = 4

_VERSION = 384  # PyTypeObject.tp_version_tag
_SIZE = c.DICT_SIZE  # the same place in lists and tuples
_LIST, _TUPLE, _DICT = c.LIST_KIND, c.TUPLE_KIND, c.DICT_KIND


def version_of(cls: type) -> int:
    """The version that CPython gave a type; 0 if it has none now."""
    return c.half(id(cls) + _VERSION) & 0xFFFFFFFF


@cache
def versions_work() -> bool:
    """Whether a type's version is where it is looked for, and changes with what it inherits."""

    class Base:
        mark = 1

    class Derived(Base):
        pass

    _ = Derived.mark
    before = version_of(Derived)
    Base.mark = 2
    _ = Derived.mark
    return 0 != before != version_of(Derived) != 0


class Pieces:
    """Registers, conditions and calls: what instructions are written with."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.core = core_layout()

    def go(self) -> None:
        self.code.do("br label %next")

    def reg(self, k: int) -> str:
        """The register that operand k names."""
        place = self.code.value(f"getelementptr ptr, ptr %regs, i64 %n{k}")
        return self.code.value(f"load ptr, ptr {place}, align 8")

    def set(self, value: str, k: int = 1) -> None:
        place = self.code.value(f"getelementptr ptr, ptr %regs, i64 %n{k}")
        self.code.do(f"store ptr {value}, ptr {place}, align 8")

    def need(self, condition: str) -> None:
        self.code.unless(self.code.value(condition), "miss")

    def type_of(self, x: str) -> str:
        return self.code.field(x, c.OB_TYPE)

    def flags_of(self, x: str) -> str:
        return self.code.field(self.type_of(x), c.TYPE_FLAGS, "i64")

    def flagged(self, x: str, flags: int) -> None:
        found = self.code.value(f"and i64 {self.flags_of(x)}, {flags}")
        self.need(f"icmp ne i64 {found}, 0")

    def borrow(self, owned: str) -> None:
        """A new reference to what its holder keeps alive becomes a borrowed one."""
        self.need(f"icmp ne ptr {owned}, null")
        self.code.call("Py_DecRef", owned)
        self.set(owned)

    def item(self, items: str, index: str, base: int = 0) -> str:
        at = self.code.value(f"getelementptr i8, ptr {items}, i64 {base}") if base else items
        place = self.code.value(f"getelementptr ptr, ptr {at}, i64 {index}")
        return self.code.value(f"load ptr, ptr {place}, align 8")

    def ndarray(self) -> int:
        return c.numpy_function(c.ARRAY_TYPE)

    def call_python(self, function: str, operands: list[str]) -> str:
        code = self.code
        for k, x in enumerate(operands):
            code.put("%pad", 8 * k, x)
        return code.call("PyObject_Vectorcall", function, "%pad", str(len(operands)), "null")


class Checking(Pieces):
    """``on_NAME`` writes the instruction NAME: sources of objects, then conditions on them."""

    # -- sources -------------------------------------------------------------------------------

    def on_form(self) -> None:
        code = self.code
        self.need("icmp eq i64 %nargs, %n1")
        code.do("%unnamed = icmp eq i64 %n2, 0")
        code.do("br i1 %unnamed, label %positional, label %named")
        code.label("positional")
        self.need("icmp eq ptr %kwnames, null")
        self.go()
        code.label("named")
        self.need("icmp ne ptr %kwnames, null")
        wanted = code.field("%p2", _SIZE, "i64")
        self.need(f"icmp eq i64 {code.field('%kwnames', _SIZE, 'i64')}, {wanted}")
        self.code.each(wanted, lambda i: self._same_item("%kwnames", "%p2", i))
        self.go()

    def _same_item(self, a: str, b: str, index: str) -> None:
        """Names are interned, as a rule: one that is not is a miss, and Python compares."""
        x, y = (self.item(t, index, c.TUPLE_ITEMS) for t in (a, b))
        self.need(f"icmp eq ptr {x}, {y}")

    def on_argument(self) -> None:
        self.set(self.item("%args", "%n2"))
        self.go()

    def on_constant(self) -> None:
        self.set("%p2")
        self.go()

    def on_weak(self) -> None:
        found = self.code.call("PyWeakref_GetObject", "%p2")
        self.need(f"icmp ne ptr {found}, {self.code.object(None)}")
        self.set(found)
        self.go()

    def on_item(self) -> None:
        holder = self.reg(2)
        self.flagged(holder, _DICT)
        self.set(self.code.call("PyDict_GetItemWithError", holder, "%p3"))
        self.go()

    def on_present(self) -> None:
        self.need(f"icmp ne ptr {self.reg(1)}, null")
        self.go()

    def on_absent(self) -> None:
        self.need(f"icmp eq ptr {self.reg(1)}, null")
        self.go()

    def on_instance_dict(self) -> None:
        self.borrow(self.code.call("PyObject_GenericGetDict", self.reg(2), "null"))
        self.go()

    def on_attribute(self) -> None:
        self.borrow(self.code.call("PyObject_GetAttr", self.reg(2), "%p3"))
        self.go()

    def on_cell(self) -> None:
        cell = self.reg(2)
        self.code.same(self.type_of(cell), self.code.object(CellType), "miss")
        found = self.code.field(cell, c.CELL_VALUE)
        self.need(f"icmp ne ptr {found}, null")
        self.set(found)
        self.go()

    def on_element(self) -> None:
        code = self.code
        holder = self.reg(2)
        self.flagged(holder, _LIST | _TUPLE)
        self.need(f"icmp slt i64 %n3, {code.field(holder, _SIZE, 'i64')}")
        is_list = code.value(f"and i64 {self.flags_of(holder)}, {_LIST}")
        code.do(f"%listed = icmp ne i64 {is_list}, 0")
        inside = code.value(f"getelementptr i8, ptr {holder}, i64 {c.TUPLE_ITEMS}")
        outside = code.field(holder, c.LIST_ITEMS)
        items = code.value(f"select i1 %listed, ptr {outside}, ptr {inside}")
        self.set(self.item(items, "%n3"))
        self.go()

    # -- conditions ----------------------------------------------------------------------------

    def on_is(self) -> None:
        self.need(f"icmp eq ptr {self.reg(1)}, %p2")
        self.go()

    def on_same(self) -> None:
        self.need(f"icmp eq ptr {self.reg(1)}, {self.reg(2)}")
        self.go()

    def on_differs(self) -> None:
        self.need(f"icmp ne ptr {self.reg(1)}, {self.reg(2)}")
        self.go()

    def on_type(self) -> None:
        self.need(f"icmp eq ptr {self.type_of(self.reg(1))}, %p2")
        self.go()

    def on_int(self) -> None:
        value = self.reg(1)
        self.code.same(self.type_of(value), self.code.object(int), "miss")
        found = self.code.call("PyLong_AsLongLongAndOverflow", value, "%pad")
        self.need(f"icmp eq i64 {found}, %n2")
        self.need(f"icmp eq i32 {self.code.field('%pad', 0, 'i32')}, 0")
        self.go()

    def on_float(self) -> None:
        value = self.reg(1)
        self.code.same(self.type_of(value), self.code.object(float), "miss")
        self.need(f"icmp eq i64 {self.code.field(value, c.FLOAT_VALUE, 'i64')}, %n2")
        self.go()

    def on_text(self) -> None:
        code = self.code
        value = self.reg(1)
        code.do(f"%identical = icmp eq ptr {value}, %p2")
        code.do("br i1 %identical, label %next, label %compared")
        code.label("compared")
        code.same(self.type_of(value), code.object(str), "miss")
        found = self.code.call("PyUnicode_Compare", value, "%p2")
        self.need(f"icmp eq i32 {found}, 0")
        self.go()

    def on_length(self) -> None:
        value = self.reg(1)
        self.flagged(value, _LIST | _TUPLE | _DICT)
        self.need(f"icmp eq i64 {self.code.field(value, _SIZE, 'i64')}, %n2")
        self.go()

    def on_keys(self) -> None:
        code = self.code
        value = self.reg(1)
        code.same(self.type_of(value), code.object(dict), "miss")
        wanted = code.field("%p2", _SIZE, "i64")
        self.need(f"icmp eq i64 {code.field(value, _SIZE, 'i64')}, {wanted}")
        at, key = "%pad", code.value("getelementptr i64, ptr %pad, i64 1")
        code.put("%pad", 0, "0", "i64")

        def compare(i: str) -> None:
            more = self.code.call("PyDict_Next", value, at, key, "null")
            self.need(f"icmp ne i32 {more}, 0")
            found = code.value(f"load ptr, ptr {key}")
            self.need(f"icmp eq ptr {found}, {self.item('%p2', i, c.TUPLE_ITEMS)}")

        self.code.each(wanted, compare)
        self.go()

    def on_holds(self) -> None:
        found = self.code.call("PySequence_Contains", self.reg(1), "%p2")
        wide = self.code.value(f"sext i32 {found} to i64")
        self.need(f"icmp eq i64 {wide}, %n3")
        self.go()

    def on_version(self) -> None:
        found = self.code.field("%p1", _VERSION, "i32")
        wide = self.code.value(f"zext i32 {found} to i64")
        self.need(f"icmp eq i64 {wide}, %n2")
        self.go()

    def on_word(self) -> None:
        self.need(f"icmp eq i64 {self.code.field('%p1', 0, 'i64')}, %n2")
        self.go()

    def on_tensor(self) -> None:
        code, slots = self.code, self.core.slots
        value = self.reg(1)
        self.need(f"icmp eq ptr {self.type_of(value)}, {code.field('%p2', 0)}")
        self.need(f"icmp eq ptr {code.field(value, slots['_t'])}, {code.field('%p2', 8)}")
        handle = code.field(value, slots["_a"])
        self.need(f"icmp eq ptr {self.type_of(handle)}, {code.constant(self.ndarray())}")
        keys = code.call("PyLong_AsLongLong", code.field(value, slots["_k"]))
        self.need(f"icmp eq i64 {keys}, {code.field('%p2', 16, 'i64')}")
        count = code.field("%p2", 24, "i64")
        found = code.value(f"sext i32 {code.field(handle, c.ARRAY_NDIM, 'i32')} to i64")
        self.need(f"icmp eq i64 {found}, {count}")
        dims, strides = code.field(handle, c.ARRAY_DIMS), code.field(handle, c.ARRAY_STRIDES)
        sizes = code.value(f"getelementptr i64, ptr %p2, i64 {TENSOR_HEAD}")
        steps = code.value(f"getelementptr i64, ptr {sizes}, i64 {count}")

        def compare(i: str) -> None:
            for here, wanted in ((dims, sizes), (strides, steps)):
                pair = [code.value(f"getelementptr i64, ptr {x}, i64 {i}") for x in (here, wanted)]
                a, b = (code.value(f"load i64, ptr {x}, align 8") for x in pair)
                self.need(f"icmp eq i64 {a}, {b}")

        self.code.each(count, compare)
        self.go()

    def on_ask(self) -> None:
        self._ask("ask", [self.reg(1), self.reg(2)])

    def on_ask_constant(self) -> None:
        self._ask("askc", ["%p2", self.reg(1)])

    def _ask(self, tag: str, operands: list[str]) -> None:
        code = self.code
        found = self.call_python("%p3", operands)
        code.do(f"%{tag}_failed = icmp eq ptr {found}, null")
        code.do(f"br i1 %{tag}_failed, label %fail, label %{tag}_said")
        code.label(f"{tag}_said")
        code.call("Py_DecRef", found)
        self.need(f"icmp eq ptr {found}, {code.object(True)}")
        self.go()
