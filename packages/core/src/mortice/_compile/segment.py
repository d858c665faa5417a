"""A captured graph -> something that runs it: the one entrance for the recorder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mortice._autograd.grad_mode import no_grad
from mortice.fx import GraphModule

from .function import Training
from .grad_regions import restoring, with_grad_regions
from .settings import Settings
from .stages import Stages
from .tracing import taken_apart


def compile_segment(
    gm: GraphModule, example_inputs: Sequence[Any], settings: Settings
) -> Callable[..., tuple[Any, ...]]:
    """What runs a captured graph: ``run(*inputs) -> tuple`` of tensors, with histories as eager.

    Args:
        gm: Functional but for write-backs (``copy_`` to an input) at its end; each node's
            ``meta["grad"]`` is False where gradients were off; its output is a flat tuple.
        example_inputs: Fake tensors with their ``requires_grad``, numbers and generators.
        settings: The backend and its options, used for the backward graph too, whenever that is
            compiled.

    Raises BackendFailed if the backend does.
    """
    told = settings.declaration
    table = told.decompositions() if callable(told.decompositions) else told.decompositions
    stages = Stages(gm, example_inputs, settings, table)
    gm.meta["stages"] = stages
    with stages.undisturbed():
        tracked = any(map(_requires_grad, example_inputs))
        if told.differentiable:
            if tracked:
                return restoring(stages.compile("graph", with_grad_regions(gm)))
            return stages.compile("graph", gm)
        if tracked and _records(gm):
            traced = stages.joint()
            if traced.tangents:
                return Training(traced, stages)
        if table:
            with stages.timed("trace"):
                gm = taken_apart(gm, example_inputs, table)
        run = stages.compile("graph", gm)
    return _without_history(run) if tracked else run


def _requires_grad(value: Any) -> bool:
    return bool(getattr(value, "requires_grad", False))


def _records(gm: GraphModule) -> bool:
    """Whether histories were recorded anywhere in it."""
    calls = (node for node in gm.graph.nodes if node.op == "call_function")
    return any(node.meta.get("grad", True) for node in calls)


def _without_history(run: Callable[..., Any]) -> Callable[..., Any]:
    """``run`` for inputs that require grad where no output has a history."""

    def quietly(*inputs: Any) -> Any:
        with no_grad():
            return run(*inputs)

    return quietly
