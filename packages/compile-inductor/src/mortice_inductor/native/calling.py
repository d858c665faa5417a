"""A recorded call in native code: what core's ``Compiled.call_recorded`` does around the function.

It takes a recorder of earlier calls, lets the thread's operators go to it, calls the function, and ends
the last segment. While any thread records, and where there is no such recorder, Python does it all;
what the function raises, and a segment's own error, go through core's ``raised``.
"""

from __future__ import annotations

from mortice_llvm.cpython import layout as c
from mortice_llvm.cpython.code import OFFSET_FLAG

from .writing import Writer

#: Places in a call's table: the function, the list of trees, the Python form, what errors go through.
FN, TREES, PYTHON, RAISED = range(4)


class Calling(Writer):
    """Writes ``call``, and ``compiled`` in the place of ``Compiled.__call__``."""

    def write(self) -> None:
        self.compiled()
        self.code.function("call")
        self.enter()
        self.run()
        self.end()
        self.leave()

    def compiled(self) -> None:
        """A compiled object that has a native form is called without Python."""
        code = self.code
        code.taken("compiled")
        count = code.value(f"and i64 %nargs, {OFFSET_FLAG}")
        self.need(f"icmp ne i64 {count}, 0", "plain")
        made = code.field("%args", 0)
        self.is_type(made, self.layout.types["compiled"], "plain")
        self.is_object(
            self.slot(code.object(self.layout.stance), "stance", "eager"), False, "plain"
        )
        native = self.slot(made, "compiled", "native")
        self.need(f"icmp ne ptr {native}, null", "plain")
        self.need(f"icmp ne ptr {native}, {code.object(None)}", "plain")
        code.call("Py_IncRef", native)
        rest = (self.at("%args", "1"), code.value(f"sub i64 {count}, 1"), "%kwnames")
        result = code.call("PyObject_Vectorcall", native, *rest)
        self.drop(native)
        code.do(f"ret ptr {result}")
        code.label("plain")
        code.untaken()

    # -- pieces --------------------------------------------------------------------------------

    def switch(self, on: bool) -> None:
        """Lets the thread's operators go to the recorder, or run as they come again."""
        none = self.code.object(None)
        self.listens(self.recorder, self.recorder if on else none)
        state = self.code.object(self.core.state)
        self.set(state, "state", "current", self.recorder if on else none)
        self.set(self.recorder, "recorder", "on", on)

    def watch(self, more: int) -> None:
        """As core's ``watch_memory``: calls being recorded, in all threads."""
        code, state = self.code, self.code.object(self.core.state)
        # Small numbers are there already: making them cannot fail.
        for name in ("special", "recorders"):
            self.add(state, "state", name, more, "failed")
        none = code.value(f"icmp eq ptr {self.state('recorders')}, {code.object(0)}")
        watch = (code.object(0), code.object(self.layout.record_key))
        self.set(
            state, "state", "watch", code.value(f"select i1 {none}, ptr {watch[0]}, ptr {watch[1]}")
        )

    # -- the call ------------------------------------------------------------------------------

    def enter(self) -> None:
        code = self.code
        code.do("%by_segment = alloca ptr, align 8")
        code.do("%ident = alloca i64, align 8")
        code.put("%by_segment", 0, code.object(False))
        self.is_object(self.state("recorders"), 0, "miss")
        trees = code.reserved(TREES)
        self.need(f"icmp sgt i64 {self.size(trees)}, 0", "miss")
        last = code.value(f"sub i64 {self.size(trees)}, 1")
        tree = self.item(code.field(trees, c.LIST_ITEMS), last)
        self.recorder = self.slot(tree, "tree", "walker")
        self.is_type(self.recorder, self.layout.types["recorder"], "miss")
        fields = code.call(
            "PyObject_GetAttr", code.object(self.layout.thread), code.object("__dict__")
        )
        self.need(f"icmp ne ptr {fields}, null", "failed_early")
        # The list's reference to the tree ends; those between the two of them stay.
        code.call("Py_IncRef", self.recorder)
        self.set(tree, "tree", "recorder", self.recorder)
        self.last(trees)
        self.drop(tree)
        self.set(self.recorder, "recorder", "fields", fields)
        self.drop(fields)
        root = self.slot(tree, "tree", "root")
        self.set(self.recorder, "recorder", "ended", root)
        self.set(root, "step", "ahead", self.slot(root, "step", "after"))
        self.owner()
        self.watch(1)
        self.switch(True)

    def owner(self) -> None:
        code = self.code
        ident = code.call("PyThread_get_thread_ident")
        owner = self.slot(self.recorder, "recorder", "owner")

        def other() -> None:
            code.put("%ident", 0, ident, "i64")
            made = code.call("PyBytes_FromStringAndSize", "%ident", "8")
            self.need(f"icmp ne ptr {made}, null", "failed")
            self.set(self.recorder, "recorder", "owner", made)
            self.drop(made)

        self.either(
            f"icmp ne i64 {code.field(owner, c.BYTES_DATA, 'i64')}, {ident}", other
        )  # fmt: skip

    def run(self) -> None:
        code = self.code
        self.result = code.call(
            "PyObject_Vectorcall", code.reserved(FN), "%args", "%nargs", "%kwnames"
        )
        self.need(f"icmp ne ptr {self.result}, null", "raising")

    def end(self) -> None:
        """Ends the last segment; then nothing is recorded any more."""
        code = self.code
        step = self.slot(self.recorder, "recorder", "at")
        finale = self.slot(step, "step", "usual")
        code.branch(f"icmp eq ptr {finale}, {code.object(None)}", "plainly", "natively")
        code.label("natively")
        operands = code.value("alloca [3 x ptr], align 8")
        for k, x in enumerate((self.recorder, step, finale)):
            code.put(operands, 8 * k, x)
        done = code.value(f"call ptr @finish(ptr %self, ptr {operands}, i64 3, ptr null)")
        code.branch(f"icmp eq ptr {done}, null", "segment_failed", "ran")
        code.label("ran")
        self.drop(done)
        code.branch(f"icmp eq ptr {done}, {code.object(True)}", "counted", "plainly")
        code.label("counted")
        self.add(finale, "finale", "count", 1, "unfinished")
        # A finalizer may have recorded something since.
        root = self.slot(self.slot(self.recorder, "recorder", "tree"), "tree", "root")
        at = self.slot(self.recorder, "recorder", "at")
        code.branch(f"icmp eq ptr {at}, {root}", "finished", "plainly")
        code.label("plainly")
        said = self.python(code.object(self.layout.finish), self.recorder)
        self.need(f"icmp ne ptr {said}, null", "unfinished")
        self.drop(said)
        self.go("finished")
        code.label("finished")
        self.switch(False)
        self.watch(-1)
        tree = self.slot(self.recorder, "recorder", "tree")
        code.call("Py_IncRef", tree)
        self.set(tree, "tree", "recorder", None)
        steps = self.number(self.slot(tree, "tree", "size"))
        keep = code.value(f"icmp slt i64 {steps}, {self.layout.tree_steps}")
        kept, out = self.labels("kept", "out")
        code.do(f"br i1 {keep}, label %{kept}, label %{out}")
        code.label(kept)
        code.call("PyList_Append", code.reserved(TREES), tree)
        self.go(out)
        code.label(out)
        self.drop(tree)
        self.drop(self.recorder)
        code.do(f"ret ptr {self.result}")

    def leave(self) -> None:
        code = self.code
        code.label("segment_failed")
        code.put("%by_segment", 0, code.object(True))
        self.go("unfinished")
        code.label("unfinished")
        self.drop(self.result)
        self.go("raising")
        code.label("raising")
        parts = self.fetch()
        code.call("PyErr_NormalizeException", *parts)
        kind, error, trace = self.loaded(parts)

        def traced() -> None:
            code.call("PyException_SetTraceback", error, trace)
            self.drop(trace)

        self.either(f"icmp ne ptr {trace}, null", traced)
        self.drop(kind)
        raised = code.reserved(RAISED)
        said = self.python(raised, self.recorder, error, code.field("%by_segment", 0))
        self.drop(error)
        self.drop(self.recorder)
        code.do(f"ret ptr {said}")
        code.label("failed")
        self.drop(self.recorder)
        self.go("failed_early")
        code.label("failed_early")
        code.do("ret ptr null")
        code.label("miss")
        form = code.reserved(PYTHON)
        code.do(f"ret ptr {code.call('PyObject_Vectorcall', form, '%args', '%nargs', '%kwnames')}")
