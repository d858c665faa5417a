from __future__ import annotations

from importlib import metadata

import mortice_llvm


def test_version_is_that_of_the_distribution():
    assert metadata.version("mortice-llvm") == mortice_llvm.__version__
