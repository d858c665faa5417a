"""Code objects as lists of canonical instructions.

CPython's bytecode differs between versions; each version has one module with a table from its
opcode names to the handlers of ``handlers``. What is not in the table is not supported, and a
function that uses it is called as it is.
"""

from __future__ import annotations

import dis
import sys
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from types import CodeType
from typing import Any

#: Versions with a table.
VERSIONS = ((3, 10), (3, 11), (3, 12), (3, 13), (3, 14))

_GENERATORS = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR


class Unsupported(Exception):
    """A code object that the observer cannot run; the text says why."""


@dataclass(frozen=True)
class Handler:
    """One row of the exception table, in instruction numbers."""

    start: int
    end: int
    target: int
    depth: int
    keep_offset: bool


@dataclass(frozen=True)
class Program:
    """A decoded code object: (handler name, argument) by number, and where its lines begin."""

    instructions: tuple[tuple[str, Any], ...]
    handlers: tuple[Handler, ...]
    starts: tuple[int, ...]
    lines: tuple[int, ...]

    def line(self, number: int) -> int:
        """The source line of instruction ``number``."""
        at = bisect_right(self.starts, number) - 1
        return self.lines[at] if at >= 0 else 0


#: ``row(instruction, code, index)``: the canonical (handler name, argument); ``index`` maps byte
#: offsets to instruction numbers.
Row = Callable[[dis.Instruction, CodeType, Mapping[int, int]], tuple[str, Any]]

#: A program, or why there is none: its text, as an exception would keep the frames it passed alive.
_PROGRAMS: dict[CodeType, Program | str] = {}


def program(code: CodeType) -> Program:
    """Decode a code object, once. Raises Unsupported."""
    found = _PROGRAMS.get(code)
    if found is None:
        try:
            found = _decode(code)
        except Unsupported as error:
            found = str(error)
        _PROGRAMS[code] = found
    if isinstance(found, str):
        raise Unsupported(found)
    return found


def support() -> str | None:
    """Why calls cannot be observed on this interpreter; None if they can."""
    try:
        table()
    except Unsupported as error:
        return str(error)
    return None


def table() -> Any:
    """The module of this interpreter's opcode table, or Unsupported."""
    version = sys.version_info[:2]
    if version not in VERSIONS or sys.implementation.name != "cpython":
        raise Unsupported(
            f"observing calls is not supported on {sys.implementation.name} "
            f"{version[0]}.{version[1]}"
        )
    return import_module(f"mortice._capture.observer.py{version[0]}{version[1]}")


def _decode(code: CodeType) -> Program:
    if code.co_flags & _GENERATORS:
        kind = "generator" if code.co_flags & CO_GENERATOR else "coroutine"
        raise Unsupported(f"{code.co_name} is a {kind}")
    rows = table()
    listed = [i for i in dis.get_instructions(code) if i.opname != "EXTENDED_ARG"]
    prologue = getattr(rows, "prologue", None)
    decoded: list[tuple[str, Any]] = [] if prologue is None else prologue(code)
    first = len(decoded)
    index = _numbers(listed, code, first)
    starts: list[int] = []
    lines: list[int] = []
    for number, instruction in enumerate(listed, first):
        row = rows.TABLE.get(instruction.opname)
        if row is None:
            raise Unsupported(f"{code.co_name} uses {instruction.opname}")
        made = (row, None) if isinstance(row, str) else row(instruction, code, index)
        if made[0] == "unsupported":
            raise Unsupported(f"{code.co_name} uses {instruction.opname} {instruction.arg}")
        decoded.append(made)
        line = _line_start(instruction)
        if line is not None:
            starts.append(number)
            lines.append(line)
    return Program(
        tuple(decoded), tuple(rows.exception_table(code, index)), tuple(starts), tuple(lines)
    )


def _line_start(instruction: dis.Instruction) -> int | None:
    starts = instruction.starts_line
    if starts is True:  # 3.13: a flag, beside the number
        return getattr(instruction, "line_number", None)
    return None if starts is False else starts


def _numbers(listed: list[dis.Instruction], code: CodeType, first: int) -> dict[int, int]:
    """Byte offset -> number of the instruction there; prefixes belong to what follows them."""
    index: dict[int, int] = {}
    offset = 0
    for number, instruction in enumerate(listed, first):
        while offset <= instruction.offset:
            index[offset] = number
            offset += 2
    while offset <= len(code.co_code):
        index[offset] = first + len(listed)
        offset += 2
    return index


def exception_rows(code: CodeType, index: Mapping[int, int]) -> list[Handler]:
    """The exception table of 3.11 and later; later rows are no more specific than earlier ones."""
    parse: Any = getattr(dis, "_parse_exception_table")  # noqa: B009  not in dis's stubs
    return [
        Handler(index[e.start], index[e.end], index[e.target], e.depth, bool(e.lasti))
        for e in parse(code)
    ]
