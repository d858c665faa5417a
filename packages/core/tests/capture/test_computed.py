"""What is known without a try about which dtypes a device computes holds for every operator."""

from __future__ import annotations

from typing import Any

import pytest

import mortice
from mortice._capture import infer
from mortice._dispatch.operator import get, names_in, overloads


def tried() -> list[Any]:
    """The operators of which one element is tried."""
    every = [get(name) for packet in names_in("aten") for name in overloads(packet)]
    return [op for op in every if infer._TRIED.intersection(op.row.tags)]


def arguments(op: Any, dtype: Any) -> list[Any] | None:
    """One element for each tensor, a number for each number without a default."""
    made: list[Any] = []
    for a in op.schema.arguments:
        kind = str(a.type)
        if kind == "Tensor":
            made.append(mortice.ones((1,), dtype=dtype))
        elif a.has_default and a.default is not None:
            made.append(a.default)
        elif kind.rstrip("?") in ("Scalar", "float", "int", "SymInt"):
            made.append(1 if kind.startswith(("int", "SymInt")) else 0.5)
        else:
            return None
    return made


@pytest.mark.parametrize("dtype", [mortice.float32, mortice.float64])
def test_what_is_taken_for_granted_is_so(dtype: Any) -> None:
    granted = 0
    for op in tried():
        args = arguments(op, dtype)
        if args is None or op.row.functional or not infer._takes_floats(op, args):
            continue
        granted += 1
        assert infer._tried(op, args), op.name
    assert granted > 60


def test_others_are_tried() -> None:
    x = mortice.ones(1)
    assert not infer._takes_floats(get("bitwise_and.Tensor"), (x, x))
    assert not infer._takes_floats(get("exp"), (mortice.ones(1, dtype=mortice.int64),))
    assert not infer._takes_floats(get("exp"), (mortice.ones(1, dtype=mortice.bfloat16),))
    assert not infer._takes_floats(get("gelu"), (x, "nothing"))
