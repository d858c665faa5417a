"""What the opcode tables of the versions are written with."""

from __future__ import annotations

import dis
from collections.abc import Mapping
from types import CodeType
from typing import Any

from mortice._capture.observer.decode import Row

_Index = Mapping[int, int]


def small(*names: str) -> dict[str, str | Row]:
    """Opcodes without an argument, whose handler has their name."""
    return {name: name.lower() for name in names}


def argval(*names: str) -> dict[str, str | Row]:
    """Opcodes whose handler takes the decoded argument: a name, a constant, a comparison."""

    def row(i: dis.Instruction, code: CodeType, index: _Index) -> tuple[str, Any]:
        return i.opname.lower(), i.argval

    return dict.fromkeys(names, row)


def argument(*names: str) -> dict[str, str | Row]:
    """Opcodes whose handler takes the number."""

    def row(i: dis.Instruction, code: CodeType, index: _Index) -> tuple[str, Any]:
        return i.opname.lower(), i.arg

    return dict.fromkeys(names, row)


def jump(handler: str) -> Row:
    """A jump; the handler takes the number of the target."""

    def row(i: dis.Instruction, code: CodeType, index: _Index) -> tuple[str, Any]:
        return handler, index[i.argval]

    return row


def named(plain: str, marked: str, shift: int = 1) -> Row:
    """A name whose number is shifted: the lowest bit chooses the handler."""

    def row(i: dis.Instruction, code: CodeType, index: _Index) -> tuple[str, Any]:
        assert i.arg is not None
        return (marked if i.arg & 1 else plain), code.co_names[i.arg >> shift]

    return row


def comparison(shift: int, as_bool: int = 0) -> Row:
    """A comparison whose number is shifted; the bit ``as_bool`` asks for the truth of the result."""

    def row(i: dis.Instruction, code: CodeType, index: _Index) -> tuple[str, Any]:
        assert i.arg is not None
        return ("compare_bool" if i.arg & as_bool else "compare_op"), dis.cmp_op[i.arg >> shift]

    return row


def renamed(handler: str) -> Row:
    """An opcode of another name or meaning; its handler takes the number."""
    return lambda i, code, index: (handler, i.arg)


def call_names(i: dis.Instruction, code: CodeType, index: _Index) -> tuple[str, Any]:
    assert i.arg is not None
    return "kw_names", code.co_consts[i.arg]


#: BINARY_OP's numbers; the in-place forms follow in the same order.
OPERATORS = ("+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^")


def operator_number(i: dis.Instruction, code: CodeType, index: _Index) -> tuple[str, Any]:
    assert i.arg is not None
    count = len(OPERATORS)
    if i.arg < count:
        return "binary_op", OPERATORS[i.arg]
    if i.arg < 2 * count:
        return "inplace_op", OPERATORS[i.arg - count]
    return "binary_subscr", None  # 3.14 gives subscripts a number, too
