"""Attribute reads and writes, as ``object.__getattribute__`` does them, each lookup guarded."""

from __future__ import annotations

import enum
import types
from collections import namedtuple
from types import FunctionType, MethodType, ModuleType
from typing import Any

from mortice._capture.guards import MISSING, DictItem, InstanceDict, Slot, class_lookup
from mortice._capture.identity import one_of
from mortice._capture.observer import framework
from mortice._capture.observer.watch import CONTAINERS, Watch, is_plain

#: Built-in types whose attributes are methods, or plain values that follow from the object.
PLAIN_TYPES = frozenset(
    (
        int, float, complex, str, bytes, bool, type(None), tuple, list, dict, set, frozenset, slice,
        range, type({}.keys()), type({}.values()), type({}.items()),
        types.BuiltinFunctionType,
    )
)  # fmt: skip
_FUNCTION_SLOTS = frozenset(
    (
        "__code__", "__defaults__", "__kwdefaults__", "__name__", "__qualname__", "__globals__",
        "__module__", "__doc__",
    )
)  # fmt: skip
_CLASS_SLOTS = frozenset(("__name__", "__qualname__", "__module__"))
_OBJECT_GETATTRIBUTE = object.__getattribute__
#: Built-in classes that look attributes up as object does.
_GENERIC = (
    object, BaseException, tuple, list, dict, set, frozenset, int, float, str, bytes, complex,
)  # fmt: skip
_FIELDS: Any = namedtuple("_Fields", "x")  # pyright: ignore[reportUntypedNamedTuple]
_TUPLE_FIELD = type(_FIELDS.x)
_ENUM_PROPERTY: Any = getattr(enum, "property", types.DynamicClassAttribute)
_ENUM_FIELDS = {"value": "_value_", "name": "_name_"}


def load(w: Watch, o: Any, name: str) -> Any:
    """``o.name``; raises what Python raises."""
    kind = type(o)
    if framework.is_tensor(o):
        return _of_tensor(w, o, name)
    if kind is ModuleType or issubclass(kind, ModuleType):
        return _of_module(w, o, name)
    if issubclass(kind, type):
        return _of_class(w, o, name)
    if one_of(kind, PLAIN_TYPES) or is_plain(o):
        return _native(o, name)
    if kind is FunctionType:
        return _of_function(w, o, name)
    if kind is MethodType:
        return _of_method(w, o, name)
    if kind is super:
        return _of_super(w, o, name)
    return _of_instance(w, o, name)


def is_generic(entry: Any) -> bool:
    """Whether a ``__getattribute__`` is object's."""
    return type(entry) is types.WrapperDescriptorType and one_of(entry.__objclass__, _GENERIC)


def _native(o: Any, name: str) -> Any:
    return getattr(o, name)


def _unknown(w: Watch, o: Any, name: str, why: str) -> Any:
    w.unknown(why)
    return getattr(o, name)


# -- instances -------------------------------------------------------------------------------------


def _of_instance(w: Watch, o: Any, name: str) -> Any:
    cls = type(o)
    if not is_generic(w.class_attribute(cls, "__getattribute__")):
        return _unknown(w, o, name, f"{cls.__name__} has its own __getattribute__")
    typed(w, o)
    entry = w.class_attribute(cls, name)
    if entry is not MISSING and is_data_descriptor(w, entry):
        return _data_descriptor(w, o, cls, name, entry)
    value = _in_instance_dict(w, o, name)
    if value is not MISSING:
        return value
    if entry is not MISSING:
        return bind(w, entry, o, cls)
    hook = w.class_attribute(cls, "__getattr__")
    if type(hook) is FunctionType:
        return w.call(hook, (o, name))
    if hook is not MISSING:
        return _unknown(w, o, name, f"{cls.__name__}.__getattr__ is not a Python function")
    return _OBJECT_GETATTRIBUTE(o, name)  # raises


def typed(w: Watch, o: Any) -> None:
    """The type of an object that was reached without a guard on it matters now."""
    from mortice._capture.guards import HasType, Root

    if w.is_fresh(o):
        return
    source = w.source(o)
    if isinstance(source, Root) and w.once("type", id(source)):
        w.guard(source, HasType(type(o)))


def is_data_descriptor(w: Watch, entry: Any) -> bool:
    kind = type(entry)
    if kind is FunctionType or is_plain(entry):
        return False
    return w.entry(kind, "__set__") is not MISSING or w.entry(kind, "__delete__") is not MISSING


def _data_descriptor(w: Watch, o: Any, cls: type, name: str, entry: Any) -> Any:
    kind = type(entry)
    if issubclass(cls, enum.Enum) and name in _ENUM_FIELDS and kind is _ENUM_PROPERTY:
        return _in_instance_dict(w, o, _ENUM_FIELDS[name])
    if kind is property:
        if type(entry.fget) is FunctionType:
            return w.call(entry.fget, (o,))
        return _unknown(w, o, name, f"the property {name} of {cls.__name__} is not Python code")
    if name == "__dict__" and kind is types.GetSetDescriptorType:
        return instance_dict(w, o)
    if name == "__class__":
        return cls
    if kind is types.MemberDescriptorType:
        try:
            value = entry.__get__(o, cls)
        except AttributeError:
            w.unknown(f"reads the unset slot {name}")
            raise
        if w.is_outer(o):
            w.read(w.intern(Slot, w.source(o), name), value)
        return value
    if kind is _TUPLE_FIELD:
        if w.is_outer(o):
            w.element(o, entry.__reduce__()[1][0])
        return entry.__get__(o, cls)
    if kind is types.GetSetDescriptorType and issubclass(cls, BaseException) and w.is_fresh(o):
        return entry.__get__(o, cls)
    getter = w.class_attribute(kind, "__get__")
    if type(getter) is FunctionType:
        return w.call(getter, (entry, o, cls))
    return _unknown(w, o, name, f"the descriptor {name} of {cls.__name__} is not known")


def instance_dict(w: Watch, o: Any) -> Any:
    """``o.__dict__`` as an object that can be read on; MISSING if there is none."""
    entry = class_lookup(type(o), "__dict__")
    if entry is MISSING:
        return MISSING
    if type(entry) is not types.GetSetDescriptorType:
        w.unknown(f"{type(o).__name__} has a __dict__ of its own kind")
        return MISSING
    found = _OBJECT_GETATTRIBUTE(o, "__dict__")
    if type(found) is not dict:
        w.unknown(f"the __dict__ of {type(o).__name__} is not a dict")
    elif w.is_fresh(o):
        w.fresh(found)
    elif w.source_if_known(found) is None:
        w.know(found, w.intern(InstanceDict, w.source(o)))
    return found


def _in_instance_dict(w: Watch, o: Any, name: str) -> Any:
    values = instance_dict(w, o)
    if values is MISSING:
        return MISSING
    value = dict.get(values, name, MISSING)
    if w.is_outer(o):
        w.read(w.intern(DictItem, w.source(values), name), value)
    return value


def bind(w: Watch, entry: Any, o: Any, cls: type) -> Any:
    """A class's entry as seen from an instance (or from the class, with ``o`` None)."""
    kind = type(entry)
    if kind is FunctionType:
        return entry if o is None else MethodType(entry, o)
    if kind is staticmethod:
        return entry.__func__
    if kind is classmethod:
        return MethodType(entry.__func__, cls)
    if is_plain(entry) or one_of(kind, CONTAINERS) or framework.is_tensor(entry):
        return entry
    getter = w.entry(kind, "__get__")
    if getter is MISSING:
        return entry
    if one_of(
        kind,
        (
            types.MethodDescriptorType,
            types.WrapperDescriptorType,
            types.ClassMethodDescriptorType,
        ),
    ):
        return entry.__get__(o, cls)
    if o is None and one_of(
        kind, (property, types.MemberDescriptorType, types.GetSetDescriptorType)
    ):
        return entry
    if type(getter) is FunctionType:
        return w.call(getter, (entry, o, cls))
    w.unknown(f"the descriptor {kind.__name__} is not known")
    return entry.__get__(o, cls)


def special(w: Watch, o: Any, name: str) -> Any:
    """A special method as Python finds it: by the class, bound; None if it is no Python function."""
    entry = w.entry(type(o), name)
    if not one_of(type(entry), (FunctionType, staticmethod, classmethod)):
        return None
    if not issubclass(type(o), type):
        typed(w, o)
    return bind(w, w.class_attribute(type(o), name), o, type(o))


# -- other kinds of objects --------------------------------------------------------------------------


def _of_tensor(w: Watch, o: Any, name: str) -> Any:
    entry = w.class_attribute(type(o), name)
    if name in framework.TENSOR_PROPERTIES and entry is not MISSING:
        if name not in framework.SIZELESS:
            w.sizes_read = True
        return getattr(o, name)
    if type(entry) is FunctionType:
        return MethodType(entry, o)
    if entry is MISSING and w.source_if_known(o) is not None:
        value = dict.get(o.__dict__, name, MISSING)
        values = w.intern(InstanceDict, w.source(o))
        w.read(w.intern(DictItem, values, name), value)
        return getattr(o, name) if value is MISSING else value
    if name == "__class__":
        return type(o)
    return _unknown(w, o, name, f"reads Tensor.{name}")


def _of_module(w: Watch, o: ModuleType, name: str) -> Any:
    values = ModuleType.__getattribute__(o, "__dict__")
    if name == "__dict__":
        return _unknown(w, o, name, "reads a module's __dict__")
    value = values.get(name, MISSING)
    if value is MISSING and framework.of_the_framework(o):
        getattr(o, name)  # binds the name for good
        value = values.get(name, MISSING)
    if type(o) is not ModuleType and value is MISSING:
        if framework.of_the_framework(o):
            return framework_attribute(w, o, name)
        return _unknown(w, o, name, f"{type(o).__name__} is a module class of its own")
    root = w.root(values, _module_name(o), strong=True)
    w.read(w.intern(DictItem, root, name), value)
    if value is not MISSING:
        return value
    hook = values.get("__getattr__", MISSING)
    w.read(w.intern(DictItem, root, "__getattr__"), hook)
    if type(hook) is FunctionType:
        return w.call(hook, (name,))
    return getattr(o, name)  # raises


def framework_attribute(w: Watch, o: Any, name: str) -> Any:
    """An attribute of one of the framework's own module-like objects (``mortice.ops.aten``)."""
    value = getattr(o, name)
    if is_plain(value) or one_of(type(value), CONTAINERS):
        return _unknown(w, o, name, f"reads {_module_name(o)}.{name}")
    w.root(value, f"{_module_name(o)}.{name}", strong=True)
    return value


def _module_name(o: ModuleType) -> str:
    name = ModuleType.__getattribute__(o, "__dict__").get("__name__")
    return name if type(name) is str else "a module"


def _of_class(w: Watch, o: type, name: str) -> Any:
    meta = type(o)
    if w.entry(meta, "__getattribute__") is not type.__dict__["__getattribute__"]:
        return _unknown(w, o, name, f"{meta.__name__} has its own __getattribute__")
    if issubclass(meta, enum.EnumMeta) and name in _members(o):
        members = w.root(_members(o), f"{o.__name__}._member_map_", strong=True)
        return w.read(w.intern(DictItem, members, name), _members(o)[name])
    on_meta = w.entry(meta, name)
    if on_meta is not MISSING and is_data_descriptor(w, on_meta):
        value = getattr(o, name)
        if name in _CLASS_SLOTS:
            return w.read(w.intern(Slot, w.source(o), name), value)
        return value if name == "__class__" else _unknown(w, o, name, f"reads {name} of a class")
    entry = w.class_attribute(o, name)
    if entry is not MISSING:
        return bind(w, entry, None, o)
    if on_meta is not MISSING:
        w.class_attribute(meta, name)
        return bind(w, on_meta, o, meta)
    if w.class_attribute(meta, "__getattr__") is not MISSING:
        return _unknown(w, o, name, f"{meta.__name__} has a __getattr__")
    return getattr(o, name)  # raises


def _members(cls: Any) -> dict[str, Any]:
    return type.__getattribute__(cls, "__dict__")["_member_map_"]


def _of_function(w: Watch, o: FunctionType, name: str) -> Any:
    if name in _FUNCTION_SLOTS:
        value = getattr(o, name)
        if w.is_outer(o):
            w.read(w.intern(Slot, w.source(o), name), value)
        return value
    if class_lookup(FunctionType, name) is not MISSING:
        entry = class_lookup(FunctionType, name)
        if one_of(type(entry), (types.MethodDescriptorType, types.WrapperDescriptorType)):
            return entry.__get__(o, FunctionType)
        if w.is_fresh(o):
            value = getattr(o, name)
            return w.fresh(value) if type(value) is dict else value
        return _unknown(w, o, name, f"reads {name} of a function")
    value = _in_instance_dict(w, o, name)
    return getattr(o, name) if value is MISSING else value


def _of_method(w: Watch, o: MethodType, name: str) -> Any:
    if name in ("__func__", "__self__"):
        return getattr(o, name)
    return load(w, o.__func__, name)


def _of_super(w: Watch, o: Any, name: str) -> Any:
    read = super.__getattribute__
    cls, bound, owner = (
        read(o, "__thisclass__"),
        read(o, "__self__"),
        read(o, "__self_class__"),
    )
    entry = w.class_attribute(owner, name, cls)
    if entry is MISSING:
        return getattr(o, name)
    if is_data_descriptor(w, entry):
        if type(entry) is property and type(entry.fget) is FunctionType:
            return w.call(entry.fget, (bound,))
        return _unknown(w, o, name, f"the descriptor {name} behind super()")
    return bind(w, entry, None if bound is owner else bound, owner)


# -- writing -----------------------------------------------------------------------------------------


def store(w: Watch, o: Any, name: str, value: Any) -> None:
    """``o.name = value``: free on objects of this call, else an effect."""
    kind = type(o)
    if issubclass(kind, (type, ModuleType)) or framework.is_tensor(o):
        w.effect(f"sets {name} of a {kind.__name__}")
        setattr(o, name, value)
        return
    hook = w.class_attribute(kind, "__setattr__")
    if type(hook) is FunctionType:
        w.call(hook, (o, name, value))
        return
    entry = w.class_attribute(kind, name)
    if type(entry) is property and type(entry.fset) is FunctionType:
        w.call(entry.fset, (o, value))
        return
    known = entry is MISSING or not is_data_descriptor(w, entry)
    known = known or type(entry) is types.MemberDescriptorType or kind is FunctionType
    if w.is_outer(o):
        w.effect(f"sets {name} of a {kind.__name__} made outside")
    elif hook is not object.__setattr__ or not known:
        w.unknown(f"setting {name} of a {kind.__name__} is not known")
    setattr(o, name, value)


def delete(w: Watch, o: Any, name: str) -> None:
    """``del o.name``."""
    kind = type(o)
    hook = w.class_attribute(kind, "__delattr__")
    if type(hook) is FunctionType:
        w.call(hook, (o, name))
        return
    if w.is_outer(o) or hook is not object.__delattr__:
        w.effect(f"deletes {name} of a {kind.__name__}")
    delattr(o, name)
