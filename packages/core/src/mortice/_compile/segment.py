"""A captured graph -> something that runs it: the one entrance for the recorder."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from mortice._capture.grad_regions import restoring, with_grad_regions, without_history
from mortice.fx import GraphModule

from .examples import Examples, examples_of, guards, symbolic_dims
from .function import trained
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
    variants = Variants(gm, example_inputs, settings)
    return variants.only or variants


class Variants:
    """A captured graph, compiled once for all its inputs or, rarely, once for each kind of them.

    The recorder's key has no numbers in it, nor sizes that are symbolic. Where a derivative, a
    decomposition or the backend asks for one, say whether an exponent is 2, the answer is checked
    at each call, and another answer compiles anew.
    """

    def __init__(self, gm: GraphModule, examples: Sequence[Any], settings: Settings) -> None:
        self._gm = gm
        self._settings = settings
        self._symbolic = [symbolic_dims(x) for x in examples]
        self._lock = threading.RLock()
        self._made: list[tuple[Callable[..., bool] | None, Callable[..., Any]]] = []
        self._make(examples_of(gm, examples))

    @property
    def only(self) -> Callable[..., Any] | None:
        """What runs, if it does so for all inputs."""
        holds, run = self._made[0]
        return run if holds is None else None

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        run = self._find(inputs)
        if run is None:
            with self._lock:
                run = self._find(inputs) or self._anew(inputs)
        return run(*inputs)

    def _find(self, inputs: Sequence[Any]) -> Callable[..., Any] | None:
        for holds, run in self._made:
            if holds is None or holds(*inputs):
                return run
        return None

    def _anew(self, inputs: Sequence[Any]) -> Callable[..., Any]:
        if len(self._made) < self._settings.recompile_limit:
            return self._make(examples_of(self._gm, inputs, self._symbolic))
        run = restoring(with_grad_regions(self._gm))
        self._made.append((None, run))  # operator by operator, whatever the numbers are
        return run

    def _make(self, examples: Examples) -> Callable[..., Any]:
        run = _compiled(self._gm, examples, self._settings)
        self._made.append((guards(examples), run))
        return run


def _compiled(gm: GraphModule, examples: Examples, settings: Settings) -> Callable[..., Any]:
    told = settings.declaration
    table = told.decompositions() if callable(told.decompositions) else told.decompositions
    stages = Stages(gm, examples, settings, table)
    kept = stages.kept = gm.meta.pop("kept", None)  # what is kept is for the first kind of inputs
    gm.meta.setdefault("stages", []).append(stages)
    tracked = any(map(_requires_grad, examples.values))
    with stages.undisturbed():
        run = None if kept is None else kept.restored(stages)
        if run is not None:
            return run
        if told.differentiable:
            if tracked:
                return restoring(stages.compile("graph", with_grad_regions(gm)))
            return stages.compile("graph", gm)
        if tracked and _records(gm):
            training = trained(stages)
            if training is not None:
                return training.entry
        if table:
            with stages.timed("trace"):
                gm = taken_apart(gm, examples.values, table)
        run = stages.compile("graph", gm)
        if kept is not None:
            kept.keep_graph(stages, gm, tracked)
    return without_history(run) if tracked else run


def _requires_grad(value: Any) -> bool:
    return bool(getattr(value, "requires_grad", False))


def _records(gm: GraphModule) -> bool:
    """Whether histories were recorded anywhere in it."""
    calls = (node for node in gm.graph.nodes if node.op == "call_function")
    return any(node.meta.get("grad", True) for node in calls)
