"""Wrapper subclasses: what is asked of them when they hold no data of their own."""

from __future__ import annotations

import copy

import pytest

import mortice


class Box(mortice.Tensor):
    @staticmethod
    def __new__(cls, elem):
        made = mortice.Tensor._make_wrapper_subclass(cls, elem.size(), dtype=elem.dtype)
        made.elem = elem
        return made

    def __repr__(self):
        return super().__repr__(tensor_contents=repr(self.elem))

    @classmethod
    def __mortice_dispatch__(cls, func, types, args=(), kwargs=None):
        def unwrap(x):
            return x.elem if isinstance(x, Box) else x

        result = func(*map(unwrap, args), **(kwargs or {}))
        return Box(result) if isinstance(result, mortice.Tensor) else result


def test_shows_what_it_is_told() -> None:
    assert repr(Box(mortice.ones(2))) == "Box(tensor([1., 1.]))"
    plain = mortice.Tensor._make_wrapper_subclass(Box, (2,))
    assert mortice.Tensor.__repr__(plain) == "Box(..., size=(2,))"


def test_copies_by_its_class() -> None:
    x = Box(mortice.ones(2))
    y = copy.deepcopy(x)
    assert type(y) is Box and y.elem is not x.elem and y.elem.tolist() == [1.0, 1.0]


def test_has_no_elements_of_its_own() -> None:
    with pytest.raises(RuntimeError, match="not supported for tensor subclasses.*Box"):
        Box(mortice.ones(2)).numpy()


def test_options_that_do_not_work_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="define properties"):
        mortice.Tensor._make_wrapper_subclass(Box, (2,), dispatch_device=True)


def test_data_is_what_the_class_detaches() -> None:
    assert type(Box(mortice.ones(2)).data) is Box
