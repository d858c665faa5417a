"""Compiling one captured graph: its stages with their times, what is logged, dumped and reported."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from mortice._base.errors import BackendFailed, MorticeError
from mortice._plugins import emit
from mortice.fx import GraphModule

from . import show
from .examples import Examples
from .joint import Traced, trace_joint
from .plain import plain_state
from .results import checked
from .settings import Settings


class Stages:
    """The work on one captured graph, and its record.

    Attributes:
        seconds: Stage -> time spent in it so far; a backward graph is compiled later than the rest.
        results: What the backend made of each.
    """

    def __init__(self, gm: GraphModule, examples: Examples, settings: Settings, table: Any) -> None:
        self._captured: tuple[GraphModule, Examples] | None = (gm, examples)
        self._capture: Callable[[], tuple[GraphModule, Examples]] | None = None
        self.settings = settings
        self.table = table
        #: What is kept on disk of the graph (``kept.Kept``), or None.
        self.kept: Any = None
        self.seconds: dict[str, float] = {}
        self._graphs: dict[str, Callable[[], GraphModule]] = {}
        self.results: dict[str, Callable[..., Any]] = {}

    @classmethod
    def deferred(
        cls, capture: Callable[[], tuple[GraphModule, Examples]], settings: Settings, kept: Any
    ) -> Stages:
        """For a graph that is found compiled: the graph and its examples are made if need be."""
        made: Stages = object.__new__(cls)
        made._captured, made._capture = None, capture
        made.settings, made.table, made.kept = settings, None, kept
        made.seconds, made._graphs, made.results = {}, {}, {}
        return made

    def _made(self) -> tuple[GraphModule, Examples]:
        if self._captured is None:
            assert self._capture is not None
            self._captured = self._capture()
        return self._captured

    @property
    def gm(self) -> GraphModule:
        """The graph as it was captured."""
        return self._made()[0]

    @property
    def examples(self) -> Examples:
        """What it is traced on."""
        return self._made()[1]

    @property
    def graphs(self) -> dict[str, GraphModule]:
        """What was handed to the backend: ``graph``, or ``forward`` and ``backward``."""
        return {part: graph() for part, graph in self._graphs.items()}

    @contextmanager
    def timed(self, stage: str) -> Generator[None, None, None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - started
            self.seconds[stage] = self.seconds.get(stage, 0.0) + spent

    @contextmanager
    def undisturbed(self) -> Generator[None, None, None]:
        """Within, graphs are traced and compiled: none of the caller's modes is in force."""
        with plain_state(), self.examples.mode:
            yield

    @property
    def guards(self) -> tuple[Any, ...]:
        """What tracing and the backend asked of sizes and numbers."""
        return tuple(self.examples.env.guards)[self.examples.known :]

    def joint(self, given: Sequence[bool] | None = None) -> Traced:
        """The captured graph with its gradients."""
        with self.timed("trace"):
            return trace_joint(self.gm, self.examples.values, self.table, given)

    def found(self, part: str, graph: Callable[[], GraphModule], run: Callable[..., Any]) -> None:
        """Note a graph that was found compiled."""
        self._graphs[part] = graph
        self.results[part] = run

    def compile(self, part: str, gm: GraphModule, name: str = "") -> Callable[..., Any]:
        """Hand one graph to the backend; ``name`` tells it from others of its part."""
        started = time.perf_counter()
        if self.kept is not None:
            if part != "backward":
                self.kept.traced(self, gm)
            gm.meta["identity"] = self.kept.identity(name or part)
        with self.timed(f"backend, {part}"):
            run = call_backend(gm, _values(gm), self.settings)
        show.compiled(part, self.settings.backend_name, gm, run)
        self.found(part, lambda: gm, run)
        if not (self.settings.declaration.trusted or run is gm):
            run = checked(run, self.settings.backend_name, part, gm)
        emit(
            "graph_compiled",
            backend=self.settings.backend_name,
            graph=gm,
            seconds=time.perf_counter() - started,
        )
        return run


def _values(gm: GraphModule) -> list[Any]:
    return [node.meta["val"] for node in gm.graph.nodes if node.op == "placeholder"]


def _takes_options(backend: Callable[..., Any]) -> bool:
    """Whether a backend's signature has ``options``, which it may leave out."""
    if isinstance(backend, functools.partial) and "options" in backend.keywords:
        return False  # given already
    try:
        parameters = inspect.signature(backend).parameters
    except (TypeError, ValueError):  # a function of C that does not say
        return False
    named = parameters.get("options")
    if named is not None:
        return named.kind is not named.POSITIONAL_ONLY
    return any(one.kind is one.VAR_KEYWORD for one in parameters.values())


def call_backend(gm: Any, examples: Sequence[Any], settings: Settings) -> Callable[..., Any]:
    """What the backend makes of one graph; BackendFailed if it raises or gives no callable."""
    takes = settings.options or _takes_options(settings.backend)
    keywords = {"options": settings.options} if takes else {}
    try:
        run = settings.backend(gm, list(examples), **keywords)
    except MorticeError:
        raise
    except Exception as error:
        raise BackendFailed(
            f"backend {settings.backend_name!r} raised {type(error).__name__}: {error}"
        ) from error
    if not callable(run):
        raise BackendFailed(
            f"backend {settings.backend_name!r} returned {type(run).__name__}, and a callable is "
            "expected, fn(*inputs) -> tuple. To run the graph as it is, return gm."
        )
    return run
