"""What it costs to keep a value for the backward pass, and what to compute it again.

Both are in units of an eighth of a byte written, so that they add up: a kept float32 costs 32, the
same value computed again by an addition 4, by an exponential 16. The ratio says how much memory is
worth how much arithmetic; fusing backends hide the arithmetic behind loads they do anyway.
"""

from __future__ import annotations

import operator
from typing import Any

from mortice.fx import Node

from .mincut import INFINITE

KEEP = 8  # per byte
CHEAP = 1
DEAR = 4

#: Elementwise, but with a series, an iteration or a division behind each element.
_DEAR = frozenset(
    """
    acos acosh asin asinh atan atan2 atanh cos cosh digamma div elu erf erfc erfinv exp exp2 expm1
    gelu hardswish hypot i0 lgamma log log10 log1p log2 logaddexp logit mish pow polygamma
    reciprocal remainder rsqrt selu sigmoid silu sin sinc sinh softplus sqrt tan tanh xlogy
    """.split()
)
#: Not elementwise, and as cheap: what fills memory or copies it.
_COPIES = frozenset(
    """
    arange clone contiguous copy empty_like eye fill full full_like _to_copy ones ones_like
    scalar_tensor where zeros zeros_like
    """.split()
)

#: Not elementwise either, but one pass over what is kept for their own derivative anyway: in a transformer
#: that is a seventh of what a step keeps, and no time that could be measured.
_NORMALISING = frozenset(("aten::native_layer_norm",))


def size_in_bytes(value: Any) -> int:
    """Of a fake tensor, symbolic sizes by the values of the call that was captured."""
    n = value.dtype.itemsize
    for size in value.shape:
        n *= _number(size)
    return max(n, 1)


def _number(size: Any) -> int:
    return size.hint if getattr(size, "_is_symbolic", False) else size


def keeping(node: Node) -> int:
    """Cost of keeping a node's value from forward to backward. Inputs are there anyway, and cost
    the least that keeps them out where nobody needs them. Of a view its base is kept: a backend's
    output is memory of its own, which has no room for a view's strides.
    """
    value = node.meta.get("val")
    if not hasattr(value, "_k") or (_is_view_node(node) and recomputing(node) == 0):
        return INFINITE  # several results: each is kept by its getitem; a number is always there
    return 1 if node.op == "placeholder" else KEEP * size_in_bytes(value)


def recomputing(node: Node) -> int:
    """Cost of running a node again in the backward pass; INFINITE if it must not be."""
    if node.op == "placeholder":
        return INFINITE
    if node.target is operator.getitem or node.op == "get_attr":
        return 0
    schema = getattr(node.target, "_schema", None)
    value: Any = node.meta.get("val")
    if schema is not None and schema.qualified in _NORMALISING:
        return 2 * DEAR * size_in_bytes(value[0])
    if schema is None or not (hasattr(value, "_k") or is_view(schema)):
        return INFINITE
    tags = node.target.tags
    if schema.mutated or "nondeterministic_seeded" in tags or is_written(node):
        return INFINITE
    if is_view(schema):
        return 0
    if schema.namespace != "aten" or not ("pointwise" in tags or schema.name in _COPIES):
        return INFINITE
    return size_in_bytes(value) * (DEAR if schema.name in _DEAR else CHEAP)


def _is_view_node(node: Node) -> bool:
    """Whether it is a view, or one of the views that an operator makes several of."""
    maker = node.args[0] if node.target is operator.getitem else node
    schema = getattr(getattr(maker, "target", None), "_schema", None)
    return schema is not None and is_view(schema)


def is_written(node: Node) -> bool:
    """Whether an operator after it writes to its value."""
    for user in node.users:
        schema: Any = getattr(user.target, "_schema", None)
        if schema is None:
            continue
        for i in schema.mutated:
            name = schema.arguments[i].name
            if (user.args[i] if i < len(user.args) else user.kwargs.get(name)) is node:
                return True
    return False


def is_view(schema: Any) -> bool:
    """Whether the results share an argument's memory and nothing is written."""
    return not schema.mutated and any(r.type.alias for r in schema.returns)
