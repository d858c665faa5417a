"""The compile backend in examples/, installed as a wheel: found by entry point, its options checked."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def site(wheelhouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    (wheel,) = wheelhouse.glob("examples/dovetail_compiler-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def script(site: Path, text: str, **environment: str) -> str:
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    environ = {**os.environ, "PYTHONPATH": path, **environment}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "import mortice\n" + text],
        env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_it_is_found_and_loaded_when_it_is_asked_for(site: Path) -> None:
    printed = script(site, """
import sys
print("dovetail" in mortice.compiler.list_backends(), "dovetail_compiler.codegen" in sys.modules)
f = mortice.compile(lambda x: (x * 2 - 1).abs() / 3, backend="dovetail")
x = mortice.randn(5)
print((f(x) == (x * 2 - 1).abs() / 3).all().item(), "dovetail_compiler.codegen" in sys.modules)
""")  # fmt: skip
    assert printed.split() == ["True", "False", "True", "True"]


def test_its_options_are_declared_and_checked(site: Path) -> None:
    printed = script(site, """
for given in ({"reus": False}, {"reuse": 1}, {"tolerance": "small"}):
    try:
        mortice.compile(abs, backend="dovetail", options=given)
    except RuntimeError as error:
        print(error)
print(mortice.compiler.list_options("dovetail"))
print(mortice.compiler.options_of("dovetail")["reuse"].doc)
print(mortice.compiler.list_mode_options("careful", backend="dovetail"))
""")  # fmt: skip
    lines = printed.splitlines()
    assert "has no option 'reus'" in lines[0] and "Did you mean 'reuse'?" in lines[0]
    assert "is 1; expected bool" in lines[1]
    assert "is 'small'; expected float" in lines[2]
    assert lines[3] == "['reuse', 'tolerance']"
    assert lines[4] == "write results into memory that nobody needs any more"
    assert lines[5] == "{'reuse': False, 'tolerance': 0.0}"


TRAIN = """
def f(x, w, b):
    h = (x @ w + b) * 2 - x.sum()
    h = h.abs() + (h * h + 1).sqrt() - 0.5
    return h.sum(), h.maximum(-h / 4)

def run(call):
    mortice.manual_seed(0)
    x, w, b = mortice.randn(4, 3), mortice.randn(3, 5), mortice.randn(5)
    for t in (x, w, b):
        t.requires_grad_(True)
    out, most = call(x, w, b)
    (out + most.sum()).backward()
    return [t.detach().numpy().tobytes() for t in (out, most, x.grad, w.grad, b.grad)]

for mode in ("default", "careful"):
    compiled = mortice.compile(f, backend="dovetail", mode=mode)
    print(run(f) == run(compiled) == run(compiled))
"""


def test_training_gives_eagers_bits(site: Path) -> None:
    assert script(site, TRAIN).split() == ["True", "True"]


def test_its_code_is_seen_and_reuses_memory(site: Path) -> None:
    text = """
f = mortice.compile(lambda x: (x * 2 - 1).sqrt(), backend="dovetail", dynamic=False)
f(mortice.ones(3))
f = mortice.compile(lambda x: (x * 2 - 1).sqrt(), backend="dovetail", options={"reuse": False})
f(mortice.ones(3))
"""
    first, second = script(site, text, MORTICE_LOGS="output_code").split("def run(")[1:]
    assert "out=array(mul)); sub = mul" in first
    assert "out=" not in second


def test_a_disagreement_is_told(site: Path) -> None:
    printed = script(site, """
from dovetail_compiler import codegen
codegen.FUNCTIONS["aten.abs.default"] = "negative"
f = mortice.compile(lambda x: x.abs(), backend="dovetail", mode="careful")
try:
    f(mortice.ones(3))
except AssertionError as error:
    print(error)
""")  # fmt: skip
    assert printed.strip() == "result 0 differs by more than 0.0"
