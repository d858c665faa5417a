"""A few hundred of the random programs of ``fuzz.py``."""

from __future__ import annotations

from typing import Any

import pytest
from fuzz import check


@pytest.mark.parametrize("first", range(0, 200, 40))
def test_random_programs(compile: Any, first: int) -> None:
    found = [check(seed, compile) for seed in range(first, first + 40)]
    assert not any(found), "\n\n".join(filter(None, found))


def test_random_programs_by_joint_graphs() -> None:
    from mortice._compile.front import compile as real

    found = [check(seed, lambda f: real(f, backend="aot_eager")) for seed in range(1000, 1040)]
    assert not any(found), "\n\n".join(filter(None, found))


#: 352: a view of an argument that begins elsewhere in its memory than the call before had it.
@pytest.mark.parametrize("seed", [352])
def test_programs_that_found_defects(compile: Any, seed: int) -> None:
    assert not check(seed, compile)


def test_backward_graphs_of_some_outputs_know_every_size() -> None:
    """81155: with gradients for some outputs alone, a size was used that was in no other graph."""
    from mortice._compile.front import compile as real

    assert not check(81155, lambda f: real(f, backend="aot_eager"))
