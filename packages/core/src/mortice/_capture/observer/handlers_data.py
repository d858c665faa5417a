"""Instructions on the value stack, variables, attributes, operators and calls."""

from __future__ import annotations

import types
from typing import Any

from mortice._capture.guards import MISSING, DictItem
from mortice._capture.identity import one_of
from mortice._capture.observer import attributes, operators, variables
from mortice._capture.observer.frame import NULL, Frame
from mortice._capture.observer.framework import is_tensor
from mortice._capture.observer.numbers import Traced, compute, hand_over, negate, settle

# -- the stack ---------------------------------------------------------------------------------------


def nop(f: Frame, _: Any) -> None:
    pass


def pop_top(f: Frame, _: Any) -> None:
    f.stack.pop()


def push_null(f: Frame, _: Any) -> None:
    f.stack.append(NULL)


def copy(f: Frame, depth: int) -> None:
    f.stack.append(f.stack[-depth])


def swap(f: Frame, depth: int) -> None:
    s = f.stack
    s[-1], s[-depth] = s[-depth], s[-1]


def load_const(f: Frame, value: Any) -> None:
    f.stack.append(value)


# -- variables ---------------------------------------------------------------------------------------


def load_fast(f: Frame, name: str) -> None:
    try:
        value = f.locals[name]
    except KeyError:
        raise _unbound(name) from None
    if type(value) is Traced:
        f.traced = True
    f.stack.append(value)


def _unbound(name: str) -> UnboundLocalError:
    return UnboundLocalError(variables.UNBOUND[0].format(name))


def store_fast(f: Frame, name: str) -> None:
    value = f.stack.pop()
    if value is NULL:
        f.locals.pop(name, None)  # 3.12: a name that had no value before a comprehension
    elif type(value) is types.CellType and name in f.code.co_cellvars:
        f.cells[name] = value
    else:
        f.locals[name] = value


def load_fast_and_clear(f: Frame, name: str) -> None:
    """3.12: a comprehension's variable; what the name was before comes back after it."""
    if name in f.cells:
        f.stack.append(f.cells.pop(name))
    else:
        f.stack.append(f.locals.pop(name, NULL))


def load_fast_pair(f: Frame, names: tuple[str, str]) -> None:
    for name in names:
        (load_closure if name in f.cells else load_fast)(f, name)


def store_fast_load_fast(f: Frame, names: tuple[str, str]) -> None:
    store_fast(f, names[0])
    load_fast(f, names[1])


def store_fast_pair(f: Frame, names: tuple[str, str]) -> None:
    store_fast(f, names[0])
    store_fast(f, names[1])


def delete_fast(f: Frame, name: str) -> None:
    if name not in f.locals:
        raise _unbound(name)
    del f.locals[name]


def load_global(f: Frame, name: str) -> None:
    f.stack.append(variables.read_global(f.watch, f.function, name))


def load_global_call(f: Frame, name: str) -> None:
    f.stack.append(NULL)
    load_global(f, name)


def load_global_null(f: Frame, name: str) -> None:
    """3.13: the null comes after what is called."""
    load_global(f, name)
    f.stack.append(NULL)


def store_global(f: Frame, name: str) -> None:
    f.watch.effect(f"sets the global {name}")
    f.function.__globals__[name] = f.stack.pop()


def delete_global(f: Frame, name: str) -> None:
    f.watch.effect(f"deletes the global {name}")
    if name not in f.function.__globals__:
        raise NameError(f"name '{name}' is not defined", name=name)
    del f.function.__globals__[name]


def make_cell(f: Frame, name: str) -> None:
    cell = types.CellType(settle(f.watch, f.locals[name])) if name in f.locals else types.CellType()
    f.cells[name] = f.watch.fresh(cell)


def load_closure(f: Frame, name: str) -> None:
    f.stack.append(f.cells[name])


def load_deref(f: Frame, name: str) -> None:
    cell = f.cells[name]
    if name in f.code.co_cellvars and f.watch.is_fresh(cell):
        try:
            f.stack.append(cell.cell_contents)
        except ValueError:
            raise _unbound(name) from None
    else:
        f.stack.append(variables.read_cell(f.watch, cell, name))


def store_deref(f: Frame, name: str) -> None:
    cell = f.cells[name]
    if f.watch.is_outer(cell):
        f.watch.effect(f"sets the enclosing function's variable {name}")
    cell.cell_contents = f.stack.pop()


def delete_deref(f: Frame, name: str) -> None:
    cell = f.cells[name]
    if f.watch.is_outer(cell):
        f.watch.effect(f"deletes the enclosing function's variable {name}")
    try:
        cell.cell_contents  # noqa: B018  pyright: ignore[reportUnusedExpression]
    except ValueError:
        raise _unbound(name) from None
    del cell.cell_contents


# -- attributes --------------------------------------------------------------------------------------


def load_attr(f: Frame, name: str) -> None:
    f.stack.append(attributes.load(f.watch, settle(f.watch, f.stack.pop()), name))


def load_method(f: Frame, name: str) -> None:
    value = attributes.load(f.watch, settle(f.watch, f.stack.pop()), name)
    f.stack += (NULL, value)


def load_method_null(f: Frame, name: str) -> None:
    """3.13: the null comes after what is called."""
    load_attr(f, name)
    f.stack.append(NULL)


def store_attr(f: Frame, name: str) -> None:
    o = f.stack.pop()
    attributes.store(f.watch, o, name, f.stack.pop())


def delete_attr(f: Frame, name: str) -> None:
    attributes.delete(f.watch, f.stack.pop(), name)


# -- operators ---------------------------------------------------------------------------------------


def binary_op(f: Frame, symbol: str, in_place: bool = False) -> None:
    b = f.stack.pop()
    a = f.stack.pop()
    if type(a) is Traced or type(b) is Traced:
        f.stack.append(_with_numbers(f, symbol, a, b, in_place))
    else:
        f.stack.append(operators.binary(f.watch, symbol, a, b, in_place))


def inplace_op(f: Frame, symbol: str) -> None:
    binary_op(f, symbol, in_place=True)


def _with_numbers(f: Frame, symbol: str, a: Any, b: Any, in_place: bool) -> Any:
    """A binary operator with a traced number on one side."""
    w = f.watch
    if is_tensor(a) or is_tensor(b):
        return hand_over(w, lambda v: operators.binary(w, symbol, v[0], v[1], in_place), (a, b))
    result = compute(w, symbol, a, b)
    if result is None:
        return operators.binary(w, symbol, settle(w, a), settle(w, b), in_place)
    f.traced = True
    return result


def unary_negative(f: Frame, _: Any) -> None:
    x = f.stack.pop()
    f.stack.append(negate(x) if type(x) is Traced else operators.unary(f.watch, "-", x))


def unary_positive(f: Frame, _: Any) -> None:
    f.stack.append(operators.unary(f.watch, "+", f.stack.pop()))


def unary_invert(f: Frame, _: Any) -> None:
    f.stack.append(operators.unary(f.watch, "~", f.stack.pop()))


def unary_not(f: Frame, _: Any) -> None:
    f.stack.append(not operators.truth(f.watch, f.stack.pop()))


def to_bool(f: Frame, _: Any) -> None:
    f.stack.append(operators.truth(f.watch, f.stack.pop()))


def compare_op(f: Frame, symbol: str) -> None:
    b = f.stack.pop()
    a = f.stack.pop()
    w = f.watch
    if (type(a) is Traced and is_tensor(b)) or (type(b) is Traced and is_tensor(a)):
        found = hand_over(w, lambda v: operators.compare(w, symbol, v[0], v[1]), (a, b))
    else:
        found = operators.compare(w, symbol, settle(w, a), settle(w, b))
    f.stack.append(found)


def compare_bool(f: Frame, symbol: str) -> None:
    compare_op(f, symbol)
    to_bool(f, None)


def is_op(f: Frame, invert: int) -> None:
    b = f.stack.pop()
    f.stack.append(operators.is_same(f.watch, f.stack.pop(), b) != bool(invert))


def contains_op(f: Frame, invert: int) -> None:
    container = f.stack.pop()
    f.stack.append(operators.contains(f.watch, container, f.stack.pop()) != bool(invert))


def binary_subscr(f: Frame, _: Any) -> None:
    key = f.stack.pop()
    f.stack.append(operators.subscript(f.watch, f.stack.pop(), key))


def binary_slice(f: Frame, _: Any) -> None:
    o, start, stop = f.pop_many(3)
    f.stack.append(operators.subscript(f.watch, o, slice(start, stop)))


def store_subscr(f: Frame, _: Any) -> None:
    value, o, key = f.pop_many(3)
    operators.store_subscript(f.watch, o, key, value)


def store_slice(f: Frame, _: Any) -> None:
    value, o, start, stop = f.pop_many(4)
    operators.store_subscript(f.watch, o, slice(start, stop), value)


def delete_subscr(f: Frame, _: Any) -> None:
    o, key = f.pop_many(2)
    operators.delete_subscript(f.watch, o, key)


# -- calls -------------------------------------------------------------------------------------------


def kw_names(f: Frame, names: tuple[str, ...]) -> None:
    f.kw_names = names


def call(f: Frame, count: int) -> None:
    """3.11 and 3.12: NULL, callable, arguments; or method, self, arguments."""
    args = f.pop_many(count)
    first, second = f.pop_many(2)
    names, f.kw_names = f.kw_names, ()
    if first is NULL:
        _call(f, second, args, names)
    else:
        _call(f, first, [second, *args], names)


def call_self(f: Frame, count: int) -> None:
    """3.13: callable, self or NULL, arguments."""
    args = f.pop_many(count)
    function, owner = f.pop_many(2)
    _call(f, function, args if owner is NULL else [owner, *args], ())


def call_kw(f: Frame, count: int) -> None:
    """3.13: callable, self or NULL, arguments, names of the last of them."""
    names = f.stack.pop()
    args = f.pop_many(count)
    function, owner = f.pop_many(2)
    _call(f, function, args if owner is NULL else [owner, *args], names)


def _call(f: Frame, function: Any, args: list[Any], names: tuple[str, ...]) -> None:
    kwargs: dict[str, Any] = {}
    if names:
        kwargs = dict(zip(names, args[-len(names) :]))
        del args[-len(names) :]
    if function is super and not args:
        f.stack.append(_super(f))
        return
    result = f.watch.call(function, args, kwargs)
    if type(result) is Traced:
        f.traced = True
    f.stack.append(result)


def _super(f: Frame) -> Any:
    """``super()``: the class from its cell, the object from the first parameter."""
    name = f.code.co_varnames[0] if f.code.co_argcount else ""
    owner = f.locals[name] if name in f.locals else f.cells[name].cell_contents
    cls = f.cells["__class__"].cell_contents
    if type(owner) is not type:
        attributes.typed(f.watch, owner) if f.watch.is_outer(owner) else None
    return super(cls, owner)


def load_super(f: Frame, name: str) -> None:
    """3.12: global super, class, self -> attribute."""
    function, cls, owner = f.pop_many(3)
    bound = function(cls, owner) if function is super else None
    if bound is None:
        bound = f.watch.call(function, (cls, owner))
    f.stack.append(attributes.load(f.watch, bound, name))


def load_super_method(f: Frame, name: str) -> None:
    load_super(f, name)
    value = f.stack.pop()
    f.stack += (NULL, value)


def load_super_method_null(f: Frame, name: str) -> None:
    load_super(f, name)
    f.stack.append(NULL)


def call_function_ex(f: Frame, flags: int) -> None:
    """3.11 and 3.12: NULL, callable, arguments, and keywords if the lowest bit is set."""
    keywords = f.stack.pop() if flags & 1 else f.watch.fresh({})
    args = f.stack.pop()
    function = f.stack.pop()
    f.stack.pop()
    _call_ex(f, function, args, keywords)


def call_function_ex_self(f: Frame, flags: int) -> None:
    """3.13: callable, NULL, arguments, and keywords if the lowest bit is set."""
    keywords = f.stack.pop() if flags & 1 else f.watch.fresh({})
    args = f.stack.pop()
    function, _ = f.pop_many(2)
    _call_ex(f, function, args, keywords)


def call_function_ex_keywords(f: Frame, _: Any) -> None:
    """3.14: callable, NULL, arguments, keywords or NULL."""
    keywords = f.stack.pop()
    if keywords is NULL:
        keywords = f.watch.fresh({})
    args = f.stack.pop()
    function, _ = f.pop_many(2)
    _call_ex(f, function, args, keywords)


def _call_ex(f: Frame, function: Any, args: Any, keywords: Any) -> None:
    w = f.watch
    if not one_of(type(args), (tuple, list)) or not w.entries(args):
        w.unknown(f"a call with *{type(args).__name__}")
    if type(keywords) is not dict or not w.entries(keywords):
        w.unknown(f"a call with **{type(keywords).__name__}")
    f.stack.append(w.call(function, tuple(args), dict(keywords)))


def make_function(f: Frame, flags: int) -> None:
    """3.11 and 3.12: the code on top; below it, by flag: cells, annotations, keyword defaults,
    defaults.
    """
    code = f.stack.pop()
    cells = f.stack.pop() if flags & 8 else None
    annotations = f.stack.pop() if flags & 4 else None
    keyword_defaults = f.stack.pop() if flags & 2 else None
    defaults = f.stack.pop() if flags & 1 else None
    made = types.FunctionType(code, f.function.__globals__, None, defaults, cells)
    made.__kwdefaults__ = keyword_defaults
    _annotate(made, annotations)
    f.stack.append(f.watch.fresh(made))


def _annotate(made: Any, annotations: Any) -> None:
    if annotations:
        pairs = dict(zip(annotations[::2], annotations[1::2]))
        made.__annotations__ = annotations if type(annotations) is dict else pairs


def make_function_bare(f: Frame, _: Any) -> None:
    """3.13: the code alone."""
    code = f.stack.pop()
    cells = tuple(types.CellType() for _ in code.co_freevars)  # the real ones come as an attribute
    made = types.FunctionType(code, f.function.__globals__, None, None, cells)
    f.stack.append(f.watch.fresh(made))


def set_function_attribute(f: Frame, flag: int) -> None:
    """3.13: value, function."""
    value, made = f.pop_many(2)
    if flag == 1:
        made.__defaults__ = value
    elif flag == 2:
        made.__kwdefaults__ = value
    elif flag == 4:
        _annotate(made, value)
    elif flag == 16:
        setattr(made, "__annotate__", value)  # noqa: B010  3.14: a function that gives them
    else:
        code, names = made.__code__, made.__name__
        again = types.FunctionType(code, made.__globals__, names, made.__defaults__, value)
        again.__kwdefaults__ = made.__kwdefaults__
        kept = "__annotate__" if hasattr(made, "__annotate__") else "__annotations__"
        setattr(again, kept, getattr(made, kept))
        made = f.watch.fresh(again)
    f.stack.append(made)


# -- imports -----------------------------------------------------------------------------------------


def import_name(f: Frame, name: str) -> None:
    """``import a.b`` and ``from a import b`` of modules that are loaded already."""
    import sys

    level, names = f.pop_many(2)
    w = f.watch
    importer = variables.read_global(w, f.function, "__import__")
    found = sys.modules.get(name) if not level else None
    wanted = name if names else name.partition(".")[0]
    result = importer(
        name, f.function.__globals__, f.local_values() if not names else None, names, level
    )
    if (
        level
        or found is None
        or result is not sys.modules.get(wanted)
        or importer is not __import__
    ):
        w.unknown(f"imports {name}")
    else:
        root = w.root(sys.modules, "sys.modules", strong=True)
        for key in {name, wanted}:
            w.read(w.intern(DictItem, root, key), sys.modules.get(key, MISSING))
    f.stack.append(result)


def import_from(f: Frame, name: str) -> None:
    module = f.stack[-1]
    try:
        f.stack.append(attributes.load(f.watch, module, name))
    except AttributeError:
        f.watch.unknown(f"imports {name}")
        scope: dict[str, Any] = {}
        exec(  # noqa: S102  what the instruction is
            f"from {module.__name__} import {name} as found", scope
        )
        f.stack.append(scope["found"])


#: Handlers that see traced numbers on the stack; before any other they are settled.
AWARE = frozenset(
    (
        nop, pop_top, push_null, copy, swap, load_const, load_fast, store_fast, load_global,
        load_global_call, load_closure, load_deref, load_attr, load_method, binary_op, inplace_op,
        unary_negative, compare_op, kw_names, call, call_self, call_kw, load_fast_pair,
        store_fast_load_fast, store_fast_pair, load_global_null, load_method_null,
    )
)  # fmt: skip

ALL = (
    nop, pop_top, push_null, copy, swap, load_const, load_fast, store_fast, delete_fast, load_fast_and_clear, load_fast_pair,
    store_fast_load_fast, store_fast_pair, load_global_null, load_method_null,
    load_super_method_null,
    load_global, load_global_call, store_global, delete_global, make_cell, load_closure,
    load_deref, store_deref, delete_deref, load_attr, load_method, store_attr, delete_attr,
    binary_op, inplace_op, unary_negative, unary_positive, unary_invert, unary_not, to_bool,
    compare_op, compare_bool, is_op, contains_op, binary_subscr, binary_slice, store_subscr,
    store_slice, delete_subscr, kw_names, call, call_self, call_kw, load_super,
    load_super_method, call_function_ex, call_function_ex_self, call_function_ex_keywords, make_function,
    make_function_bare, set_function_attribute, import_name, import_from,
)  # fmt: skip
