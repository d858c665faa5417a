"""A recorded call as a native function: what core's ``Compiled.call_recorded`` does around the function.

It takes a recorder of earlier calls, lets the thread's operators go to it, calls the function, and ends
the last segment. While any thread records, and where there is no such recorder, Python does it all; what the function raises, and a segment's own error, go through core's ``raised``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from mortice.native import Layout, RecordingLayout, recording_layout
from mortice.native import layout as core_layout
from mortice_llvm.cpython import Code, make
from mortice_llvm.cpython import layout as c

from .finishing import finish

#: Places in the table: the function, the list of trees, the Python form, what errors go through.
_FN, _TREES, _PYTHON, _RAISED = range(4)


def recorded_call(
    fn: Any, trees: list[Any], python: Callable[..., Any], raised: Callable[..., Any]
) -> Callable[..., Any]:
    """``python``, or a native function that does the same with ``fn`` and its trees.

    Before Python 3.11 another thread may be between reading and writing a count of calls.
    """
    if sys.version_info < (3, 11):
        return python
    kept = (fn, trees, python, raised)
    return make(_text(), "recorded call", first=[id(x) for x in kept], kept=kept)


@cache
def _text() -> Code:
    return _Writer(core_layout(), recording_layout()).code


class _Writer:
    def __init__(self, core: Layout, layout: RecordingLayout) -> None:
        self.code = Code("recorded_call", reserved=4)
        self.core, self.layout = core, layout
        self.state = self.code.object(core.state)
        self.enter()
        self.call()
        self.end()
        self.leave()

    # -- pieces --------------------------------------------------------------------------------

    def offset(self, kind: str, name: str) -> int:
        return self.layout.offsets[kind][name]

    def slot(self, of: str, kind: str, name: str) -> str:
        return self.code.field(of, self.offset(kind, name))

    def need(self, condition: str, target: str) -> None:
        self.code.unless(self.code.value(condition), target)

    def is_type(self, x: str, cls: type, target: str) -> None:
        self.code.same(self.code.field(x, c.OB_TYPE), self.code.object(cls), target)

    def external(self, name: str, result: str, types: str, *arguments: str) -> str:
        return self.code.call_address(c.python_function(name), result, types, arguments)

    def put(self, of: str, offset: int, x: str) -> None:
        """Stores a reference in a slot; the old object is let go."""
        old = self.code.field(of, offset)
        self.code.call("Py_IncRef", x)
        self.code.put(of, offset, x)
        self.code.call("Py_DecRef", old)

    def put_object(self, of: str, offset: int, thing: object) -> None:
        self.put(of, offset, self.code.object(thing))

    def python(self, function: str, *operands: str) -> str:
        """The result of a Python function; a new reference or NULL."""
        code = self.code
        row = code.value(f"alloca [{len(operands) + 1} x ptr], align 8")
        for k, x in enumerate(operands):
            code.put(row, 8 * k, x)
        return code.call("PyObject_Vectorcall", function, row, str(len(operands)), "null")

    def listens(self, recorder: str, on: bool) -> None:
        """Lets the thread's operators go to a recorder, or to None."""
        thread, name = self.code.object(self.layout.thread), self.code.object("recorder")
        to = recorder if on else self.code.object(None)
        self.external("PyObject_SetAttr", "i32", "ptr, ptr, ptr", thread, name, to)
        self.put(self.state, self.layout.current, to)
        self.put_object(recorder, self.offset("recorder", "on"), on)

    def count(self, more: int) -> None:
        """As core's ``watch_memory``: calls being recorded, in all threads."""
        code = self.code
        recorders = ""
        for offset in (self.core.special, self.layout.recorders):
            before = code.call("PyLong_AsLongLong", code.field(self.state, offset))
            recorders = code.value(f"add i64 {before}, {more}")
            found = self.external("PyLong_FromLongLong", "ptr", "i64", recorders)
            self.put(self.state, offset, found)  # small numbers are there already: it cannot fail
            code.call("Py_DecRef", found)
        none = code.value(f"icmp eq i64 {recorders}, 0")
        watch = (code.object(0), code.object(self.layout.record_key))
        value = code.value(f"select i1 {none}, ptr {watch[0]}, ptr {watch[1]}")
        self.put(self.state, self.layout.watch, value)

    def branch(self, condition: str, yes: str, no: str) -> None:
        self.code.do(f"br i1 {self.code.value(condition)}, label %{yes}, label %{no}")

    def locked(self, what: str) -> None:
        """The recorder's lock, for threads that want what the segment computes."""
        said = self.python(self.slot(self.recorder, "recorder", what))
        self.need(f"icmp ne ptr {said}, null", "unfinished")
        self.code.call("Py_DecRef", said)

    # -- the call ------------------------------------------------------------------------------

    def enter(self) -> None:
        code = self.code
        zero = code.object(0)
        code.do("%by_segment = alloca ptr, align 8")
        code.put("%by_segment", 0, code.object(False))
        code.same(code.field(self.state, self.layout.recorders), zero, "miss")
        trees = code.reserved(_TREES)
        size = code.field(trees, c.LIST_SIZE, "i64")
        self.need(f"icmp sgt i64 {size}, 0", "miss")
        last = code.value(f"sub i64 {size}, 1")
        place = code.value(f"getelementptr ptr, ptr {code.field(trees, c.LIST_ITEMS)}, i64 {last}")
        tree = code.value(f"load ptr, ptr {place}")
        self.recorder = self.slot(tree, "tree", "walker")
        self.is_type(self.recorder, self.layout.types["recorder"], "miss")
        code.call("Py_IncRef", self.recorder)
        self.put(tree, self.offset("tree", "recorder"), self.recorder)
        root = self.slot(tree, "tree", "root")
        self.put(self.recorder, self.offset("recorder", "ended"), root)
        self.put(root, self.offset("step", "ahead"), self.slot(root, "step", "after"))
        ident = self.external("PyThread_get_thread_ident", "i64", "")
        owner = self.external("PyLong_FromLongLong", "ptr", "i64", ident)
        self.need(f"icmp ne ptr {owner}, null", "failed")
        self.put(self.recorder, self.offset("recorder", "owner"), owner)
        code.call("Py_DecRef", owner)
        types = "ptr, i64, i64, ptr"
        self.external("PyList_SetSlice", "i32", types, trees, last, size, "null")
        self.count(1)
        self.listens(self.recorder, True)

    def call(self) -> None:
        code = self.code
        fn = code.reserved(_FN)
        self.result = code.call("PyObject_Vectorcall", fn, "%args", "%nargs", "%kwnames")
        self.need(f"icmp ne ptr {self.result}, null", "raising")

    def end(self) -> None:
        """Ends the last segment; then nothing is recorded any more."""
        code = self.code
        step = self.slot(self.recorder, "recorder", "at")
        finale = self.slot(step, "step", "usual")
        self.branch(f"icmp eq ptr {finale}, {code.object(None)}", "plainly", "natively")
        code.label("natively")
        self.locked("acquire")
        done = self.python(code.object(finish()), self.recorder, step, finale)
        self.branch(f"icmp eq ptr {done}, null", "segment_failed", "ran")
        code.label("ran")
        self.locked("release")
        code.call("Py_DecRef", done)
        self.branch(f"icmp eq ptr {done}, {code.object(True)}", "counted", "plainly")
        code.label("counted")
        count = self.offset("finale", "count")
        before = code.call("PyLong_AsLongLong", code.field(finale, count))
        more = code.value(f"add i64 {before}, 1")
        number = self.external("PyLong_FromLongLong", "ptr", "i64", more)
        self.need(f"icmp ne ptr {number}, null", "unfinished")
        self.put(finale, count, number)
        code.call("Py_DecRef", number)
        code.do("br label %finished")
        code.label("plainly")
        said = self.python(code.object(self.layout.finish), self.recorder)
        self.need(f"icmp ne ptr {said}, null", "unfinished")
        code.call("Py_DecRef", said)
        code.do("br label %finished")
        code.label("finished")
        self.listens(self.recorder, False)
        self.count(-1)
        tree = self.slot(self.recorder, "recorder", "tree")
        none = code.object(None)
        for name in ("trace", "watch", "prefix", "place"):
            self.put(self.recorder, self.offset("recorder", name), none)
        self.put(tree, self.offset("tree", "recorder"), none)
        code.call("Py_DecRef", self.recorder)  # its tree holds it
        steps = code.call("PyLong_AsLongLong", self.slot(tree, "tree", "size"))
        code.do(f"%keep = icmp slt i64 {steps}, {self.layout.tree_steps}")
        code.do("br i1 %keep, label %kept, label %out")
        code.label("kept")
        self.external("PyList_Append", "i32", "ptr, ptr", code.reserved(_TREES), tree)
        code.do("br label %out")
        code.label("out")
        code.do(f"ret ptr {self.result}")

    def fetch(self) -> list[str]:
        """The error under way, taken: where its three parts lie."""
        parts = [self.code.value("alloca ptr, align 8") for _ in range(3)]
        self.external("PyErr_Fetch", "void", "ptr, ptr, ptr", *parts)
        return parts

    def loaded(self, parts: list[str]) -> list[str]:
        return [self.code.value(f"load ptr, ptr {x}") for x in parts]

    def leave(self) -> None:
        code = self.code
        code.label("segment_failed")
        parts = self.fetch()
        self.python(self.slot(self.recorder, "recorder", "release"))  # gives None, which lives on
        self.external("PyErr_Restore", "void", "ptr, ptr, ptr", *self.loaded(parts))
        code.put("%by_segment", 0, code.object(True))
        code.do("br label %unfinished")
        code.label("unfinished")
        code.call("Py_DecRef", self.result)
        code.do("br label %raising")
        code.label("raising")
        parts = self.fetch()
        self.external("PyErr_NormalizeException", "void", "ptr, ptr, ptr", *parts)
        kind, error, trace = self.loaded(parts)
        code.do(f"%traced = icmp ne ptr {trace}, null")
        code.do("br i1 %traced, label %with_trace, label %without")
        code.label("with_trace")
        self.external("PyException_SetTraceback", "i32", "ptr, ptr", error, trace)
        code.call("Py_DecRef", trace)
        code.do("br label %without")
        code.label("without")
        code.call("Py_DecRef", kind)
        raised = code.reserved(_RAISED)
        said = self.python(raised, self.recorder, error, code.field("%by_segment", 0))
        code.call("Py_DecRef", error)
        code.call("Py_DecRef", self.recorder)
        code.do(f"ret ptr {said}")
        code.label("failed")
        code.call("Py_DecRef", self.recorder)
        code.do("ret ptr null")
        code.label("miss")
        form = code.reserved(_PYTHON)
        code.do(f"ret ptr {code.call('PyObject_Vectorcall', form, '%args', '%nargs', '%kwnames')}")
