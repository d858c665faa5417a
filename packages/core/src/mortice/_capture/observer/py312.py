"""Python 3.12: comprehensions run in their function, jumps without direction, methods by LOAD_ATTR."""

from __future__ import annotations

import dis
from collections.abc import Mapping
from types import CodeType
from typing import Any

from mortice._capture.observer import py311
from mortice._capture.observer.decode import Row, exception_rows
from mortice._capture.observer.rows import argval, comparison, jump, named, small

exception_table = exception_rows

_Index = Mapping[int, int]


#: CALL_INTRINSIC_1's numbers; the others belong to generators, classes and ``import *``.
_INTRINSICS = {5: "unary_positive", 6: "list_to_tuple"}


def intrinsic(i: dis.Instruction, code: CodeType, index: _Index) -> tuple[str, Any]:
    assert i.arg is not None
    return _INTRINSICS.get(i.arg, "unsupported"), None


_GONE = {"PRECALL", "LOAD_METHOD", "JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP"}

TABLE: dict[str, str | Row] = {
    **{
        name: row
        for name, row in py311.TABLE.items()
        if name not in _GONE and "WARD_IF_" not in name
    },
    **small("BINARY_SLICE", "STORE_SLICE", "END_FOR"),
    **argval("LOAD_FAST_AND_CLEAR", "RETURN_CONST"),
    "LOAD_FAST_CHECK": lambda i, code, index: ("load_fast", i.argval),
    "LOAD_ATTR": named("load_attr", "load_method"),
    "LOAD_SUPER_ATTR": named("load_super", "load_super_method", 2),
    "COMPARE_OP": comparison(4),
    "CALL_INTRINSIC_1": intrinsic,
    "FOR_ITER": jump("for_iter_keep"),
    **{
        f"POP_JUMP_IF_{what}": jump(f"pop_jump_if_{what.lower()}")
        for what in ("TRUE", "FALSE", "NONE", "NOT_NONE")
    },
}
