"""The plug-ins in examples/, installed as a wheel and used: nothing in core knows of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def site(wheelhouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for sys.path with the examples installed: a pure wheel, unpacked, is just that."""
    folder = tmp_path_factory.mktemp("site")
    for name in ("tenon_device", "mitre_inductor"):
        (wheel,) = wheelhouse.glob(f"examples/{name}-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    return folder


def run(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run(
        [sys.executable, *arguments], env=environ, capture_output=True, text=True, check=False
    )


def script(site: Path, text: str) -> str:
    done = run(
        site,
        "-W",
        "error",
        "-c",
        "import mortice\nfrom tenon_device.plugin import LAUNCHES\n" + text,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_is_listed_with_its_summary(site: Path) -> None:
    done = run(site, "-m", "mortice", "list-backends", "--json", "--load")
    rows = {(r["kind"], r["name"]): r for r in json.loads(done.stdout)["backends"]}
    row = rows["device", "tenon"]
    assert row["state"] == "ready", row
    assert row["distribution"] == "tenon-device"
    assert row["summary"] == "a toy device in ordinary memory"
    assert rows["command", "tenon-info"]["state"] == "ready"


def test_its_command_runs(site: Path) -> None:
    done = run(site, "-m", "mortice", "tenon-info")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2 devices, kernels: add.Tensor, relu\n"
    assert "tenon-info" in run(site, "-m", "mortice", "--help").stdout


def test_its_kernels_run_on_its_own_memory(site: Path) -> None:
    printed = script(site, """
x = mortice.tensor([[1.0, -2.0], [3.0, 4.0]], device="tenon")
y = mortice.relu(x + x.t())
assert str(y.device) == "tenon:0", y.device
print(y.cpu().numpy().tolist(), dict(LAUNCHES))
""")  # fmt: skip
    assert printed == "[[2.0, 1.0], [1.0, 8.0]] {'add.Tensor': 1, 'relu': 1}\n"


def test_a_number_in_place_of_a_tensor(site: Path) -> None:
    """As its README says, and ``add_``, integers, and an optimizer's steps."""
    printed = script(site, """
import warnings
x = mortice.ones(3, device="tenon")
print((x + 1).tolist(), x.add_(1.0).tolist())
warnings.simplefilter("ignore")
print((x.long() + 1).tolist(), dict(LAUNCHES))
x.requires_grad_().grad = mortice.ones(3, device="tenon")
mortice.optim.Adam([x], lr=0.5).step()
print(x.tolist())
""")  # fmt: skip
    assert printed == (
        "[2.0, 2.0, 2.0] [2.0, 2.0, 2.0]\n[3, 3, 3] {'add.Tensor': 3}\n[1.5, 1.5, 1.5]\n"
    )


def test_gradients_flow_on_it(site: Path) -> None:
    printed = script(site, """
x = mortice.tensor([1.0, -2.0], device="tenon", requires_grad=True)
y = x + x
y.backward(mortice.ones(2, device="tenon"))
print(x.grad.device, x.grad.cpu().numpy().tolist())
""")  # fmt: skip
    assert printed == "tenon:0 [2.0, 2.0]\n"


def test_what_it_lacks_warns_once(site: Path) -> None:
    printed = script(site, """
import warnings
x = mortice.tensor([0.0, 1.0], device="tenon")
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    y = mortice.erfinv(x), mortice.erfinv(x)
print(y[0].device, len(told), "erfinv" in str(told[0].message), "tenon" in str(told[0].message))
""")  # fmt: skip
    assert printed == "tenon:0 1 True True\n"


def test_a_device_brings_a_code_generator(site: Path) -> None:
    """Found by its entry point, with an option that only its own package knows."""
    done = run(site, "-W", "error", "-c", """
import mortice
f = mortice.compile(lambda x: (x.exp() * 2).sum(-1), options={"mitre.show_source": True})
y = f(mortice.zeros(2, 3, device="mitre"))
print(y.device, y.cpu().tolist())
""")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("def run(buffers, ")
    assert done.stdout.count("def run") == 1
    assert done.stdout.endswith("mitre:0 [6.0, 6.0]\n")
