"""Fold a batch norm in evaluation mode into the layer before it."""

from __future__ import annotations

import copy
from typing import Any

import mortice
from mortice import Tensor
from mortice.errors import InvalidState
from mortice_nn.parameter import Parameter


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A copy of ``conv`` that computes ``bn(conv(x))``; both in evaluation mode."""
    return _fuse(conv, bn, 1 if transpose else 0)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A copy of ``linear`` that computes ``bn(linear(x))``; both in evaluation mode."""
    return _fuse(linear, bn, 0)


def _fuse(layer: Any, bn: Any, dim: int) -> Any:
    if layer.training or bn.training:
        raise InvalidState("Fusion only for eval! Call .eval() on both modules first.")
    fused = copy.deepcopy(layer)
    scale = (bn.running_var + bn.eps).rsqrt()
    if bn.weight is not None:
        scale = scale * bn.weight
    shape = [1] * layer.weight.ndim
    shape[dim] = -1
    bias: Tensor = mortice.zeros_like(bn.running_mean) if layer.bias is None else layer.bias
    moved = (bias - bn.running_mean) * scale
    if bn.bias is not None:
        moved = moved + bn.bias
    fused.weight = Parameter(
        (layer.weight * scale.reshape(shape)).detach(), layer.weight.requires_grad
    )
    fused.bias = Parameter(moved.detach(), layer.weight.requires_grad)
    return fused
