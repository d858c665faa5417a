"""Running the cases on a device: whether each is right, and whether it stays there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

import mortice
from mortice import backend
from mortice.errors import NoKernel
from mortice_testing._comparison import assert_close
from mortice_testing.conformance.cases import CASES, Inputs


class Outcome(NamedTuple):
    """What became of a case: ``how`` is "native", "fallback" or "failed"; ``told`` is why."""

    family: str
    name: str
    how: str
    told: str


def expected(family: str, name: str) -> Any:
    """What the CPU computes."""
    return CASES[family][name](Inputs("cpu"))


def run(family: str, name: str, device: str) -> Any:
    """The case on a device: the result, on that device."""
    return CASES[family][name](Inputs(device))


def compare(found: Any, wanted: Any, device: str, *, computes: bool = True) -> None:
    """Raise AssertionError where a result is not the CPU's, or lies elsewhere than on the device."""
    if isinstance(wanted, tuple):
        assert isinstance(found, tuple), f"expected {len(wanted)} results, found {type(found)}"
        assert len(found) == len(wanted)
        for one, its in zip(found, wanted):
            compare(one, its, device, computes=computes)
        return
    assert found.device.type == device, f"the result is on {found.device}"
    assert found.dtype is wanted.dtype, f"{found.dtype}, not {wanted.dtype}"
    if computes:
        assert_close(found.cpu(), wanted, rtol=1e-4, atol=1e-5)
    else:
        assert tuple(found.shape) == tuple(wanted.shape)


def measure(family: str, name: str, device: str) -> Outcome:
    """Run one case, first forbidding the fallback."""
    wanted = expected(family, name)
    computes = backend.features(device).computes
    how, told = "native", ""
    try:
        try:
            with mortice.config.override(fallback="error"):
                found = run(family, name, device)
        except NoKernel as error:
            how, told = "fallback", str(error).partition(" has no kernel")[0]
            with mortice.config.override(fallback="silent"):
                found = run(family, name, device)
        compare(found, wanted, device, computes=computes)
    except Exception as error:  # whatever a device raises is the outcome
        if not computes and _needs_values(family, name):
            return Outcome(family, name, "native", "its values are needed, and there are none")
        return Outcome(family, name, "failed", f"{type(error).__name__}: {error}")
    return Outcome(family, name, how, told)


#: Cases whose sizes or errors depend on values, which a device that does not compute has not.
_BY_VALUE = frozenset((("indexing", "masked_select"), ("indexing", "nonzero")))


def _needs_values(family: str, name: str) -> bool:
    return (family, name) in _BY_VALUE


def measure_all(device: str) -> list[Outcome]:
    """All cases on one device."""
    return [measure(family, name, device) for family, table in CASES.items() for name in table]


def counts(outcomes: list[Outcome]) -> dict[str, Counter[str]]:
    """Family -> how -> number."""
    found: dict[str, Counter[str]] = {}
    for one in outcomes:
        found.setdefault(one.family, Counter())[one.how] += 1
    return found


@contextmanager
def watched_copies(device: str) -> Generator[list[int], None, None]:
    """Counts bytes that leave a device for the host inside the block: a list of them."""
    runtime = backend.runtime(device)
    original = runtime.copy_out
    left: list[int] = []

    def copy_out(buffer: Any, offset: int, data: memoryview) -> None:
        left.append(data.nbytes)
        original(buffer, offset, data)

    runtime.copy_out = copy_out
    try:
        yield left
    finally:
        del runtime.copy_out
