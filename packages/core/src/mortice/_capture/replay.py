"""Replay: answering calls of a compiled function without running it.

The first calls are observed. What proves to be free of effects becomes a path in a tree: a node
checks the guards that were first read there and runs segments; its edges are the values that Python
read next. A later call walks the tree. Where it finds no way on, Python runs the function from its
beginning, and takes what the walk has computed already instead of computing it again.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import Any

from mortice._capture import reasons as told
from mortice._capture.guard_check import first_failure
from mortice._capture.guard_code import Unreachable
from mortice._capture.guards import Guard
from mortice._capture.native_seam import NATIVE_AFTER
from mortice._capture.prefix import Prefix
from mortice._capture.stance import NOW
from mortice._dispatch.state import THREAD

#: Calls with effects, or things unknown, that are observed before the function always runs.
IMPURE_CALLS = 2
#: Calls that end with an error, likewise.
RAISING_CALLS = 4
#: Alternatives at one place of the tree, and calls observed with less than that many replays.
ALTERNATIVES = 8
OBSERVED_CALLS = 64
#: Replays that gave up at one place before it is not tried any more.
USELESS = 16
#: Replays before a plan is kept on disk: a function called once is not worth it.
KEPT_AFTER = 1
#: Misses kept for reports.
MISSES = 32


class Replay:
    """The tree of one compiled object; ``Compiled`` hands its calls to ``call``."""

    def __init__(self, compiled: Any) -> None:
        self.compiled = compiled
        self.roots: list[Any] = []
        self.observing = True
        #: Plans of earlier processes (``KeptPlans``), if there is a place for them; and whether there is,
        #: and it is of use, has been asked.
        self.plans: Any = None
        self.looked = False
        self.impure = 0
        self.raised = 0
        self._lock = threading.Lock()

    @property
    def is_new(self) -> bool:
        """Whether no call has come so far."""
        return not self.roots and not self.looked and not self.compiled.verdict.observed

    def call(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The result of a call: replayed, observed, or recorded."""
        for node in self.roots:
            found = node.check(args, kwargs)
            if found.__class__ is tuple:
                finish = node.finish
                if finish is not None:
                    self.compiled.verdict.by_python += 1
                    node.replays += 1
                    if node.replays == NATIVE_AFTER:
                        self._go_native(node, args, kwargs)
                    elif node.replays == KEPT_AFTER:
                        self._keep(node)
                    return finish(found)
                return self._walk(node, found, args, kwargs)
        return self._run(args, kwargs, None, None, None)

    def _walk(self, node: Any, found: Any, args: Any, kwargs: Any) -> Any:
        prefix = Prefix()
        made: list[Any] = []
        fixed: dict[Any, Any] = {}
        while True:
            node.go(found, made, fixed, prefix)
            if node.value is None:
                self.compiled.verdict.by_python += 1
                return node.build(found, made, fixed)
            value = node.value(found, made, fixed)
            prefix.values.append(value)
            key = _edge(node.convert(value))
            for child in node.children.get(key, ()):
                found = child.check(args, kwargs)
                if found.__class__ is tuple:
                    node = child
                    break
            else:
                prefix.rewind()
                return self._run(args, kwargs, prefix, node, key)

    # -- running the function ------------------------------------------------------------------

    def _run(self, args: Any, kwargs: Any, prefix: Any, node: Any, key: Any) -> Any:
        """Run the function after a miss at the root, or behind ``node`` by the value ``key``."""
        verdict = self.compiled.verdict
        if node is None and (self.plans is not None or not self.looked):
            found = self._find_kept(args, kwargs)
            if found is not None:
                return found[0]
        verdict.resumed += prefix is not None
        alternatives = self.roots if node is None else node.children.get(key, ())
        self._note_miss(alternatives, args, kwargs)
        width = len(alternatives) if node is None else max(len(alternatives), len(node.children))
        insert = self.observing and NOW.compiles and width < ALTERNATIVES
        # What a mode of somebody's does with operators is its own affair, and no guard tells two apart.
        insert = insert and not (THREAD.dispatch_modes or THREAD.function_modes)
        if node is not None and not insert and NOW.compiles:
            self._useless(node)
        if not insert and not (prefix is not None and prefix.writes):
            return self.compiled.call_recorded(args, kwargs, prefix=prefix)[0]
        from mortice._capture.observed import Observation, observed_call
        from mortice._capture.observer.decode import support

        unsupported = support()
        if unsupported is not None:
            self._stop(unsupported)
            return self.compiled.call_recorded(args, kwargs, prefix=prefix)[0]
        # After writes the call is observed even if nothing is learnt from it: then the same tensors are
        # alive where segments end, and what the replay has returned is what is wanted.
        seen = Observation()
        verdict.observed += insert
        try:
            result = observed_call(self.compiled, args, kwargs, prefix, seen)
        except BaseException:
            self._raised(seen.reasons)
            raise
        if not insert or (prefix is not None and prefix.given_up):
            return result
        if seen.plan is None:
            self._impure(seen.reasons)
        else:
            self._insert(seen.plan, node, key)
        if verdict.observed > OBSERVED_CALLS and verdict.replayed < verdict.observed:
            self._stop("guards or values change from call to call")
        return result

    # -- plans on disk -------------------------------------------------------------------------

    def _find_kept(self, args: Any, kwargs: Any) -> tuple[Any] | None:
        """(the result,) of a call that a plan of an earlier process answers; None if none does."""
        compiled = self.compiled
        if compiled.settings.shelf is None or not self.observing:
            self.looked, self.plans = True, None
            return None
        if compiled.keep_traces or len(self.roots) >= ALTERNATIVES:
            return None
        from mortice._capture.kept.plans import KeptPlans
        from mortice._capture.stretch import Node

        roots = self.roots
        with self._lock:
            added = self.roots[len(roots) :]  # by other threads, perhaps for the same call
        for node in added:
            found = node.check(args, kwargs)
            if found.__class__ is tuple and node.finish is not None:
                return (node.finish(found),)
        with self._lock:
            if not self.looked:
                self.looked, self.plans = True, KeptPlans.of(compiled)
            plans = self.plans
            stretch = None if plans is None else plans.find(args, kwargs)
            if plans is None or stretch is None:
                return None
            # Its check is written when it is called: its guards held as they were read.
            node = Node(stretch, 0, self._native, plans.code)
            node.replays = KEPT_AFTER  # it is kept
            self.roots = [*self.roots, node]
        told.log_guards(compiled, [stretch])
        compiled.verdict.kept += 1
        return (node.finish(node.found(args, kwargs)),)

    def _keep(self, node: Any) -> None:
        """Keep a plan that has answered a call for other processes."""
        if self.plans is not None:
            self.plans.write(node.stretch, node.codes())

    def _useless(self, node: Any) -> None:
        """Count replays that gave up at a node that has no room; with too many its tree goes."""
        node.misses += 1
        if node.misses < USELESS:
            return
        while node.parent is not None:
            node = node.parent
        self.roots = [root for root in self.roots if root is not node]
        self._stop("the values that Python reads differ from call to call")

    def _impure(self, reasons: Any) -> None:
        self.compiled.verdict.add_reasons(reasons)
        self.impure += 1
        if self.impure >= IMPURE_CALLS:
            self._stop("")

    def _raised(self, reasons: Any) -> None:
        """A call that raises has no plan; wrong arguments alone do not stop observing."""
        from mortice._capture.observer import Reason

        self.compiled.verdict.add_reasons([*reasons, Reason("unknown", "raises an error", "")])
        self.raised += 1
        if self.raised >= RAISING_CALLS:
            self._stop("")

    def _stop(self, why: str) -> None:
        """Observe no more; without any plan, calls go straight to the recorder."""
        self.observing = False
        verdict = self.compiled.verdict
        if why:
            from mortice._capture.observer import Reason

            verdict.add_reasons([Reason("unknown", why, "")])
        if not self.roots:
            verdict.always_runs = True
            if self.compiled.replay is self:  # it may have begun anew since
                self.compiled.replay = None
        told.log_verdict(self.compiled)

    def _insert(self, plan: Any, node: Any, key: Any) -> None:
        """Add a plan behind the last node of the tree that the call went through."""
        from mortice._capture.stretch import Node, edge

        with self._lock:
            depth = 0 if node is None else node.depth + 1
            stretches = list(plan.stretches[depth:])
            if node is not None:
                stretches[0] = _with_earlier_guards(stretches[0], plan, node)
            try:
                chain = [Node(s, depth + i, self._native) for i, s in enumerate(stretches)]
                for made in chain:
                    made.write()
            except Unreachable as error:
                self._note(f"{error} is gone already")
                return
            told.log_guards(self.compiled, stretches)
            chain[0].parent = node
            for parent, child in itertools.pairwise(chain):
                assert parent.stretch.read is not None
                parent.children[edge(parent.stretch.read.value)] = [child]
                child.parent = parent
            if node is None:
                self.roots = [*self.roots, chain[0]]
            else:
                node.children = {
                    **node.children, key: [*node.children.get(key, ()), chain[0]]
                }  # fmt: skip

    @property
    def _native(self) -> bool:
        """Whether the backend has native code for some plans."""
        return self.compiled.settings.declaration.native_entry is not None

    def _go_native(self, node: Any, args: Any, kwargs: Any) -> None:
        """Let the backend answer calls like this one; others go where they went before."""
        compiled = self.compiled
        make = compiled.settings.declaration.native_entry
        if make is None or any(run.any_sizes for run in node.stretch.runs):
            return  # native code has sizes as constants
        with self._lock:
            miss = compiled.native or compiled.by_python
            entry = make(node.native_plan(args, kwargs, miss))
            if entry is None or compiled.replay is not self:  # it has begun anew since
                return
            compiled.verdict.native.append(entry.answered)
            for run in node.stretch.runs:
                run.plan.segment.native.append(entry.answered)
            compiled.native = entry.call

    def _note_miss(self, alternatives: Any, args: Any, kwargs: Any) -> None:
        if len(self.compiled.verdict.misses) >= MISSES:
            return
        for node in alternatives:
            failed = first_failure(node.stretch.guards, args, kwargs)
            if failed is not None:
                self._note(failed)

    def _note(self, text: str) -> None:
        self.compiled.verdict.misses.append(text)
        told.log_miss(self.compiled, text)


def _with_earlier_guards(stretch: Any, plan: Any, node: Any) -> Any:
    """The stretch, with what its call read before that the nodes walked through do not guard."""
    known: set[Any] = set()
    at = node
    while at is not None:
        known.update(map(_guard_key, at.stretch.guards))
        at = at.parent
    earlier = [g for s in plan.stretches[: node.depth + 1] for g in s.guards]
    more = tuple(g for g in earlier if _guard_key(g) not in known)
    return stretch.guarded((*more, *stretch.guards), stretch.runs) if more else stretch


def _guard_key(guard: Guard) -> Any:
    return (str(guard.source), str(guard.condition))


def _edge(value: Any) -> Any:
    if value.__class__ is float:
        return value.hex()
    return repr(value) if value.__class__ is complex else value
