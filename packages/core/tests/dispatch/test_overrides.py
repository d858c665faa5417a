"""Which functions can be overridden, and which cannot."""

from __future__ import annotations

import inspect
import warnings

import pytest

import mortice
from mortice import overrides


def duck():
    seen = []

    class Duck:
        @classmethod
        def __mortice_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func)
            return -1

    return Duck, seen


def arguments(dummy, make):
    parameters = inspect.signature(dummy).parameters.values()
    needed = [p for p in parameters if p.default is p.empty]
    positional = [p for p in needed if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    keywords = {p.name: make() for p in needed if p.kind == p.KEYWORD_ONLY}
    return [make() for _ in positional] or [make()], keywords


def test_every_overridable_function_asks() -> None:
    make, seen = duck()
    dummies = overrides.get_testing_overrides()
    assert len(dummies) > 1000
    for function, dummy in dummies.items():
        seen.clear()
        args, kwargs = arguments(dummy, make)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert function(*args, **kwargs) == -1 == dummy(*args, **kwargs)
        assert seen
        name = overrides.resolve_name(function) or function.__qualname__
        assert seen[0] is function, name


def test_ignored_functions_are_not_overridable() -> None:
    ignored = overrides.get_ignored_functions()
    overridable = {f for fs in overrides.get_overridable_functions().values() for f in fs}
    assert ignored and not ignored & overridable
    assert mortice.tensor in ignored and mortice.Tensor.to in ignored and mortice.add in overridable


def test_methods_and_properties() -> None:
    assert overrides.is_tensor_method_or_property(mortice.Tensor.add)
    assert overrides.is_tensor_method_or_property(mortice.Tensor.shape.__get__)
    assert not overrides.is_tensor_method_or_property(mortice.add)


def test_redispatch_leaves_the_class_out() -> None:
    calls = []

    class Sub(mortice.Tensor):
        @classmethod
        def __mortice_function__(cls, func, types, args=(), kwargs=None):
            calls.append(func)
            return overrides.redispatch_function(func, args, kwargs)

    assert type(mortice.add(mortice.ones(1).as_subclass(Sub), 1)) is mortice.Tensor
    assert calls == [mortice.add]


def test_a_mode_that_handles_nothing() -> None:
    class Nothing(overrides.MorticeFunctionMode):
        def __mortice_function__(self, func, types, args=(), kwargs=None):
            return NotImplemented

    x = mortice.ones(1)
    with Nothing(), pytest.raises(TypeError, match="no implementation found for 'add'"):
        mortice.add(x, 1)


def test_a_handler_that_is_a_plain_method_is_warned_of() -> None:
    class Duck:
        def __mortice_function__(self, func, types, args=(), kwargs=None):
            return self

    value = Duck()
    with pytest.warns(UserWarning, match="Duck.__mortice_function__ is a plain method"):
        assert mortice.add(value, 1) is value


def test_modes_refuse_class_methods() -> None:
    class Mode(overrides.MorticeFunctionMode):
        @classmethod
        def __mortice_function__(cls, func, types, args=(), kwargs=None):
            return func(*args)

    with pytest.raises(RuntimeError, match="classmethod is not supported"), Mode():
        pass


def test_the_other_operand_of_an_operator_is_asked() -> None:
    class Nothing(mortice.Tensor):
        @classmethod
        def __mortice_function__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    class Reflected:
        def __rpow__(self, other):
            return "reflected"

        @classmethod
        def __mortice_function__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    assert mortice.ones(1).as_subclass(Nothing) ** Reflected() == "reflected"


def wrapper(name, handler, bases=(mortice.Tensor,)):
    def new(cls, elem):
        made = mortice.Tensor._make_wrapper_subclass(cls, elem.size(), dtype=elem.dtype)
        made.elem = elem
        return made

    members = {"__new__": staticmethod(new), "__mortice_dispatch__": classmethod(handler)}
    return type(name, bases, members)


def test_dispatch_subclasses_are_asked_before_their_bases() -> None:
    asked = []

    def handler(cls, func, types, args=(), kwargs=None):
        asked.append(cls.__name__)
        return mortice.zeros(1)

    base = wrapper("Base", handler)
    derived = wrapper("Derived", handler, (base,))
    base(mortice.ones(1)) + derived(mortice.ones(1))
    assert asked == ["Derived"]


def test_a_dispatch_mode_may_leave_a_call_to_the_classes() -> None:
    class Polite(mortice.utils.dispatch.MorticeDispatchMode):
        def __mortice_dispatch__(self, func, types, args=(), kwargs=None):
            return NotImplemented

    asked = []

    def handler(cls, func, types, args=(), kwargs=None):
        asked.append(str(func))
        return args[0].elem

    x = wrapper("Wrapper", handler)(mortice.ones(1))
    with Polite():
        x.abs()
    assert asked == ["aten.abs.default"]


def test_super_dispatch_goes_below_the_class() -> None:
    calls = []

    class Sub(mortice.Tensor):
        @classmethod
        def __mortice_dispatch__(cls, func, types, args=(), kwargs=None):
            calls.append(func)
            return super().__mortice_dispatch__(func, types, args, kwargs)

    x = mortice.ones(2).as_subclass(Sub)
    assert (x + x).tolist() == [2.0, 2.0] and calls


def test_autocast_of_one_device_can_be_left_out() -> None:
    a, b = mortice.ones(2, 3), mortice.ones(3, 2)
    with mortice.library.scoped_library("aten", "IMPL") as library:
        library.impl("mm", mortice.library.fallthrough_kernel, "AutocastCPU")
        with mortice.autocast("cpu", mortice.bfloat16):
            assert mortice.mm(a, b).dtype == mortice.float32
            assert mortice.bmm(a[None], b[None]).dtype == mortice.bfloat16
    with mortice.autocast("cpu", mortice.bfloat16):
        assert mortice.mm(a, b).dtype == mortice.bfloat16
