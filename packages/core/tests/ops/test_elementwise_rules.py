"""Shape rules on device meta and the errors of elementwise operators and reductions."""

from __future__ import annotations

from typing import Any

import pytest

import mortice as m
from mortice import errors

META = "meta"


def meta(*shape: int, dtype: Any = None) -> Any:
    return m.empty(shape, dtype=dtype, device=META)


@pytest.mark.parametrize(
    ("call", "shape", "dtype"),
    [
        (lambda: meta(2, 1) + meta(3), (2, 3), m.float32),
        (lambda: meta(2, dtype=m.int32) + 1.5, (2,), m.float32),
        (lambda: meta(2, dtype=m.int32) + True, (2,), m.int32),
        (lambda: meta(2, dtype=m.uint8) + meta(2, dtype=m.int8), (2,), m.int16),
        (lambda: meta(2, dtype=m.float16) + meta(2, dtype=m.bfloat16), (2,), m.float32),
        (lambda: meta(2, dtype=m.float16) + meta(dtype=m.float64), (2,), m.float16),
        (lambda: meta(2, dtype=m.int64) / meta(2, dtype=m.int64), (2,), m.float32),
        (lambda: meta(2, dtype=m.int64) // 2, (2,), m.int64),
        (lambda: meta(2, dtype=m.bool) & True, (2,), m.bool),
        (lambda: meta(2, 3) < 1, (2, 3), m.bool),
        (lambda: meta(2, dtype=m.int64).exp(), (2,), m.float32),
        (lambda: meta(2, dtype=m.complex64).abs(), (2,), m.float32),
        (lambda: m.where(meta(3, 1, dtype=m.bool), meta(2), 0), (3, 2), m.float32),
        (lambda: meta(2, 3).clamp(min=0), (2, 3), m.float32),
        (lambda: meta(2, 3, dtype=m.int32).sum(), (), m.int64),
        (lambda: meta(2, 3, 4).sum((0, -1)), (3,), m.float32),
        (lambda: meta(2, 3, 4).mean(1, keepdim=True), (2, 1, 4), m.float32),
        (lambda: meta(2, 3, dtype=m.complex64).var(1), (2,), m.float32),
        (lambda: meta(2, 3).argmax(), (), m.int64),
        (lambda: meta(2, 3, dtype=m.uint8).any(0), (3,), m.uint8),
        (lambda: meta(2, 3).softmax(-1), (2, 3), m.float32),
        (lambda: meta(2, 3).cumsum(0, dtype=m.float64), (2, 3), m.float64),
    ],
)
def test_meta_shape_and_dtype(call: Any, shape: tuple[int, ...], dtype: Any) -> None:
    result = call()
    assert result.device.type == META
    assert tuple(result.shape) == shape
    assert result.dtype is dtype


def test_meta_of_several_outputs_is_named() -> None:
    values, indices = meta(2, 3).max(1)
    assert tuple(values.shape) == tuple(indices.shape) == (2,)
    assert indices.dtype is m.int64
    found = meta(2, 5).topk(3)
    assert tuple(found.values.shape) == tuple(found.indices.shape) == (2, 3)


def test_unary_keeps_dense_strides() -> None:
    x = meta(2, 3).t()
    assert x.exp().stride() == x.stride()


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: meta(2) + meta(3), errors.ShapeError, r"size of tensor a \(2\) must match"),
        (lambda: meta(2).sum(2), errors.DimensionError, r"range of \[-1, 0\], but got 2"),
        (lambda: meta(2, 3).sum((0, 0)), errors.ShapeError, "dim 0 appears multiple times"),
        (lambda: -meta(2, dtype=m.bool), errors.DTypeError, "on a bool tensor is not supported"),
        (
            lambda: meta(2, dtype=m.bool) - meta(2, dtype=m.bool),
            errors.DTypeError,
            "two bool tensors",
        ),
        (lambda: meta(2, dtype=m.int64).mean(), errors.DTypeError, "could not infer output dtype"),
        (lambda: meta(0).max(), errors.ShapeError, "input.numel\\(\\) == 0"),
        (lambda: meta(2, 0).max(1), errors.DimensionError, "non-zero size"),
        (lambda: meta(2).clamp(), errors.ShapeError, "At least one of 'min' or 'max'"),
        (lambda: ~meta(2), errors.DTypeError, "integers and bool"),
        (lambda: meta(2, dtype=m.complex64) < 1, errors.DTypeError, "no order"),
        (
            lambda: m.div(meta(2), 2, rounding_mode="up"),
            errors.DTypeError,
            "'trunc', or 'floor' but found 'up'",
        ),
        (lambda: meta(2).add(1, alpah=2), errors.ArgumentError, "Did you mean 'alpha'"),
        (lambda: meta(2, dtype=m.int64).add(1, alpha=0.5), errors.DTypeError, "alpha must not be"),
        (lambda: meta(2, dtype=m.int64) ** -1, errors.DTypeError, "negative integer powers"),
        (lambda: meta(3).topk(4), errors.ShapeError, "k out of range"),
        (lambda: m.where(meta(2), 1, 0), errors.DTypeError, "condition to be a boolean tensor"),
    ],
)
def test_errors_name_the_trouble(call: Any, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_in_place_result_must_fit() -> None:
    x = m.ones(2, dtype=m.int64)
    with pytest.raises(errors.DTypeError, match="can't be cast"):
        x.add_(1.5)
    with pytest.raises(errors.ShapeError, match="doesn't match the broadcast shape"):
        m.ones(2).add_(m.ones(3, 2))
    with pytest.raises(errors.ShapeError, match="single memory location"):
        m.ones(1).expand(3).mul_(2)


def test_unsupported_operand_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        m.ones(2) + "x"
    with pytest.raises(TypeError):
        m.ones(2) ** "x"
