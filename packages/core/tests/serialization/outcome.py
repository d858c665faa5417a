"""What every input must come to: an object within its bounds, or our one error, and soon."""

from __future__ import annotations

import io
import time
from typing import Any

import numpy as np

from mortice import serialization
from mortice._tensor.tensor import Tensor
from mortice.errors import CheckpointError, InvalidState
from mortice.serialization.opaque import NestedTensor, QuantizedTensor, SparseTensor
from mortice.serialization.specs import Spec

SECONDS = 1.0
# A view may repeat its elements without end; touching them all is the reader's own affair.
_MOST = 1 << 16


def outcome(data: bytes, **arguments: Any) -> str:
    """Load ``data``; "loaded" or "refused". Anything else raises."""
    begun = time.process_time()
    try:
        loaded = serialization.load(io.BytesIO(data), **arguments)
    except CheckpointError:
        result = "refused"
    else:
        touch(loaded, set())
        result = "loaded"
    seconds = time.process_time() - begun  # of this process: a busy machine is no hang
    assert seconds < SECONDS, f"took {seconds:.1f} s"
    return result


def touch(node: Any, seen: set[int]) -> None:
    """Read every byte that the loaded object claims to have."""
    if id(node) in seen:
        return
    seen.add(id(node))
    assert not isinstance(node, Spec), "a description was left in what was loaded"
    if isinstance(node, Tensor):
        if isinstance(node._a, np.ndarray) and node._a.size <= _MOST:
            node._a.tobytes()
        touch(vars(node), seen)
    elif isinstance(node, (SparseTensor, QuantizedTensor, NestedTensor)):
        convert(node, seen)
    elif isinstance(node, dict):
        for key, item in node.items():
            touch(key, seen)
            touch(item, seen)
        touch(getattr(node, "__dict__", None), seen)
    elif isinstance(node, (list, tuple, set, frozenset)):
        for item in node:
            touch(item, seen)


def convert(node: Any, seen: set[int]) -> None:
    """Make a strided tensor of it; without data that is the error that says so."""
    try:
        if isinstance(node, SparseTensor):
            if np.prod([max(1, n) for n in node.shape]) <= _MOST:
                node.to_dense()
        elif isinstance(node, QuantizedTensor):
            if node.data.numel() <= _MOST:
                node.dequantize()
        else:
            for part in node.unbind():
                touch(part, seen)
    except InvalidState as error:
        if "meta device" not in str(error):
            raise
