"""What the texts of the native recorder share: the slots of core's objects, references, loops.

The recorder is one text of several functions, which share a table of constants. Each room writes its
own part: ``recording`` operators, ``finishing`` ends of segments, ``calling`` the call around them.
"""

from __future__ import annotations

from collections.abc import Callable

from mortice.native import layout as core_layout
from mortice.native import recording_layout
from mortice_llvm.cpython import Code
from mortice_llvm.cpython import layout as c


class Writer:
    """Writes into a text; ``Code``'s pieces, and those that know core's objects."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.core = core_layout()
        self.layout = recording_layout()

    # -- slots ---------------------------------------------------------------------------------

    def offset(self, kind: str, name: str) -> int:
        return self.layout.offsets[kind][name]

    def slot(self, of: str, kind: str, name: str) -> str:
        return self.code.field(of, self.offset(kind, name))

    def state(self, name: str) -> str:
        """A slot of the dispatch state that all threads share."""
        return self.slot(self.code.object(self.core.state), "state", name)

    def number(self, x: str) -> str:
        return self.code.call("PyLong_AsLongLong", x)

    def size(self, x: str) -> str:
        """Of a list, tuple, bytes or dict."""
        return self.code.field(x, c.LIST_SIZE, "i64")

    def inside(self, x: str, offset: int) -> str:
        return self.code.value(f"getelementptr i8, ptr {x}, i64 {offset}")

    def at(self, items: str, index: str, type_: str = "ptr") -> str:
        return self.code.value(f"getelementptr {type_}, ptr {items}, i64 {index}")

    def item(self, items: str, index: str, type_: str = "ptr") -> str:
        return self.code.value(f"load {type_}, ptr {self.at(items, index, type_)}")

    # -- conditions ----------------------------------------------------------------------------

    def need(self, condition: str, target: str) -> None:
        self.code.unless(self.code.value(condition), target)

    def is_object(self, x: str, thing: object, target: str) -> None:
        self.code.same(x, self.code.object(thing), target)

    def is_type(self, x: str, cls: type, target: str) -> None:
        self.is_object(self.code.field(x, c.OB_TYPE), cls, target)

    def is_mine(self, recorder: str, target: str) -> None:
        """A recorder is of this very thread."""
        owner = self.code.field(self.slot(recorder, "recorder", "owner"), c.BYTES_DATA, "i64")
        self.code.same(owner, self.code.call("PyThread_get_thread_ident"), target, "i64")

    def same_words(self, a: str, b: str, count: str, target: str) -> None:
        """Two rows of 64-bit numbers are equal."""

        def word(i: str) -> None:
            self.code.same(self.item(a, i, "i64"), self.item(b, i, "i64"), target, "i64")

        self.code.each(count, word)

    # -- references ----------------------------------------------------------------------------

    def put(self, of: str, offset: int, x: str) -> None:
        """Stores a reference in a slot; the old object is let go."""
        old = self.code.field(of, offset)
        self.code.call("Py_IncRef", x)
        self.code.put(of, offset, x)
        self.code.call("Py_DecRef", old)

    def set(self, of: str, kind: str, name: str, x: object) -> None:
        """As ``put``, by the slot's name; ``x`` is a value of the text or, if no str, an object."""
        self.put(of, self.offset(kind, name), x if isinstance(x, str) else self.code.object(x))

    def add(self, of: str, kind: str, name: str, more: int, target: str) -> None:
        """Adds to a number in a slot."""
        before = self.number(self.slot(of, kind, name))
        after = self.code.call("PyLong_FromLongLong", self.code.value(f"add i64 {before}, {more}"))
        self.need(f"icmp ne ptr {after}, null", target)
        self.set(of, kind, name, after)
        self.code.call("Py_DecRef", after)

    def append(self, items: str, x: str, target: str) -> None:
        self.need(f"icmp eq i32 {self.code.call('PyList_Append', items, x)}, 0", target)

    def last(self, items: str) -> str:
        """Takes the last item of a list that has some; the list keeps its memory."""
        size = self.code.value(f"sub i64 {self.size(items)}, 1")
        found = self.item(self.code.field(items, c.LIST_ITEMS), size)
        self.code.put(items, c.LIST_SIZE, size, "i64")
        return found

    def clear(self, items: str) -> None:
        """Empties a list, from its end: it is whole whenever an item dies."""
        self.code.each(self.size(items), lambda _: self.drop(self.last(items)))

    def drop(self, x: str) -> None:
        self.code.call("Py_DecRef", x)

    def python(self, function: str, *operands: str) -> str:
        """The result of a Python function; a new reference or NULL. Not in loops: it takes stack."""
        code = self.code
        row = code.value(f"alloca [{len(operands) + 1} x ptr], align 8")
        for k, x in enumerate(operands):
            code.put(row, 8 * k, x)
        return code.call("PyObject_Vectorcall", function, row, str(len(operands)), "null")

    def listens(self, recorder: str, to: str) -> None:
        """Lets the thread's operators go to its recorder, or to None."""
        fields = self.slot(recorder, "recorder", "fields")
        self.code.call("PyDict_SetItem", fields, self.code.object("recorder"), to)

    # -- blocks --------------------------------------------------------------------------------

    def labels(self, *names: str) -> tuple[str, ...]:
        """Names of blocks that are not used yet."""
        return tuple(self.code.fresh(name) for name in names)

    def either(self, condition: str, yes: Callable[[], None]) -> None:
        """Writes what is done where a condition holds; then both go on."""
        on, over = self.labels("then", "over")
        self.code.branch(condition, on, over)
        self.code.label(on)
        yes()
        self.go(over)
        self.code.label(over)

    def go(self, target: str) -> None:
        self.code.do(f"br label %{target}")

    # -- errors --------------------------------------------------------------------------------

    def fetch(self) -> list[str]:
        """The error under way, taken: where its three parts lie. Not in loops."""
        parts = [self.code.value("alloca ptr, align 8") for _ in range(3)]
        self.code.call("PyErr_Fetch", *parts)
        return parts

    def loaded(self, parts: list[str]) -> list[str]:
        return [self.code.value(f"load ptr, ptr {x}") for x in parts]
