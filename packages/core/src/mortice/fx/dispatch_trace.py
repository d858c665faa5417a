"""Tracing the operators that run below autograd into a graph: ``make_fx``."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from mortice._base.errors import InvalidValue, TraceError, nearest
from mortice._dispatch.keys import FAKE
from mortice._dispatch.modes import DispatchMode
from mortice._dispatch.operator import Operator
from mortice._tensor import rows
from mortice._tensor.generator import Generator
from mortice._tensor.tensor import Tensor
from mortice.fx import attributes
from mortice.fx.aliases import Value, Values, View, laid_out
from mortice.fx.codegen import CodeGen, PyTreeCodeGen
from mortice.fx.faking import Faking
from mortice.fx.graph import Graph
from mortice.fx.graph_module import GraphModule
from mortice.fx.interpreter import Interpreter
from mortice.fx.node import Node, map_aggregate
from mortice.fx.stack import user_line
from mortice.fx.substitutes import Substitutes, check_table
from mortice.utils import pytree

TRACING_MODES = ("real", "fake", "symbolic")


def make_fx(
    f: Callable[..., Any],
    decomposition_table: Mapping[Any, Callable[..., Any]] | None = None,
    tracing_mode: str = "real",
    *,
    functional: bool = True,
) -> Callable[..., GraphModule]:
    """A function that traces ``f`` on its arguments and returns the GraphModule.

    The nodes are the ATen operators that run below autograd, composites taken apart, so that
    gradients computed within ``f`` are part of the graph. Tensors, generators and numbers in the
    arguments, at any depth, become placeholders; numbers other than symbolic ones are constants. ``node.meta["val"]`` is
    the result as a tensor without data, ``meta["stack"]`` the user's line.

    Args:
        f: a function or a Module; tensors that it uses and that are no arguments become attributes.
        decomposition_table: overload -> a function that is traced in its place; NotImplemented from
            it leaves the operator. Results of another shape or dtype are refused.
        tracing_mode: ``"real"`` runs on the arguments themselves; ``"fake"`` on tensors without data;
            ``"symbolic"`` on those with symbolic sizes and integers.
        functional: write no in-place operators: the graph computes new values, and copies those of
            arguments and attributes that ``f`` writes to at its end. Else nodes are as they ran.

    Raises TraceError where ``f`` needs the value of a tensor that depends on the arguments,
    InvalidValue for a table that is none and for results of its functions that do not fit,
    InvalidState for a function that calls its own operator without end.
    """
    check_table(decomposition_table)
    if tracing_mode not in TRACING_MODES:
        raise InvalidValue(
            f"unexpected tracing mode {tracing_mode!r}; expected one of {', '.join(TRACING_MODES)}."
            f"{nearest(tracing_mode, TRACING_MODES)}"
        )

    def traced(*args: Any) -> GraphModule:
        return trace(f, args, {}, decomposition_table, tracing_mode, functional)

    return traced


def trace(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    decomposition_table: Mapping[Any, Callable[..., Any]] | None = None,
    tracing_mode: str = "real",
    functional: bool = True,
    keeps_differentiable: bool = False,
    fake_mode: Any = None,
) -> GraphModule:
    """What ``make_fx`` does, with keyword arguments.

    ``keeps_differentiable``: composites that have a derivative of their own (``linear``) are nodes.
    ``fake_mode``: the mode of tensors without data, where it is not that of an argument.
    """
    leaves, spec = pytree.tree_flatten((args, kwargs))
    with Faking(tracing_mode, leaves, fake_mode) as faking:
        session = _Session(f, decomposition_table, functional, faking)
        session.mode.keeps_differentiable = keeps_differentiable
        leaves = [faking.leaf(x) for x in leaves]
        for name, leaf in zip(_names(f, args, kwargs), leaves):
            session.add_input(name, leaf)
        call_args, call_kwargs = spec.unflatten(leaves)
        with session.mode:
            result = f(*call_args, **call_kwargs)
        return session.finish(result, spec, _parameter_names(f, args, kwargs))


def retrace(gm: GraphModule, decomposition_table: Mapping[Any, Callable[..., Any]]) -> GraphModule:
    """The graph of a traced module anew, operators in the table taken apart.

    Inputs, attributes and the structure of arguments and results stay. Its placeholders must have
    ``meta["val"]``.
    """
    placeholders = gm.graph.find_nodes(op="placeholder")
    leaves = [n.meta["val"] for n in placeholders]
    with Faking("fake", leaves) as faking:
        session = _Session(gm, decomposition_table, True, faking)
        for node, leaf in zip(placeholders, leaves):
            session.add_input(node.target, leaf)
        with session.mode:
            result = Interpreter(gm).run(*leaves, enable_io_processing=False)
        return session.finish_as(result, gm.graph._codegen)


def _signature(f: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(getattr(f, "forward", f))
    except (TypeError, ValueError):
        return None


def _parameter_names(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """Names for the arguments as they are passed."""
    signature = _signature(f)
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    known = [p.name for p in signature.parameters.values() if p.kind in kinds] if signature else []
    names = [known[i] if i < len(known) else f"arg{i}" for i in range(len(args))]
    return [*names, *kwargs]


def _names(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """A name for each leaf of the arguments: ``x``, or ``x_0`` and ``x_weight`` for what it holds."""
    names = _parameter_names(f, args, kwargs)
    found: list[str] = []
    for name, value in zip(names, (*args, *kwargs.values())):
        for path, _ in pytree.tree_flatten_with_path(value)[0]:
            keys = [str(getattr(k, "idx", getattr(k, "key", getattr(k, "name", "")))) for k in path]
            found.append("_".join([name, *keys]))
    return found


#: Operators whose result is a value of Python's, read from a tensor.
_READS = frozenset(("_local_scalar_dense", "equal", "is_nonzero", "item"))


class _Session:
    """One trace: the graph as far as it is recorded, and which node stands for which tensor."""

    def __init__(
        self, f: Any, table: Mapping[Any, Any] | None, functional: bool, faking: Faking
    ) -> None:
        self.graph = Graph()
        self.faking = faking
        self.functional = functional
        self.substitutes = None if table is None else Substitutes(table, faking)
        self.values = Values(self._record_view)
        self.mode = _TraceMode(self)
        self.attributes: dict[str, Any] = {}
        self._constants = 0
        self._inputs: list[tuple[Value, Node]] = []
        self._generators: dict[int, Node] = {}
        #: Memory of inputs -> their names.
        self._sharing: dict[int, list[str]] = {}
        self._root = f
        self._known_names = _named_tensors(f)

    # -- inputs and attributes -----------------------------------------------------------------

    def add_input(self, name: str, leaf: Any) -> None:
        node = self.graph.placeholder(name)
        if isinstance(leaf, Tensor):
            node.meta["val"] = self.faking.shown(leaf)
            known = self.values.find(leaf)
            if known is None:
                known = self.values.add(leaf, node)
                self._inputs.append((known, node))
            self._sharing.setdefault(id(known.memory), []).append(name)
        else:
            node.meta["val"] = leaf
            if isinstance(leaf, Generator):
                self._generators[id(leaf)] = node

    def _attribute(self, tensor: Any) -> Value:
        """A tensor that is no argument: an attribute of the module to be."""
        name = self._known_names.get(id(tensor._a))
        if name is None:
            kind = "param" if attributes.is_parameter(tensor) else "tensor"
            name = f"_{kind}_constant{self._constants}"
            self._constants += 1
        self.attributes[name] = self.faking.real(tensor)
        # Before everything recorded so far, so that the node can be used by all of it.
        node = self.graph.get_attr(name)
        node.meta["val"] = self.faking.shown(tensor)
        value = self.values.add(tensor, node)
        self._inputs.append((value, node))
        return value

    def value_of(self, tensor: Any) -> Value:
        return self.values.find(tensor) or self._attribute(tensor)

    def _node_of(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self.value_of(value).read(self._record_view)
        if isinstance(value, Generator):
            return self._generators.get(id(value), value)
        return value

    # -- recording -----------------------------------------------------------------------------

    def _record_view(
        self, func: Any, args: tuple[Any, ...], tensor: Any, index: int | None = None
    ) -> Node:
        """What the trace itself adds, a view made again or the inverse of one, as its node.

        It is traced on stand-ins for the values at hand, and laid out as ``tensor`` is, so that what
        the program did with that can be done with it.
        """

        def stand_in(value: Any) -> Any:
            if not isinstance(value, Node):
                return value
            made = self.faking.stand_in(value.meta["val"])
            self.values.add(made, value)
            return made

        with self.faking.mode, self.mode:
            result = func(*map_aggregate(args, stand_in))
            result = result if index is None else result[index]
            if hasattr(func, "operator") and func.operator.row.kind == "view":
                return self._node_of(result)
            return self._node_of(laid_out(result, tensor))

    def _add(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
        node = self.graph.call_function(func, args, kwargs)
        stack = user_line()
        if stack:
            node.meta["stack"] = stack
        return node

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator and record it."""
        op: Operator = func.operator
        if self.substitutes is not None:
            result = self.substitutes.run(func, args, kwargs, self.mode)
            if result is not NotImplemented:
                return result
        if op.schema.mutated and self.functional:
            return self._write(func, args, kwargs)
        if op.name == "as_strided" and self.functional:
            return self._restrided(func, *args, **kwargs)
        inputs = map_aggregate((args, kwargs), self._node_of)
        result = func(*args, **kwargs)
        return self._recorded(func, inputs, args, result)

    def _restrided(
        self, func: Any, t: Any, size: Any, stride: Any, storage_offset: Any = None
    ) -> Any:
        """A view by places in memory: of the memory's root, whose value has the memory's layout."""
        value = self.value_of(t)
        root = value.memory.root if value.memory.root.tensor._t is t._t else value
        value.memory.check_row_major()
        offset = t.storage_offset() if storage_offset is None else storage_offset
        result = func(t, size, stride, offset)
        geometry = (size, stride, offset)
        node = self._add(func, (root.read(self._record_view), *geometry), {})
        node.meta["val"] = self.faking.shown(result)
        self.values.add_view(result, View(func, root, geometry, None), node)
        return result

    def _recorded(self, func: Any, inputs: Any, args: tuple[Any, ...], result: Any) -> Any:
        op: Operator = func.operator
        if isinstance(result, Tensor):
            if any(isinstance(a, Tensor) and a._a is result._a for a in args):
                if op.schema.mutated:
                    self.value_of(result).node = self._add(func, *inputs)
                return result  # an alias is the same value
            node = self._add(func, *inputs)
            self._track(result, node, func, args, None)
            return result
        if not isinstance(result, (tuple, list)):
            if op.schema.name in _READS:
                self._check_read(func, args, result)
            if getattr(result, "_is_symbolic", False):
                self._add(func, *inputs).meta["val"] = result
            elif not op.schema.returns:
                self._add(func, *inputs)
            return result
        node = self._add(func, *inputs)
        node.meta["val"] = tuple(
            self.faking.shown(x) if isinstance(x, Tensor) else x for x in result
        )
        for i, one in enumerate(result):
            if isinstance(one, Tensor):
                part = self._add(operator.getitem, (node, i), {})
                self._track(one, part, func, args, i)
        return result

    def _track(
        self, tensor: Any, node: Node, func: Any, args: tuple[Any, ...], index: int | None
    ) -> None:
        """Let a node stand for an operator's result."""
        node.meta["val"] = self.faking.shown(tensor)
        if func.operator.row.kind == "view":
            parent = self.value_of(args[0])
            self.values.add_view(tensor, View(func, parent, tuple(args[1:]), index), node)
            return
        memory = self.values.memory_of(tensor)
        if memory is None:
            self.values.add(tensor, node)
        elif (known := self.values.find(tensor)) is not None:
            known.node = node
            known.epoch = memory.epoch

    def _check_read(self, func: Any, args: tuple[Any, ...], result: Any) -> None:
        """A value that Python reads may not depend on the arguments."""
        if getattr(result, "_is_symbolic", False):
            return
        self.check_read(str(func), [x for x in args if isinstance(x, Tensor)])

    def check_read(self, reader: str, tensors: list[Any]) -> None:
        """TraceError if one of the tensors may have other values in another call."""
        if _is_variable([self._node_of(x) for x in tensors]):
            raise TraceError(
                f"the traced program needs the value of a tensor ({reader}) at {user_line()}, which would be "
                "fixed in the graph as it is now. Choose by mortice.where, keep the number in a tensor, pass "
                "it as an argument of its own, or use mortice.compile."
            )

    # -- writes --------------------------------------------------------------------------------

    def _write(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operator that writes to arguments, as one that computes their new values."""
        op: Operator = func.operator
        if op.row.functional:
            functional = _overload(op.row.functional)
            outs = op.row.kind == "out"
            names = [op.schema.arguments[i].name for i in op.schema.mutated]
            if outs:
                targets = [kwargs[n] for n in names]
                kwargs = {k: v for k, v in kwargs.items() if k not in names}
            else:
                targets = [args[0]]
            with self.mode:
                result = functional(*args, **kwargs)
            results = result if isinstance(result, (tuple, list)) else (result,)
            for target, one in zip(targets, results):
                self._assign(op, target, one, resize=outs)
            return targets[0] if len(targets) == 1 else tuple(targets)
        if op.name == "copy_":
            self._assign(op, args[0], self._copied(args[0], args[1]))
            return args[0]
        return self._write_to_copies(func, args, kwargs)

    def _copied(self, target: Any, source: Any) -> Any:
        with self.mode:
            if source._t is not target._t or source.device != target.device:
                source = source.to(target.device, target._t)
            if tuple(source._a.shape) != tuple(target._a.shape):
                source = source.expand(tuple(target._a.shape))
        return source

    def _assign(self, op: Operator, target: Any, result: Any, resize: bool = False) -> None:
        """Let ``target`` have the value of ``result``, on the tensors at hand and in the graph."""
        same_shape = tuple(result._a.shape) == tuple(target._a.shape)
        if resize and not same_shape:
            rows.fill_out(op, target, result)
            self.values.add(target, self._node_of(result))
            return
        if not same_shape:
            raise rows.broadcast_mismatch(op, target, result._a.shape)
        rows.check_cast(op, result._t, target._t)
        rows.check_overlap(op, target)
        if result._t is not target._t:
            with self.mode:
                result = result.to(target._t)
        value = self.value_of(target)
        self._refuse_shared(value)
        with self.mode:
            result = laid_out(result, target)
        value.write(self._node_of(result), self._record_view)
        _overload("copy_")(target, result)

    def _refuse_shared(self, value: Value) -> None:
        """An input over another input's memory: the graph would not show that both are written to."""
        sharing = self._sharing.get(id(value.memory), ())
        if len(sharing) > 1:
            names = " and ".join(map(repr, sharing))
            raise TraceError(
                f"the inputs {names} share memory, and the traced program writes to it. Pass one of them "
                "and make the other from it, or clone() one."
            )

    def _write_to_copies(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operator without a functional form: it writes to a copy, which is the new value."""
        op: Operator = func.operator
        values = list(args)
        written: list[Any] = []
        for i in op.schema.mutated:
            name = op.schema.arguments[i].name
            target = values[i] if i < len(values) else kwargs.get(name)
            if target is None:
                continue
            self._refuse_shared(self.value_of(target))
            with self.mode:
                copied = target.clone()
            written.append((target, self.values.find(copied)))
            if i < len(values):
                values[i] = copied
            else:
                kwargs = {**kwargs, name: copied}
        inputs = map_aggregate((tuple(values), kwargs), self._node_of)
        result = func(*args, **kwargs)
        returned = [t for t, _ in written if t is result]
        node = self._add(func, *inputs)
        node.meta["val"] = map_aggregate(
            result, lambda x: self.faking.shown(x) if isinstance(x, Tensor) else x
        )
        for target, copied in written:
            new = node if returned else copied.node
            self.value_of(target).write(new, self._record_view)
        if returned or result is None:
            return result
        for i, one in enumerate(result):
            if isinstance(one, Tensor):
                self._track(one, self._add(operator.getitem, (node, i), {}), func, args, i)
        return result

    # -- the end -------------------------------------------------------------------------------

    def finish(self, result: Any, in_spec: Any, parameter_names: list[str]) -> GraphModule:
        """The module, with its output and what is written back to inputs."""
        leaves, out_spec = pytree.tree_flatten(result)
        outputs = self._outputs(leaves)
        args, kwargs = in_spec.children
        if kwargs.children or not (_plain(out_spec) and all(c.is_leaf() for c in args.children)):
            self.graph.set_codegen(PyTreeCodeGen(parameter_names, in_spec, out_spec))
            self.graph.output(tuple(outputs))
        else:
            self.graph.output(out_spec.unflatten(outputs))
        return self._module()

    def finish_as(self, result: Any, codegen: CodeGen) -> GraphModule:
        """The module, with the structure of arguments and results that another has."""
        leaves, out_spec = pytree.tree_flatten(result)
        self.graph.set_codegen(codegen)
        self.graph.output(out_spec.unflatten(self._outputs(leaves)))
        return self._module()

    def _outputs(self, leaves: list[Any]) -> list[Any]:
        """The results' nodes, after which come the copies into what was written to."""
        outputs = [self._node_of(x) for x in leaves]
        for value, node in self._inputs:
            if self.functional and value.view is None and value.node is not node:
                self._add(_overload("copy_"), (node, value.node), {})
        return outputs

    def _module(self) -> GraphModule:
        self.graph.eliminate_dead_code()
        root = self.attributes
        if attributes.module_class(self._root) is not None:
            return _of_module(self._root, root, self.graph)
        return GraphModule(root, self.graph)


def _is_variable(nodes: list[Node]) -> bool:
    """Whether values may be others in another call: they stem from inputs, parameters or chance."""
    seen: set[Node] = set()
    while nodes:
        node = nodes.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op == "placeholder":
            return True
        if node.op == "get_attr" and "_tensor_constant" not in node.target:
            return True
        if "nondeterministic_seeded" in getattr(node.target, "tags", ()):
            return True
        nodes.extend(node.all_input_nodes)
    return False


def _of_module(module: Any, tensors: dict[str, Any], graph: Graph) -> GraphModule:
    base = attributes.module_class(module)
    assert base is not None
    holder: Any = base()
    for name, value in tensors.items():
        attributes.assign(holder, name, value, base)
    holder.training = module.training
    return GraphModule(holder, graph)


def _plain(spec: Any) -> bool:
    """Whether a structure can stand in the output node itself."""
    return spec.type in (None, tuple, list, dict) and all(map(_plain, spec.children))


def _overload(name: str) -> Any:
    namespace, mark, rest = name.rpartition("::")
    ops = import_module("mortice.ops")
    packet, _, overload = rest.partition(".")
    return getattr(
        getattr(getattr(ops, namespace if mark else "aten"), packet), overload or "default"
    )


def _named_tensors(f: Any) -> dict[int, str]:
    """Handle of each parameter and buffer of a module (or of a method's) -> its dotted name."""
    module = f if hasattr(f, "named_parameters") else getattr(f, "__self__", None)
    if module is None or not hasattr(module, "named_parameters"):
        return {}
    pairs = [*module.named_parameters(), *module.named_buffers()]
    return {id(tensor._a): name for name, tensor in pairs}


class _TraceMode(DispatchMode):
    """Hands every operator to the session."""

    hides_values = True

    def reads(self, tensor: Any, reader: str) -> None:
        if not tensor._k & FAKE:  # those say themselves what they have
            self.session.check_read(reader, [tensor])

    def __init__(self, session: _Session) -> None:
        self.session = session

    def __mortice_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return self.session.call(func, args, kwargs or {})
