"""Padding. ``pad`` lists (before, after) pairs from the last dimension backwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mortice._base.errors import InvalidValue, ShapeError
from mortice._ops.formulas import call, zeros
from mortice._types.shapes import wrap_dim

Ints = Sequence[int]


def pairs(pad: Ints, ndim: int) -> list[tuple[int, int]]:
    """(before, after) per dimension, first dimension first."""
    out = [(0, 0)] * ndim
    for i in range(len(pad) // 2):
        out[ndim - 1 - i] = (pad[2 * i], pad[2 * i + 1])
    return out


# -- shape rules ---------------------------------------------------------------------------------


def constant_pad_nd(self: Any, pad: Ints, value: Any) -> Any:
    shape = tuple(self._a.shape)
    if len(pad) % 2:
        raise ShapeError(f"Length of pad must be even but instead it equals {len(pad)}")
    if len(pad) > 2 * len(shape):
        raise ShapeError(
            f"Length of pad should be no more than twice the number of dimensions of the input. "
            f"Pad length is {len(pad)} while the input has {len(shape)} dimensions."
        )
    out = tuple(n + a + b for n, (a, b) in zip(shape, pairs(pad, len(shape))))
    if any(n < 0 for n in out):
        raise ShapeError(
            f"The input size {list(shape)}, plus negative padding {list(pad)}, resulted in a "
            f"negative output size {list(out)}, which is invalid."
        )
    return out, self._t


def _edge_rule(self: Any, padding: Ints, name: str) -> Any:
    shape = tuple(self._a.shape)
    n = len(padding) // 2
    if len(shape) not in (n + 1, n + 2):
        raise ShapeError(
            f"{name}{n}d: Expected {n + 1}D or {n + 2}D tensor with a padding of {len(padding)} "
            f"values, but got input of shape {list(shape)}"
        )
    if any(m == 0 for m in shape[-n:]):
        raise ShapeError(f"{name}{n}d: Expected non-empty spatial sizes, got {list(shape)}")
    if name == "reflection_pad":
        for i, (a, b) in enumerate(pairs(padding, len(shape))):
            if max(a, b) >= shape[i] and (a or b):
                raise ShapeError(
                    f"Padding size should be less than the corresponding input dimension, but got: "
                    f"padding ({a}, {b}) at dimension {i} of input {list(shape)}"
                )
    out = tuple(m + a + b for m, (a, b) in zip(shape, pairs(padding, len(shape))))
    if any(m < 1 for m in out[-n:]):
        raise ShapeError(
            f"{name}{n}d: input {list(shape)} is too small. Calculated output {list(out)}"
        )
    return out, self._t


def reflection_pad(self: Any, padding: Ints) -> Any:
    return _edge_rule(self, padding, "reflection_pad")


def replication_pad(self: Any, padding: Ints) -> Any:
    return _edge_rule(self, padding, "replication_pad")


# -- composites ----------------------------------------------------------------------------------


def pad(self: Any, pad: Ints, mode: str, value: float | None) -> Any:
    """``nn.functional.pad``: mode is constant, reflect, replicate or circular."""
    if mode == "constant":
        return call("constant_pad_nd", self, tuple(pad), 0 if value is None else value)
    if value is not None and value != 0:
        raise InvalidValue(f"Padding mode {mode!r} doesn't take in value argument")
    if mode == "circular":
        return call("_pad_circular", self, tuple(pad))
    name = {"reflect": "reflection_pad", "replicate": "replication_pad"}.get(mode)
    if name is None:
        raise InvalidValue(
            f"Unrecognised padding mode {mode!r}; it is constant, reflect, replicate or circular"
        )
    n = len(pad) // 2
    if n not in (1, 2, 3) or len(self._a.shape) not in (n + 1, n + 2):
        raise ShapeError(
            "Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now, with "
            f"2, 4 or 6 values; got {len(pad)} values for input of {len(self._a.shape)} dimensions"
        )
    return call(f"{name}{n}d", self, tuple(pad))


def pad_circular(self: Any, pad: Ints) -> Any:
    out = self
    ndim = len(self._a.shape)
    for dim, (before, after) in enumerate(pairs(pad, ndim)):
        n = self._a.shape[dim]
        if before > n or after > n:
            raise ShapeError("Padding value causes wrapping around more than once.")
        if before < 0 or after < 0:  # what is cropped does not come back on the other side
            out = call("slice.Tensor", out, dim, max(-before, 0), n - max(-after, 0), 1)
            n = out._a.shape[dim]
        parts: list[Any] = []
        if before > 0:
            parts.append(call("slice.Tensor", out, dim, n - before, n, 1))
        parts.append(out)
        if after > 0:
            parts.append(call("slice.Tensor", out, dim, 0, after, 1))
        if len(parts) > 1:
            out = call("cat", tuple(parts), dim)
    return out.clone() if out is self or out._b is not None else out


# -- gradients -------------------------------------------------------------------------------------


def constant_pad_nd_grad(grad: Any, pad: Ints) -> Any:
    return call("constant_pad_nd", grad, tuple(-p for p in pad), 0)


def source_positions(n: int, before: int, after: int, mode: str) -> list[int]:
    """Which input element each output element of a padded dimension copies."""
    out: list[int] = []
    for i in range(-before, n + after):
        if mode == "edge":
            out.append(min(max(i, 0), n - 1))
        else:
            j = abs(i)
            out.append(j if j < n else 2 * (n - 1) - j)
    return out


def _source_index(n: int, before: int, after: int, mode: str, device: Any) -> Any:
    """``source_positions`` as an index tensor, computed by operators where sizes are symbolic."""
    if type(n) is int and type(before) is int and type(after) is int:
        from mortice._tensor.construct import tensor

        return tensor(source_positions(n, before, after, mode), device=device)
    places = call("arange.start", -before, n + after, None, None, device, None)
    if mode == "edge":
        return call("clamp", places, 0, n - 1)
    return (places.abs() - (n - 1)).abs().neg() + (n - 1)


def padded_grad(grad: Any, shape: Ints, padding: Ints, mode: str) -> Any:
    """Gradients of copies are added where they were copied from, one dimension at a time."""
    ndim = len(shape)
    for dim, (before, after) in enumerate(pairs(padding, ndim)):
        if not (before or after):
            continue
        d = wrap_dim(dim, ndim)
        index = _source_index(shape[d], before, after, mode, grad.device)
        target = (*grad._a.shape[:d], shape[d], *grad._a.shape[d + 1 :])
        grad = call("index_add", zeros(target, grad._t, grad.device), d, index, grad, 1)
    return grad


__all__ = [name for name in dir() if not name.startswith("_")]
