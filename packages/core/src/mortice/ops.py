"""``mortice.ops.<namespace>.<operator>.<overload>``: operators by their schema names."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

from mortice._base.errors import (
    InvalidValue,
    RegistrationError,
    SchemaMismatch,
    UnknownName,
    nearest,
)
from mortice._dispatch import keys as K
from mortice._dispatch.bind import Misfit, bind
from mortice._dispatch.call import failed, overridden
from mortice._dispatch.modes import call_overridden, flat
from mortice._dispatch.operator import Operator, get, load_namespace, names_in, overloads
from mortice._dispatch.plan import call_overload
from mortice._dispatch.state import GLOBAL, adjust


class OpOverload:
    """One overload, called with PyTorch's conventions."""

    def __init__(self, packet: OpOverloadPacket, operator: Operator) -> None:
        self._packet = packet
        self.operator = operator
        self._plans: dict[Any, Any] = {}
        self._py_impls: set[str] = set()
        # In the instance: a class body may not define __qualname__ as a property.
        self.__name__ = f"{operator.schema.name}.{self._overloadname}"
        self.__qualname__ = operator.schema.qualified
        self.__module__ = f"mortice.ops.{operator.schema.namespace}"

    @property
    def overloadpacket(self) -> OpOverloadPacket:
        return self._packet

    @property
    def _schema(self) -> Any:
        return self.operator.schema

    @property
    def _name(self) -> str:
        return self.operator.qualified

    @property
    def namespace(self) -> str:
        return self.operator.schema.namespace

    @property
    def tags(self) -> list[str]:
        """Those declared; every operator of core can be compiled, besides."""
        found: list[str] = list(self.operator.row.tags)
        if self.namespace in ("aten", "prims"):
            found.append("pt2_compliant_tag")
        return found

    @property
    def _overloadname(self) -> str:
        return self.operator.schema.overload or "default"

    def name(self) -> str:
        """``aten::add.Tensor``."""
        return self.operator.schema.qualified

    def __str__(self) -> str:
        s = self.operator.schema
        return f"{s.namespace}.{s.name}.{self._overloadname}"

    def __repr__(self) -> str:
        s = self.operator.schema
        return f"<OpOverload(op='{s.namespace}.{s.name}', overload='{self._overloadname}')>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._general(args, kwargs)

    def _general(self, args: Any, kwargs: Any) -> Any:
        try:
            return call_overload(self.operator, self._plans, args, kwargs)
        except Misfit as misfit:
            if overridden(args, kwargs):
                return call_overridden(self, flat(args, kwargs), args, kwargs, str(self))
            schema = self.operator.schema
            raise SchemaMismatch(
                f"{schema.qualified}(): {misfit}.\nDeclaration: {schema}"
            ) from None

    def decompose(self, *args: Any, **kwargs: Any) -> Any:
        """Run the composite body, or NotImplemented if there is none."""
        op = self.operator
        body = op.registered("CompositeImplicitAutograd") or op.body()
        if body is None:
            return NotImplemented
        return body(*bind(op.schema, args, kwargs, op.row.numbers, "self"))

    def redispatch(self, keyset: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the kernel for a key set, as a kernel registered ``with_keyset`` goes on to the next.

        ``keyset & mortice.library.after_autograd_keyset`` leaves out autograd and all above it.
        """
        op = self.operator
        try:
            values = bind(op.schema, args, kwargs, op.row.numbers, "self")
        except Misfit as misfit:
            raise SchemaMismatch(f"{op.qualified}(): {misfit}.\nDeclaration: {op.schema}") from None
        return op.lookup(keyset.keys & ~K.OVERRIDE)(*values)

    def py_impl(self, key: Any) -> Any:
        """Decorator: ``fn(*args, **kwargs)`` is the kernel for a dispatch key; or, for a dispatch mode
        or subclass, ``fn(mode_or_class, func, types, args, kwargs)`` is what it does with this operator.

        RegistrationError if there is one already.
        """
        from mortice._library.custom import register_mortice_dispatch
        from mortice._library.registration import adapted

        op = self.operator
        if isinstance(key, type):
            return register_mortice_dispatch(self, key)
        if key == "Python":
            raise InvalidValue(
                "py_impl: the key Python stands for modes and subclasses; give the class."
            )
        name = K.canonical(key)
        K.parse_key(name)

        def register(fn: Any) -> Any:
            if name in self._py_impls:
                raise RegistrationError(
                    f"Trying to override a python impl of {op.qualified} for {name}. It has one already."
                )
            self._py_impls.add(name)
            op.register(name, adapted(op, fn))
            return fn

        return register

    def has_kernel_for_dispatch_key(self, key: str) -> bool:
        """Whether a kernel was registered for exactly this key."""
        K.parse_key(key)
        return self.operator.registered(K.canonical(key)) is not None

    def __deepcopy__(self, memo: Any) -> OpOverload:
        return self


_MISSING: Any = object()

_DIRECT = """
def __call__(this, {parameters}, /, *args, **kwargs):
    if args or kwargs or {last} is MISSING:
        given = tuple(x for x in ({names},) if x is not MISSING)
        return this._general((*given, *args), kwargs)
    try:
        keys = {keys}
        if GLOBAL.special:
            keys = adjust(keys)
        kernel = table[keys]
    except (AttributeError, KeyError):
        kernel = None
    if kernel is None:
        return this._general(({names},), kwargs)
    try:
        return kernel({names})
    except Exception as error:
        failed(name, error, ({names},))
        raise
"""


def direct_class(cls: Any, op: Operator) -> Any:
    """``cls``, or for operators of tensors alone a subclass whose calls dispatch in line.

    A call then costs what the function's own stub does, instead of 400 ns more. ``cls`` has
    ``_general(args, kwargs)`` for all other calls.
    """
    arguments = op.schema.arguments
    plain = all(a.type.is_tensor and not a.type.form and not a.kwarg_only for a in arguments)
    if not arguments or not plain or op.row.numbers:
        return cls
    scope: dict[str, Any] = {
        "GLOBAL": GLOBAL, "MISSING": _MISSING, "adjust": adjust, "failed": failed, "name": op.name,
        "table": op.table,
    }  # fmt: skip
    exec(_direct_code(len(arguments)), scope)  # noqa: S102  made of positions only
    return type(cls.__name__, (cls,), {"__call__": scope["__call__"]})


@functools.cache
def _direct_code(count: int) -> types.CodeType:
    """The code for ``count`` operands, compiled once: it takes 0.1 ms, and a graph has many operators."""
    places = [f"a{i}" for i in range(count)]
    source = _DIRECT.format(
        names=", ".join(places),
        parameters=", ".join(f"{p}=MISSING" for p in places),
        last=places[-1],
        keys=" | ".join(f"{p}._k" for p in places),
    )
    return compile(source, "<mortice.ops>", "exec")


class OpOverloadPacket:
    """All overloads of one name; calling it chooses by the arguments."""

    def __init__(self, namespace: str, name: str, key: str) -> None:
        self._namespace = namespace
        self.__name__ = name
        self._key = key
        self._found: dict[str, OpOverload] = {}

    def overloads(self) -> list[str]:
        return [get(n).schema.overload or "default" for n in overloads(self._key)]

    def op_overloads(self) -> list[OpOverload]:
        return [getattr(self, name) for name in self.overloads()]

    def __getattr__(self, name: str) -> OpOverload:
        if name.startswith("__"):
            raise AttributeError(name)
        found = self._found.get(name)
        if found is None:
            for operator_name in overloads(self._key):
                # By the name, for to read the schemas of the others takes as long as this one's.
                if (operator_name[len(self._key) + 1 :] or "default") == name:
                    op = get(operator_name)
                    found = self._found[name] = direct_class(OpOverload, op)(self, op)
                    return found
            raise UnknownName(
                f"The underlying op of '{self}' has no overload name '{name}'."
                f"{nearest(name, self.overloads())} It has: {', '.join(self.overloads())}"
            )
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        misfits: list[str] = []
        for overload in self.op_overloads():
            op = overload.operator
            try:
                values = bind(op.schema, args, kwargs, op.row.numbers, "self")
            except Misfit as misfit:
                misfits.append(f"  {op.schema}\n    {misfit}")
                continue
            return op(*values)
        if overridden(args, kwargs):
            return call_overridden(self, flat(args, kwargs), args, kwargs, str(self))
        raise SchemaMismatch(
            f"Overloaded operator {self} failed to match any schema:\n" + "\n".join(misfits)
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __dir__(self) -> list[str]:
        return self.overloads()

    def __str__(self) -> str:
        return f"{self._namespace}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self}')>"

    def __deepcopy__(self, memo: Any) -> OpOverloadPacket:
        return self


class OpNamespace(types.ModuleType):
    """The operators of one namespace, found when they are asked for."""

    def __init__(self, name: str) -> None:
        super().__init__(f"mortice.ops.{name}")
        self.name = name

    def __getattr__(self, name: str) -> OpOverloadPacket:
        if name.startswith("__"):
            raise AttributeError(name)
        key = name if self.name == "aten" else f"{self.name}::{name}"
        if not overloads(key):
            failed = load_namespace(self.name)
            if failed and not overloads(key):
                raise failed[0]
        if not overloads(key):
            if not names_in(self.name):
                raise UnknownName(_nobody(self.name, name))
            raise UnknownName(
                f"'_OpNamespace' '{self.name}' object has no attribute '{name}'{_told(key)}"
            )
        packet = OpOverloadPacket(self.name, name, key)
        setattr(self, name, packet)
        return packet


def _nobody(namespace: str, name: str) -> str:
    """Says that a namespace has no operators at all; unless one is on its way, or was there."""
    told = _told(f"{namespace}::{name}")
    if not told:
        told = (
            f": no installed package provides operators called {namespace}::..., and no Library "
            f"defines any.{nearest(namespace, _namespaces())}"
        )
    return f"'_OpNamespace' '{namespace}' object has no attribute '{name}'{told}"


def _namespaces() -> set[str]:
    """Those that packages provide, and those in use in this process."""
    from mortice._plugins import find

    provided = {entry.name.partition(":")[0] for entry in find("operators")}
    return {"aten", "prims", *provided, *(one for one in _used() if names_in(one))}


def _used() -> list[str]:
    made = sys.modules[__name__].__dict__
    return [name for name, value in made.items() if isinstance(value, OpNamespace)]


def _told(key: str) -> str:
    """Why the operator is not there: not defined yet, or its library is gone."""
    from mortice._library.registration import tombstone, why_undefined

    pending = why_undefined(key)
    if pending is not None:
        return f". {pending}"
    where = tombstone(key)
    if where is None:
        namespace, colons, name = key.rpartition("::")
        hint = nearest(name, names_in(namespace if colons else "aten"))
        return f".{hint}" if hint else ""
    return (
        f". The Library made at {where} defined it and has been destroyed; keep a reference to the "
        "Library for as long as its operators are used."
    )


def forget(namespace: str, name: str) -> None:
    """Drop a cached packet whose operator is no longer defined."""
    space = sys.modules[__name__].__dict__.get(namespace)
    if space is not None:
        space.__dict__.pop(name, None)


class _Ops(types.ModuleType):
    def __getattr__(self, name: str) -> OpNamespace:
        if name.startswith("__"):
            raise AttributeError(name)
        namespace = OpNamespace(name)
        setattr(self, name, namespace)
        return namespace


sys.modules[__name__].__class__ = _Ops
