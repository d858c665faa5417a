"""The conformance suites of distributed backends, for pytest.

::

    from mortice_testing.distributed.conformance import DistributedConformance, DistributedFaults

    class TestMine(DistributedConformance):
        backend = "mine"
        lacks = ("recv_any",)

    class TestFaults(DistributedFaults):
        backend = "mine"

The first runs every case on 1, 2, 3 and 4 real processes. A case that hangs, or whose process
dies, fails and is given up; the next one gets new processes. The second kills, stops or misleads
one of three: nobody hangs, and everybody is told who is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest

from . import faults, shared_memory, soak
from .cases import all_cases
from .gang import Gang, RankError

CASES = all_cases()


class DistributedConformance:
    """Subclass it, and name the backend."""

    #: The backend's name, or a string of devices and names.
    backend: ClassVar[str] = ""
    #: Numbers of processes.
    sizes: ClassVar[tuple[int, ...]] = (1, 2, 3, 4)
    #: Capabilities that the library does not have: ``messages``, ``recv_any``, and
    #: ``broken_connections``, after which it must not end the process.
    lacks: ClassVar[tuple[str, ...]] = ()
    #: Before the interpreter's name, as ``("mpiexec", ...)`` would be; and variables to set.
    environment: ClassVar[dict[str, str]] = {}
    #: Seconds that one case may take.
    patience: ClassVar[float] = 60.0

    #: Processes by their number; made by the first test that needs them.
    gangs: ClassVar[dict[int, Gang]]

    @classmethod
    def setup_class(cls) -> None:
        cls.gangs = {}

    @classmethod
    def teardown_class(cls) -> None:
        for gang in cls.gangs.values():
            gang.close()

    def gang_of(self, size: int) -> Gang:
        """Start the processes; for backends that need another way."""
        return Gang(size, self.backend, environment=self.environment)

    @pytest.mark.parametrize("case", sorted(CASES))
    @pytest.mark.parametrize("size", [1, 2, 3, 4])
    def test_conformance(self, size: int, case: str) -> None:
        """Run one case on ``size`` processes."""
        if size not in self.sizes:
            pytest.skip(f"{self.backend} is run on {self.sizes} processes")
        function = CASES[case]
        _skip_if_missing(getattr(function, "needs", ()), self.backend, self.lacks)
        gangs = self.gangs
        if size not in gangs:
            for other in [*gangs]:  # one at a time: processes cost memory
                gangs.pop(other).close()
            gangs[size] = self.gang_of(size)
        try:
            gangs[size].run(function, patience=self.patience)
        except RankError:
            gangs.pop(size).close()
            raise


def _skip_if_missing(needs: Sequence[str], backend: str, lacks: tuple[str, ...]) -> None:
    missing = [name for name in needs if name in lacks]
    if missing:
        pytest.skip(f"{backend} lacks {', '.join(missing)}")


class DistributedFaults:
    """Subclass it, and name the backend; real kills, in gangs of its own."""

    backend: ClassVar[str] = ""
    #: As in DistributedConformance.
    lacks: ClassVar[tuple[str, ...]] = ()

    def gangs(self) -> faults.MakeGang:
        """How gangs are made: a function of ``size`` and ``environment``."""
        return faults.gangs_of(self.backend)

    @pytest.mark.parametrize("fault", faults.FAULTS, ids=lambda fault: fault.name)
    def test_fault(self, fault: faults.Fault) -> None:
        """Every survivor gets an error that tells what it was at and who is missing."""
        _skip_if_missing(fault.needs, self.backend, self.lacks)
        with shared_memory.nothing_left():
            outcome = faults.happen(fault, self.gangs())
        for one in outcome.seen:
            assert one.operation, one
            assert one.sequence > 0, one
            assert f"on rank {one.rank}" in one.text, one
            if fault.ends and fault.victim:
                assert one.gone == (fault.victim,), one
                assert f"rank {fault.victim} ended" in one.text
            elif fault.victim:
                assert f"rank {fault.victim}" in one.text or one.rank == fault.victim, one
        if fault.signal and not fault.ends:
            assert "OperationTimeout" in {one.error for one in outcome.seen}, outcome
        for one in outcome.later:
            assert "the group ended with" in one.text, one

    @pytest.mark.parametrize("seed", [1000, 1001])
    def test_a_round_of_the_soak(self, seed: int) -> None:
        """Random collectives in random groups until a random rank is killed."""
        with shared_memory.nothing_left():
            soak.play(self.gangs(), seed)
