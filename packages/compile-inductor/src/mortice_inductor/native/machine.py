"""The machine: a native function that checks guards and replays a call, by a program of words.

A program is a row of instructions of ``WIDTH`` words: an operation and its operands. Registers hold
borrowed references; an instruction whose check fails sends the whole call to the program's
``miss``, before anything has happened. No check runs a user's code. One step takes 1 to 2 ns, a
look-up in a dict about 10.
"""

from __future__ import annotations

from functools import cache

from mortice.native import layout as core_layout
from mortice_llvm.cpython import Code
from mortice_llvm.cpython import layout as c

#: Words of an instruction: the operation and three operands.
WIDTH = 4

#: Words of the program's head, in this order, before the instructions.
HEAD = ("registers", "miss", "calls")

#: Operations by number: what their operands are. r, s: registers; p: an address or object.
OPERATIONS = (
    "done",  # what follows is the end of the checks: ``run``
    "form",  # n arguments by position; p: tuple of the names of the others, or 0
    "argument",  # r = argument k
    "constant",  # r = p
    "weak",  # r = what the weak reference p refers to; fails if it is gone
    "item",  # r = dict s [p], NULL if missing
    "present",  # r is not NULL
    "absent",  # r is NULL
    "instance_dict",  # r = s.__dict__
    "attribute",  # r = s.p, by a built-in descriptor
    "cell",  # r = contents of the cell s
    "element",  # r = list or tuple s [k]
    "is",  # r is p
    "same",  # r is s
    "differs",  # r is not s
    "type",  # type of r is p
    "int",  # r is an int equal to n
    "float",  # r is a float with the bits n
    "text",  # r is a str equal to p
    "length",  # list, tuple or dict r has n entries
    "keys",  # the keys of the dict r are those of the tuple p, the same objects in the same order
    "holds",  # the container r holds p: n = 1, or does not: n = 0
    "version",  # the type p has version n: nothing in it or its bases has changed
    "word",  # the word at p is n
    "tensor",  # r is as the block p says
    "ask",  # the Python function p says yes to (r, s)
    "ask_constant",  # the Python function p says yes to (s as a constant, r)
    "finish",  # result: Python function p of the tuple of the registers in the block s, n of them
    "run",  # outs = p(*registers in the block s), n of them
    "adopt",  # output k is a row-major tensor, else the call ends through ``settle``
    "settle",  # where: Python function p of (outs, tuple of the registers in block s, n of them)
    "one",  # result: output k
    "tuple",  # result: tuple of the outputs in the block p, n of them
    "list",  # result: list likewise
)
CODE = {name: k for k, name in enumerate(OPERATIONS)}

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


@cache
def machine() -> Code:
    """The text of the machine; the same for all programs, and so compiled once for all time."""
    return _Machine().code


class _Machine:
    def __init__(self) -> None:
        self.code = Code("machine", reserved=1)
        self.core = core_layout()
        self._enter()
        for name in OPERATIONS:
            self.code.label(f"op_{name}")
            getattr(self, f"on_{name}")()
        self._leave()

    # -- the frame -----------------------------------------------------------------------------

    def _enter(self) -> None:
        code = self.code
        code.do(f"%head = bitcast ptr {code.reserved(0)} to ptr")
        count = code.field("%head", 0, "i64")
        code.do(f"%regs = alloca ptr, i64 {count}, align 8")
        code.do("%outs_slot = alloca ptr, align 8")
        code.do("%pad = alloca [4 x i64], align 8")
        code.do("store ptr null, ptr %outs_slot")
        code.do(f"%first = getelementptr i64, ptr %head, i64 {len(HEAD)}")
        code.do("br label %loop")
        code.label("next")
        code.do(f"%after = getelementptr i64, ptr %pc, i64 {WIDTH}")
        code.do("br label %loop")
        code.label("loop")
        code.do("%pc = phi ptr [%first, %0], [%after, %next]")
        code.do("%op = load i64, ptr %pc, align 8")
        for k in range(1, WIDTH):
            code.do(f"%at{k} = getelementptr i64, ptr %pc, i64 {k}")
            code.do(f"%n{k} = load i64, ptr %at{k}, align 8")
            code.do(f"%p{k} = inttoptr i64 %n{k} to ptr")
        cases = " ".join(f"i64 {k}, label %op_{name}" for name, k in CODE.items())
        code.do(f"switch i64 %op, label %miss [{cases}]")

    def _leave(self) -> None:
        code = self.code
        code.label("miss")
        code.call("PyErr_Clear")
        miss = code.field("%head", 8)
        code.do(f"ret ptr {code.call('PyObject_Vectorcall', miss, '%args', '%nargs', '%kwnames')}")
        code.label("fail")
        code.do("ret ptr null")

    def on_done(self) -> None:
        """Counts the call."""
        code = self.code
        calls = code.field("%head", 16, "i64")
        code.put("%head", 16, code.value(f"add i64 {calls}, 1"), "i64")
        self.go()

    # -- pieces --------------------------------------------------------------------------------

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

    def _item(self, items: str, index: str, base: int = 0) -> str:
        at = self.code.value(f"getelementptr i8, ptr {items}, i64 {base}") if base else items
        place = self.code.value(f"getelementptr ptr, ptr {at}, i64 {index}")
        return self.code.value(f"load ptr, ptr {place}, align 8")

    def _same_item(self, a: str, b: str, index: str) -> None:
        """Names are interned, as a rule: one that is not is a miss, and Python compares."""
        x, y = (self._item(t, index, c.TUPLE_ITEMS) for t in (a, b))
        self.need(f"icmp eq ptr {x}, {y}")

    def on_argument(self) -> None:
        self.set(self._item("%args", "%n2"))
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
        self.code.same(self.type_of(cell), self.code.object(type(_cell())), "miss")
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
        self.set(self._item(items, "%n3"))
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
            self.need(f"icmp eq ptr {found}, {self._item('%p2', i, c.TUPLE_ITEMS)}")

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
        self.need(f"icmp eq ptr {self.type_of(handle)}, {code.constant(self._ndarray())}")
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

    def _ndarray(self) -> int:
        return c.numpy_function(c.ARRAY_TYPE)

    def on_ask(self) -> None:
        self._ask("ask", [self.reg(1), self.reg(2)])

    def on_ask_constant(self) -> None:
        self._ask("askc", ["%p2", self.reg(1)])

    def _ask(self, tag: str, operands: list[str]) -> None:
        code = self.code
        found = self._call_python("%p3", operands)
        code.do(f"%{tag}_failed = icmp eq ptr {found}, null")
        code.do(f"br i1 %{tag}_failed, label %fail, label %{tag}_said")
        code.label(f"{tag}_said")
        code.call("Py_DecRef", found)
        self.need(f"icmp eq ptr {found}, {code.object(True)}")
        self.go()

    def _call_python(self, function: str, operands: list[str]) -> str:
        code = self.code
        for k, x in enumerate(operands):
            code.put("%pad", 8 * k, x)
        return code.call("PyObject_Vectorcall", function, "%pad", str(len(operands)), "null")

    # -- running -------------------------------------------------------------------------------

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
        result = self._call_python("%p1", [found])
        self.code.call("Py_DecRef", found)
        self.code.do(f"ret ptr {result}")

    def on_run(self) -> None:
        """The inputs are held meanwhile: other threads may run."""
        code = self.code
        given = code.value("alloca ptr, i64 %n3, align 8")
        self._registers("%p2", "%n3", given, 0)
        outs = code.call("PyObject_Vectorcall", "%p1", given, "%n3", "null")

        def release(i: str) -> None:
            code.call("Py_DecRef", self._item(given, i))

        self.code.each("%n3", release)
        code.unless(code.value(f"icmp ne ptr {outs}, null"), "fail")
        code.do(f"store ptr {outs}, ptr %outs_slot")
        self.go()

    def outs(self) -> str:
        return self.code.value("load ptr, ptr %outs_slot")

    def on_adopt(self) -> None:
        """Goes to the settle instruction, ``%n2`` instructions ahead, if it is not row-major."""
        code = self.code
        out = self._item(self.outs(), "%n1", c.TUPLE_ITEMS)
        handle = code.field(out, self.core.slots["_a"])
        array = code.value(f"icmp eq ptr {self.type_of(handle)}, {code.constant(self._ndarray())}")
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
        result = self._call_python(function, [outs, found])
        code.call("Py_DecRef", found)
        code.call("Py_DecRef", outs)
        code.do(f"ret ptr {result}")
        code.label("fail_outs")
        code.call("Py_DecRef", self.outs())
        code.do("ret ptr null")

    def on_one(self) -> None:
        code = self.code
        outs = self.outs()
        found = self._item(outs, "%n1", c.TUPLE_ITEMS)
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
            found = self._item(outs, number, c.TUPLE_ITEMS)
            code.call("Py_IncRef", found)
            target = code.value(f"getelementptr ptr, ptr {items}, i64 {i}")
            code.do(f"store ptr {found}, ptr {target}, align 8")

        self.code.each("%n2", copy)
        code.call("Py_DecRef", outs)
        code.do(f"ret ptr {made}")


def _cell() -> object:
    x = 0

    def closed() -> int:
        return x

    assert closed.__closure__ is not None
    return closed.__closure__[0]
