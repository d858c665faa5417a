"""Launching: from a command to a gang of ranks, by an engine.

An engine is a class found by entry point (group ``mortice.launchers``); ``mortice run`` asks it to
run a Job. ``local`` supervises processes on this machine; ``mpi`` and ``slurm`` leave starting to
mpiexec and srun.
"""

from __future__ import annotations

from .job import Job, Launcher

__all__ = ["Job", "Launcher"]
