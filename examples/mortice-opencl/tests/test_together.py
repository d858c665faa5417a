"""Two devices that core knows nothing of, and the CPU, in one process."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

import mortice
from mortice.testing import assert_close

DEVICES = ("cpu", "npu", "opencl")


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mortice.config, "fallback", "silent")


def test_both_are_installed_and_neither_is_the_accelerator_by_chance() -> None:
    found = {row.name: row for row in mortice.list_backends("device")}
    assert found["npu"].distribution == "mortice-npu-example"
    assert found["opencl"].distribution == "mortice-opencl"
    assert mortice.accelerator.is_available()
    with pytest.raises(RuntimeError, match="npu, opencl"):
        mortice.accelerator.current_accelerator()
    with mortice.config.override(accelerator="opencl"):
        assert str(mortice.accelerator.current_accelerator()) == "opencl"


@pytest.mark.parametrize("source", DEVICES)
@pytest.mark.parametrize("target", DEVICES)
def test_tensors_move_among_them(source: str, target: str) -> None:
    x = mortice.arange(12.0).reshape(3, 4).to(source)
    assert x.to(target).device.type == target
    assert_close(x.to(target).cpu(), x.cpu())
    assert_close(x.t()[1:].to(target).cpu(), x.t()[1:].cpu())
    y = mortice.zeros(3, 4, device=target)
    y[:, 1:].copy_(x[:, 1:])
    assert_close(y.cpu()[:, 1:], x.cpu()[:, 1:])


def test_they_compute_the_same_and_do_not_mix() -> None:
    results = []
    for device in DEVICES:
        mortice.manual_seed(3)
        x = mortice.rand(4, 5).to(device).requires_grad_(True)
        mortice.manual_seed(4)
        w = mortice.rand(2, 5, device=device).requires_grad_(True)
        mortice.relu(x @ w.t() - 1).sum().backward()
        results.append((x.grad.cpu(), w.grad.cpu()))
    for other in results[1:]:
        assert_close(other[0], results[0][0])
        assert_close(other[1], results[0][1])
    with pytest.raises(RuntimeError, match="same device"):
        _ = mortice.ones(2, device="npu") + mortice.ones(2, device="opencl")


def test_gradients_cross_between_them() -> None:
    x = mortice.ones(3, requires_grad=True)
    (x.to("npu") * 2).to("opencl").exp().cpu().sum().backward()
    assert_close(x.grad, mortice.full((3,), 2 * 2.718281828459045**2))


def test_a_model_spread_over_them() -> None:
    first, second = mortice.nn.Linear(4, 6).to("npu"), mortice.nn.Linear(6, 2).to("opencl")
    expected = second.weight.cpu() @ (first.weight.cpu() @ mortice.ones(4) + first.bias.cpu())
    found = second(first(mortice.ones(1, 4, device="npu")).to("opencl"))
    assert found.device.type == "opencl"
    assert_close(found.cpu()[0], expected + second.bias.cpu(), rtol=1e-4, atol=1e-5)


def test_a_file_with_all_of_them() -> None:
    file = io.BytesIO()
    mortice.save({device: mortice.arange(3.0).to(device) for device in DEVICES}, file)
    file.seek(0)
    assert {k: v.device.type for k, v in mortice.load(file).items()} == dict(zip(DEVICES, DEVICES))
    file.seek(0)
    swapped = mortice.load(file, map_location={"npu:0": "opencl:0", "opencl:0": "npu:1"})
    assert [str(v.device) for v in swapped.values()] == ["cpu", "opencl:0", "npu:1"]
    assert all(v.tolist() == [0, 1, 2] for v in swapped.values())


def test_methods_and_modules_of_each() -> None:
    x = mortice.ones(2).npu().opencl()
    assert (x.is_opencl, x.is_npu) == (True, False)
    assert mortice.npu.device_count() == 2
    with mortice.npu.device(1):
        assert str(mortice.empty(1, device="npu").device) == "npu:1"
        assert mortice.opencl.current_device() == 0
    before = mortice.npu.memory_allocated()
    held = mortice.empty(100, device="opencl")
    assert mortice.npu.memory_allocated() == before
    assert mortice.opencl.memory_allocated() >= 400
    del held


def child(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_a_driver_it_says_what_to_type() -> None:
    said = child(
        "import mortice\n"
        "print(mortice.opencl.is_available())\n"
        "try: mortice.ones(2, device='opencl')\n"
        "except RuntimeError as error: print(type(error).__name__, error)\n",
        OCL_ICD_VENDORS="/nowhere",
    )
    assert said.startswith("False\nPluginUnavailable ")
    assert "mortice-opencl 0.1.0" in said
    assert "no OpenCL driver is installed" in said
    assert "pip install 'mortice-opencl[pocl]'" in said


def test_two_devices_of_one_type() -> None:
    """PoCL makes as many as it is asked for; the kit then also tests copies between them."""
    said = child(
        "import mortice, warnings\n"
        "warnings.simplefilter('error')\n"
        "x = mortice.arange(6.0).reshape(2, 3).to('opencl:1')\n"
        "y = x.t().to('opencl:0')\n"
        "print(mortice.opencl.device_count(), (y @ y.t()).device, (x + x).device)\n"
        "with mortice.opencl.device(1):\n"
        "    print(mortice.ones(2, device='opencl').device, (x.sum() + 1).item())\n"
        "try: x @ y\n"
        "except RuntimeError as error: print(error)\n",
        POCL_DEVICES="pthread pthread",
    ).splitlines()
    assert said[0] == "2 opencl:0 opencl:1"
    assert said[1] == "opencl:1 16.0"
    assert "two devices, opencl:1 and opencl:0" in said[2]
