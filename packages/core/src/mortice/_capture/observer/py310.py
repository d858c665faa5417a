"""Python 3.10: an opcode for each operator, a stack of blocks, cells that are there from the start."""

from __future__ import annotations

from collections.abc import Mapping
from types import CodeType
from typing import Any

from mortice._capture.observer import py311
from mortice._capture.observer.decode import Handler, Row
from mortice._capture.observer.rows import argument, argval, jump, renamed, small


def exception_table(code: CodeType, index: Mapping[int, int]) -> list[Handler]:
    """None: handlers are put on the stack of blocks as the function runs."""
    return []


def prologue(code: CodeType) -> list[tuple[str, Any]]:
    """What later versions have instructions for: variables of inner functions get their cells."""
    return [("make_cell", name) for name in code.co_cellvars]


def _as(handler: str, value: Any = None) -> Row:
    return lambda i, code, index: (handler, value)


_OPERATORS = {
    "ADD": "+", "AND": "&", "FLOOR_DIVIDE": "//", "LSHIFT": "<<", "MATRIX_MULTIPLY": "@", "MULTIPLY": "*",
    "MODULO": "%", "OR": "|", "POWER": "**", "RSHIFT": ">>", "SUBTRACT": "-", "TRUE_DIVIDE": "/", "XOR": "^",
}  # fmt: skip
_GONE = (
    "RESUME", "CACHE", "PRECALL", "COPY_FREE_VARS", "PUSH_NULL", "PUSH_EXC_INFO", "POP_EXCEPT",
    "CHECK_EXC_MATCH", "BEFORE_WITH", "WITH_EXCEPT_START", "MAKE_CELL", "COPY", "SWAP", "CALL",
    "CALL_FUNCTION_EX", "MAKE_FUNCTION", "RERAISE", "LOAD_GLOBAL", "KW_NAMES", "BINARY_OP",
)  # fmt: skip


TABLE: dict[str, str | Row] = {
    **{
        name: row
        for name, row in py311.TABLE.items()
        if name not in _GONE and "WARD_IF_" not in name and "BACKWARD" not in name
    },
    **{f"BINARY_{name}": _as("binary_op", sign) for name, sign in _OPERATORS.items()},
    **{f"INPLACE_{name}": _as("inplace_op", sign) for name, sign in _OPERATORS.items()},
    **small("POP_BLOCK"),
    **argval("LOAD_GLOBAL"),
    **argument("CALL_FUNCTION", "CALL_FUNCTION_KW"),
    "CALL_METHOD": renamed("call"),
    "CALL_FUNCTION_EX": renamed("call_function_unpacked"),
    "MAKE_FUNCTION": renamed("make_named_function"),
    "ROT_TWO": _as("rotate", 2),
    "ROT_THREE": _as("rotate", 3),
    "ROT_FOUR": _as("rotate", 4),
    "ROT_N": renamed("rotate"),
    "DUP_TOP": _as("copy", 1),
    "DUP_TOP_TWO": _as("copy_two"),
    "SETUP_FINALLY": jump("setup_finally"),
    "SETUP_WITH": jump("setup_with"),
    "POP_EXCEPT": _as("pop_handler"),
    "RERAISE": _as("reraise_handled"),
    "WITH_EXCEPT_START": _as("with_except_leave"),
    "JUMP_IF_NOT_EXC_MATCH": jump("jump_if_not_exc_match"),
    "JUMP_ABSOLUTE": jump("jump"),
    "POP_JUMP_IF_TRUE": jump("pop_jump_if_true"),
    "POP_JUMP_IF_FALSE": jump("pop_jump_if_false"),
}
