"""Tables of decompositions: operators in terms of others, as they are traced into graphs.

What core knows of its own operators comes from their stanzas (``decomposition:`` and ``body:``); the
registry holds what users add. Tables map overloads of ``mortice.ops`` to functions called with the
operator's arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from functools import cache
from importlib import import_module
from typing import Any

from mortice._base.errors import InvalidValue, RegistrationError, nearest
from mortice._dispatch.bind import bind
from mortice._dispatch.modes import overload_of
from mortice._dispatch.operator import Operator, get
from mortice.fx.substitutes import not_an_overload
from mortice.ops import OpOverload, OpOverloadPacket

__all__ = [
    "CustomDecompTable",
    "core_aten_decompositions",
    "get_decompositions",
    "register_decomposition",
    "remove_decompositions",
    "select_decomp_table",
]

Decomposition = Callable[..., Any]
#: Namespaces whose operators are taken apart by what their stanzas say.
SPACES = ("aten", "prims")
TYPES = ("post_autograd", "pre_autograd", "meta")

#: What users registered, by type.
_REGISTRIES: dict[str, dict[Any, Decomposition]] = {kind: {} for kind in TYPES}

#: Core ATen operators that a compiler of loops is better served without.
_BEYOND_CORE = (
    "gelu", "_softmax", "_log_softmax", "native_layer_norm", "native_group_norm",
    "native_group_norm_backward", "native_layer_norm_backward", "_native_batch_norm_legit", "_native_batch_norm_legit.no_stats",
    "_native_batch_norm_legit_no_training",
)  # fmt: skip


#: Where the stanza's decomposition is for devices alone, for it makes memory, writes to a copy, or
#: computes on the host: what graphs have instead, if anything.
_FOR_GRAPHS: dict[str, str | None] = {
    "empty_like": None,
    "range.step": None,
    "diagonal_scatter": "indexing.diagonal_scatter",
    "as_strided_scatter": "indexing.as_strided_scatter",
    "index_fill.int_Tensor": "indexing.index_fill_tensor",
    "eye.m": "factory.eye",
    "linspace": "factory.linspace",
    "logspace": "factory.logspace",
    # It writes, which becomes values in a graph.
    "_native_batch_norm_legit": "reduction.batch_norm",
}


def _registry(kind: str) -> dict[Any, Decomposition]:
    if kind not in _REGISTRIES:
        raise InvalidValue(
            f"unknown type of decomposition {kind!r}; expected one of {', '.join(TYPES)}."
            f"{nearest(kind, TYPES)}"
        )
    return _REGISTRIES[kind]


# -- what stanzas declare --------------------------------------------------------------------------


def declared(op: Operator) -> Decomposition | None:
    """The decomposition of an operator that its stanza names, called as the operator is; or None."""
    if op.row.kind in ("out", "inplace") or (op.schema.mutated and op.name not in _FOR_GRAPHS):
        return None
    function: Any = op.body()
    if "nondeterministic_seeded" not in op.row.tags:
        # Else it draws into memory: a graph draws by the operator itself.
        own = op.decomposition() or function
        function = _FOR_GRAPHS.get(op.name, own)
    if function is None:
        return None
    if isinstance(function, str):
        module, _, name = function.rpartition(".")
        function = getattr(import_module(f"mortice._ops.decomposed.{module}"), name)
    schema, numbers = op.schema, op.row.numbers

    def decomposition(*args: Any, **kwargs: Any) -> Any:
        return function(*bind(schema, args, kwargs, numbers, "self"))

    decomposition.__name__ = decomposition.__qualname__ = getattr(function, "__name__", op.name)
    return decomposition


class CustomDecompTable(MutableMapping[Any, Decomposition]):
    """A table to be changed: an operator that is deleted stays in the graph as it is.

    What stanzas declare is looked up when it is asked for; all of it only to iterate.
    """

    def __init__(self, beyond: Iterable[str] = (), given: Mapping[Any, Decomposition] = {}) -> None:
        self._beyond = frozenset(beyond)
        self._given = dict(given)
        self._removed: set[Any] = set()
        self._found: dict[Any, Decomposition | None] = {}

    def _declared(self, op: Any) -> Decomposition | None:
        if op in self._removed or not isinstance(op, OpOverload):
            return None
        if op not in self._found:
            operator = op.operator
            kept = "core" in operator.row.tags and operator.name not in self._beyond
            self._found[op] = None if kept or op.namespace not in SPACES else declared(operator)
        return self._found[op]

    def __getitem__(self, op: Any) -> Decomposition:
        found = self._given.get(op) or self._declared(op)
        if found is None:
            raise KeyError(op)
        return found

    def __contains__(self, op: object) -> bool:
        return op in self._given or self._declared(op) is not None

    def __setitem__(self, op: Any, function: Decomposition) -> None:
        if not isinstance(op, OpOverload):
            raise not_an_overload(op)
        self._given[op] = function

    def __delitem__(self, op: Any) -> None:
        if op not in self:
            raise KeyError(op)
        self._given.pop(op, None)
        self._removed.add(op)

    def __iter__(self) -> Iterator[Any]:
        every = dict.fromkeys((*_every_overload(), *self._given))
        return (op for op in every if op in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def copy(self) -> CustomDecompTable:
        made = CustomDecompTable(self._beyond, self._given)
        made._removed = set(self._removed)
        return made

    def materialize(self) -> dict[Any, Decomposition]:
        """A plain dict of it."""
        return dict(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} operators>"


@cache
def _every_overload() -> tuple[Any, ...]:
    from mortice._generated.registry import ROWS

    return tuple(overload_of(get(name)) for name in ROWS)


def core_aten_decompositions() -> CustomDecompTable:
    """A new table that takes graphs apart into Core ATen, with what users registered."""
    return CustomDecompTable((), _REGISTRIES["post_autograd"])


def select_decomp_table() -> CustomDecompTable:
    """The table of the compilers: Core ATen, and of that what is better compiled from its parts."""
    return CustomDecompTable(_BEYOND_CORE, _REGISTRIES["post_autograd"])


# -- registration ----------------------------------------------------------------------------------


def _overloads(ops: Any, accepts_out: bool = True) -> list[OpOverload]:
    """Overloads, packets (all their overloads) and nested sequences of both, as a list."""
    if isinstance(ops, OpOverload):
        return [ops]
    if isinstance(ops, OpOverloadPacket):
        found = ops.op_overloads()
        return found if accepts_out else [o for o in found if o.operator.row.kind != "out"]
    if isinstance(ops, Mapping):
        ops = list(ops)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(ops, Iterable) and not isinstance(ops, str):
        return [o for one in ops for o in _overloads(one, accepts_out)]  # pyright: ignore[reportUnknownVariableType]
    raise InvalidValue(
        f"expected operators of mortice.ops, such as mortice.ops.aten.add.Tensor, not {ops!r}"
    )


def register_decomposition(
    aten_op: Any,
    registry: MutableMapping[Any, Decomposition] | None = None,
    *,
    type: str = "post_autograd",
    unsafe: bool = False,
) -> Callable[[Decomposition], Decomposition]:
    """Decorator: let graphs be traced with this function in the place of an operator.

    Args:
        aten_op: an overload, a packet (for all its overloads; those with ``out`` only if the function
            takes ``out``), or nested sequences of them.
        registry: the table to register in; by default the global one.
        type: ``"post_autograd"``, ``"pre_autograd"`` or ``"meta"``.
        unsafe: replace an earlier registration.

    Raises RegistrationError if an operator has one already. The function is returned unchanged.
    """
    table = registry if registry is not None else _registry(type)

    def register(function: Decomposition) -> Decomposition:
        takes_out = "out" in inspect.signature(function).parameters
        ops = _overloads(aten_op, takes_out)
        for op in ops:
            if op in table and not unsafe:
                raise RegistrationError(f"duplicate registrations for {op}")
        table.update(dict.fromkeys(ops, function))
        return function

    return register


def get_decompositions(
    aten_ops: Iterable[Any], type: str = "post_autograd"
) -> dict[Any, Decomposition]:
    """The table for these overloads and packets; those without a decomposition are left out."""
    table = _registry(type)
    found: dict[Any, Decomposition] = {}
    for op in _overloads(list(aten_ops)):
        made = table.get(op)
        if made is None and type == "post_autograd":
            made = declared(op.operator)
        if made is not None:
            found[op] = made
    return found


def remove_decompositions(
    decompositions: MutableMapping[Any, Decomposition], aten_ops: Iterable[Any]
) -> None:
    """Take overloads and packets out of a table."""
    for op in _overloads(list(aten_ops)):
        decompositions.pop(op, None)
