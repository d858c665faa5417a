"""The end of a recorded segment as a native function: what core's ``Recorder.finish`` does.

For ends that core describes as data (``Finale``): the tensors that are alive are those that were last
time, nothing was written, and no thread is in a mode. Before the graph runs everything is looked at,
and Python does it all if anything is unusual; what the graph gives is looked at before any of it is
handed out, and core's own function does that if it is laid out otherwise. 0.2 us beside the graph;
Python takes 3.5.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from mortice.native import layout as core_layout
from mortice.native import recording_layout
from mortice_llvm.cpython import Code, make
from mortice_llvm.cpython import layout as c

#: Words of an output's row before its sizes: tensor, output of the graph, dimensions.
_ROW = 3
#: Places in the row of arguments before the tensors: the finale, the graph's outputs.
_HEAD = 2


@cache
def finish() -> Callable[..., Any]:
    """``finish(recorder, step, finale) -> bool``: whether it has run the segment."""
    return make(_Writer().code, "finish")


class _Writer:
    def __init__(self) -> None:
        self.code = code = Code("finish")
        self.core = core_layout()
        self.layout = recording_layout()
        self.need("icmp eq i64 %nargs, 3", "no")
        self.recorder, self.step, self.finale = (code.field("%args", 8 * i) for i in range(3))
        self.at = code.value("alloca i64, align 8")
        self.in_this_thread()
        self.nothing_unusual()
        self.lists()
        self.alive()
        self.tensors()
        self.take()
        self.begin()
        self.run()
        self.look()
        self.hand_out()
        self.leave()

    # -- pieces --------------------------------------------------------------------------------

    def slot(self, of: str, kind: str, name: str) -> str:
        return self.code.field(of, self.layout.offsets[kind][name])

    def mine(self, name: str) -> str:
        return self.slot(self.recorder, "recorder", name)

    def need(self, condition: str, target: str) -> None:
        self.code.unless(self.code.value(condition), target)

    def is_object(self, x: str, thing: object, target: str) -> None:
        self.code.same(x, self.code.object(thing), target)

    def is_type(self, x: str, cls: type, target: str) -> None:
        self.is_object(self.code.field(x, c.OB_TYPE), cls, target)

    def external(self, name: str, result: str, types: str, *arguments: str) -> str:
        return self.code.call_address(c.python_function(name), result, types, arguments)

    def number(self, x: str) -> str:
        return self.code.call("PyLong_AsLongLong", x)

    def size(self, x: str) -> str:
        """Of a list, tuple, bytes or dict."""
        return self.code.field(x, c.LIST_SIZE, "i64")

    def put(self, of: str, offset: int, x: str) -> None:
        """Stores a reference in a slot; the old object is let go."""
        old = self.code.field(of, offset)
        self.code.call("Py_IncRef", x)
        self.code.put(of, offset, x)
        self.code.call("Py_DecRef", old)

    def set(self, name: str, x: str) -> None:
        self.put(self.recorder, self.layout.offsets["recorder"][name], x)

    def item(self, items: str, index: str, type_: str = "ptr") -> str:
        place = self.code.value(f"getelementptr {type_}, ptr {items}, i64 {index}")
        return self.code.value(f"load {type_}, ptr {place}")

    def store(self, items: str, index: str, x: str) -> None:
        place = self.code.value(f"getelementptr ptr, ptr {items}, i64 {index}")
        self.code.do(f"store ptr {x}, ptr {place}")

    def inside(self, x: str, offset: int) -> str:
        return self.code.value(f"getelementptr i8, ptr {x}, i64 {offset}")

    def each(self, count: str, body: Callable[[str], None]) -> None:
        """A loop over 0 .. count - 1."""
        code = self.code
        tag = code.fresh("each")
        i = f"%{tag}i"
        code.do(f"br label %{tag}before")
        code.label(f"{tag}before")
        code.do(f"%{tag}some = icmp sgt i64 {count}, 0")
        code.do(f"br i1 %{tag}some, label %{tag}turn, label %{tag}done")
        code.label(f"{tag}turn")
        code.do(f"{i} = phi i64 [0, %{tag}before], [%{tag}next, %{tag}last]")
        body(i)
        code.do(f"br label %{tag}last")
        code.label(f"{tag}last")
        code.do(f"%{tag}next = add i64 {i}, 1")
        code.do(f"%{tag}more = icmp slt i64 %{tag}next, {count}")
        code.do(f"br i1 %{tag}more, label %{tag}turn, label %{tag}done")
        code.label(f"{tag}done")

    def each_output(self, body: Callable[[str, str], None]) -> None:
        """A loop over the finale's rows: ``body(number of the row, the row)``."""
        code = self.code
        code.do(f"store i64 0, ptr {self.at}")

        def turn(f: str) -> None:
            at = code.value(f"load i64, ptr {self.at}")
            row = code.value(f"getelementptr i64, ptr {self.rows}, i64 {at}")
            extents = code.value(f"shl i64 {code.field(row, 16, 'i64')}, 1")
            past = code.value(f"add i64 {at}, {code.value(f'add i64 {extents}, {_ROW}')}")
            code.do(f"store i64 {past}, ptr {self.at}")
            body(f, row)

        self.each(self.outputs, turn)

    # -- before anything is changed ------------------------------------------------------------

    def in_this_thread(self) -> None:
        """The recorder records this very thread, which is in no mode but for ``no_grad``."""
        self.is_object(self.mine("on"), True, "no")
        ident = self.external("PyThread_get_thread_ident", "i64", "")
        self.need(f"icmp eq i64 {self.number(self.mine('owner'))}, {ident}", "no")
        state = self.code.object(self.core.state)
        special = self.number(self.code.field(state, self.core.special))
        recorders = self.number(self.code.field(state, self.layout.recorders))
        code = self.code
        code.do(f"%plain = icmp eq i64 {special}, {recorders}")
        code.do("br i1 %plain, label %in_default_mode, label %in_some_mode")
        code.label("in_default_mode")
        self.is_object(self.slot(self.finale, "finale", "quiet"), False, "no")
        code.do("br label %in_no_mode")
        code.label("in_some_mode")
        masks = self.external(
            "PyObject_GetAttr", "ptr", "ptr, ptr", self.code.object(self.layout.thread),
            code.object("masks"),
        )  # fmt: skip
        self.need(f"icmp ne ptr {masks}, null", "failed_early")
        code.call("Py_DecRef", masks)  # the thread holds it
        add, keep = (self.number(code.field(masks, c.TUPLE_ITEMS + 8 * i)) for i in range(2))
        self.external("PyErr_Clear", "void", "")
        self.need(f"icmp eq i64 {add}, 0", "no")
        self.need(f"icmp eq i64 {keep}, {~self.autograd}", "no")
        self.is_object(self.slot(self.finale, "finale", "tracked"), False, "no")
        code.do("br label %in_no_mode")
        code.label("in_no_mode")

    def nothing_unusual(self) -> None:
        for name in ("trace", "prefix", "draws"):
            self.is_object(self.mine(name), None, "no")
        self.is_object(self.slot(self.mine("hazards"), "hazards", "at"), None, "no")
        for name in ("histories", "generators"):
            self.need(f"icmp eq i64 {self.size(self.mine(name))}, 0", "no")

    def lists(self) -> None:
        """No step is half done."""
        self.counts: dict[str, str] = {}
        for name in ("made", "leaves", "numbers"):
            self.counts[name] = count = self.size(self.mine(name))
            wanted = self.number(self.slot(self.step, "step", name))
            self.need(f"icmp eq i64 {count}, {wanted}", "no")

    def referent(self, index: str) -> str:
        """The tensor that a number stands for, borrowed; None if it is gone."""
        reference = self.item(self.code.field(self.mine("made"), c.LIST_ITEMS), index)
        return self.external("PyWeakref_GetObject", "ptr", "ptr", reference)

    def alive(self) -> None:
        code = self.code
        alive = self.slot(self.finale, "finale", "alive")
        self.need(f"icmp eq i64 {self.size(alive)}, {self.counts['made']}", "no")
        marks = self.inside(alive, c.BYTES_DATA)

        def turn(i: str) -> None:
            there = code.value(f"icmp ne ptr {self.referent(i)}, {code.object(None)}")
            wanted = code.value(f"icmp ne i8 {self.item(marks, i, 'i8')}, 0")
            self.need(f"icmp eq i1 {there}, {wanted}", "no")

        self.each(self.counts["made"], turn)

    def tensors(self) -> None:
        """Those that are alive are as they were made."""
        code, slots = self.code, self.core.slots
        before = self.slot(self.finale, "finale", "before")
        self.outputs = self.size(before)
        self.rows = self.inside(self.slot(self.finale, "finale", "outputs"), c.BYTES_DATA)
        keys = self.inside(before, c.TUPLE_ITEMS)

        def turn(f: str, row: str) -> None:
            t = self.referent(code.field(row, 0, "i64"))
            self.is_type(t, self.core.tensor, "no")
            code.same(code.field(t, slots["_k"]), self.item(keys, f), "no")
            self.is_object(code.field(t, slots["_s"]), None, "no")

        self.each_output(turn)

    # -- the run -------------------------------------------------------------------------------

    def take(self) -> None:
        """Holds what is alive and the operands, in one row: finale, outs, tensors, operands."""
        code = self.code
        operands = code.value(f"add i64 {self.counts['leaves']}, {self.counts['numbers']}")
        first = code.value(f"add i64 {self.outputs}, {_HEAD}")
        self.width = code.value(f"add i64 {first}, {operands}")
        self.row = code.value(f"alloca ptr, i64 {self.width}, align 8")
        self.living = self.inside(self.row, 8 * _HEAD)
        self.operands = code.value(f"getelementptr ptr, ptr {self.row}, i64 {first}")
        self.operand_count = operands
        code.put(self.row, 0, self.finale)

        def hold(items: str, index: str, x: str) -> None:
            code.call("Py_IncRef", x)
            self.store(items, index, x)

        self.each_output(
            lambda f, row: hold(self.living, f, self.referent(code.field(row, 0, "i64")))
        )
        leaves = code.field(self.mine("leaves"), c.LIST_ITEMS)
        self.each(
            self.counts["leaves"],
            lambda i: hold(self.operands, i, self.slot(self.item(leaves, i), "leaf", "tensor")),
        )
        numbers = code.field(self.mine("numbers"), c.LIST_ITEMS)
        rest = code.value(f"getelementptr ptr, ptr {self.operands}, i64 {self.counts['leaves']}")
        self.each(self.counts["numbers"], lambda i: hold(rest, i, self.item(numbers, i)))

    def begin(self) -> None:
        """As core's ``Recorder._begin``."""
        code, offsets = self.code, self.layout.offsets
        none = code.object(None)
        leaves = code.field(self.mine("leaves"), c.LIST_ITEMS)
        storages = code.field(self.mine("storages"), c.LIST_ITEMS)

        touched = code.field(self.mine("touched"), c.LIST_ITEMS)

        def free(storage: str) -> None:
            self.put(storage, offsets["storage"]["pending"], none)

        def forget(i: str) -> None:
            self.put(self.item(leaves, i), offsets["leaf"]["tensor"], none)
            free(self.item(storages, i))

        self.each(self.counts["leaves"], forget)
        self.each(self.size(self.mine("touched")), lambda i: free(self.item(touched, i)))
        self.external("PyDict_Clear", "void", "ptr", self.mine("by_tensor"))
        for name in ("leaves", "storages", "touched", "made", "numbers"):
            items = self.mine(name)
            count = self.size(items)
            types = "ptr, i64, i64, ptr"
            self.external("PyList_SetSlice", "i32", types, items, "0", count, "null")
        root = self.slot(self.mine("tree"), "tree", "root")
        self.set("at", root)
        self.set("ended", self.step)
        self.put(root, offsets["step"]["ahead"], self.slot(self.step, "step", "after"))
        more = code.value(f"add i64 {self.number(self.mine('flushes'))}, 1")
        flushes = self.external("PyLong_FromLongLong", "ptr", "i64", more)
        self.need(f"icmp ne ptr {flushes}, null", "failed")
        self.set("flushes", flushes)
        code.call("Py_DecRef", flushes)

    def recorded(self, recorder: str, on: bool) -> None:
        """Lets the thread's operators go to a recorder, or to None."""
        thread, name = self.code.object(self.layout.thread), self.code.object("recorder")
        self.external("PyObject_SetAttr", "i32", "ptr, ptr, ptr", thread, name, recorder)
        self.set("on", self.code.object(on))

    def run(self) -> None:
        code = self.code
        self.recorded(code.object(None), False)
        run = self.slot(self.finale, "finale", "run")
        self.outs = code.call("PyObject_Vectorcall", run, self.operands, self.operand_count, "null")
        code.put(self.row, 8, self.outs)
        saved = code.value("alloca [3 x ptr], align 8")
        parts = (saved, self.inside(saved, 8), self.inside(saved, 16))
        self.external("PyErr_Fetch", "void", "ptr, ptr, ptr", *parts)
        self.recorded(self.recorder, True)
        self.put(code.object(self.core.state), self.layout.current, self.recorder)
        values = [code.value(f"load ptr, ptr {x}") for x in parts]
        self.external("PyErr_Restore", "void", "ptr, ptr, ptr", *values)
        self.need(f"icmp ne ptr {self.outs}, null", "failed")

    # -- the results ---------------------------------------------------------------------------

    def out(self, row: str) -> str:
        items = self.inside(self.outs, c.TUPLE_ITEMS)
        return self.item(items, self.code.field(row, 8, "i64"))

    def mark(self, f: str) -> str:
        """Whether an output's tensor takes its history."""
        marks = self.inside(self.slot(self.finale, "finale", "histories"), c.BYTES_DATA)
        return self.code.value(f"icmp ne i8 {self.item(marks, f, 'i8')}, 0")

    def look(self) -> None:
        """All outputs are tensors laid out as the recording promised."""
        code, slots = self.code, self.core.slots
        self.is_type(self.outs, tuple, "otherwise")
        count = self.size(self.outs)

        def turn(f: str, row: str) -> None:
            self.need(f"icmp slt i64 {code.field(row, 8, 'i64')}, {count}", "otherwise")
            out = self.out(row)
            self.is_type(out, self.core.tensor, "otherwise")
            a = code.field(out, slots["_a"])
            self.is_type(a, np.ndarray, "otherwise")
            dimensions = code.field(row, 16, "i64")
            found = code.value(f"sext i32 {code.field(a, c.ARRAY_NDIM, 'i32')} to i64")
            code.same(found, dimensions, "otherwise", "i64")
            sizes = self.inside(row, 8 * _ROW)
            steps = code.value(f"getelementptr i64, ptr {sizes}, i64 {dimensions}")
            here = code.field(a, c.ARRAY_DIMS), code.field(a, c.ARRAY_STRIDES)

            def extent(d: str) -> None:
                for mine, wanted in zip(here, (sizes, steps)):
                    a, b = (self.item(x, d, "i64") for x in (mine, wanted))
                    code.same(a, b, "otherwise", "i64")

            self.each(dimensions, extent)
            keys = self.number(code.field(out, slots["_k"]))
            self.need(f"icmp ne i64 {keys}, -1", "unknown_keys")
            has = code.value(f"icmp ne i64 {code.value(f'and i64 {keys}, {self.autograd}')}, 0")
            free = code.value(f"xor i1 {self.mark(f)}, true")
            self.need(f"or i1 {has}, {free}", "otherwise")

        self.each_output(turn)

    @property
    def autograd(self) -> int:
        return self.core.autograd_bit

    def hand_out(self) -> None:
        """As core's ``_become``."""
        code, slots = self.code, self.core.slots
        none = code.object(None)
        after = self.inside(self.slot(self.finale, "finale", "after"), c.TUPLE_ITEMS)
        tracked = code.value(
            f"icmp eq ptr {self.slot(self.finale, 'finale', 'tracked')}, {code.object(True)}"
        )

        def turn(f: str, row: str) -> None:
            t, out = self.item(self.living, f), self.out(row)
            storage = code.field(out, slots["_s"])
            kept = code.value(f"select i1 {tracked}, ptr {storage}, ptr {none}")
            history = code.field(out, slots["_g"])
            edge = code.value(f"select i1 {self.mark(f)}, ptr {history}, ptr {none}")
            self.put(t, slots["_a"], code.field(out, slots["_a"]))
            self.put(t, slots["_k"], self.item(after, f))
            self.put(t, slots["_g"], edge)
            self.put(t, slots["_s"], kept)
            self.put(out, slots["_s"], kept)

        self.each_output(turn)
        code.do("br label %done")

    def leave(self) -> None:
        code = self.code
        code.label("unknown_keys")
        code.call("PyErr_Clear")
        code.do("br label %otherwise")
        code.label("otherwise")
        fill = code.object(self.layout.fill)
        said = code.call("PyObject_Vectorcall", fill, self.row, self.width, "null")
        self.need(f"icmp ne ptr {said}, null", "failed_outs")
        code.call("Py_DecRef", said)
        code.do("br label %done")
        code.label("done")
        code.call("Py_DecRef", self.outs)
        self.let_go()
        yes = code.object(True)
        code.call("Py_IncRef", yes)
        code.do(f"ret ptr {yes}")
        code.label("failed_outs")
        code.call("Py_DecRef", self.outs)
        code.do("br label %failed")
        code.label("failed_early")
        code.do("ret ptr null")
        code.label("failed")
        self.let_go()
        code.do("ret ptr null")
        code.label("no")
        no = code.object(False)
        code.call("Py_IncRef", no)
        code.do(f"ret ptr {no}")

    def let_go(self) -> None:
        code = self.code

        def turn(i: str) -> None:
            code.call("Py_DecRef", self.item(self.living, i))

        self.each(code.value(f"sub i64 {self.width}, {_HEAD}"), turn)
