"""A recorded path that is to be one graph: what tells it from others, and the graph when it is needed."""

from __future__ import annotations

import marshal
import threading
from collections.abc import Callable, Sequence
from typing import Any

from mortice._capture.build import build
from mortice._capture.dynamic import Symbols
from mortice._capture.tree import Leaf, Output, Slot, Step
from mortice._dispatch import keys as K
from mortice._dispatch.state import unrecorded
from mortice._tensor.array import PendingArray
from mortice._types.device import Device
from mortice._types.dtypes import DType
from mortice._types.layout import Layout, MemoryFormat
from mortice.fx import GraphModule

_PLAIN = frozenset((int, float, bool, str, type(None)))


class Unwritable(Exception):
    """Something in a path has no name that another process would know it by."""


class Captured:
    """One graph of a compiled object, before and after it is built.

    Attributes:
        steps, wanted, numbers, symbols: As ``build`` is given them; the generators beside.
        meta: What the graph's ``meta`` is to hold once it is built.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        wanted: Sequence[Slot],
        numbers: Sequence[Any],
        generators: Sequence[Any],
        symbols: Symbols,
    ) -> None:
        self.steps = steps
        self.wanted = wanted
        self.numbers = list(numbers)
        self.generators = list(generators)
        self.symbols = symbols
        self.meta: dict[str, Any] = {}
        self._module: GraphModule | None = None
        self._inputs: list[Any] = []
        self._lock = threading.RLock()

    @property
    def module(self) -> GraphModule:
        """The graph, built at first use; the recording is let go then."""
        if self._module is None:
            with self._lock, unrecorded(flush=False):
                if self._module is None:
                    self._build()
        assert self._module is not None
        return self._module

    def _build(self) -> None:
        made = build(self.steps, self.wanted, self.numbers, len(self.generators), self.symbols)
        made.meta.update(self.meta)
        leaves = [leaf for s in self.steps for leaf in s.new_leaves]
        fakes = [node.meta["val"] for node in list(made.graph.nodes)[: len(leaves)]]
        for leaf, fake in zip(leaves, fakes):
            if leaf.key & K.AUTOGRAD:
                fake.requires_grad_(True)
        self._inputs = [*fakes, *self.numbers, *self.generators]
        self._module = made
        self.steps = self.wanted = ()

    def note(self, found: dict[str, Any]) -> None:
        """Add to the graph's ``meta``, now or when it is built."""
        with self._lock:
            self.meta.update(found)
            if self._module is not None:
                self._module.meta.update(found)

    @property
    def inputs(self) -> list[Any]:
        """Fakes of the leaves with their ``requires_grad``, then the numbers and generators."""
        assert self.module is not None
        return self._inputs

    def text(self) -> bytes | None:
        """Everything that the graph is made of, but the values of its inputs and the lines; the same
        in every process. None where an argument is an object that only this process knows.
        """
        try:
            return marshal.dumps(self._written(), 2)
        except (Unwritable, ValueError):
            return None

    def _written(self) -> list[Any]:
        symbols = self.symbols
        found: list[Any] = [_written_step(s) for s in self.steps]
        found.append([_slot(cell) for cell in self.wanted])
        found.append([type(x).__name__ for x in self.numbers])
        found.append(len(self.generators))
        for table in (symbols.sizes, symbols.strides, symbols.arguments):
            found.append([(key, _sizes(value)) for key, value in table.items()])
        return found


def _sizes(value: Any) -> Any:
    if type(value) is tuple:
        return [_sizes(x) for x in value]  # pyright: ignore[reportUnknownVariableType]
    return value if type(value) is int else value.source()


def _written_step(step: Step) -> tuple[Any, ...]:
    call = step.call
    if "::" in call.op.name:
        raise Unwritable(call.op.name)  # what operators of others mean, only their packages know
    leaves: list[Any] = []
    for leaf in step.new_leaves:
        first = None if leaf.first is None else leaf.first.number
        leaves.append((
            _keys(leaf.key & ~K.VIEW), leaf.dtype.name, str(leaf.device), leaf.shape, leaf.steps,
            first,
        ))  # fmt: skip
    wants = [w if type(w) in _PLAIN else _want(w) for w in step.wants]
    return leaves, call.op.name, _keys(call.keys), wants


def _slot(slot: Slot) -> Any:
    return ("made" if isinstance(slot, Output) else "leaf", slot.number)


#: Key sets name devices by bits that differ from process to process.
_KEYS: dict[int, str] = {}


def _keys(keys: int) -> str:
    found = _KEYS.get(keys)
    if found is None:
        found = _KEYS[keys] = K.describe(keys)
    return found


def _want(want: Any) -> Any:
    """An operand as plain data; each kind is a tuple that begins with its name."""
    if type(want) in _PLAIN:
        return want
    write = _WRITE.get(type(want))
    if write is None:
        raise Unwritable(repr(want))
    return write(want)


_WRITE: dict[type, Callable[[Any], Any]] = {
    PendingArray: lambda w: ("made", w.output.number),
    Leaf: lambda w: ("leaf", w.number),
    tuple: lambda w: ("tuple", [_want(x) for x in w]),
    list: lambda w: ("list", [_want(x) for x in w]),
    complex: lambda w: ("complex", w.real, w.imag),
    DType: lambda w: ("dtype", w.name),
    Device: lambda w: ("device", str(w)),
    Layout: lambda w: ("layout", repr(w)),
    MemoryFormat: lambda w: ("format", repr(w)),
    type: lambda w: ("number", w.__name__),
}
