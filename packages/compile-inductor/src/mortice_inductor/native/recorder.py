"""The native recorder: one text of machine code, and what is made of it.

``NativeRecorder`` says what each form means; all fall back on Python's for whatever is unusual.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from mortice.native import NativeRecorder, recording_layout
from mortice_llvm.cpython import Code, give_back, make, take_over, unsupported

from .calling import Calling
from .finishing import Finishing
from .recording import NUMBERS, TENSORS, Recording

#: Kinds of arguments that the text is written for; see core's ``Call.kinds``.
_KINDS = frozenset(TENSORS + NUMBERS + "S")


@cache
def native_recorder() -> NativeRecorder | None:
    """All forms; None in interpreters whose objects lie elsewhere."""
    if unsupported() is not None:
        return None
    ends = make(_text(), "finish", entry="finish")
    quick = make(_text(), "quick", entry="quick")
    return NativeRecorder(kernel, ends, recorded_call, quick, _take_over, _give_back)


@cache
def _text() -> Code:
    code = Code("kernel", reserved=4)
    for part in (Recording, Finishing, Calling):
        part(code).write()
    return code


def kernel(call: Any, kinds: str, python: Callable[..., Any]) -> Callable[..., Any]:
    """``python``, or a native function of the same meaning that falls back on it."""
    if not set(kinds) <= _KINDS:
        return python
    return make(
        _text(), "recording", first=(id(python), id(call)), kept=(python, call), entry="kernel"
    )


def recorded_call(
    fn: Any, trees: list[Any], python: Callable[..., Any], raised: Callable[..., Any]
) -> Callable[..., Any]:
    """``python``, or a native function that does the same with ``fn`` and its trees.

    Before Python 3.11 another thread may be between reading and writing a count of calls.
    """
    if sys.version_info < (3, 11):
        return python
    kept = (fn, trees, python, raised)
    first = [id(x) for x in kept]
    return make(_text(), "recorded call", first=first, kept=kept, entry="call")


def _take_over() -> None:
    layout = recording_layout()
    for stub in layout.stubs:
        take_over(stub, _text(), "operator")
    take_over(layout.types["compiled"].__call__, _text(), "compiled")


def _give_back() -> None:
    layout = recording_layout()
    for function in (*layout.stubs, layout.types["compiled"].__call__):
        give_back(function)
