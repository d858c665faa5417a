"""Where 16-bit values must be those of eager, to the last bit.

Compiled code computes in float32 and leaves out most of the rounding to 16 bits in between. What is
continuous then differs from eager by a few roundings. What decides does not: a comparison of a
maximum, which memory has rounded, with the unrounded values it was taken from finds none equal.
What leads to a decision is therefore rounded wherever eager does, all the way, so that it is the
same in every kernel and graph that computes it: also in a backward graph that computes it again.
"""

from __future__ import annotations

from ..ir.values import UPDATING_COPIES, Value, walk

FLOATS = ("f16", "bf16", "f32", "f64")

#: Operations that jump: their own steps, signs, and the edges of where they are defined. Quotients,
#: roots and logarithms are not among them, though they have poles: every normalisation has one.
JUMPS = frozenset(
    "eq ne lt le gt ge floor ceil trunc round sign floor_div remainder fmod isnan isinf isfinite "
    "signbit copysign atan2 pow asin acos acosh atanh".split()
)
#: Reductions that choose; the gradient compares what they were given with what they chose.
CHOICES = frozenset(("max", "min", "argmax", "argmin"))
#: Foreign operators that are continuous, by how their names begin; all others may decide something.
SMOOTH = (
    "convolution", "_scaled_dot_product", "avg_pool", "_adaptive_avg_pool", "upsample", "cumsum",
    "native_batch_norm", "native_group_norm", "mm.", "bmm.", "addmm.", "baddbmm.",
)  # fmt: skip


def decided_upon(roots: list[Value]) -> set[int]:
    """Values that lead to a decision, by ``uid``."""
    found: set[int] = set()
    for v in reversed(walk(roots)):
        if v.uid in found or _decides(v):
            found.update(a.uid for a in v.args)
    return found


def is_round_trip(v: Value) -> bool:
    """True if ``v`` is float32 elements rounded to 16 bits and widened again. A number given at run
    time is rounded as a constant is: once for a kernel.
    """
    if v.op != "cast" or v.dtype not in ("f32", "f64") or v.args[0].op != "cast":
        return False
    inner = v.args[0].args[0]
    return v.args[0].dtype in ("f16", "bf16") and inner.dtype == "f32" and not _is_number(inner)


def _is_number(v: Value) -> bool:
    while v.op in ("cast", "view"):
        v = v.args[0]
    return v.op == "number"


def _decides(v: Value) -> bool:
    if v.op == "fn":
        return v.attr in JUMPS and v.args[0].dtype in FLOATS
    if v.op == "reduce":
        return v.attr[0] in CHOICES
    if v.op in ("cast", "bitcast"):
        return v.args[0].dtype in FLOATS and (v.op == "bitcast" or v.dtype not in FLOATS)
    return v.op == "call" and not _name(v).startswith(SMOOTH)


def _name(v: Value) -> str:
    return v.attr.call.target.removeprefix(UPDATING_COPIES).removeprefix("aten.")
