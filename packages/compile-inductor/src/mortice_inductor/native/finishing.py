"""The end of a recorded segment in native code: what core's ``Recorder.finish`` does.

For ends that core describes as data (``Finale``): the tensors that are alive are those that were last
time, nothing was written, and no thread is in a mode. Before the graph runs everything is looked at,
and Python does it all if anything is unusual; what the graph gives is looked at before any of it is
handed out, and core's own function does that if it is laid out otherwise.

Other threads that want what the segment computes wait while the recorder is ``busy``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mortice_llvm.cpython import layout as c

from .writing import Writer

#: Words of an output's row before its sizes: tensor, output of the graph, dimensions.
_ROW = 3
#: Places in the row of arguments before the tensors: the finale, the graph's outputs.
_HEAD = 2


class Finishing(Writer):
    """Writes ``finish(recorder, step, finale) -> bool``: whether it has run the segment."""

    def write(self) -> None:
        self.code.function("finish")
        self.need("icmp eq i64 %nargs, 3", "no")
        self.recorder, self.step, self.finale = (self.code.field("%args", 8 * i) for i in range(3))
        self.place = self.code.value("alloca i64, align 8")
        self.in_this_thread()
        self.nothing_unusual()
        self.lists()
        self.alive()
        self.tensors()
        self.hold()
        self.begin()
        self.run()
        self.look()
        self.hand_out()
        self.leave()

    # -- pieces --------------------------------------------------------------------------------

    def mine(self, name: str) -> str:
        return self.slot(self.recorder, "recorder", name)

    def own(self, name: str) -> str:
        return self.slot(self.finale, "finale", name)

    def items(self, name: str) -> str:
        """Where the items of a list of the recorder lie."""
        return self.code.field(self.mine(name), c.LIST_ITEMS)

    def each_output(self, body: Callable[[str, str], None]) -> None:
        """A loop over the finale's rows: ``body(number of the row, the row)``."""
        code = self.code
        code.do(f"store i64 0, ptr {self.place}")

        def turn(f: str) -> None:
            at = code.value(f"load i64, ptr {self.place}")
            row = self.at(self.rows, at, "i64")
            extents = code.value(f"shl i64 {code.field(row, 16, 'i64')}, 1")
            past = code.value(f"add i64 {at}, {code.value(f'add i64 {extents}, {_ROW}')}")
            code.do(f"store i64 {past}, ptr {self.place}")
            body(f, row)

        code.each(self.outputs, turn)

    # -- before anything is changed ------------------------------------------------------------

    def in_this_thread(self) -> None:
        """The recorder records this very thread, which is in no mode but for ``no_grad``."""
        code = self.code
        self.is_object(self.mine("on"), True, "no")
        self.is_object(self.mine("asked"), 0, "no")
        self.is_mine(self.recorder, "no")
        plain = f"icmp eq ptr {self.state('special')}, {self.state('recorders')}"
        code.branch(plain, "in_default_mode", "in_some_mode")
        code.label("in_default_mode")
        self.is_object(self.own("quiet"), False, "no")
        self.go("in_no_mode")
        code.label("in_some_mode")
        masks = code.call("PyDict_GetItemWithError", self.mine("fields"), code.object("masks"))
        self.need(f"icmp ne ptr {masks}, null", "no")
        add, keep = (self.number(code.field(masks, c.TUPLE_ITEMS + 8 * i)) for i in range(2))
        code.call("PyErr_Clear")
        self.need(f"icmp eq i64 {add}, 0", "no")
        self.need(f"icmp eq i64 {keep}, {~self.core.autograd_bit}", "no")
        self.is_object(self.own("tracked"), False, "no")
        self.go("in_no_mode")
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
            self.code.same(count, self.number(self.slot(self.step, "step", name)), "no", "i64")

    def referent(self, index: str) -> str:
        """The tensor that a number stands for, borrowed; None if it is gone."""
        return self.code.call("PyWeakref_GetObject", self.item(self.items("made"), index))

    def alive(self) -> None:
        code = self.code
        alive = self.own("alive")
        code.same(self.size(alive), self.counts["made"], "no", "i64")
        marks = self.inside(alive, c.BYTES_DATA)

        def turn(i: str) -> None:
            there = code.value(f"icmp ne ptr {self.referent(i)}, {code.object(None)}")
            wanted = code.value(f"icmp ne i8 {self.item(marks, i, 'i8')}, 0")
            code.same(there, wanted, "no", "i1")

        code.each(self.counts["made"], turn)

    def tensors(self) -> None:
        """Those that are alive are as they were made."""
        code, slots = self.code, self.core.slots
        before = self.own("before")
        self.outputs = self.size(before)
        self.rows = self.inside(self.own("outputs"), c.BYTES_DATA)
        keys = self.inside(before, c.TUPLE_ITEMS)

        def turn(f: str, row: str) -> None:
            t = self.referent(code.field(row, 0, "i64"))
            self.is_type(t, self.core.tensor, "no")
            code.same(code.field(t, slots["_k"]), self.item(keys, f), "no")
            self.is_object(code.field(t, slots["_s"]), None, "no")

        self.each_output(turn)

    # -- the run -------------------------------------------------------------------------------

    def hold(self) -> None:
        """Holds what is alive and the operands, in one row: finale, outs, tensors, operands."""
        code = self.code
        leaves = self.counts["leaves"]
        self.operand_count = code.value(f"add i64 {leaves}, {self.counts['numbers']}")
        first = code.value(f"add i64 {self.outputs}, {_HEAD}")
        self.width = code.value(f"add i64 {first}, {self.operand_count}")
        self.row = code.value(f"alloca ptr, i64 {self.width}, align 8")
        self.living = self.inside(self.row, 8 * _HEAD)
        self.operands = self.at(self.row, first)
        code.put(self.row, 0, self.finale)

        def keep(items: str, index: str, x: str) -> None:
            code.call("Py_IncRef", x)
            code.do(f"store ptr {x}, ptr {self.at(items, index)}")

        self.each_output(
            lambda f, row: keep(self.living, f, self.referent(code.field(row, 0, "i64")))
        )
        leaf = self.items("leaves")
        code.each(
            leaves,
            lambda i: keep(self.operands, i, self.slot(self.item(leaf, i), "leaf", "tensor")),
        )
        number, rest = self.items("numbers"), self.at(self.operands, leaves)
        code.each(self.counts["numbers"], lambda i: keep(rest, i, self.item(number, i)))

    def begin(self) -> None:
        """As core's ``Recorder._begin``; other threads wait from here on."""
        code = self.code
        self.set(self.recorder, "recorder", "busy", True)
        leaves, storages = self.items("leaves"), self.items("storages")
        touched = self.items("touched")

        def forget(i: str) -> None:
            self.set(self.item(leaves, i), "leaf", "tensor", None)
            self.set(self.item(storages, i), "storage", "pending", None)

        code.each(self.counts["leaves"], forget)
        code.each(
            self.size(self.mine("touched")),
            lambda i: self.set(self.item(touched, i), "storage", "pending", None),
        )
        root = self.slot(self.mine("tree"), "tree", "root")
        self.set(self.recorder, "recorder", "at", root)
        self.set(self.recorder, "recorder", "ended", self.step)
        self.set(root, "step", "ahead", self.slot(self.step, "step", "after"))
        by_tensor = self.mine("by_tensor")
        self.either(
            f"icmp ne i64 {self.size(by_tensor)}, 0",
            lambda: void(code.call("PyDict_Clear", by_tensor)),
        )
        for name in ("leaves", "storages", "touched", "made", "numbers"):
            self.clear(self.mine(name))
        self.add(self.recorder, "recorder", "flushes", 1, "failed")

    def run(self) -> None:
        code = self.code
        self.listens(self.recorder, code.object(None))
        self.set(self.recorder, "recorder", "on", False)
        self.outs = code.call(
            "PyObject_Vectorcall", self.own("run"), self.operands, self.operand_count, "null"
        )
        code.put(self.row, 8, self.outs)
        parts = self.fetch()
        self.listens(self.recorder, self.recorder)
        self.set(self.recorder, "recorder", "on", True)
        self.set(code.object(self.core.state), "state", "current", self.recorder)
        code.call("PyErr_Restore", *self.loaded(parts))
        self.need(f"icmp ne ptr {self.outs}, null", "failed")

    # -- the results ---------------------------------------------------------------------------

    def out(self, row: str) -> str:
        items = self.inside(self.outs, c.TUPLE_ITEMS)
        return self.item(items, self.code.field(row, 8, "i64"))

    def mark(self, f: str) -> str:
        """Whether an output's tensor takes its history."""
        marks = self.inside(self.own("histories"), c.BYTES_DATA)
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
            steps = self.at(sizes, dimensions, "i64")
            self.same_words(code.field(a, c.ARRAY_DIMS), sizes, dimensions, "otherwise")
            self.same_words(code.field(a, c.ARRAY_STRIDES), steps, dimensions, "otherwise")
            keys = self.number(code.field(out, slots["_k"]))
            self.need(f"icmp ne i64 {keys}, -1", "unknown_keys")
            tracked = code.value(f"and i64 {keys}, {self.core.autograd_bit}")
            has = code.value(f"icmp ne i64 {tracked}, 0")
            free = code.value(f"xor i1 {self.mark(f)}, true")
            self.need(f"or i1 {has}, {free}", "otherwise")

        self.each_output(turn)

    def hand_out(self) -> None:
        """As core's ``_become``."""
        code, slots = self.code, self.core.slots
        none = code.object(None)
        after = self.inside(self.own("after"), c.TUPLE_ITEMS)
        tracked = code.value(f"icmp eq ptr {self.own('tracked')}, {code.object(True)}")

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
        self.go("done")

    def leave(self) -> None:
        code = self.code
        code.label("unknown_keys")
        code.call("PyErr_Clear")
        self.go("otherwise")
        code.label("otherwise")
        fill = code.object(self.layout.fill)
        said = code.call("PyObject_Vectorcall", fill, self.row, self.width, "null")
        self.need(f"icmp ne ptr {said}, null", "failed_outs")
        self.drop(said)
        self.go("done")
        code.label("done")
        self.drop(self.outs)
        self.let_go()
        self.answer(True)
        code.label("failed_outs")
        self.drop(self.outs)
        self.go("failed")
        code.label("failed")
        self.let_go()
        code.do("ret ptr null")
        code.label("no")
        self.answer(False)

    def answer(self, found: bool) -> None:
        said = self.code.object(found)
        self.code.call("Py_IncRef", said)
        self.code.do(f"ret ptr {said}")

    def let_go(self) -> None:
        """Nobody needs to wait any more; what was held may die."""
        self.set(self.recorder, "recorder", "busy", False)
        count = self.code.value(f"sub i64 {self.width}, {_HEAD}")
        self.code.each(count, lambda i: self.drop(self.item(self.living, i)))


def void(_: object) -> None:
    """A statement's value is of no use."""
