"""Captured graphs by hand, for the tests of what is made of them."""

from __future__ import annotations

from types import SimpleNamespace

import mortice
from mortice._capture.fake import FakeTensorMode
from mortice._compile.front import _settings
from mortice._compile.segment import compile_segment
from mortice._compile.settings import Settings
from mortice._types.symbolic_env import ShapeEnv
from mortice.fx import GraphModule, make_fx

BACKENDS = ["eager", "aot_eager", "aot_eager_decomp_partition"]


def settings(backend="aot_eager", **options) -> Settings:
    return _settings(False, None, backend, None, options, None)


def capture(f, inputs, dynamic=(), grad=None) -> tuple[GraphModule, list]:
    """(graph, example inputs) as the recorder gives them; ``dynamic``: (input, dim) pairs."""
    mode = FakeTensorMode(ShapeEnv())
    fakes = [
        mode.from_tensor(x, tuple(d for j, d in dynamic if j == i)) for i, x in enumerate(inputs)
    ]
    with mortice.no_grad():
        gm = make_fx(f)(*[x.detach() for x in fakes])
    for node in gm.graph.nodes:
        if node.op == "call_function" and grad is not None:
            node.meta["grad"] = grad(node)
    return gm, fakes


def compiled(f, inputs, backend="aot_eager", **kwargs):
    gm, fakes = capture(f, inputs, **kwargs)
    run = compile_segment(gm, fakes, settings(backend))
    return SimpleNamespace(run=run, stages=gm.meta["stages"][0], gm=gm)


def leaves(*shapes, grad=True, seed=0):
    g = mortice.Generator().manual_seed(seed)
    return [mortice.randn(*s, generator=g).requires_grad_(grad) for s in shapes]


def copies(inputs):
    return [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]


def gradients(f, inputs, weights=None):
    outs = [y for y in f(*inputs) if y.requires_grad]
    total = sum((y * (i + 1)).sum() for i, y in enumerate(outs))
    total.backward()
    return [x.grad for x in inputs]


def same(a, b) -> bool:
    if a is None or b is None:
        return a is b
    return (
        a.dtype == b.dtype
        and a.shape == b.shape
        and a.detach().numpy().tobytes() == b.detach().numpy().tobytes()
    )
