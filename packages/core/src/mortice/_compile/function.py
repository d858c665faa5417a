"""Running a compiled forward graph so that autograd finds its compiled backward graph."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from types import CodeType
from typing import Any

from mortice._autograd.grad_mode import no_grad, set_grad_enabled
from mortice._autograd.node import Info, Node, attach_many, save, save_result, unpack
from mortice._autograd.views import refresh
from mortice._base.errors import AutogradError
from mortice._dispatch import keys as K
from mortice._dispatch.state import THREAD
from mortice._tensor.make import alias_of
from mortice._types.device import Device
from mortice.fx import GraphModule

from .again import Again, Held, held, present
from .form import Form, form_of, reader_of, size_reader
from .joint import Traced
from .partition import Backward, backward_half, choose_saved, counterparts, forward_half
from .stages import Stages
from .tracked import tracked_call


class CompiledNode(Node):
    """The history of what one call of a compiled graph returned."""

    __slots__ = ("inputs", "sizes", "training")

    training: Training
    sizes: tuple[Any, ...]
    inputs: tuple[Held, ...]


class Training:
    """A captured graph with a derivative: called as the graph is, its outputs have a history.

    The backward graph is compiled at the first backward pass, for those outputs that then receive
    a gradient, by the backend and with the options and configuration of the forward pass.

    Args:
        form: What a call needs to know.
        forward: The compiled forward graph.
        stages: The work on the captured graph.
        traced: The joint graph and the values kept; traced again when it is needed, if not given.
        code: ``entry_code`` of another process.
    """

    def __init__(
        self,
        form: Form,
        forward: Callable[..., Any],
        stages: Stages,
        traced: tuple[Traced, list[Any]] | None = None,
        code: CodeType | None = None,
    ) -> None:
        self.form = form
        self.forward = forward
        self.stages = stages
        self._traced = traced
        self._context = contextvars.copy_context()
        self._lock = threading.RLock()
        self._backwards: dict[tuple[bool, ...], _Compiled] = {}
        self._twice: Again | None = None
        self._with_tangent = frozenset(form.tangents)
        kept = {i for kind, i in form.sources if kind == "primal"}
        #: Inputs that are among the sizes: input -> its number there.
        self._numbers = {i: n for n, (_, i, how, _) in enumerate(form.sizes) if how == "value"}
        #: Whether no size is a symbol.
        self._static = all(how == "value" for _, _, how, _ in form.sizes)
        #: Inputs that nothing is kept of: held weakly, for gradients of gradients alone.
        self.unsaved = [i for i in range(form.primals) if i not in {*kept, *self._numbers}]
        #: What to call: the same as the object itself, faster where that can be.
        self.entry = tracked_call(self, CompiledNode, _edge, _INFO, code)

    @cached_property
    def _size_reader(self) -> Callable[..., tuple[Any, ...]]:
        return size_reader(self.form)

    @property
    def entry_code(self) -> CodeType | None:
        """The code of ``entry``, which follows from the form; None where that is the object itself."""
        return getattr(self.entry, "__code__", None)

    @property
    def traced(self) -> Traced:
        """The joint graph."""
        return self._joint()[0]

    def _joint(self) -> tuple[Traced, list[Any]]:
        """The joint graph, and its nodes whose values are kept."""
        with self._lock:
            if self._traced is None:
                with self.stages.undisturbed():
                    traced = self.stages.joint()
                nodes = {node.name: node for node in traced.joint.module.graph.nodes}
                self._traced = traced, [nodes[name] for name in self.form.saved]
            return self._traced

    def forward_graph(self) -> GraphModule:
        """The forward graph as the backend was given it."""
        traced, saved = self._joint()
        return forward_half(traced.joint, saved, traced.plain, traced.recorded)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        form = self.form
        given = list(inputs)
        for i in form.generators:
            given[i] = inputs[i].clone_state()
        with no_grad():
            results = self.forward(*inputs)
        outputs = list(results[: len(form.outputs)])
        for i in form.aliases:
            outputs[i] = alias_of(outputs[i])
        node = CompiledNode()
        node.info = _INFO
        node.training = self
        node.inputs = tuple([held(given[i]) for i in self.unsaved])
        node.edges = tuple([_edge(inputs[i]) for i in form.inputs])
        node.sizes = self._size_reader(*inputs)
        tracked = self._with_tangent
        attach_many(node, [x if i in tracked else None for i, x in enumerate(outputs)])
        node.saved = tuple([
            (save_result if kind == "output" and i in tracked else save)(places[kind][i])
            for places in ({"primal": inputs, "output": outputs, "kept": results},)
            for kind, i in form.sources
        ])  # fmt: skip
        returned = form.returned
        if form.recorded:
            with set_grad_enabled(True):
                for place, value in zip(form.recorded, outputs[returned:]):
                    inputs[place].copy_(value)
        return tuple(outputs[:returned])

    def backward(self, node: CompiledNode, grads: list[Any], last: bool = False) -> tuple[Any, ...]:
        """Gradients of the inputs that have one, given those of the outputs; ``last``: nobody needs the
        values kept any more, and the backend is given the only reference to each.
        """
        saved = unpack(node)
        if THREAD.grad_enabled:
            return self._again().gradients(self._inputs_of(node, saved), grads)
        tangents = self.form.tangents
        given = tuple([grads[i] is not None for i in tangents])
        compiled = self._backwards.get(given) or self._compile_backward(given, node, saved)
        seeds = [self._tangent(grads, tangents[i], node).contiguous() for i in compiled.tangents]
        kept = [saved[i] for i in compiled.saved]
        fits = compiled.fits(kept) and compiled.holds(self.form, node.sizes)
        if not fits or not self._static:
            fits = self._are_as_said(node, saved) and fits
        run = compiled.run if fits else compiled.graph()
        numbers = compiled.numbers(self.form, node.sizes)
        if last:
            node.saved = None
        del saved
        with no_grad():
            found = run(*_let_go(kept), *numbers, *seeds)
        return tuple([found[i] for i in self.form.inputs])

    def _inputs_of(self, node: CompiledNode, saved: list[Any]) -> list[Any]:
        """What the graph was called with."""
        values: dict[int, Any] = {
            i: value for (kind, i), value in zip(self.form.sources, saved) if kind == "primal"
        }
        values.update((i, node.sizes[n]) for i, n in self._numbers.items())
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
        kind = self.form.outputs[output]
        assert kind is not None, "only tensors have a gradient"
        return get("full")(shape, 0, dtype, None, Device(kind[1]), None)

    def _compile_backward(
        self, given: tuple[bool, ...], node: CompiledNode, saved: list[Any]
    ) -> _Compiled:
        with self._lock:
            found = self._backwards.get(given)
            if found is None and not self._are_as_said(node, saved):
                half = self._half(given)
                form = half.saved, half.sizes, half.tangents
                return _Compiled(*form, lambda: half.module, half.module, (), None)
            if found is None:
                found = self._context.copy().run(self._made, given, saved)
                self._backwards[given] = found
            return found

    def _are_as_said(self, node: CompiledNode, saved: list[Any]) -> bool:
        """Whether values have the dtypes that were kept; hooks that unpack them may give others.

        Raises:
            AutogradError: One has another size, which operators would broadcast, or refuse by a name of
                theirs.
        """
        for x, expected in zip(saved, self._kept_shapes(node)):
            found = tuple(x._a.shape)
            if found != expected:
                raise AutogradError(
                    f"a value kept for the backward pass has size {[*found]}, and had {[*expected]} in the "
                    "forward pass. Hooks of saved_tensors_hooks must unpack what they packed, and "
                    "`data` must not be assigned another size before backward()."
                )
        return all(x._t.name == dtype for x, (_, dtype) in zip(saved, self.form.kept))

    def _kept_shapes(self, node: CompiledNode) -> list[tuple[Any, ...]]:
        """The sizes of each value kept, in a call of the graph."""
        shapes = [shape for shape, _ in self.form.kept]
        if all(type(n) is int for shape in shapes for n in shape):
            return shapes
        sizes = iter(self._kept_sizes(*node.sizes))
        return [tuple([next(sizes) for _ in shape]) for shape in shapes]

    @cached_property
    def _kept_sizes(self) -> Callable[..., tuple[Any, ...]]:
        """The sizes of all values kept, one after the other."""
        return reader_of(self.form, [str(n) for shape, _ in self.form.kept for n in shape])

    def _made(self, given: tuple[bool, ...], values: list[Any]) -> _Compiled:
        stages = self.stages
        kept = stages.kept
        layouts = [_layout(x) for x in values] if self._static else None
        name = "backward" + "".join("01"[x] for x in given) + _shown(values, layouts)
        found = None if kept is None else kept.backward(name, lambda: self._half(given).module)
        if found is not None:
            (saved, sizes, tangents), run, graph = found
            stages.found("backward", graph, run)
            return _Compiled(saved, sizes, tangents, graph, run, (), layouts)
        half = self._half(given)
        env = stages.examples.env
        known = len(env.guards)
        with stages.undisturbed():
            _lay_out(half, values)
            run = stages.compile("backward", half.module, name)
        guards = tuple(env.guards)[known:]
        if kept is not None and not guards:
            kept.keep_backward(name, (half.saved, half.sizes, half.tangents), half.module)
        form = half.saved, half.sizes, half.tangents
        return _Compiled(*form, lambda: half.module, run, guards, layouts)

    def _half(self, given: tuple[bool, ...]) -> Backward:
        """The backward graph for outputs of which some receive a gradient."""
        traced, saved = self._joint()
        half = None
        joint = traced.joint
        with self.stages.undisturbed():
            if not all(given):  # what belongs to outputs without a gradient is left out
                other = self.stages.joint(given).joint
                half = backward_half(other, counterparts(joint, saved, other))
                # Where that needs what was not kept, their gradients are zeros, but inputs of which
                # the others are no functions have none all the same.
                grads = [None if o is None else g for g, o in zip(joint.grads, other.grads)]
                joint = replace(joint, grads=tuple(grads))
            if half is None:
                half = backward_half(joint, saved)
        assert half is not None, "the cut leaves nothing that the backward graph needs"
        return half


class _Compiled:
    """A backward graph (``partition.Backward``), what its backend asked about sizes beyond what the
    forward pass did, and how the values kept lay when it was compiled (None: that is for the backend to
    look at, since sizes are symbols).
    """

    __slots__ = ("_guards", "_layouts", "_reader", "graph", "run", "saved", "sizes", "tangents")

    def __init__(
        self,
        saved: tuple[int, ...],
        sizes: tuple[str, ...],
        tangents: tuple[int, ...],
        graph: Callable[[], GraphModule],
        run: Callable[..., Any],
        guards: tuple[Any, ...],
        layouts: list[Any] | None,
    ) -> None:
        self._layouts = None if layouts is None else [layouts[i] for i in saved]
        self.saved = saved
        self.sizes = sizes
        self.tangents = tangents
        self.graph = graph
        self.run = run
        self._guards = guards
        self._reader: Callable[..., tuple[Any, ...]] | None = None

    def fits(self, kept: list[Any]) -> bool:
        """Whether the values kept are of these sizes and dtypes, and lie as then: native code takes
        them at their word, and hooks that unpack them may give others.
        """
        return self._layouts is None or self._layouts == [_layout(x) for x in kept]

    def holds(self, form: Form, sizes: tuple[Any, ...]) -> bool:
        """Whether the compiled form is right for these sizes; the graph itself is for all."""
        if not self._guards:
            return True
        values = {name: value for (name, *_), value in zip(form.sizes, sizes)}
        return all(guard.holds(values) for guard in self._guards)

    def numbers(self, form: Form, sizes: tuple[Any, ...]) -> tuple[Any, ...]:
        """The values of ``Backward.sizes``."""
        if not self.sizes:
            return ()
        if self._reader is None:
            self._reader = reader_of(form, self.sizes)
        return self._reader(*sizes)


def _let_go(values: list[Any]) -> tuple[Any, ...]:
    """What a list has, which has it no longer."""
    given = tuple(values)
    values.clear()
    return given


def _layout(x: Any) -> Any:
    """Sizes, strides in bytes (None where the memory has none to show) and dtype."""
    a = x._a
    return a.shape, getattr(a, "strides", None), x._t


def _shown(values: list[Any], layouts: list[Any] | None) -> str:
    """What tells layouts of values from others of the same sizes: strides where they are not row-major."""
    if layouts is None:
        return ""
    pairs = [
        (i, a) for i, (x, (_, a, _)) in enumerate(zip(values, layouts)) if not x.is_contiguous()
    ]
    return f" {pairs}" if pairs else ""


def _lay_out(half: Backward, values: list[Any]) -> None:
    """Let the graph's inputs lie as the values kept do: a backend may lay out what it returns otherwise
    than the trace says, and takes the examples at their word where sizes are no symbols.
    """
    for node, i in zip(half.module.graph.nodes, half.saved):
        example, value = node.meta["val"], values[i]
        fixed = all(type(n) is int for n in (*example.shape, *example.stride()))
        if fixed and tuple(example.stride()) != tuple(value.stride()):
            node.meta["val"] = example._a.mode.empty(
                tuple(example.shape), example._t, example.device, tuple(value.stride())
            )


def trained(stages: Stages) -> Training | None:
    """The captured graph with its derivative, compiled; None where no output has a history."""
    traced = stages.joint()
    if not traced.tangents:
        return None
    with stages.timed("partition"):
        saved, _ = choose_saved(traced.joint)
        half = forward_half(traced.joint, saved, traced.plain, traced.recorded)
    form = form_of(traced, saved)
    forward = stages.compile("forward", half)
    training = Training(form, forward, stages, (traced, saved))
    if stages.kept is not None:
        stages.kept.keep_training(stages, training, half)
    return training


def _edge(x: Any) -> Any:
    if x._k & K.VIEW and x._s is not None and x._s.epoch:
        refresh(x)
    return x._g


def _backward(node: Any, grads: list[Any]) -> tuple[Any, ...]:
    return node.training.backward(node, grads)


def _last_backward(node: Any, grads: list[Any]) -> tuple[Any, ...]:
    return node.training.backward(node, grads, True)


_INFO = Info("CompiledBackward", _backward, None, _last_backward)
