"""Machine code for programs: loading it, and the addresses of BLAS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mortice_llvm import blas
from mortice_llvm.runtime.library import Library, load

from ..native.rows import Form, form_of
from ..native.runner import runner
from ..plan import Plan
from . import heap
from .program import Program, Table, table_of


class NoCode(Exception):
    """What a plan calls is not there: its machine code, or a routine of BLAS."""


#: Code in this process by its key: graphs that differ in sizes alone share it.
_LIBRARIES: dict[bytes, Library] = {}


def load_code(key: bytes, make_text: Callable[[Any], str] | None) -> Library:
    """The code for ``key``; without ``make_text`` only from a cache, else NoCode."""
    found = _LIBRARIES.get(key)
    if found is None:

        def text(target: Any) -> str:
            if make_text is None:
                raise NoCode
            return make_text(target)

        found = _LIBRARIES[key] = load(key, text)
    return found


def program_of(plan: Plan, library: Library, constants: tuple[Any, ...]) -> Program:
    """A program that runs ``plan`` with loaded code; NoCode where numpy has lost a routine of BLAS
    since the plan was made.
    """
    form = form_of(plan)
    table = table_of(plan) if form is None else form.table
    return _program(lambda: plan, table, form, library, constants)


def program_found(plan: Callable[[], Plan], form: Form, library: Library) -> Program:
    """The same for a form that was kept; ``plan`` gives what it is of, if somebody asks."""
    return _program(plan, form.table, form, library, ())


def _program(
    plan: Callable[[], Plan], table: Table, form: Form | None, library: Library,
    constants: tuple[Any, ...],
) -> Program:  # fmt: skip
    heap.keep_freed_memory()
    program = Program(plan, table, library, _addresses(table), constants)
    program.form = form
    program.fast = runner(program, form) or program
    return program


def _addresses(table: Table) -> dict[str, int]:
    """Where a plan's routines of BLAS are, and those for its threads (0: none)."""
    found = blas.thread_functions() if table.blas else None
    addresses: dict[str, int] = dict(zip(("get_threads", "set_threads"), found or (0, 0)))
    for name, _ in table.blas:
        if name not in addresses:
            routine = blas.routine(name)
            if routine is None:
                raise NoCode
            addresses[name] = routine.address
    return addresses
