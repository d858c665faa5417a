"""What became of a compiled function, as text: segments, times, breaks, verdict, recompilations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from mortice.fx import GraphModule

from .show import text_of


@dataclass(frozen=True)
class Part:
    """One graph that a backend was given: its name, the graph, and what came of it."""

    name: str
    graph: GraphModule
    output_code: str
    fusion: str


@dataclass(frozen=True)
class SegmentReport:
    """One captured graph.

    Attributes:
        name, line, nodes, hits: As of the segment.
        compiled: False where it runs operator by operator.
        reason: Why it is not the first graph of its place; empty for the first.
        graph: As it was captured.
        parts: What the backend was given.
        seconds: Stage -> time.
        guards: What the graphs hold for, beyond the recorder's key.
    """

    name: str
    line: str
    nodes: int
    hits: int
    compiled: bool
    reason: str
    graph: GraphModule
    parts: tuple[Part, ...]
    seconds: dict[str, float]
    guards: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """What is known of a compiled object; ``str()`` is for people.

    Attributes:
        name: Of the function. backend: Its name.
        segments: The graphs, in the order in which they were captured.
        breaks: Why graphs ended before the function did, in the last observed call: what
            ``fullgraph=True`` refuses. ends: Ends that it allows, as behind operators that may
            refuse values.
        verdict: ``replay``, ``always run`` or ``not called yet``; reasons: Why a call is not
            replayed. calls: Kind -> how many were observed, replayed, or resumed half-way; before
            them ``found``, plans from disk, if there were any.
        guards: What replayed calls depend on. misses: Guards that failed, and what was found.
    """

    name: str
    backend: str
    segments: tuple[SegmentReport, ...]
    breaks: tuple[str, ...]
    ends: tuple[str, ...]
    verdict: str
    reasons: tuple[str, ...]
    calls: dict[str, int]
    guards: tuple[str, ...]
    misses: tuple[str, ...]

    @property
    def graph_count(self) -> int:
        return len(self.segments)

    @property
    def graph_break_count(self) -> int:
        return len(self.breaks)

    @property
    def op_count(self) -> int:
        return sum(s.nodes for s in self.segments)

    @property
    def recompilations(self) -> tuple[str, ...]:
        """Why places of the function were captured again."""
        return tuple(f"{s.name} at {s.line}: {s.reason}" for s in self.segments if s.reason)

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def report_of(compiled: Any) -> Report:
    """What is known of a compiled object so far."""
    verdict = compiled.verdict
    return Report(
        _name(compiled),
        compiled.settings.backend_name,
        tuple(map(_segment, compiled.segments)),
        _ends(compiled, allowed=False),
        _ends(compiled, allowed=True),
        verdict.name,
        tuple(map(str, verdict.reasons)),
        verdict.calls,
        tuple(_guards(compiled.replay)),
        tuple(verdict.misses),
    )


def _guards(replay: Any) -> Iterable[str]:
    """What the tree of replayed calls checks, in the order in which it does."""
    waiting = list(replay.roots) if replay is not None else []
    while waiting:
        node = waiting.pop(0)
        yield from (str(guard) for guard in node.stretch.guards)
        waiting += [child for children in node.children.values() for child in children]


def explain(fn: Callable[..., Any], **settings: Any) -> Callable[..., Report]:
    """A function that calls ``fn`` compiled, once, and reports: ``print(explain(fn)(*args))``.

    ``settings`` are those of ``mortice.compile``, with ``backend="eager"`` unless given; what is
    compiled already (a function, a method, a Module, in place too) keeps its own.
    """
    from .front import compile

    target: Any = fn
    inner = _compiled_of(fn)
    if inner is None:
        settings.setdefault("backend", "eager")
        target = compile(fn, **settings)
        inner = _compiled_of(target)

    def explained(*args: Any, **kwargs: Any) -> Report:
        inner.keep_traces = max(inner.keep_traces, 1)
        target(*args, **kwargs)
        return report_of(inner)

    return explained


#: Where the compiled object stands: behind a method, in a Module of ``mortice.compile``, in one that was
#: compiled in place.
_PLACES = ("__func__", "compiled", "_compiled_call")


def _compiled_of(fn: Any) -> Any:
    """The compiled object that a callable's calls go to, or None."""
    from mortice._capture.compiled import Compiled

    found = (fn, *(getattr(fn, name, None) for name in _PLACES))
    return next((x for x in found if isinstance(x, Compiled)), None)


def _ends(compiled: Any, allowed: bool) -> tuple[str, ...]:
    return tuple(str(one) for one in compiled.breaks if one.allowed is allowed)


def _segment(segment: Any) -> SegmentReport:
    file, line, function = segment.line
    stages = segment.module.meta.get("stages", ())
    seconds: dict[str, float] = {}
    for one in stages:
        for stage, spent in one.seconds.items():
            seconds[stage] = seconds.get(stage, 0.0) + spent
    seconds["total"] = segment.seconds
    return SegmentReport(
        segment.name,
        f"{file}:{line}, in {function}",
        segment.nodes,
        segment.hits,
        segment.compiled,
        segment.reason,
        segment.module,
        tuple(_part(one, name) for one in stages for name in one.graphs),
        seconds,
        tuple(str(guard) for one in stages for guard in one.guards),
    )


def _part(stages: Any, name: str) -> Part:
    graph, run = stages.graphs[name], stages.results[name]
    code, fusion = (text_of(kind, graph, run) for kind in ("output_code", "fusion"))
    return Part(name, graph, code, fusion)


def times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _name(compiled: Any) -> str:
    """Of a function; of a Module's call, its class."""
    fn = compiled.fn
    owner = getattr(fn, "__self__", None)
    if owner is not None and hasattr(owner, "forward"):
        return type(owner).__name__
    return getattr(fn, "__qualname__", None) or repr(fn)


# -- text ------------------------------------------------------------------------------------------


def _lines(report: Report) -> Iterable[str]:
    yield (
        f"{report.name}, backend {report.backend}: {report.graph_count} graphs of "
        f"{report.op_count} operators, {report.graph_break_count} breaks"
    )
    calls = ", ".join(f"{kind} {count}" for kind, count in report.calls.items())
    yield f"verdict: {report.verdict}; calls {calls}"
    for text in report.reasons:
        yield f"  reason: {text}"
    for text in report.misses:
        yield f"  missed: {text}"
    for text in report.breaks:
        yield f"  break: {text}"
    for text in report.ends:
        yield f"  end, which fullgraph allows: {text}"
    for segment in report.segments:
        yield f"{segment.name}: {segment.nodes} operators from {segment.line}"
        yield f"  ran {times(segment.hits)}" + ("" if segment.compiled else ", not compiled")
        if segment.reason:
            yield f"  another graph of this place: {segment.reason}"
        for guard in segment.guards:
            yield f"  holds for {guard}"
        for part in segment.parts:
            calls = sum(n.op == "call_function" for n in part.graph.graph.nodes)
            yield f"  {part.name}: {calls} operators"
        spent = ", ".join(f"{name} {s * 1e3:.1f} ms" for name, s in segment.seconds.items())
        yield f"  time: {spent}"
