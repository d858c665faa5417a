"""From the steps of a segment to its graph: functional operators over one current value per memory."""

from __future__ import annotations

import linecache
import operator
from collections.abc import Sequence
from typing import Any

from mortice._autograd.grad_mode import no_grad
from mortice._capture.draws import draws
from mortice._capture.dynamic import Symbols
from mortice._capture.fake import FakeTensorMode
from mortice._capture.inverses import INVERSES
from mortice._capture.refusals import is_number
from mortice._capture.tree import Leaf, Output, Slot, Step
from mortice._dispatch.keys import AUTOGRAD
from mortice._dispatch.modes import as_call, overload_of
from mortice._dispatch.operator import Operator, get
from mortice._tensor.array import PendingArray
from mortice._types.layout import contiguous_format
from mortice.fx import Graph, GraphModule, Node


def build(
    steps: Sequence[Step],
    wanted: Sequence[Slot],
    numbers: Sequence[Any],
    generators: int,
    symbols: Symbols,
) -> GraphModule:
    """The graph of a segment that returns the values of ``wanted`` memories.

    Its placeholders are the leaves, the numbers and the generators, in this order; writes to leaves
    stand at its end.
    """
    leaves = [leaf for s in steps for leaf in s.new_leaves]
    builder = Builder(leaves, numbers, generators, symbols)
    for i, s in enumerate(steps):
        builder.add(i, s)
    return builder.finish(wanted)


class _Value:
    """The current value of one memory, as seen through ``slot``."""

    __slots__ = ("node", "slot", "version", "views")

    def __init__(self, slot: Slot, node: Node) -> None:
        self.slot = slot
        self.node = node
        self.version = 0
        self.views: dict[Slot, tuple[int, Node]] = {}


class Builder:
    """Turns steps into nodes, one after the other."""

    def __init__(
        self, leaves: Sequence[Leaf], numbers: Sequence[Any], generators: int, symbols: Symbols
    ) -> None:
        self.graph = Graph()
        self.symbols = symbols
        self.mode = FakeTensorMode(symbols.env)
        self.wants: dict[Step, tuple[Any, ...]] = {}
        self.values: dict[Slot, _Value] = {}
        #: What each memory's first value is like: its sizes and strides.
        self.vals: dict[Slot, Any] = {}
        self.leaf_nodes: dict[Leaf, Node] = {}
        self.parts: dict[tuple[Step, int], Node] = {}
        self.tracked: set[Slot] = set()
        self.grad = False
        self.line = ("", 0, "")
        self.number = 0
        self.generator = 0
        for leaf in leaves:
            node = self.graph.placeholder(f"arg{leaf.number}")
            node.meta["val"] = self._stand_in(leaf)
            self.leaf_nodes[leaf] = node
            self.vals[leaf] = node.meta["val"]
            if leaf.first is None:
                self.values[leaf] = _Value(leaf, node)
        self.number_nodes = [self.graph.placeholder(f"number{i}") for i in range(len(numbers))]
        for node, value in zip(self.number_nodes, numbers):
            node.meta["val"] = value
        self.generator_nodes = [self.graph.placeholder(f"generator{i}") for i in range(generators)]

    # -- nodes ---------------------------------------------------------------------------------

    def emit(self, name: str, *args: Any) -> Node:
        """An operator that the recording does not have, with its value inferred."""
        return self._call(get(name), args)

    def _call(self, op: Operator, values: Sequence[Any]) -> Node:
        with self.mode, no_grad():
            val = op(*[_val(x) for x in values])
        return self._node(op, values, val)

    def _node(self, op: Operator, values: Sequence[Any], val: Any) -> Node:
        args, kwargs = as_call(op, values)
        node = self.graph.call_function(overload_of(op), args, kwargs)
        node.meta["val"] = val
        return self._note(node)

    def _stand_in(self, leaf: Leaf) -> Any:
        """A fake tensor with a leaf's sizes, strides, dtype and device."""
        sizes = self.symbols.sizes
        shape = [sizes.get((leaf.number, d), n) for d, n in enumerate(leaf.shape)]
        strides = self.symbols.strides.get(leaf.number, leaf.steps)
        return self.mode.empty(shape, leaf.dtype, leaf.device, strides)

    def _made(self, out: Output) -> Any:
        h = out.handle
        return self.mode.empty(h.shape, h.dtype, h.device, h.strides)

    def _note(self, node: Node) -> Node:
        node.meta["grad"] = self.grad
        file, line, function = self.line
        if file:
            text = linecache.getline(file, line).strip()
            node.meta["stack"] = f"{file}:{line}, in {function}: {text}"
        return node

    def _item(self, node: Node, i: int) -> Node:
        found = self.graph.call_function(operator.getitem, (node, i))
        found.meta["val"] = node.meta["val"][i]
        return self._note(found)

    # -- values --------------------------------------------------------------------------------

    def read(self, slot: Slot) -> Node:
        """The node that has a slot's value now."""
        value = self.values[slot.cell]
        if slot is value.slot:
            if (
                value.version
            ):  # what follows has the memory's strides, or strides that follow from them
                self._laid_out(value)
            return value.node
        if isinstance(slot, Leaf):
            return self.leaf_nodes[slot]
        found = value.views.get(slot)
        if found is not None and found[0] == value.version:
            return found[1]
        assert slot.base is not None
        source = self.read(slot.base)
        if slot.base is value.slot:
            source = self._laid_out(value)
        node = self._view(slot, source)
        value.views[slot] = (value.version, node)
        return node

    def _laid_out(self, value: _Value) -> Node:
        """A memory's value with the strides of the memory; it is its value from now on, whoever reads it
        first.
        """
        saved, self.grad = self.grad, self._has_history(value.slot)
        value.node = self._dense(value.node, self.vals[value.slot]._a.strides)
        self.grad = saved
        return value.node

    def _dense(self, node: Node, strides: Sequence[int]) -> Node:
        """A node's value with the strides that its memory has, on which views depend."""
        val = node.meta["val"]
        shape, have = val._a.shape, val._a.strides
        if all(a == b for a, b, n in zip(have, strides, shape) if n != 1):
            return node
        order = tuple(sorted(range(len(shape)), key=lambda d: -strides[d]))
        back = tuple(sorted(range(len(shape)), key=order.__getitem__))
        turned = self.emit("permute", node, order)
        copied = self.emit("clone", turned, contiguous_format)
        return self.emit("permute", copied, back)

    def _view(self, slot: Output, source: Node) -> Node:
        step = slot.step
        saved = self.grad, self.line
        # A view made before its source got a history in place has that history, too.
        rebased = slot.cell in self.tracked and step.call.op.name != "detach"
        self.grad, self.line = step.call.grad or rebased, step.line
        args = (source, *self.wants[step][1:])
        if slot.part is None:
            node = self._call(step.call.op, args)
        else:
            many = self.parts.get((step, id(source)))
            if many is None:
                many = self.parts[step, id(source)] = self._call(step.call.op, args)
            node = self._item(many, slot.part)
        self.grad, self.line = saved
        return node

    def write(self, slot: Slot, node: Node) -> None:
        """Give a slot's memory a new value."""
        value = self.values[slot.cell]
        if slot is value.slot:
            value.node = node
            value.version += 1
            return
        assert isinstance(slot, Output)
        assert slot.base is not None
        step = slot.step
        source = self.read(slot.base)
        inverse = INVERSES.get(step.call.op.name)
        if inverse is None:
            changed = self._strided_write(slot, source, node)
        else:
            shape = source.meta["val"]._a.shape
            changed = inverse(self.emit, source, node, shape, self.wants[step][1:], slot.part)
        self.write(slot.base, changed)
        value.views[slot] = (value.version, node)

    def _strided_write(self, slot: Output, source: Node, node: Node) -> Node:
        """For views without an inverse of their own: by position in the source's memory."""
        assert slot.base is not None
        seen = self._view(slot, source).meta["val"]
        offset = seen.storage_offset() - source.meta["val"].storage_offset()
        # None is where the source begins, wherever that is in its memory
        shape, strides = seen._a.shape, seen._a.strides
        return self.emit("as_strided_scatter", source, node, shape, strides, offset or None)

    # -- steps ---------------------------------------------------------------------------------

    def add(self, index: int, step: Step) -> None:
        call = step.call
        self.wants[step] = self._with_sizes(index, step)
        self.grad, self.line = call.grad, step.line
        if call.form == "view":
            return  # made when it is read
        if call.form == "inplace":
            self._write_in_place(step)
            return
        values = [self._argument(w, k) for w, k in zip(self.wants[step], call.kinds)]
        written = self._copies_to_write(step, values) if call.form == "mutating" else {}
        returns = call.op.schema.returns
        many = len(returns) != 1 or returns[0].type.is_list
        if self.symbols.sizes:
            node = self._call(call.op, values)
        else:
            vals = tuple(None if o is None else self._made(o) for o in step.outputs)
            node = self._node(call.op, values, vals if many else vals[0])
        for slot, value in written.items():
            self.write(slot, value)
        for i, out in enumerate(step.outputs):
            if out is not None:
                own = self._item(node, i) if many else node
                self.values[out] = _Value(out, own)
                self.vals[out] = own.meta["val"]

    def _with_sizes(self, index: int, step: Step) -> tuple[Any, ...]:
        """A step's arguments, with expressions where integers follow from symbolic sizes."""
        arguments = self.symbols.arguments
        if not arguments:
            return step.wants

        def replaced(want: Any, *place: int) -> Any:
            if type(want) is tuple:
                return tuple(replaced(w, *place, i) for i, w in enumerate(want))
            return arguments.get((index, *place), want) if type(want) is int else want

        return tuple(replaced(w, i) for i, w in enumerate(step.wants))

    def _copies_to_write(self, step: Step, values: list[Any]) -> dict[Slot, Node]:
        """Put copies in the place of what an operator writes to; slot -> its copy, then its value."""
        found: dict[Slot, Node] = {}
        for i in step.call.op.schema.mutated:
            want = step.wants[i]
            if want is None:
                continue
            slot: Slot = want.output if isinstance(want, PendingArray) else want
            values[i] = found[slot] = self.emit("clone", values[i], None)
        return found

    def _argument(self, want: Any, kind: str) -> Any:
        if isinstance(want, PendingArray):
            return self.read(want.output)
        if isinstance(want, Leaf):
            return self.read(want)
        if kind == "L":
            return tuple(self._argument(w, "O") for w in want)
        if kind == "G":
            self.generator += 1
            return self.generator_nodes[self.generator - 1]
        if kind in "NFOZ" and is_number(want):
            self.number += 1
            return self.number_nodes[self.number - 1]
        return want

    def _write_in_place(self, step: Step) -> None:
        op = step.call.op
        want = step.wants[0]
        slot: Slot = want.output if isinstance(want, PendingArray) else want
        values = [self._argument(w, k) for w, k in zip(self.wants[step], step.call.kinds)]
        target = values[0].meta["val"]
        name = op.name
        if name == "copy_":
            node = self._copied(values[1], target)
            if self.grad and (slot.key & AUTOGRAD or slot.cell in self.tracked):
                # What is overwritten has a gradient, of zeros: none would be another answer.
                node = self.emit("copy", values[0], node, False)
        elif op.row.functional:
            node = self._call(get(op.row.functional), values)
        else:
            # Fills with random numbers do not; any other may read what it writes to.
            blank = op.schema.namespace == "aten" and "nondeterministic_seeded" in op.row.tags
            if blank:
                own = self.emit("empty_like", values[0], None, None, None, None, None)
            else:
                own = self.emit("clone", values[0], None)
            node = self._node(op, [own, *values[1:]], target)
        self.write(slot, self._cast(node, target))
        if self.grad:
            self.tracked.add(slot.cell)

    def _copied(self, source: Node, target: Any) -> Node:
        shape = tuple(target._a.shape)
        node = self._cast(source, target)
        own = node is not source
        if node.meta["val"].device != target.device:
            node = self.emit("_to_copy", node, None, None, target.device, None, False, None)
            own = True
        if tuple(node.meta["val"]._a.shape) != shape:
            node = self.emit("expand", node, shape, False)
        # A value of its own: the source may be written to later, and its history is not the copy's.
        return node if own else self.emit("clone", node, None)

    def _cast(self, node: Node, target: Any) -> Node:
        if node.meta["val"]._t is target._t:
            return node
        return self.emit("_to_copy", node, target._t, None, None, None, False, None)

    # -- the end -------------------------------------------------------------------------------

    def finish(self, wanted: Sequence[Slot]) -> GraphModule:
        """Return the values of ``wanted`` memories, and write back those of leaves."""
        nodes: list[Node] = []
        taken: set[Node] = set()
        for cell in wanted:
            node = self._own(self.values[cell].node, taken, cell)
            taken.add(node)
            nodes.append(node)
        for slot, value in self.values.items():
            if isinstance(slot, Leaf) and value.version:
                self.grad = slot in self.tracked
                target = self.leaf_nodes[slot]
                self._node(get("copy_"), [target, value.node, False], target.meta["val"])
        self.graph.output(tuple(nodes))
        self._sweep()
        return GraphModule({}, self.graph)

    def _own(self, node: Node, taken: set[Node], cell: Slot) -> Node:
        """A node whose memory is nobody else's: not an input's, not another output's."""
        made = node.args[0] if node.target is operator.getitem else node
        alias = node.op == "placeholder" or node in taken or _makes_views(made)
        if not alias:
            return node
        self.grad = self._has_history(cell)
        return self.emit("clone", node, None)

    def _has_history(self, cell: Slot) -> bool:
        """Whether a memory's current value has gradients."""
        return cell in self.tracked or bool(cell.key & AUTOGRAD)

    def _sweep(self) -> None:
        """Take out nodes whose results nobody uses; writes at the end stay, and what draws from the
        default generator before another that does: where that one begins depends on it.
        """
        drawn = False
        for node in reversed(self.graph.nodes):
            if node.op != "call_function":
                continue
            random = _draws(node)
            if node.users or _writes(node) or (drawn and random):
                drawn = drawn or random
            else:
                self.graph.erase_node(node)


def _writes(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.mutated)


def _draws(node: Node) -> bool:
    op = getattr(node.target, "operator", None)
    return op is not None and draws(op, node.args)


def _makes_views(node: Any) -> bool:
    op = getattr(node.target, "operator", None)
    return op is not None and (op.row.kind == "view" or op.name == "reshape")


def _val(x: Any) -> Any:
    if isinstance(x, Node):
        return x.meta.get("val")
    if isinstance(x, (tuple, list)):
        return type(x)(_val(y) for y in x)  # pyright: ignore[reportUnknownVariableType]
    return x
