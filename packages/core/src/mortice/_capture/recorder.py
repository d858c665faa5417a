"""The recorder of one compiled call: operators are appended to its path in the tree, and run in
segments when a value is needed.
"""

from __future__ import annotations

import sys
import threading
from contextlib import nullcontext
from typing import Any
from weakref import ref

import numpy as np

from mortice._autograd import inplace as inplace_rules
from mortice._autograd.pending import PENDING, PendingEdge, edges_of_parts
from mortice._autograd.views import check_write
from mortice._base.errors import InvalidState
from mortice._capture import breaks, infer
from mortice._capture.bounds import hold
from mortice._capture.draws import DefaultDraws, draws, reserved
from mortice._capture.effects import MAY_RAISE_ON_INTEGERS
from mortice._capture.hazards import FLUSH, Hazards
from mortice._capture.kernels import Call, bind
from mortice._capture.trace import CallTrace, SegmentRun, ValueRead
from mortice._capture.tree import Leaf, Output, Step, Tree
from mortice._dispatch import keys as K
from mortice._dispatch.state import GLOBAL, THREAD, unrecorded
from mortice._tensor.array import PendingArray
from mortice._tensor.make import ViewInfo, base_of, host_array, storage_of, wrap
from mortice._tensor.storage import Storage
from mortice._tensor.tensor import Tensor
from mortice._types.promotion import NUMBERS
from mortice._types.shapes import has_overlap
from mortice.fx.stack import user_frame

_new = object.__new__
_NOT_DRAWN: Any = nullcontext()
#: Memory that somebody outside may write to is copied when it is recorded, up to this many bytes;
#: operators on more run at once.
SNAPSHOT_BYTES = 64 * 1024


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

    def __init__(self, compiled: Any, tree: Tree) -> None:
        self.compiled = compiled
        self.tree = tree
        self.lock = threading.RLock()
        self.at: Step = tree.root
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
        tree.walker = self

    # -- recording -----------------------------------------------------------------------------

    def record(self, call: Call, args: tuple[Any, ...]) -> Any:
        """Record a call that is not the one that came last time; returns its results."""
        for t in infer.tensors_in(args):
            self._settle_foreign(t)
        with self.lock:
            self._rewind()
            exported = [t for t in infer.tensors_in(args) if _is_exported(t)]
            if exported:
                replaced = self._snapshots(call, args)
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
            result = self._write(step, args)
        else:
            if form == "mutating":
                self._write(step, args)
            made = [None if o is None else self._make(o, args) for o in step.outputs]
            result = made[0] if step.simple or step.result is None else step.result(made)
        self.at.ahead = step
        self.at = step
        if step.ends and not hold(self, call.op.name, args):
            self.flush(f"{call.op.name} may refuse the values that it is given", allowed=True)
        return result

    def _find(self, call: Call, args: tuple[Any, ...]) -> Step | None:
        """The step of this call after ``at``, with its new leaves bound; made now if there is none.

        None if the results cannot be known before it runs.
        """
        signature, wants, fresh = self._signature(call, args)
        step = self.at.children.get(signature)
        if step is None:
            flushes = self.flushes
            step = self._make_step(call, args, wants, fresh)
            if step is None or flushes != self.flushes:
                return None
            self.at.children[signature] = step
            self.tree.size += 1
        for leaf, t in zip(step.new_leaves, fresh):
            if not bind(self, leaf, t):
                raise InvalidState(
                    f"{call.op.qualified}: an operand changed while it was recorded."
                )
        numbers = [args[i] for i in step.number_positions]
        self.numbers.extend(numbers)
        return step

    def _signature(self, call: Call, args: tuple[Any, ...]) -> tuple[Any, list[Any], list[Any]]:
        """(what tells the call from others here, what a later call must bring, new leaf tensors)."""
        parts: list[Any] = [call]
        wants: list[Any] = []
        fresh: list[Any] = []
        for kind, x in zip(call.kinds, args):
            if hasattr(x, "_k"):
                part, want = self._operand(x, fresh)
            elif kind == "L" and isinstance(x, (list, tuple)):
                found = [(None, None) if t is None else self._operand(t, fresh) for t in x]  # pyright: ignore[reportUnknownVariableType]
                part = tuple(p for p, _ in found)
                want = tuple(w for _, w in found)
            elif (x is not None and kind in "NO") or (
                kind == "F" and not _is_default(call, len(wants), x)
            ):
                part = want = type(x) if type(x) in _INPUT_NUMBERS else x
                part = (part, type(x))
            elif kind == "G":
                part = want = None
            else:
                part, want = _plain(x), x
            parts.append(part)
            wants.append(want)
        return tuple(parts), wants, fresh

    def _operand(self, t: Any, fresh: list[Any]) -> tuple[Any, Any]:
        a = t._a
        if type(a) is PendingArray:
            return a, a
        leaf = self._leaf_of(t)
        if leaf is not None:
            return leaf, leaf
        for i, other in enumerate(fresh):
            if other is t:
                return i, ("fresh", i)
        fresh.append(t)
        s = storage_of(t)
        cell = s.owner or s
        first: Any = None
        if cell.pending is self:
            first = self._leaf_over(cell)
        for i, other in enumerate(fresh[:-1]):
            if first is None and _cell_of(other) is cell:
                first = ("fresh", i)
        part = (t._k, t._t, tuple(a.shape), tuple(a.strides), type(a), t.device, first)
        return part, ("fresh", len(fresh) - 1)

    def _leaf_of(self, t: Any) -> Leaf | None:
        if len(self.by_tensor) != len(self.leaves):
            self.by_tensor = {id(leaf.tensor): leaf for leaf in self.leaves}
        return self.by_tensor.get(id(t))

    def memory_of(self, t: Any) -> tuple[Any, bool]:
        """(the cell that a tensor sees, None if the path has not met it; whether t is known in it)."""
        a = t._a
        if type(a) is PendingArray:
            return a.output.cell, True
        leaf = self._leaf_of(t)
        if leaf is not None:
            return leaf.cell, True
        s = t._s
        if s is None:
            return None, False
        cell = s.owner or s
        return (self._leaf_over(cell) if cell.pending is self else None), False

    def _leaf_over(self, cell: Storage) -> Leaf | None:
        for leaf, storage in zip(self.leaves, self.storages):
            if storage is cell:
                return leaf.cell
        return None  # memory that the path itself made

    # -- making steps --------------------------------------------------------------------------

    def _make_step(
        self, call: Call, args: tuple[Any, ...], wants: list[Any], fresh: list[Any]
    ) -> Step | None:
        op = call.op
        if infer.depends_on_values(op, args):
            return None
        if call.form != "view" and not infer.is_computed(op, call.beneath, args):
            return None
        if call.form == "view":
            geometry = infer.views(op, args)
            specs: Any = None
        elif call.form == "inplace":
            self._check_write(call, args)
            if has_overlap(args[0]._a.shape, args[0].stride()):
                return None  # what is written where is the kernel's own
            infer.check_inplace(op, args)
            specs, geometry = [], None
        else:
            specs, geometry = infer.results(op, args), None
            if specs is None:
                return None
        leaves = self._new_leaves(fresh)
        step = Step(self.at, call, _resolve(wants, leaves))
        step.new_leaves = tuple(leaves)
        step.leaves += len(leaves)
        step.number_positions = tuple(
            i for i, (k, w) in enumerate(zip(call.kinds, step.wants)) if k in "NFO" and w in NUMBERS
        )
        step.numbers += len(step.number_positions)
        step.generators += call.generator is not None
        frame = user_frame(2)
        if self.place is not None:
            step.line = self.place() or step.line
        elif frame is not None:
            step.line = (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        if geometry is not None:
            self._plan_views(step, args, geometry)
        elif specs:
            self._plan_fresh(step, specs)
        step.made += sum(o is not None for o in step.outputs)
        step.ends = call.raises or (
            op.name in MAY_RAISE_ON_INTEGERS
            and not any(t._t.differentiable for t in infer.tensors_in(args))
        )
        self._finish_step(step)
        return step

    def _new_leaves(self, fresh: list[Any]) -> list[Leaf]:
        leaves: list[Leaf] = []
        for t in fresh:
            cell = _cell_of(t)
            first = self._leaf_over(cell) if cell.pending is self else None
            for leaf, other in zip(leaves, fresh):
                if first is None and _cell_of(other) is cell:
                    first = leaf.cell
            leaves.append(Leaf(len(self.leaves) + len(leaves), t, first))
        return leaves

    def _plan_fresh(self, step: Step, specs: list[Any]) -> None:
        grads = infer.differentiable(step.call.op, specs) if step.call.grad else None
        number = step.made
        for i, spec in enumerate(specs):
            if spec is None:
                step.outputs.append(None)
                continue
            sizes, dtype, strides, device = spec
            handle = PendingArray(self.tree, sizes, dtype, device, strides)
            key = K.device_bit(device.type) | K.RECORD
            tracked = grads is not None and grads[i]
            if tracked:
                key |= K.AUTOGRAD
            edge = PENDING if tracked else None
            step.outputs.append(Output(step, number, handle, key, edge))
            number += 1

    def _plan_views(self, step: Step, args: tuple[Any, ...], geometry: list[Any]) -> None:
        call, base = step.call, args[0]
        want = step.wants[0]
        source: Any = want if isinstance(want, Leaf) else want.output
        tracked = call.grad and call.op.row.derivative != "none"
        many = len(geometry) > 1 or call.op.schema.returns[0].type.is_list
        edges = edges_of_parts(call.op.name, len(geometry)) if many else [PENDING]
        for i, (sizes, strides, offset, dtype) in enumerate(geometry):
            handle = PendingArray(self.tree, sizes, dtype, base.device, strides, offset)
            on = tracked and dtype.differentiable
            key = (base._k & ~K.FUNCTIONALITY_MASK) | K.RECORD | (K.AUTOGRAD if on else 0)
            if call.op.name != "detach":
                key |= K.VIEW
            edge = edges[i] if on else None
            number = step.made + i
            step.outputs.append(
                Output(step, number, handle, key, edge, source, i if many else None)
            )

    def _finish_step(self, step: Step) -> None:
        """How the step's results are handed out: alone, or as a tuple."""
        call = step.call
        returns = call.op.schema.returns
        first = step.outputs[0] if step.outputs else None
        if (
            step.call.form == "fresh"
            and len(returns) == 1
            and first is not None
            and not (returns[0].type.is_list)
        ):
            step.simple = not (step.ends or call.draws)
            step.handle, step.key, step.edge = first.handle, first.key, first.edge
            step.result = first.dtype
        elif len(returns) != 1 or returns[0].type.is_list:
            step.result = tuple
        if not step.simple and step.result is not tuple:
            step.result = None

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
            r._s = s = self._shared(base)
            if out.key & K.VIEW:
                b = base._b
                if b is None:
                    b = base if not s.epoch else ViewInfo(base, s.epoch)
                r._b = b
            else:
                r._b = None
        self.made.append(ref(r))
        return r

    def _shared(self, t: Any) -> Storage:
        """The storage of a tensor that is about to share it."""
        s = t._s
        if s is None:
            s = storage_of(t)
        if s.pending is None:
            s.pending = self
        self.touched.append(s)
        return s

    def _check_write(self, call: Call, args: tuple[Any, ...]) -> None:
        """Autograd's refusals, as eager has them."""
        if not THREAD.grad_enabled or call.keys & K.BELOW_AUTOGRAD:
            return
        for i in call.op.schema.mutated:
            t = args[i]
            if t is None:
                continue
            if call.grad:
                if t._k & K.AUTOGRAD or t._k & K.VIEW:
                    inplace_rules.check_inplace(t, call.op)
            elif t._k & K.VIEW:
                check_write(t, call.op)

    def _write(self, step: Step, args: tuple[Any, ...]) -> Any:
        """The effects of an in-place operator that do not wait: versions and histories."""
        call = step.call
        if call.grad or (args[0] is not None and args[0]._k & K.VIEW):
            self._check_write(call, args)
        target = None
        for i in call.op.schema.mutated:
            target = args[i]
            if target is None:
                continue
            s = self._shared(target)
            s.version += 1
            if call.grad and call.form == "inplace" and target._t.differentiable:
                self._rebase(target, s)
        return args[call.op.schema.mutated[0]] if call.form == "inplace" else None

    def _rebase(self, t: Any, s: Storage) -> None:
        """A tensor written to with history: it, and what it is a view of, have a new one to come."""
        base = base_of(t)
        self._replace_history(t)
        s.epoch += 1
        if base is not None:
            self._replace_history(base)
            t._b = ViewInfo(base, s.epoch)
            info = base._b
            if info.__class__ is ViewInfo:
                info.epoch = s.epoch
        inplace_rules.views_may_be_stale()

    def _replace_history(self, t: Any) -> None:
        if t._g.__class__ is not PendingEdge and type(t._a) is not PendingArray:
            self.histories.append((t, t._g, t._k & K.AUTOGRAD))
        t._g = PENDING
        t._k |= K.AUTOGRAD

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

    def _snapshots(self, call: Call, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The arguments with copies of exported tensors, or None if the operator must run at once."""
        for i in call.op.schema.mutated:
            if any(_is_exported(t) for t in infer.tensors_in((args[i],))):
                return None
        if call.form == "view":
            return None
        kept: dict[int, Any] = {}

        def replaced(x: Any) -> Any:
            if hasattr(x, "_k"):
                return _snapshot(x, kept) if _is_exported(x) else x
            if isinstance(x, (list, tuple)):
                return type(x)(replaced(y) for y in x)  # pyright: ignore[reportUnknownVariableType]
            return x

        for t in infer.tensors_in(args):
            large = t._a.nbytes > SNAPSHOT_BYTES or t._k & K.AUTOGRAD or not t.is_cpu
            if large and _is_exported(t):
                return None
        return tuple(replaced(x) for x in args)

    # -- running -------------------------------------------------------------------------------

    def run_now(self, op: Any, beneath: int, args: Any) -> Any:
        """Run what is recorded, then one operator, unrecorded."""
        if self.at.parent is None:
            breaks.note(self, breaks.running(op.name))
        with unrecorded(breaks.running(op.name)):
            if self.trace is not None:
                self.trace.immediate.append((len(self.trace.runs), op.name))
            return op.lookup(op.keys_of(args) & ~K.RECORD)(*args)

    def read(self, op: Any, beneath: int, args: Any) -> Any:
        """Run an operator that gives Python a value; what was recorded runs first if it must."""
        if op.name == "_local_scalar_dense":
            t = args[0]
            if not self.is_stale(t):
                breaks.note(self, breaks.reading(op.name))
                with unrecorded(flush=False):
                    return op.lookup(op.keys_of(args) & ~K.RECORD)(t)
            counted = self._counted(t)
            if counted is not None:
                breaks.note(self, breaks.reading(op.name))
                if self.trace is not None:
                    self.trace.immediate.append((len(self.trace.runs), "counter"))
                return counted
        return self.run_now(op, beneath, args)

    def is_stale(self, t: Any) -> bool:
        """Whether reading a tensor's memory now would miss what was recorded."""
        if type(t._a) is PendingArray:
            return True
        s = t._s
        if s is None:
            return False
        cell = s.owner or s
        if cell.pending is None:
            return False
        if cell.pending is not self:
            return True
        self.hazards.follow(self.at)
        return self._leaf_over(cell) in self.hazards.written

    def in_memory(self, t: Any) -> Any:
        """The elements of a tensor as a numpy array, if nothing recorded is yet to write them."""
        a = t._a
        if type(a) is PendingArray:  # perhaps a view of what is in memory
            cell = a.output.cell
            self.hazards.follow(self.at)
            if not isinstance(cell, Leaf) or cell in self.hazards.written or not t.is_cpu:
                return None
            return host_array(t._s, t._t, a.shape, a.strides, a.offset)
        return a if type(a) is np.ndarray and not self.is_stale(t) else None

    def _counted(self, t: Any) -> Any:
        """The value of a 0-d tensor that was only counted up since the segment began, else None.

        An optimizer counts its steps in such tensors, one per parameter, and reads each: that
        would make a segment of every parameter.
        """
        leaf = self._leaf_of(t)
        if leaf is None or leaf.shape or leaf.key & (K.AUTOGRAD | K.VIEW) or not t.is_cpu:
            return None
        with unrecorded(flush=False):
            value = wrap(t._a.copy(), t._t)
            for step in self.hazards.writers[leaf.cell]:
                if step.wants[0] is not leaf or step.call.form != "inplace":
                    return None
                numbers = iter(self.numbers[step.numbers - len(step.number_positions) :])
                args = [next(numbers) if w in NUMBERS else w for w in step.wants[1:]]
                if not all(w is None or type(w) in NUMBERS or type(w) is str for w in args):
                    return None
                op = step.call.op
                op.lookup(op.keys_of((value, *args)) & ~K.RECORD)(value, *args)
            return value._a.item()

    def value_read(self, tensor: Any, kind: str, value: Any) -> Any:
        """Note that Python gets to know a value; returns it, as the replay before has read it."""
        if self.prefix is not None:
            value = self.prefix.value(value)
        if self.trace is not None:
            self.trace.values.append(ValueRead(len(self.trace.runs), tensor, kind, value))
        return value

    def flush(self, why: str = "memory is read", *, allowed: bool = False) -> None:
        """Run what is recorded, since the function needs it now; see ``breaks.note``."""
        with self.lock:
            self._rewind()
            if self.at.parent is not None:
                breaks.note(self, why, allowed=allowed)
                self.finish()

    def finish(self) -> None:
        """Run the path as a segment, and give every living tensor of it its memory."""
        with self.lock:
            self._rewind()
            step = self.at
            if step.parent is None:
                return
            living = [r() for r in self.made]
            mask = tuple([t is not None for t in living])
            try:
                plan = step.plans.get(mask)
                if plan is None or (
                    plan.number_check is not None and not plan.number_check(self.numbers)
                ):
                    plan = step.plans[mask] = self.compiled.plan(self, step, mask)
                tensors = [leaf.tensor for leaf in self.leaves]
                numbers, generators, drawn = self.numbers, self.generators, self.draws
                written = plan.written_storages(tensors) if plan.written else ()
                traced = self.trace is not None
                places = [(g.device, *g.position()) for g in generators] if traced else []
                self._begin()
                known = None if self.prefix is None else self.prefix.outputs(plan, tensors)
                for s, _, before in written:
                    s.version = before  # so that what is saved for backward has eager's version
                try:
                    if known is None:
                        with _NOT_DRAWN if drawn is None else drawn.rewound():
                            known = plan.run(tensors, numbers, generators)
                    outs = known
                finally:
                    for s, version, _ in written:
                        s.version = version
                plan.fill(living, outs, tensors)
            except BaseException as error:
                self._fail(error)
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

    def _begin(self) -> None:
        """Forget the path: the next operator begins a segment."""
        for t, edge, bit in self.histories:
            t._g = edge
            t._k = (t._k & ~K.AUTOGRAD) | bit
        self.flushes += 1
        for leaf in self.leaves:
            leaf.tensor = None
        for s in self.storages:
            s.pending = None
        for s in self.touched:
            s.pending = None
        self.at = self.tree.root
        self.made = []
        self.numbers = []
        self.generators = []
        self.draws = None
        self.storages = []
        self.touched = []
        self.histories = []
        self.leaves = []
        self.by_tensor = {}
        if self.hazards.at is not None:
            self.hazards.clear()

    def _fail(self, error: BaseException) -> None:
        """What was recorded is lost; reading it says why. Go on with a new tree."""
        self._begin()
        self.tree.recorder = Failed(error)
        self.tree = Tree()
        self.tree.recorder = self.tree.walker = self
        self.at = self.tree.root

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


#: Who reads a tensor's memory and keeps no hold of it.
_ONLY_READING = frozenset(("tolist", "repr", "to_host", "deepcopy"))
_INPUT_NUMBERS = (int, float, complex)


def _is_default(call: Call, position: int, value: Any) -> bool:
    """Whether a number is its argument's default: such a one is part of the recording."""
    default = call.op.schema.arguments[position].default
    return type(value) is type(default) and value == default


def _plain(x: Any) -> Any:
    """A plain argument as a key: 1, 1.0 and True differ, as do 0.0 and -0.0."""
    kind = type(x)
    if kind is float or kind is complex:
        return kind, repr(x)
    if kind is tuple or kind is list:
        return tuple(_plain(y) for y in x)
    if kind is int or kind is bool:
        return kind, x
    return x


def _resolve(wants: list[Any], leaves: list[Leaf]) -> tuple[Any, ...]:
    """Operands with their new leaves in place."""
    found: list[Any] = []
    for w in wants:
        if type(w) is tuple and len(w) == 2 and w[0] == "fresh":
            found.append(leaves[w[1]])
        elif type(w) is tuple:
            found.append(_resolve(list(w), leaves))
        else:
            found.append(w)
    return tuple(found)


def _cell_of(t: Any) -> Storage:
    s = storage_of(t)
    return s.owner or s


def _is_exported(t: Any) -> bool:
    """Whether somebody outside may write to a tensor's memory."""
    s = t._s
    if s is None:
        return False
    cell = s.owner or s
    if not cell.exported:
        return False
    root = cell.root
    if cell.exported is True and type(root) is np.ndarray and root.base is None and t._a is root:
        # Held by the tensor, its storage, the variable and the argument of getrefcount: by nobody
        # outside any more.
        held = 4 if cell._bytes is None else 5
        if sys.getrefcount(root) <= held:
            cell.exported = False
            return False
    return True


def _snapshot(t: Any, kept: dict[int, Any]) -> Any:
    found = kept.get(id(t))
    if found is None:
        found = kept[id(t)] = wrap(t._a.copy(), t._t)
    return found


def settle(what: Any, reader: str = "") -> None:
    """Bring a tensor's or a storage's memory up to date with what was recorded, in any thread."""
    mine = THREAD.recorder
    if reader in _ONLY_READING and mine is not None and not mine.is_stale(what):
        mine.value_read(what, reader, None)
        return
    s = what if isinstance(what, Storage) else what._s
    if s is not None:
        recorder = (s.owner or s).pending or s.pending
        if recorder is not None:
            recorder.flush(breaks.reading(reader), allowed=recorder is not mine)
    if not isinstance(what, Storage):
        a = what._a
        if type(a) is PendingArray:
            recorder = a.home.recorder
            if recorder is None:
                raise InvalidState("the tensor has no value: the compiled call that made it ended.")
            recorder.flush(breaks.reading(reader), allowed=recorder is not mine)
    if reader and mine is not None:
        mine.value_read(what, reader, None)


GLOBAL.settle = settle

__all__ = ["Failed", "Recorder", "settle"]
