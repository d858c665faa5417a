"""Reading the variables of an observed function: globals, and the cells of its closure."""

from __future__ import annotations

import sys
from types import FunctionType, ModuleType
from typing import Any

from mortice._capture.guards import MISSING, CellContents, DictItem
from mortice._capture.observer.watch import Watch

#: What Python says of a local variable, and of an enclosing function's, that has no value.
UNBOUND = (
    (
        "local variable '{}' referenced before assignment",
        "free variable '{}' referenced before assignment in enclosing scope",
    )
    if sys.version_info < (3, 11)
    else (
        "cannot access local variable '{}' where it is not associated with a value",
        "cannot access free variable '{}' where it is not associated with a value in enclosing scope",
    )
)


def read_cell(w: Watch, cell: Any, name: str) -> Any:
    """The contents of a closure's cell."""
    try:
        value = cell.cell_contents
    except ValueError:
        w.unknown(f"the variable {name} has no value")
        raise NameError(UNBOUND[1].format(name)) from None
    if w.is_outer(cell):
        w.read(w.intern(CellContents, w.source(cell), name), value)
    return value


def read_global(w: Watch, f: FunctionType, name: str) -> Any:
    """A global of a function, else a built-in; NameError as Python raises it."""
    values = f.__globals__
    root = w.root(values, f"globals of {values.get('__name__')}", strong=True)
    value = dict.get(values, name, MISSING)
    w.read(w.intern(DictItem, root, name), value)
    if value is not MISSING:
        return value
    found: Any = f.__builtins__ if hasattr(f, "__builtins__") else values["__builtins__"]
    table = found.__dict__ if type(found) is ModuleType else found
    root = w.root(table, "builtins", strong=True)
    value = dict.get(table, name, MISSING)
    w.read(w.intern(DictItem, root, name), value)
    if value is MISSING:
        raise NameError(f"name '{name}' is not defined", name=name)
    return value
