"""Where native code finds what it needs of core: slot offsets, key sets, a layout version.

For packages that make machine code. Offsets are read from the classes of this process, so they
hold for this interpreter alone; ``LAYOUT_VERSION`` changes whenever the meaning of a slot does,
and belongs in the key of every cache of native code.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

__all__ = ["LAYOUT_VERSION", "Layout", "layout"]

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
    """

    tensor: type
    slots: dict[str, int]
    host_keys: int
    view_bit: int
    autograd_bit: int
    state: Any
    special: int


@cache
def layout() -> Layout:
    """The layout of this process; raises NotImplementedError where slots are not C slots."""
    from mortice._dispatch import keys
    from mortice._dispatch.state import GLOBAL
    from mortice._tensor.tensor import Tensor

    names = ("_a", "_k", "_t", "_g", "_s", "_b")
    return Layout(
        tensor=Tensor,
        slots={name: _offset(Tensor, name) for name in names},
        host_keys=keys.CPU,
        view_bit=keys.VIEW,
        autograd_bit=keys.AUTOGRAD,
        state=GLOBAL,
        special=_offset(type(GLOBAL), "special"),
    )


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
