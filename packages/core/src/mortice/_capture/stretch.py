"""Stretches of a plan as Python functions: check, run, read, and make the result."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import ref

from mortice._capture.guard_check import find
from mortice._capture.guard_code import Check, Unreachable, written_check
from mortice._capture.guards import Source
from mortice._capture.native_seam import NATIVE_AFTER, Direct, NativePlan
from mortice._capture.observer.numbers import Computed, Given
from mortice._capture.outline import Container, Found, TensorOf, compile_outline
from mortice._capture.plan import Fixed, FromRun, Operand, Run, Stretch
from mortice._capture.redraws import run_within
from mortice._capture.results import adopted, maker
from mortice._capture.texts import Codes, codes_of, made_of
from mortice._tensor.make import storage_of, wrap

#: How often a check is made quicker again after what it relied on has changed.
HASTENED = 8
#: Calls that the full check lets through before a quicker one is made, which takes 2 ms and saves 5 us a
#: call; and how many more where a backend has native code, which mostly takes over before.
WARM, PATIENCE = 2, 2 * NATIVE_AFTER
#: Values read, as their kinds give them to Python.
CONVERT: dict[str, Callable[[Any], Any]] = {
    "bool": bool,
    "int": int,
    "float": float,
    "complex": complex,
    "item": lambda value: value,
}


#: A writer's functions share their globals, which get what a function needs while it is made.
_MAKING = threading.Lock()


class Node:
    """A stretch in the tree, compiled.

    Attributes:
        check: guards; gives the objects that the rest needs.
        finish: ``finish(found)`` -> the result, where the stretch is the whole plan; else None.
        go: ``go(found, made, fixed, prefix)`` runs the segments, noting what they gave.
        value: ``value(found, made, fixed)`` -> what the tensor holds that Python reads next.
        build: ``build(found, made, fixed)`` -> the result.
        children: value -> the stretches that may follow it. depth: values read before.

    Functions whose code is ``known`` are not compiled. ``native`` says whether the backend has native code.
    """

    __slots__ = (
        "__weakref__", "_build", "_finish", "_full", "_go", "_writer", "_written", "check", "children",
        "convert", "depth", "misses", "parent", "passed", "replays", "stretch", "value",
    )  # fmt: skip

    def __init__(
        self, stretch: Stretch, depth: int, native: bool, known: Codes | None = None
    ) -> None:
        self.stretch = stretch
        self.depth = depth
        self.replays = 0
        self.misses = 0
        self.parent: Node | None = None
        self.children: dict[Any, list[Node]] = {}
        self._writer = writer = _Writer(stretch, known)
        self._written: Callable[[Codes | None], Check] | None = None
        self._full: Check | None = None
        self.check: Check = self.warming
        self.passed = -PATIENCE if native else 0
        self._go: Any = None
        self._build: Any = None
        self._finish: Any = None
        self.value: Any = None
        self.convert: Any = None
        if stretch.read is not None:
            self.value = writer.value()
            self.convert = CONVERT[stretch.read.kind]

    @property
    def full(self) -> Check:
        """The guards, none left out. Made when the call comes again, as all that follows: many
        functions are called once, and compiling Python takes most of a plan's time.
        """
        if self._full is None:
            try:
                self.write()
            except Unreachable:  # what is gone comes no more
                self._full = _fails
                return _fails
            assert self._written is not None
            with _MAKING:
                self._full = self._written(self._writer.known)
        return self._full

    def write(self) -> None:
        """Write the check, which is compiled later. Raises Unreachable."""
        if self._written is None:
            self._written = written_check(self.stretch.guards, self._writer.sources)

    @property
    def finish(self) -> Any:
        """As the class says."""
        if self._finish is None and self.stretch.read is None and not self.stretch.first_run:
            with _MAKING:
                self._finish = self._writer.finish()
        return self._finish

    @property
    def go(self) -> Any:
        """Made when it is asked for: a plan of one stretch never needs it."""
        if self._go is None:
            with _MAKING:
                self._go = self._writer.go()
        return self._go

    @property
    def build(self) -> Any:
        """As ``go``; native code asks for it where an output does not lie as expected."""
        if self._build is None:
            with _MAKING:
                self._build = self._writer.build()
        return self._build

    def warming(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The full check, which after some calls makes a quicker one of what it sees."""
        found = self.full(args, kwargs)
        if found.__class__ is tuple:
            self.passed += 1
            if self.passed >= WARM:
                self._hasten(args, kwargs)
        return found

    def codes(self) -> dict[bytes, bytes]:
        """What a node of the same stretch in another process need not compile."""
        return codes_of(f for f in (self._full, self._finish) if hasattr(f, "text"))

    def found(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """What ``check`` gives for a call of which it is known that the guards hold."""
        return tuple([find(source, args, kwargs) for source in self._writer.sources])

    def _hasten(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        if self.passed > WARM + HASTENED:
            self.check = self.full
            return
        from mortice._capture.guard_fast import fast_check

        node = ref(self)

        def forget() -> None:
            found = node()
            if found is not None:
                found.check = found.full

        made = fast_check(
            self.stretch.guards, self._writer.sources, args, kwargs, self.warming, forget
        )
        self.check = made or self.full

    def native_plan(
        self, args: Sequence[Any], kwargs: dict[str, Any], miss: Callable[..., Any]
    ) -> NativePlan:
        """The stretch, which is a whole plan, for a backend; its guards hold in this call."""
        sources = self._writer.sources
        return NativePlan(
            self.stretch.guards, tuple(sources), self.finish, self._direct(), args, kwargs, miss
        )

    def _direct(self) -> Direct | None:
        """The stretch as data, if all that it does is to return what one segment gives."""
        stretch = self.stretch
        shape = returned(stretch.result)
        if shape is None or len(stretch.runs) != 1:
            return None
        (run,) = stretch.runs
        simple = not (
            run.any_sizes
            or run.writes
            or run.draws
            or any(isinstance(n, Computed) for n in run.numbers)
        )
        rows = adopted(run.plan) if simple else None
        if rows is None or not all(isinstance(x, Found) for x in run.leaves):
            return None
        kind, numbers = shape
        if not all(n in rows for n in numbers):
            return None
        make, width = maker(run.plan, _made_count(run)), len(run.leaves)
        positions = self._writer.positions
        operands = tuple(
            (positions[id(x.source)], None) if isinstance(x, (Found, Given)) else (None, x)
            for x in (*run.leaves, *run.numbers)
        )

        def settle(outs: Any, wanted: Any) -> Any:
            leaves = tuple(wanted[place] for place, _ in operands[:width])
            return self.build(wanted, [make(outs, leaves)], {})

        outputs = tuple(rows[n] for n in numbers)
        plain = stretch.plain and runs_as_it_is(run)
        return Direct(run.plan.segment.run, operands, outputs, plain, kind, settle)


def runs_as_it_is(run: Run) -> bool:
    """Whether a segment does the same with grad mode on as the recorder lets it: its history is
    wanted, or there is none to be had.
    """
    if run.plan.tracked:
        return True
    return not run.writes and not run.plan.tracked_inputs


def returned(outline: Any) -> tuple[str, tuple[int, ...]] | None:
    """``one``, ``tuple`` or ``list``, and the numbers of the tensors that are returned."""
    items = outline.items if isinstance(outline, Container) else (outline,)
    if not all(isinstance(x, TensorOf) and isinstance(x.tensor, FromRun) for x in items):
        return None
    numbers = tuple(x.tensor.number for x in items)
    if not isinstance(outline, Container):
        return "one", numbers
    kind = {list: "list", tuple: "tuple"}.get(outline.make)  # type: ignore[call-overload]
    return None if kind is None or len(set(numbers)) < len(numbers) else (kind, numbers)


def edge(value: Any) -> Any:
    """A value as a key: zeros by sign, and NaN is NaN."""
    if type(value) is float:
        return value.hex()
    return repr(value) if type(value) is complex else value


def _fails(args: Any, kwargs: Any) -> int:
    """The check of guards of which the first holds no more."""
    return 0


class _Writer:
    """Makes the functions of one stretch; operands become expressions."""

    def __init__(self, stretch: Stretch, known: Codes | None) -> None:
        self.stretch = stretch
        self.known = known
        self.sources: list[Source] = []
        self.positions: dict[int, int] = {}
        self.names: dict[str, Any] = {
            "__builtins__": builtins,
            "storage_of": storage_of,
            "fixed_of": fixed_of,
            "run_within": run_within,
        }
        for run in stretch.runs:
            for operand in (*run.leaves, *run.numbers):
                self.note(operand)
        if stretch.read is not None:
            self.note(stretch.read.operand)
        for found in _found(stretch.result):
            self.note(found)

    def note(self, operand: Any) -> None:
        if isinstance(operand, Computed):
            self.note(operand.left)
            self.note(operand.right)
        if isinstance(operand, (Found, Given)) and id(operand.source) not in self.positions:
            self.positions[id(operand.source)] = len(self.sources)
            self.sources.append(operand.source)

    def name(self, value: Any, prefix: str) -> str:
        name = f"{prefix}{len(self.names)}"
        self.names[name] = value
        return name

    def operand(self, x: Any) -> str:
        if isinstance(x, TensorOf):
            x = x.tensor
        if isinstance(x, Computed):
            return f"({self.operand(x.left)} {x.symbol} {self.operand(x.right)})"
        if isinstance(x, (Found, Given)):
            return f"f{self.positions[id(x.source)]}"
        if isinstance(x, FromRun):
            table = f"m{x.run}" if x.run >= self.stretch.first_run else f"made[{x.run}]"
            return f"{table}[{x.number}]"
        if isinstance(x, Fixed):
            return f"fixed_of(fixed, {self.name(x, 'k')})"
        return self.name(x, "n")

    # -- the functions -------------------------------------------------------------------------

    def unpack(self) -> list[str]:
        count = len(self.sources)
        return [f"{''.join(f'f{i}, ' for i in range(count))}= found"] if count else []

    def run(self, run: Run, number: int, noted: bool) -> list[str]:
        leaves = ", ".join(map(self.operand, run.leaves))
        tensors = f"({leaves}, )" if run.leaves else "()"
        plan = self.name(run.plan, "plan")
        numbers = "".join(f"{self.operand(n)}, " for n in run.numbers)
        lines = [f"t{number} = {tensors}"]
        for leaf, _ in run.writes:
            lines += [
                f"s{number}_{leaf} = storage_of(t{number}[{leaf}])",
                f"w{number}_{leaf} = s{number}_{leaf}.version",
            ]
            if noted:
                lines.append(f"prefix.versions.append((s{number}_{leaf}, w{number}_{leaf}))")
                if self.stretch.read is not None:  # the call may not go on as it is replayed
                    lines.append(f"prefix.saving(t{number}[{leaf}])")
        segment = self.name(run.plan.segment, "segment")
        direct = self.name(run.plan.segment.run, "run")
        if run.draws is not None:
            draws = self.name(run.draws, "draws")
            notes = "prefix.generators" if noted else "None"
            call = (
                f"{direct}, *t{number}, {numbers}*given"
                if self.is_plain(run)
                else f"{plan}.run, t{number}, ({numbers}), given"
            )
            lines += [
                f"given, within = {draws}.again({notes})",
                f"outs = run_within(within, {call})",
            ]
        elif self.is_plain(run):
            lines += [f"{segment}.by_python += 1", f"outs = {direct}(*t{number}, {numbers})"]
        else:
            lines.append(f"outs = {plan}.run(t{number}, ({numbers}), ())")
        for leaf, count in run.writes:
            lines.append(f"s{number}_{leaf}.version = w{number}_{leaf} + {count}")
        make = self.name(maker(run.plan, _made_count(run), run.any_sizes), "make")
        lines.append(f"m{number} = {make}(outs, t{number})")
        if noted:
            lines += [f"made.append(m{number})", f"prefix.runs.append(({plan}, outs, t{number}))"]
        return lines

    def is_plain(self, run: Run) -> bool:
        """Whether the segment may run in the mode that calls are made in."""
        return self.stretch.plain and runs_as_it_is(run)

    def runs(self, noted: bool) -> list[str]:
        first = self.stretch.first_run
        return [
            line
            for i, run in enumerate(self.stretch.runs)
            for line in self.run(run, first + i, noted)
        ]

    def go(self) -> Any:
        return self.function("found, made, fixed, prefix", [*self.unpack(), *self.runs(True)])

    def value(self) -> Any:
        assert self.stretch.read is not None
        return self.function(
            "found, made, fixed", [*self.unpack(), *self.made(), f"return {self.read()}.item()"]
        )

    def read(self) -> str:
        assert self.stretch.read is not None
        return self.operand(self.stretch.read.operand)

    def build(self) -> Any:
        lines = [*self.unpack(), *self.made(), self.result()]
        return self.function("found, made, fixed", lines)

    def finish(self) -> Any:
        lines = [*self.unpack(), *self.runs(False), self.result()]
        uses = any("fixed_of" in line for line in lines)
        return self.function("found", ["fixed = {}", *lines] if uses else lines)

    def made(self) -> list[str]:
        first = self.stretch.first_run
        return [f"m{first + i} = made[{first + i}]" for i in range(len(self.stretch.runs))]

    def result(self) -> str:
        assert self.stretch.result is not None
        return f"return {compile_outline(self.stretch.result, self.operand, self.names)}"

    def function(self, parameters: str, lines: Sequence[str]) -> Any:
        body = [f" {line}" for line in (*lines, "return None")]
        text = "\n".join([f"def replay({parameters}):", *body])
        return made_of(text, "<mortice replay>", self.names, self.known)


def _made_count(run: Run) -> int:
    return max(run.made, default=-1) + 1


def _found(outline: Any) -> list[Found]:
    if isinstance(outline, Found):
        return [outline]
    if isinstance(outline, TensorOf):
        return [outline.tensor] if isinstance(outline.tensor, Found) else []
    if isinstance(outline, Container):
        return [f for item in outline.items for f in _found(item)]
    return []


def fixed_of(made: dict[Fixed, Any], fixed: Fixed) -> Any:
    """The call's one tensor with the memory that a constant had when it was made."""
    found = made.get(fixed)
    if found is None:
        found = made[fixed] = wrap(fixed.memory.copy(order="K"), fixed.tensor._t)
    return found


__all__ = ["CONVERT", "Node", "Operand", "edge", "fixed_of"]
