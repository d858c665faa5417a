"""Python 3.11: opcode names to handlers."""

from __future__ import annotations

import dis
from collections.abc import Mapping
from types import CodeType
from typing import Any

from mortice._capture.observer.decode import Row, exception_rows
from mortice._capture.observer.rows import (
    argument,
    argval,
    call_names,
    jump,
    named,
    operator_number,
    small,
)

exception_table = exception_rows


def _nothing(i: dis.Instruction, code: CodeType, index: Mapping[int, int]) -> tuple[str, Any]:
    return "nop", None


TABLE: dict[str, str | Row] = {
    **dict.fromkeys(("RESUME", "NOP", "CACHE", "PRECALL", "COPY_FREE_VARS"), _nothing),
    **small(
        "POP_TOP", "PUSH_NULL", "BINARY_SUBSCR", "STORE_SUBSCR", "DELETE_SUBSCR", "RETURN_VALUE",
        "UNARY_NOT", "UNARY_NEGATIVE", "UNARY_POSITIVE", "UNARY_INVERT", "GET_ITER",
        "LIST_TO_TUPLE", "GET_LEN", "PUSH_EXC_INFO", "POP_EXCEPT", "CHECK_EXC_MATCH",
        "LOAD_ASSERTION_ERROR", "BEFORE_WITH", "WITH_EXCEPT_START",
    ),
    **argval(
        "LOAD_FAST", "STORE_FAST", "DELETE_FAST", "LOAD_CONST", "MAKE_CELL", "LOAD_CLOSURE",
        "LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF", "STORE_GLOBAL", "DELETE_GLOBAL",
        "LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR", "IMPORT_NAME", "IMPORT_FROM",
        "COMPARE_OP",
    ),
    **argument(
        "COPY", "SWAP", "CALL", "CALL_FUNCTION_EX", "IS_OP", "CONTAINS_OP", "BUILD_TUPLE",
        "BUILD_LIST", "BUILD_SET", "BUILD_MAP", "BUILD_CONST_KEY_MAP", "BUILD_STRING",
        "BUILD_SLICE", "FORMAT_VALUE", "LIST_EXTEND", "LIST_APPEND", "SET_ADD", "SET_UPDATE",
        "MAP_ADD", "DICT_MERGE", "DICT_UPDATE", "UNPACK_SEQUENCE", "UNPACK_EX", "MAKE_FUNCTION",
        "RERAISE", "RAISE_VARARGS",
    ),
    "LOAD_GLOBAL": named("load_global", "load_global_call"),
    "KW_NAMES": call_names,
    "BINARY_OP": operator_number,
    "JUMP_FORWARD": jump("jump"),
    "JUMP_BACKWARD": jump("jump"),
    "JUMP_BACKWARD_NO_INTERRUPT": jump("jump"),
    "JUMP_IF_TRUE_OR_POP": jump("jump_if_true_or_pop"),
    "JUMP_IF_FALSE_OR_POP": jump("jump_if_false_or_pop"),
    "FOR_ITER": jump("for_iter"),
    **{
        f"POP_JUMP_{way}_IF_{what}": jump(f"pop_jump_if_{what.lower()}")
        for way in ("FORWARD", "BACKWARD")
        for what in ("TRUE", "FALSE", "NONE", "NOT_NONE")
    },
}  # fmt: skip
