"""The program of a gang's processes: calls what the other end of its pipe names, and answers."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pickle
import sys
import traceback
from multiprocessing.connection import Client
from typing import Any


def begin(rank: int, size: int, backend: str, init_method: str, timeout: float) -> None:
    """Make the process group of the gang."""
    import mortice.distributed as dist

    if init_method:
        dist.init_process_group(
            backend, init_method=init_method, rank=rank, world_size=size, timeout=timeout
        )
    else:
        dist.init_process_group(backend, timeout=timeout)
    assert (dist.get_rank(), dist.get_world_size()) == (rank, size)


def find(target: str) -> Any:
    """The function ``module:name`` or ``path.py:name``."""
    where, _, name = target.rpartition(":")
    if not where.endswith(".py"):
        return getattr(importlib.import_module(where), name)
    module = sys.modules.get(where)
    if module is None:
        spec = importlib.util.spec_from_file_location(where, where)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[where] = module
        spec.loader.exec_module(module)
    return getattr(module, name)


def _call(rank: int, size: int, target: str, arguments: tuple[Any, ...]) -> tuple[str, Any]:
    try:
        return "returned", find(target)(rank, size, *arguments)
    except BaseException as error:
        text = traceback.format_exc()
        try:
            pickle.loads(pickle.dumps(error))  # some cannot travel
        except Exception:
            return "raised", (None, text)
        return "raised", (error, text)


# Where launchers tell a process its rank; in this order, since a launcher's own is the true one.
_RANKS = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "RANK")


def main() -> None:
    """Serve until the other end closes the pipe."""
    rank = next(int(os.environ[name]) for name in _RANKS if name in os.environ)
    size = int(os.environ["WORLD_SIZE"])
    pipe = Client(sys.argv[1])
    pipe.send((rank, os.getpid()))
    while True:
        try:
            target, arguments = pipe.recv()
        except EOFError:
            break
        pipe.send(_call(rank, size, target, arguments))
    import mortice.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
