"""Compiled graphs from one process to the next.

An entry says, by a hash of everything that a captured graph is made of, what compiling it came to: the
form of its derivative, where it has one, and what the backend needs to have its code again. A hit
traces, partitions and compiles nothing, and builds no graph but where somebody looks at it. What cannot
be named in a hash, because it is a function of somebody's, is not kept: ``MORTICE_LOGS=cache`` says why.
"""

from __future__ import annotations

import marshal
import operator
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mortice._base import config
from mortice._base.errors import ExportError
from mortice._base.logging import active
from mortice._capture.grad_regions import without_history
from mortice._dispatch import operator as operators
from mortice._dispatch.state import STARTED
from mortice._plugins import events
from mortice._types import dtypes
from mortice._version import __version__
from mortice.fx import GraphModule

from .examples import examples_of
from .form import Form
from .function import Training
from .plain import plain_state
from .settings import Settings
from .stages import Stages

#: Logs that show graphs, or what became of them: they are made anew for whoever reads them.
_SHOWING = ("graph", "fusion", "output_code")
#: The folders of core whose sources decide what a graph is traced to, and what a plan's guards say.
_SOURCES = (
    "", "_autograd", "_base", "_capture", "_capture/kept", "_capture/observer", "_compile", "_dispatch",
    "_generated", "_library", "_ops", "_ops/decomposed", "_tensor", "_types", "fx",
)  # fmt: skip
_own_sources: bytes | None = None


#: What an entry raises that is whole, and not what this version writes.
_FOREIGN = (TypeError, ValueError, KeyError, IndexError, AttributeError)


class Deferred:
    """A graph that is made when it is asked for; ``meta`` is then part of the graph's."""

    def __init__(self, make: Callable[[], GraphModule]) -> None:
        self._make = make
        self._made: GraphModule | None = None
        self.meta: dict[str, Any] = {}

    def __call__(self) -> GraphModule:
        if self._made is None:
            made = self._make()
            made.meta.update(self.meta)
            self._made = made
        return self._made


@dataclass(frozen=True)
class Keeping:
    """How a backend's results are kept on disk.

    Before the backend is called, ``gm.meta["identity"]`` is set to bytes that stand for the graph and
    everything else that its result depends on. Where it leaves a function in
    ``gm.meta["artifact"]``, that is called for what ``restore`` will need: plain data, for marshal,
    or None where the result cannot be kept.

    Attributes:
        version: ``(options)`` -> bytes that stand for all that results depend on besides the graph:
            sources, versions, configuration in force. A str says why nothing is to be kept.
        digest: ``(*parts)`` -> a hash of bytes.
        read: ``(hash)`` -> the bytes kept under it, whole and as they were written; or None.
        write: ``(hash, bytes)``; to be whole or not at all, whoever else writes.
        restore: ``(data, identity, graph, options)`` -> the callable, or None if it cannot be made of
            this. ``graph()`` makes the GraphModule, which takes long, and has ``graph.meta`` in its meta.
    """

    version: Callable[[Mapping[str, Any]], bytes | str]
    digest: Callable[..., bytes]
    read: Callable[[bytes], bytes | None]
    write: Callable[[bytes, bytes], Any]
    restore: Callable[[Any, bytes, Deferred, Mapping[str, Any]], Callable[..., Any] | None]


class Kept:
    """What is kept of one captured graph."""

    def __init__(self, captured: Any, settings: Settings, keeping: Keeping, key: bytes) -> None:
        self._captured = captured
        self._settings = settings
        self._keeping = keeping
        self._key = key
        #: What tells graphs of one key apart: the answers that tracing got, and where it was cut.
        self._mark = b""
        self._entry: Any = self._read(key)

    # -- what there is -----------------------------------------------------------------------------

    def run(self) -> Callable[..., Any] | None:
        """What runs the graph, without the graph; None if there is nothing, or sizes are to be asked
        first.
        """
        if self._entry is None or self._entry[1] != ([], []) or self._captured.symbols.sizes:
            return None
        stages = Stages.deferred(self._examples, self._settings, self)
        run = self._restored(stages)
        if run is not None:
            self._captured.note({"stages": [stages]})
        return run

    def restored(self, stages: Stages) -> Callable[..., Any] | None:
        """What runs the graph that ``stages`` has; None if there is nothing that holds for it."""
        entry = self._entry
        return None if entry is None or not _hold(entry[1], stages) else self._restored(stages)

    def _examples(self) -> tuple[GraphModule, Any]:
        with plain_state():
            module = self._captured.module
            return module, examples_of(module, self._captured.inputs)

    def _restored(self, stages: Stages) -> Callable[..., Any] | None:
        try:
            kind, _, form, (self._mark, artifact) = self._entry
            if kind == "graph":
                graph = Deferred(lambda: stages.gm)
                run = self._restore(artifact, "graph", graph)
                if run is None:
                    return None
                self._captured.note(graph.meta)
                stages.found("graph", graph, run)
                return without_history(run) if form else run
            made: list[Training] = []
            graph = Deferred(lambda: made[0].forward_graph())
            run = self._restore(artifact, "forward", graph)
            if run is None:
                return None
            told, code = form
            made.append(Training(Form(*told), run, stages, code=code))
        except _FOREIGN:
            return None  # not what this version writes
        stages.found("forward", graph, run)
        return made[0].entry

    def _restore(self, artifact: Any, part: str, graph: Deferred) -> Callable[..., Any] | None:
        options = self._settings.options
        return self._keeping.restore(artifact, self.identity(part), graph, options)

    def backward(
        self, name: str, make: Callable[[], GraphModule]
    ) -> tuple[tuple[Any, Any, Any], Callable[..., Any], Deferred] | None:
        """(saved, sizes, tangents), what runs the backward graph, and the graph; or None."""
        entry = None if _obstacle(self._settings) else self._read(self.identity(name))
        if entry is None:
            return None
        graph = Deferred(make)
        try:
            saved, sizes, tangents, artifact = entry
            run = self._restore(artifact, name, graph)
        except _FOREIGN:
            return None
        return None if run is None else ((saved, sizes, tangents), run, graph)

    # -- what is to be kept ------------------------------------------------------------------------

    def traced(self, stages: Stages, gm: GraphModule) -> None:
        """Note which graph of this key it is that the backend is given before any other."""
        given = [str(x) for node in gm.graph.nodes if node.op == "output" for x in node.args[0]]
        self._mark = self._keeping.digest(repr((_asked(stages), given)).encode())

    def identity(self, part: str) -> bytes:
        """What stands for one of the graphs that a backend is given."""
        return self._keeping.digest(self._key, self._mark, part.encode())

    def keep_graph(self, stages: Stages, gm: GraphModule, tracked: bool) -> None:
        """Keep a graph without a derivative; ``tracked``: though some of its inputs require grad."""
        self._write(
            self._key, gm, lambda found: ("graph", _asked(stages), tracked, (self._mark, found))
        )

    def keep_training(self, stages: Stages, training: Training, gm: GraphModule) -> None:
        """Keep a graph with a derivative, and what its forward half was compiled to."""
        form = tuple(training.form), training.entry_code
        self._write(
            self._key, gm, lambda found: ("training", _asked(stages), form, (self._mark, found))
        )

    def keep_backward(self, name: str, form: tuple[Any, Any, Any], gm: GraphModule) -> None:
        """Keep what a backward half was compiled to."""
        self._write(self.identity(name), gm, lambda found: (*form, found))

    def _write(self, key: bytes, gm: GraphModule, entry: Callable[[Any], Any]) -> None:
        obstacle = _obstacle(self._settings)  # there may be one by now
        if obstacle:
            _log(f"a graph is not kept: {obstacle}")
            return
        artifact = gm.meta.get("artifact")
        found = None if artifact is None else artifact()
        if found is None:
            _log("a graph is not kept: the backend's result cannot be")
            return
        self._keeping.write(key, marshal.dumps(entry(found), 2))

    def _read(self, key: bytes) -> Any:
        data = self._keeping.read(key)
        if data is None:
            return None
        try:
            found = marshal.loads(data)  # noqa: S302  checked by its hash, in the user's own folder
        except (ValueError, EOFError, TypeError):
            return None
        return whole(found)


def whole(entry: Any) -> Any:
    """An entry that was read, if it can be one; else None."""
    return entry if isinstance(entry, tuple) and len(entry) == 4 else None  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


class Shelf:
    """Where the replay plans of a backend's graphs are kept, by names that are bytes."""

    def __init__(self, keeping: Keeping, head: bytes) -> None:
        self._keeping = keeping
        self._head = head

    @staticmethod
    def of(settings: Settings) -> Shelf | None:
        """The plans of graphs that are kept; None where none are to be."""
        told = settings.declaration
        if told.keeping is None:
            return None
        keeping: Keeping = told.keeping()
        head = _head(keeping, settings)
        reason = head if isinstance(head, str) else _obstacle(settings)
        if reason:
            _log(f"plans are not kept: {reason}")
            return None
        assert isinstance(head, bytes)
        return Shelf(keeping, head)

    def read(self, name: bytes) -> bytes | None:
        """What is kept under a name, whole and as it was written; or None."""
        return self._keeping.read(self._key(name))

    def write(self, name: bytes, data: bytes) -> None:
        self._keeping.write(self._key(name), data)

    def _key(self, name: bytes) -> bytes:
        return self._keeping.digest(b"plans", self._head, name)


def keep(captured: Any, settings: Settings) -> Kept | None:
    """What is kept of a captured graph; None where nothing is to be."""
    told = settings.declaration
    if told.keeping is None:
        return None
    keeping: Keeping = told.keeping()
    head = _head(keeping, settings)
    reason = head if isinstance(head, str) else _obstacle(settings) or _own_obstacle(captured)
    text = None if reason else captured.text()
    if text is None:
        _log(f"a graph is not kept: {reason or 'an argument in it is known to this process alone'}")
        return None
    assert isinstance(head, bytes)
    return Kept(captured, settings, keeping, keeping.digest(b"captured", head, text))


def _head(keeping: Keeping, settings: Settings) -> bytes | str:
    """What all that is kept depends on, besides what it is; a str says why nothing is kept."""
    version = keeping.version(settings.options)
    if isinstance(version, str):
        return version
    head = (settings.backend_name, __version__, sys.version, dtypes.default.dtype.name)
    return keeping.digest(source_hash(keeping), repr(head).encode(), version)


def _own_obstacle(captured: Any) -> str:
    if any(isinstance(x, (bool, complex)) for x in captured.numbers):
        return "it depends on the value of a bool or complex number"
    return ""


def _obstacle(settings: Settings) -> str:
    """Why nothing can be kept, or must be made anew; empty if nothing hinders."""
    if settings.declaration.decompositions or settings.declaration.differentiable:
        return "its backend has operators taken apart by functions"
    if operators.FALLBACKS or any(op.kernels for op in operators.known() if "::" not in op.name):
        return "kernels of somebody's stand in the place of operators"
    if config.dump is not None or events.wanted() or any(map(_is_shown, _SHOWING)):
        return "somebody wants to see it made"
    return ""


def _is_shown(name: str) -> bool:
    """Whether a level was set for a logger or for ``mortice``, not for all that there is."""
    logger: Any = active(name)
    if logger is None or not logger.isEnabledFor(20):
        return False
    return bool(logger.level or (logger.parent is not None and logger.parent.level))


def _log(text: str) -> None:
    logger = active("cache")
    if logger is not None:
        logger.debug("%s", text)


def source_hash(keeping: Keeping) -> bytes:
    """A hash of what core's sources are known by: their names, sizes and times.

    Their text takes 10 ms to read, this a millisecond.
    """
    global _own_sources
    if _own_sources is None:
        root = os.path.dirname(os.path.dirname(__file__))
        found = [x for folder in _SOURCES for x in _contents(os.path.join(root, folder))]
        _own_sources = keeping.digest(marshal.dumps(sorted(found), 0))
    return _own_sources


#: A source file: its folder, name, size and time; and when this process began, if it was changed since.
_File = tuple[str, str, int, int, int]


def _contents(folder: str) -> list[_File]:
    """The source files in a folder.

    What is kept beside a file that was changed since this process began is for itself alone.
    """
    within = os.path.basename(folder)
    files: list[_File] = []
    try:
        with os.scandir(folder) as entries:
            for e in entries:
                if e.name.endswith(".py"):
                    stat = e.stat()
                    changed = stat.st_mtime_ns
                    own = STARTED if changed > STARTED else 0
                    files.append((within, e.name, stat.st_size, changed, own))
    except OSError:  # inside a zip archive: its version stands for it
        return []
    return files


# -- questions about sizes and numbers -----------------------------------------------------------------

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip


#: As the captured graph was built, and as it was traced: (left, relation, right) in both.
Asked = tuple[list[tuple[str, str, str]], list[tuple[str, str, str]]]


def _asked(stages: Stages) -> Asked:
    every = [(g.left.source(), g.relation, g.right.source()) for g in stages.examples.env.guards]
    return every[: stages.examples.known], every[stages.examples.known :]


def _hold(asked: Any, stages: Stages) -> bool:
    """Whether the graph was built alike, and the questions of tracing have the same answers."""
    if not isinstance(asked, tuple) or len(asked) != 2 or asked[0] != _asked(stages)[0]:  # pyright: ignore[reportUnknownArgumentType]
        return False
    if not asked[1]:
        return True
    from .export.expressions import read

    symbols: dict[str, Any] = {}
    for value in stages.examples.values:
        shown = [*value.shape, *value.stride()] if hasattr(value, "_k") else [value]
        for one in shown:
            name = getattr(one, "symbol", None)
            if name is not None:
                symbols.setdefault(name, one)
    try:
        for left, relation, right in asked[1]:
            if not _COMPARE[relation](read(left, symbols), read(right, symbols)):
                return False
        return _asked(stages) == asked
    except (ExportError, *_FOREIGN):
        return False
