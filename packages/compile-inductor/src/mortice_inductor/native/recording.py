"""A recorded operator in native code: what core's ``recording`` does, on the same objects.

The recorder, its steps and leaves stay core's; native code reads and writes their slots. It takes
the call that is the step expected next, makes its result and moves on; everything else (another
operator or operand, a step that is not simple, a value that is equal without being the same object,
a tensor that has no storage yet, another thread that waits) goes to the Python function with nothing
done but leaves bound, which that finds bound. No Python runs and no lock is taken from the first
look at a step to its end, so other threads see it done or not begun.

There are three ways in. A kernel, behind the dispatch table; its stub has found the key set. The
functions that Python's operators call (``Tensor.__add__``), taken over: no Python runs at all; and
what the other stubs ask (``GLOBAL.quick``) while calls are recorded. These two find no key set: they
take a step whose kernel has said under the tables in force that it is the one which its operands'
keys lead to (``Step.epoch``), and look whether those keys are what they were.
"""

from __future__ import annotations

import numpy as np

from mortice_llvm.cpython import layout as c
from mortice_llvm.cpython.code import OFFSET_FLAG

from .writing import Writer

#: Places in a kernel's table: the Python form, the call.
PYTHON, CALL = range(2)
#: Letters of arguments (core's ``Call.kinds``) that may be tensors, and that may be numbers.
TENSORS, NUMBERS = "TNOZ", "NOF"

_MISS = "inttoptr (i64 1 to ptr)"


class Recording(Writer):
    """Writes ``kernel``, ``operator``, ``quick``, and what they share: ``take``."""

    def write(self) -> None:
        self.kernel()
        self.operator()
        self.quick()
        self.take()

    # -- ways in -------------------------------------------------------------------------------

    def _taken(self, args: str, count: str, who: str) -> None:
        """Returns what ``take`` gives, if it is not a miss."""
        rest = f"ptr {args}, i64 {count}, ptr {who}"
        found = self.code.value(f"call ptr @take(ptr %self, {rest})")
        missed, done = self.labels("missed", "done")
        self.code.branch(f"icmp eq ptr {found}, {_MISS}", missed, done)
        self.code.label(done)
        self.code.do(f"ret ptr {found}")
        self.code.label(missed)

    def kernel(self) -> None:
        """The function that a dispatch table holds."""
        code = self.code
        self.need("icmp eq ptr %kwnames, null", "miss")
        self._taken("%args", "%nargs", code.reserved(CALL))
        self.go("miss")
        code.label("miss")
        called = code.call(
            "PyObject_Vectorcall", code.reserved(PYTHON), "%args", "%nargs", "%kwnames"
        )
        code.do(f"ret ptr {called}")

    def operator(self) -> None:
        """In the place of a stub that Python's operators call."""
        code = self.code
        code.taken("operator")
        # Before anything else: this is all that an operator outside of recordings sees of it.
        self.need(f"icmp ne ptr {self.state('current')}, {code.object(None)}", "miss")
        self.need("icmp eq ptr %kwnames, null", "miss")
        self._taken("%args", code.value(f"and i64 %nargs, {OFFSET_FLAG}"), "%callable")
        self.go("miss")
        code.label("miss")
        code.untaken()

    def quick(self) -> None:
        """``quick(table, *operands)``: the result, or None; ``table`` says which operator."""
        code = self.code
        code.function("quick")
        operands = code.value("getelementptr ptr, ptr %args, i64 1")
        self._taken(operands, code.value("sub i64 %nargs, 1"), code.field("%args", 0))
        none = code.object(None)
        code.call("Py_IncRef", none)
        code.do(f"ret ptr {none}")

    # -- a step --------------------------------------------------------------------------------

    def take(self) -> None:
        code = self.code
        code.function("take", "ptr %self, ptr %args, i64 %nargs, ptr %who")
        code.do("%given = alloca ptr, align 8")
        code.do("%noted = alloca i64, align 8")
        code.put("%noted", 0, "0", "i64")
        self.recorder = self.recorder_of_thread()
        self.at_step, self.step = self.expected()
        self.call = self.slot(self.step, "step", "token")
        self.count = self.size(self.slot(self.call, "call", "letters"))
        self.asked_for()
        self.result, self.weak = self.allocate()
        self.undisturbed()
        wants = self.inside(self.slot(self.step, "step", "wants"), c.TUPLE_ITEMS)
        letters = self.inside(self.slot(self.call, "call", "letters"), c.BYTES_DATA)
        code.each(
            self.count,
            lambda i: self.operand(i, self.item(letters, i, "i8"), self.item(wants, i)),
        )
        self.commit()
        self.leave()

    def recorder_of_thread(self) -> str:
        """The recorder that records this thread now."""
        found = self.state("current")
        self.is_type(found, self.layout.types["recorder"], "no")
        self.is_mine(found, "no")
        self.recording(found, "no")
        return found

    def recording(self, recorder: str, target: str) -> None:
        self.is_object(self.slot(recorder, "recorder", "on"), True, target)
        self.is_object(self.slot(recorder, "recorder", "asked"), 0, target)

    def expected(self) -> tuple[str, str]:
        """(where the recorder is, the step expected next), which is simple."""
        at = self.slot(self.recorder, "recorder", "at")
        step = self.slot(at, "step", "ahead")
        self.is_type(step, self.layout.types["step"], "no")
        self.is_object(self.slot(step, "step", "simple"), True, "no")
        return at, step

    def asked_for(self) -> None:
        """It is a step of the kernel that asks, or one to which a stub's dispatch would lead."""
        code = self.code
        stub, ours, known = self.labels("stub", "ours", "known")
        code.branch(f"icmp eq ptr {self.call}, %who", ours, stub)
        code.label(stub)
        code.same(self.state("special"), self.state("recorders"), "no")
        code.same(self.slot(self.step, "step", "epoch"), self.state("epoch"), "no")
        self.need(f"icmp ule i64 %nargs, {self.count}", "no")
        stubs = self.slot(self.call, "call", "stubs")
        items = self.inside(stubs, c.TUPLE_ITEMS)

        def mine(i: str) -> None:
            on = code.fresh("other")
            code.branch(f"icmp eq ptr {self.item(items, i)}, %who", known, on)
            code.label(on)

        code.each(self.size(stubs), mine)
        self.go("no")
        code.label(ours)
        code.same("%nargs", self.count, "no", "i64")
        self.go(known)
        code.label(known)

    def allocate(self) -> tuple[str, str]:
        """A tensor and a weak reference: first, since finalizers may run meanwhile."""
        code = self.code
        made = code.call("PyType_GenericAlloc", code.object(self.core.tensor), "0")
        self.need(f"icmp ne ptr {made}, null", "failed")
        weak = code.call("PyWeakref_NewRef", made, "null")
        self.need(f"icmp ne ptr {weak}, null", "failed_weak")
        return made, weak

    def undisturbed(self) -> None:
        self.code.same(self.slot(self.recorder, "recorder", "at"), self.at_step, "drop")
        self.code.same(self.slot(self.at_step, "step", "ahead"), self.step, "drop")
        self.recording(self.recorder, "drop")

    # -- operands ------------------------------------------------------------------------------

    def argument(self, i: str) -> str:
        """An operand that is given, or its default."""
        defaults = self.inside(self.slot(self.call, "call", "defaults"), c.TUPLE_ITEMS)
        given = self.code.value(f"icmp ult i64 {i}, %nargs")
        return self.item(self.code.value(f"select i1 {given}, ptr %args, ptr {defaults}"), i)

    def letter_in(self, letter: str, letters: str, yes: str, no: str) -> None:
        cases = " ".join(f"i8 {ord(x)}, label %{yes}" for x in letters)
        self.code.do(f"switch i8 {letter}, label %{no} [{cases}]")

    def operand(self, i: str, letter: str, want: str) -> None:
        code = self.code
        done, other, value, maybe, tensor = self.labels("done", "other", "value", "maybe", "tensor")
        x = self.argument(i)
        code.branch(f"icmp eq ptr {x}, {want}", done, other)
        code.label(other)
        cls = code.field(x, c.OB_TYPE)
        self.letter_in(letter, TENSORS, maybe, value)
        code.label(maybe)
        subclass = code.fresh("subclass")
        code.branch(f"icmp eq ptr {cls}, {code.object(self.core.tensor)}", tensor, subclass)
        code.label(subclass)
        derived = code.call("PyType_IsSubtype", cls, code.object(self.core.tensor))
        code.branch(f"icmp ne i32 {derived}, 0", tensor, value)
        code.label(tensor)
        self.tensor(x, want, done)
        code.label(value)
        counts, number, constant = self.labels("counts", "number", "constant")
        self.letter_in(letter, NUMBERS, counts, constant)
        code.label(counts)
        code.branch(f"icmp eq ptr {cls}, {want}", number, constant)
        code.label(number)
        bit = code.value(f"shl i64 1, {i}")
        code.put("%noted", 0, code.value(f"or i64 {code.field('%noted', 0, 'i64')}, {bit}"), "i64")
        self.go(done)
        code.label(constant)
        self.equal(x, cls, want)
        self.go(done)
        code.label(done)

    def equal(self, x: str, cls: str, want: str) -> None:
        """Two floats of the same bits, or two tuples of the same objects: sizes are small numbers."""
        code = self.code
        real, rows, over = self.labels("float", "tuple", "over")
        code.same(cls, code.field(want, c.OB_TYPE), "drop")
        code.branch(f"icmp eq ptr {cls}, {code.object(float)}", real, rows)
        code.label(real)
        a, b = (code.field(v, c.FLOAT_VALUE, "i64") for v in (x, want))
        code.same(a, b, "drop", "i64")
        self.go(over)
        code.label(rows)
        self.is_object(cls, tuple, "drop")
        code.same(self.size(x), self.size(want), "drop", "i64")
        a, b = (self.inside(v, c.TUPLE_ITEMS) for v in (x, want))
        self.same_words(a, b, self.size(x), "drop")
        self.go(over)
        code.label(over)

    def tensor(self, t: str, want: str, done: str) -> None:
        """The tensor with the handle wanted, or the one bound to the leaf wanted, or one to bind.

        With the keys that the step was made for: gradients may have been asked for since.
        """
        code, slots = self.code, self.core.slots
        handle, keys = code.field(t, slots["_a"]), code.field(t, slots["_k"])
        pending, leaf, bound = self.labels("pending", "leaf", "bound")
        code.branch(f"icmp eq ptr {handle}, {want}", pending, leaf)
        code.label(pending)
        made = self.slot(want, "pending", "output")
        code.same(keys, self.slot(made, "output", "key"), "drop")
        self.go(done)
        code.label(leaf)
        self.is_type(want, self.layout.types["leaf"], "drop")
        code.same(keys, self.slot(want, "leaf", "key"), "drop")
        held = self.slot(want, "leaf", "tensor")
        code.branch(f"icmp eq ptr {held}, {t}", done, bound)
        code.label(bound)
        self.is_object(held, None, "drop")
        self.bind(t, handle, want)
        self.go(done)

    def bind(self, t: str, handle: str, leaf: str) -> None:
        """As core's ``bind``, for host memory that the path has not met and nobody else may write to."""
        code, slots = self.code, self.core.slots
        code.same(code.field(t, slots["_t"]), self.slot(leaf, "leaf", "dtype"), "drop")
        self.is_type(handle, np.ndarray, "drop")
        self.is_object(self.slot(leaf, "leaf", "handle_type"), np.ndarray, "drop")
        self.same_extents(handle, self.slot(leaf, "leaf", "extents"))
        self.is_object(self.slot(leaf, "leaf", "first"), None, "drop")
        leaves = self.slot(self.recorder, "recorder", "leaves")
        number = self.number(self.slot(leaf, "leaf", "number"))
        code.same(self.size(leaves), number, "drop", "i64")
        storage = self.storage_of(t)
        self.is_type(storage, self.layout.types["storage"], "drop")
        for name in ("owner", "pending"):
            self.is_object(self.slot(storage, "storage", name), None, "drop")
        self.is_object(self.slot(storage, "storage", "exported"), False, "drop")
        self.append(leaves, leaf, "failed_both")
        self.set(leaf, "leaf", "tensor", t)
        self.append(self.slot(self.recorder, "recorder", "storages"), storage, "failed_both")
        self.set(storage, "storage", "pending", self.recorder)

    def storage_of(self, t: str) -> str:
        """The tensor's storage, made by Python if it has none; other threads wait meanwhile."""
        code = self.code
        place = self.inside(t, self.core.slots["_s"])
        found = code.value(f"load ptr, ptr {place}")

        def missing() -> None:
            code.put("%given", 0, t)
            self.set(self.recorder, "recorder", "busy", True)
            make = code.object(self.layout.storage_of)
            made = code.call("PyObject_Vectorcall", make, "%given", "1", "null")
            self.set(self.recorder, "recorder", "busy", False)
            self.need(f"icmp ne ptr {made}, null", "failed_both")
            self.drop(made)
            code.same(self.slot(self.recorder, "recorder", "at"), self.at_step, "drop")

        self.either(f"icmp eq ptr {found}, {code.object(None)}", missing)
        return code.value(f"load ptr, ptr {place}")

    def same_extents(self, handle: str, extents: str) -> None:
        """Sizes and strides are those of a leaf: ``extents`` is a bytes of 64-bit numbers."""
        code = self.code
        count = code.value(f"sext i32 {code.field(handle, c.ARRAY_NDIM, 'i32')} to i64")
        code.same(self.size(extents), code.value(f"shl i64 {count}, 4"), "drop", "i64")
        sizes = self.inside(extents, c.BYTES_DATA)
        self.same_words(code.field(handle, c.ARRAY_DIMS), sizes, count, "drop")
        steps = self.at(sizes, count, "i64")
        self.same_words(code.field(handle, c.ARRAY_STRIDES), steps, count, "drop")

    # -- the end -------------------------------------------------------------------------------

    def commit(self) -> None:
        code, slots, step = self.code, self.core.slots, self.step

        def note() -> None:
            numbers = self.slot(self.recorder, "recorder", "numbers")

            def each(i: str) -> None:
                bit = code.value(f"lshr i64 {code.field('%noted', 0, 'i64')}, {i}")
                odd = code.value(f"trunc i64 {bit} to i1")
                put = lambda: self.append(numbers, self.argument(i), "failed_both")  # noqa: E731
                self.either(f"icmp eq i1 {odd}, true", put)

            code.each(self.count, each)

        self.either(f"icmp ne i64 {code.field('%noted', 0, 'i64')}, 0", note)
        self.append(self.slot(self.recorder, "recorder", "made"), self.weak, "failed_both")
        self.drop(self.weak)
        fill = {"_a": "handle", "_k": "key", "_t": "result", "_g": "edge"}
        for slot in ("_a", "_k", "_t", "_g", "_s", "_b"):
            value = self.slot(step, "step", fill[slot]) if slot in fill else code.object(None)
            code.call("Py_IncRef", value)
            code.put(self.result, slots[slot], value)
        self.set(self.recorder, "recorder", "at", step)
        self.vouch()
        code.do(f"ret ptr {self.result}")

    def vouch(self) -> None:
        """Says that stubs may take the step: dispatch has led to this kernel, by the operands' keys."""
        code, call, step = self.code, self.call, self.step
        asks, plain, looks = self.labels("asks", "plain", "looks")
        code.branch(f"icmp eq ptr {call}, %who", asks, "vouched")
        code.label(asks)
        epoch = self.state("epoch")
        code.branch(
            f"icmp eq ptr {self.slot(step, 'step', 'epoch')}, {epoch}", "vouched", plain
        )  # fmt: skip
        code.label(plain)
        by_keys = self.slot(step, "step", "by_keys")
        code.branch(f"icmp eq ptr {by_keys}, {code.object(True)}", looks, "vouched")
        code.label(looks)
        table, keys = self.slot(call, "call", "table"), self.slot(call, "call", "keys")
        found = code.call("PyDict_GetItemWithError", table, keys)
        kernel = self.slot(call, "call", "kernel")
        self.either(
            f"icmp eq ptr {found}, {kernel}", lambda: self.set(step, "step", "epoch", epoch)
        )
        self.go("vouched")
        code.label("vouched")

    def leave(self) -> None:
        code = self.code
        code.label("drop")
        self.drop(self.weak)
        self.drop(self.result)
        self.go("no")
        code.label("no")
        code.do(f"ret ptr {_MISS}")
        code.label("failed_both")
        self.drop(self.weak)
        self.go("failed_weak")
        code.label("failed_weak")
        self.drop(self.result)
        self.go("failed")
        code.label("failed")
        code.do("ret ptr null")
