"""For authors of plug-ins: the marker for hooks, and what a plug-in raises and subclasses."""

from __future__ import annotations

from typing import Any

import pluggy

from mortice._base.logging import active as active_logger
from mortice._dispatch.backends import replaced_operators, runtime
from mortice._dispatch.keys import CPU as CPU_KEYS
from mortice._dispatch.keys import device_bit, device_key_name
from mortice._dispatch.operator import Declarations, declare, get
from mortice._ops.formulas import has_values
from mortice._plugins.groups import HOOK_API_VERSION
from mortice._tensor import philox
from mortice._tensor.array import DeviceArray
from mortice._tensor.counter import count_up
from mortice._tensor.device_methods import movable
from mortice._tensor.generator import Generator
from mortice._tensor.generator import chosen as generator_for
from mortice._tensor.make import empty, view_of, wrap
from mortice._tensor.placement import Placement, placement, placements
from mortice._tensor.rows import write_result as write_back
from mortice._tensor.runtime import DeviceRuntime, Features, HostFeatures
from mortice._tensor.streams import Event, Stream
from mortice._tensor.tensor import Tensor
from mortice._types import dtypes
from mortice._types.promotion import NUMBERS, promote, result_type, with_number
from mortice._types.returns import named_returns
from mortice.errors import Unavailable


def random_draws(kind: str) -> Any:
    """The function ``(n, seed, offset)`` that makes Philox words ("u32") or uniform numbers in
    [0, 1) ("f32", "f64"), in numpy; what faster kernels must agree with bit for bit.
    """
    return philox.FILLS[kind]


def array(tensor: Tensor) -> Any:
    """The numpy array of a host tensor, for kernels: no check, no copy, gradients aside."""
    return tensor._a


def shape_rule(name: str) -> Any:
    """The shape rule of an operator: its arguments -> (sizes, dtype[, strides]), or a list."""
    rule = _rules.get(name)
    if rule is None:
        rule = _rules[name] = get(name).shape_rule()
    return rule


_rules: dict[str, Any] = {}


__all__ = [
    "CPU_KEYS",
    "HOOK_API_VERSION",
    "NUMBERS",
    "Declarations",
    "DeviceArray",
    "DeviceRuntime",
    "Event",
    "Features",
    "Generator",
    "Placement",
    "Stream",
    "Tensor",
    "Unavailable",
    "active_logger",
    "array",
    "count_up",
    "declare",
    "default_dtype",
    "dtypes",
    "empty",
    "features",
    "generator_for",
    "has_values",
    "hookimpl",
    "key_of",
    "movable",
    "named_returns",
    "placement",
    "placements",
    "promote",
    "random_draws",
    "replaced_operators",
    "result_type",
    "runtime",
    "shape_rule",
    "view_of",
    "with_number",
    "wrap",
    "write_back",
]

hookimpl = pluggy.HookimplMarker("mortice")


def features(device_type: str) -> type[Features]:
    """What a device can do; the CPU has one stream and lives on in a forked child."""
    return HostFeatures if device_type == "cpu" else runtime(device_type).features


def key_of(device_type: str) -> str:
    """The dispatch key of a device type, for mortice.library: "npu" -> "NPU"."""
    device_bit(device_type)  # a key can be parsed from its name when it has been mentioned
    return device_key_name(device_type)


def default_dtype() -> dtypes.DType:
    """The dtype of floating-point results that have no other."""
    return dtypes.default.dtype
