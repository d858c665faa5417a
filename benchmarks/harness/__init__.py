"""What the benchmarks share: one thread, interleaved timing, the machine's name, the table."""

from harness.machine import describe, one_thread
from harness.report import table
from harness.timing import Candidate, Case, Measured, measure

__all__ = ["Candidate", "Case", "Measured", "describe", "measure", "one_thread", "table"]
