"""Results in float16 and bfloat16 that differ from eager's by what rounding does.

A kernel keeps values in float32 between operators where eager rounds each to its dtype, so the two may
differ by more than the tolerance, and the kernel's is the better. Both are then measured against the
graph run in float32: a kernel's result may be off from that by the tolerance and twice what eager's is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import mortice
from mortice.backend import array
from mortice.fx import Interpreter, map_aggregate

HALVES = (mortice.float16, mortice.bfloat16)


def has_halves(results: dict[str, Any]) -> bool:
    """Whether any node's result is, or holds, a tensor of 16-bit floats."""
    parts = (x if isinstance(x, (tuple, list)) else (x,) for x in results.values())
    return any(_is_half(x) for part in parts for x in part)


def _is_half(x: Any) -> bool:
    return isinstance(x, mortice.Tensor) and x.dtype in HALVES


class InFloat32(Interpreter):
    """Runs a graph with float32 in place of 16-bit floats, and keeps every node's result.

    ``eager``: the results of the nodes as eager gives them, for those that draw random numbers.
    """

    def __init__(self, gm: Any, eager: dict[str, Any]) -> None:
        super().__init__(gm)
        self.eager = eager
        self.results: dict[str, Any] = {}

    def run_node(self, n: Any) -> Any:
        if "nondeterministic_seeded" in getattr(n.target, "tags", ()):
            out = self._drawn(n)
        else:
            out = widened(super().run_node(n))
        self.results[n.name] = map_aggregate(out, _kept)
        return out

    def _drawn(self, n: Any) -> Any:
        """What eager drew: another dtype would give other numbers."""
        out = widened(self.eager[n.name])
        args, _ = self.fetch_args_kwargs_from_env(n)
        return args[0].copy_(out) if n.target._schema.mutated else out

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args, kwargs = map_aggregate((args, kwargs), _wide_dtype)
        return super().call_function(target, args, kwargs)


def widened(value: Any) -> Any:
    """The value with float32 in place of 16-bit floats."""
    return map_aggregate(value, lambda x: x.float() if _is_half(x) else x)


def _wide_dtype(x: Any) -> Any:
    return mortice.float32 if isinstance(x, mortice.dtype) and x in HALVES else x


def _kept(x: Any) -> Any:
    """A copy: later nodes may write to the same memory."""
    return x.clone() if isinstance(x, mortice.Tensor) else x


def is_rounding(found: Any, eager: Any, wide: Any, tolerance: float) -> bool:
    """Whether a result, compared with ``wide``, is off by no more than the tolerance, relative to the
    greatest element, and twice what eager's is. Integers and bools: each is eager's or ``wide``'s.
    """
    if not isinstance(wide, mortice.Tensor) or wide.shape != eager.shape:
        return False
    a, b, w = array(found), array(eager), array(wide)
    if a.dtype.kind in "biu":
        return bool(((a == b) | (a == w)).all())
    a, b, w = (np.asarray(x.astype("f8")) for x in (a, b, w))
    same = (a == w) | (a == b) | ((a != a) & ((b != b) | (w != w)))
    usual = np.isfinite(a) & np.isfinite(w)
    if not (same | usual).all():
        return False
    scale = max(abs(w[usual]).max(initial=0.0), 1e-6)
    finite = usual & np.isfinite(b)
    own = abs(b[finite] - w[finite]).max(initial=0.0)
    differ = usual & ~same
    return bool((abs(a[differ] - w[differ]) <= tolerance * scale + 2 * own).all())
