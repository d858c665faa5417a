"""Options: types, patches, routing to devices; and what users add to the compiler."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from typing import Any

import pytest
from inductor_graphs import check, graph

import mortice
import mortice_inductor
from mortice.errors import ArgumentError, OptionError, RegistrationError
from mortice_inductor import (
    ConfigModule,
    CustomGraphPass,
    Option,
    UnknownOption,
    compile_fx,
    config,
    devices,
    make_fallback,
    register_lowering,
)
from mortice_inductor.lowering import user

X = mortice.linspace(-1, 1, 50)


def doubled_exp(c: Any, a: Any) -> Any:
    return c("mul.Scalar", c("exp", a), 2.0)


def steps(compiled: Any) -> list[str]:
    return ["native" if s[0] == "native" else s.target for s in compiled.plan.steps]


# -- the module ----------------------------------------------------------------------------------


def test_names_and_types_are_checked() -> None:
    with pytest.raises(UnknownOption, match=r"no option 'fusoin'\. Did you mean 'fusion'"):
        config.fusoin = False
    with pytest.raises(AttributeError, match="Did you mean 'recompute_cost'"):
        config.recompute_costs
    with pytest.raises(OptionError, match="expected bool, found str"):
        config.fusion = "yes"
    with (
        pytest.raises(OptionError, match="expected int, found bool"),
        config.patch(fusion_reach=True),
    ):
        pass
    with pytest.raises(UnknownOption), config.patch({"fusion": False, "nonsense": 1}):
        pass
    assert config.fusion is True


def test_patch_is_scoped_and_nests() -> None:
    with config.patch("recompute_cost", 3):
        with config.patch({"fusion": False}):
            assert (config.recompute_cost, config.fusion) == (3, False)
        assert (config.recompute_cost, config.fusion) == (3, True)
    assert config.recompute_cost == 10

    @config.patch(recompute_cost=7)
    def within(depth: int) -> int:
        return within(depth - 1) if depth else config.recompute_cost

    assert within(2) == 7
    assert config.recompute_cost == 10
    with pytest.raises(ZeroDivisionError), config.patch(fusion=False):
        raise ZeroDivisionError
    assert config.fusion is True


def test_values_that_are_set_hold_in_all_threads() -> None:
    seen: list[int] = []
    config.fusion_reach = 5
    try:
        with config.patch(fusion_reach=9):
            thread = threading.Thread(target=lambda: seen.append(config.fusion_reach))
            thread.start()
            thread.join()
    finally:
        config.fusion_reach = 24
    assert seen == [5]
    assert config.get_config_copy()["fusion_reach"] == 24


# -- what options do -----------------------------------------------------------------------------


def test_without_fusion_every_operator_is_a_kernel() -> None:
    compiled = compile_fx(graph(doubled_exp, 1), [X], config_patches={"fusion": False})
    assert sum(len(s[2]) for s in compiled.plan.steps) == 2
    assert mortice.allclose(compiled(X)[0], X.exp() * 2)


def test_unknown_options_are_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownOption, match="Did you mean 'fusion'"):
        compile_fx(graph(doubled_exp, 1), [X], config_patches={"fusionn": False})
    with pytest.raises(OptionError, match="Did you mean 'fusion'"):
        mortice.compile(lambda a: a + 1, backend="inductor", options={"fusio": False})
    with pytest.raises(OptionError, match="expected bool"):
        mortice.compile(lambda a: a + 1, backend="inductor", options={"fusion": 3})


def test_options_of_mortice_compile_reach_the_backend() -> None:
    seen: list[bool] = []

    def watch(_: Any) -> None:
        seen.append(config.fusion)

    options = {"fusion": False, "post-grad-custom-pre-pass": watch}
    f = mortice.compile(lambda a: (a.exp() * 2).sum(), backend="inductor", options=options)
    x = X.clone().requires_grad_()
    f(x).backward()
    assert mortice.allclose(x.grad, X.exp() * 2)
    assert seen == [False, False]  # forward and, later, backward
    assert config.fusion is True


def test_symbolic_sizes_are_compiled_later_with_the_options_of_the_call() -> None:
    seen: list[int] = []
    gm = mortice.fx.make_fx(lambda a: a.exp() * 2, tracing_mode="symbolic")(X)
    examples = [n.meta["val"] for n in gm.graph.nodes if n.op == "placeholder"]
    compiled = compile_fx(gm, examples, config_patches={
        "recompute_cost": 3,
        "post_grad_custom_pre_pass": lambda _: seen.append(config.recompute_cost),
    })  # fmt: skip
    assert seen == []
    for n in (4, 9, 4):
        x = mortice.randn(n)
        assert mortice.allclose(compiled(x)[0], x.exp() * 2)
    assert seen == [3, 3]


# -- options of devices --------------------------------------------------------------------------


@pytest.fixture
def lathe(monkeypatch: pytest.MonkeyPatch) -> ConfigModule:
    """A device that has options and nothing else."""
    monkeypatch.setattr(devices, "_BACKENDS", {})
    own = ConfigModule("lathe_config", "", (Option("speed", int, 3), Option("oil", bool, True)))
    mortice_inductor.register_backend_for_device("lathe", lambda k: None, None, own)  # type: ignore[arg-type]
    return own


def test_options_are_routed_to_the_device(lathe: ConfigModule) -> None:
    seen: list[int] = []

    def watch(_: Any) -> None:
        seen.append(lathe.speed)

    patches = {"lathe.speed": 8, "post_grad_custom_pre_pass": watch}
    compile_fx(graph(doubled_exp, 1), [X], config_patches=patches)
    f = mortice.compile(lambda a: a * 2, backend="inductor", options=patches)
    f(X)
    assert seen == [8, 8]
    assert lathe.speed == 3
    with pytest.raises(UnknownOption, match="Did you mean 'lathe.speed'"):
        compile_fx(graph(doubled_exp, 1), [X], config_patches={"lathe.sped": 8})
    with pytest.raises(OptionError, match="expected int"):
        compile_fx(graph(doubled_exp, 1), [X], config_patches={"lathe.speed": "fast"})
    with pytest.raises(ZeroDivisionError):
        compile_fx(graph(doubled_exp, 1), [X], lambda *_: 1 / 0, {"lathe.speed": 9})
    assert lathe.speed == 3


def test_a_devices_options_are_in_the_cache_key(lathe: ConfigModule) -> None:
    from mortice_inductor import cache
    from mortice_inductor.front import Snapshot

    gm = graph(doubled_exp, 1)

    def key() -> bytes | None:
        return cache.key_of(gm, (), (), Snapshot().key(), lambda x: x)

    first = key()
    with lathe.patch(oil=False):
        assert key() != first
    assert key() == first
    with config.patch(recompute_cost=1):
        assert key() != first


# -- additions -----------------------------------------------------------------------------------


@pytest.fixture
def _additions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user, "USER", {})
    monkeypatch.setattr(user, "FALLBACKS", set())
    from mortice_inductor import compile as passes

    monkeypatch.setattr(passes, "USER", user.USER)
    monkeypatch.setattr(passes, "FALLBACKS", user.FALLBACKS)


@pytest.mark.usefixtures("_additions")
def test_lowerings_of_users_and_fallbacks() -> None:
    @register_lowering(mortice.ops.aten.exp)
    def cubed(t: Any, x: Any) -> Any:
        return t.fn("mul", t.fn("mul", x, x), x)

    (out,) = compile_fx(graph(doubled_exp, 1), [X])(X)
    assert mortice.allclose(out, X**3 * 2)
    make_fallback(mortice.ops.aten.exp.default)
    compiled = compile_fx(graph(doubled_exp, 1), [X])
    assert steps(compiled) == ["aten.exp.default", "native"]
    assert mortice.allclose(compiled(X)[0], X.exp() * 2)


@pytest.mark.usefixtures("_additions")
@pytest.mark.parametrize("register", [register_lowering, make_fallback])
def test_what_no_graph_holds_is_refused(register: Any) -> None:
    """At the registration, not at the decorated function; and nothing is registered."""
    aten = mortice.ops.aten
    with pytest.raises(
        ArgumentError, match=r"mortice\.ops\.aten\.exp\.default, not str 'aten\.foo'"
    ):
        register("aten.foo")
    with pytest.raises(ArgumentError, match="not function"):
        register(doubled_exp)
    with pytest.raises(
        RegistrationError, match=r"aten\.conv2d is in no graph .* it is a composite"
    ):
        register(aten.conv2d)
    with pytest.raises(RegistrationError, match=r"composite.* There is also aten\.mul\.Tensor\."):
        register(aten.mul.Scalar)
    with pytest.raises(RegistrationError, match=r"writes to an argument.* form, relu, stands"):
        register(aten.relu_.default)
    with pytest.raises(RegistrationError, match=r"exp\.out is in no graph.* aten\.exp\.default"):
        register(aten.exp.out)
    assert not user.USER
    assert not user.FALLBACKS
    register(aten.exp)  # of its overloads one may be in a graph
    register(aten.silu.default)  # with a decomposition, which comes after lowerings


@pytest.mark.usefixtures("_additions")
def test_one_wrong_operator_of_a_list_refuses_all() -> None:
    with pytest.raises(RegistrationError):
        register_lowering([mortice.ops.aten.exp, mortice.ops.aten.conv2d])
    assert not user.USER


def test_decompositions_are_traced_in_place() -> None:
    aten = mortice.ops.aten
    table = {aten.exp.default: lambda a: a.sin() + 1}
    (out,) = compile_fx(graph(doubled_exp, 1), [X], decompositions=table)(X)
    assert mortice.allclose(out, (X.sin() + 1) * 2)


def test_inner_compile_takes_the_graph() -> None:
    seen: list[Any] = []

    def inner(gm: Any, inputs: Any) -> Any:
        seen.append((gm, inputs, config.fusion))
        return gm

    run = compile_fx(graph(doubled_exp, 1), [X], inner, {"fusion": False})
    assert mortice.allclose(run(X)[0], X.exp() * 2)
    assert seen[0][2] is False


class Cosine(CustomGraphPass):
    """Every exp becomes a cos."""

    def __init__(self, version: str | None) -> None:
        self.version = version

    def __call__(self, g: Any) -> None:
        for node in g.nodes:
            if node.target is mortice.ops.aten.exp.default:
                node.target = mortice.ops.aten.cos.default

    def uuid(self) -> str | None:
        return self.version


def test_custom_passes_change_the_graph() -> None:
    for option in ("post_grad_custom_pre_pass", "post_grad_custom_post_pass"):
        run = compile_fx(graph(doubled_exp, 1), [X], config_patches={option: Cosine("1")})
        assert mortice.allclose(run(X)[0], X.cos() * 2)


def test_passes_around_fusion_see_values_and_kernels() -> None:
    seen: list[Any] = []

    def keep(given: list[Any]) -> list[Any]:
        seen.append(len(given))
        return given

    patches = {"pre_fusion_custom_pass": keep, "post_fusion_custom_pass": keep}
    compile_fx(graph(doubled_exp, 1), [X], config_patches=patches)
    assert seen == [1, 1]


def test_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "mortice.fusion"):
        y = mortice.randn(6, 7)

        def body(c: Any, a: Any) -> Any:
            s = c("sum.dim_IntList", c("exp", a), [1], True)
            return c("div.Tensor", a, s), c("sum.dim_IntList", a, [0])

        check(body, y)
    text = caplog.text
    assert "starts kernel" in text
    assert "joins kernel" in text
    assert "not in kernel" in text


@pytest.mark.parametrize(
    ("value", "on"), [("1", True), ("on", True), ("", False), ("0", False), ("false", False)]
)
def test_the_variable_that_turns_validation_on(value: str, on: bool) -> None:
    code = "import mortice_inductor.config as config; print(config.validate)"
    env = {**os.environ, "MORTICE_VALIDATE": value}
    found = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == str(on)
