"""Instructions of Python 3.10: blocks that are entered and left, and calls without a null.

Where 3.11 has a table of exception handlers, 3.10 has instructions that put a handler on a stack of
blocks and take it off again. A handler finds six values on the value stack: three for the exception
that was being handled before, which nothing here looks at, then traceback, exception and class.
"""

from __future__ import annotations

from typing import Any

from mortice._capture.observer.frame import HANDLING, POPPED, Frame
from mortice._capture.observer.handlers_data import _call, _call_ex, make_function  # pyright: ignore[reportPrivateUsage]
from mortice._capture.observer.handlers_flow import _matches, _method, _run  # pyright: ignore[reportPrivateUsage]

# -- blocks ------------------------------------------------------------------------------------------


def setup_finally(f: Frame, target: int) -> None:
    f.blocks.append((target, len(f.stack)))


def setup_with(f: Frame, target: int) -> None:
    manager = f.stack.pop()
    leave = _method(f, manager, "__exit__")
    enter = _method(f, manager, "__enter__")
    f.stack.append(leave)
    result = _run(f, enter, ())
    f.blocks.append((target, len(f.stack)))
    f.stack.append(result)


def pop_block(f: Frame, _: Any) -> None:
    f.blocks.pop()


def pop_handler(f: Frame, _: Any) -> Any:
    assert f.blocks.pop()[0] is HANDLING
    f.pop_many(3)
    f.active -= 1
    return POPPED


def with_except_leave(f: Frame, _: Any) -> None:
    trace, error, kind = f.stack[-3:]
    f.stack.append(_run(f, f.stack[-7], (kind, error, trace)))


def jump_if_not_exc_match(f: Frame, target: int) -> None:
    _, wanted = f.pop_many(2)
    if not _matches(f, f.stack[-2], wanted):
        f.pc = target


def reraise_handled(f: Frame, _: Any) -> None:
    f.reraising = True
    raise f.pop_many(3)[1]


# -- calls -------------------------------------------------------------------------------------------


def call_function(f: Frame, count: int) -> None:
    args = f.pop_many(count)
    _call(f, f.stack.pop(), args, ())


def call_function_kw(f: Frame, count: int) -> None:
    names = f.stack.pop()
    args = f.pop_many(count)
    _call(f, f.stack.pop(), args, names)


def call_function_unpacked(f: Frame, flags: int) -> None:
    keywords = f.stack.pop() if flags & 1 else {}
    args = f.stack.pop()
    _call_ex(f, f.stack.pop(), args, keywords)


def make_named_function(f: Frame, flags: int) -> None:
    name = f.stack.pop()
    make_function(f, flags)
    f.stack[-1].__qualname__ = name


# -- the value stack ---------------------------------------------------------------------------------


def rotate(f: Frame, count: int) -> None:
    """The top goes below the ``count - 1`` values under it."""
    value = f.stack.pop()
    f.stack.insert(len(f.stack) - count + 1, value)


def copy_two(f: Frame, _: Any) -> None:
    f.stack += f.stack[-2:]


ALL = (
    setup_finally, setup_with, pop_block, pop_handler, with_except_leave, jump_if_not_exc_match,
    reraise_handled, call_function, call_function_kw, call_function_unpacked, make_named_function,
    rotate, copy_two,
)  # fmt: skip
#: Those that see traced numbers on the stack.
AWARE = frozenset((call_function, call_function_kw, rotate, copy_two))
