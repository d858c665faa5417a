"""Functions over several tensors, given one by one or as a sequence, and over distinct values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mortice._base.errors import ArgumentError
from mortice._dispatch.call import Packet, call, seen_as_itself
from mortice._dispatch.operator import get


def _tensors(given: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(given) == 1 and isinstance(given[0], (list, tuple)):
        return tuple(given[0])
    return given


def variadic(name: str, doc: str) -> Callable[..., Any]:
    packet = Packet(name)

    def function(*tensors: Any) -> Any:
        return call(packet, (_tensors(tensors),), {})

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    packet.public = function
    return function


def _raising(name: str, ndim: int) -> Callable[..., Any]:
    packet = Packet(name)

    def function(*tensors: Any) -> Any:
        given: Any = tensors[0] if len(tensors) == 1 else tensors
        return call(packet, (given,), {})

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Each tensor with at least {ndim} dimension(s)."
    packet.public = function
    return function


_meshgrid = Packet("meshgrid")


def meshgrid(*tensors: Any, indexing: str | None = None) -> Any:
    """Coordinate grids of vectors; ``indexing`` is "ij" (matrix order) or "xy"."""
    options = {} if indexing is None else {"indexing": indexing}
    return call(_meshgrid, (_tensors(tensors),), options)


_meshgrid.public = meshgrid
_unique = Packet("_unique2")
_unique_dim = Packet("unique_dim")
_unique_consecutive = Packet("unique_consecutive")


def _chosen(found: Any, return_inverse: bool, return_counts: bool) -> Any:
    values, inverse, counts = found
    if return_inverse and return_counts:
        return values, inverse, counts
    if return_inverse:
        return values, inverse
    return (values, counts) if return_counts else values


def unique(
    input: Any,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The distinct elements (or slices along ``dim``), always in ascending order.

    With ``return_inverse`` also where each element went (int64), with ``return_counts`` how often
    each occurs.
    """
    if dim is None:
        found = call(_unique, (input, sorted, return_inverse, return_counts), {})
    else:
        found = call(_unique_dim, (input, dim, sorted, return_inverse, return_counts), {})
    return _chosen(found, return_inverse, return_counts)


def unique_consecutive(
    input: Any,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The elements (or slices along ``dim``) that differ from the one before."""
    found = call(_unique_consecutive, (input, return_inverse, return_counts, dim), {})
    return _chosen(found, return_inverse, return_counts)


_unique.public = _unique_dim.public = unique
_unique_consecutive.public = unique_consecutive
_nonzero = Packet("nonzero")
_nonzero_numpy = Packet("nonzero_numpy")


def nonzero(input: Any, *, out: Any = None, as_tuple: bool = False) -> Any:
    """Positions of the elements that are not 0: a matrix of one row each, or one vector a dimension."""
    if as_tuple:
        if out is not None:
            raise ArgumentError("nonzero(): out= and as_tuple=True cannot be combined.")
        return call(_nonzero_numpy, (input,), {})
    return call(_nonzero, (input,), {} if out is None else {"out": out})


@seen_as_itself
def nonzero_method(self: Any, *, as_tuple: bool = False) -> Any:
    """As ``mortice.nonzero``."""
    return nonzero(self, as_tuple=as_tuple)


_nonzero.public = _nonzero_numpy.public = nonzero


def one_hot(input: Any, num_classes: int = -1) -> Any:
    """int64 vectors with a 1 where ``input`` says; ``nn.functional.one_hot``."""
    return get("one_hot")(input, num_classes)


FUNCTIONS: dict[str, Any] = {
    "meshgrid": meshgrid,
    "cartesian_prod": variadic("cartesian_prod", "All combinations of the vectors' elements."),
    "block_diag": variadic("block_diag", "The matrices along the diagonal of one of zeros."),
    **{f"atleast_{n}d": _raising(f"atleast_{n}d", n) for n in (1, 2, 3)},
    "unique": unique,
    "unique_consecutive": unique_consecutive,
    "nonzero": nonzero,
}

METHODS: dict[str, Any] = {
    "unique": unique,
    "unique_consecutive": unique_consecutive,
    "nonzero": nonzero_method,
}
