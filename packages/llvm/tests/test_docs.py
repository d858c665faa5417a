"""The examples of the documentation run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mortice_llvm import kernels
from mortice_llvm.ir import parse, text

PACKAGE = Path(__file__).parents[1]
PAGES = [PACKAGE / "README.md", PACKAGE.parents[1] / "docs" / "llvm.md"]


def blocks(language: str) -> list[str]:
    """The fenced blocks of that language."""
    found: list[str] = []
    for page in (p for p in PAGES if p.exists()):
        parts = re.split(r"^```(.*)\n", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        # Text, fence, block, closing fence, text, ...
        found += [body for fence, body in zip(parts[1::4], parts[2::4]) if fence == language]
    return found


@pytest.mark.parametrize("code", blocks("python"))
def test_python_examples(code):
    exec(compile(code, "documentation", "exec"), {})


def test_the_loop_ir_example():
    for source in blocks(""):
        kernel = parse(source)
        assert text(kernel) == source
        assert kernels.custom(kernel) is kernels.custom(kernel)


def test_every_kernel_is_documented():
    page = PAGES[1].read_text(encoding="utf-8") if PAGES[1].exists() else None
    if page is None:
        pytest.skip("the documentation lies beside the packages, not in an installed one")
    from mortice_llvm.kernels.table import SIZES
    from mortice_llvm.scalar import OPS

    for family in SIZES:
        for name in kernels.names(family):
            assert f"`{name}`" in page or name in OPS, name
