"""Names that declarations use exist: in formulas, and as rules, bodies and decompositions."""

from __future__ import annotations

import builtins
import dis
import importlib
import pkgutil
import types

import pytest

import mortice._generated as generated
from mortice._dispatch.operator import get
from mortice._generated.registry import ROWS

DERIVATIVES = [
    m.name for m in pkgutil.iter_modules(generated.__path__) if m.name.endswith("_derivatives")
]


def global_names(code: types.CodeType) -> set[str]:
    found = {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= global_names(constant)
    return found


@pytest.mark.parametrize("name", DERIVATIVES)
def test_formulas_use_names_that_exist(name: str) -> None:
    module = importlib.import_module(f"mortice._generated.{name}")
    known = {*vars(module), *vars(builtins)}
    own = [
        f
        for f in vars(module).values()
        if isinstance(f, types.FunctionType) and f.__module__ == module.__name__
    ]
    missing = {n for f in own for n in global_names(f.__code__)} - known
    assert not missing


def test_rows_name_functions_of_their_family() -> None:
    missing: list[tuple[str, str]] = []
    for name, row in ROWS.items():
        family = importlib.import_module(f"mortice._ops.{row['family']}")
        missing += [
            (name, row[field])
            for field in ("shape", "body")
            if row.get(field) and not hasattr(family, row[field])
        ]
        if "decomposition" in row and not callable(get(name).decomposition()):
            missing.append((name, row["decomposition"]))
    assert not missing
