"""Instructions of control flow: jumps, loops, returns, exceptions and context managers."""

from __future__ import annotations

from typing import Any

from mortice._autograd.grad_mode import set_grad_enabled
from mortice._capture.observer import attributes, framework, operators
from mortice._capture.observer.builtin_calls import call_builtin
from mortice._capture.observer.frame import NULL, POPPED, RETURN, Frame

# -- jumps -------------------------------------------------------------------------------------------


def jump(f: Frame, target: int) -> None:
    f.pc = target


def pop_jump_if_true(f: Frame, target: int) -> None:
    if operators.truth(f.watch, f.stack.pop()):
        f.pc = target


def pop_jump_if_false(f: Frame, target: int) -> None:
    if not operators.truth(f.watch, f.stack.pop()):
        f.pc = target


def pop_jump_if_none(f: Frame, target: int) -> None:
    if operators.is_same(f.watch, f.stack.pop(), None):
        f.pc = target


def pop_jump_if_not_none(f: Frame, target: int) -> None:
    if not operators.is_same(f.watch, f.stack.pop(), None):
        f.pc = target


def jump_if_true_or_pop(f: Frame, target: int) -> None:
    if operators.truth(f.watch, f.stack[-1]):
        f.pc = target
    else:
        f.stack.pop()


def jump_if_false_or_pop(f: Frame, target: int) -> None:
    if not operators.truth(f.watch, f.stack[-1]):
        f.pc = target
    else:
        f.stack.pop()


# -- loops -------------------------------------------------------------------------------------------


def get_iter(f: Frame, _: Any) -> None:
    f.stack.append(operators.iterate(f.watch, f.stack.pop()))


def for_iter(f: Frame, target: int) -> None:
    """3.11: at the end the iterator is popped."""
    try:
        f.stack.append(operators.advance(f.watch, f.stack[-1]))
    except StopIteration:
        f.stack.pop()
        f.pc = target


def for_iter_keep(f: Frame, target: int) -> None:
    """3.12 and 3.13: at the end the iterator stays for END_FOR; a value stands in for the item."""
    try:
        f.stack.append(operators.advance(f.watch, f.stack[-1]))
    except StopIteration:
        f.stack.append(None)
        f.pc = target


def end_for(f: Frame, _: Any) -> None:
    """3.12: pops the item's place and the iterator."""
    del f.stack[-2:]


def get_len(f: Frame, _: Any) -> None:
    f.stack.append(call_builtin(f.watch, len, (f.stack[-1],), {}))


# -- returns -----------------------------------------------------------------------------------------


def return_value(f: Frame, _: Any) -> Any:
    f.result = f.stack.pop()
    return RETURN


def return_const(f: Frame, value: Any) -> Any:
    f.result = value
    return RETURN


# -- exceptions --------------------------------------------------------------------------------------


def push_exc_info(f: Frame, _: Any) -> None:
    error = f.stack.pop()
    f.stack += (NULL, error)
    f.active += 1
    f.watch.fresh(error)


def pop_except(f: Frame, _: Any) -> Any:
    f.stack.pop()
    f.active -= 1
    return POPPED


def check_exc_match(f: Frame, _: Any) -> None:
    wanted = f.stack.pop()
    f.stack.append(_matches(f, f.stack[-1], wanted))


def _matches(f: Frame, error: BaseException, wanted: Any) -> bool:
    if type(wanted) is tuple:
        f.watch.entries(wanted)
        return any(_matches(f, error, w) for w in wanted)
    if not issubclass(type(wanted), type) or BaseException not in _mro(wanted):
        raise TypeError("catching classes that do not inherit from BaseException is not allowed")
    return wanted in _mro(type(error))


_mro = type.__dict__["__mro__"].__get__


def reraise(f: Frame, _: Any) -> None:
    f.reraising = True
    raise f.stack.pop()


def raise_varargs(f: Frame, count: int) -> None:
    if count == 0:
        raise  # noqa: PLE0704  the loop runs inside the except block
    cause = f.stack.pop() if count == 2 else None
    error: Any = f.stack.pop()
    if type(error) is type and BaseException in _mro(error):
        error = f.watch.call(error, ())
    if type(cause) is type and BaseException in _mro(cause):
        cause = f.watch.call(cause, ())
    if not issubclass(type(error), BaseException):
        raise TypeError("exceptions must derive from BaseException")
    raised: Any = error
    if count == 2:
        raised_from: Any = cause
        raise raised from raised_from
    raise raised


def load_assertion_error(f: Frame, _: Any) -> None:
    f.stack.append(AssertionError)


# -- context managers --------------------------------------------------------------------------------


def before_with(f: Frame, _: Any) -> None:
    manager = f.stack.pop()
    leave = _method(f, manager, "__exit__")
    enter = _method(f, manager, "__enter__")
    f.stack.append(leave)
    f.stack.append(_run(f, enter, ()))


def _method(f: Frame, manager: Any, name: str) -> Any:
    """The bound special method; TypeError where there is none."""
    found = attributes.special(f.watch, manager, name)
    if found is not None:
        return found
    if not hasattr(type(manager), name):
        raise TypeError(
            f"'{type(manager).__name__}' object does not support the context manager protocol"
        )
    f.watch.unknown(f"enters a {type(manager).__name__}")
    return getattr(manager, name)


def _run(f: Frame, method: Any, args: tuple[Any, ...]) -> Any:
    return method(*args) if _know(f, method) else f.watch.call(method, args)


def _know(f: Frame, method: Any) -> bool:
    """Whether it is a method of one of the framework's mode managers, which is then guarded."""
    owner = getattr(method, "__self__", None)
    if not framework.is_context(type(owner)):
        return False
    if f.watch.is_outer(owner):
        _read_context(f, owner)
    return True


def _read_context(f: Frame, manager: Any) -> None:
    """Guard what entering and leaving one of the framework's mode managers depends on."""
    names = ["mode", "device", "dtype", "enabled"]
    if type(manager) is set_grad_enabled:
        names.append("previous")  # the others note it when they are entered
    for name in names:
        if hasattr(manager, name):
            attributes.load(f.watch, manager, name)


def with_except_start(f: Frame, _: Any) -> None:
    _leave(f, f.stack[-4])


def with_except_leave_self(f: Frame, _: Any) -> None:
    """3.14: below the method lies what it is bound to, or NULL."""
    _leave(f, f.stack[-5])


def _leave(f: Frame, leave: Any) -> None:
    error = f.stack[-1]
    f.stack.append(_run(f, leave, (type(error), error, error.__traceback__)))


def load_special(f: Frame, name: str) -> None:
    """3.14: the manager -> its method, bound, and NULL; ``__enter__`` is called next."""
    method = _method(f, f.stack.pop(), name)
    if name == "__enter__":
        _know(f, method)
    f.stack += (method, NULL)


ALL = (
    jump, pop_jump_if_true, pop_jump_if_false, pop_jump_if_none, pop_jump_if_not_none,
    jump_if_true_or_pop, jump_if_false_or_pop, get_iter, for_iter, for_iter_keep, end_for,
    get_len, return_value, return_const, push_exc_info, pop_except, check_exc_match, reraise,
    raise_varargs, load_assertion_error, before_with, with_except_start,
    with_except_leave_self, load_special,
)  # fmt: skip
