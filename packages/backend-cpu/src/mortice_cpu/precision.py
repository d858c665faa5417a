"""Half-precision types compute in float32 and are rounded once, as PyTorch's CPU kernels do."""

from __future__ import annotations

from typing import Any

import numpy as np

_WIDE = {"float16": np.float32, "bfloat16": np.float32}


def widen(a: Any) -> Any:
    """The array in the dtype that its arithmetic is done in."""
    wide = _WIDE.get(a.dtype.name)
    return a if wide is None else a.astype(wide)


def narrow(a: Any, dtype: Any) -> Any:
    """A result back in ``dtype``."""
    return a if a.dtype == dtype else a.astype(dtype)
