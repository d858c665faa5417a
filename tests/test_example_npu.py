"""The device in examples/mortice-npu-example, installed as a wheel: small, complete, on its own memory."""

from __future__ import annotations

import ast
import io
import os
import subprocess
import sys
import tokenize
import zipfile
from pathlib import Path

import pytest

from mortice_testing.distributed.waiting import alive, until

MOST_LINES, MOST_COLUMNS = 80, 100
NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip


@pytest.fixture(scope="module")
def site(wheelhouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    (wheel,) = wheelhouse.glob("examples/mortice_npu_example-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def run(site: Path, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    environ = {**os.environ, "PYTHONPATH": path, **extra}
    return subprocess.run(
        [sys.executable, *arguments], env=environ, capture_output=True, text=True, check=False
    )


def lines_of_code(source: bytes) -> set[int]:
    """Numbers of the lines that hold code: neither blank nor comment nor docstring."""
    tokens = tokenize.tokenize(io.BytesIO(source).readline)
    code = {
        n for t in tokens if t.type not in NO_CODE for n in range(t.start[0], t.end[0] + 1)
    }  # fmt: skip
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(
            node
        ):
            code -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return code


def test_counting() -> None:
    source = b'"""Doc.\n\nMore."""\n\n# comment\nx = (\n    1,\n)  # and code\n\n\ndef f():\n    """Doc."""\n    return x\n'
    assert lines_of_code(source) == {6, 7, 8, 11, 13}


def test_it_is_small(root: Path) -> None:
    files = sorted((root / "examples" / "mortice-npu-example" / "src").rglob("*.py"))
    assert len(files) == 3
    total = 0
    for file in files:
        source = file.read_bytes()
        code = lines_of_code(source)
        total += len(code)
        lines = source.decode().splitlines()
        assert max((len(lines[n - 1]) for n in code), default=0) <= MOST_COLUMNS, file
    assert total <= MOST_LINES, total


def test_it_passes_the_conformance_kit(site: Path, tmp_path: Path) -> None:
    """As its author would run it; more fallbacks than the documentation says are a failure."""
    (tmp_path / "test_npu.py").write_text("""
from mortice.testing.conformance import DeviceTests

class TestNpu(DeviceTests):
    device = "npu"
    fallbacks = 97
""")
    done = run(site, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "test_npu.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout, done.stdout


def test_what_stays_on_it_is_what_is_written(site: Path, root: Path) -> None:
    done = run(site, str(root / "docs" / "devices_table.py"), "--check", "npu")
    assert done.returncode == 0, done.stdout + done.stderr


has_proc = pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="looks into /proc")


@has_proc
def test_only_its_runtime_reads_its_memory(site: Path) -> None:
    """What it computes is nowhere in this process before it is copied out."""
    done = run(site, "-W", "error", "-c", """
import mortice, os
from mortice.backend import runtime

def here(number):
    pattern = bytes(mortice.tensor([number]).untyped_storage().tolist()) * 300
    with open("/proc/self/maps") as maps:
        regions = [line.split()[0].split("-") for line in maps if " rw-p " in line]
    found = 0
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        for start, end in regions:
            try:
                memory.seek(int(start, 16))
                found += memory.read(int(end, 16) - int(start, 16)).count(pattern)
            except (OSError, OverflowError):
                continue
    return found > 1  # the pattern itself

x = mortice.full((1000,), 1234567.0).to("npu") + 1
print(runtime("npu").chip.pid != os.getpid(), here(1234568.0))
y = x.cpu()
print(here(1234568.0), y[0].item())
""")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "False", "True", "1234568.0"]


@has_proc
def test_its_process_ends_with_ours(site: Path) -> None:
    done = run(site, "-c", """
import mortice
mortice.ones(2, device="npu")
from mortice.backend import runtime
print(runtime("npu").chip.pid)
""")  # fmt: skip
    assert done.returncode == 0, done.stderr
    pid = int(done.stdout)
    until(lambda: not alive(pid), f"the end of process {pid}")
