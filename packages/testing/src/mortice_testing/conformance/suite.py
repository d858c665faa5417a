"""``DeviceTests``: subclass it with the name of a device, and pytest runs what a device has to do."""

from __future__ import annotations

import gc
import io
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mortice
from mortice import Tensor, backend
from mortice.errors import NoKernel
from mortice_testing._comparison import assert_close
from mortice_testing.conformance import outcomes
from mortice_testing.conformance.cases import Inputs, cases

_DTYPES = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64",
    "complex64", "complex128", "float8_e5m2",
)  # fmt: skip


class DeviceTests:
    """What every device has to do. ``device`` is its name."""

    device: str
    #: The most cases that may fall back through the CPU; None means any number.
    fallbacks: int | None = None

    # -- helpers -----------------------------------------------------------------------------------

    @property
    def features(self) -> type[backend.Features]:
        return backend.features(self.device)

    @property
    def module(self) -> Any:
        return mortice.get_device_module(self.device)

    def at(self, index: int) -> str:
        return self.device if self.device == "cpu" else f"{self.device}:{index}"

    def needs_values(self) -> None:
        """Skip where kernels and copies leave results undefined."""
        if not self.features.computes:
            pytest.skip("this device keeps no values")

    def needs_memory(self) -> None:
        """Skip on the CPU, whose memory is core's own."""
        if self.device == "cpu":
            pytest.skip("the host's memory is not counted")

    def same(self, found: Tensor, expected: Tensor) -> None:
        outcomes.compare(found, expected, self.device, computes=self.features.computes)

    # -- presence ----------------------------------------------------------------------------------

    def test_it_is_here(self) -> None:
        """It says so, and an index beyond is refused with the number there is."""
        assert self.module.is_available()
        count = self.module.device_count()
        assert count >= 1
        assert self.module.get_device_name(0)
        if self.device != "cpu":
            with pytest.raises(RuntimeError, match=rf"{count} device\(s\)"):
                mortice.empty(1, device=f"{self.device}:{count}")

    # -- memory ------------------------------------------------------------------------------------

    @pytest.mark.parametrize("name", _DTYPES)
    def test_bytes_come_back(self, name: str) -> None:
        """Every dtype can be stored, whether kernels compute with it or not."""
        self.needs_values()
        there = mortice.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0]]).to(getattr(mortice, name))
        back = there.to(self.device).to("cpu")
        assert back.dtype is there.dtype
        assert _bits(back) == _bits(there)

    @pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,), (70_001,)])
    def test_sizes(self, shape: tuple[int, ...]) -> None:
        x = mortice.arange(int(np.prod(shape)), dtype=mortice.float32).reshape(shape)
        self.same(x.to(self.device), x)

    def test_views_share_memory(self) -> None:
        self.needs_values()
        x = Inputs(self.device).x
        view = x.t()[1:, ::2]
        view.fill_(9.0)
        expected = Inputs("cpu").x
        expected.t()[1:, ::2].fill_(9.0)
        self.same(x, expected)
        assert view.data_ptr() - x.data_ptr() == 4

    def test_copies_do_not(self) -> None:
        x = Inputs(self.device).x
        copy = x.clone()
        copy.zero_()
        self.same(x, Inputs("cpu").x)

    def test_from_one_to_another(self) -> None:
        """Devices of one type, where there are several."""
        if self.module.device_count() < 2:
            pytest.skip("there is one only")
        x = Inputs(self.at(0)).x
        other = x.to(self.at(1))
        assert other.device.index == 1
        self.same(other, Inputs("cpu").x)
        moved = x.t().to(self.at(1)).to(self.at(0))
        self.same(moved, Inputs("cpu").x.t())
        with pytest.raises(RuntimeError):
            _ = x + other

    def test_overlapping_copies(self) -> None:
        self.needs_values()
        x = mortice.arange(10.0).to(self.device)
        with mortice.config.override(fallback="silent"):
            x[2:].copy_(x[:-2])
        assert x.tolist() == [0, 1, 0, 1, 2, 3, 4, 5, 6, 7]

    def test_memory_is_given_back(self) -> None:
        self.needs_memory()
        gc.collect()
        before = self.module.memory_allocated()
        x = mortice.empty(1000, device=self.device)
        views = [x[i:] for i in range(10)]
        assert self.module.memory_allocated() == before + 4000
        del x
        assert self.module.memory_allocated() == before + 4000
        del views
        gc.collect()
        assert self.module.memory_allocated() == before

    def test_a_loop_keeps_nothing(self) -> None:
        self.needs_memory()
        gc.collect()
        before = self.module.memory_allocated()
        x = Inputs(self.device).x
        with mortice.config.override(fallback="silent"):
            for _ in range(20):
                x = mortice.relu(x * 0.5 + 1).t().contiguous().t()
        del x
        gc.collect()
        assert self.module.memory_allocated() == before

    # -- operators ---------------------------------------------------------------------------------

    @pytest.mark.parametrize(("family", "name"), cases())
    def test_operators(self, family: str, name: str) -> None:
        """The CPU's result, on the device, natively or through the fallback."""
        outcome = outcomes.measure(family, name, self.device)
        assert outcome.how != "failed", outcome.told

    def test_fallbacks_are_as_few_as_promised(self) -> None:
        if self.fallbacks is None:
            pytest.skip("no number is promised")
        fell = [
            f"{o.family}: {o.name}"
            for o in outcomes.measure_all(self.device)
            if o.how == "fallback"
        ]
        assert len(fell) <= self.fallbacks, fell

    def test_nothing_leaves_it_silently(self) -> None:
        """What runs where falling back is forbidden moves no bytes to the host."""
        self.needs_memory()
        left: dict[str, int] = {}
        for family, name in cases():
            if name in ("item", "equal", "masked_select", "nonzero", "setitem", "index_put_"):
                continue  # their sizes or results are values
            inputs = Inputs(self.device)
            expression = outcomes.CASES[family][name]
            with mortice.config.override(fallback="silent"):
                expression(inputs)  # makes the inputs
            with (
                outcomes.watched_copies(self.device) as copied,
                mortice.config.override(fallback="error"),
            ):
                try:
                    expression(inputs)
                except NoKernel:
                    continue
            if copied:
                left[f"{family}: {name}"] = sum(copied)
        assert not left, f"bytes that went to the host, by case: {left}"

    def test_numbers_and_scalars_mix(self) -> None:
        """0-d CPU tensors yield; other mixtures are refused, naming both devices."""
        self.needs_memory()
        with mortice.config.override(fallback="silent"):
            self.same(Inputs(self.device).x * mortice.tensor(2.0), Inputs("cpu").x * 2)
        with pytest.raises(RuntimeError, match="same device") as caught:
            _ = Inputs(self.device).x + Inputs("cpu").x
        assert self.device in str(caught.value)

    def test_random_numbers_are_those_of_every_device(self) -> None:
        self.needs_values()
        for draw in (mortice.rand, mortice.randn):
            mortice.manual_seed(11)
            expected = [draw(5), draw(3)]
            mortice.manual_seed(11)
            with mortice.config.override(fallback="silent"):
                for wanted in expected:
                    self.same(draw(*wanted.shape, device=self.device), wanted)

    def test_training(self) -> None:
        """Three steps of gradient descent give the CPU's parameters."""
        self.needs_values()
        results = [_train(device) for device in ("cpu", self.device)]
        for here, there in zip(*results):
            self.same(there, here)

    def test_autocast(self) -> None:
        for dtype in self.features.autocast_dtypes:
            with mortice.config.override(fallback="silent"), mortice.autocast(self.device, dtype):
                product = Inputs(self.device).x @ Inputs(self.device).y.t()
            assert product.dtype is dtype

    # -- streams, guards, threads, forks -----------------------------------------------------------

    def test_streams_and_events(self) -> None:
        x = Inputs(self.device).x
        start, end = (mortice.Event(self.device, enable_timing=True) for _ in range(2))
        side = mortice.Stream(self.device)
        side.wait_stream(self.module.current_stream())
        with side, mortice.config.override(fallback="silent"):
            start.record()
            y = x * 2 + 1
            end.record()
        self.module.current_stream().wait_event(end)
        self.same(y, Inputs("cpu").x * 2 + 1)
        end.synchronize()
        assert end.query()
        assert start.elapsed_time(end) >= 0
        side.synchronize()
        assert side.query()
        self.module.synchronize()

    def test_the_current_device(self) -> None:
        last = self.module.device_count() - 1
        with mortice.device(self.at(last)):
            assert str(mortice.empty(1).device) == self.at(last)
            if self.device != "cpu":
                assert self.module.current_device() == last
        assert str(mortice.empty(1).device) == "cpu"

    def test_threads(self) -> None:
        """Four threads use it at once, and each gets its own results."""
        wrong: list[BaseException] = []

        def work(number: int) -> None:
            try:
                with mortice.config.override(fallback="silent"):
                    x = mortice.full((50,), float(number)).to(self.device)
                    for _ in range(20):
                        x = x + 1 - 1
                    self.same(x, mortice.full((50,), float(number)))
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong, wrong[0]

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
    @pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
    def test_a_forked_child(self) -> None:
        """It refuses, starts again or goes on, as ``Features.fork`` says; it never hangs."""
        x = Inputs(self.device).row
        new = _in_child(lambda: mortice.zeros(2).to(self.device).tolist())
        old = _in_child(x.tolist)
        if self.features.fork == "error":
            assert "DeviceError" in new
        else:
            assert new == "[0.0, 0.0]"
        if self.features.fork == "keep":
            assert old == str(x.tolist())
        else:
            assert "DeviceError" in old
        self.same(x, Inputs("cpu").row)

    # -- files -------------------------------------------------------------------------------------

    def test_files(self) -> None:
        """A file remembers the device, and can be loaded elsewhere."""
        self.needs_values()
        file = io.BytesIO()
        x = Inputs(self.device).x
        mortice.save({"whole": x, "part": x[1:]}, file)
        for where in (None, "cpu", self.at(self.module.device_count() - 1)):
            file.seek(0)
            loaded = mortice.load(file, map_location=where)
            assert str(loaded["whole"].device) == (where or str(x.device))
            assert_close(loaded["whole"].cpu(), x.cpu())
            loaded["part"].zero_()
            assert loaded["whole"].cpu()[1:].abs().sum() == 0  # they share memory

    def test_it_prints(self) -> None:
        self.needs_values()
        text = repr(mortice.tensor([1.0, 2.0]).to(self.device))
        assert text.startswith("tensor([1., 2.]")
        assert ("device=" in text) == (self.device != "cpu")


def _bits(tensor: Tensor) -> bytes:
    return bytes(tensor.contiguous().untyped_storage().tolist())


def _train(device: str) -> list[Tensor]:
    inputs = Inputs(device)
    weights = [inputs.filled(5, 4), inputs.filled(5), inputs.filled(3, 5)]
    for weight in weights:
        weight.requires_grad_(True)
    first, bias, second = weights
    with mortice.config.override(fallback="silent"):
        for _ in range(3):
            hidden = mortice.relu(inputs.x @ first.t() + bias)
            loss = mortice.nn.functional.cross_entropy(hidden @ second.t(), inputs.index)
            gradients = mortice.autograd.grad(loss, weights)
            with mortice.no_grad():
                for weight, gradient in zip(weights, gradients):
                    weight.sub_(0.1 * gradient)
    return [weight.detach() for weight in weights]


def _in_child(work: Callable[[], Any]) -> str:
    """What ``work`` returns, or what it raises, in a forked child, as text."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            with mortice.config.override(fallback="silent"):
                text = str(work())
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(write, text.encode()[:4000])
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return said
