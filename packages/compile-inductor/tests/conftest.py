"""Shared by the tests of this package."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mortice

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def fresh_cache(tmp_path: Path) -> Iterator[Path]:
    """A cache of the test's own."""
    mortice.config.cache_dir = str(tmp_path)
    yield tmp_path
    del mortice.config.cache_dir


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Our pool with two threads; ``test_shapes`` has one for BLAS, too."""
    before = mortice.get_num_threads()
    mortice.set_num_threads(2)
    yield
    mortice.set_num_threads(before)
