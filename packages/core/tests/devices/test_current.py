"""The current device of a thread, guards, statistics, generators, modules of devices, forks."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import mortice
from mortice.backend import Features

from .conftest import Toy


@contextmanager
def accelerator(name: str) -> Iterator[None]:
    with mortice.config.override(accelerator=name):
        yield


def in_thread(function: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_guards_nest_and_belong_to_a_thread(device: Any) -> None:
    name = device()
    module = mortice.get_device_module(name)

    def where() -> str:
        return str(mortice.empty(1, device=name).device)

    assert where() == f"{name}:0"
    with module.device(1):
        assert where() == f"{name}:1"
        assert in_thread(where) == f"{name}:0"
        with module.device(0), module.device(None):
            assert where() == f"{name}:0"
        assert where() == f"{name}:1"
    with mortice.device(f"{name}:1"):
        assert where() == str(mortice.empty(1).device) == f"{name}:1"
        assert in_thread(lambda: str(mortice.empty(1).device)) == "cpu"
        with mortice.device("cpu"):
            assert str(mortice.empty(1).device) == "cpu"
    assert where() == f"{name}:0"
    assert str(mortice.empty(1).device) == "cpu"
    with module.device_of(mortice.empty(1, device=f"{name}:1")):
        assert where() == f"{name}:1"


def test_a_guard_ends_with_an_exception(device: Any) -> None:
    name = device()
    with pytest.raises(ZeroDivisionError), mortice.device(f"{name}:1"):
        _ = 1 / 0
    assert mortice.get_device_module(name).current_device() == 0
    with pytest.raises(RuntimeError, match="2 device"), mortice.get_device_module(name).device(2):
        pass


def test_a_bare_type_means_the_current_device(device: Any) -> None:
    name = device()
    x = mortice.ones(2, device=f"{name}:1")
    assert x.to(f"{name}:1") is x
    assert str(x.to(name).device) == f"{name}:0"
    with mortice.device(f"{name}:1"):
        assert x.to(name) is x


def test_set_default_device_inside_a_block_stays() -> None:
    try:
        with mortice.device("cpu"):
            mortice.set_default_device("meta")
        assert str(mortice.empty(1).device) == "meta"
    finally:
        mortice.set_default_device(None)
    assert str(mortice.empty(1).device) == "cpu"


def test_accelerator(device: Any) -> None:
    name = device()
    acc = mortice.accelerator
    with accelerator(name):
        assert acc.current_accelerator() == mortice.device(name)
        assert acc.current_accelerator(check_available=True) == mortice.device(name)
        assert (acc.device_count(), acc.current_device_index()) == (2, 0)
        assert mortice.device(1) == mortice.device(f"{name}:1")
        with acc.device_index(1), acc.device_index(None):
            assert acc.current_device_index() == 1
            assert acc.current_stream().device_index == 1
        acc.set_device_index(1)
        acc.set_device_index(-1)
        assert acc.current_device_index() == 1
        acc.set_device_index(0)
        before = acc.memory_allocated()
        x = mortice.empty(1000, device=name)
        assert acc.memory_allocated(0) - before == 4000
        acc.synchronize()
        acc.empty_cache()
        with pytest.raises(RuntimeError, match="does not say how much memory"):
            acc.get_memory_info()
        with pytest.raises(RuntimeError, match="is no accelerator"):
            acc.current_stream("cpu")
        del x


def test_which_accelerator_is_never_guessed() -> None:
    from mortice._tensor import devices

    class Here(Toy):
        pass

    class NotHere(Toy):
        def count(self) -> int:
            return 0

    acc = mortice.accelerator
    assert not acc.is_available()
    assert acc.current_accelerator() is None
    assert acc.device_count() == 0
    with pytest.raises(RuntimeError, match="Cannot access accelerator device"):
        acc.current_device_index()
    for name, cls in (("gone", NotHere), ("here", Here), ("there", Here)):
        mortice.plugins.register("device", name, cls)
    try:
        with pytest.raises(RuntimeError, match="MORTICE_ACCELERATOR=here"):
            acc.current_accelerator()
        assert acc.is_available()
        mortice.plugins.unregister("device", "there")
        assert str(acc.current_accelerator()) == "here"
        mortice.plugins.unregister("device", "here")
        assert str(acc.current_accelerator()) == "gone"
        assert acc.current_accelerator(check_available=True) is None
        assert not acc.is_available()
        assert devices.count("gone") == 0
    finally:
        for name in ("gone", "here", "there"):
            try:
                mortice.plugins.unregister("device", name)
            except RuntimeError:
                continue


def test_statistics(device: Any) -> None:
    name = device()
    module = mortice.get_device_module(name)
    x = mortice.empty(10, device=name)
    y = x[2:]
    del x
    gc.collect()
    assert module.memory_allocated() == module.memory_reserved() == 40
    z = mortice.empty(100, device=name)
    del z
    assert (module.memory_allocated(), module.max_memory_allocated()) == (40, 440)
    assert module.memory_allocated(1) == 0
    stats = module.memory_stats()
    assert stats["allocated_bytes.all.freed"] == 400
    assert stats["allocation.all.current"] == 1
    assert stats["allocation.all.allocated"] == 2
    module.reset_peak_memory_stats()
    module.reset_accumulated_memory_stats()
    del y
    gc.collect()
    stats = module.memory_stats()
    assert stats["allocated_bytes.all.peak"] == 40
    assert stats["allocated_bytes.all.current"] == stats["allocation.all.current"] == 0
    assert stats["allocated_bytes.all.freed"] == 40


def test_each_device_has_a_generator(device: Any) -> None:
    name = device()
    module = mortice.get_device_module(name)

    def draw(where: str) -> Any:
        with mortice.config.override(fallback="silent"):
            return mortice.rand(4, device=where).tolist()

    module.manual_seed(7)
    state = module.get_rng_state()
    first, second = draw(name), draw(name)
    assert first == mortice.rand(4, generator=mortice.Generator().manual_seed(7)).tolist()
    assert first != second
    module.set_rng_state(state)
    assert [draw(name), draw(f"{name}:0")] == [first, second]
    module.manual_seed_all(7)
    assert draw(f"{name}:1") == first
    assert module.initial_seed() == 7
    before = mortice.get_rng_state()
    draw(name)
    assert mortice.equal(before, mortice.get_rng_state())  # the CPU's is not touched
    generator = mortice.Generator(name).manual_seed(7)
    with mortice.config.override(fallback="silent"):
        assert mortice.rand(4, device=name, generator=generator).tolist() == first
    assert generator.get_offset() > 0
    states = module.get_rng_state_all()
    module.seed_all()
    module.set_rng_state_all(states)
    assert [g.get_offset() for g in module.default_generators] != [0, 0]


def test_modules_are_there_for_devices_that_are_not() -> None:
    import mortice.cuda

    assert not mortice.cuda.is_available()
    assert not mortice.xpu.is_available()
    assert (mortice.cuda.device_count(), mortice.cuda.is_initialized()) == (0, False)
    mortice.cuda.manual_seed_all(1)
    mortice.cuda.empty_cache()
    with pytest.raises(RuntimeError, match="no installed package provides.*'cuda'"):
        mortice.cuda.current_device()
    with pytest.raises(RuntimeError, match="no installed package provides.*'cuda'"):
        mortice.ones(2).cuda()
    with pytest.raises(AttributeError, match=r"mortice\.cuda.*Did you mean 'is_available'"):
        mortice.cuda.is_avaliable()
    with pytest.raises(AttributeError, match="'warp'"):
        _ = mortice.warp


def test_a_module_of_ones_own(device: Any) -> None:
    import sys
    import types

    name = device()
    own = types.ModuleType(name)
    assert getattr(mortice, name).is_available()
    mortice._register_device_module(name, own)
    assert getattr(mortice, name) is sys.modules[f"mortice.{name}"] is own
    with pytest.raises(RuntimeError, match="already been registered"):
        mortice._register_device_module(name, types.ModuleType(name))
    with pytest.raises(RuntimeError, match="no installed package"):
        mortice._register_device_module("nowhere", own)


def test_methods_named_after_a_device(device: Any) -> None:
    name = device()
    x = mortice.ones(2, device=f"{name}:1")  # the first use
    assert getattr(x, f"is_{name}")
    assert not getattr(mortice.ones(2), f"is_{name}")
    assert not x.is_cuda
    assert str(getattr(mortice.ones(2), name)(1).device) == f"{name}:1"
    storage = getattr(mortice.ones(2).untyped_storage(), name)()
    assert str(storage.device) == f"{name}:0"
    assert bytes(storage.cpu().tolist()) == bytes(mortice.ones(2).untyped_storage().tolist())


def test_autocast_asks_the_device(device: Any) -> None:
    class Only(Toy):
        class features(Features):
            autocast_dtypes = (mortice.bfloat16,)

    name = device(Only)
    module = mortice.get_device_module(name)
    assert module.get_amp_supported_dtype() == [mortice.bfloat16]
    assert module.is_bf16_supported()
    assert mortice.get_autocast_dtype(name) is mortice.bfloat16
    x = mortice.ones(2, 2, device=name)
    with mortice.config.override(fallback="silent"):
        with mortice.autocast(name):
            assert (x @ x).dtype is mortice.bfloat16
            assert (mortice.ones(2, 2) @ mortice.ones(2, 2)).dtype is mortice.float32
        with mortice.autocast("cpu"):
            assert (x @ x).dtype is mortice.float32
    with pytest.raises(ValueError, match=f"autocast on {name} takes bfloat16, not"):
        mortice.autocast(name, dtype=mortice.float16)


# -- copies that stay on the device ----------------------------------------------------------------


def calls(name: str) -> list[Any]:
    from mortice._dispatch.backends import runtime

    found = runtime(name).calls
    taken = [call for call in found if "copy" in str(call)]
    found.clear()
    return taken


def test_copies_stay_on_the_device(device: Any) -> None:
    name = device()
    x = mortice.arange(24).reshape(4, 6).to(name)
    calls(name)
    with mortice.config.override(fallback="error"):
        y = x.clone()
        z = x.to(f"{name}:1")
        y[1:3].copy_(x[:2])
        assert calls(name) == [("copy_device", 192), ("copy_device", 192), ("copy_device", 96)]
        columns = x[:, :2].clone()
        assert calls(name) == [("copy_device", 16)] * 4
        x.mT.contiguous()
        assert calls(name) == [("copy_device", 8)] * 24
        mortice.empty(2, 6, dtype=mortice.int64, device=name).copy_(x[0])
        assert calls(name) == [("copy_device", 48)] * 2
    assert columns.tolist() == [[0, 1], [6, 7], [12, 13], [18, 19]]
    assert y.tolist()[:4] == [
        list(range(6)),
        list(range(6)),
        list(range(6, 12)),
        list(range(18, 24)),
    ]
    assert z.tolist() == x.tolist()
    assert x.mT.contiguous().tolist() == [list(range(i, 24, 6)) for i in range(6)]


def test_copies_that_cannot_say_so(device: Any) -> None:
    name = device()
    x = mortice.ones(40, 40, device=name)
    with mortice.config.override(fallback="error"):
        with pytest.raises(NotImplementedError, match=r"aten::copy_ has no kernel for device"):
            x.mT.contiguous()
        with pytest.raises(NotImplementedError, match=r"aten::copy_ has no kernel for device"):
            x.to(mortice.float64)
    with pytest.warns(UserWarning, match=r"aten::copy_ has no kernel for device"):
        x.mT.contiguous()


def test_a_copy_onto_itself_reads_before_it_writes(device: Any) -> None:
    x = mortice.arange(9).reshape(3, 3).to(device())
    expected = x.mT.tolist()
    with mortice.config.override(fallback="silent"):
        x.copy_(x.mT)
    assert x.tolist() == expected


def test_storages_grow_and_are_copied_there(device: Any) -> None:
    import copy

    name = device()
    x = mortice.arange(6).to(name)
    view = x[4:]
    module = mortice.get_device_module(name)
    calls(name)
    with mortice.config.override(fallback="error"):
        x.resize_(3, 4)
        other = copy.deepcopy(view)
    assert calls(name) == [("copy_device", 48), ("copy_device", 96)]
    assert module.memory_allocated() == 192
    x[1] = 7
    assert view.tolist() == [7, 7]  # it sees the new memory
    assert other.tolist() == [4, 5]
    assert x.untyped_storage().nbytes() == 96
    with mortice.config.override(fallback="silent"):
        out = mortice.empty(0, dtype=mortice.int64, device=name)
        mortice.add(view, view, out=out)
    assert out.tolist() == [14, 14]


def test_a_kernel_for_strided_copies_is_asked(device: Any) -> None:
    asked: list[Any] = []

    class Copies(Toy):
        def kernel(self, op: str, dtypes: Any) -> Any:
            return (lambda *arrays: asked.append((dtypes, arrays))) if op == "copy_" else None

    name = device(Copies)
    x = mortice.ones(40, 40, device=name)
    with mortice.config.override(fallback="error"):
        x.mT.contiguous()
        x.double()
    (first, arrays), (second, _) = asked
    assert first == (mortice.float32, mortice.float32)
    assert [a.strides for a in arrays] == [(1, 40), (40, 1)]
    assert second == (mortice.float32, mortice.float64)


# -- fork ------------------------------------------------------------------------------------------


def in_child(work: Callable[[], str]) -> str:
    """What ``work`` returns, or the message of what it raises, in a forked child."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            text = work()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return said


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
# The test runner has threads, none of which holds a lock that the children need.
deprecated = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


@forks
@deprecated
def test_a_forked_child_is_told(device: Any) -> None:
    name = device()
    x = mortice.ones(2, device=name)
    module = mortice.get_device_module(name)
    assert "of the parent process" in in_child(lambda: str(x.tolist()))
    assert "when this process was forked" in in_child(lambda: str((x + x).tolist()))
    assert "get_context('spawn')" in in_child(lambda: str(mortice.ones(2, device=name)))
    assert in_child(lambda: str(module._is_in_bad_fork())) == "True"
    assert in_child(lambda: str((mortice.ones(2) * 2).tolist())) == "[2.0, 2.0]"
    assert not module._is_in_bad_fork()
    assert x.tolist() == [1, 1]


@forks
@deprecated
def test_a_device_may_start_again_in_the_child(device: Any) -> None:
    class Again(Toy):
        class features(Features):
            fork = "restart"

    name = device(Again)
    x = mortice.ones(2, device=name)
    assert "of the parent process" in in_child(lambda: str(x.tolist()))
    assert in_child(lambda: str(mortice.ones(2, device=name).tolist())) == "[1.0, 1.0]"


@forks
@deprecated
def test_a_device_may_live_on_in_the_child(device: Any) -> None:
    class Keep(Toy):
        class features(Features):
            fork = "keep"

    x = mortice.ones(2, device=device(Keep))
    assert in_child(lambda: str(x.tolist())) == "[1.0, 1.0]"
