"""Reduction of several ranks' elements in this process, for every dtype, by numpy.

The result depends on the ranks' order alone, so that all ranks that fold the same get the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_UFUNCS: dict[str, Any] = {
    "SUM": np.add,
    "PRODUCT": np.multiply,
    "MIN": np.minimum,
    "MAX": np.maximum,
    "BAND": np.bitwise_and,
    "BOR": np.bitwise_or,
    "BXOR": np.bitwise_xor,
}
_ON_BOOL: dict[str, Any] = {
    "SUM": np.logical_or,
    "PRODUCT": np.logical_and,
    "MIN": np.logical_and,
    "MAX": np.logical_or,
    "BAND": np.logical_and,
    "BOR": np.logical_or,
    "BXOR": np.logical_xor,
}


def fold(parts: Sequence[Array], op: str, out: Array) -> None:
    """Reduce arrays of one size and dtype into ``out``, which may be one of them.

    Floating dtypes narrower than float32 are accumulated in float32 and rounded once.
    """
    dtype = out.dtype
    ufunc = (_ON_BOOL if dtype == np.bool_ else _UFUNCS)[op]
    if op in ("SUM", "PRODUCT") and _is_narrow_float(dtype):
        total = parts[0].astype(np.float32)
        for part in parts[1:]:
            ufunc(total, part.astype(np.float32), out=total)
        out[...] = total.astype(dtype)
        return
    if len(parts) == 1:
        out[...] = parts[0]
        return
    if any(np.may_share_memory(out, part) for part in parts):
        total = ufunc(parts[0], parts[1])
        for part in parts[2:]:
            ufunc(total, part, out=total)
        out[...] = total
        return
    ufunc(parts[0], parts[1], out=out)
    for part in parts[2:]:
        ufunc(out, part, out=out)


def _is_narrow_float(dtype: Any) -> bool:
    # numpy's own float16, and ml_dtypes' types, which numpy files under "V" or "f".
    return dtype.itemsize <= 2 and (
        dtype.kind == "f" or dtype.name.startswith(("bfloat", "float8"))
    )
