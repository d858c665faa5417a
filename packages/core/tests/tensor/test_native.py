"""What native code is told about core's objects."""

from __future__ import annotations

import ctypes

import numpy as np

import mortice
from mortice import native


def test_slots_are_where_the_layout_says() -> None:
    found = native.layout()
    x = mortice.ones(2, 3, requires_grad=True)
    for name, offset in found.slots.items():
        there = ctypes.c_void_p.from_address(id(x) + offset).value
        assert there == id(getattr(x, name)), name
    assert isinstance(x._a, np.ndarray)


def test_key_sets_say_what_the_layout_says() -> None:
    found = native.layout()
    plain = mortice.ones(2)
    assert plain._k == found.host_keys
    assert plain[:1]._k == found.host_keys | found.view_bit
    assert mortice.ones(2, requires_grad=True)._k == found.host_keys | found.autograd_bit


def test_special_is_not_zero_while_a_thread_departs_from_the_default() -> None:
    found = native.layout()

    def special() -> object:
        there = ctypes.c_void_p.from_address(id(found.state) + found.special).value
        return ctypes.cast(there, ctypes.py_object).value

    before = special()
    with mortice.no_grad():
        assert special() == before + 1  # type: ignore[operator]
    assert special() == before
