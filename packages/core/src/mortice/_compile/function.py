"""Running a compiled forward graph so that autograd finds its compiled backward graph."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from typing import Any

from mortice._autograd.grad_mode import no_grad, set_grad_enabled
from mortice._autograd.node import Info, Node, attach_many, save, save_result, unpack
from mortice._autograd.views import refresh
from mortice._dispatch import keys as K
from mortice._dispatch.state import THREAD
from mortice._tensor.make import alias_of
from mortice.fx.symbols import shown_by

from . import costs
from .again import Again, Held, held, present
from .joint import Traced
from .partition import Backward, backward_half, choose_saved, counterparts, forward_half
from .stages import Stages
from .tracked import tracked_call


class CompiledNode(Node):
    """The history of what one call of a compiled graph returned."""

    __slots__ = ("inputs", "sizes", "training")

    training: Training
    sizes: dict[str, int]
    inputs: tuple[Held, ...]


class Training:
    """A captured graph with a derivative: called as the graph is, its outputs have a history.

    The backward graph is compiled at the first backward pass, for those outputs that then receive
    a gradient, by the backend and with the options and configuration of the forward pass.
    """

    def __init__(self, traced: Traced, stages: Stages) -> None:
        joint = traced.joint
        self.traced = traced
        self.stages = stages
        self._context = contextvars.copy_context()
        self._lock = threading.RLock()
        self._backwards: dict[tuple[bool, ...], _Compiled] = {}
        self._twice: Again | None = None
        with stages.timed("partition"):
            self.saved, _ = choose_saved(joint)
            forward = forward_half(joint, self.saved, traced.plain, traced.recorded)
        self.forward = stages.compile("forward", forward)
        self.inputs = [i for i, g in enumerate(joint.grads) if g is not None]
        self._with_tangent = frozenset(traced.tangents)
        self.aliases = [i for i, node in enumerate(joint.outputs) if _may_alias(node)]
        self.sources = _sources(traced, self.saved)
        kept = {i for kind, i in self.sources if kind == "primal"}
        #: Inputs that nothing is kept of: held weakly, for gradients of gradients alone.
        self.unsaved = [i for i in range(len(joint.primals)) if i not in kept]
        self.size_reader = _size_reader(traced)
        #: What to call: the same as the object itself, faster where that can be.
        self.entry = tracked_call(self, CompiledNode, _edge, _INFO)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        with no_grad():
            results = self.forward(*inputs)
        count = len(self.traced.joint.outputs)
        outputs = list(results[:count])
        for i in self.aliases:
            outputs[i] = alias_of(outputs[i])
        node = CompiledNode()
        node.info = _INFO
        node.training = self
        node.inputs = held([inputs[i] for i in self.unsaved])
        node.edges = tuple([_edge(inputs[i]) for i in self.inputs])
        node.sizes = self.size_reader(*inputs) if self.size_reader is not None else {}
        tracked = self._with_tangent
        attach_many(node, [x if i in tracked else None for i, x in enumerate(outputs)])
        node.saved = tuple([
            (save_result if kind == "output" and i in tracked else save)(places[kind][i])
            for places in ({"primal": inputs, "output": outputs, "kept": results},)
            for kind, i in self.sources
        ])  # fmt: skip
        returned = self.traced.returned
        if self.traced.recorded:
            with set_grad_enabled(True):
                for place, value in zip(self.traced.recorded, outputs[returned:]):
                    inputs[place].copy_(value)
        return tuple(outputs[:returned])

    def backward(self, node: CompiledNode, grads: list[Any]) -> tuple[Any, ...]:
        """Gradients of the inputs that have one, given those of the outputs."""
        saved = unpack(node)
        if THREAD.grad_enabled:
            return self._again().gradients(self._inputs_of(node, saved), grads)
        given = tuple([grads[i] is not None for i in self.traced.tangents])
        compiled = self._backwards.get(given) or self._compile_backward(given)
        half = compiled.half
        tangents = [
            self._tangent(grads, self.traced.tangents[i], node).contiguous() for i in half.tangents
        ]
        kept = [saved[i] for i in half.saved]
        run = compiled.run if compiled.holds(node.sizes) else half.module
        with no_grad():
            found = run(*kept, *[node.sizes[name] for name in half.sizes], *tangents)
        return tuple([found[i] for i in self.inputs])

    def _inputs_of(self, node: CompiledNode, saved: list[Any]) -> list[Any]:
        """What the graph was called with."""
        values: dict[int, Any] = {
            i: value for (kind, i), value in zip(self.sources, saved) if kind == "primal"
        }
        values.update((i, present(*x)) for i, x in zip(self.unsaved, node.inputs))
        return [values[i] for i in range(len(values))]

    def _again(self) -> Again:
        with self._lock:
            if self._twice is None:
                self._twice = Again(self.stages.gm, self.traced)
            return self._twice

    def _tangent(self, grads: list[Any], output: int, node: CompiledNode) -> Any:
        if grads[output] is not None:
            return grads[output]
        from mortice._dispatch.operator import get

        shape, dtype = node.output_meta(output)
        device = self.traced.joint.outputs[output].meta["val"].device
        return get("full")(shape, 0, dtype, None, device, None)

    def _compile_backward(self, given: tuple[bool, ...]) -> _Compiled:
        with self._lock:
            found = self._backwards.get(given)
            if found is None:
                found = self._context.copy().run(self._made, given)
                self._backwards[given] = found
            return found

    def _made(self, given: tuple[bool, ...]) -> _Compiled:
        joint, saved = self.traced.joint, self.saved
        half = None
        env = self.stages.examples.env
        known = len(env.guards)
        with self.stages.undisturbed():
            if not all(given):  # what belongs to outputs without a gradient is left out
                other = self.stages.joint(given).joint
                half = backward_half(other, counterparts(joint, saved, other))
            if half is None:
                half = backward_half(joint, saved)
            assert half is not None, "the cut leaves nothing that the backward graph needs"
            run = self.stages.compile("backward", half.module)
        return _Compiled(half, run, tuple(env.guards)[known:])


class _Compiled:
    """A backward graph, and what its backend asked about sizes beyond what the forward pass did."""

    __slots__ = ("_guards", "half", "run")

    def __init__(self, half: Backward, run: Callable[..., Any], guards: tuple[Any, ...]) -> None:
        self.half = half
        self.run = run
        self._guards = guards

    def holds(self, sizes: dict[str, Any]) -> bool:
        """Whether the compiled form is right for these sizes; the graph itself is for all."""
        return all(guard.holds(sizes) for guard in self._guards)


def _edge(x: Any) -> Any:
    if x._k & K.VIEW and x._s is not None and x._s.epoch:
        refresh(x)
    return x._g


def _may_alias(node: Any) -> bool:
    """Whether a backend may return an input, or a view of something, for an output."""
    if node.op == "placeholder":
        return True
    schema = getattr(node.target, "_schema", None)
    return schema is None or costs.is_view(schema)


def _sources(traced: Traced, saved: Sequence[Any]) -> list[tuple[str, int]]:
    """Where each value kept is found after a call: an input, an output, or behind the outputs."""
    joint = traced.joint
    written = {joint.primals[i] for i in (*(i for i, _ in traced.plain), *traced.recorded)}
    place = {node: i for i, node in enumerate(joint.primals)}
    output = {node: i for i, node in reversed([*enumerate(joint.outputs)])}
    found: list[tuple[str, int]] = []
    behind = len(joint.outputs)
    for node in saved:
        if node in place and node not in written:
            found.append(("primal", place[node]))
        elif node in output and node not in written:
            found.append(("output", output[node]))
        else:
            found.append(("kept", behind))
            behind += 1
    return found


def _size_reader(traced: Traced) -> Callable[..., dict[str, int]] | None:
    """A function of the inputs that gives the value of every symbol; None if there is none.

    Also of symbols that this graph does not use: the backward graph for some outputs alone may.
    """
    code = shown_by(traced.joint.primals)
    if not code:
        return None
    names = ", ".join(node.name for node in traced.joint.primals)
    pairs = ", ".join(f"{name!r}: {text}" for name, text in code.items())
    # Made of the names of placeholders and of positions.
    return eval(f"lambda {names}: {{{pairs}}}")  # noqa: S307


def _backward(node: Any, grads: list[Any]) -> tuple[Any, ...]:
    return node.training.backward(node, grads)


_INFO = Info("CompiledBackward", _backward, None)
