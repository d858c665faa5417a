"""Where an operator runs on a device, in Python and by ``mortice why DEVICE OPERATOR``."""

from __future__ import annotations

import json
from typing import Any

import pytest

import mortice
from mortice.backend import Features, placement, placements

from .conftest import Toy


class Adds(Toy):
    class features(Features):
        dtypes = (mortice.float32, mortice.int64)

    def kernel(self, op: str, dtypes: Any) -> Any:
        return add if op == "add.Tensor" and dtypes[0] is mortice.float32 else None


def add(self: Any, other: Any, alpha: Any, out: Any) -> None:
    """Never called here."""


def test_each_way(device: Any) -> None:
    name = device(Adds)
    (kernel,) = placement("add.Tensor", name)
    assert kernel[:4] == ("add.Tensor", name, ("float32", "float32"), "kernel")
    assert kernel.by.startswith(f"{__name__}.add (")
    assert placement("aten::add.Tensor", name, [mortice.int64])[0].how == "fallback"
    assert placement("add.Tensor", name, [mortice.float64])[0].how == "fallback"
    assert placement("relu6", name)[0].how == "decomposition"
    assert placement("clone", name)[0].how == "core"
    (view,) = placement("permute", name)
    assert (view.how, view.of) == ("row", "")
    (written,) = placement("add_.Tensor", name)
    assert (written.how, written.of) == ("row", "add.Tensor")
    assert written.by.endswith("by kernel")
    assert [one.operator for one in placement("add", name)] == [
        "add.Tensor", "add.out", "add.Scalar",
    ]  # fmt: skip
    with pytest.raises(AttributeError, match="Did you mean 'addr'"):
        placement("addd", name)


def test_what_is_registered_counts(device: Any) -> None:
    name = device(Adds)
    library = mortice.library.Library("aten", "IMPL")
    library.impl("neg", lambda x: x, mortice.backend.key_of(name))
    assert placement("neg", name)[0].how == "registered"
    library._destroy()
    assert placement("neg", name)[0].how == "fallback"


def test_it_says_what_dispatch_does(device: Any) -> None:
    """Every operator is somewhere, and the two that say "kernel" are those with one."""
    found = placements(device(Adds))
    assert {one.how for one in found} == {"kernel", "core", "row", "decomposition", "fallback"}
    assert [one.operator for one in found if one.how == "kernel"] == ["add.Tensor"]


def test_a_call_asks_no_more_than_it_must(device: Any) -> None:
    """Once an operator and its dtypes are known: one allocation, one kernel, no question."""
    asked: list[str] = []

    class Counted(Adds):
        def count(self) -> int:
            asked.append("count")
            return super().count()

        def allocate(self, nbytes: int, index: int) -> bytearray:
            asked.append("allocate")
            return super().allocate(nbytes, index)

        def kernel(self, op: str, dtypes: Any) -> Any:
            asked.append("kernel")
            return (lambda *arguments: asked.append("run")) if op == "add.Tensor" else None

    x = mortice.ones(2, 2, device=device(Counted))
    _ = x + x
    asked.clear()
    _ = x + x
    assert asked == ["allocate", "run"]
    asked.clear()
    _ = x + 1
    assert asked == ["allocate", "allocate", "run"]  # the number's and the result's

    class Numbers(Counted):
        class features(Adds.features):
            numbers = True

    x = mortice.ones(2, 2, device=device(Numbers))
    asked.clear()
    _ = x + 1
    assert asked == ["kernel", "allocate", "run"]


RUNTIME = """
import mortice
print("hello from the plug-in")
class Npu(mortice.backend.DeviceRuntime):
    def count(self):
        return 1
    def kernel(self, op, dtypes):
        return print if op == "exp" and dtypes[0] is mortice.float32 else None
@mortice.backend.hookimpl
def mortice_device(name):
    return Npu
"""


@pytest.fixture
def npu(site: Any) -> Any:
    site.add(
        "acme-npu",
        entries={"mortice.devices": {"npu": "acme_npu"}},
        modules={"acme_npu.py": RUNTIME},
    )
    return site


def test_command(npu: Any) -> None:
    said = npu.cli("why", "npu", "exp")
    assert said.startswith("exp (float32) on npu: kernel\n  by    builtins.print\n")
    assert "exp.out (float32, float32) on npu: row" in said
    said = npu.cli("why", "device:npu", "exp", "--dtype", "float64")
    assert "exp (float64) on npu: fallback\n  by    the CPU\n  mend  MORTICE_FALLBACK=error" in said
    told = json.loads(npu.cli("why", "npu", "sum", "--json"))
    assert {row["how"] for row in told["placements"]} == {"decomposition", "fallback", "row"}
    assert "operators on npu, with float32 tensors:" in npu.cli("why", "npu", "all")


def test_mistakes(npu: Any) -> None:
    assert "Did you mean 'exp'" in npu.cli("why", "npu", "expp", status=2)
    assert "Did you mean 'float32'" in npu.cli("why", "npu", "exp", "--dtype", "float33", status=2)
    assert "'nowhere'; there are: " in npu.cli("why", "nowhere", "exp", status=2)
    npu.device("gone", "raise __import__('mortice').backend.Unavailable('no card', 'buy one')")
    assert "unavailable: no card. buy one." in npu.cli("why", "gone", "exp", status=1)
    npu.device("slow", "import time; time.sleep(60)")
    said = npu.cli("why", "slow", "exp", status=1, MORTICE_PROBE_TIMEOUT="2")
    assert "did not answer within 2 s" in said
    npu.device("dead", "import os; os.abort()")
    assert "could not be asked: exit status -6" in npu.cli("why", "dead", "exp", status=1)
