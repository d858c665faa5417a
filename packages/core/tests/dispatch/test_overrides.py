"""Which functions can be overridden, and which cannot."""

from __future__ import annotations

import inspect
import warnings

import mortice
from mortice import overrides

#: Seen under another name: the function's for a method, ``mortice``'s for one in ``special``.
SEEN_AS = {
    "Tensor.nonzero", "Tensor.polygamma", "Tensor.split", "Tensor.where", "arange", "log_softmax",
    "softmax",
}  # fmt: skip


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
        assert seen[0] is function or name in SEEN_AS, name


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
