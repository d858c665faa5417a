"""A compiled graph in this process: fills a table of words and runs the plan's steps."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

import mortice
from mortice.backend import array, generator_for, wrap
from mortice.errors import CompileError
from mortice_llvm.runtime.library import Library

from ..ir.refusal import Refusal
from ..ir.values import UPDATING_COPIES
from ..plan import CallStep, Plan
from ..specs import GeneratorSpec, NumberSpec, OtherSpec, TensorSpec, mortice_dtype
from .heap import COMMON
from .operators import OperatorByOperator

_CPU = mortice.device("cpu")
#: Kinds of buffers that a call allocates.
MADE = ("output", "boundary")


class Table(NamedTuple):
    """What the words of a plan hold before a call, and the memory that they point to: plain data.

    Attributes:
        words: 64-bit words, with the constants. arena: bytes.
        temps: (word, offset in the arena) of what lies there.
        blas: (name of a routine of BLAS, word).
    """

    words: bytes
    arena: int
    temps: tuple[tuple[int, int], ...]
    blas: tuple[tuple[str, int], ...]


def table_of(plan: Plan) -> Table:
    """The table of a plan."""
    words = (ctypes.c_int64 * max(plan.words, 1))()
    first, constants = plan.constants
    words[first : first + len(constants)] = constants
    slot = {row[0]: row[1] for row in plan.slots}
    temps = tuple((slot[number], offset) for number, offset in plan.offsets)
    return Table(bytes(words), plan.arena, temps, tuple(plan.blas.items()))


class State:
    """A table of words and an arena, for one call at a time.

    Attributes:
        busy: a word for those who call without taking the state for themselves: not 0 while one of
            them, or of those who share the arena, is at work without the GIL.
    """

    __slots__ = ("address", "arena", "busy", "floats", "words")

    def __init__(self, table: Table, blas: dict[str, int], shared: bool = False) -> None:
        count = len(table.words) // 8
        self.words = (ctypes.c_int64 * count).from_buffer_copy(table.words)
        self.floats = (ctypes.c_double * count).from_buffer(self.words)
        self.address = ctypes.addressof(self.words)
        for name, slot in table.blas:
            self.words[slot] = blas[name]
        base = COMMON.room(table.arena) if shared and table.arena else None
        self.busy = ctypes.c_int64(0) if base is None else COMMON.busy
        if base is None:  # aligned by hand: numpy promises 16 bytes
            self.arena = np.empty(table.arena + 64, np.uint8)
            base = -(-address(self.arena) // 64) * 64
        for slot, offset in table.temps:
            self.words[slot] = base + offset


def address(a: np.ndarray[Any, Any]) -> int:
    """Where an array's memory starts."""
    return a.__array_interface__["data"][0]


_WORD = 1 << 63


class Program:
    """Callable with the graph's inputs; gives the tuple of its outputs.

    Inputs must have the sizes, strides and dtypes of the plan: ``fits`` says whether they do.
    Calls may overlap: each has a table of its own. ``fast`` is the same as one native function
    where there is one, else the program itself.
    """

    fast: Callable[..., tuple[Any, ...]]
    #: What it was made of (``shown.Recipe``), or a function that says it.
    recipe: Any = None
    #: What native code follows (``native.rows.Form``), if there is native code for all of it.
    form: Any = None
    #: The key of its code, where both are kept on disk.
    code_key: bytes | None = None
    #: Gives the graph, for calls with integers that no machine word holds.
    graph: Callable[[], Any] | None = None

    def __init__(
        self, plan: Callable[[], Plan], table: Table, library: Library, blas: dict[str, int],
        constants: tuple[Any, ...],
    ) -> None:  # fmt: skip
        self.fast = self
        self._plan = plan
        self._table = table
        self._blas = blas
        self.library = library
        self.constants = constants
        #: Numbers on which sizes depend, with the values that this plan is for.
        self.pinned: tuple[tuple[int, Any], ...] = ()
        self._free: list[State] = []

    # What follows from the plan is made when it is first needed: mostly never, for programs that run
    # as a native function.

    @cached_property
    def plan(self) -> Plan:
        """What it runs; found on disk, it is read when somebody asks."""
        return self._plan()

    @property
    def arena(self) -> int:
        """Bytes between kernels."""
        return self._table.arena

    @cached_property
    def dtypes(self) -> dict[int, Any]:
        """The dtype of each buffer."""
        return {row[0]: mortice_dtype(row[5]) for row in self.plan.slots}

    @cached_property
    def _inputs(self) -> list[tuple[int, int]]:
        return [(row[1], row[6]) for row in self.plan.slots if row[2] == "input"]

    @cached_property
    def _made(self) -> list[tuple[Any, ...]]:
        return [
            (row[0], row[1], row[3], _layout(row[3], row[4]), self.dtypes[row[0]].numpy,
             self.dtypes[row[0]])
            for row in self.plan.slots
            if row[2] in MADE
        ]  # fmt: skip

    @cached_property
    def _numbers(self) -> list[tuple[int, int, bool]]:
        specs = enumerate(self.plan.specs)
        return [(k, s.slot, s.dtype == "f64") for k, s in specs if isinstance(s, NumberSpec)]

    @cached_property
    def _generators(self) -> list[tuple[int, int]]:
        specs = enumerate(self.plan.specs)
        return [(k, s.slot) for k, s in specs if isinstance(s, GeneratorSpec)]

    @cached_property
    def _tensors(self) -> list[tuple[int, Any, Any, Any]]:
        out: list[tuple[int, Any, Any, Any]] = []
        for k, s in enumerate(self.plan.specs):
            if isinstance(s, TensorSpec):
                dtype = mortice_dtype(s.dtype)
                out.append((k, s.shape, tuple(n * dtype.itemsize for n in s.strides), dtype))
        return out

    @cached_property
    def _others(self) -> list[tuple[int, Any]]:
        return [(k, s.value) for k, s in enumerate(self.plan.specs) if isinstance(s, OtherSpec)]

    @cached_property
    def _steps(self) -> list[Callable[..., None]]:
        return [self._step(s) for s in self.plan.steps]

    @cached_property
    def _sources(self) -> dict[int, int]:
        return {row[0]: row[6] for row in self.plan.slots if row[2] == "input"}

    def _by_number(self) -> dict[int, Any]:
        return {row[0]: row for row in self.plan.slots}

    def new_state(self, shared: bool = False) -> State:
        """A table for one call at a time; ``shared``: its arena is one that graphs have in common."""
        return State(self._table, self._blas, shared)

    def fits(self, inputs: tuple[Any, ...]) -> bool:
        """True if the inputs are as the plan was made for."""
        for k, shape, strides, dtype in self._tensors:
            t = inputs[k]
            a = t._a
            if a.shape != shape or t._t is not dtype:
                return False
            if a.strides != strides and a.size > 1:
                return False
        for k, _, is_float in self._numbers:
            if type(inputs[k]) is not (float if is_float else int):
                return False
        for k, value in self.pinned:
            if inputs[k] != value:
                return False
        return all(inputs[k] == x and type(inputs[k]) is type(x) for k, x in self._others)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        return self.run(inputs, None)

    def run(self, inputs: tuple[Any, ...], kept: dict[int, Any] | None) -> tuple[Any, ...]:
        """A call; ``kept``, if given, receives copies of all that lies in memory at its end."""
        if self.graph is not None and any(
            not is_float and not -_WORD <= inputs[k] < _WORD for k, _, is_float in self._numbers
        ):
            return OperatorByOperator(self.graph())(*inputs)
        try:
            state = self._free.pop()
        except IndexError:
            state = self.new_state()
        words = state.words
        given = (*inputs, *self.constants) if self.constants else inputs
        for slot, source in self._inputs:
            words[slot] = address(array(given[source]))
        for k, slot, is_float in self._numbers:
            if is_float:
                state.floats[slot] = inputs[k]
            else:
                words[slot] = inputs[k]
        for k, slot in self._generators:
            _put_generator(words, slot, inputs[k])
        for n in range(self.plan.draws):
            _put_generator(words, self.plan.draw_slot + 2 * n, None)
        memory: dict[int, Any] = {}
        for n, slot, shape, order, numpy_dtype, dtype in self._made:
            made = np.empty(shape, numpy_dtype) if order is None else _strided(order, numpy_dtype)
            words[slot] = address(made)
            memory[n] = wrap(made, dtype)
        for step in self._steps:
            step(state, memory, given)
        outputs = self._outputs(memory, inputs)
        if self.plan.checks:
            self._check(memory, given)
        if kept is not None:
            self._keep(state, memory, kept)
        self._free.append(state)
        return outputs

    def _keep(self, state: State, memory: dict[int, Any], kept: dict[int, Any]) -> None:
        kept |= memory
        offsets = dict(self.plan.offsets)
        base = -(-address(state.arena) // 64) * 64 - address(state.arena)
        for n, _, kind, shape, _, _, _ in self.plan.slots:
            if kind == "temp" and n in offsets:
                dtype = self.dtypes[n]
                at = base + offsets[n]
                size = dtype.itemsize
                for m in shape:
                    size *= m
                flat = state.arena[at : at + size].view(dtype.numpy)
                kept[n] = wrap(flat.reshape(shape).copy(), dtype)

    def _outputs(self, memory: dict[int, Any], inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        seen: set[int] = set()
        out: list[Any] = []
        for kind, x in self.plan.outputs:
            if kind == "object":
                out.append(x)
            elif kind == "input":
                out.append(inputs[x])
            elif x in seen:  # two results that are equal are still two tensors
                out.append(wrap(array(memory[x]).copy(), self.dtypes[x]))
            else:
                seen.add(x)
                out.append(memory[x])
        return tuple(out)

    def _check(self, memory: dict[int, Any], given: Sequence[Any]) -> None:
        for number, *refusal in self.plan.checks:
            if array(memory[number]).any():
                raise Refusal(*refusal).raised(given)

    # -- steps -----------------------------------------------------------------------------------

    def _step(self, step: Any) -> Callable[..., None]:
        if isinstance(step, CallStep):
            return self._foreign(step)
        function = self.library.function(step[1], ctypes.c_void_p)
        return lambda state, memory, given: function(state.address)

    def _foreign(self, step: CallStep) -> Callable[..., None]:
        target = find_operator(step.target)
        rows = self._by_number()

        def fill(x: Any, tensors: list[Any], state: State, given: tuple[Any, ...]) -> Any:
            if isinstance(x, tuple) and x:
                if x[0] == "%":
                    return tensors[x[1]]
                if x[0] == "number":
                    return (state.floats if x[2] == "f64" else state.words)[x[1]]
                if x[0] == "generator":
                    return _generator_at(state, x[1])
            if isinstance(x, list):
                return [fill(y, tensors, state, given) for y in x]
            return x

        def run(state: State, memory: dict[int, Any], given: tuple[Any, ...]) -> None:
            tensors = [
                memory[n] if n in memory else given[self._sources[n]] for n in step.args
            ]  # fmt: skip
            args = [fill(x, tensors, state, given) for x in step.template]
            named = {k: fill(x, tensors, state, given) for k, x in step.kwargs}
            found = target(*args, **named)
            results = [found] if step.single else list(found)
            for number, t in zip(step.results, results):
                if number < 0:
                    continue
                row = rows[number]
                if not _is_as_said(t, row[3], self.dtypes[number]):
                    raise _not_as_said(step.target, t, row[3], self.dtypes[number])
                memory[number] = t = _as_planned(t, row[3], row[4], self.dtypes[number])
                state.words[row[1]] = address(array(t))

        return run


def _is_as_said(t: Any, shape: Any, dtype: Any) -> bool:
    """Whether native code can take a foreign result for what it was told to expect."""
    return (
        isinstance(t, mortice.Tensor) and t.is_cpu and t.dtype is dtype
        and array(t).shape == tuple(shape)
    )  # fmt: skip


def _not_as_said(name: str, t: Any, shape: Any, dtype: Any) -> CompileError:
    found = (
        f"a {t.dtype} tensor of shape {tuple(t.shape)} on {t.device}"
        if isinstance(t, mortice.Tensor)
        else type(t).__name__
    )
    return CompileError(
        f"{name} gave {found}, and its shape rule (its fake, or Meta kernel) says a {dtype} tensor of "
        f"shape {tuple(shape)} on the CPU. Compiled code relies on that: mend the kernel or the rule."
    )


def _as_planned(t: Any, shape: Any, strides: Any, dtype: Any) -> Any:
    """A foreign result with the strides that native code counts on."""
    a = array(t)
    if _lies(a, strides):
        return t
    made = _strided(_layout(shape, strides) or tuple(range(len(shape))), a.dtype, shape)
    made[...] = a
    if not _lies(made, strides):
        raise CompileError(f"an operator gave strides {a.strides}, expected {tuple(strides)}.")
    return wrap(made, dtype)


def _lies(a: np.ndarray[Any, Any], strides: Any) -> bool:
    """True if elements lie as ``strides`` (in elements) say; dimensions of size 1 may say anything."""
    item = a.itemsize
    return a.size <= 1 or all(
        n == 1 or s == w * item for n, s, w in zip(a.shape, a.strides, strides)
    )


def row_major(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """True where elements lie as a new array's do."""
    step = 1
    for n, s in zip(reversed(shape), reversed(strides)):
        if n != 1 and s != step:
            return False
        step *= n or 1
    return True


def _layout(shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """None for row-major arrays, else (sizes by falling stride, how to transpose them)."""
    if row_major(shape, strides):
        return None
    order = sorted(range(len(shape)), key=lambda d: (-strides[d], d))
    inverse = [order.index(d) for d in range(len(shape))]
    return tuple(shape[d] for d in order), tuple(inverse)


def _strided(layout: Any, dtype: Any, shape: Any = None) -> np.ndarray[Any, Any]:
    if layout and isinstance(layout[0], tuple):
        return np.empty(layout[0], dtype).transpose(layout[1])
    return np.empty(shape, dtype)


def _put_generator(words: Any, slot: int, generator: Any) -> None:
    seed, offset = generator_for(generator, _CPU).take()
    words[slot] = seed - (1 << 64) if seed >> 63 else seed
    words[slot + 1] = offset - (1 << 64) if offset >> 63 else offset


def _generator_at(state: State, slot: int) -> Any:
    """A generator that gives exactly the numbers that were reserved for this operator."""
    made = mortice.Generator()
    made.manual_seed(state.words[slot] & ((1 << 64) - 1))
    made.set_offset(state.words[slot + 1])
    return made


def find_operator(name: str) -> Any:
    """The operator overload called ``aten.add.Tensor``; or what runs one on copies."""
    if name.startswith(UPDATING_COPIES):
        return _on_copies(find_operator(name.removeprefix(UPDATING_COPIES)))
    found: Any = mortice.ops
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _on_copies(op: Any) -> Callable[..., list[Any]]:
    """An operator that writes to arguments, on copies: what it returns anew, then the copies."""
    schema = op._schema
    names = [a.name for a in schema.arguments]

    def run(*args: Any, **kwargs: Any) -> list[Any]:
        values = list(args)
        copies: list[Any] = []
        for i in schema.mutated:
            place: Any = (values, i) if i < len(values) else (kwargs, names[i])
            if (place[0] is kwargs and names[i] not in kwargs) or place[0][place[1]] is None:
                continue
            place[0][place[1]] = place[0][place[1]].clone()
            copies.append(place[0][place[1]])
        found = op(*values, **kwargs)
        listed = found if isinstance(found, (list, tuple)) else [found]
        return [*(x for r, x in zip(schema.returns, listed) if not r.type.alias), *copies]

    return run
