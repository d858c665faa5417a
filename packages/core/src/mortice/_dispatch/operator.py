"""An operator: its row, its registered kernels, and the table from key set to kernel.

A table entry is resolved once, by ``Operator.resolve``, which does all the work; a call is then
one dict lookup. Kernels take every schema argument positionally, in order, defaults filled in.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from mortice._base.errors import InvalidState, UnknownName, nearest
from mortice._dispatch import keys as K
from mortice._dispatch.schema import FunctionSchema, parse
from mortice._dispatch.state import GLOBAL, below_autograd, unrecorded

Kernel = Callable[..., Any]
Table = dict[int, Kernel]

#: name ("add.Tensor" of aten, "ns::name.overload" of others) -> the table its stubs look up.
TABLES: dict[str, Table] = {}
_OPERATORS: dict[str, Operator] = {}


def table(name: str) -> Table:
    """The dispatch table of an operator, made at first mention and never replaced."""
    found = TABLES.get(name)
    if found is None:
        found = TABLES[name] = {}
    return found


class Row:
    """What the declaration of an operator says, whatever the device.

    ``family`` is the module of ``mortice._ops`` that holds the bodies named here; another
    package's operators name their module in full.
    """

    __slots__ = (
        "body", "decomposition", "derivative", "dispatch", "family", "functional", "kind", "numbers",
        "schema", "shape", "tags",
    )  # fmt: skip

    def __init__(
        self,
        schema: str,
        family: str,
        kind: str = "kernel",
        shape: str = "",
        body: str = "",
        decomposition: str = "",
        derivative: str = "",
        functional: str = "",
        tags: tuple[str, ...] = (),
        numbers: bool = False,
        dispatch: dict[str, str] | None = None,
    ) -> None:
        self.schema = schema
        self.family = family
        self.kind = kind
        self.shape = shape
        self.body = body
        self.decomposition = decomposition
        self.derivative = derivative
        self.functional = functional
        self.tags = tags
        self.numbers = numbers
        self.dispatch = dispatch or {}

    def kernel(self, device_type: str) -> Kernel | None:
        """The kernel that the declaration itself names for a device."""
        where = self.dispatch.get(device_type)
        if where is None:
            return None
        module, _, function = f"{self.family.rpartition('.')[0]}.{where}".rpartition(".")
        return getattr(import_module(module), function)

    def module(self) -> Any:
        name = self.family if "." in self.family else f"mortice._ops.{self.family}"
        return import_module(name)

    def derivatives_module(self) -> Any:
        if "." in self.family:
            return import_module(f"{self.family.rpartition('.')[0]}._generated.derivatives")
        return import_module(f"mortice._generated.{self.family}_derivatives")


#: Dispatch key -> what makes its fallback a kernel of an operator that has none for that key.
FALLBACKS: dict[str, Callable[[Operator], Kernel]] = {}


class Operator:
    """One overload, such as ``add.Tensor``. ``mortice.ops`` hands these out.

    Attributes:
        name: ``"add.Tensor"``; other namespaces than aten are spelt out, ``"ns::name.overload"``.
        table: key set -> kernel, filled on demand.
        kernels: dispatch key -> registered kernels, the newest last.
    """

    __slots__ = (
        "__weakref__", "_dispatch_rules", "_schema", "gone", "kernels", "missing_meta", "name", "row",
        "table",
    )  # fmt: skip

    def __init__(self, name: str, row: Row, schema: FunctionSchema | None = None) -> None:
        self.name = name
        self.row = row
        self.table = table(name)
        self.kernels: dict[str, list[Kernel]] = {}
        self._schema = schema
        self._dispatch_rules: dict[type, Kernel] | None = None
        #: Where the library was made that took the operator along when it went; None while it lives.
        self.gone: str | None = None
        #: Makes the error for tensors without data where there is no fake.
        self.missing_meta: Callable[[], Exception] | None = None

    @property
    def schema(self) -> FunctionSchema:
        if self._schema is None:
            self._schema = parse(self.row.schema)
        return self._schema

    @property
    def qualified(self) -> str:
        return self.schema.qualified

    def __repr__(self) -> str:
        return f"<Operator {self.qualified}>"

    def __call__(self, *args: Any) -> Any:
        """Call with every schema argument, positionally, as kernels are called."""
        keys = self.keys_of(args)
        kernel = self.table.get(keys)
        if kernel is None:
            kernel = self.resolve(keys)
        try:
            return kernel(*args)
        except Exception as error:
            from mortice._dispatch.call import diagnose

            diagnose(self, error, args)
            raise

    def keys_of(self, args: Any) -> int:
        """The key set of a call: the union over its tensors, adjusted for this thread."""
        keys = 0
        for position in self.schema.tensor_positions:
            value = args[position]
            if value is None:
                continue
            found = getattr(value, "_k", None)
            if found is not None:
                keys |= found
            elif isinstance(value, (list, tuple)):
                for item in value:  # pyright: ignore[reportUnknownVariableType]
                    if item is not None:
                        keys |= item._k
        if GLOBAL.special:
            from mortice._dispatch.state import adjust

            keys = adjust(keys)
        return keys & ~K.OVERRIDE  # function overrides act on public functions, above operators

    @property
    def dispatch_rules(self) -> dict[type, Kernel]:
        """What single modes and subclasses do with this operator."""
        if self._dispatch_rules is None:
            self._dispatch_rules = {}
        return self._dispatch_rules

    def invalidate(self, where: str) -> None:
        """The library that defined the operator is gone; calls now say so."""
        self.gone = where
        self.kernels.clear()
        _kernels_changed(self)

    # -- resolution ----------------------------------------------------------------------------

    def lookup(self, keys: int) -> Kernel:
        """The kernel for ``keys``, from the table or resolved now."""
        return self.table.get(keys) or self.resolve(keys)

    def resolve(self, keys: int) -> Kernel:
        """Find the kernel for a key set and keep it in the table."""
        if self.gone is not None:
            raise InvalidState(
                f"{self.name} is no longer defined: the Library made at {self.gone} that defined it has "
                "been destroyed. Keep a reference to the Library for as long as its operators are used."
            )
        kernel = self._select(keys)
        fields = self._named_fields()
        if fields:
            kernel = _naming(kernel, self.schema.name, fields)
        if keys & K.FAKE and not keys & (K.MODE | K.PYTHON):
            kernel = _in_fake_mode(self, kernel)
        self.table[keys] = kernel
        return kernel

    def _named_fields(self) -> tuple[str, ...]:
        """Names of the outputs, where there are several and all are named."""
        returns = self.schema.returns
        if len(returns) < 2 or self.row.kind == "out":
            return ()
        names = tuple(r.name for r in returns)
        return names if all(names) else ()

    def _select(self, keys: int) -> Kernel:
        if not keys & (K.BELOW_AUTOGRAD | K.AUTOGRAD | K.RECORD):
            found = _user_autograd(self, keys)  # runs even when nothing requires grad
            if found is not None and not _is_fallthrough(found):
                return found
        for bit, select in _FUNCTIONALITY_RULES:
            if keys & bit:
                kernel = select(self, keys)
                if kernel is not None:
                    return kernel
                keys &= ~bit
        from mortice._dispatch import backends

        return backends.select(self, keys & ~K.FUNCTIONALITY_MASK)

    def registered(self, key: str) -> Kernel | None:
        """The newest kernel registered for a dispatch key, if any."""
        stack = self.kernels.get(key)
        return stack[-1] if stack else None

    def register(self, key: str, kernel: Kernel) -> None:
        # What was recorded before runs with the kernels that it was called with.
        with unrecorded("a kernel is registered", flush=_is_relied_on(self)):
            self.kernels.setdefault(key, []).append(kernel)
            _kernels_changed(self)

    def unregister(self, key: str, kernel: Kernel) -> None:
        stack = self.kernels.get(key, [])
        if kernel in stack:
            stack.remove(kernel)
        if not stack:
            self.kernels.pop(key, None)
        _kernels_changed(self)

    # -- rows ----------------------------------------------------------------------------------

    def shape_rule(self) -> Kernel | None:
        return getattr(self.row.module(), self.row.shape) if self.row.shape else None

    def body(self) -> Kernel | None:
        """The implicit composite body: public operators, differentiable through them."""
        return getattr(self.row.module(), self.row.body) if self.row.body else None

    def decomposition(self) -> Kernel | None:
        """The explicit decomposition, used below autograd where a device has no kernel.

        A dotted name is of a module beside the family's: ``decomposed.activation.silu``.
        """
        name = self.row.decomposition
        if not name:
            return None
        module, dot, function = name.rpartition(".")
        if not dot:
            return getattr(self.row.module(), name)
        package = self.row.module().__name__.rpartition(".")[0]
        return getattr(import_module(f"{package}.{module}"), function)


def known() -> list[Operator]:
    """The operators that somebody has asked for so far."""
    return list(_OPERATORS.values())


#: Hears of kernels that come or go where calls may have relied on what was there: of operators in core,
#: and of others that have been called. Set by who keeps what was made of them; the text is for a log.
kernels_changed: Callable[[str], None] = lambda which: None  # noqa: E731


def _is_relied_on(op: Operator) -> bool:
    """Whether somebody may have made something of an operator's kernels."""
    return bool(op.table) or "::" not in op.name


def _kernels_changed(op: Operator) -> None:
    relied_on = _is_relied_on(op)
    _clear(op.table)
    if relied_on:
        kernels_changed(op.qualified)


def fallbacks_changed(key: str) -> None:
    """A fallback for a dispatch key has come or gone."""
    clear_tables()
    kernels_changed(f"operators without a kernel for {key}")


def clear_tables() -> None:
    """Forget every resolution: a device, a fallback or a global rule has changed."""
    for entries in TABLES.values():
        _clear(entries)


def _clear(entries: Table) -> None:
    """Forget an operator's resolutions; native code sees that by the epoch."""
    entries.clear()
    GLOBAL.epoch += 1


# -- rules by functionality, from the highest priority ------------------------------------------


def _by_mode(op: Operator, keys: int) -> Kernel | None:
    from mortice._dispatch import modes

    return modes.kernel_for_modes(op)


def _by_python(op: Operator, keys: int) -> Kernel | None:
    from mortice._dispatch import modes

    return modes.kernel_for_subclasses(op)


#: What an operator does while a call is recorded; set by who records, before the first one is.
recording_kernel: Callable[[Operator, int], Kernel] = lambda op, keys: _nobody_records(op)  # noqa: E731


def _nobody_records(op: Operator) -> Kernel:
    raise InvalidState(f"{op.qualified}: no call is being recorded.")


def _by_record(op: Operator, keys: int) -> Kernel:
    return recording_kernel(op, keys)


def _by_autocast(op: Operator, keys: int) -> Kernel | None:
    names = [f"Autocast{K.device_key_name(device)}" for device in K.devices_in(keys)]
    for name in (*names, "Autocast"):
        found = op.registered(name)
        if found is not None:
            return None if _is_fallthrough(found) else found
    return import_module("mortice._autograd.autocast").kernel(op, keys)


def _user_autograd(op: Operator, keys: int) -> Kernel | None:
    """A user's kernel for Autograd: exact keys first, then composites without kernels, then the alias."""
    if not op.kernels and not FALLBACKS:
        return None
    for device in K.devices_in(keys):
        found = op.registered(f"Autograd{K.device_key_name(device)}")
        if found is not None:
            return found
    found = op.registered("Autograd")
    if found is not None:
        return None if _is_implicit(op, keys) else found
    return _autograd_fallback(op, keys) if FALLBACKS else None


def _autograd_fallback(op: Operator, keys: int) -> Kernel | None:
    """The fallback for Autograd keys, for operators from outside core of which no derivative is known."""
    known = op.row.derivative or op.registered("Derivative") is not None or _is_implicit(op, keys)
    if known or op.schema.namespace in ("aten", "prims"):
        return None
    names = [f"Autograd{K.device_key_name(device)}" for device in K.devices_in(keys)]
    return next((FALLBACKS[n](op) for n in (*names, "Autograd") if n in FALLBACKS), None)


def _by_autograd(op: Operator, keys: int) -> Kernel | None:
    found = _user_autograd(op, keys)
    if found is not None:
        return None if _is_fallthrough(found) else found
    rest = keys & ~K.AUTOGRAD
    row = op.row
    factory = op.registered("Derivative")
    if factory is None:
        if row.derivative == "none":
            return None
        if not row.derivative:
            if _is_implicit(op, keys):
                # Not a device's own kernel for it, through which no gradient would flow.
                return op.registered("CompositeImplicitAutograd") or op.body()
            from mortice._autograd.undifferentiable import wrap

            return wrap(op, op.lookup(rest))
        factory = getattr(row.derivatives_module(), row.derivative)
    nxt = op.lookup(rest)
    return factory(_guarded(nxt) if is_composite(nxt) else nxt, op)


def _is_implicit(op: Operator, keys: int) -> bool:
    """Whether gradients flow through the operators that this one is composed of."""
    if op.row.body or op.row.kind == "composite":
        return True
    if op.registered("CompositeImplicitAutograd") is None:
        return False
    devices = [K.device_key_name(d) for d in K.devices_in(keys)]
    return all(op.registered(k) is None for k in (*devices, "CompositeExplicitAutograd"))


def _is_fallthrough(kernel: Kernel) -> bool:
    return type(kernel).__name__ == "Fallthrough"


def _in_fake_mode(op: Operator, kernel: Kernel) -> Kernel:
    from mortice._dispatch import backends

    return backends.in_fake_mode(op, kernel)


def _naming(kernel: Kernel, operator: str, fields: tuple[str, ...]) -> Kernel:
    """``kernel`` with its results named, if it does not name them itself."""
    from mortice._types.returns import named_returns

    result_type = named_returns(operator, fields)

    def naming(*args: Any) -> Any:
        results = kernel(*args)
        return result_type(*results) if type(results) is tuple else results

    return mark_composite(naming) if is_composite(kernel) else naming


def _guarded(kernel: Kernel) -> Kernel:
    """A kernel made of other operators, called so that those record no history of their own."""

    def guarded(*args: Any) -> Any:
        with below_autograd():
            return kernel(*args)

    return guarded


def _by_view(op: Operator, keys: int) -> Kernel | None:
    if keys & K.BELOW_AUTOGRAD:
        return None
    writes = not keys & K.AUTOGRAD and bool(op.schema.mutated)
    if not GLOBAL.views_may_be_stale and not writes:
        return None
    from mortice._autograd.views import refreshing

    return refreshing(op)


_FUNCTIONALITY_RULES: tuple[tuple[int, Callable[[Operator, int], Kernel | None]], ...] = (
    (K.AUTOCAST, _by_autocast),
    (K.RECORD, _by_record),
    (K.VIEW, _by_view),
    (K.AUTOGRAD, _by_autograd),
    (K.MODE, _by_mode),
    (K.PYTHON, _by_python),
)

_COMPOSITE_MARK: set[int] = set()
_KEPT: list[Kernel] = []


def mark_composite(kernel: Kernel) -> Kernel:
    """Note that a kernel calls other operators, so that autograd wraps it in a guard."""
    if id(kernel) not in _COMPOSITE_MARK:
        _COMPOSITE_MARK.add(id(kernel))
        _KEPT.append(kernel)  # keeps the id from being reused
    return kernel


def is_composite(kernel: Kernel) -> bool:
    return id(kernel) in _COMPOSITE_MARK


# -- finding operators ---------------------------------------------------------------------------


def find(name: str) -> Operator | None:
    """The operator called ``name`` (``"add.Tensor"`` or ``"ns::name.overload"``), or None."""
    name = name.removeprefix("aten::")
    found = _OPERATORS.get(name)
    if found is None:
        row = _core_row(name)
        if row is None:
            namespace, mark, _ = name.partition("::")
            if not mark or namespace in _LOADED:
                return None
            load_namespace(namespace)
            return _OPERATORS.get(name)
        found = _OPERATORS.setdefault(name, Operator(name, row))
    return found


_LOADED: dict[str, list[Any]] = {"aten": []}


def load_namespace(namespace: str) -> list[Any]:
    """Load the packages that provide a namespace by entry point, once; the errors of those that fail."""
    failed = _LOADED.get(namespace)
    if failed is None:
        from mortice._plugins import load_operator_parts

        failed = _LOADED[namespace] = load_operator_parts(namespace, None, declare)
    return failed


class Declarations:
    """The operators that a package declares: what its generated registry holds.

    ``rows``: operator name -> fields of Row; ``packets``: function name -> names of its operators.
    """

    __slots__ = ("packets", "rows")

    def __init__(self, rows: dict[str, Any], packets: dict[str, tuple[str, ...]]) -> None:
        self.rows = rows
        self.packets = packets


def declare(declarations: Any) -> None:
    """Make a package's declared operators findable; what is there already stays."""
    if not isinstance(declarations, Declarations):
        return  # a module or class that registers by mortice.library itself
    for packet, names in declarations.packets.items():
        for name in names:
            if name not in _OPERATORS:
                add_operator(Operator(name, Row(**declarations.rows[name])), packet)


def get(name: str) -> Operator:
    """As ``find``; UnknownName with the nearest match if there is none."""
    found = find(name)
    if found is None:
        from mortice._generated.registry import ROWS

        raise UnknownName(f"operator {name} does not exist.{nearest(name, ROWS)}")
    return found


def overloads(packet: str) -> tuple[str, ...]:
    """Names of the operators behind a function name, in the order in which they are tried."""
    found = _EXTRA_PACKETS.get(packet)
    if found is not None:
        return tuple(found)
    from mortice._generated.registry import PACKETS

    return PACKETS.get(packet, ())


_EXTRA_PACKETS: dict[str, list[str]] = {}


def names_in(namespace: str) -> list[str]:
    """Function names of a namespace, as far as it is loaded."""
    from mortice._generated.registry import PACKETS

    prefix = "" if namespace == "aten" else f"{namespace}::"
    every = (*PACKETS, *_EXTRA_PACKETS)
    found = [name[len(prefix) :] for name in every if name.startswith(prefix)]
    return [name for name in found if "::" not in name]


def add_operator(op: Operator, packet: str) -> None:
    """Make a new operator findable; ``packet`` is its name without the overload."""
    _OPERATORS[op.name] = op
    names = _EXTRA_PACKETS.setdefault(packet, list(overloads(packet)))
    if op.name not in names:
        names.append(op.name)


def remove_operator(op: Operator, packet: str) -> None:
    _OPERATORS.pop(op.name, None)
    _clear(op.table)
    names = _EXTRA_PACKETS.get(packet, [])
    if op.name in names:
        names.remove(op.name)
    if not names:
        _EXTRA_PACKETS.pop(packet, None)


def _core_row(name: str) -> Row | None:
    from mortice._generated.registry import ROWS

    fields: Any = ROWS.get(name)
    return None if fields is None else Row(**fields)
