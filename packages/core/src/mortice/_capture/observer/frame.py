"""One observed frame: a value stack, locals, cells, and the loop over its instructions.

Exceptions work as in CPython because CPython does the work: the instructions of an ``except`` block
run inside a real one, so ``sys.exc_info()``, bare ``raise`` and ``__context__`` are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import CellType, FunctionType
from typing import Any

from mortice._capture.observer import tracebacks
from mortice._capture.observer.decode import Handler, program
from mortice._capture.observer.numbers import settle, settled
from mortice._capture.observer.watch import Place, Watch

#: Marks the place of a null on the value stack.
NULL: Any = type("NULL", (), {"__repr__": lambda self: "NULL"})()
#: What a handler returns to leave the loop; everything else goes on.
RETURN: Any = object()
POPPED: Any = object()


#: In place of a target on the stack of blocks: an exception is being handled.
HANDLING: Any = None


class Frame:
    """The execution of one call of a Python function under a Watch."""

    __slots__ = (
        "active", "at", "blocks", "cells", "code", "function", "instructions", "kw_names", "level", "locals",
        "pc", "program", "reraising", "result", "stack", "traced", "watch",
    )  # fmt: skip

    def __init__(
        self,
        watch: Watch,
        function: FunctionType,
        values: dict[str, Any],
        instructions: Sequence[tuple[Any, Any, bool]],
    ) -> None:
        self.watch = watch
        self.function = function
        self.code = function.__code__
        self.program = program(self.code)
        #: (handler, argument, whether the handler sees traced numbers)
        self.instructions = instructions
        self.stack: list[Any] = []
        #: Whether traced numbers may be on the stack.
        self.traced = False
        self.locals = values
        self.cells: dict[str, CellType] = {}
        if function.__closure__:
            self.cells.update(zip(self.code.co_freevars, function.__closure__))
        self.kw_names: tuple[str, ...] = ()
        self.pc = 0
        self.at = 0
        #: Exceptions pushed by PUSH_EXC_INFO and not yet popped; the depth of nested loops.
        self.active = 0
        self.level = 0
        #: Python 3.10: (target or HANDLING, depth of the value stack) of what was entered.
        self.blocks: list[tuple[Any, int]] = []
        self.reraising = False
        self.result: Any = None

    def run(self) -> Any:
        """Execute to the end: the function's result, or its exception."""
        frames = self.watch.frames
        frames.append(self)
        try:
            self.loop()
            return self.result
        finally:
            frames.pop()
            self.locals = {}
            self.stack = []
            self.cells = {}

    def loop(self) -> Any:
        while True:
            try:
                return self.steps()
            except BaseException as error:
                handler = self.handler_for(error)
                if handler is None:
                    raise error  # noqa: TRY201  in 3.10 a bare one has the traceback that was caught
                self.enter(handler, error)
                self.level += 1
                signal = self.loop()  # here ``error`` is the exception being handled
                self.level -= 1
                if signal is RETURN:
                    return RETURN
            if self.level > self.active:
                return POPPED

    def steps(self) -> Any:
        """Execute until the function returns or an exception was popped."""
        instructions = self.instructions
        while True:
            self.at = self.pc
            handler, argument, aware = instructions[self.pc]
            if self.traced and not aware:
                self.stack = settled(self.watch, self.stack)
                self.traced = False
            self.pc += 1
            signal = handler(self, argument)
            if signal is not None:
                return signal

    def handler_for(self, error: BaseException) -> Handler | None:
        """The row of the exception table for the present instruction; mends the traceback."""
        if not self.reraising:
            tracebacks.mend(error, self)
        else:
            tracebacks.drop_ours(error)
        self.reraising = False
        while self.blocks:
            target, depth = self.blocks.pop()
            if target is not HANDLING:
                return Handler(0, 0, target, depth, False)
            self.active -= 1
        at = self.at
        for row in self.program.handlers:
            if row.start <= at < row.end:
                return row
        return None

    def enter(self, handler: Handler, error: BaseException) -> None:
        del self.stack[handler.depth :]
        if handler.end == 0:
            self.stack += (NULL, NULL, NULL, error.__traceback__, error, type(error))
            self.blocks.append((HANDLING, 0))
            self.active += 1
            self.watch.fresh(error)
            self.pc = handler.target
            return
        if handler.keep_offset:
            self.stack.append(self.at)
        self.stack.append(error)
        self.kw_names = ()
        self.pc = handler.target

    def place(self) -> Place:
        """(file, line, function) of the instruction being executed."""
        return self.code.co_filename, self.program.line(self.at), self.code.co_name

    def local_values(self) -> dict[str, Any]:
        """What ``locals()`` gives: locals, and cells that have a value."""
        values = {name: settle(self.watch, x) for name, x in self.locals.items()}
        for name, cell in self.cells.items():
            try:
                values[name] = cell.cell_contents
            except ValueError:
                values.pop(name, None)
        return values

    # -- the value stack -----------------------------------------------------------------------

    def pop_many(self, count: int) -> list[Any]:
        """The top ``count`` values, the deepest first."""
        if not count:
            return []
        values = self.stack[-count:]
        del self.stack[-count:]
        return values
