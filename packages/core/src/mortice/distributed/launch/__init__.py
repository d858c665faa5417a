"""Launching: from a command to a gang of ranks, by an engine.

An engine is a class found by entry point (group ``mortice.launchers``); ``mortice run`` asks it to
run a Job. ``local`` supervises processes on this machine; ``mpi``, ``slurm`` and ``ray`` leave
starting to those.
"""

from __future__ import annotations

from .job import Job, Launcher

__all__ = ["Job", "Launcher"]
