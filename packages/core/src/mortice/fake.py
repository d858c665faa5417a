"""Fake tensors and symbolic sizes: what a computation does to shapes, without doing it.

    env = mortice.fake.ShapeEnv()
    with mortice.fake.FakeTensorMode(env) as mode:
        x = mode.from_tensor(mortice.randn(8, 4), dynamic_dims=(0,))
        y = x @ x.T            # shape (s0, s0), no data
    env.guards                 # what was asked of s0

PyTorch keeps these names in ``torch._subclasses.fake_tensor`` and
``torch.fx.experimental.symbolic_shapes``.
"""

from __future__ import annotations

from typing import Any

from mortice._base.errors import (
    DataDependentOutput,
    DynamicOutputShape,
    FakeTensorError,
    GuardOnDataDependent,
    InvalidState,
)
from mortice._capture.fake import FakeTensor, FakeTensorMode
from mortice._capture.fake_array import constant_of, is_fake, mode_of
from mortice._types.symbolic import (
    SymBool,
    SymFloat,
    SymInt,
    sym_float,
    sym_int,
    sym_ite,
    sym_max,
    sym_min,
    sym_not,
    sym_sqrt,
    sym_sum,
)
from mortice._types.symbolic_env import Guard, ShapeEnv, compile_guards

__all__ = [
    "DataDependentOutput", "DynamicOutputShape", "FakeTensor", "FakeTensorError", "FakeTensorMode",
    "Guard", "GuardOnDataDependent", "ShapeEnv", "SymBool", "SymFloat", "SymInt", "check",
    "compile_guards", "constant_of", "is_fake", "mode_of", "sym_float", "sym_int", "sym_ite", "sym_max", "sym_min",
    "sym_not", "sym_sqrt", "sym_sum",
]  # fmt: skip


def check(condition: Any, message: str = "") -> None:
    """Take a condition on sizes for true; InvalidState if it is known to be false.

    Of sizes that depend on values, it is remembered, so that later questions are decided by it.
    """
    if isinstance(condition, SymBool) and condition.parts[0] not in ("not", "and", "or"):
        condition.env.assume(*condition.parts)
    elif not condition:
        raise InvalidState(message or "Expected cond to be True, but got False.")
