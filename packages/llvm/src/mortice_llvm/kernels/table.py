"""What kernels there are: names, numbers of outputs and inputs, scalar parameters.

Bodies are in ``build``, which a kernel that is cached never imports.
"""

from __future__ import annotations

from typing import NamedTuple

from ..scalar import OPS


class Entry(NamedTuple):
    """One kernel: ``outs`` and ``ins`` count buffers, ``scalars`` names f64 parameters."""

    family: str
    outs: int
    ins: int
    scalars: tuple[str, ...]
    body: str
    bool_out: bool = False


# name: outputs <- inputs ; scalar parameters
_POINTWISE = """
gelu_backward 1 2
gelu_tanh 1 1
gelu_tanh_backward 1 2
silu 1 1
silu_backward 1 2
sigmoid_backward 1 2
tanh_backward 1 2
threshold_backward 1 2 threshold
relu_backward 1 2
softplus 1 1 beta threshold
softplus_backward 1 2 beta threshold
elu 1 1 alpha scale input_scale
leaky_relu 1 1 slope
leaky_relu_backward 1 2 slope
hardtanh 1 1 low high
hardtanh_backward 1 2 low high
hardswish 1 1
hardswish_backward 1 2
hardsigmoid 1 1
mish 1 1
log_sigmoid 1 1
square 1 1
add_scaled 1 2 alpha
scale_add 1 1 scale shift
addcmul 1 3 value
addcdiv 1 3 value
lerp 1 2 weight
sgd 1 2 lr weight_decay
sgd_momentum 2 3 lr weight_decay momentum keep nesterov
adam 3 4 step_size beta1 beta2 eps correction2 weight_decay decay_factor
"""

_ROW = """
softmax 1 1
log_softmax 1 1
softmax_backward 1 2
log_softmax_backward 1 2
layer_norm 3 1 eps
layer_norm_affine 3 3 eps
layer_norm_backward 1 4
layer_norm_affine_backward 1 5
rms_norm 2 1 eps
rms_norm_affine 2 2 eps
sum 1 1
mean 1 1
max 1 1
min 1 1
prod 1 1
argmax 1 1
argmin 1 1
logsumexp 1 1
"""

# Sums over the rows of (rows, cols).
_COLUMN = """
sum 1 1
layer_norm_params_backward 2 4
rms_norm_params_backward 1 3
"""

# Arrays (n, c, hw), one number per channel.
_CHANNEL = """
stats 2 1
backward_sums 2 3
affine 1 3
affine_backward 1 5
"""

# How many sizes each family's kernels take.
SIZES = {"pointwise": 1, "row": 2, "column": 2, "channel": 4}


def _read(family: str, rows: str) -> dict[str, Entry]:
    out: dict[str, Entry] = {}
    for line in rows.strip().splitlines():
        name, outs, ins, *scalars = line.split()
        out[name] = Entry(family, int(outs), int(ins), tuple(scalars), name)
    return out


_NAMED: dict[str, dict[str, Entry]] = {
    "pointwise": {
        op.name: Entry("pointwise", 1, op.arity, (), op.name, op.result == "bool")
        for op in OPS.values()
    }
    | _read("pointwise", _POINTWISE),
    "row": _read("row", _ROW),
    "column": _read("column", _COLUMN),
    "channel": _read("channel", _CHANNEL),
}


def entry(family: str, name: str) -> Entry | None:
    """The kernel's entry, or None."""
    return _NAMED[family].get(name)


def names(family: str) -> list[str]:
    """Names of the family's kernels (``pointwise``, ``row``, ``column``, ``channel``)."""
    return sorted(_NAMED[family])
