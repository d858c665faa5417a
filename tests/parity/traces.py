"""Graphs against calls: traced down to Core ATen, a call gives what it gave, and its graph holds Core
ATen operators only, or those that are known to stay.

Both calls are mortice's own; torch's part is the samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fakes
import numpy as np

import mortice
from mortice import decompositions, fx
from mortice.errors import TraceError

#: Beside Core ATen: random numbers with their generator said, and what makes memory.
ALLOWED = frozenset(
    (
        "empty_like",
        "rand.generator",
        "randn.generator",
        "randperm.generator",
        "randint.low_generator",
    )
)
#: What a trace may refuse: its inputs share memory and are written to, or it resizes one.
_REFUSED = ("share memory", "sees more memory")
#: OpInfos that read the values of arguments, beside those that fakes refuse.
_READS = frozenset(("linspace", "logspace"))


def difference(call: Callable[..., Any], args: Any, kwargs: Any, name: str) -> str | None:
    """None, or what is wrong with the graph of a call."""
    leaves = list(fakes.tensors([args, kwargs]))
    if any(t.untyped_storage().nbytes() > t.numel() * t.dtype.itemsize for t in leaves):
        return None  # parts of larger tensors, which copies are not
    fresh = [_copy(t) for t in leaves]

    def on(tensors: Any) -> Any:
        rest = iter(tensors)
        return call(
            *fakes.mapped(args, lambda _: next(rest)), **fakes.mapped(kwargs, lambda _: next(rest))
        )

    try:
        gm = fx.make_fx(lambda *given: on(given), decompositions.core_aten_decompositions())(
            *leaves
        )
    except TraceError as error:
        refused = any(text in str(error) for text in _REFUSED)
        if refused or name in fakes.DATA_DEPENDENT or name in _READS:
            return None
        raise
    beyond = sorted({str(n.target) for n in gm.graph.nodes if not _expected(n)})
    if beyond:
        return f"in the graph: {', '.join(beyond)}"
    again = [_copy(t) for t in fresh]
    return _compare(on(fresh), gm(*again), "result") or _compare(fresh, again, "argument")


def _copy(t: Any) -> Any:
    with mortice.no_grad():
        copied = t.detach().clone()
    return copied.requires_grad_(t.requires_grad)


def _expected(node: Any) -> bool:
    if node.op != "call_function" or node.target.__module__ == "_operator":
        return True
    op = node.target.operator
    if node.target.namespace != "aten" or "core" in op.row.tags or op.name in ALLOWED:
        return True
    if op.schema.mutated:  # what was written to, at the end; or without a functional form, a copy
        target = node.args[0]
        return (
            target.op in ("placeholder", "get_attr") or str(target.target) == "aten.clone.default"
        )
    return decompositions.reason_to_stay(node.target) is not None


def _compare(a: Any, b: Any, where: str) -> str | None:
    ours, theirs = list(fakes.tensors([a])), list(fakes.tensors([b]))
    if len(ours) != len(theirs):
        return f"{where}: {len(theirs)} tensors, expected {len(ours)}"
    for x, y in zip(ours, theirs):
        if x.dtype != y.dtype or tuple(x.shape) != tuple(y.shape):
            return f"{where}: {y.dtype} {tuple(y.shape)}, expected {x.dtype} {tuple(x.shape)}"
        p, q = (t.detach().resolve_conj() for t in (x, y))
        wide = mortice.complex128 if p.dtype.is_complex else mortice.float64
        p, q = p.to(wide).numpy(), q.to(wide).numpy()
        half = x.dtype.itemsize == 2 and x.dtype.is_floating_point
        tolerance = 1e-2 if half else 1e-4
        finite = np.abs(p[np.isfinite(p)])
        # Sums of half precision are rounded at each step, which shows where they cancel.
        scale = float(finite.max(initial=1.0)) if half else 1.0
        if not np.allclose(p, q, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
            return f"{where}: differs by {np.nanmax(np.abs(p - q)):g}"
    return None
