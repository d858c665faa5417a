"""The backward pass: walk the graph from the roots, each node once all its gradients are there."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from mortice._autograd.grad_mode import set_grad_enabled
from mortice._autograd.node import Leaf, freed
from mortice._base.errors import ArgumentError, AutogradError
from mortice._base.holders import ONE_LOCAL, counted
from mortice._dispatch import keys as K
from mortice._dispatch.call import overridden
from mortice._dispatch.modes import call_overridden
from mortice._dispatch.state import THREAD, unrecorded
from mortice._types.shapes import numel


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Accumulate gradients of the leaves (or of ``inputs``) into their ``.grad``."""
    roots = _as_tuple(tensors)
    grads = _as_tuple(grad_tensors) if grad_tensors is not None else (None,) * len(roots)
    if len(roots) != len(grads):
        raise AutogradError(
            f"got {len(roots)} tensors and {len(grads)} gradients. Give one gradient, or None, "
            "for each tensor."
        )
    if inputs is not None:
        inputs = _as_tuple(inputs)
        if not inputs:
            raise AutogradError("`inputs` argument to `backward()` cannot be empty.")
    keep = create_graph if retain_graph is None else retain_graph
    with unrecorded("backward() runs"):
        seeds = _seeds(roots, grads)
        _run(seeds, keep, create_graph, inputs, accumulate=True)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """Gradients of ``outputs`` with respect to ``inputs``, without touching ``.grad``."""
    if is_grads_batched:
        raise AutogradError("is_grads_batched is not supported. Call grad() once per row instead.")
    roots = _as_tuple(outputs)
    wanted = _as_tuple(inputs)
    if overridden((*roots, *wanted), {}):
        options = {
            "grad_outputs": grad_outputs, "retain_graph": retain_graph, "create_graph": create_graph,
            "allow_unused": allow_unused, "materialize_grads": materialize_grads,
        }  # fmt: skip
        relevant = (*roots, *wanted)
        return call_overridden(grad, relevant, (roots, wanted), options, "autograd.grad")
    grads = _as_tuple(grad_outputs) if grad_outputs is not None else (None,) * len(roots)
    for x in wanted:
        if not x.requires_grad:
            raise AutogradError(
                "One of the differentiated Tensors does not require grad. Call "
                ".requires_grad_() on it before it is used."
            )
    keep = create_graph if retain_graph is None else retain_graph
    with unrecorded("grad() runs"):
        seeds = _seeds(roots, grads)
        found = _run(seeds, keep, create_graph, wanted, accumulate=False)
    if materialize_grads:
        found = [x.new_zeros(x.shape) if g is None else g for x, g in zip(wanted, found)]
    elif not allow_unused and any(g is None for g in found):
        raise AutogradError(
            "One of the differentiated Tensors appears to not have been used in the graph. Set "
            "allow_unused=True if this is the desired behavior."
        )
    return tuple(found)


def _as_tuple(value: Any) -> tuple[Any, ...]:
    if value is None or hasattr(value, "_k") or hasattr(type(value), "__mortice_function__"):
        return (value,)
    return tuple(value)


def _seeds(roots: Sequence[Any], grads: Sequence[Any]) -> list[tuple[Any, Any]]:
    seeds: list[tuple[Any, Any]] = []
    for i, (root, seed) in enumerate(zip(roots, grads)):
        if not hasattr(root, "_k"):
            raise ArgumentError(
                f"backward(): element {i} must be a Tensor, not {type(root).__name__}"
            )
        if not root.requires_grad:
            if len(roots) > 1 and any(r.requires_grad for r in roots):
                continue
            raise AutogradError(
                f"element {i} of tensors does not require grad and does not have a grad_fn. Set "
                "requires_grad on what it is computed from, outside no_grad()."
            )
        seeds.append((root._g, _seed(root, seed)))
    return seeds


def _seed(root: Any, seed: Any) -> Any:
    if seed is None:
        if numel(root._a.shape) != 1:
            raise AutogradError(
                "grad can be implicitly created only for scalar outputs, and this one has shape "
                f"{list(root.shape)}. Reduce it (.sum(), .mean()) or pass gradient=."
            )
        if root._t.is_complex:
            raise AutogradError(
                f"grad can be implicitly created only for real scalar outputs but got {root._t!r}"
            )
        from mortice._ops.formulas import ones_like

        with _mode_of(root):
            return ones_like(root)
    if not hasattr(seed, "_k"):
        raise ArgumentError(
            f"gradients can be either Tensors or None, but got {type(seed).__name__}"
        )
    if tuple(seed._a.shape) != tuple(root._a.shape):
        raise AutogradError(
            f"Mismatch in shape: grad_output has a shape of {seed.shape} and output has a shape "
            f"of {root.shape}."
        )
    return seed


def _run(
    seeds: list[tuple[Any, Any]],
    keep_graph: bool,
    create_graph: bool,
    inputs: Any,
    accumulate: bool,
) -> list[Any]:
    if not seeds:
        return [None] * len(inputs or ())
    run = _Run(keep_graph, create_graph, inputs, accumulate)
    with set_grad_enabled(create_graph), _mode_of(seeds[0][1]):
        run.start(seeds)
        run.loop()
    return run.captured


def _mode_of(t: Any) -> Any:
    """The mode of a fake tensor: what is made anew for it must be fake, too."""
    return t._a.mode if t._k & K.FAKE else nullcontext()


class _Run:
    """State of one backward pass."""

    def __init__(self, keep_graph: bool, create_graph: bool, inputs: Any, accumulate: bool) -> None:
        self.keep_graph = keep_graph
        self.create_graph = create_graph
        self.accumulate = accumulate
        self.captured: list[Any] = [None] * len(inputs or ())
        #: (id of node, output number) -> positions in ``inputs``
        self.wanted: dict[tuple[int, int], list[int]] = {}
        self.inputs = inputs
        for i, x in enumerate(inputs or ()):
            g = x._g
            if g is None:
                raise AutogradError(
                    "One of the differentiated Tensors does not require grad. Call "
                    ".requires_grad_() on it before it is used."
                )
            self.wanted.setdefault((id(g.node), g.number), []).append(i)
        self.waiting: dict[int, int] = {}
        self.buffers: dict[int, list[Any]] = {}
        self.ready: list[Any] = []
        self.needed: set[int] | None = None

    def start(self, seeds: list[tuple[Any, Any]]) -> None:
        roots = [edge.node for edge, _ in seeds]
        order = self._count(roots)
        if self.inputs is not None:
            self._find_needed(order)
        started: set[int] = set()
        for edge, seed in seeds:
            self._put(edge, seed)
        for node in roots:
            if id(node) not in started and not self.waiting.get(id(node)):
                started.add(id(node))
                self.ready.append(node)

    def _count(self, roots: list[Any]) -> list[Any]:
        """How many gradients each node waits for; returns the nodes met, parents after children."""
        waiting = self.waiting
        seen: set[int] = set()
        stack: list[Any] = []
        order: list[Any] = []
        for node in roots:
            if id(node) not in seen:
                seen.add(id(node))
                stack.append(node)
        while stack:
            node = stack.pop()
            order.append(node)
            for edge in node.edges:
                if edge is None:
                    continue
                below = edge.node
                key = id(below)
                waiting[key] = waiting.get(key, 0) + 1
                if key not in seen:
                    seen.add(key)
                    stack.append(below)
        return order

    def _find_needed(self, nodes: list[Any]) -> None:
        """Nodes from which an input is reached; the others are not run."""
        targets = {key for key, _ in self.wanted}
        parents: dict[int, list[int]] = {}
        for node in nodes:
            for edge in node.edges:
                if edge is not None:
                    parents.setdefault(id(edge.node), []).append(id(node))
        needed = set(targets)
        stack = list(targets)
        while stack:
            for parent in parents.get(stack.pop(), ()):
                if parent not in needed:
                    needed.add(parent)
                    stack.append(parent)
        self.needed = needed

    def _put(self, edge: Any, value: Any) -> None:
        """Add a gradient to what an edge's node has received so far."""
        node = edge.node
        if node.__class__ is not Leaf or node.meta is not None:
            value = _fit(value, node.output_meta(edge.number), node)
        slots = self.buffers.get(id(node))
        if slots is None:
            slots = self.buffers[id(node)] = [None] * node.outputs
        have = slots[edge.number]
        slots[edge.number] = value if have is None else have + value

    def loop(self) -> None:
        ready = self.ready
        waiting = self.waiting
        needed = self.needed
        while ready:
            node = ready.pop()
            grads = self.buffers.pop(id(node), None)
            if grads is None:
                grads = [None] * node.outputs
            if node.extra is not None:
                self._tensor_hooks(node, grads)
            if self.wanted:
                self._capture(node, grads)
            if node.__class__ is Leaf:
                if self.accumulate and (self.inputs is None or (id(node), 0) in self.wanted):
                    g = grads.pop()
                    if g is not None:
                        is_ours = counted(g) <= ONE_LOCAL
                        self._accumulate(node, g, is_ours)
                        del g
                continue
            if needed is not None and not self._goes_on(node, needed):
                outs: Any = (None,) * len(node.edges)
            elif not any(g is not None for g in grads):
                outs = (None,) * len(node.edges)
            else:
                outs = self._apply(node, grads)
            for edge, out in zip(node.edges, outs):
                if edge is None:
                    continue
                below = edge.node
                if out is not None:
                    self._put(edge, out)
                key = id(below)
                waiting[key] -= 1
                if not waiting[key]:
                    ready.append(below)
            outs = out = None

    def _goes_on(self, node: Any, needed: set[int]) -> bool:
        return any(e is not None and id(e.node) in needed for e in node.edges)

    def _apply(self, node: Any, grads: list[Any]) -> Any:
        extra = node.extra
        if extra and "pre" in extra:
            for hook in list(extra["pre"].values()):
                changed = hook(tuple(grads))
                if changed is not None:
                    grads = list(_as_tuple(changed))
        info = node.info
        try:
            outs = (info.backward if self.keep_graph else info.last)(node, grads)
        except Exception as error:
            if extra and "traceback" in extra:
                _explain(node, error)
            raise
        if len(outs) != len(node.edges):
            raise AutogradError(
                f"{node.name()} returned {len(outs)} gradients, expected {len(node.edges)}."
            )
        if THREAD.anomaly:
            _check_nan(node, outs)
        if extra and "post" in extra:
            for hook in list(extra["post"].values()):
                changed = hook(tuple(outs), tuple(grads))
                if changed is not None:
                    outs = _as_tuple(changed)
        if not self.keep_graph:
            node.saved = None
        return outs

    def _tensor_hooks(self, node: Any, grads: list[Any]) -> None:
        for kind in ("tensor", "retain"):
            for number, hooks in node.extra.get(kind, {}).items():
                for hook in list(hooks.values()):
                    if grads[number] is None:
                        continue
                    changed = hook(grads[number])
                    if changed is not None:
                        grads[number] = changed

    def _capture(self, node: Any, grads: list[Any]) -> None:
        for number, value in enumerate(grads):
            positions = self.wanted.get((id(node), number))
            if positions is None or value is None:
                continue
            for i in positions:
                if self.accumulate and node.__class__ is not Leaf:
                    x = self.inputs[i]
                    have = x.__dict__.get("_grad")
                    x.__dict__["_grad"] = value if have is None else have + value
                else:
                    self.captured[i] = value

    def _accumulate(self, leaf: Leaf, value: Any, is_ours: bool) -> None:
        """Adds to a leaf's gradient; ``is_ours`` says whether nobody else holds ``value``."""
        have = leaf.grad
        if have is None:
            leaf.grad = value if self.create_graph else _first_gradient(value, is_ours)
        elif self.create_graph or have.requires_grad:
            leaf.grad = have + value
        else:
            have.add_(value)
        if leaf.extra:
            for hook in list(leaf.extra.get("accumulated", {}).values()):
                hook(leaf.tensor())


def _first_gradient(value: Any, is_ours: bool) -> Any:
    """The gradient itself if nobody else holds it or its memory, else a copy."""
    if is_ours and value._s is None and not value._k & K.AUTOGRAD and value.is_contiguous():
        return value
    return value.detach().clone()


def _fit(value: Any, meta: Any, node: Any) -> Any:
    """A gradient as its receiver needs it: broadcasting undone, dtype converted."""
    if meta is None:
        return value
    shape, dtype = meta
    if value._a.shape != shape and tuple(value._a.shape) != tuple(shape):
        from mortice._ops.formulas import sum_to

        value = sum_to(value, shape, node)
    if value._t is not dtype:
        if value._t.is_complex and not dtype.is_complex:
            value = value.real
        value = value.to(dtype)
    return value


def _explain(node: Any, error: Exception) -> None:
    import warnings

    warnings.warn(
        f"Error detected in {node.name()}. Traceback of forward call that caused the error:\n"
        f"{node.extra['traceback']}",
        UserWarning,
        stacklevel=2,
    )


def _check_nan(node: Any, outs: Sequence[Any]) -> None:
    for i, out in enumerate(outs):
        if out is not None and out._t.differentiable and bool((out != out).any()):
            where = node.extra.get("traceback", "") if node.extra else ""
            raise AutogradError(
                f"Function '{node.name()}' returned nan values in its {i}th output."
                + (f" It was recorded here:\n{where}" if where else "")
            )


__all__ = ["backward", "freed", "grad"]
