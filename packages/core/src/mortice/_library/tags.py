"""Tags: facts about an operator that passes and tools ask for."""

from __future__ import annotations

import enum
from typing import Any

from mortice._base.errors import InvalidValue
from mortice._dispatch.schema import FunctionSchema


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


def check_tags(tags: Any, schema: FunctionSchema) -> tuple[Tag, ...]:
    """Tags as a tuple; TypeError if one is no Tag, InvalidValue if the schema contradicts one."""
    found: tuple[Any, ...] = (tags,) if isinstance(tags, (Tag, str)) else tuple(tags)
    for tag in found:
        if not isinstance(tag, Tag):
            raise TypeError(f"a tag must be a mortice.Tag, not {type(tag).__name__}: {tag!r}")
    if Tag.inplace in found and not (schema.arguments and schema.arguments[0].type.is_mutable):
        raise InvalidValue(
            f"{schema}: Tag.inplace needs a first argument that is written to, such as Tensor(a!) x."
        )
    if Tag.out in found and not any(a.kwarg_only and a.type.is_mutable for a in schema.arguments):
        raise InvalidValue(
            f"{schema}: Tag.out needs keyword-only arguments that are written to, such as "
            "*, Tensor(a!) out."
        )
    return found
