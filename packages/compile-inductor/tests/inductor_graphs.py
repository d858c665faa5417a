"""Graphs by hand, and their comparison with eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mortice
from mortice.fx import Graph, GraphModule
from mortice_inductor import compile_fx

Call = Callable[..., Any]


def graph(body: Callable[..., Any], inputs: int) -> GraphModule:
    """``body(call, *placeholders)`` gives the outputs; ``call("add.Tensor", x, y)`` adds a node."""
    g = Graph()
    given = [g.placeholder(f"x{k}") for k in range(inputs)]

    def call(name: str, *args: Any, **kwargs: Any) -> Any:
        target: Any = mortice.ops.aten
        for part in (name if "." in name else f"{name}.default").split("."):
            target = getattr(target, part)
        return g.call_function(target, args, kwargs)

    out = body(call, *given)
    g.output(out if isinstance(out, tuple) else (out,))
    return GraphModule({}, g)


TOLERANCE = {
    "float64": (1e-12, 1e-12),
    "float32": (2e-5, 2e-6),
    "float16": (4e-3, 2e-3),
    "bfloat16": (3e-2, 2e-2),
}


def assert_same(found: Any, expected: Any, rtol: float = 1.0) -> None:
    """Equal in shape and dtype, and as near as the dtype lets two orders of rounding be."""
    assert type(found) is type(expected), (found, expected)
    assert found.dtype is expected.dtype, (found.dtype, expected.dtype)
    assert tuple(found.shape) == tuple(expected.shape)
    if not found.is_floating_point():
        assert mortice.equal(found, expected), (found, expected)
        return
    r, a = TOLERANCE[found.dtype.name]
    f, e = found.double(), expected.double()
    same = mortice.isclose(f, e, rtol=r * rtol, atol=a * rtol, equal_nan=True)
    worst = (f - e).abs().max().item() if f.numel() else 0.0
    assert bool(same.all()), (worst, found, expected)


def check(body: Callable[..., Any], *inputs: Any, rtol: float = 1.0, calls: int = 2) -> Any:
    """Compiles the graph and compares each of some calls with running it eagerly."""
    gm = graph(body, len(inputs))
    compiled = compile_fx(gm, list(inputs))
    found: Any = ()
    for _ in range(calls):
        found = compiled(*inputs)
        expected = gm(*inputs)
        assert len(found) == len(expected)
        for f, e in zip(found, expected, strict=True):
            if isinstance(e, mortice.Tensor):
                assert_same(f, e, rtol)
            else:
                assert f == e
    return compiled
