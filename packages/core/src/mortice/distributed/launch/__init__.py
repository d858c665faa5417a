"""Launching: from a command to a gang of ranks, by an engine.

An engine is a class found by entry point (group ``mortice.launchers``); ``mortice run`` asks it to
run a Job. ``local`` supervises processes on this machine; ``mpi`` and ``slurm`` leave starting to
mpiexec and srun. What engines share is for those of plug-ins, too.
"""

from __future__ import annotations

from .job import SIGNALLED, Job, Launcher
from .processes import Output, described, say, status, tethered

__all__ = ["SIGNALLED", "Job", "Launcher", "Output", "described", "say", "status", "tethered"]
