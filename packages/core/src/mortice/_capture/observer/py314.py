"""Python 3.14: borrowed locals, small numbers and common objects of their own, special methods by name."""

from __future__ import annotations

import dis
from collections.abc import Mapping
from types import CodeType
from typing import Any

from mortice._capture.observer import py313
from mortice._capture.observer.decode import Row, exception_rows
from mortice._capture.observer.rows import renamed

exception_table = exception_rows

_Index = Mapping[int, int]

#: LOAD_COMMON_CONSTANT's and LOAD_SPECIAL's numbers; other special methods are those of coroutines.
_COMMON = (AssertionError, NotImplementedError, tuple, all, any)
_SPECIAL = ("__enter__", "__exit__")


def _common(i: dis.Instruction, code: CodeType, index: _Index) -> tuple[str, Any]:
    assert i.arg is not None
    return ("load_const", _COMMON[i.arg]) if i.arg < len(_COMMON) else ("unsupported", None)


def _special(i: dis.Instruction, code: CodeType, index: _Index) -> tuple[str, Any]:
    assert i.arg is not None
    return ("load_special", _SPECIAL[i.arg]) if i.arg < len(_SPECIAL) else ("unsupported", None)


_GONE = (
    "RETURN_CONST",
    "BINARY_SUBSCR",
    "BUILD_CONST_KEY_MAP",
    "BEFORE_WITH",
    "LOAD_ASSERTION_ERROR",
)

TABLE: dict[str, str | Row] = {
    **{name: row for name, row in py313.TABLE.items() if name not in _GONE},
    "NOT_TAKEN": "nop",
    "POP_ITER": "pop_top",
    "LOAD_FAST_BORROW": py313.TABLE["LOAD_FAST"],
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": py313.TABLE["LOAD_FAST_LOAD_FAST"],
    "LOAD_SMALL_INT": renamed("load_const"),
    "LOAD_COMMON_CONSTANT": _common,
    "LOAD_SPECIAL": _special,
    "CALL_FUNCTION_EX": "call_function_ex_keywords",
    "WITH_EXCEPT_START": "with_except_leave_self",
}
