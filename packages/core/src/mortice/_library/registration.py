"""``Library``: definitions and kernels that live as long as the object that made them."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from mortice._base.errors import (
    ArgumentError,
    InvalidState,
    InvalidValue,
    RegistrationError,
    SchemaError,
    nearest,
)
from mortice._dispatch import keys as K
from mortice._dispatch.modes import check_result
from mortice._dispatch.operator import (
    FALLBACKS,
    Kernel,
    Operator,
    Row,
    add_operator,
    fallbacks_changed,
    find,
    names_in,
    remove_operator,
)
from mortice._dispatch.schema import FunctionSchema, parse
from mortice._dispatch.state import unrecorded
from mortice._library import tagged
from mortice._library.keysets import DispatchKeySet
from mortice._library.tags import check_tags

RESERVED = frozenset(("prim",))
ALIAS_ANALYSIS = ("", "FROM_SCHEMA", "CONSERVATIVE")

_LOCK = threading.RLock()
_DEFINED: dict[str, str] = {}  # namespace -> where its DEF library was made
_TOMBSTONES: dict[str, str] = {}  # operator -> where the library was made that took it along
#: operator -> (key, kernel, with_keyset, where) of kernels registered before the definition
_PENDING: dict[str, list[tuple[str, Any, bool, str]]] = {}
_WHERE: dict[tuple[str, str], str] = {}  # (operator, key) -> where its newest kernel came from


class Fallthrough:
    """Marks a key at which an operator has no kernel: dispatch goes on to the next key."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("fallthrough_kernel() should never be called.")

    def __repr__(self) -> str:
        return "fallthrough_kernel"


fallthrough_kernel = Fallthrough()


def caller(depth: int = 2) -> str:
    """``file:line`` of the code that called into the library."""
    frame = sys._getframe(depth)
    while "/mortice/_library/" in frame.f_code.co_filename.replace("\\", "/") and frame.f_back:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _forget(ns: str) -> None:
    _DEFINED.pop(ns, None)


class Library:
    """Registers operators and kernels of one namespace; they go when the object goes.

    ``kind``: ``DEF`` defines a namespace (one per namespace), ``FRAGMENT`` adds definitions to one,
    ``IMPL`` adds kernels only. ``dispatch_key`` is the default of ``impl``.
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("DEF", "IMPL", "FRAGMENT"):
            raise InvalidValue(f"Unsupported kind: {kind}. It is DEF, IMPL or FRAGMENT.")
        if ns in RESERVED and kind != "IMPL":
            raise InvalidValue(f"{ns} is a reserved namespace, please choose another one.")
        if not ns.isidentifier() and ns != "_":
            raise InvalidValue(f"{ns!r} is not a namespace: use an identifier such as 'mylib'.")
        if dispatch_key:
            K.parse_key(dispatch_key)
            if kind == "DEF":
                raise InvalidValue(
                    "Library(ns, 'DEF', key): definitions hold for all keys. Give the key to impl, "
                    "or make an IMPL library."
                )
        self.ns = ns
        self.kind = kind
        self.dispatch_key = dispatch_key
        self.where = caller()
        self._undo: list[Callable[[], None]] = []
        self._own: set[tuple[str, str]] = set()
        self._alive = True
        if kind == "DEF":
            self._claim_namespace()
        self._finalizer = weakref.finalize(self, _undo_all, self._undo)
        self._finalizer.atexit = False

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})"

    def _claim_namespace(self) -> None:
        with _LOCK:
            first = "mortice itself" if self.ns == "aten" else _DEFINED.get(self.ns)
            if first is not None:
                raise RegistrationError(
                    f"Only a single Library of kind DEF can be used to define the namespace "
                    f"{self.ns}; please use FRAGMENT. The first was made at {first}; this one at "
                    f"{self.where}."
                )
            _DEFINED[self.ns] = self.where
        self._undo.append(lambda ns=self.ns: _forget(ns))

    def _check_alive(self) -> None:
        if not self._alive:
            raise InvalidState(
                f"This Library object has been destroyed (it was made at {self.where}). Make a new "
                "one."
            )

    # -- definitions ---------------------------------------------------------------------------

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Declare an operator by its schema; returns its name without the overload."""
        self._check_alive()
        if alias_analysis not in ALIAS_ANALYSIS:
            raise RegistrationError(
                f"Invalid alias_analysis type {alias_analysis!r}; it is one of {ALIAS_ANALYSIS}."
            )
        if self.kind == "IMPL":
            raise RegistrationError(
                "Cannot define an operator inside of an IMPL library. Make a FRAGMENT library: "
                f"Library({self.ns!r}, 'FRAGMENT')."
            )
        parsed = parse(schema, self.ns)
        if parsed.namespace != self.ns:
            raise RegistrationError(
                f"Explicitly provided namespace ({parsed.namespace}) in schema string does not match "
                f"namespace of the library ({self.ns})."
            )
        given = check_tags(tags)
        tag = tagged.tag_of(given)
        if tag is not None:
            tagged.check_schema(parsed, tag)
        op = self._declare(parsed, given)
        where = self.where  # the undo list must not keep the library alive
        self._undo.append(lambda: _undefine(op, where))
        return parsed.name

    def _declare(self, schema: FunctionSchema, tags: tuple[Any, ...]) -> Operator:
        name = registry_name(schema)
        with _LOCK:
            if find(name) is not None:
                raise RegistrationError(
                    f"Tried to register an operator ({schema}) with the same name and overload name "
                    f"multiple times. Each overload's schema should only be registered with a "
                    f"single call to define(). Duplicate registration: {caller()}. Original "
                    f"registration: {_WHERE.get((name, 'define'), 'mortice itself')}."
                )
            op = Operator(name, Row(str(schema), "", tags=tags), schema)
            add_operator(op, packet_key(schema))
            _WHERE[name, "define"] = self.where
            _TOMBSTONES.pop(name, None)
            for key, kernel, with_keyset, _ in _PENDING.pop(name, []):
                op.register(key, adapted(op, kernel, with_keyset))
        return op

    # -- kernels -------------------------------------------------------------------------------

    def impl(
        self,
        op_name: Any,
        fn: Any,
        dispatch_key: str = "",
        *,
        with_keyset: bool = False,
        allow_override: bool = True,
    ) -> None:
        """Register ``fn`` as the kernel of an operator for a dispatch key.

        The newest kernel runs, and earlier ones again when its library goes. Without
        ``allow_override`` it is a RegistrationError to replace one.
        """
        self._check_alive()
        if not callable(fn):
            raise ArgumentError(
                f"Input function is required to be a callable but found type {type(fn).__name__}"
            )
        key = K.canonical(dispatch_key or self.dispatch_key or "CompositeImplicitAutograd")
        functionality, device = K.parse_key(key)
        if self.dispatch_key and dispatch_key and dispatch_key != self.dispatch_key:
            raise RegistrationError(
                f"impl(): dispatch key {dispatch_key} is inconsistent with the dispatch key of the "
                f"library, {self.dispatch_key}. Leave it away, or use another library."
            )
        name = self._target(op_name)
        op = find(name)
        known = op is not None and op.registered(key) is not None
        if not allow_override and (known or (name, key) in self._own):
            raise RegistrationError(
                f"This is not allowed since there's already a kernel registered from python "
                f"overriding {name}'s behavior for {key} dispatch key and {self.ns} namespace. "
                "Pass allow_override=True to replace it."
            )
        if key == "Meta" and op is not None and op.registered("CompositeImplicitAutograd"):
            raise RegistrationError(
                f"We should not register a meta kernel directly to the operator '{name}', because it "
                "has a CompositeImplicitAutograd kernel. Override the operators that it decomposes "
                "into instead."
            )
        self._own.add((name, key))
        if op is None:
            self._impl_later(name, key, fn, with_keyset)
            return
        _note_override(op, key, caller())
        kernel = adapted(op, fn, with_keyset)
        op.register(key, kernel)
        if functionality == "" and device is not None:
            K.device_bit(device)
        self._undo.append(lambda: op.unregister(key, kernel))

    def _impl_later(self, name: str, key: str, fn: Any, with_keyset: bool) -> None:
        entry = (key, fn, with_keyset, caller(3))
        if self.ns == "aten":
            _warn_unknown(name, entry[3])
        _PENDING.setdefault(name, []).append(entry)

        def undo() -> None:
            entries = _PENDING.get(name, [])
            if entry in entries:
                entries.remove(entry)
            op = find(name)
            if op is not None and op.registered(key) is not None:
                op.unregister(key, op.kernels[key][-1])

        self._undo.append(undo)

    def _target(self, op_name: Any) -> str:
        if isinstance(op_name, str):
            namespace, _, rest = op_name.rpartition("::")
            if namespace and namespace != self.ns:
                raise RegistrationError(
                    f"impl(): the namespace of operator name {op_name!r} does not match the "
                    f"library's namespace, {self.ns}."
                )
            rest = rest.removesuffix(".default")
            return rest if self.ns == "aten" else f"{self.ns}::{rest}"
        operator = getattr(op_name, "operator", None)
        if not isinstance(operator, Operator):
            raise RegistrationError(
                "impl should be passed either a name or an OpOverload object as the first argument, "
                f"not {type(op_name).__name__}"
            )
        if operator.schema.namespace != self.ns:
            raise RegistrationError(
                f"impl(): operator name {operator.qualified} does not match the library's namespace, "
                f"{self.ns}."
            )
        return operator.name

    def fallback(self, fn: Any, dispatch_key: str = "", *, with_keyset: bool = False) -> None:
        """Register ``fn(op, *args, **kwargs)`` for every operator without a kernel at a key.

        The key is a backend's ("CPU", "PrivateUse1") or an Autograd key; there it runs for operators
        from outside core of which no derivative is known. A composite kernel goes before it.
        """
        self._check_alive()
        if self.ns != "_":
            raise RegistrationError(
                f"Fallback can only be registered using library fragment on the global namespace "
                f'"_" but it is {self.ns}'
            )
        key = K.canonical(dispatch_key or self.dispatch_key)
        if not key:
            raise ArgumentError("fallback(): a dispatch key is required, such as 'CPU'.")
        functionality, device = K.parse_key(key)
        if functionality != "Autograd" and (functionality or device is None):
            raise RegistrationError(
                f"fallback(): {key} is neither a backend's key nor an Autograd key; only those have "
                "fallbacks."
            )
        if key in FALLBACKS:
            raise RegistrationError(
                f"Tried to register multiple backend fallbacks for the same dispatch key {key}; "
                f"previous registration {_WHERE.get(('_', key), '')}."
            )
        FALLBACKS[key] = lambda op: _as_fallback(op, fn, with_keyset)
        _WHERE["_", key] = caller()
        fallbacks_changed(key)

        def undo() -> None:
            FALLBACKS.pop(key, None)
            fallbacks_changed(key)

        self._undo.append(undo)

    def _destroy(self) -> None:
        """Take back everything that was registered."""
        self._alive = False
        with unrecorded("kernels are taken back"):  # as where one is registered
            self._finalizer()


def _undo_all(undo: list[Callable[[], None]]) -> None:
    with _LOCK:
        while undo:
            undo.pop()()


def _undefine(op: Operator, where: str) -> None:
    remove_operator(op, packet_key(op.schema))
    op.invalidate(where)
    _TOMBSTONES[op.name] = where
    ops = sys.modules.get("mortice.ops")
    if ops is not None:
        ops.forget(op.schema.namespace, op.schema.name)


def tombstone(name: str) -> str | None:
    """Where the library was made that once defined ``name`` and has been destroyed."""
    return _TOMBSTONES.get(name)


def undefined() -> dict[str, str]:
    """Operators that have kernels but no definition -> where the first kernel came from."""
    return {name: entries[0][3] for name, entries in _PENDING.items() if entries}


def why_undefined(name: str) -> str | None:
    """What is known of an operator that has kernels but no definition, as a sentence; else None."""
    where = undefined().get(name)
    if where is None:
        return None
    namespace, colons, short = name.rpartition("::")
    shown = nearest(short.partition(".")[0], names_in(namespace if colons else "aten"))
    return (
        f"A kernel for it was registered at {where}, but nothing defines it. Define it, with "
        f"Library({(namespace or 'aten')!r}, 'FRAGMENT').define(schema), or mend its name.{shown}"
    )


def _warn_unknown(name: str, where: str) -> None:
    """All operators of aten are known, so that a kernel for another one is a mistake."""
    import warnings

    warnings.warn(
        f"impl(): there is no operator aten::{name}, so that its kernel registered at {where} is never "
        f"called.{nearest(name.partition('.')[0], names_in('aten'))}",
        UserWarning,
        stacklevel=5,
    )


def registry_name(schema: FunctionSchema) -> str:
    prefix = "" if schema.namespace == "aten" else f"{schema.namespace}::"
    return f"{prefix}{schema.name}" + (f".{schema.overload}" if schema.overload else "")


def packet_key(schema: FunctionSchema) -> str:
    return schema.name if schema.namespace == "aten" else f"{schema.namespace}::{schema.name}"


_warned_override = [False]


def _note_override(op: Operator, key: str, where: str) -> None:
    previous = _WHERE.get((op.name, key))
    _WHERE[op.name, key] = where
    if op.registered(key) is None or _warned_override[0]:
        return
    _warned_override[0] = True
    import warnings

    warnings.warn(
        f"Overriding a previously registered kernel for the same operator and the same dispatch key\n"
        f"  operator: {op.schema}\n    dispatch key: {key}\n  previous kernel: registered at "
        f"{previous}\n       new kernel: registered at {where}\nWarning only once for all operators; "
        "other operators may also be overridden.",
        UserWarning,
        stacklevel=4,
    )


def adapted(op: Operator, fn: Any, with_keyset: bool = False) -> Kernel:
    """A Python kernel in PyTorch's calling convention as a kernel in ours."""
    if isinstance(fn, Fallthrough):
        return fn
    schema = op.schema
    n = schema.positional
    names = tuple(a.name for a in schema.arguments[n:])
    if not names and not with_keyset and getattr(fn, "checks_result", False):
        return fn
    single = len(schema.returns) == 1 and not schema.returns[0].type.is_list

    def kernel(*values: Any) -> Any:
        if with_keyset:
            values = (DispatchKeySet(op.keys_of(values)), *values)
            result = fn(*values[: n + 1], **dict(zip(names, values[n + 1 :])))
        elif names:
            result = fn(*values[:n], **dict(zip(names, values[n:])))
        else:
            result = fn(*values)
        if single and hasattr(result, "_k"):
            return result
        return check_result(op, result)

    return kernel


def _as_fallback(op: Operator, fn: Any, with_keyset: bool) -> Kernel:
    """A fallback as the kernel of one operator, which it is given as an overload of mortice.ops."""
    schema = op.schema
    packet = getattr(getattr(import_module("mortice.ops"), schema.namespace), schema.name)
    overload = getattr(packet, schema.overload or "default")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        if with_keyset:
            return fn(args[0], overload, *args[1:], **kwargs)
        return fn(overload, *args, **kwargs)

    return adapted(op, kernel, with_keyset)


@contextmanager
def scoped_library(*args: Any, **kwargs: Any) -> Generator[Library, None, None]:
    """A Library whose registrations last as long as the ``with`` block."""
    library = Library(*args, **kwargs)
    try:
        yield library
    finally:
        library._destroy()


# -- the functional forms ------------------------------------------------------------------------

_KEPT: list[Library] = []


def kept_library(ns: str, kind: str) -> Library:
    """A library that lives as long as the process."""
    library = Library(ns, kind)
    _KEPT.append(library)
    return library


def split_qualname(qualname: Any) -> tuple[str, str]:
    """``"ns::name"`` as (ns, name); InvalidValue says what a name looks like."""
    if not isinstance(qualname, str) or qualname.count("::") != 1:
        shown = str(qualname)
        hint = ""
        if isinstance(qualname, str) and "." in qualname and "::" not in qualname:
            hint = f" Did you mean {qualname.replace('.', '::', 1)!r}?"
        raise InvalidValue(
            f"Expected the operator's qualified name to be of the form 'namespace::name', such as "
            f"'mylib::foo', but got {shown!r}.{hint}"
        )
    ns, _, name = qualname.partition("::")
    return ns, name


def define(
    qualname: Any,
    schema: Any,
    alias_analysis: str = "",
    *,
    lib: Library | None = None,
    tags: Any = (),
) -> Any:
    """``define("ns::name", "(Tensor x) -> Tensor")``: kept for ever unless ``lib`` is given."""
    if isinstance(qualname, Library):
        return _define_decorator(qualname, schema, alias_analysis)
    if not isinstance(qualname, str):
        raise InvalidValue(
            f"define(qualname, schema): expected qualname to be instance of str, got "
            f"{type(qualname).__name__}"
        )
    ns, name = split_qualname(qualname)
    if not isinstance(schema, str) or not schema.lstrip().startswith("("):
        raise InvalidValue(
            "define(qualname, schema, ...): expected schema to look like e.g. "
            f'"(Tensor x) -> Tensor" but got {schema!r}'
        )
    library = lib or kept_library(ns, "FRAGMENT")
    library.define(name + schema.strip(), tags=tags)
    return None


def _define_decorator(library: Library, schema: str, alias_analysis: str) -> Any:
    def wrap(fn: Any) -> Any:
        name = library.define(schema, alias_analysis)
        library.impl(name, fn)
        return fn

    return wrap


def impl(qualname: Any, types: Any, func: Any = None, *, lib: Library | None = None) -> Any:
    """``impl("ns::name", "cpu", fn)``; types are device types, dispatch keys or "default"."""
    if isinstance(qualname, Library):
        return _impl_decorator(qualname, types, func or "")
    ns, name = split_qualname(qualname)
    wanted = [types] if isinstance(types, str) else list(types)
    found = [_key_of(t) for t in wanted]

    def register(fn: Any) -> None:
        library = lib or kept_library(ns, "FRAGMENT")
        for key in dict.fromkeys(found):
            library.impl(name, fn, key)

    return register if func is None else register(func)


def _impl_decorator(library: Library, name: str, key: str) -> Any:
    def wrap(fn: Any) -> Any:
        library.impl(name, fn, key)
        return fn

    return wrap


def _key_of(name: str) -> str:
    """A dispatch key from a device type, a key or ``"default"``."""
    if name == "default":
        return "CompositeExplicitAutograd"
    known = ["cpu", "meta", *(d for d in K._DEVICES)]  # pyright: ignore[reportPrivateUsage]
    if name in known or name in K._KEY_NAMES:  # pyright: ignore[reportPrivateUsage]
        return K.device_key_name(name)
    try:
        K.parse_key(name)
    except RegistrationError:
        raise RegistrationError(
            f"Expected one of {', '.join(known)} device type or a dispatch key, got {name!r}."
            f"{nearest(name, known)}"
        ) from None
    return name


def get_operator(op: Any, what: str) -> Operator:
    """The Operator behind a name, an OpOverload, a packet or a CustomOpDef."""
    operator = getattr(op, "operator", None)
    if isinstance(operator, Operator):
        return operator
    if isinstance(op, str):
        split_qualname(op.partition(".")[0])
        name = op.removesuffix(".default")
        found = find(name)
        if found is None:
            told = why_undefined(name) or "Define it first."
            raise RegistrationError(f"{what}: operator {op} does not exist. {told}")
        return found
    raise InvalidValue(
        f"{what}(op): got unexpected type for op: {type(op).__name__}; expected a name such as "
        "'mylib::foo', an OpOverload or a custom operator."
    )


__all__ = ["Library", "SchemaError", "Sequence", "define", "impl", "scoped_library"]
