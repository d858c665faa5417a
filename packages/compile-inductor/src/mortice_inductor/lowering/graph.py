"""From a graph of operators to values: arguments are bound by schema, tables do the rest."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import mortice
from mortice.errors import CompileError
from mortice.fx.symbols import is_symbolic
from mortice_llvm.dtypes import DTYPES
from mortice_llvm.errors import NotAvailable

from ..ir.refusal import Refusal
from ..ir.values import SCALARS, UPDATING_COPIES, Call, Shape, Trace, Value
from ..specs import (
    DataDependent,
    GeneratorSpec,
    NumberSpec,
    Spec,
    TensorSpec,
    loop_name,
    mortice_dtype,
    number_words,
)
from .registry import UPDATING, Fallback
from .user import USER, LoweringFailed, checked, raised

Log = Callable[[str], None]


class Random(NamedTuple):
    """Seed and offset of a random operator, as numbers of the table."""

    seed: Value
    offset: Value


class Check(NamedTuple):
    """What eager would refuse: ``value`` (bool, shape ()) must be false."""

    value: Value
    refusal: Refusal


class Lowered(NamedTuple):
    """Values for what a graph returns and writes.

    ``outputs``: Values, ``("input", k)`` for a placeholder returned as it is, or plain objects.
    ``writes``: (placeholder, value) of in-place results. ``constants``: tensors that the graph
    holds. ``draws``: one per random operator that uses the default generator.
    """

    trace: Trace
    specs: tuple[Spec, ...]
    outputs: tuple[Any, ...]
    writes: tuple[tuple[int, Value], ...]
    constants: tuple[Any, ...]
    draws: int
    checks: tuple[Check, ...]
    #: Strides that outputs have in eager, where known.
    strides: tuple[Shape | None, ...]
    #: (node, its value).
    named: tuple[tuple[str, Value], ...]
    #: Placeholders whose memory may be written to, where only the call has it.
    donated: frozenset[int]


class Lowering:
    """Lowers one graph; ``table`` are the lowerings in force, ``log`` hears of fallbacks."""

    def __init__(
        self, gm: Any, specs: tuple[Spec, ...], table: Mapping[str, Callable[..., Any]],
        fallbacks: frozenset[str], log: Log, numbers: Callable[[Any], Any], may_draw: bool,
    ) -> None:  # fmt: skip
        self.gm = gm
        self.specs = specs
        self.table = table
        self.fallbacks = fallbacks
        self.log = log
        self.numbers = numbers
        self.trace = Trace()
        self.env: dict[Any, Any] = {}
        self.writes: dict[int, Value] = {}
        self.constants: list[Any] = []
        self.draws = 0
        self.checks: list[Check] = []
        self.placeholders: dict[Any, int] = {}
        self.may_draw = may_draw
        self.draw_slot = number_words(specs)
        #: The one being lowered.
        self.node: Any = None

    def draw(self) -> Random:
        """A draw from the default generator, in the order of the graph."""
        if not self.may_draw:
            raise Fallback("another operator draws from the same generator by itself")
        words = self.draw_slot + 2 * self.draws
        self.draws += 1
        return Random(*(self.trace.make("number", (), (), "i64", (words + k, "i64"))
                        for k in range(2)))  # fmt: skip

    def run(self) -> Lowered:
        """Lowers every node."""
        outputs: tuple[Any, ...] = ()
        strides: tuple[Shape | None, ...] = ()
        for node in self.gm.graph.nodes:
            self.node, self.trace.where = node, node.name
            if node.op == "output":
                outputs = self._outputs(node.args[0])
                strides = _strides_of(node.args[0], self.numbers)
            else:
                self.env[node] = _STEPS[node.op](self, node)
        return Lowered(
            self.trace, self.specs, outputs, tuple(self.writes.items()), tuple(self.constants),
            self.draws, tuple(self.checks), strides,
            tuple((node.name, v) for node, v in self.env.items() if isinstance(v, Value)),
            frozenset(k for node, k in self.placeholders.items() if node.meta.get("donated")),
        )  # fmt: skip

    # -- kinds of nodes --------------------------------------------------------------------------

    def _placeholder(self, node: Any) -> Any:
        k = len(self.placeholders)
        self.placeholders[node] = k
        spec = self.specs[k]
        t = self.trace
        if isinstance(spec, TensorSpec):
            t.input_strides[k] = spec.strides
            return t.make("input", (), spec.shape, spec.dtype, k)
        if isinstance(spec, NumberSpec):
            return t.make("number", (), (), spec.dtype, (spec.slot, spec.dtype))
        if isinstance(spec, GeneratorSpec):
            return Random(*(t.make("number", (), (), "i64", (spec.slot + n, "i64"))
                            for n in range(2)))  # fmt: skip
        return spec.value

    def _get_attr(self, node: Any) -> Any:
        found: Any = self.gm
        for part in node.target.split("."):
            found = getattr(found, part)
        if not isinstance(found, mortice.Tensor):
            return found
        k = len(self.specs) + len(self.constants)
        self.constants.append(found)
        self.trace.input_strides[k] = tuple(found.stride())
        return self.trace.make("input", (), tuple(found.shape), loop_name(found.dtype), k)

    def _call(self, node: Any) -> Any:
        if node.target is operator.getitem:
            return self.env[node.args[0]][node.args[1]]
        name = str(node.target)
        args, kwargs = self._values(node.args), self._values(node.kwargs)
        if name == "aten.copy_.default":
            return self._write(node.args[0], args)
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            raise CompileError(
                f"node {node.name} calls {node.target!r}, which is no operator overload. Graphs for "
                "inductor hold operators of mortice.ops alone."
            )
        if schema.mutated:
            return self._updating(node, name, args, kwargs)
        key = name.removeprefix("aten.")
        if key not in USER:
            given = zip(schema.arguments, node.args, args)
            args = [self._scalar(a.type, x, y) for a, x, y in given]
            kinds = {a.name: a.type for a in schema.arguments}
            kwargs = {k: self._scalar(kinds[k], node.kwargs[k], y) for k, y in kwargs.items()}
        bound = bind(schema, args, kwargs)
        lowering = None if key in self.fallbacks else self.table.get(key)
        if lowering is not None:
            try:
                _check_dtypes(bound)
                wants_graph = getattr(lowering, "wants_graph", False)
                made = lowering(self if wants_graph else self.trace, *bound)
                if key in USER:
                    checked(name, lowering, made, node.meta.get("val"), self.numbers)
                made = self._no_number(made)
                _check_dtypes(made if isinstance(made, (list, tuple)) else (made,))
                return made
            except (Fallback, NotAvailable) as reason:
                self.log(f"{node.name}: {name} is left to the dispatcher: {reason}")
            except Exception as error:
                if key not in USER or isinstance(error, _SIGNALS):
                    raise
                raise raised(name, lowering, error) from error
        else:
            self.log(f"{node.name}: {name} is left to the dispatcher: no lowering")
        return self.foreign(node, args, kwargs)

    def _scalar(self, kind: Any, given: Any, value: Any) -> Any:
        """An argument; an operand that follows from sizes is no part of the code."""
        is_size = is_symbolic(given) and (type(value) is int or is_symbolic(value))
        return self.trace.size(value) if is_size and kind.base in ("Scalar", "Tensor") else value

    def _no_number(self, made: Any) -> Any:
        """What a lowering made, a tensor of a number not being taken for that number: it promotes by
        its dtype, and operators that the dispatcher runs want a tensor.
        """
        if isinstance(made, Value) and made.op in ("number", "size"):
            return self.trace.make("view", (made,), (), made.dtype, ())
        return made

    def _updating(self, node: Any, name: str, args: Any, kwargs: Any) -> Any:
        """An operator without a functional form, which updates clones: later nodes see the new
        values under the clones' names.
        """
        schema = node.target._schema
        given = {schema.arguments[i].name: x for i, x in enumerate(node.args)} | node.kwargs
        targets = [given.get(schema.arguments[i].name) for i in schema.mutated]
        targets = [x for x in targets if x is not None]
        if not all(_is_node(x) and x not in self.placeholders for x in targets):
            raise CompileError(
                f"node {node.name} calls {name}, which writes to its argument. Graphs for inductor "
                "are functional, apart from copy_ to a placeholder at their end."
            )
        key = name.removeprefix("aten.")
        lowering = None if key in self.fallbacks else UPDATING.get(key)
        if lowering is None:
            return self._updated_elsewhere(node, args, kwargs, targets)
        result, updated = lowering(self.trace, *bind(schema, args, kwargs))
        self.env.update(zip(targets, updated))
        return result

    def _updated_elsewhere(self, node: Any, args: Any, kwargs: Any, targets: Sequence[Any]) -> Any:
        """The dispatcher runs the operator on copies: it gives what is new, then what was written."""
        schema = node.target._schema
        found = node.meta["val"]
        vals = list(found) if isinstance(found, (list, tuple)) else [found]
        news = [v for r, v in zip(schema.returns, vals) if not r.type.alias]
        made = [*news, *(x.meta["val"] for x in targets)]
        results = tuple(_described(v, self.numbers) for v in made)
        outs = self.foreign(node, args, kwargs, f"{UPDATING_COPIES}{node.target}", results)
        updated = outs[len(news) :]
        self.env.update(zip(targets, updated))
        by_alias = dict(zip((schema.arguments[i].type.alias for i in schema.mutated), updated))
        fresh = iter(outs)
        given = [by_alias[r.type.alias] if r.type.alias else next(fresh) for r in schema.returns]
        return given[0] if len(given) == 1 else given

    def _write(self, target: Any, args: Any) -> Value:
        k = self.placeholders.get(target)
        spec = self.specs[k] if k is not None else None
        if k is None or not isinstance(spec, TensorSpec):
            raise CompileError(
                f"copy_ writes to {target}, which is no tensor placeholder of the graph."
            )
        t = self.trace
        value = t.expand(t.cast(args[1], spec.dtype), spec.shape)
        self.writes[k] = value
        return value

    def _outputs(self, given: Any) -> tuple[Any, ...]:
        if not isinstance(given, (tuple, list)):
            given = (given,)
        return tuple(
            ("input", self.placeholders[x]) if x in self.placeholders else self._values(x)
            if _is_node(x) else self.numbers(x)
            for x in given
        )  # fmt: skip

    def _values(self, given: Any) -> Any:
        """Arguments with nodes replaced by what they stand for, and symbols by numbers."""
        if isinstance(given, (list, tuple)):
            return [self._values(x) for x in given]
        if isinstance(given, dict):
            return {k: self._values(x) for k, x in given.items()}
        if _is_node(given):
            return self.env[given]
        return self.numbers(given)

    # -- foreign code ----------------------------------------------------------------------------

    def foreign(
        self, node: Any, args: Any, kwargs: Any, name: str = "", described: Any = None,
        single: bool = False,
    ) -> Any:  # fmt: skip
        """The operator run by the dispatcher; its results are values in memory.

        ``described``: (shape, dtype, strides) of each, where they are not the operator's own, and
        whether it is a ``single`` one.
        """
        tensors: list[Value] = []

        def template(x: Any) -> Any:
            if isinstance(x, Value):
                if x.op == "number":
                    return ("number", *x.attr)
                if x.op == "size":
                    return x.attr
                if x.op in SCALARS:  # without dimensions, it would have no memory
                    x = self.trace.make("keep", (x,), x.shape, x.dtype)
                tensors.append(x)
                return ("%", len(tensors) - 1)
            if isinstance(x, Random):
                return ("generator", x.seed.attr[0])
            if isinstance(x, (list, tuple)):
                return [template(y) for y in x]
            return x

        given = tuple(template(x) for x in args)
        named = tuple((k, template(x)) for k, x in kwargs.items())
        if _draws_itself(node):
            if not node.users:
                raise DataDependent(f"{node.name} draws what nobody reads, before others draw")
            if self.draws:
                raise DrawsElsewhere
            self.may_draw = False
        if described is None:
            results, single = self.results_of(node, args, kwargs)
        else:
            results = described
        call = Call(name or str(node.target), given, named, results, single, self.trace.calls)
        self.trace.calls += 1
        made = self.trace.make("call", tensors, (), "f32", HashableCall(call))
        outs = [
            self.trace.make("result", (made,), shape, dtype, k)
            for k, (shape, dtype, _) in enumerate(results)
        ]
        return outs[0] if single else outs

    def results_of(self, node: Any, args: Any, kwargs: Any) -> tuple[Any, bool]:
        """(shape, dtype, strides) per output, from the node or by running on meta tensors."""
        val = node.meta.get("val") if hasattr(node, "meta") else None
        if val is None:
            val = self._by_meta(node, args, kwargs)
        single = isinstance(val, mortice.Tensor)
        outs = [val] if single else val
        if not isinstance(outs, (list, tuple)) or any(
            not isinstance(v, mortice.Tensor) and v is not None for v in outs
        ):
            raise DataDependent(f"{node.target} gives {val!r}, which is no tensor")
        return tuple(_described(v, self.numbers) for v in outs), single

    def _by_meta(self, node: Any, args: Any, kwargs: Any) -> Any:
        def meta(x: Any) -> Any:
            if isinstance(x, Value):
                if x.op == "size":
                    return x.attr
                if x.op == "number":
                    return 1 if x.dtype == "i64" else 1.0
                return mortice.empty(x.shape, dtype=mortice_dtype(x.dtype), device="meta")
            if isinstance(x, Random):
                return None
            if isinstance(x, (list, tuple)):
                return [meta(y) for y in x]
            return x

        return node.target(*[meta(a) for a in args], **{k: meta(v) for k, v in kwargs.items()})


_STEPS: dict[str, Callable[[Lowering, Any], Any]] = {
    "placeholder": Lowering._placeholder,
    "get_attr": Lowering._get_attr,
    "call_function": Lowering._call,
}


class DrawsElsewhere(Exception):
    """An operator that the dispatcher runs draws from the default generator, so all must."""


#: What a lowering may raise that is no error.
_SIGNALS = (DrawsElsewhere, DataDependent, LoweringFailed)


def _draws_itself(node: Any) -> bool:
    """True for a random operator without a generator argument."""
    if "nondeterministic_seeded" not in getattr(node.target, "tags", ()):
        return False
    given = (*node.args, *node.kwargs.values())
    return not any("generator" in str(getattr(x, "name", "")) for x in given if _is_node(x))


def lower(gm: Any, specs: tuple[Spec, ...], **settings: Any) -> Lowered:
    """Lowers a graph (see ``Lowering`` for the settings)."""
    try:
        return Lowering(gm, specs, may_draw=True, **settings).run()
    except DrawsElsewhere:
        return Lowering(gm, specs, may_draw=False, **settings).run()


def _check_dtypes(given: Any) -> None:
    """Raises Fallback for tensors that kernels do not compute with."""
    for x in given:
        if isinstance(x, Value) and x.dtype not in DTYPES:
            raise Fallback(f"kernels do not compute with {x.dtype}")
        if isinstance(x, (list, tuple)):
            _check_dtypes(x)


class HashableCall(NamedTuple):
    """A call as an attribute: equal only to itself, since its number is its own."""

    call: Call

    def __hash__(self) -> int:
        return self.call.order

    def __eq__(self, other: object) -> bool:
        return self is other


def bind(schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Every argument of the schema, in its order; defaults filled in."""
    out = list(args)
    for a in schema.arguments[len(out) :]:
        if a.name in kwargs:
            out.append(kwargs[a.name])
        elif a.has_default:
            out.append(a.default)
        else:
            raise CompileError(f"{schema.qualified}: argument {a.name} is missing")
    return out


def _described(v: Any, numbers: Callable[[Any], Any]) -> Any:
    """(shape, dtype, strides) of a result; of one that is None, those of nothing."""
    if v is None:
        return (0,), "f32", (1,)
    shape, strides = (tuple(map(numbers, xs)) for xs in (v.shape, v.stride()))
    return shape, loop_name(v.dtype), strides


def _strides_of(given: Any, numbers: Callable[[Any], Any]) -> tuple[Shape | None, ...]:
    out: list[Shape | None] = []
    for x in given if isinstance(given, (tuple, list)) else (given,):
        val = x.meta.get("val") if _is_node(x) else None
        known = isinstance(val, mortice.Tensor)
        out.append(tuple(map(numbers, val.stride())) if known else None)
    return tuple(out)


def _is_node(x: Any) -> bool:
    return hasattr(x, "graph") and hasattr(x, "op") and hasattr(x, "target")
