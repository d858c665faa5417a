"""Powers, chains, norms, conditions and older names, composed of factorisations and products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mortice._base.errors import DTypeError, InvalidState, ShapeError
from mortice._ops.formulas import call, conj
from mortice._ops.matrix import ct, inv, matrices, pinv, solve, svd, svdvals
from mortice._types import dtypes
from mortice._types.shapes import numel, wrap_dims


def matrix_power(self: Any, n: int) -> Any:
    shape = matrices("linalg.matrix_power", self, True)
    if n == 0:
        eye = call("eye", shape[-1], self._t, None, self.device, None)
        return eye.expand(shape).clone()
    base, power = (inv(self), -n) if n < 0 else (self, n)
    result: Any = None
    while power:
        if power & 1:
            result = base if result is None else result.matmul(base)
        power >>= 1
        if power:
            base = base.matmul(base)
    return result if n != 1 else result.clone()


def multi_dot(tensors: Sequence[Any]) -> Any:
    """The product in the order that needs the fewest multiplications."""
    if len(tensors) < 2:
        raise ShapeError(f"multi_dot(): expected at least 2 tensors but got {len(tensors)}")
    first = tensors[0].unsqueeze(0) if tensors[0].ndim == 1 else tensors[0]
    last = tensors[-1].unsqueeze(-1) if tensors[-1].ndim == 1 else tensors[-1]
    matrices = [first, *tensors[1:-1], last]
    for i, m in enumerate(matrices):
        if m.ndim != 2:
            raise ShapeError(f"multi_dot(): tensor {i} must be 2D but got {tensors[i].ndim}D")
    out = _product(
        matrices,
        _split(tuple(m._a.shape[0] for m in matrices) + (last._a.shape[1],)),
        0,
        len(matrices),
    )
    shape = [n for n, t in zip(out._a.shape, (tensors[0], tensors[-1])) if t.ndim == 2]
    return out.view(tuple(shape))


def _split(sizes: tuple[int, ...]) -> dict[tuple[int, int], int]:
    """Where each run of matrices is best split, by dynamic programming."""
    n = len(sizes) - 1
    cost = {(i, i + 1): 0 for i in range(n)}
    where: dict[tuple[int, int], int] = {}
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length
            options = {
                k: cost[i, k] + cost[k, j] + sizes[i] * sizes[k] * sizes[j] for k in range(i + 1, j)
            }
            where[i, j] = min(options, key=lambda k: options[k])
            cost[i, j] = options[where[i, j]]
    return where


def _product(matrices: list[Any], where: dict[tuple[int, int], int], i: int, j: int) -> Any:
    if j - i == 1:
        return matrices[i]
    k = where[i, j]
    return _product(matrices, where, i, k).mm(_product(matrices, where, k, j))


def vecdot(x: Any, y: Any, dim: int) -> Any:
    if not x._t.differentiable:
        raise DTypeError(
            f"linalg.vecdot: Expected a floating point or complex tensor. Got {x._t!r}"
        )
    return (conj(x) * y).sum(dim)


def _extreme(x: Any, dim: int, keepdim: bool, largest: bool) -> Any:
    """amax or amin; the largest of no norms is 0, as they are not negative."""
    if largest and not x._a.shape[dim]:
        return x.sum((dim,), keepdim)
    return x.amax((dim,), keepdim) if largest else x.amin((dim,), keepdim)


def matrix_norm(self: Any, ord: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    if len(dim) != 2:
        raise ShapeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {list(dim)}")
    a, b = wrap_dims(tuple(dim), self.ndim)
    x = self if dtype is None else self.to(dtype)
    if ord == "fro":
        return call("linalg_vector_norm", x, 2, (a, b), keepdim, None)
    if ord in ("nuc", 2, -2):
        moved = x.movedim((a, b), (-2, -1))
        s = svdvals(moved)
        out = s.sum(-1) if ord == "nuc" else _extreme(s, -1, False, ord == 2)
        if keepdim:
            for d in sorted((a, b)):
                out = out.unsqueeze(d)
        return out
    if ord not in (1, -1, math.inf, -math.inf):
        raise InvalidState(f"linalg.matrix_norm: Order {ord} not supported.")
    summed, reduced = (a, b) if abs(ord) == 1 else (b, a)
    column = x.abs().sum(summed, True)
    out = _extreme(column, reduced, True, ord > 0)
    return out if keepdim else out.squeeze((a, b))


def norm(self: Any, ord: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    if (
        ord is None
        or isinstance(ord, str)
        or (dim is not None and len(dim) == 2)
        or (dim is None and self.ndim == 2)
    ):
        if ord is None:
            return call("linalg_vector_norm", self, 2, dim, keepdim, dtype)
        if dim is None and self.ndim != 2 and isinstance(ord, str):
            raise ShapeError(
                "linalg.norm: If ord is specified but dim is None, the input must be 1D or 2D."
            )
        return matrix_norm(self, ord, (0, 1) if dim is None else dim, keepdim, dtype)
    if dim is None and self.ndim > 2:
        raise ShapeError(
            "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got "
            f"{self.ndim}D."
        )
    return call("linalg_vector_norm", self, ord, dim, keepdim, dtype)


def cond(self: Any, p: Any) -> Any:
    matrices("linalg.cond", self)
    if p is None or p in (2, -2):
        s = svdvals(self)
        largest, smallest = s.amax((-1,)), s.amin((-1,))
        return smallest / largest if p == -2 else largest / smallest
    return matrix_norm(self, p, (-2, -1), False, None) * matrix_norm(
        inv(self), p, (-2, -1), False, None
    )


def vander(x: Any, N: int | None) -> Any:
    x = x.unsqueeze(0) if not x._a.shape else x
    n = x._a.shape[-1] if N is None else N
    if n <= 1 and N is not None:
        raise ShapeError(f"N must be greater than 1, got {n}")
    ones = call("full", tuple(x._a.shape), 1, x._t, None, x.device, None).unsqueeze(-1)
    powers = x.unsqueeze(-1).expand((*x._a.shape, n - 1)).cumprod(-1)
    return call("cat", (ones, powers), -1)


def tensorinv(self: Any, ind: int) -> Any:
    if ind <= 0:
        raise ShapeError("Expected a strictly positive integer for 'ind'")
    shape = tuple(self._a.shape)
    rows, columns = numel(shape[:ind]), numel(shape[ind:])
    if rows != columns:
        raise ShapeError(
            f"Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), "
            f"but got {columns} != {rows}"
        )
    return inv(self.reshape((rows, columns))).reshape((*shape[ind:], *shape[:ind]))


def tensorsolve(self: Any, other: Any, dims: Any) -> Any:
    x = self
    if dims is not None:
        moved = wrap_dims(tuple(dims), self.ndim)
        x = self.movedim(moved, tuple(range(self.ndim - len(moved), self.ndim)))
    shape = tuple(x._a.shape)[other.ndim :]
    rows = numel(shape)
    if x.numel() != rows * rows or other.numel() != rows:
        raise ShapeError(
            f"Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == "
            f"prod(self.shape[:other.ndim]), but got {rows} != {other.numel()}"
        )
    return solve(x.reshape((rows, rows)), other.reshape((rows,)), True).reshape(shape)


def matrix_exp(self: Any) -> Any:
    """Scaling and squaring of a Taylor polynomial of degree 18.

    A is halved until its 1-norm is at most 1; there the remainder is below 2e-17.
    """
    wide = {"float32": dtypes.float64, "complex64": dtypes.complex128}.get(self._t.name)
    if self._t.itemsize == 2 and self._t.is_floating_point:
        wide = dtypes.float32
    if wide is not None:  # each squaring doubles the relative error
        return matrix_exp(self.to(wide)).to(self._t)
    shape = matrices("linalg.matrix_exp", self, True)
    n = shape[-1]
    eye = call("eye", n, self._t, None, self.device, None).expand(shape)
    if not numel(shape):
        return self.clone()
    largest = float(self.detach().abs().sum(-2).max().item())
    squarings = (
        max(0, math.ceil(math.log2(largest))) if largest > 1 and math.isfinite(largest) else 0
    )
    x = self * (0.5**squarings)
    result = eye + x
    term = x
    for k in range(2, 19):
        term = term.matmul(x) * (1.0 / k)
        result = result + term
    for _ in range(squarings):
        result = result.matmul(result)
    return result


# -- PyTorch's older names ---------------------------------------------------------------------------


def svd_old(self: Any, some: bool, compute_uv: bool) -> Any:
    if not compute_uv:
        *batch, m, n = self._a.shape
        u = self.new_zeros((*batch, m, m))
        return u, svdvals(self), self.new_zeros((*batch, n, n))
    u, s, vh = svd(self, not some)
    return u, s, ct(vh)


def qr_old(self: Any, some: bool) -> Any:
    return call("linalg_qr", self, "reduced" if some else "complete")


def pinverse(self: Any, rcond: float) -> Any:
    return pinv(self, 0.0, rcond, False)


__all__ = [name for name in dir() if not name.startswith("_")]
