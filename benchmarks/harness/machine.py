"""The machine and the libraries, and how a benchmark gets one thread for all of them."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "MORTICE_NUM_THREADS"), "1")  # fmt: skip
# These change which kernels a BLAS takes: the figures are those of its own choice.
DROPPED = ("OPENBLAS_CORETYPE", "OPENBLAS_VERBOSE", "MKL_DEBUG_CPU_TYPE", "ATEN_CPU_CAPABILITY")
NOTE = "HARNESS_DROPPED"


def one_thread() -> str:
    """Starts the program again with one thread per library, once; returns what was unset.

    Thread counts are read when a library is loaded, so they must be set before Python starts.
    """
    wanted = {**ONE_THREAD, "PYTHONHASHSEED": "0"}
    if NOTE not in os.environ:
        dropped = [name for name in DROPPED if name in os.environ]
        environ = {k: v for k, v in os.environ.items() if k not in DROPPED}
        environ.update(wanted, **{NOTE: ",".join(dropped)})
        os.execve(sys.executable, [sys.executable, *sys.argv], environ)
    return os.environ[NOTE]


def cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for row in info.read_text().splitlines():
            if row.startswith(("model name", "Model")):
                return row.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "source tree"


def describe(*distributions: str) -> list[str]:
    """Lines that name CPU, cores, system and versions."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    lines = [
        f"CPU: {cpu_model()}, {cores} cores usable, {platform.machine()}",
        f"System: {platform.system()} {platform.release()}, Python {platform.python_version()}",
        "Versions: " + ", ".join(f"{name} {version(name)}" for name in distributions),
    ]
    if hasattr(os, "getloadavg"):
        lines.append(f"Load average at the start: {os.getloadavg()[0]:.1f}")
    return lines
