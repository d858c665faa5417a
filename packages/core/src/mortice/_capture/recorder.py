"""The recorder of one compiled call: operators are appended to its path in the tree, and run in
segments when a value is needed.
"""

from __future__ import annotations

import threading
import time
from threading import get_ident
from typing import Any
from weakref import ref

from mortice._base.errors import InvalidState
from mortice._capture import breaks, infer
from mortice._capture.bounds import hold
from mortice._capture.draws import DefaultDraws, draws, reserved
from mortice._capture.exported import is_exported, snapshots
from mortice._capture.hazards import FLUSH, Hazards
from mortice._capture.kernels import Call, bind
from mortice._capture.making import make_step, user_line
from mortice._capture.native_seam import NATIVE_RECORDER
from mortice._capture.reading import settle
from mortice._capture.signature import cell_of, signature_of
from mortice._capture.trace import CallTrace, SegmentRun, ValueRead
from mortice._capture.tree import Leaf, Output, Step, Tree
from mortice._capture.writes import write
from mortice._dispatch import keys as K
from mortice._dispatch.state import GLOBAL, unrecorded, watch_memory
from mortice._tensor.array import PendingArray
from mortice._tensor.make import ViewInfo, storage_of
from mortice._tensor.storage import Storage
from mortice._tensor.tensor import Tensor

_new = object.__new__


class _TakenError(Exception):
    """Another thread has recorded what uses an operand's memory, while a step was made for it."""


class _Turn:
    """A recorder's lock for a thread that is not its owner: no step is half done, and none begins.

    The owner says that it is ``busy`` before it looks whether it is ``asked``, the other thread asks
    before it looks whether the owner is busy; so one of the two sees the other. The lock is free while
    the other thread waits, for what the owner is busy with may need it.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def __enter__(self) -> None:
        recorder = self.recorder
        recorder.lock.acquire()
        recorder.asked += 1
        try:
            pause = 1e-5  # a step takes a microsecond, a graph may take long
            while recorder.busy:
                recorder.lock.release()
                try:
                    time.sleep(pause)
                finally:
                    recorder.lock.acquire()
                pause = min(2 * pause, 1e-3)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exc: object) -> None:
        self.recorder.asked -= 1
        self.recorder.lock.release()


def this_thread() -> bytes:
    """The thread's number, as native code reads it."""
    return get_ident().to_bytes(8, "little")


class Failed:
    """In a recorder's place: what it had recorded could not be computed."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def flush(self, why: str = "", *, allowed: bool = False) -> None:
        raise InvalidState(
            "the tensor has no value: the compiled segment that computes it failed with "
            f"{type(self.error).__name__}: {self.error}"
        ) from self.error


class Recorder:
    """One compiled call in one thread.

    ``at`` is the last step recorded, ``made`` weak references to the tensors that the path made,
    ``storages`` the memory of its leaves, ``numbers`` and ``generators`` its other inputs.
    """

    __slots__ = (
        "asked", "at", "busy", "by_tensor", "compiled", "draws", "ended", "fields", "flushes", "generators",
        "hazards", "histories", "leaves", "left", "lock", "made", "may_leave", "numbers", "on", "owner", "place",
        "prefix", "storages", "touched", "trace", "tree", "watch",
    )  # fmt: skip

    def __init__(self, compiled: Any, tree: Tree) -> None:
        self.compiled = compiled
        self.tree = tree
        self.lock = threading.RLock()
        #: The thread whose call it is, and that thread's part of ``THREAD``.
        self.owner = b""
        self.fields: dict[str, Any] = {}
        #: Whether it is in a step, or an end, that takes no lock; how many other threads wait for it to
        #: be in none.
        self.busy = False
        self.asked = 0
        #: Whether its thread's operators go to it: whether it is ``THREAD.recorder`` there.
        self.on = False
        self.at: Step = tree.root
        #: Where the segment before ended, the root if there was none: the next begins as it did then.
        self.ended: Step = tree.root
        self.made: list[Any] = []
        self.numbers: list[Any] = []
        self.generators: list[Any] = []
        #: What is drawn from default generators, or None.
        self.draws: DefaultDraws | None = None
        self.storages: list[Any] = []
        self.touched: list[Any] = []
        #: (tensor, edge, AUTOGRAD bit) of tensors in memory before recorded writes gave them history.
        self.histories: list[tuple[Any, Any, int]] = []
        #: The leaves that are bound, in order.
        self.leaves: list[Leaf] = []
        self.by_tensor: dict[int, Leaf] = {}
        self.hazards = Hazards()
        #: Segments that ran so far.
        self.flushes = 0
        self.trace: CallTrace | None = None
        #: What a replay of this very call has run and read already (``prefix.Prefix``), or None.
        self.prefix: Any = None
        #: Where an observed call is: () -> (file, line, function), or None.
        self.place: Any = None
        #: Who observes the call (``observer.Watch``), or None.
        self.watch: Any = None
        #: Whether the call may go on unrecorded at a place that was given up, and whether it does.
        self.may_leave = self.left = False
        tree.walker = self

    # -- recording -----------------------------------------------------------------------------

    def record(self, call: Call, args: tuple[Any, ...]) -> Any:
        """Record a call that is not the one that came last time; returns its results."""
        while True:
            tensors = infer.tensors_in(args)
            for t in tensors:
                self._settle_foreign(t)
            with self.lock:
                try:
                    return self._record(call, args, tensors)
                except _TakenError:
                    continue  # by another thread's recorder, which waits for no lock of this one's

    def _record(self, call: Call, args: tuple[Any, ...], tensors: list[Any]) -> Any:
        self._rewind()
        if self.may_leave and self.at.parent is None and self.compiled.is_given_up(user_line()):
            self.leave()
            return call.op.lookup(call.op.keys_of(args))(*args)
        if any(map(is_exported, tensors)):
            replaced = snapshots(call, args)
            if replaced is None:
                return self.run_now(call.op, call.beneath, args)
            args = replaced
        flushes = -1
        step: Step | None = None
        while flushes != self.flushes:  # again where a shape rule has read values
            flushes = self.flushes
            verdict = self.hazards.check(self, call, args)
            if self.draws is not None and not self.draws.fits(call.op, args):
                verdict = FLUSH
            if verdict == FLUSH:
                self.flush("memory is seen in a way that no graph has", allowed=True)
                flushes = self.flushes
                verdict = self.hazards.check(self, call, args)
            step = None if verdict else self._find(call, args)
        if step is None:
            return self.run_now(call.op, call.beneath, args)
        return self.advance(step, args)

    def advance(self, step: Step, args: tuple[Any, ...]) -> Any:
        """Take a step whose operands are bound: its effects on Python objects, and its results."""
        call = step.call
        if call.generator is not None:
            self.generators.append(reserved(call.op, call.generator, args))
        elif call.draws and draws(call.op, args):
            if self.draws is None:
                self.draws = DefaultDraws()
            self.draws.add(call.op, args)
        form = call.form
        if form == "inplace":
            result = write(self, step, args)
        else:
            if form == "mutating":
                write(self, step, args)
            made = [None if o is None else self._make(o, args) for o in step.outputs]
            result = made[0] if step.simple or step.result is None else step.result(made)
        if self.at.parent is None:
            self.ended.after = step
        self.at.ahead = step
        self.at = step
        if step.ends and not hold(self, call.op.name, args):
            self.flush(f"{call.op.name} may refuse the values that it is given", allowed=True)
        return result

    def _find(self, call: Call, args: tuple[Any, ...]) -> Step | None:
        """The step of this call after ``at``, with its new leaves bound; made now if there is none.

        None if the results cannot be known before it runs.
        """
        signature, wants, fresh = signature_of(self, call, args)
        step = self.at.children.get(signature)
        if step is None:
            flushes = self.flushes
            step = make_step(self, call, args, wants, fresh)
            if step is None or flushes != self.flushes:
                return None
            self.at.children[signature] = step
            self.tree.size += 1
        for leaf, t in zip(step.new_leaves, fresh):
            if bind(self, leaf, t):
                continue
            pending = cell_of(t).pending
            if pending is None and bind(self, leaf, t):
                continue  # another thread had it, and has done
            if pending is None or pending is self:
                raise InvalidState(
                    f"{call.op.qualified}: an operand changed while it was recorded."
                )
            raise _TakenError
        numbers = [args[i] for i in step.number_positions]
        self.numbers.extend(numbers)
        return step

    def leaf_of(self, t: Any) -> Leaf | None:
        known = self.by_tensor
        for leaf in self.leaves[len(known) :]:
            known[id(leaf.tensor)] = leaf
        return known.get(id(t))

    def memory_of(self, t: Any) -> tuple[Any, bool]:
        """(the cell that a tensor sees, None if the path has not met it; whether t is known in it)."""
        a = t._a
        if type(a) is PendingArray:
            return a.output.cell, True
        leaf = self.leaf_of(t)
        if leaf is not None:
            return leaf.cell, True
        s = t._s
        if s is None:
            return None, False
        cell = s.owner or s
        return (self.leaf_over(cell) if cell.pending is self else None), False

    def leaf_over(self, cell: Storage) -> Leaf | None:
        for leaf, storage in zip(self.leaves, self.storages):
            if storage is cell:
                return leaf.cell
        return None  # memory that the path itself made

    # -- results -------------------------------------------------------------------------------

    def _make(self, out: Output, args: tuple[Any, ...]) -> Any:
        r = _new(Tensor)
        r._a = out.handle
        r._k = out.key
        r._t = out.dtype
        r._g = out.edge
        if out.base is None:
            r._s = r._b = None
        else:
            base = args[0]
            r._s = s = self.shared(base)
            if out.key & K.VIEW:
                b = base._b
                if b is None:
                    b = base if not s.epoch else ViewInfo(base, s.epoch)
                r._b = b
            else:
                r._b = None
        self.made.append(ref(r))
        return r

    def shared(self, t: Any) -> Storage:
        """The storage of a tensor that is about to share it."""
        s = t._s
        if s is None:
            s = storage_of(t)
        if s.pending is None:
            s.pending = self
        self.touched.append(s)
        return s

    # -- memory that others may touch ----------------------------------------------------------

    def _settle_foreign(self, t: Any) -> None:
        """Make another recorder run what it has recorded of this tensor."""
        a = t._a
        if type(a) is PendingArray and a.home.recorder is not self:
            settle(t)
            return
        s = t._s
        if s is not None:
            cell = s.owner or s
            if cell.pending is not None and cell.pending is not self:
                cell.pending.flush("another thread uses its memory", allowed=True)

    # -- running -------------------------------------------------------------------------------

    def run_now(self, op: Any, beneath: int, args: Any) -> Any:
        """Run what is recorded, then one operator, unrecorded."""
        if self.at.parent is None:
            breaks.note(self, breaks.running(op.name))
        with unrecorded(breaks.running(op.name)):
            self.note_immediate(op)
            return op.lookup(op.keys_of(args) & ~K.RECORD)(*args)

    def leave(self) -> None:
        """Record no more of this call: its operators run as they come. Nothing is recorded now."""
        self.left = True
        self.fields["recorder"] = GLOBAL.current = None
        self.on = False
        watch_memory(-1)

    def note_immediate(self, op: Any) -> None:
        """Note that an operator runs by itself."""
        if self.trace is not None:
            self.trace.immediate.append((len(self.trace.runs), op.name))

    def value_read(self, tensor: Any, kind: str, value: Any) -> Any:
        """Note that Python gets to know a value; returns it, as the replay before has read it."""
        if self.prefix is not None:
            value = self.prefix.value(value)
        if self.trace is not None:
            self.trace.values.append(ValueRead(len(self.trace.runs), tensor, kind, value))
        return value

    def flush(self, why: str = "memory is read", *, allowed: bool = False) -> None:
        """Run what is recorded, since the function needs it now; see ``breaks.note``."""
        with self.lock if this_thread() == self.owner else _Turn(self):
            self._rewind()
            if self.at.parent is not None:
                breaks.note(self, why, allowed=allowed)
                self.finish()

    def finish(self) -> None:
        """Run the path as a segment, and give every living tensor of it its memory."""
        with self.lock:
            self._rewind()
            step = self.at
            if step.parent is None or (step.usual is not None and self._finish_natively(step)):
                return
            living = [r() for r in self.made]
            mask = tuple([t is not None for t in living])
            try:
                plan = step.plans.get(mask)
                if plan is None or (
                    plan.number_check is not None and not plan.number_check(self.numbers)
                ):
                    plan = step.plans[mask] = self.compiled.plan(self, step, mask)
                if NATIVE_RECORDER:
                    step.usual = plan.finale
                tensors = [leaf.tensor for leaf in self.leaves]
                numbers, generators, drawn = self.numbers, self.generators, self.draws
                written = plan.written_storages(tensors) if plan.written else ()
                traced = self.trace is not None
                places = [(g.device, *g.position()) for g in generators] if traced else []
                self._begin()
                known = None if self.prefix is None else self.prefix.outputs(plan, tensors)
                epochs = [s.epoch for s, _, _ in written] if written else ()
                for s, _, before in written:
                    s.version = before  # so that what is saved for backward has eager's version
                try:
                    if known is None:
                        if drawn is None:
                            known = plan.run(tensors, numbers, generators)
                        else:
                            with drawn.rewound():
                                known = plan.run(tensors, numbers, generators)
                    outs = known
                finally:
                    if written:
                        for (s, version, _), epoch in zip(written, epochs):
                            s.version, s.epoch = version, epoch
                plan.fill(living, outs, tensors)
            except BaseException as error:
                self.fail(error)
                raise
            if self.trace is not None:
                self.trace.runs.append(
                    SegmentRun(
                        plan.segment,
                        tensors,
                        numbers,
                        places,
                        plan,
                        living,
                        outs,
                        None if drawn is None else drawn.found,
                    )
                )

    def _finish_natively(self, step: Step) -> bool:
        """Whether native code has done it."""
        finale = step.usual
        try:
            done = NATIVE_RECORDER[0].finish(self, step, finale)
        except BaseException as error:
            self.fail(error)
            raise
        finale.count += done
        return done

    def _begin(self) -> None:
        """Forget the path: the next operator begins a segment."""
        for t, edge, bit in self.histories:
            t._g = edge
            t._k = (t._k & ~K.AUTOGRAD) | bit
        self.flushes += 1
        self.ended = self.at
        self.tree.root.ahead = self.at.after
        for leaf in self.leaves:
            leaf.tensor = None
        for s in self.storages:
            s.pending = None
        for s in self.touched:
            s.pending = None
        self.at = self.tree.root
        self.made = []
        self.numbers = []  # a trace may have the old one
        self.storages = []
        self.leaves = []
        self.draws = None
        # Most calls have none of these: new lists for old would take 60 ns.
        if self.generators:
            self.generators = []
        if self.touched:
            self.touched = []
        if self.histories:
            self.histories = []
        if self.by_tensor:
            self.by_tensor = {}
        if self.hazards.at is not None:
            self.hazards.clear()

    def fail(self, error: BaseException) -> None:
        """What was recorded is lost; reading it says why. Go on with a new tree."""
        self._begin()
        self.tree.recorder = Failed(error)
        self.tree = Tree()
        self.tree.recorder = self.tree.walker = self
        self.at = self.ended = self.tree.root

    def _rewind(self) -> None:
        """Undo what a step that was begun and not taken has left."""
        at = self.at
        if len(self.leaves) > at.leaves:
            self._unbind(at.leaves)
        if len(self.numbers) > at.numbers:
            del self.numbers[at.numbers :]
        if len(self.generators) > at.generators:
            del self.generators[at.generators :]
        if len(self.made) > at.made:
            del self.made[at.made :]

    def _unbind(self, count: int) -> None:
        for leaf in self.leaves[count:]:
            leaf.tensor = None
        for s in self.storages[count:]:
            if not any(s is kept for kept in self.storages[:count]):
                s.pending = None
        del self.storages[count:]
        del self.leaves[count:]
        self.by_tensor = {}


GLOBAL.settle = settle
