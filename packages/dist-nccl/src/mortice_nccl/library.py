"""NCCL's bindings, from nccl4py, and whether there is something to use them on."""

from __future__ import annotations

import importlib
import os
from typing import Any

from mortice.backend import Unavailable

_DRIVER = "/dev/nvidiactl"
_EXTRA = "pip install 'nvidia-nccl-cu12' 'cuda-bindings~=12.0', or the cu13 ones for CUDA 13"


def load() -> Any:
    """nccl4py's low-level bindings. Raises Unavailable that says what is missing."""
    if not os.path.exists(_DRIVER):
        raise Unavailable(
            f"there is no NVIDIA GPU, or no driver for it: {_DRIVER} does not exist",
            "Install NVIDIA's driver; without a GPU use gloo or mpi",
        )
    try:
        nccl = importlib.import_module("nccl.bindings.nccl")
    except ImportError as error:
        if error.name and error.name.split(".")[0] == "nccl":
            raise Unavailable(
                "the distribution nccl4py is not installed", "pip install nccl4py"
            ) from error
        raise Unavailable(f"nccl4py cannot be imported: {error}", _EXTRA) from error
    try:
        nccl.get_version()
    except Exception as error:  # its own errors, and those of finding the library
        raise Unavailable(f"nccl4py finds no libnccl: {error}", _EXTRA) from error
    return nccl
