"""Fallbacks, fall-through, autocast and dispatch rules; what PyTorch leaves unsaid about mistakes."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from typing import Any

import pytest

import mortice
from mortice import Tensor
from mortice.library import (
    Library,
    custom_op,
    fallthrough_kernel,
    get_ctx,
    impl_abstract,
    infer_schema,
    missing,
    register_autocast,
    register_fake,
    register_kernel,
    register_mortice_dispatch,
    scoped_library,
)
from mortice.utils.dispatch import MorticeDispatchMode

# -- kernels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["CPU", "Autograd", "AutogradCPU"])
def test_a_fallback_serves_operators_without_a_kernel(key: str) -> None:
    seen: list[str] = []

    def fallback(op: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(str(op))
        return args[0] + kwargs["step"]

    with scoped_library("rt_fallback", "FRAGMENT") as library, scoped_library("_", "IMPL") as every:
        library.define("f(Tensor x, *, int step=1) -> Tensor")
        library.define("own(Tensor x) -> Tensor")
        library.impl("own", lambda x: x.clone(), "CompositeImplicitAutograd")
        every.fallback(fallback, key)
        x = mortice.zeros(1, requires_grad=True)
        assert mortice.ops.rt_fallback.f(x, step=3).item() == 3
        assert mortice.ops.rt_fallback.own(x).item() == 0
        assert x.sin().item() == 0  # operators of core have what they need
        with pytest.raises(RuntimeError, match="multiple backend fallbacks"):
            every.fallback(fallback, key)
    assert seen == ["rt_fallback.f.default"]
    with scoped_library("rt_fallback", "FRAGMENT") as library:
        library.define("f(Tensor x, *, int step=1) -> Tensor")
        with pytest.raises(NotImplementedError):
            mortice.ops.rt_fallback.f(mortice.zeros(1))


def test_a_fallback_may_ask_for_the_keys() -> None:
    seen: list[bool] = []

    def fallback(keys: Any, op: Any, x: Any) -> Any:
        seen.append(keys.has("CPU"))
        return x + 1

    with scoped_library("rt_keys", "DEF") as library, scoped_library("_", "IMPL") as every:
        library.define("f(Tensor x) -> Tensor")
        every.fallback(fallback, "CPU", with_keyset=True)
        assert mortice.ops.rt_keys.f(mortice.zeros(1)).item() == 1
        with pytest.raises(RuntimeError, match="neither a backend's key nor an Autograd key"):
            every.fallback(fallback, "Autocast")
    assert seen == [True]


def test_fallbacks_are_of_the_nameless_namespace() -> None:
    with scoped_library("rt_named", "FRAGMENT") as library:
        with pytest.raises(RuntimeError, match="global namespace"):
            library.fallback(lambda op, *args: args[0], "CPU")


def test_a_fall_through_kernel_is_passed_over() -> None:
    with scoped_library("rt_through", "DEF") as library:
        library.define("f(Tensor x) -> Tensor")
        library.impl("f", lambda x: x + 1, "CPU")
        library.impl("f", fallthrough_kernel, "Autograd")
        assert mortice.ops.rt_through.f(mortice.ones(1, requires_grad=True)).item() == 2
    with pytest.raises(NotImplementedError):
        fallthrough_kernel()


def test_kernels_registered_are_told_apart_from_composites() -> None:
    with scoped_library("rt_has", "DEF") as library:
        library.define("f(Tensor x) -> Tensor")
        library.impl("f", lambda x: x.sin().cos(), "CompositeImplicitAutograd")
        op = mortice.ops.rt_has.f.default
        assert op.has_kernel_for_dispatch_key("CompositeImplicitAutograd")
        assert not op.has_kernel_for_dispatch_key("CPU")
        x = mortice.ones(2)
        assert op.decompose(x).tolist() == x.sin().cos().tolist()
        assert mortice.ops.aten.sin.default.decompose(x) is NotImplemented
        with pytest.raises(RuntimeError, match="parse dispatch key"):
            op.has_kernel_for_dispatch_key("CPUU")


def test_autocast_casts_the_inputs_of_a_registered_operator() -> None:
    @custom_op("rt_autocast::sin", mutates_args=())
    def sin(x: Tensor) -> Tensor:
        return x.sin()

    register_autocast(sin, "cpu", mortice.bfloat16)
    x = mortice.ones(2)
    with mortice.autocast("cpu"):
        assert sin(x).dtype is mortice.bfloat16
        assert sin(x.double()).dtype is mortice.float64
    assert sin(x).dtype is mortice.float32


def test_kernels_and_fakes_by_name() -> None:
    with scoped_library("rt_name", "DEF") as library:
        library.define("f(Tensor x) -> Tensor")
        register_kernel("rt_name::f", "cpu", lambda x: x + 1, lib=library)
        assert missing("fake", "rt_name") == ["rt_name::f"]
        register_fake("rt_name::f", mortice.empty_like, lib=library)
        assert missing("fake", "rt_name") == []
        assert mortice.ops.rt_name.f(mortice.ones(1)).item() == 2
        assert mortice.ops.rt_name.f(mortice.empty(3, device="meta")).shape == (3,)
        with pytest.warns(FutureWarning, match="register_fake"):
            impl_abstract("rt_name::f", mortice.empty_like, lib=library)


def test_sizes_that_depend_on_values_need_stand_ins() -> None:
    assert get_ctx() is None
    with scoped_library("rt_size", "DEF") as library:
        library.define("some(Tensor x) -> Tensor")

        @register_fake("rt_size::some", lib=library)
        def _(x: Any) -> Any:
            context = get_ctx()
            assert context is not None
            with pytest.raises(ValueError, match="greater than or equal to 0"):
                context.new_dynamic_size(min=-1)
            return x.new_empty(context.new_dynamic_size())

        with pytest.raises(RuntimeError, match="meta Tensors"):
            mortice.ops.rt_size.some(mortice.empty(3, device="meta"))
        with mortice.fake.FakeTensorMode(mortice.fake.ShapeEnv()):
            found = mortice.ops.rt_size.some(mortice.ones(3))
        assert isinstance(found.shape[0], mortice.fake.SymInt)


def test_a_mode_and_a_class_have_rules_of_their_own() -> None:
    class Quiet(MorticeDispatchMode):
        def __mortice_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    with scoped_library("rt_rule", "DEF") as library:
        library.define("f(Tensor x) -> Tensor")
        library.impl("f", lambda x: x + 1, "CPU")

        @register_mortice_dispatch("rt_rule::f", Quiet, lib=library)
        def _(mode: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            assert isinstance(mode, Quiet)
            return func(*args) * 10

        x = mortice.ones(1)
        with Quiet():
            assert mortice.ops.rt_rule.f(x).item() == 20
        assert mortice.ops.rt_rule.f(x).item() == 2
        with pytest.raises(RuntimeError, match="already has a `__mortice_dispatch__` rule"):
            register_mortice_dispatch("rt_rule::f", Quiet, lambda *a: None, lib=library)


# -- overloads -------------------------------------------------------------------------------------


def test_packets_find_the_overload_and_learn_of_new_ones() -> None:
    with scoped_library("rt_packet", "DEF") as library:
        library.define("f(Tensor x) -> Tensor")
        library.impl("f", lambda x: x + 1, "CPU")
        packet = mortice.ops.rt_packet.f
        assert packet is mortice.ops.rt_packet.f
        assert packet.overloads() == ["default"]
        library.define("f.pair(Tensor x, Tensor y) -> Tensor")
        library.impl("f.pair", lambda x, y: x + y, "CPU")
        assert packet.overloads() == ["default", "pair"]
        x = mortice.ones(1)
        assert packet(x).item() == 2
        assert packet(x, x * 4).item() == 5
        with pytest.raises(RuntimeError, match="no overload|match any schema|does not fit"):
            packet(x, x, x)
        with pytest.raises(AttributeError, match="no overload name 'paar'.*Did you mean 'pair'"):
            _ = packet.paar
        assert str(packet.pair) == "rt_packet.f.pair"
        assert packet.pair.name() == "rt_packet::f.pair"


# -- mistakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("returned", "found"), [(1, "one Tensor"), (3, "returned 3"), (0, "None")])
def test_a_custom_operator_that_returns_another_number_of_outputs(
    returned: int, found: str
) -> None:
    @custom_op(f"rt_count::two{returned}", mutates_args=())
    def two(x: Tensor) -> tuple[Tensor, Tensor]:
        one = x + 1
        results: Any = {1: one, 3: (one, x + 2, x + 3), 0: None}
        return results[returned]

    with pytest.raises(RuntimeError, match=f"rt_count::two{returned}: expected 2 outputs.*{found}"):
        two(mortice.ones(1))
    with pytest.raises(RuntimeError, match="expected 2 outputs"):
        two(mortice.ones(1, requires_grad=True))


def test_writing_into_what_requires_grad_gives_the_right_gradient_or_is_refused() -> None:
    @custom_op("rt_write::double", mutates_args={"x"})
    def double(x: Tensor) -> None:
        x.mul_(2)

    leaf = mortice.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        double(leaf)
    inner = leaf * 3
    double(inner)
    inner.sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [6, 6, 6]

    @custom_op("rt_write::by_numpy", mutates_args={"x"})
    def by_numpy(x: Tensor) -> None:
        x.numpy()[:] = 0

    with pytest.raises(RuntimeError):
        by_numpy(leaf * 3)


def test_a_misspelt_keyword_is_called_one() -> None:
    @custom_op("rt_keyword::scale", mutates_args=())
    def scale(x: Tensor, factor: float = 2.0) -> Tensor:
        return x * factor

    with pytest.raises(RuntimeError, match="unexpected keyword argument 'factr'.*'factor'"):
        scale(mortice.ones(1), factr=3.0)


def test_annotations_that_are_strings_or_imported_locally() -> None:
    from collections.abc import Sequence as Several

    def f(x: Tensor, sizes: Several[int], y: Tensor | None = None) -> Tensor:
        return x

    assert isinstance(f.__annotations__["x"], str)  # this module's annotations are not evaluated
    assert (
        infer_schema(f, mutates_args=()) == "(Tensor x, SymInt[] sizes, Tensor? y=None) -> Tensor"
    )


def test_names_without_a_namespace_are_told_what_a_name_looks_like() -> None:
    for name in ("f", "a.b", "a::b::c"):
        with pytest.raises(ValueError, match="namespace::name"):
            custom_op(name, lambda x: x, mutates_args=())


_OVERRIDES = """\
import warnings
import mortice
library = mortice.library.Library("rt_told", "DEF")
library.define("f(Tensor x) -> Tensor")
library.impl("f", lambda x: x, "CPU")
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    library.impl("f", lambda x: x, "CPU")
    library.impl("f", lambda x: x, "CPU")
print(len(seen), seen[0].message)
"""


def test_the_override_warning_tells_the_true_places_once() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _OVERRIDES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 Overriding a previously registered kernel")
    assert "previous kernel: registered at <string>:5" in done.stdout
    assert "new kernel: registered at <string>:8" in done.stdout


def test_a_library_that_is_gone_says_where_it_was_made() -> None:
    def make() -> None:
        library = Library("rt_local", "DEF")
        library.define("f(Tensor x) -> Tensor")

    make()
    with pytest.raises(AttributeError, match=r"test_registering.py:\d+.*destroyed"):
        _ = mortice.ops.rt_local.f


def test_threads_may_register_and_call_at_the_same_time() -> None:
    failures: list[BaseException] = []
    start = threading.Barrier(4)

    def work(number: int) -> None:
        try:
            start.wait(timeout=60)
            for round_ in range(20):
                with scoped_library(f"rt_thread{number}", "DEF") as library:
                    library.define("f(Tensor x) -> Tensor")
                    library.impl("f", lambda x, n=round_: x + n, "CPU")
                    op = getattr(mortice.ops, f"rt_thread{number}").f
                    assert op(mortice.zeros(1)).item() == round_
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_no_warning_for_what_is_right() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        @custom_op("rt_right::inc", mutates_args=("x",))
        def inc(x: Tensor) -> None:
            x.add_(1)

        x = mortice.zeros(2)
        before = x._version
        inc(x)
        assert x._version > before
