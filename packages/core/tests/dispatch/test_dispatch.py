"""Key sets, tables and resolution."""

from __future__ import annotations

import subprocess
import sys

import pytest

import mortice
from mortice._dispatch import keys
from mortice._dispatch.operator import get
from mortice.errors import ArgumentError, DeviceError, NoKernel


def test_a_device_gets_one_bit_at_first_mention_and_keeps_it() -> None:
    bit = keys.device_bit("faraway")
    assert bit == keys.device_bit("faraway")
    assert bit > keys.FUNCTIONALITY_MASK
    assert list(keys.devices_in(bit | keys.CPU)) == ["cpu", "faraway"]


def test_key_names_are_parsed_into_functionality_and_device() -> None:
    keys.device_bit("npu")
    assert keys.parse_key("CPU") == ("", "cpu")
    assert keys.parse_key("AutogradNPU") == ("Autograd", "npu")
    assert keys.parse_key("Autograd") == ("Autograd", None)
    with pytest.raises(
        RuntimeError, match="could not parse dispatch key: 'CUP'.*Did you mean 'CPU'"
    ):
        keys.parse_key("CUP")


def test_a_kernel_is_resolved_once_and_called_from_the_table() -> None:
    x = mortice.ones(2)
    op = get("add.Tensor")
    _ = x + x
    kernel = op.table[x._k]
    calls = []
    op.table[x._k] = lambda *args: calls.append(args) or kernel(*args)
    try:
        _ = x + x
        assert len(calls) == 1
    finally:
        op.table.clear()


def test_gradient_wrappers_are_bound_only_for_tensors_that_require_grad() -> None:
    plain, recorded = mortice.ones(2), mortice.ones(2, requires_grad=True)
    assert plain._k == keys.CPU
    assert recorded._k == keys.CPU | keys.AUTOGRAD
    assert (plain + plain).grad_fn is None
    assert (plain + recorded).grad_fn.name() == "AddBackward0"


def test_zero_dimensional_cpu_tensors_yield_to_other_devices() -> None:
    sizes_only = mortice.empty(3, device="meta")
    assert (sizes_only * mortice.tensor(2.0)).device.type == "meta"
    with pytest.raises(DeviceError, match="Expected all tensors to be on the same device"):
        sizes_only * mortice.ones(3)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: mortice.add(mortice.ones(2), "a"), "argument 'other' .position 2. must be Tensor"),
        (lambda: mortice.add(mortice.ones(2), 1, alhpa=2), "Did you mean 'alpha'"),
        (lambda: mortice.relu(), "input"),
        (lambda: mortice.ones(2).permute("a"), "must be tuple of ints"),
    ],
)
def test_calls_that_fit_no_schema_say_why(call: object, complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        call()  # type: ignore[operator]


def test_misfits_are_argument_errors_with_the_schema() -> None:
    with pytest.raises(ArgumentError, match=r"aten::add.Tensor\(Tensor self, Tensor other"):
        mortice.add(mortice.ones(2), "a")


def test_an_operator_without_tensors_or_device_says_so() -> None:
    with mortice.library.scoped_library("td_none", "DEF") as library:
        library.define("f(Tensor? x) -> Tensor")
        with pytest.raises(NoKernel, match="no tensor arguments"):
            mortice.ops.td_none.f(None)


def test_plans_are_remembered_by_types_and_not_by_values() -> None:
    x = mortice.arange(6).reshape(2, 3).float()
    assert x.sum(0).shape == (3,)
    assert x.sum(1).shape == (2,)
    assert x.max(1).values.tolist() == [2.0, 5.0]
    assert x.max(x * 2).shape == (2, 3)
    assert x.sum((0, 1)).item() == 15.0


def test_overloads_with_as_many_operands_share_their_code() -> None:
    exp, sin, hypot = (getattr(mortice.ops.aten, name).default for name in ("exp", "sin", "hypot"))
    codes = [type(op).__call__.__code__ for op in (exp, sin, hypot)]
    assert codes[0] is codes[1]
    assert codes[0] is not codes[2]


def test_an_overload_is_found_without_the_others() -> None:
    code = """
import mortice
from mortice._dispatch.operator import known
mortice.ops.aten.hypot.out
print(sorted(op.name for op in known() if op.name.startswith("hypot")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['hypot.out']"
