"""Writing through views without writing: what a view's source becomes when the view gets a value.

For each view operator a function ``(emit, source, value, shape, args, part)``: ``emit(name, *args)``
adds an operator to the graph, ``source`` and ``value`` are nodes, ``shape`` the sizes of the source,
``args`` the view's other arguments, ``part`` its position where the operator makes several. It
returns the node of the source's new value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mortice._types.shapes import wrap_dim

Emit = Callable[..., Any]


def _reshaped(
    emit: Emit, source: Any, value: Any, shape: Sequence[int], args: Any, part: int | None
) -> Any:
    """Views with all elements of their source in the same order."""
    return emit("reshape", value, tuple(shape))


def _same(emit: Emit, source: Any, value: Any, shape: Any, args: Any, part: int | None) -> Any:
    return value


def _transpose(emit: Emit, source: Any, value: Any, shape: Any, args: Any, part: int | None) -> Any:
    return emit("transpose.int", value, *args)


def _t(emit: Emit, source: Any, value: Any, shape: Any, args: Any, part: int | None) -> Any:
    return emit("t", value)


def _permute(emit: Emit, source: Any, value: Any, shape: Any, args: Any, part: int | None) -> Any:
    dims = args[0]
    back = [0] * len(dims)
    for i, d in enumerate(dims):
        back[d % len(dims)] = i
    return emit("permute", value, tuple(back))


def _select(emit: Emit, source: Any, value: Any, shape: Any, args: Any, part: int | None) -> Any:
    return emit("select_scatter", source, value, *args)


def _slice(emit: Emit, source: Any, value: Any, shape: Any, args: Any, part: int | None) -> Any:
    return emit("slice_scatter", source, value, *args)


def _diagonal(emit: Emit, source: Any, value: Any, shape: Any, args: Any, part: int | None) -> Any:
    return emit("diagonal_scatter", source, value, *args)


def _unbind(emit: Emit, source: Any, value: Any, shape: Any, args: Any, part: int | None) -> Any:
    return emit("select_scatter", source, value, args[0], part)


def _split(emit: Emit, source: Any, value: Any, shape: Any, args: Any, part: int | None) -> Any:
    size, dim = args
    assert part is not None
    length = shape[wrap_dim(dim, len(shape))]
    start = part * size
    return emit("slice_scatter", source, value, dim, start, min(start + size, length), 1)


def _split_with_sizes(
    emit: Emit, source: Any, value: Any, shape: Any, args: Any, part: int | None
) -> Any:
    sizes, dim = args
    assert part is not None
    start = sum(sizes[:part])
    return emit("slice_scatter", source, value, dim, start, start + sizes[part], 1)


def _complex(emit: Emit, source: Any, value: Any, shape: Any, args: Any, part: int | None) -> Any:
    return emit("view_as_complex", value)


def _real(emit: Emit, source: Any, value: Any, shape: Any, args: Any, part: int | None) -> Any:
    return emit("view_as_real", value)


INVERSES: dict[str, Callable[..., Any]] = {
    "view": _reshaped,
    "_unsafe_view": _reshaped,
    "_reshape_alias": _reshaped,
    "unsqueeze": _reshaped,
    "squeeze": _reshaped,
    "squeeze.dim": _reshaped,
    "squeeze.dims": _reshaped,
    "expand": _reshaped,  # written to only where nothing was repeated
    "alias": _same,
    "detach": _same,
    "transpose.int": _transpose,
    "t": _t,
    "permute": _permute,
    "select.int": _select,
    "slice.Tensor": _slice,
    "diagonal": _diagonal,
    "unbind.int": _unbind,
    "split.Tensor": _split,
    "split_with_sizes": _split_with_sizes,
    "view_as_real": _complex,
    "view_as_complex": _real,
}
