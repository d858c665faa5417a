"""The words that the machine code of compiled graphs follows: what a graph has, row by row.

``form_of`` says them as plain data, which is kept on disk beside the plan; ``Rows`` puts them in memory
with the addresses of this process. The second process of a training step has them 0.4 ms sooner so.
"""

from __future__ import annotations

import ctypes
import math
from array import array
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from ..plan import Plan
from ..runtime.program import MADE, Table, row_major, table_of
from ..specs import NumberSpec, TensorSpec, mortice_dtype

if TYPE_CHECKING:
    from ..runtime.program import Program

#: Above this many elements in inputs and outputs together other threads may run meanwhile; below,
#: giving up the GIL and taking it again costs more than the kernels do.
RELEASE = 16384

#: Kinds of arguments, and of outputs.
TENSOR, FLOAT, INTEGER = range(3)
FRESH, ARGUMENT, OBJECT = range(3)

#: Rows by name, with the number of words in each; the head has the count of rows and where they lie.
ROWS: dict[str, int] = {
    "arguments": 2,  # kind, byte of the table that takes a number
    "inputs": 2,  # argument, byte of the table that takes the address of its memory
    "blocks": 2,  # argument whose memory it is, if nobody else has that; where its bytes are
    # dtype, dimensions, sizes, strides in bytes or 0 for row-major, byte of the table, block or -1, offset
    "made": 7,
    "functions": 1,  # address
    "checks": 1,  # number among those made, whose first byte must be 0
    "outputs": 3,  # kind, what (number among those made, argument, object), dtype
}
#: Single words of the head, before the two of each kind of rows.
HEAD = ("busy", "table", "program", "release")
PLACE = {name: 8 * k for k, name in enumerate(HEAD)} | {
    name: 8 * (len(HEAD) + 2 * k) for k, name in enumerate(ROWS)
}


class Form(NamedTuple):
    """Rows without addresses: plain data.

    Attributes:
        words: 64-bit words. distances: which of them count from the start of the words.
        addresses: (kind, name, which words) that are addresses of objects and functions; see ``_address``.
        table: of the plan.
    """

    words: bytes
    distances: tuple[int, ...]
    addresses: tuple[tuple[str, Any, tuple[int, ...]], ...]
    table: Table


def plain(form: Form) -> tuple[Any, ...]:
    """A form for marshal."""
    return (*form[:-1], tuple(form.table))


def restored(words: bytes, distances: tuple[int, ...], addresses: Any, table: Any) -> Form:
    """The form that ``plain`` was given."""
    return Form(words, distances, addresses, Table(*table))


def form_of(plan: Plan) -> Form | None:
    """The rows of a plan; None where it has what the machine code does not know."""
    return _Writer(plan).form if _is_native(plan) else None


def _is_native(plan: Plan) -> bool:
    buffers = [x for kind, x in plan.outputs if kind == "buffer"]
    shapes = [row[3] for row in plan.slots]
    return (
        not plan.draws
        and all(isinstance(s, TensorSpec | NumberSpec) for s in plan.specs)
        and all(step[0] == "native" for step in plan.steps)
        and len(buffers) == len(set(buffers))
        and all(len(shape) <= 32 for shape in shapes)
        and set(map(type, chain.from_iterable(shapes))) <= {int}
    )


class _Writer:
    """Writes the words: the head, sizes and strides, then the tables of rows."""

    def __init__(self, plan: Plan) -> None:
        self.words: list[int] = [0] * (len(HEAD) + 2 * len(ROWS))
        #: (kind, name) of each word that is an address.
        self.addresses: dict[int, tuple[str, Any]] = {}
        self.dtypes = {row[0]: row[5] for row in plan.slots}
        made = [row for row in plan.slots if row[2] in MADE]
        number = {row[0]: k for k, row in enumerate(made)}
        sizes = [self._sizes(row[3], row[4], mortice_dtype(row[5]).itemsize) for row in made]
        lent = {n: (block, offset) for n, block, offset in plan.lent}
        blocks = [(k, self._sizes((size,), (1,), 1)[0]) for k, size in plan.blocks]
        tables: dict[str, list[Any]] = {
            "arguments": [_argument(s) for s in plan.specs],
            "inputs": [(row[6], 8 * row[1]) for row in plan.slots if row[2] == "input"],
            "blocks": blocks,
            "made": [
                (("array", row[5]), len(row[3]), *at, 8 * row[1], *lent.get(row[0], (-1, 0)))
                for row, at in zip(made, sizes)
            ],
            "functions": [(("function", step[1]),) for step in plan.steps],
            "checks": [(number[n],) for n, *_ in plan.checks],
            "outputs": [self._output(k, x, number) for k, x in enumerate(plan.outputs)],
        }
        distances: list[int] = []
        for k, (name, width) in enumerate(ROWS.items()):
            place, first = len(HEAD) + 2 * k, len(self.words)
            self.words[place : place + 2] = len(tables[name]), 8 * first
            distances.append(place + 1)
            for row in tables[name]:
                assert len(row) == width, name
                self._put(row)
            if name == "blocks":
                distances += [first + width * i + 1 for i in range(len(blocks))]
            if name == "made":
                distances += [first + width * i + 2 + d for i, at in enumerate(sizes)
                              for d in range(2) if at[d]]  # fmt: skip
        elements = sum(math.prod(row[3]) for row in plan.slots)
        self.words[HEAD.index("release")] = int(elements > RELEASE)
        words = array("q", self.words).tobytes()
        self.form = Form(words, tuple(distances), self._by_name(), table_of(plan))

    def _put(self, row: tuple[Any, ...]) -> None:
        for x in row:
            if isinstance(x, tuple):
                self.addresses[len(self.words)] = x
                x = 0
            self.words.append(x)

    def _sizes(self, shape: Any, strides: Any, item: int) -> tuple[int, int]:
        """Where the sizes and the strides in bytes are (0: row-major), from the words' start."""
        at = 8 * len(self.words)
        self.words += shape
        if row_major(shape, strides):
            return at, 0
        self.words += [n * item for n in strides]
        return at, at + 8 * len(shape)

    def _output(self, k: int, output: Any, number: dict[int, int]) -> tuple[Any, ...]:
        kind, x = output
        if kind == "buffer":
            return FRESH, number[x], ("dtype", self.dtypes[x])
        if kind == "input":
            return ARGUMENT, x, 0
        return OBJECT, ("object", None if x is None else k), 0

    def _by_name(self) -> tuple[tuple[str, Any, tuple[int, ...]], ...]:
        places: dict[tuple[str, Any], list[int]] = {}
        for at, what in self.addresses.items():
            places.setdefault(what, []).append(at)
        return tuple((kind, name, tuple(found)) for (kind, name), found in places.items())


def _argument(spec: Any) -> tuple[int, int]:
    if isinstance(spec, TensorSpec):
        return TENSOR, 0
    return FLOAT if spec.dtype == "f64" else INTEGER, 8 * spec.slot


class Rows:
    """A form in one block of memory; keeps alive whatever the words point to."""

    def __init__(self, program: Program, form: Form) -> None:
        state = program.new_state(shared=True)
        self.kept: list[Any] = [program, state]
        words = array("q", form.words)
        self.address: int = words.buffer_info()[0]
        for at in form.distances:
            words[at] += self.address
        for kind, name, places in form.addresses:
            address = self._address(program, kind, name)
            for at in places:
                words[at] = address
        words[0], words[1], words[2] = ctypes.addressof(state.busy), state.address, id(program)
        self.kept.append(words)

    def _address(self, program: Program, kind: str, name: Any) -> int:
        """Of numpy's dtype ("array"), mortice's ("dtype"), a function of the code; of what is returned as it
        is ("object"): None, or an output of the plan by its number.
        """
        if kind == "function":
            return program.library.address(name)
        thing: Any
        if kind == "object":
            thing = None if name is None else program.plan.outputs[name][1]
        else:
            thing = mortice_dtype(name) if kind == "dtype" else mortice_dtype(name).numpy
        self.kept.append(thing)
        return id(thing)
