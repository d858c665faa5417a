"""Operators in terms of others, for tracing graphs: tables and registration.

    table = mortice.decompositions.core_aten_decompositions()
    gm = mortice.fx.make_fx(f, table)(x)     # Core ATen operators only

PyTorch keeps these names in ``torch._decomp``.
"""

from mortice._compile.decompositions import (
    CustomDecompTable,
    core_aten_decompositions,
    get_decompositions,
    register_decomposition,
    remove_decompositions,
    select_decomp_table,
)
from mortice._compile.undecomposed import reason_to_stay

__all__ = [
    "CustomDecompTable",
    "core_aten_decompositions",
    "get_decompositions",
    "reason_to_stay",
    "register_decomposition",
    "remove_decompositions",
    "select_decomp_table",
]
