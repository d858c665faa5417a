"""Gradient clipping, parameter vectors, packed sequences, parametrizations, functional calls."""

from mortice_nn.utils import parametrizations, parametrize, rnn, stateless
from mortice_nn.utils.clip_grad import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from mortice_nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters
from mortice_nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "fuse_conv_bn_eval",
    "fuse_linear_bn_eval",
    "get_total_norm",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "rnn",
    "stateless",
    "vector_to_parameters",
]
