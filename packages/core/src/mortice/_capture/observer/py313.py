"""Python 3.13: nulls follow what is called, pairs of locals, conversions to bool and text of their own."""

from __future__ import annotations

import dis
from collections.abc import Mapping
from types import CodeType
from typing import Any

from mortice._capture.observer import py312
from mortice._capture.observer.decode import Row, exception_rows
from mortice._capture.observer.rows import argument, comparison, named, renamed, small

exception_table = exception_rows

_Index = Mapping[int, int]


def _local(i: dis.Instruction, code: CodeType, index: _Index) -> tuple[str, Any]:
    """Cells for closures are loaded as locals are."""
    name = i.argval
    return ("load_closure" if name in code.co_cellvars + code.co_freevars else "load_fast"), name


def _pair(handler: str) -> Row:
    def row(i: dis.Instruction, code: CodeType, index: _Index) -> tuple[str, Any]:
        assert i.arg is not None
        cells = tuple(n for n in code.co_cellvars if n not in code.co_varnames)
        names = code.co_varnames + cells + code.co_freevars
        return handler, (names[i.arg >> 4], names[i.arg & 15])

    return row


TABLE: dict[str, str | Row] = {
    **{name: row for name, row in py312.TABLE.items() if name not in ("KW_NAMES", "FORMAT_VALUE")},
    **small("TO_BOOL", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC"),
    **argument("CONVERT_VALUE", "CALL_KW", "SET_FUNCTION_ATTRIBUTE"),
    "LOAD_FAST": _local,
    "LOAD_GLOBAL": named("load_global", "load_global_null"),
    "LOAD_ATTR": named("load_attr", "load_method_null"),
    "LOAD_SUPER_ATTR": named("load_super", "load_super_method_null", 2),
    "COMPARE_OP": comparison(5, as_bool=16),
    "CALL": renamed("call_self"),
    "CALL_FUNCTION_EX": renamed("call_function_ex_self"),
    "MAKE_FUNCTION": renamed("make_function_bare"),
    "END_FOR": renamed("pop_top"),
    "LOAD_FAST_LOAD_FAST": _pair("load_fast_pair"),
    "STORE_FAST_LOAD_FAST": _pair("store_fast_load_fast"),
    "STORE_FAST_STORE_FAST": _pair("store_fast_pair"),
}
