"""Python 3.13: nulls follow what is called, pairs of locals, conversions to bool and text of their own."""

from __future__ import annotations

import dis
from collections.abc import Mapping
from types import CodeType
from typing import Any

from mortice._capture.observer import py312
from mortice._capture.observer.decode import Row, exception_rows
from mortice._capture.observer.rows import argument, argval, small

exception_table = exception_rows

_Index = Mapping[int, int]


def _global(i: dis.Instruction, code: CodeType, index: _Index) -> tuple[str, Any]:
    assert i.arg is not None
    return ("load_global_null" if i.arg & 1 else "load_global"), code.co_names[i.arg >> 1]


def _attribute(i: dis.Instruction, code: CodeType, index: _Index) -> tuple[str, Any]:
    assert i.arg is not None
    return ("load_method_null" if i.arg & 1 else "load_attr"), code.co_names[i.arg >> 1]


def _super_attribute(i: dis.Instruction, code: CodeType, index: _Index) -> tuple[str, Any]:
    assert i.arg is not None
    return ("load_super_method_null" if i.arg & 1 else "load_super"), code.co_names[i.arg >> 2]


def _comparison(i: dis.Instruction, code: CodeType, index: _Index) -> tuple[str, Any]:
    assert i.arg is not None
    return ("compare_bool" if i.arg & 16 else "compare_op"), dis.cmp_op[i.arg >> 5]


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


def _renamed(handler: str) -> Row:
    return lambda i, code, index: (handler, i.arg)


TABLE: dict[str, str | Row] = {
    **{name: row for name, row in py312.TABLE.items() if name not in ("KW_NAMES", "FORMAT_VALUE")},
    **small("TO_BOOL", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC"),
    **argument("CONVERT_VALUE", "CALL_KW", "SET_FUNCTION_ATTRIBUTE"),
    **argval("LOAD_FAST_AND_CLEAR"),
    "LOAD_FAST": _local,
    "LOAD_GLOBAL": _global,
    "LOAD_ATTR": _attribute,
    "LOAD_SUPER_ATTR": _super_attribute,
    "COMPARE_OP": _comparison,
    "CALL": _renamed("call_self"),
    "CALL_FUNCTION_EX": _renamed("call_function_ex_self"),
    "MAKE_FUNCTION": _renamed("make_function_bare"),
    "END_FOR": _renamed("pop_top"),
    "LOAD_FAST_LOAD_FAST": _pair("load_fast_pair"),
    "STORE_FAST_LOAD_FAST": _pair("store_fast_load_fast"),
    "STORE_FAST_STORE_FAST": _pair("store_fast_pair"),
}
