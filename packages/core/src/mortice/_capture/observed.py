"""One call observed and recorded at once, and the plan made of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mortice._capture.observer import Reason, Watch
from mortice._capture.observer.arguments import know_arguments, traced_arguments
from mortice._capture.observer.calls import call
from mortice._capture.observer.numbers import settle
from mortice._capture.outline import Describer, Indescribable
from mortice._capture.plan import NotReplayable, ReplayPlan, make_plan
from mortice._capture.sizes import for_any_sizes
from mortice._dispatch.state import THREAD


class Observation:
    """What came of observing one call."""

    def __init__(self) -> None:
        self.plan: ReplayPlan | None = None
        self.reasons: list[Reason] = []


def observed_call(
    compiled: Any, args: Sequence[Any], kwargs: dict[str, Any], prefix: Any, seen: Observation
) -> Any:
    """The result of the call; ``seen`` gets a plan, or the reasons why there is none."""
    watch = Watch(call, _values_read)
    know_arguments(watch, compiled.fn, args, kwargs)
    before = THREAD.masks
    outline: list[Any] = []

    def run(*a: Any, **k: Any) -> Any:
        THREAD.recorder.watch = watch
        try:
            positional, named = traced_arguments(watch, a, k)
            result = settle(watch, call(watch, compiled.fn, positional, named))
            if THREAD.masks != before:
                watch.effect("leaves another grad mode, or another mode, than it found")
            if not watch.reasons:
                try:
                    outline.append(Describer(watch).describe(result))
                except Indescribable as error:
                    watch.unknown(str(error))
            return result
        finally:
            watch.release()

    try:
        result, trace = compiled.call_recorded(
            args, kwargs, traced=True, run=run, prefix=prefix, place=watch.place
        )
        if outline:
            try:
                plan = make_plan(watch, trace, outline[0])
                seen.plan = for_any_sizes(plan, compiled, watch.sizes_read)
            except NotReplayable as error:
                watch.unknown(str(error))
    finally:
        seen.reasons = watch.reasons
        watch.close()
    return result


def _values_read() -> int:
    recorder = THREAD.recorder
    trace = None if recorder is None else recorder.trace
    return 0 if trace is None else len(trace.values)
