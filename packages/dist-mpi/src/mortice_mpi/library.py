"""MPI in this process: loaded, started once, ended as it should be or not at all."""

from __future__ import annotations

import atexit
from typing import Any

from mortice.backend import Unavailable

_FIX = "Install an MPI library, as in pip install mpich; or the system's: apt install libmpich12"
_module: Any = None
_failed = False
# What a request that was given up may still write to or read from.
abandoned: list[Any] = []


def load() -> Any:
    """mpi4py's MPI module, not started yet. Raises Unavailable where MPI cannot be loaded."""
    global _module
    if _module is None:
        try:
            import mpi4py
        except ImportError as error:
            raise Unavailable(
                "the distribution mpi4py is not installed", "pip install mpi4py"
            ) from (error)
        # MPI is started by the first group, not by the import; and ended by us.
        mpi4py.rc.initialize = False
        mpi4py.rc.finalize = False
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise Unavailable(f"mpi4py finds no MPI library: {error}", _FIX) from error
        _module = MPI
    return _module


def start() -> Any:
    """The MPI module, started so that several threads may call it."""
    module = load()
    if not module.Is_initialized():
        module.Init_thread(module.THREAD_MULTIPLE)
        atexit.register(_end)
    if module.Query_thread() < module.THREAD_MULTIPLE:
        raise Unavailable(
            "MPI was started without THREAD_MULTIPLE, and groups have threads of their own",
            'Start it with mpi4py.rc.thread_level = "multiple", or let mortice start it',
        )
    module.COMM_WORLD.Set_errhandler(module.ERRORS_RETURN)
    return module


def give_up(*held: Any) -> None:
    """Remember that an operation was left unfinished: MPI's own end would wait for it forever."""
    global _failed
    _failed = True
    abandoned.extend(held)


def _end() -> None:
    if not _failed and not _module.Is_finalized():
        _module.Finalize()
