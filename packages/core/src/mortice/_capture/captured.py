"""A recorded path that is to be one graph: what tells it from others, and the graph when it is needed."""

from __future__ import annotations

import marshal
import threading
from collections.abc import Callable, Sequence
from typing import Any

from mortice._capture.build import build
from mortice._capture.dynamic import Symbols
from mortice._capture.refusals import Accepted
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
        #: What ``text`` gave when it was asked, the recording being there.
        self.kept_text: bytes | None = None
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
            self.kept_text = marshal.dumps(self._written(), 2)
        except (Unwritable, ValueError):
            return None
        return self.kept_text

    def _written(self) -> list[Any]:
        """Sizes that are symbols stand as such: what is asked of them is asked again."""
        found: list[Any] = [self._written_step(i, s) for i, s in enumerate(self.steps)]
        found.append([_slot(cell) for cell in self.wanted])
        found.append([type(x).__name__ for x in self.numbers])
        found.append(len(self.generators))
        return found

    def _written_step(self, index: int, step: Step) -> tuple[Any, ...]:
        call = step.call
        if "::" in call.op.name:
            raise Unwritable(
                call.op.name
            )  # what operators of others mean, only their packages know
        wants = [w if type(w) in _PLAIN else _want(w) for w in step.wants]
        if self.symbols.sizes:
            wants = [
                _with_symbols(w, self.symbols.arguments, (index, i)) for i, w in enumerate(wants)
            ]
        leaves = [self._written_leaf(leaf) for leaf in step.new_leaves]
        return leaves, call.op.name, K.describe(call.keys), wants

    def _written_leaf(self, leaf: Leaf) -> tuple[Any, ...]:
        first = None if leaf.first is None else leaf.first.number
        shape, strides = leaf.shape, leaf.steps
        if self.symbols.sizes:
            sizes = self.symbols.sizes
            shape = _sizes([sizes.get((leaf.number, d), n) for d, n in enumerate(shape)])
            strides = _sizes(self.symbols.strides.get(leaf.number, strides))
        return (
            K.describe(leaf.key & ~K.VIEW), leaf.dtype.name, str(leaf.device), shape, strides, first,
        )  # fmt: skip


def _sizes(values: Sequence[Any]) -> list[Any]:
    return [n if type(n) is int else n.source() for n in values]


def _with_symbols(
    written: Any, arguments: dict[tuple[int, ...], Any], place: tuple[int, ...]
) -> Any:
    """An argument with the expressions of ``Symbols.arguments`` in the place of integers."""
    if type(written) is tuple and written[0] in ("tuple", "list"):
        items = [_with_symbols(x, arguments, (*place, i)) for i, x in enumerate(written[1])]
        return written[0], items
    found = arguments.get(place) if type(written) is int else None
    return written if found is None else ("size", found.source())


def _slot(slot: Slot) -> Any:
    return ("made" if isinstance(slot, Output) else "leaf", slot.number)


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
    Accepted: lambda w: ("number", w.kind.__name__),
}
