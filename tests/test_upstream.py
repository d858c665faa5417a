"""The runner of PyTorch's own tests, on a file of ours that is written as PyTorch's are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "upstream"
FILE = """
import torch
import torch.utils.cpp_extension
from torch.testing._internal.common_utils import *  # noqa: F403
from torch.utils._python_dispatch import TorchDispatchMode


class Double(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return f"{torch.overrides.resolve_name(func)}"


class TestThings(TestCase):
    def test_passes(self):
        x = torch.ones(2).as_subclass(Double)
        self.assertEqual(torch.add(x, 1), "torch.add")

    def test_mode(self):
        seen = []

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                seen.append(str(func))
                return func(*args, **(kwargs or {}))

        with Mode():
            torch.ones(2).sin()
        self.assertEqual(seen[-1], "aten.sin.default")

    def test_words_differ(self):
        with self.assertRaisesRegex(RuntimeError, "in the words of another library"):
            torch.ones(2) @ torch.ones(3)

    def test_fails(self):
        self.assertEqual(torch.ones(2), torch.zeros(2))

    def test_needs_what_is_not_there(self):
        torch.utils.cpp_extension.load_inline("x", "")

    @parametrize("n", [1, 2])
    def test_each(self, n):
        self.assertEqual(torch.zeros(n).numel(), n)


instantiate_parametrized_tests(TestThings)
"""


def run(path: Path, words: bool) -> dict[str, tuple[str, str]]:
    out = path.with_suffix(".json")
    command = [sys.executable, str(HERE / "child.py"), str(path), str(out), "", str(int(words))]
    subprocess.run(command, check=True, timeout=590)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    return {r["test"].rpartition(".")[2]: (r["state"], r["why"]) for r in rows}


@pytest.mark.timeout(600)
def test_states_and_reasons(tmp_path: Path) -> None:
    path = tmp_path / "test_things.py"
    path.write_text(FILE)
    found = run(path, words=True)
    passed = {name for name, (state, _) in found.items() if state == "passed"}
    assert passed == {"test_passes", "test_mode", "test_each_1", "test_each_2"}
    assert (
        "mortice has no torch.utils.cpp_extension.load_inline"
        in (found["test_needs_what_is_not_there"][1])
    )
    assert "words of another library" in found["test_words_differ"][1]
    by_type = run(path, words=False)
    assert by_type["test_words_differ"][0] == "passed" and by_type["test_fails"][0] == "failed"


def test_where_the_files_are_must_be_said() -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / "run.py")],
        capture_output=True,
        text=True,
        env={"PATH": ""},
        check=False,
    )
    assert done.returncode == 2 and "--tests DIR" in done.stdout
