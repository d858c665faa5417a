"""The machine's instructions that run a graph and make the result; see ``machine``."""

from __future__ import annotations

from mortice_llvm.cpython import layout as c

from .checking import WIDTH, Pieces


class Ending(Pieces):
    """``on_NAME`` writes the instruction NAME."""

    def _registers(self, block: str, count: str, into: str, base: int) -> None:
        """References to the registers that a block names, each a new one."""
        code = self.code

        def copy(i: str) -> None:
            place = code.value(f"getelementptr i64, ptr {block}, i64 {i}")
            number = code.value(f"load i64, ptr {place}, align 8")
            source = code.value(f"getelementptr ptr, ptr %regs, i64 {number}")
            value = code.value(f"load ptr, ptr {source}, align 8")
            code.call("Py_IncRef", value)
            at = code.value(f"getelementptr i8, ptr {into}, i64 {base}")
            target = code.value(f"getelementptr ptr, ptr {at}, i64 {i}")
            code.do(f"store ptr {value}, ptr {target}, align 8")

        self.code.each(count, copy)

    def _found(self) -> str:
        """A new tuple of the registers in the block ``%p2``, ``%n3`` of them."""
        made = self.code.call("PyTuple_New", "%n3")
        self.code.unless(self.code.value(f"icmp ne ptr {made}, null"), "fail")
        self._registers("%p2", "%n3", made, c.TUPLE_ITEMS)
        return made

    def on_finish(self) -> None:
        found = self._found()
        result = self.call_python("%p1", [found])
        self.code.call("Py_DecRef", found)
        self.code.do(f"ret ptr {result}")

    def on_run(self) -> None:
        """The inputs are held meanwhile: other threads may run."""
        code = self.code
        given = code.value("alloca ptr, i64 %n3, align 8")
        self._registers("%p2", "%n3", given, 0)
        outs = code.call("PyObject_Vectorcall", "%p1", given, "%n3", "null")

        def release(i: str) -> None:
            code.call("Py_DecRef", self.item(given, i))

        self.code.each("%n3", release)
        code.unless(code.value(f"icmp ne ptr {outs}, null"), "fail")
        code.do(f"store ptr {outs}, ptr %outs_slot")
        self.go()

    def outs(self) -> str:
        return self.code.value("load ptr, ptr %outs_slot")

    def on_adopt(self) -> None:
        """Goes to the settle instruction, ``%n2`` instructions ahead, if it is not row-major."""
        code = self.code
        out = self.item(self.outs(), "%n1", c.TUPLE_ITEMS)
        handle = code.field(out, self.core.slots["_a"])
        array = code.value(f"icmp eq ptr {self.type_of(handle)}, {code.constant(self.ndarray())}")
        code.do(f"br i1 {array}, label %adopt_array, label %unsettled")
        code.label("adopt_array")
        flags = code.field(handle, c.ARRAY_FLAGS, "i32")
        row_major = code.value(f"and i32 {flags}, {c.C_CONTIGUOUS}")
        dims = code.value(f"sext i32 {code.field(handle, c.ARRAY_NDIM, 'i32')} to i64")
        code.do(f"%adopt_same = icmp eq i64 {dims}, %n3")
        code.do(f"%adopt_rows = icmp ne i32 {row_major}, 0")
        code.do("%adopt_ok = and i1 %adopt_same, %adopt_rows")
        code.do("br i1 %adopt_ok, label %next, label %unsettled")
        code.label("unsettled")
        code.do("br label %settle_now")

    def on_settle(self) -> None:
        """Passed over unless an output is not laid out as expected."""
        self.go()
        code = self.code
        code.label("settle_now")
        far = code.value(f"mul i64 %n2, {8 * WIDTH}")
        at = code.value(f"getelementptr i8, ptr %pc, i64 {far}")
        function, block, count = (code.field(at, 8 * k) for k in (1, 2, 3))
        number = code.value(f"ptrtoint ptr {count} to i64")
        found = code.call("PyTuple_New", number)
        code.unless(code.value(f"icmp ne ptr {found}, null"), "fail_outs")
        self._registers(block, number, found, c.TUPLE_ITEMS)
        outs = self.outs()
        result = self.call_python(function, [outs, found])
        code.call("Py_DecRef", found)
        code.call("Py_DecRef", outs)
        code.do(f"ret ptr {result}")
        code.label("fail_outs")
        code.call("Py_DecRef", self.outs())
        code.do("ret ptr null")

    def on_one(self) -> None:
        code = self.code
        outs = self.outs()
        found = self.item(outs, "%n1", c.TUPLE_ITEMS)
        code.call("Py_IncRef", found)
        code.call("Py_DecRef", outs)
        code.do(f"ret ptr {found}")

    def on_tuple(self) -> None:
        self._collect("tuple", "PyTuple_New")

    def on_list(self) -> None:
        self._collect("list", "PyList_New")

    def _collect(self, tag: str, new: str) -> None:
        code = self.code
        outs = self.outs()
        made = code.call(new, "%n2")
        code.unless(code.value(f"icmp ne ptr {made}, null"), "fail_outs")
        inside = code.value(f"getelementptr i8, ptr {made}, i64 {c.TUPLE_ITEMS}")
        items = code.field(made, c.LIST_ITEMS) if tag == "list" else inside

        def copy(i: str) -> None:
            place = code.value(f"getelementptr i64, ptr %p1, i64 {i}")
            number = code.value(f"load i64, ptr {place}, align 8")
            found = self.item(outs, number, c.TUPLE_ITEMS)
            code.call("Py_IncRef", found)
            target = code.value(f"getelementptr ptr, ptr {items}, i64 {i}")
            code.do(f"store ptr {found}, ptr {target}, align 8")

        self.code.each("%n2", copy)
        code.call("Py_DecRef", outs)
        code.do(f"ret ptr {made}")
