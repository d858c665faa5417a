"""Tags: facts about an operator that passes and tools ask for."""

from __future__ import annotations

import enum
from typing import Any


class Tag(str, enum.Enum):
    """PyTorch's operator tags."""

    core = "core"
    pointwise = "pointwise"
    reduction = "reduction"
    inplace_view = "inplace_view"
    view_copy = "view_copy"
    generated = "generated"
    nondeterministic_seeded = "nondeterministic_seeded"
    nondeterministic_bitwise = "nondeterministic_bitwise"
    data_dependent_output = "data_dependent_output"
    dynamic_output_shape = "dynamic_output_shape"
    pt2_compliant_tag = "pt2_compliant_tag"
    needs_fixed_stride_order = "needs_fixed_stride_order"
    needs_exact_strides = "needs_exact_strides"
    needs_contiguous_strides = "needs_contiguous_strides"
    flexible_layout = "flexible_layout"
    maybe_aliasing_or_mutating = "maybe_aliasing_or_mutating"
    cudagraph_unsafe = "cudagraph_unsafe"
    out = "out"
    inplace = "inplace"
    cross_device = "cross_device"

    def __repr__(self) -> str:
        return f"Tag.{self.name}"


def check_tags(tags: Any) -> tuple[Tag, ...]:
    """Tags as a tuple; TypeError if one is no Tag."""
    found: tuple[Any, ...] = (tags,) if isinstance(tags, (Tag, str)) else tuple(tags)
    for tag in found:
        if not isinstance(tag, Tag):
            raise TypeError(f"a tag must be a mortice.Tag, not {type(tag).__name__}: {tag!r}")
    return found
