"""Replay plans from one process to the next.

A plan that has answered a call is written, with its guards, to where its graph is kept. Another process
that compiles the same function reads the plans of that function, and a call for which all guards of one
hold is answered by it: nothing of it is observed, recorded or built. Plans of one segment are kept that
draw nothing, write to nothing and give tensors in host memory that are no views; the others are observed
anew, and find their graphs alone.
"""

from __future__ import annotations

import marshal
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any

from mortice._autograd.pending import PENDING
from mortice._base.logging import active
from mortice._capture.kept.files import Unnamed, mark_of
from mortice._capture.kept.guards import GuardReader, GuardWriter, Missed, read_value, write_value
from mortice._capture.kept.naming import Writer, describe
from mortice._capture.kept.retraced import Retraced
from mortice._capture.observer.numbers import ARITHMETIC, Computed, Given, is_traceable
from mortice._capture.outline import Container, Found, Keyed, Plain, TensorOf
from mortice._capture.plan import FromRun, Run, Stretch
from mortice._capture.results import adopted
from mortice._capture.segment import Plan, Segment
from mortice._capture.tree import Output
from mortice._dispatch import keys as K
from mortice._tensor.array import PendingArray
from mortice._tensor.tensor import Tensor
from mortice._types.device import CPU
from mortice._types.dtypes import by_name
from mortice._types.dtypes import default as default_dtype

#: Plans kept for one function.
ENTRIES = 8
#: Before the hash of a text, the name of its code.
_CODE = b"code "
#: What an entry raises that is whole, and not what this version writes.
_FOREIGN = (
    TypeError, ValueError, LookupError, AttributeError, RuntimeError, ArithmeticError, AssertionError,
    Missed,
)  # fmt: skip


class KeptPlans:
    """The plans of one function on disk.

    ``shelf`` is where they stand (``_compile.kept.Shelf``), the settings' own part of their name in it.
    """

    def __init__(self, compiled: Any, shelf: Any) -> None:
        self._compiled = compiled
        self._shelf = shelf
        self._name = _data(_name_of(compiled.fn), 2)
        #: Those that no call has used so far.
        self._waiting: list[Any] = self._read()
        #: The graphs found so far: plans that differ in a value that was looked at have one in common.
        self._segments: dict[Any, Segment] = {}
        #: The number of the guard that failed last: plans of one function differ in the same place.
        self._failing = 0

    @staticmethod
    def of(compiled: Any) -> KeptPlans | None:
        """What is kept for a compiled object; None where nothing is."""
        settings = compiled.settings
        shelf = None if settings.shelf is None else settings.shelf(settings)
        if shelf is None:
            return None
        try:
            return KeptPlans(compiled, shelf)
        except Unnamed as error:
            _log(f"plans are not kept: {error} is known to this process alone")
            return None

    def _read(self) -> list[Any]:
        data = self._shelf.read(self._name)
        try:
            found = [] if data is None else marshal.loads(data)  # noqa: S302  checked by its hash
        except (ValueError, EOFError, TypeError):
            found = []
        return found if isinstance(found, list) else []  # pyright: ignore[reportUnknownVariableType]

    # -- writing ---------------------------------------------------------------------------------

    def write(self, stretch: Stretch, codes: Mapping[bytes, bytes]) -> None:
        """Keep a plan, before the others of its function, and code by the hashes of its texts."""
        try:
            entry = _written(stretch, self._compiled.fn)
            _data(entry, 4)  # raises
        except Unnamed as error:
            _log(f"a plan is not kept: {error} is known to this process alone")
            return
        if entry is not None:
            others = [x for x in self._read() if x != entry]
            # Strings that are one stay one (from version 3 on), so that checks are the same text again.
            self._shelf.write(self._name, marshal.dumps([entry, *others[: ENTRIES - 1]], 4))
            for text, code in codes.items():
                self._shelf.write(_CODE + text, code)

    # -- reading ---------------------------------------------------------------------------------

    def code(self, text: bytes) -> bytes | None:
        """What was kept for a text with this hash: plans of one function have texts in common."""
        return self._shelf.read(_CODE + text)

    def find(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Stretch | None:
        """A plan that answers a call; each is given once."""
        for entry in self._waiting:
            try:
                stretch = self._restored(entry, args, kwargs)
            except _FOREIGN:
                continue
            if stretch is not None:
                self._waiting = [x for x in self._waiting if x is not entry]
                return stretch
        return None

    def _restored(
        self, entry: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Stretch | None:
        """The plan of an entry, if all its guards hold and its graph is there.

        What does not hold, or is not written so, raises one of ``_FOREIGN``.
        """
        comes_from, guarded, *rest = entry
        fn = self._compiled.fn
        if self._failing:
            GuardReader(guarded, fn, args, kwargs).refuse(self._failing)
        reader = GuardReader(guarded, fn, args, kwargs)
        try:
            reader.check()
        except Missed:
            self._failing = reader.at
            raise
        if not _same_sources(comes_from):
            return None
        return _stretch(self._segment, reader, *rest)

    def _segment(self, text: bytes, values: Sequence[Any], line: Any) -> Segment | None:
        """The graph of a text, if it is there."""
        key = text, repr(values), default_dtype.dtype
        found = self._segments.get(key)
        if found is None:
            compiled, captured = self._compiled, Retraced(text, values)
            kept = compiled.settings.keep(captured, compiled.settings)
            run = None if kept is None else kept.run()
            if run is None:
                return None
            found = self._segments[key] = compiled.adopt(captured, run, line)
        return found


def _name_of(fn: Any) -> Any:
    """What a compiled callable is found by: its code, or its class."""
    if type(fn) is FunctionType:
        return describe(fn)
    if type(fn) is MethodType:
        return "method", *_name_of(fn.__func__), *describe(type(fn.__self__))
    return describe(type(fn))


def _data(plain: Any, version: int) -> bytes:
    """Plain data for the disk. Raises Unnamed where a name in it is of a subclass of str."""
    try:
        return marshal.dumps(plain, version)
    except ValueError:
        raise Unnamed("a name that is no plain str") from None


def _log(text: str) -> None:
    logger = active("cache")
    if logger is not None:
        logger.debug("%s", text)


# -- a plan as plain data ------------------------------------------------------------------------------


def _written(stretch: Stretch, fn: Any) -> Any:
    """The entry of a plan; None if it is not of the kind that is kept. Raises Unnamed."""
    if stretch.read is not None or stretch.first_run or len(stretch.runs) != 1:
        return None
    (run,) = stretch.runs
    plan: Plan = run.plan
    captured = plan.segment.captured
    if not _is_simple(run) or not plan.segment.compiled or captured.symbols.sizes:
        return None
    text = captured.kept_text
    if text is None:
        return None
    names = Writer()
    writer = GuardWriter(names, fn)
    guarded = writer.guards(stretch.guards)
    leaves = [writer.source(x.source) for x in run.leaves]  # type: ignore[union-attr]
    numbers = [_number(writer, x) for x in run.numbers]
    result = _outline(writer, stretch.result)
    outputs = [_output(whole[0]) for _, whole, _ in plan.fills]
    shape = plan.tracked, plan.tracked_inputs, stretch.plain, run.made
    comes_from = sorted(names.files.items())
    graph = text, list(captured.numbers), plan.segment.line
    return comes_from, guarded, leaves, numbers, result, outputs, shape, graph


def _is_simple(run: Run) -> bool:
    """Whether a run gives each output as one tensor in host memory, of inputs there."""
    plan = run.plan
    return (
        not (run.any_sizes or run.writes or run.draws or plan.number_check)
        and adopted(plan) is not None
        and all(isinstance(x, Found) for x in run.leaves)
        and not any(leaf.first for step in plan.steps for leaf in step.new_leaves)
        and all(whole[0].handle.device is CPU for _, whole, _ in plan.fills)
    )


def _number(w: GuardWriter, x: Any) -> Any:
    if isinstance(x, Given):
        return "given", w.source(x.source)
    if isinstance(x, Computed):
        return "computed", x.symbol, _number(w, x.left), _number(w, x.right)
    return write_value(x)


def _output(o: Output) -> tuple[Any, ...]:
    h = o.handle
    return o.number, tuple(h.shape), tuple(h.strides), o.dtype.name, K.describe(o.key)


def _outline(w: GuardWriter, outline: Any) -> Any:
    if isinstance(outline, Plain):
        return "plain", write_value(outline.value)
    if isinstance(outline, TensorOf) and isinstance(outline.tensor, FromRun):
        return "made", outline.tensor.run, outline.tensor.number
    if isinstance(outline, Found):
        return "found", w.source(outline.source)
    if isinstance(outline, Container):
        items = [_outline(w, x) for x in outline.items]
        if outline.make is list or outline.make is tuple:
            return outline.kind, outline.number, items
        if isinstance(outline.make, Keyed):
            keys = tuple(map(write_value, outline.make.keys))
            return outline.kind, outline.number, items, keys
    raise Unnamed(f"how a {type(outline).__name__} of the result is made")


# -- a plan made of it -----------------------------------------------------------------------------


def _stretch(
    segment_of: Callable[[bytes, Any, Any], Segment | None], reader: GuardReader, leaves: Any,
    numbers: Any, result: Any, outputs: Any, shape: Any, graph: Any,
) -> Stretch | None:  # fmt: skip
    """The plan, of which the guards hold."""
    text, values, line = graph
    tracked, tracked_inputs, plain, made = shape
    cells = [_read_output(*o) for o in outputs]
    if not all(isinstance(reader.value(n), Tensor) for n in leaves):
        return None
    inputs = tuple(Found(reader.source(n)) for n in leaves)
    operands = tuple(_read_number(reader, x) for x in numbers)
    returned = _read_outline(reader, result)
    segment = segment_of(text, values, tuple(line))
    if segment is None:
        return None
    plan = Plan.of_outputs(segment, cells, tracked, tracked_inputs)
    run = Run(plan, inputs, operands, (), None, tuple(made))
    return Stretch(reader.found, plain, 0, (run,), None, returned)


def _same_sources(files: Sequence[Any]) -> bool:
    """Whether the files that an entry's objects came from are as they were."""
    try:
        return all(mark_of(module) == mark for module, mark in files)
    except Unnamed:
        return False


def _read_output(number: int, shape: Any, strides: Any, dtype: str, keys: str) -> Output:
    handle = PendingArray(None, tuple(shape), by_name(dtype), CPU, tuple(strides))
    key = K.described(keys)
    edge = PENDING if key & K.AUTOGRAD else None
    return Output(None, number, handle, key, edge)


def _read_number(r: GuardReader, x: Any) -> Any:
    if type(x) is not tuple:
        return x
    if x[0] == "given":
        if not is_traceable(r.value(x[1])):
            raise Missed
        return Given(r.source(x[1]))
    _, symbol, left, right = x
    if symbol not in ARITHMETIC:
        raise Missed
    return Computed(symbol, _read_number(r, left), _read_number(r, right))


def _container(kind: Any) -> Callable[..., Container]:
    def read(r: GuardReader, number: int, items: Any, keys: Any = None) -> Container:
        make = kind if keys is None else Keyed(kind, tuple(map(read_value, keys)))
        return Container(number, make, tuple(_read_outline(r, x) for x in items), kind.__name__)

    return read


_OUTLINES: Mapping[str, Callable[..., Any]] = {
    "plain": lambda r, value: Plain(read_value(value)),
    "made": lambda r, run, number: TensorOf(FromRun(run, number)),
    "found": lambda r, source: Found(r.source(source)),
    **{kind.__name__: _container(kind) for kind in (list, tuple, dict, OrderedDict)},
}


def _read_outline(r: GuardReader, data: Any) -> Any:
    return _OUTLINES[data[0]](r, *data[1:])
