"""Where native code finds what it needs of core: slot offsets, key sets, replay plans as data.

For packages that make machine code. Offsets are read from the classes of this process, so they
hold for this interpreter alone; ``LAYOUT_VERSION`` changes whenever the meaning of a slot does,
and belongs in the key of every cache of native code.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mortice._capture import guards
    from mortice._capture.guard_check import apart, find, holds, is_like, same_keys
    from mortice._capture.guards import same_value
    from mortice._capture.native_seam import Direct, NativeEntry, NativePlan, NativeRecorder

__all__ = [
    "LAYOUT_VERSION", "NO_MODES", "Direct", "Layout", "NativeEntry", "NativePlan", "NativeRecorder",
    "RecordingLayout", "apart", "dispatch_modes", "find", "guards", "holds", "in_modes", "is_like",
    "layout", "recording_layout", "same_keys", "same_value",
]  # fmt: skip

#: ``dispatch_modes()`` of a thread that is in no grad mode, autocast, dispatch or function mode.
NO_MODES = (0, -1)


def dispatch_modes() -> tuple[int, int]:
    """The keys that this thread adds to every call's, and those that it lets through."""
    from mortice._dispatch.state import THREAD

    return THREAD.masks


def in_modes(modes: Any, _: Any = None) -> bool:
    """Whether this thread's ``dispatch_modes()`` are these, and no thread records a call.

    While one does, memory may have writes to come that native code would not see.
    """
    from mortice._dispatch.state import GLOBAL, THREAD

    return THREAD.masks == modes and not GLOBAL.recorders


#: Names that live with the capture machinery, which loads when one is used.
_HOMES = {
    "apart": "guard_check", "find": "guard_check", "holds": "guard_check",
    "is_like": "guard_check", "same_keys": "guard_check", "same_value": "guards",
    "Direct": "native_seam", "NativeRecorder": "native_seam", "NativeEntry": "native_seam", "NativePlan": "native_seam",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "guards":
        return import_module("mortice._capture.guards")
    if name in _HOMES:
        return getattr(import_module(f"mortice._capture.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


#: 1: Tensor's slots ``_a _k _t _g _s _b``, the flag ``special``.
LAYOUT_VERSION = 1


@dataclass(frozen=True)
class Layout:
    """Facts about core's objects in this process.

    Attributes:
        tensor: the Tensor class.
        slots: byte offset of each slot of Tensor: ``_a`` the handle (a numpy array on the host),
            ``_k`` the key set (an int), ``_t`` the dtype, ``_g`` the edge into the gradient graph
            or None, ``_s`` the shared storage or None, ``_b`` the base of a view or None.
        host_keys: the key set of a host tensor that is no view and needs no gradient.
        view_bit: set in the key sets of views.
        autograd_bit: set in the key sets of tensors that require grad.
        state: the object whose slot ``special`` is not 0 while any thread departs from the
            default dispatch state; native code must not run then.
        special: byte offset of that slot.
        default_dtype: (object, byte offset) of the slot that holds the default dtype.
        default_devices: the list that is empty while no default device but the host is in force.
    """

    tensor: type
    slots: dict[str, int]
    host_keys: int
    view_bit: int
    autograd_bit: int
    state: Any
    special: int
    default_dtype: tuple[Any, int]
    default_devices: list[Any]


@cache
def layout() -> Layout:
    """The layout of this process; raises NotImplementedError where slots are not C slots."""
    from mortice._dispatch import keys
    from mortice._dispatch.state import GLOBAL
    from mortice._tensor.tensor import Tensor
    from mortice._types import dtypes
    from mortice._types.device import default_devices

    names = ("_a", "_k", "_t", "_g", "_s", "_b")
    return Layout(
        tensor=Tensor,
        slots={name: _offset(Tensor, name) for name in names},
        host_keys=keys.CPU,
        view_bit=keys.VIEW,
        autograd_bit=keys.AUTOGRAD,
        state=GLOBAL,
        special=_offset(type(GLOBAL), "special"),
        default_dtype=(dtypes.default, _offset(type(dtypes.default), "dtype")),
        default_devices=default_devices,
    )


@dataclass(frozen=True)
class RecordingLayout:
    """Where the objects that a recorded operator touches keep what.

    Attributes:
        types: by kind: ``state`` (of ``Layout.state``), ``recorder``, ``step``, ``call``, ``leaf``,
            ``output``, ``pending``, ``storage``, ``finale``, ``tree``, ``hazards``, ``compiled``, ``stance``.
        offsets: byte offsets of their slots by kind and name.
        stance: what says whether compiled functions run as they are.
        thread: the thread-local object whose attribute ``recorder`` is this thread's, or None.
        record_key: the key added to every operator while calls are recorded.
        stubs: the functions behind Python's operators that ``NativeRecorder.take_over`` means.
        storage_of: ``storage_of(tensor)``: its storage, made if it has none.
        fill: ``fill(finale, outs, *tensors, *operands)``: hands a graph's outputs out, however they
            are laid out.
        finish: ``finish(recorder)``: ends a segment. tree_steps: trees with fewer steps are kept.
    """

    types: dict[str, type]
    offsets: dict[str, dict[str, int]]
    stance: Any
    stubs: tuple[Any, ...]
    record_key: int
    thread: Any
    storage_of: Any
    fill: Any
    finish: Any
    tree_steps: int


@cache
def recording_layout() -> RecordingLayout:
    """The layout of this process; raises NotImplementedError where slots are not C slots."""
    from mortice._capture.compiled import Compiled
    from mortice._capture.finale import Finale, fill
    from mortice._capture.hazards import Hazards
    from mortice._capture.kernels import Call
    from mortice._capture.recorder import Recorder
    from mortice._capture.stance import NOW
    from mortice._capture.stubs import operator_stubs
    from mortice._capture.tree import TREE_STEPS, Leaf, Output, Step, Tree
    from mortice._dispatch.keys import RECORD
    from mortice._dispatch.state import GLOBAL, THREAD
    from mortice._tensor.array import PendingArray
    from mortice._tensor.make import storage_of
    from mortice._tensor.storage import Storage

    types: dict[str, type] = {
        "state": type(GLOBAL), "recorder": Recorder, "step": Step, "call": Call, "leaf": Leaf,
        "output": Output, "pending": PendingArray, "storage": Storage, "finale": Finale, "tree": Tree,
        "hazards": Hazards, "compiled": Compiled, "stance": type(NOW),
    }  # fmt: skip
    names = {kind: [n for n in cls.__slots__ if n[:2] != "__"] for kind, cls in types.items()}  # type: ignore[attr-defined]
    offsets = {k: {n: _offset(types[k], n) for n in names[k]} for k in types}
    return RecordingLayout(
        types, offsets, NOW, operator_stubs(), RECORD, THREAD, storage_of, fill, Recorder.finish,
        TREE_STEPS,
    )  # fmt: skip


def _offset(cls: type, name: str) -> int:
    """The offset that the slot's descriptor holds (PyMemberDescrObject.d_member->offset)."""
    import ctypes
    import sys
    import types

    slot = cls.__dict__[name]
    if sys.implementation.name != "cpython" or type(slot) is not types.MemberDescriptorType:
        raise NotImplementedError(
            f"{cls.__name__}.{name} is not a C slot in this interpreter; native code cannot be used."
        )
    definition = ctypes.c_void_p.from_address(id(slot) + 40).value
    assert definition is not None
    return ctypes.c_ssize_t.from_address(definition + 16).value
