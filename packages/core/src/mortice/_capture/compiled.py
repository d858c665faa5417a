"""``Compiled``: a function whose operators are recorded, cut into segments and compiled."""

from __future__ import annotations

import functools
import threading
import time
import types
import warnings
from typing import Any

from mortice._capture import instances
from mortice._capture.captured import Captured
from mortice._capture.dynamic import Symbols, symbols_for
from mortice._capture.family import Family, Outline, Variant, outline
from mortice._capture.interpret import by_operator
from mortice._capture.kernels import install_recorder
from mortice._capture.native_seam import NATIVE_AFTER, NATIVE_RECORDER
from mortice._capture.reasons import note_recompiled
from mortice._capture.recorder import Recorder, this_thread
from mortice._capture.replay import Replay
from mortice._capture.segment import Plan, Segment, wanted_cells
from mortice._capture.stance import NOW, refuse, while_uncompiled
from mortice._capture.trace import CallTrace
from mortice._capture.tree import TREE_STEPS, Step, Tree, path
from mortice._capture.verdict import Verdict
from mortice._dispatch.state import GLOBAL, THREAD, unrecorded, watch_memory
from mortice._types.dtypes import default as default_dtype

#: Graphs that are kept beyond the limit of those that are compiled for a place.
UNCOMPILED = 64
#: A place is given up once so many more graphs than the limit were made for it, and each has been worth
#: so few runs of those that are compiled: to make one takes as long as 40 times running it uncompiled.
GIVEN_UP_AFTER = 8
WORTH = 32
#: As how many steps each other one counts in the tree that holds it, which is given up the sooner.
UNKEPT = 200


class Compiled:
    """What ``mortice.compile`` returns: call it as the function it was made of.

    Attributes:
        fn: the function. settings: what compile was asked for (``_compile.settings.Settings``).
        segments: what was compiled, in order. replay: answers calls, if it can without running the
            function (``replay.Replay``); None once it is known that it cannot. records: traces kept for reports.
        native: answers calls in native code, the others by ``by_python``; None until a backend has it.
    """

    __slots__ = ("__dict__", "__weakref__", "native")

    def __init__(self, fn: Any, settings: Any) -> None:
        self.fn = fn
        self.settings = settings
        self.segments: list[Segment] = []
        self.verdict: Any = Verdict()
        self.replay: Any = Replay(self)
        self.native: Any = None
        self.records: list[CallTrace] = []
        #: Where graphs ended in the call that was observed last (``breaks.Break``).
        self.breaks: list[Any] = []
        self._keep_traces = 0
        self._until_native = NATIVE_AFTER
        self._trees: list[Tree] = []
        self._families: dict[Any, Family] = {}
        #: How many graphs were made for what begins at a line, and lines that are not recorded any more.
        self._places: dict[tuple[str, int, str], int] = {}
        self._given_up: set[tuple[str, int, str]] = set()
        #: Graphs of kept plans that ``_families`` does not have yet.
        self._adopted: list[Segment] = []
        self._lock = threading.RLock()
        functools.update_wrapper(self, fn, updated=())
        instances.remember(self)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As an attribute of a class it is a method, whose graphs all instances share."""
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        name = getattr(self, "__qualname__", None) or repr(self.fn)
        return f"<compiled {name}, backend {self.settings.backend_name}>"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if NOW.eager:
            return self.fn(*args, **kwargs)
        native = self.native
        if native is not None:
            return native(*args, **kwargs)
        return self.by_python(*args, **kwargs)

    def by_python(self, /, *args: Any, **kwargs: Any) -> Any:
        """A call without native code."""
        if THREAD.recorder is not None:
            return self.fn(*args, **kwargs)  # part of the call that is being recorded
        replay = self.replay
        if replay is not None:
            return replay.call(args, kwargs)
        if self._until_native:
            self._until_native -= 1
            if not self._until_native:
                self._go_native()
        return self.call_recorded(args, kwargs)[0]

    @property
    def keep_traces(self) -> int:
        """How many of the last calls' traces are kept; while some are, Python records."""
        return self._keep_traces

    @keep_traces.setter
    def keep_traces(self, count: int) -> None:
        self._keep_traces = count
        if self.replay is None:
            self.native = None

    def _go_native(self) -> None:
        """Record in native code from now on, where the backend can and nothing is told of calls."""
        install_recorder(self.settings.declaration.native_recorder)
        if NATIVE_RECORDER and not self._keep_traces and not self._given_up:
            call = NATIVE_RECORDER[0].call
            trees = self._trees
            raised = functools.partial(self._raised, trees)
            self.native = call(self.fn, trees, self.by_python, raised)

    def _raised(
        self, trees: list[Tree], recorder: Recorder, error: BaseException, by_segment: bool
    ) -> Any:
        """Ends a native call whose function, or last segment, has raised."""
        if by_segment:
            recorder.fail(error)
        try:
            try:
                raise error
            finally:
                recorder.finish()
        finally:
            self._end(recorder, trees)

    def call_recorded(
        self,
        args: Any,
        kwargs: Any,
        traced: bool = False,
        run: Any = None,
        prefix: Any = None,
        place: Any = None,
    ) -> tuple[Any, Any]:
        """(the function's result, the call's trace if ``traced``).

        ``run`` calls the function in its place, and ``place`` says where it is; ``prefix`` is what
        a replay of this call has done before it had to give up.
        """
        trees = self._trees
        try:
            tree = trees.pop()
        except IndexError:
            tree = Tree()
        recorder = tree.walker
        if recorder is None:
            recorder = Recorder(self, tree)
        tree.recorder = recorder
        fields = THREAD.__dict__
        if recorder.fields is not fields:  # another thread's: naming this one takes 60 ns
            recorder.owner = this_thread()
            recorder.fields = fields
        recorder.ended = root = tree.root
        root.ahead = root.after
        if traced or self._keep_traces:
            recorder.trace = CallTrace()
        recorder.prefix, recorder.place = prefix, place
        if (
            self._given_up
        ):  # what is traced, or goes on where a replay ended, is recorded to its end
            recorder.may_leave = recorder.trace is None and prefix is None and NOW.compiles
        watch_memory(1)
        fields["recorder"] = GLOBAL.current = recorder
        recorder.on = True
        try:
            try:
                result = (run or self.fn)(*args, **kwargs)
            finally:
                recorder.finish()
            return result, recorder.trace
        finally:
            self._end(recorder, trees)

    def _end(self, recorder: Recorder, trees: list[Tree]) -> None:
        """The thread's operators run as they come again, and the recorder waits for another call."""
        recorder.fields["recorder"] = GLOBAL.current = None
        recorder.on = False
        if recorder.left:
            recorder.left = False
        else:
            watch_memory(-1)
        recorder.may_leave = False
        if recorder.trace is not None:
            self.breaks = recorder.trace.breaks
        if self._keep_traces and recorder.trace is not None:
            self.records = [*self.records, recorder.trace][-self._keep_traces :]
        recorder.trace = recorder.watch = recorder.prefix = recorder.place = None
        tree = recorder.tree
        tree.recorder = None
        if tree.size < TREE_STEPS:
            trees.append(tree)

    def reset(self) -> None:
        """Forget what was captured and compiled; the next call begins anew."""
        with self._lock:
            self.forget()

    def forget(self) -> None:
        """As ``reset``, for those who must not wait: what is being compiled may still be used for the call
        that waits for it, and by no other.
        """
        self.segments = []
        self.records = []
        self.breaks = []
        self._trees = []
        self._families = {}
        self._places = {}
        self._given_up = set()
        self._adopted = []
        self.verdict = Verdict()
        self.replay = Replay(self)
        self.native = None

    @property
    def is_new(self) -> bool:
        """Whether there is nothing to forget: nothing was captured, or looked for on disk."""
        replay = self.replay
        new = replay is not None and replay.is_new
        return new and not (self.segments or self._families)

    def families(self) -> list[Family]:
        """The graphs made so far, by what they have in common."""
        return list(self._families.values())

    # -- segments ------------------------------------------------------------------------------

    def plan(self, recorder: Recorder, step: Step, mask: Any) -> Plan:
        """The plan for a path's end with certain tensors alive; compiled now if nobody had it."""
        steps = path(step)
        wanted = wanted_cells(steps, mask)
        numbers = recorder.numbers
        now = outline(steps, wanted, numbers)
        with self._lock, unrecorded(flush=False):
            if self._adopted:
                self._place_adopted()
            family = self._families.get(now.key)
            if family is None:
                family = self._families[now.key] = Family()
            variant = family.find(now.values, numbers)
            if variant is None and not NOW.compiles:
                once = Captured(steps, wanted, numbers, recorder.generators, Symbols.none(now))
                variant = self._find(once, now, family, steps[0].line)
                if variant is None:
                    refuse(getattr(self.fn, "__qualname__", repr(self.fn)), steps[0].line)
                    run = by_operator(once.module)
                    once = Segment("not compiled", once, run, steps[0].line, compiled=False)
                    return Plan(once, wanted, steps, mask, while_uncompiled)
            if variant is None:
                variant = self._compile(steps, wanted, recorder, now, family)
                if self._is_worth_keeping(variant.segment):
                    family.variants.append(variant)
                    family.samples.append(now.values)
                    self.segments.append(variant.segment)
                else:
                    recorder.tree.size += UNKEPT
            check = variant.number_check(now.values)
            return Plan(variant.segment, wanted, steps, mask, check)

    def adopt(self, captured: Captured, run: Any, line: tuple[str, int, str]) -> Segment:
        """A segment for a graph of an earlier process, which nothing was recorded for."""
        with self._lock:
            segment = Segment(f"segment{len(self.segments)}", captured, run, line)
            self._places[line] = self._places.get(line, 0) + 1
            self.segments.append(segment)
            self._adopted.append(segment)
        return segment

    def _place_adopted(self) -> None:
        """Let paths that are recorded after all find the graphs of kept plans."""
        later: list[Segment] = []
        for segment in self._adopted:
            captured = segment.captured
            if captured.default_dtype is not default_dtype.dtype:
                later.append(segment)
                continue
            steps, wanted = captured.path()
            now = outline(steps, wanted, captured.numbers)
            self._place(segment, now, self._families.setdefault(now.key, Family()))
        self._adopted = later

    def _place(self, segment: Segment, now: Outline, family: Family) -> Variant:
        """Let paths find a graph that an earlier process has compiled, for the sizes that it has."""
        variant = Variant(segment, now.values, (), [None] * len(segment.captured.numbers))
        family.variants.append(variant)
        family.samples.append(now.values)
        return variant

    def _find(
        self, captured: Captured, now: Outline, family: Family, line: tuple[str, int, str]
    ) -> Variant | None:
        """A graph that an earlier process has compiled, if there is one."""
        run = self._kept_run(captured)
        if run is None:
            return None
        segment = Segment(f"segment{len(self.segments)}", captured, run, line)
        self._places[line] = self._places.get(line, 0) + 1
        self.segments.append(segment)
        return self._place(segment, now, family)

    def _kept_run(self, captured: Captured) -> Any:
        keep = self.settings.keep
        kept = None if keep is None else keep(captured, self.settings)
        return None if kept is None else kept.run()

    def _is_worth_keeping(self, segment: Segment) -> bool:
        """Whether another call may want it. Of graphs beyond the limit there may be one per call."""
        if segment.compiled:
            return True
        return sum(not s.compiled for s in self.segments) < UNCOMPILED

    def _compile(
        self, steps: list[Step], wanted: Any, recorder: Recorder, now: Outline, family: Family
    ) -> Variant:
        numbers = recorder.numbers
        leaves = [leaf.tensor for s in steps for leaf in s.new_leaves]
        symbols = symbols_for(now, family.samples, self.settings.dynamic, leaves)
        captured = Captured(steps, wanted, numbers, recorder.generators, symbols)
        line = steps[0].line
        count = self._places.get(line, 0)
        name = f"segment{len(self.segments)}"
        started = time.perf_counter()
        self._places[line] = count + 1
        beyond = count - self.settings.recompile_limit
        if beyond >= 0:
            if beyond == 0:
                warnings.warn(_limit_reached(self, line), UserWarning, stacklevel=2)
            self._give_up(line, beyond)
            run: Any = by_operator(captured.module)
            segment = Segment(name, captured, run, line, compiled=False)
        else:
            segment = Segment(name, captured, self._run_of(captured), line)
        segment.seconds = time.perf_counter() - started
        note_recompiled(self, segment)
        names: list[str | None] = [None] * len(numbers)
        if symbols.env.guards:
            first = len(leaves)
            placeholders = list(captured.module.graph.nodes)[first : first + len(numbers)]
            names = [getattr(node.meta.get("val"), "symbol", None) for node in placeholders]
        return Variant(segment, symbols.expected, symbols.env.guards, names)

    def _give_up(self, line: tuple[str, int, str], beyond: int) -> None:
        """Record no more at a place where recording does not pay: nearly each call makes a graph."""
        runs = sum(s.hits for s in self.segments if s.compiled and s.line == line)
        if beyond >= GIVEN_UP_AFTER and WORTH * beyond > runs:
            self._given_up.add(line)
            self._trees = []  # a step that was recorded there would be expected again
            self.native = None if self.replay is None else self.native

    def is_given_up(self, line: Any) -> bool:
        """Whether operators of a line, (file, line, function), are not recorded where a segment begins."""
        return line in self._given_up

    def _run_of(self, captured: Captured) -> Any:
        """What runs a graph: kept by an earlier process, or compiled now."""
        settings = self.settings
        kept = None if settings.keep is None else settings.keep(captured, settings)
        run = None if kept is None else kept.run()
        if run is None:
            module = captured.module
            if kept is not None:
                module.meta["kept"] = kept
            run = settings.compile_segment(module, captured.inputs, settings)
        return run


def _limit_reached(compiled: Compiled, line: tuple[str, int, str]) -> str:
    name = getattr(compiled.fn, "__qualname__", repr(compiled.fn))
    return (
        f"{name}: {compiled.settings.recompile_limit} graphs were compiled for the segment that "
        f"begins at {line[0]}:{line[1]} (recompile_limit); from now on it runs operator by operator "
        "there. Something that is part of the recording changes from call to call, such as the "
        "number of turns of a loop: pass recompile_limit=, or make it an operand."
    )
