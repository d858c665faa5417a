"""What a backend's function returns, checked at each call against what its graph promises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mortice._base.errors import BackendFailed
from mortice._tensor.tensor import Tensor
from mortice.fx import GraphModule, Node

_ndarray = np.ndarray


class Promise:
    """One result of a graph: a tensor of a dtype and sizes, None standing for a symbolic one."""

    __slots__ = ("dtype", "host", "shape", "symbolic")

    def __init__(self, value: Any) -> None:
        sizes = [n if type(n) is int else None for n in value.shape]
        self.dtype = value.dtype
        self.host = value.device.type == "cpu"
        self.shape = tuple(sizes)
        self.symbolic = None in sizes

    def fits(self, found: Any) -> bool:
        """Whether a result is what was promised. Strides are the caller's business."""
        try:
            a = found._a
            if found._t is not self.dtype or (type(a) is _ndarray) is not self.host:
                return False
        except AttributeError:
            return False
        if not self.symbolic:
            return a.shape == self.shape
        return len(a.shape) == len(self.shape) and all(
            n is None or n == m for n, m in zip(self.shape, a.shape)
        )

    def __str__(self) -> str:
        sizes = ["?" if n is None else str(n) for n in self.shape]
        return f"{self.dtype} of shape [{', '.join(sizes)}]{'' if self.host else ' on its device'}"


def checked(
    run: Callable[..., Any], backend: str, part: str, gm: GraphModule
) -> Callable[..., Any]:
    """``run``; BackendFailed, naming the backend and what was expected, where it returns other
    than a tuple (or list) of the tensors that the graph ``gm`` gives.
    """
    results: Any = gm.graph.output_node().args[0]
    promises = [_promise(x) for x in results]
    tensors = [(i, p) for i, p in enumerate(promises) if p is not None]
    count = len(promises)

    def call(*inputs: Any) -> Any:
        found = run(*inputs)
        if (found.__class__ is not tuple and not isinstance(found, (tuple, list))) or len(
            found
        ) != count:
            raise _wrong(backend, part, _described(found), promises)
        for i, promise in tensors:
            if not promise.fits(found[i]):
                raise _wrong(backend, part, f"{_described(found[i])} as result {i}", promises, i)
        return found

    return call


def _promise(result: Any) -> Promise | None:
    value = result.meta.get("val") if isinstance(result, Node) else None
    return Promise(value) if isinstance(value, Tensor) else None


def _described(found: Any) -> str:
    if isinstance(found, Tensor):
        return f"{found.dtype} of shape {list(found.shape)} on {found.device}"
    if isinstance(found, (tuple, list)):
        return f"{type(found).__name__} of {len(found)}"  # pyright: ignore[reportUnknownArgumentType]
    return f"{type(found).__name__} {found!r}"[:80]


def _wrong(
    backend: str, part: str, found: str, promises: list[Promise | None], at: int | None = None
) -> BackendFailed:
    if at is not None:
        wanted = str(promises[at])
    else:
        listed = ", ".join("no tensor" if p is None else str(p) for p in promises[:4])
        more = ", ..." if len(promises) > 4 else ""
        wanted = f"a tuple of {len(promises)} ({listed}{more})"
    what = "graph" if part == "graph" else f"{part} graph"
    return BackendFailed(
        f"backend {backend!r}: its function for the {what} returned {found}, and {wanted} was "
        "expected: fn(*inputs) -> tuple, one for each result of gm."
    )
