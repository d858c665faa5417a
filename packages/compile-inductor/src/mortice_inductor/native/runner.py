"""A compiled graph as one native function: no Python runs between the call and the kernels.

It does what ``Program.__call__`` does, for programs without foreign steps: reads the inputs'
addresses, allocates the outputs, fills the table, calls the driver, wraps. Whatever is unusual (a
subclass of ndarray behind an input, a number of another type, a call while another one runs) goes
to the program itself. 0.3 us for two inputs and one output; the program takes 5.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mortice.native import Layout, layout
from mortice_llvm.cpython import Code, make, unsupported
from mortice_llvm.cpython import layout as c

from ..specs import NumberSpec, TensorSpec

if TYPE_CHECKING:
    from ..runtime.program import Program

NAME = "compiled graph"

#: Above this many elements in inputs and outputs together other threads may run meanwhile; below,
#: giving up the GIL and taking it again costs more than the kernels do.
RELEASE = 16384


class Table:
    """The program's table of words for native calls, behind a word that says it is in use.

    ``address`` is the busy word's; the words begin at ``address + 8``; ``place`` adds numbers that
    the native code points to.
    """

    def __init__(self, program: Program) -> None:
        self.state = program.new_state()
        self.busy = ctypes.c_int64(0)
        self._kept: list[Any] = []

    def place(self, numbers: tuple[int, ...]) -> int:
        """Where these numbers lie in memory."""
        block = (ctypes.c_int64 * max(len(numbers), 1))(*numbers)
        self._kept.append(block)
        return ctypes.addressof(block)


class Made(NamedTuple):
    """An array that the call allocates: its number, its object, its word."""

    number: int
    array: str


def runner(program: Program, functions: dict[str, int]) -> Callable[..., tuple[Any, ...]] | None:
    """``program`` as a builtin function; None where it must stay Python's.

    Args:
        program: What to run, and where to go when anything is unusual.
        functions: Addresses of the driver's functions by name.
    """
    plan = program.plan
    if unsupported() is not None or not _native(program):
        return None
    table = Table(program)
    code = Code("run")
    code.kept += [table, program]
    writer = _Writer(code, program, table, layout())
    writer.check(len(plan.specs))
    words = code.constant(table.state.address)
    writer.inputs(words)
    writer.numbers(words)
    made = writer.allocate(words)
    writer.launch([functions[step[1]] for step in plan.steps], words, _elements(program))
    writer.finish(made)
    return make(code, NAME)


def is_runner(function: Any) -> bool:
    """Whether it is a compiled graph, which does the same in any dispatch mode."""
    return type(function) is BuiltinFunctionType and function.__name__ == NAME


def _native(program: Program) -> bool:
    """Whether everything in the program is of the kinds that the text is written for."""
    plan = program.plan
    buffers = [x for kind, x in plan.outputs if kind == "buffer"]
    shapes = [row[3] for row in plan.slots]
    return (
        not program.constants
        and not plan.draws
        and all(isinstance(s, TensorSpec | NumberSpec) for s in plan.specs)
        and all(step[0] == "native" for step in plan.steps)
        and len(buffers) == len(set(buffers))
        and all(type(n) is int for shape in shapes for n in shape)
        and all(len(shape) <= 32 for shape in shapes)
    )


def _elements(program: Program) -> int:
    return sum(math.prod(row[3]) for row in program.plan.slots)


class _Writer:
    """Writes the text in the order in which it runs."""

    def __init__(self, code: Code, program: Program, table: Table, core: Layout) -> None:
        self.code = code
        self.program = program
        self.table = table
        self.core = core

    def check(self, count: int) -> None:
        """Nothing but the expected number of positional arguments, and nobody else inside."""
        code = self.code
        code.same("%nargs", str(count), "miss", "i64")
        code.same("%kwnames", "null", "miss")
        busy = code.constant(ctypes.addressof(self.table.busy))
        code.same(code.field(busy, 0, "i64"), "0", "miss", "i64")
        for k, spec in enumerate(self.program.plan.specs):
            kind = self.core.tensor if isinstance(spec, TensorSpec) else _python_type(spec)
            argument = self.argument(k)
            if isinstance(spec, TensorSpec):
                self._is_tensor(argument)
            else:
                code.same(code.field(argument, c.OB_TYPE), code.object(kind), "miss")

    def argument(self, k: int) -> str:
        return self.code.field("%args", 8 * k)

    def _is_tensor(self, argument: str) -> None:
        """A Tensor or an instance of a subclass, over a numpy array."""
        code = self.code
        kind = code.field(argument, c.OB_TYPE)
        plain, sub = code.fresh("plain"), code.fresh("sub")
        wanted = code.object(self.core.tensor)
        same = code.value(f"icmp eq ptr {kind}, {wanted}")
        code.do(f"br i1 {same}, label %{plain}, label %{sub}")
        code.label(sub)
        address = c.python_function("PyType_IsSubtype")
        found = code.call_address(address, "i32", "ptr, ptr", [kind, wanted])
        derived = code.value(f"icmp ne i32 {found}, 0")
        code.do(f"br i1 {derived}, label %{plain}, label %miss")
        code.label(plain)
        handle = code.field(argument, self.core.slots["_a"])
        there = code.value(f"icmp ne ptr {handle}, null")
        code.unless(there, "miss")
        code.same(code.field(handle, c.OB_TYPE), code.object(np.ndarray), "miss")

    def inputs(self, words: str) -> None:
        """The addresses of the inputs' memory."""
        for _, slot, kind, _, _, _, source in self.program.plan.slots:
            if kind == "input":
                handle = self.code.field(self.argument(source), self.core.slots["_a"])
                self.code.put(words, 8 * slot, self.code.field(handle, c.ARRAY_DATA))

    def numbers(self, words: str) -> None:
        """Floats and ints; an int of more than 64 bits goes to the program, which refuses it."""
        code = self.code
        for k, spec in enumerate(self.program.plan.specs):
            if not isinstance(spec, NumberSpec):
                continue
            if spec.dtype == "f64":
                value = code.field(self.argument(k), c.FLOAT_VALUE, "double")
                code.put(words, 8 * spec.slot, value, "double")
                continue
            overflow = code.constant(self.table.place((0,)))
            address = c.python_function("PyLong_AsLongLongAndOverflow")
            value = code.call_address(address, "i64", "ptr, ptr", [self.argument(k), overflow])
            code.same(code.field(overflow, 0, "i32"), "0", "miss", "i32")
            code.put(words, 8 * spec.slot, value, "i64")

    def allocate(self, words: str) -> list[Made]:
        """New arrays for the outputs; without memory for one, those before it are freed."""
        code, made = self.code, []
        fresh = c.numpy_function(c.NEW_FROM_DESCR)
        kind = c.numpy_function(c.ARRAY_TYPE)
        for number, slot, shape, strides, dtype in self.program.made:
            descr = code.object(dtype)
            code.call("Py_IncRef", descr)  # NewFromDescr keeps it
            steps = code.constant(self.table.place(strides)) if strides is not None else "null"
            array = code.call_address(
                fresh, "ptr", "ptr, ptr, i32, ptr, ptr, ptr, i32, ptr",
                [code.constant(kind), descr, str(len(shape)),
                 code.constant(self.table.place(shape)), steps, "null", "0", "null"],
            )  # fmt: skip
            self._unless_null(array, [m.array for m in made])
            code.put(words, 8 * slot, code.field(array, c.ARRAY_DATA))
            made.append(Made(number, array))
        return made

    def _unless_null(self, made: str, owned: list[str]) -> None:
        """Returns NULL, with what was made so far freed, if an allocation failed."""
        code = self.code
        failed, on = code.fresh("failed"), code.fresh("on")
        code.do(f"br i1 {code.value(f'icmp ne ptr {made}, null')}, label %{on}, label %{failed}")
        code.label(failed)
        for x in owned:
            code.call("Py_DecRef", x)
        code.do("ret ptr null")
        code.label(on)

    def launch(self, addresses: list[int], words: str, elements: int) -> None:
        """Runs the driver's functions, without the GIL if that takes a while."""
        code = self.code
        if not addresses:
            return
        if elements <= RELEASE:
            for address in addresses:
                code.call_address(address, "void", "ptr", [words])
            return
        busy = code.constant(ctypes.addressof(self.table.busy))
        code.put(busy, 0, "1", "i64")
        thread = code.call("PyEval_SaveThread")
        for address in addresses:
            code.call_address(address, "void", "ptr", [words])
        code.call("PyEval_RestoreThread", thread)
        code.put(busy, 0, "0", "i64")

    def finish(self, made: list[Made]) -> None:
        """The outputs as tensors in a tuple; and where unusual calls go."""
        code = self.code
        outputs = self.program.plan.outputs
        arrays = [m.array for m in made]
        self._unless_wrong({m.number: m.array for m in made}, arrays)
        result = code.call("PyTuple_New", str(len(outputs)))
        self._unless_null(result, arrays)
        owned = {m.number: m.array for m in made}
        for k, (kind, x) in enumerate(outputs):
            if kind == "buffer":
                item = self._tensor(x, owned.pop(x), [result, *owned.values()])
            else:
                item = self.argument(x) if kind == "input" else code.object(x)
                code.call("Py_IncRef", item)
            code.put(result, c.TUPLE_ITEMS + 8 * k, item)
        for array in owned.values():
            code.call("Py_DecRef", array)
        code.do(f"ret ptr {result}")
        code.label("miss")
        given = [code.object(self.program), "%args", "%nargs", "%kwnames"]
        code.do(f"ret ptr {code.call('PyObject_Vectorcall', *given)}")

    def _unless_wrong(self, made: dict[int, str], arrays: list[str]) -> None:
        """Where a check of values failed the program runs again, and raises."""
        code = self.code
        for number, _ in self.program.plan.checks:
            data = code.field(made[number], c.ARRAY_DATA)
            wrong, on = code.fresh("wrong"), code.fresh("on")
            fine = code.value(f"icmp eq i8 {code.field(data, 0, 'i8')}, 0")
            code.do(f"br i1 {fine}, label %{on}, label %{wrong}")
            code.label(wrong)
            for x in arrays:
                code.call("Py_DecRef", x)
            code.do("br label %miss")
            code.label(on)

    def _tensor(self, number: int, array: str, owned: list[str]) -> str:
        """A Tensor over a new array, as ``mortice.backend.wrap`` makes it."""
        code, slots = self.code, self.core.slots
        made = code.call("PyType_GenericAlloc", code.object(self.core.tensor), "0")
        self._unless_null(made, [array, *owned])
        code.put(made, slots["_a"], array)
        fill = {"_k": self.core.host_keys, "_t": self.program.dtypes[number]}
        for slot in ("_k", "_t", "_g", "_s", "_b"):
            value = code.object(fill.get(slot))
            code.call("Py_IncRef", value)
            code.put(made, slots[slot], value)
        return made


def _python_type(spec: Any) -> type:
    return float if spec.dtype == "f64" else int
