"""A device whose registration is taken back, or replaced, while it is in use."""

from __future__ import annotations

from typing import Any

import pytest

import mortice

from .conftest import Toy

pytestmark = pytest.mark.filterwarnings("ignore:.*runs on the CPU")


def test_a_device_that_is_taken_back_is_gone(device: Any) -> None:
    name = device()
    x = mortice.ones(3, device=name)
    runtime = x._a.buffer.runtime
    stream = mortice.accelerator.current_stream(name)
    assert stream._runtime is runtime
    mortice.plugins.unregister("device", name)
    with pytest.raises(RuntimeError, match=f"no device type '{name}' is installed"):
        mortice.empty(3, device=name)
    with pytest.raises(RuntimeError, match=f"no device type '{name}' is installed"):
        x + 1
    assert x.tolist() == [1, 1, 1]
    assert x[1:].cpu().tolist() == [1, 1]

    class Next(Toy):
        pass

    mortice.plugins.register("device", name, Next)
    y = mortice.ones(3, device=name)
    assert type(y._a.buffer.runtime) is Next
    assert (y + 1).tolist() == [2, 2, 2]
    assert type(mortice.accelerator.current_stream(name)._runtime) is Next
    del x
    assert ("free", 12) in runtime.calls


def test_a_registration_in_place_of_a_device_in_use_is_used(device: Any) -> None:
    name = device()
    mortice.ones(3, device=name)

    class Next(Toy):
        pass

    mortice.plugins.register("device", name, Next, replace=True)
    assert type(mortice.ones(3, device=name)._a.buffer.runtime) is Next


def test_compiled_code_runs_on_the_device_that_is_there(device: Any) -> None:
    name = device()
    compiled = mortice.compile(lambda x: x * 2 + 1, backend="eager")
    for _ in range(3):
        assert compiled(mortice.ones(3, device=name)).tolist() == [3, 3, 3]

    class Next(Toy):
        pass

    mortice.plugins.register("device", name, Next, replace=True)
    for _ in range(3):
        result = compiled(mortice.ones(3, device=name))
        assert result.tolist() == [3, 3, 3]
        assert type(result._a.buffer.runtime) is Next
