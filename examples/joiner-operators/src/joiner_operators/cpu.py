"""Kernels for tensors in host memory."""

from __future__ import annotations

import numpy as np

import mortice
from mortice import Tensor
from mortice.backend import array, wrap


def softclip(self: Tensor, limit: float) -> Tensor:
    x = array(self)
    return wrap(x / (1 + np.abs(x) / x.dtype.type(limit)), self.dtype)


def nearest_code(self: Tensor, codebook: Tensor) -> tuple[Tensor, Tensor]:
    x, codes = array(self), array(codebook)
    if x.ndim != 2 or codes.ndim != 2 or x.shape[1] != codes.shape[1]:
        raise TypeError("nearest_code")  # the shape rule says precisely what is wrong
    square = ((x[:, None] - codes[None]) ** 2).sum(-1)
    index = square.argmin(1)
    distance = np.sqrt(square[np.arange(len(x)), index])
    return wrap(distance, self.dtype), wrap(index, mortice.int64)
