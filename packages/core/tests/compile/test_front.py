"""``mortice.compile``: its arguments, and what may be compiled."""

from __future__ import annotations

import functools

import pytest

import mortice
from mortice import compiler
from mortice.errors import ArgumentError, OptionError, PluginNotFound


def double(x):
    return x * 2 + 1


def equal(a, b) -> bool:
    return a.numpy().tobytes() == b.numpy().tobytes()


X = mortice.arange(4.0)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_function(backend) -> None:
    f = mortice.compile(double, backend=backend)
    assert equal(f(X), double(X))
    assert equal(f(x=X), double(X))
    assert len(f.segments) == 1


def test_a_decorator_with_and_without_arguments() -> None:
    compiler.set_default_backend("eager")
    try:

        @mortice.compile
        def f(x):
            return x.sin()

        @mortice.compile(backend="aot_eager")
        def g(x):
            return x.cos()

    finally:
        compiler.set_default_backend(None)
    assert equal(f(X), X.sin())
    assert equal(g(X), X.cos())
    assert f.settings.backend_name == "eager"


def test_what_it_looks_like() -> None:
    def named(x):
        """Its text."""
        return x

    f = mortice.compile(named, backend="eager")
    assert f.__name__ == "named"
    assert f.__doc__ == "Its text."
    assert f.__wrapped__ is named
    assert "named" in repr(f)


class Scale:
    def __init__(self, by):
        self.by = by

    @mortice.compile(backend="eager")
    def decorated(self, x):
        return x * self.by

    def plain(self, x):
        return x * self.by

    def __call__(self, x):
        return x + self.by

    @classmethod
    def make(cls, x):
        return x * 3

    @staticmethod
    def fixed(x):
        return x * 5


def test_methods() -> None:
    a, b = Scale(2.0), Scale(3.0)
    assert equal(a.decorated(X), X * 2)
    assert equal(b.decorated(X), X * 3)
    assert equal(Scale.decorated(b, X), X * 3)
    for method in (b.plain, b, Scale.make, Scale.fixed):
        assert equal(mortice.compile(method, backend="eager")(X), method(X))


def test_partials_lambdas_and_builtins() -> None:
    for fn in (functools.partial(mortice.add, X), lambda x: x - 1, mortice.sin):
        assert equal(mortice.compile(fn, backend="eager")(X), fn(X))


def test_compiled_inside_compiled_is_one_graph() -> None:
    inner = mortice.compile(double, backend="eager")
    outer = mortice.compile(lambda x: inner(x).exp(), backend="eager")
    assert equal(outer(X), double(X).exp())
    assert len(outer.segments) == 1
    assert inner.segments == []


def test_compiling_anew_replaces_the_settings() -> None:
    f = mortice.compile(double, backend="eager")
    g = mortice.compile(f, backend="aot_eager", dynamic=False)
    assert g.fn is f.fn
    assert g.settings.backend_name == "aot_eager"
    assert equal(g(X), double(X))


def test_disabled_is_the_same_object() -> None:
    assert mortice.compile(double, disable=True, backend="eager") is double
    assert mortice.compile(disable=True, backend="eager")(double) is double


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"backend": "aot_eagr"}, PluginNotFound, "Did you mean 'aot_eager'"),
        ({"backend": 3}, ArgumentError, "not int 3"),
        ({"mode": "fast"}, OptionError, "backend 'eager' has no mode 'fast'; it has: default"),
        ({"mode": "default", "options": {"a": 1}}, OptionError, "either mode or options"),
        ({"options": {"max_autotun": 1}}, OptionError, "has no option 'max_autotun'"),
        ({"options": [1]}, ArgumentError, r"options is \[1\]; expected Mapping or None"),
        ({"dynamic": "yes"}, ArgumentError, "dynamic is 'yes'; expected bool or None"),
        ({"fullgraph": 1}, ArgumentError, "fullgraph is 1; expected bool"),
        ({"recompile_limit": 0}, ArgumentError, "recompile_limit is 0; expected at least 1"),
        ({"recompile_limit": True}, ArgumentError, "expected at least 1"),
    ],
)
def test_arguments_are_checked_when_compile_is_called(given, error, said) -> None:
    with pytest.raises(error, match=said):
        mortice.compile(double, **{"backend": "eager", **given})
    with pytest.raises(error, match=said):
        mortice.compile(**{"backend": "eager", **given})


@pytest.mark.parametrize(
    ("model", "said"),
    [(Scale, "not the class Scale. Compile an instance"), (3, "not int"), ("f", "not str")],
)
def test_what_cannot_be_compiled(model, said) -> None:
    with pytest.raises(ArgumentError, match=said):
        mortice.compile(model, backend="eager")


def test_options_reach_the_backend_and_the_dict_stays() -> None:
    seen = []

    @compiler.register_backend(options={"level": {"type": "int", "default": 1}})
    def leveller(gm, example_inputs, *, options):
        seen.append(dict(options))
        return gm

    given = {"level": 4}
    f = mortice.compile(double, backend="leveller", options=given)
    given["level"] = 5
    f(X)
    assert seen == [{"level": 4}]
    mortice.plugins.unregister("compile", "leveller")


def test_an_object_may_say_how_it_is_compiled() -> None:
    class Own:
        def __call__(self, x):
            return x * 7

        def __mortice_compile__(self, wrap):
            return ("mine", wrap(self.__call__))

    label, f = mortice.compile(Own(), backend="eager")
    assert label == "mine"
    assert equal(f(X), X * 7)


def test_errors_are_the_functions_own() -> None:
    def f(x):
        x * 2  # recorded, and never computed
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        mortice.compile(f, backend="eager")(X)
    with pytest.raises(RuntimeError, match="shapes|size"):
        mortice.compile(lambda x: x @ mortice.ones(3, 3), backend="eager")(X)
