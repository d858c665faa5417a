"""Segments: graphs that were compiled, and the plans by which a recorded path runs one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mortice._autograd.grad_mode import enable_grad
from mortice._autograd.node import Info, Node, attach_single
from mortice._autograd.views import regenerate
from mortice._base.errors import BackendFailed
from mortice._capture.finale import Finale, finale_of
from mortice._capture.hazards import cell_of
from mortice._capture.tree import Leaf, Output, Slot, Step, all_outputs
from mortice._dispatch import keys as K
from mortice._dispatch.state import call_outside, unrecorded
from mortice._tensor.array import DeviceArray
from mortice._tensor.make import ViewInfo, base_of, empty, host_array
from mortice._tensor.storage import Storage

_ndarray = np.ndarray


@dataclass
class Segment:
    """One compiled graph.

    Attributes:
        name: unique within the compiled object.
        captured: the graph, built when somebody wants to see it (``captured.Captured``).
        run: what ``compile_segment`` made of it: ``run(*leaves, *numbers, *generators) -> tuple``.
        line: (file, line, function) of its first operator.
        compiled: False where it runs operator by operator, its place having reached the limit.
        hits: how often it ran. seconds: time to compile it.
        reason: why it is not the first of its place.
    """

    name: str
    captured: Any
    run: Callable[..., Any]
    line: tuple[str, int, str]
    compiled: bool = True
    by_python: int = 0
    seconds: float = 0.0
    reason: str = ""

    #: Native entries' counts of the calls in which they ran it.
    native: list[Callable[[], int]] = field(default_factory=list)

    @property
    def module(self) -> Any:
        """The graph (an fx GraphModule)."""
        return self.captured.module

    @property
    def hits(self) -> int:
        return self.by_python + sum(answered() for answered in self.native)

    @property
    def nodes(self) -> int:
        """Operators in the graph."""
        return sum(n.op == "call_function" for n in self.module.graph.nodes)


class Plan:
    """How one recorded path, with certain tensors alive at its end, runs a segment.

    Attributes:
        segment: what runs. cells: what it returns. steps: the path.
        fills: for each memory returned (output of the graph, tensors that hold it whole, tensors
            that are views of it), by number among what the path made.
        written: leaves that the graph writes to, with how often the recording did.
        rebased: those of them that get a new gradient history.
        tracked: whether the graph makes gradient history.
        number_check: whether the graph is one for a call's numbers, or None if it is for all.
        tracked_inputs: whether any leaf requires grad.
        outside: views of leaves that are alive: their memory is there already.
        sees: whether any view is alive.
    """

    __slots__ = (
        "_finale",
        "_mask",
        "cells",
        "fills",
        "number_check",
        "outside",
        "rebased",
        "sees",
        "segment",
        "steps",
        "tracked",
        "tracked_inputs",
        "written",
    )

    def __init__(
        self,
        segment: Segment,
        cells: Sequence[Slot],
        steps: Sequence[Step],
        mask: Any,
        number_check: Callable[[Sequence[Any]], bool] | None = None,
    ) -> None:
        self.segment = segment
        self._finale: Any = None
        self._mask = mask
        self.number_check = number_check
        self.cells = tuple(cells)
        self.steps = tuple(steps)
        self.written = written_leaves(steps)
        recorded = [s for s in steps if s.call.grad and _gives_history(s.call.op.schema)]
        self.rebased = tuple(n for n, _ in written_leaves(recorded))
        self.tracked = any(s.call.grad for s in steps)
        self.tracked_inputs = any(leaf.key & K.AUTOGRAD for s in steps for leaf in s.new_leaves)
        outputs = [o for o in all_outputs(steps) if mask[o.number]]
        self.fills: list[tuple[int, list[Output], list[Output]]] = []
        for i, cell in enumerate(cells):
            whole = [o for o in outputs if o is cell]
            seen = [o for o in outputs if o.cell is cell and o is not cell]
            self.fills.append((i, whole, seen))
        #: Views of leaves: their memory is there already.
        self.outside = [o for o in outputs if isinstance(o.cell, Leaf)]
        self.sees = bool(self.outside) or any(seen for _, _, seen in self.fills)

    @classmethod
    def of_outputs(
        cls, segment: Segment, outputs: Sequence[Output], tracked: bool, tracked_inputs: bool
    ) -> Plan:
        """The plan of a path that is not there: it gave these outputs, in the graph's order, no views
        among them, and wrote to nothing.
        """
        made = cls(segment, (), (), ())
        made.cells = tuple(outputs)
        made.fills = [(i, [o], []) for i, o in enumerate(outputs)]
        made.tracked, made.tracked_inputs = tracked, tracked_inputs
        return made

    @property
    def finale(self) -> Finale | None:
        """The plan as data for a native recorder; None where it is Python's."""
        if self._finale is None:
            self._finale = (finale_of(self, self._mask),)
        return self._finale[0]

    def written_storages(self, tensors: Sequence[Any]) -> list[tuple[Storage, int, int]]:
        """(memory, its version, its version before the recorded writes) of what is written to."""
        storages = [(tensors[number]._s, writes) for number, writes in self.written]
        return [(s, s.version, s.version - writes) for s, writes in storages]

    def run(self, tensors: Sequence[Any], numbers: Sequence[Any], generators: Sequence[Any]) -> Any:
        """Run the segment outside of the recording, whatever modes the caller is in."""
        segment = self.segment
        segment.by_python += 1
        return call_outside(self.tracked, segment.run, (*tensors, *numbers, *generators))

    def fill(self, living: Sequence[Any], outs: Sequence[Any], tensors: Sequence[Any]) -> None:
        """Give the tensors that are alive their memory and their history."""
        histories = Histories() if self.sees else _NO_HISTORIES
        for number, whole, seen in self.fills:
            out = outs[number]
            if not self.tracked:
                out._s = None  # nobody saved it: how it was computed does not count as writes
            cell = self.cells[number]
            a = _laid_out(out._a, cell)
            if a is not out._a:
                out._s = None  # its memory is another one
            for o in whole:
                _become(living[o.number], out, a)
            if seen:
                _fill_views(living, whole, seen, out, a, histories)
        for o in self.outside:
            t = living[o.number]
            _see(t, o, t._s, tensors, histories)


def _fill_views(
    living: Sequence[Any],
    whole: Sequence[Output],
    seen: Sequence[Output],
    out: Any,
    a: Any,
    histories: Histories,
) -> None:
    storage = living[seen[0].number]._s
    if out._s is not None:
        out._s.epoch, out._s.pending = storage.epoch, None
        for o in (*whole, *seen):
            living[o.number]._s = out._s
        storage = out._s
    else:
        _own(storage, a)
    for o in seen:
        _see(living[o.number], o, storage, (), histories)


def _own(storage: Storage, a: Any) -> None:
    """Let a storage that waited for its memory have it."""
    storage.root = a if type(a) is _ndarray else a.buffer
    storage._bytes = None


def _become(t: Any, out: Any, a: Any) -> None:
    """Let a tensor be a result of the graph, in the memory ``a``."""
    t._a = a
    t._k &= ~K.RECORD
    t._g = None
    if t._k & K.AUTOGRAD:
        t._g = out._g
        if not out._k & K.AUTOGRAD:  # overwritten by what has no history: as eager, it keeps one
            without_gradient(t)
    s = t._s
    if s is None:
        t._s = out._s
    elif out._s is not None:
        out._s.epoch, out._s.pending = s.epoch, None
        t._s = out._s
    else:
        _own(s, a)


def without_gradient(t: Any) -> None:
    """Let a tensor require grad, with the history of a value that depends on nothing."""
    node = Node()
    node.info, node.edges, node.saved = _CONSTANT, (), ()
    attach_single(node, t)


_CONSTANT = Info("RecordedBackward0", lambda node, grads: (), None)


def _laid_out(a: Any, cell: Any) -> Any:
    """A result's memory with the strides that the recording promised."""
    if type(a) is not _ndarray:
        return a
    h = cell.handle
    if a.shape != h.shape:
        raise BackendFailed(
            f"the compiled graph returned a result of shape {list(a.shape)} for "
            f"{_operator_of(cell)}, and {list(h.shape)} was expected."
        )
    if a.strides == cell.steps or all(
        s == w for s, w, n in zip(a.strides, cell.steps, a.shape) if n > 1
    ):
        return a
    made = empty(h.shape, h.dtype, h.device, h.strides)._a
    np.copyto(made, a)
    return made


def _operator_of(cell: Any) -> str:
    return "one of its outputs" if cell.step is None else cell.step.call.op.qualified


def _see(t: Any, o: Output, storage: Storage, leaves: Sequence[Any], histories: Histories) -> None:
    """Let a view look at its memory, and have the history that its base has."""
    h = o.handle
    offset = h.start + o.moved(leaves)
    if storage.root.__class__ is _ndarray:
        t._a = host_array(storage, h.dtype, h.shape, h.strides, offset)
    else:
        t._a = DeviceArray(storage.root, h.shape, h.dtype, h.device, h.strides, offset)
    tracked = t._k & K.AUTOGRAD
    edge, info, epoch = t._g, t._b, storage.epoch
    t._k &= ~(K.RECORD | K.AUTOGRAD)
    t._g = None
    base = base_of(t) if tracked else None
    if base is not None and base._k & K.AUTOGRAD:
        # A view whose base was written to with history is, as eager has it, a strided view from then
        # on: a part of ``unbind`` may be written to again.
        if edge is o.edge and epoch == (info.epoch if info.__class__ is ViewInfo else 0):
            histories.give(t, o, base, epoch, leaves)
        else:
            regenerate(t, base, epoch)


class Histories:
    """The histories of views that are alive after a segment: their operators, run on their bases."""

    def __init__(self) -> None:
        #: (step, what it saw) -> what it gave.
        self._made: dict[tuple[Step, int], Any] = {}

    def give(self, t: Any, o: Output, base: Any, epoch: int, leaves: Sequence[Any]) -> None:
        """Let ``t`` have the history of ``o``, seen from the tensor that its chain of views began at."""
        chain: list[Output] = []
        at: Any = o
        while isinstance(at, Output) and at.base is not None:
            chain.append(at)
            at = at.base
        found = leaves[at.number] if isinstance(at, Leaf) else base
        with unrecorded(flush=False), enable_grad():
            for link in reversed(chain):
                found = self._through(link, found)
        if found._k & K.AUTOGRAD:
            t._g = found._g
            t._k |= K.AUTOGRAD
            if epoch:
                t._b = ViewInfo(base, epoch)
        else:
            regenerate(t, base, epoch)

    def _through(self, link: Output, source: Any) -> Any:
        key = link.step, id(source)
        found = self._made.get(key)
        if found is None:
            op = link.step.call.op
            args = (source, *link.step.wants[1:])
            found = op.lookup(op.keys_of(args) & ~K.RECORD)(*args)
            self._made[key] = found
        return found if link.part is None else found[link.part]


#: For plans without views that are alive.
_NO_HISTORIES = Histories()


def written_leaves(steps: Sequence[Step]) -> list[tuple[int, int]]:
    """Numbers of the leaves whose memory the steps write to, each with how often."""
    found: dict[int, int] = {}
    for step in steps:
        for i in step.call.op.schema.mutated:
            cell = cell_of(step.wants[i])
            if isinstance(cell, Leaf):
                found[cell.number] = found.get(cell.number, 0) + 1
    return list(found.items())


def _gives_history(schema: Any) -> bool:
    """Whether what the operator writes to gets a new history: not the running statistics of batch
    norm, which it does not return.
    """
    returned = {r.type.alias for r in schema.returns}
    return schema.namespace != "aten" or any(
        schema.arguments[i].type.alias in returned for i in schema.mutated
    )


def wanted_cells(steps: Sequence[Step], mask: Any) -> list[Slot]:
    """The memories that the steps make and somebody still sees, in order."""
    cells: dict[Slot, None] = {}
    for out in all_outputs(steps):
        if mask[out.number] and isinstance(out.cell, Output):
            cells[out.cell] = None
    return list(cells)


__all__ = ["Plan", "Segment", "wanted_cells", "without_gradient", "written_leaves"]
