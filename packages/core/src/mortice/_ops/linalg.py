"""Matrix products: shape rules, composites and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mortice._base.errors import DTypeError, InvalidValue, ShapeError
from mortice._ops.formulas import call, conj, scaled
from mortice._types import dtypes
from mortice._types.promotion import promote
from mortice._types.shapes import broadcast, numel, wrap_dim

# -- shape rules ---------------------------------------------------------------------------------


def _same_dtype(name: str, a: Any, b: Any) -> Any:
    if a._t is not b._t:
        raise DTypeError(
            f"{name}: expected both matrices to have the same dtype, but got: {a._t!r} != "
            f"{b._t!r}. Convert one with .to(dtype)."
        )
    return a._t


def _rank(name: str, x: Any, rank: int, which: str) -> None:
    if len(x._a.shape) != rank:
        raise ShapeError(
            f"{name}: {which} must be {'a matrix' if rank == 2 else f'a {rank}D tensor'}, got "
            f"{len(x._a.shape)}D tensor of shape {list(x.shape)}"
        )


def mm(self: Any, mat2: Any) -> Any:
    _rank("mm", self, 2, "self")
    _rank("mm", mat2, 2, "mat2")
    (n, k), (k2, m) = self._a.shape, mat2._a.shape
    if k != k2:
        raise ShapeError(
            f"mat1 and mat2 shapes cannot be multiplied ({n}x{k} and {k2}x{m}): the columns of "
            "the first must equal the rows of the second."
        )
    return (n, m), _same_dtype("mm", self, mat2)


def bmm(self: Any, mat2: Any) -> Any:
    _rank("bmm", self, 3, "batch1")
    _rank("bmm", mat2, 3, "batch2")
    (b, n, k), (b2, k2, m) = self._a.shape, mat2._a.shape
    if b != b2 or k != k2:
        raise ShapeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{b}, {k}] but got: "
            f"[{b2}, {k2}]."
        )
    return (b, n, m), _same_dtype("bmm", self, mat2)


def addmm(self: Any, mat1: Any, mat2: Any, beta: Any, alpha: Any) -> Any:
    shape, dtype = mm(mat1, mat2)
    _same_dtype("addmm", self, mat1)
    _expandable("addmm", self, shape)
    return shape, dtype


def _expandable(name: str, x: Any, shape: Sequence[int]) -> None:
    found = tuple(broadcast(tuple(x._a.shape), shape))
    if len(found) != len(shape) or found != tuple(shape):
        raise ShapeError(
            f"{name}: The expanded size of the tensor {list(shape)} must match the existing size "
            f"{list(x.shape)}."
        )


def baddbmm(self: Any, batch1: Any, batch2: Any, beta: Any, alpha: Any) -> Any:
    shape, dtype = bmm(batch1, batch2)
    _same_dtype("baddbmm", self, batch1)
    _expandable("baddbmm", self, shape)
    return shape, dtype


def mv(self: Any, vec: Any) -> Any:
    _rank("mv", self, 2, "input")
    _rank("mv", vec, 1, "vec")
    (n, k), (k2,) = self._a.shape, vec._a.shape
    if k != k2:
        raise ShapeError(f"size mismatch, got input ({n}), mat ({n}x{k}), vec ({k2})")
    return (n,), _same_dtype("mv", self, vec)


def dot(self: Any, tensor: Any) -> Any:
    if len(self._a.shape) != 1 or len(tensor._a.shape) != 1:
        raise ShapeError(
            f"1D tensors expected, but got {len(self._a.shape)}D and {len(tensor._a.shape)}D tensors"
        )
    if self._a.shape != tensor._a.shape:
        raise ShapeError(
            "inconsistent tensor size, expected tensor "
            f"{list(self.shape)} and src {list(tensor.shape)} to have the same number of elements"
        )
    return (), _same_dtype("dot", self, tensor)


def linear(input: Any, weight: Any, bias: Any) -> Any:
    _same_dtype("linear", input, weight)
    w = weight._a.shape
    x = input._a.shape
    if len(w) not in (1, 2):
        raise ShapeError(f"linear(): weight must be 1D or 2D, got shape {list(w)}")
    if not x or x[-1] != w[-1]:
        rows = numel(x[:-1]) if x else 1
        raise ShapeError(
            f"linear(): mat1 and mat2 shapes cannot be multiplied ({rows}x{x[-1] if x else 1} and "
            f"{w[-1]}x{w[0] if len(w) == 2 else 1}): the input's last dimension must be the "
            f"weight's number of columns, {w[-1]}."
        )
    shape = (*x[:-1], w[0]) if len(w) == 2 else tuple(x[:-1])
    if bias is not None:
        _expandable("linear", bias, shape)
    return shape, input._t


# -- composites ----------------------------------------------------------------------------------


def linear_body(input: Any, weight: Any, bias: Any) -> Any:
    if bias is None:
        return input.matmul(weight.t())
    if len(input._a.shape) == 2 and len(weight._a.shape) == 2:
        return call("addmm", bias, input, weight.t(), 1, 1)
    return input.matmul(weight.t()) + bias


def matmul(self: Any, other: Any) -> Any:
    """Products of vectors, matrices and batches of matrices, with broadcast batches."""
    a, b = self._a.shape, other._a.shape
    if not a or not b:
        raise ShapeError(
            f"both arguments to matmul need to be at least 1D, but they are {len(a)}D and {len(b)}D"
        )
    if len(a) == 1 and len(b) == 1:
        return self.dot(other)
    if len(a) == 2 and len(b) == 1:
        return self.mv(other)
    if len(a) == 1 and len(b) == 2:
        return self.unsqueeze(0).mm(other).squeeze(0)
    if len(a) == 2 and len(b) == 2:
        return self.mm(other)
    return _batched(self, other)


def _batched(self: Any, other: Any) -> Any:
    a: tuple[int, ...] = tuple(self._a.shape)
    b: tuple[int, ...] = tuple(other._a.shape)
    if len(b) == 1:
        return _batched(self, other.unsqueeze(1)).squeeze(-1)
    if len(b) == 2:  # one matrix for all rows of the batch
        return self.reshape((numel(a[:-1]), a[-1])).mm(other).view((*a[:-1], b[1]))
    if len(a) == 1:
        return _batched(self.unsqueeze(0), other).squeeze(-2)
    batch = broadcast(a[:-2], b[:-2])
    if a[-1] != b[-2]:
        raise ShapeError(
            f"matmul(): shapes {list(a)} and {list(b)} cannot be multiplied: {a[-1]} columns "
            f"against {b[-2]} rows."
        )
    count = numel(batch)
    product = _one_batch(self, batch, count).bmm(_one_batch(other, batch, count))
    return product if len(batch) == 1 else product.view((*batch, a[-2], b[-1]))


def _one_batch(x: Any, batch: tuple[int, ...], count: int) -> Any:
    """Matrices in one batch of ``count``; views that change nothing are left out."""
    shape = tuple(x._a.shape)
    if shape[:-2] != batch:
        x = x.expand((*batch, *shape[-2:]))
    return x if len(batch) == 1 else x.reshape((count, *shape[-2:]))


def _add_scaled(self: Any, product: Any, beta: Any, alpha: Any) -> Any:
    """beta * self + alpha * product; in integer dtypes the factors are integers, too."""
    if product._t is dtypes.bool_:
        product = product if alpha else call("zeros_like", product, None, None, None, None, None)
        return product.logical_or(self) if beta else product
    if not product._t.differentiable:
        beta, alpha = int(beta), int(alpha)
    if alpha != 1:
        product = product * alpha
    return product if beta == 0 else product + (self if beta == 1 else self * beta)


def addmv(self: Any, mat: Any, vec: Any, beta: Any, alpha: Any) -> Any:
    return _add_scaled(self, mat.mv(vec), beta, alpha)


def vdot(self: Any, other: Any) -> Any:
    return conj(self).dot(other)


def inner(self: Any, other: Any) -> Any:
    if not self._a.shape or not other._a.shape:
        return self * other
    if self._a.shape[-1] != other._a.shape[-1]:
        raise ShapeError(
            "inner() the last dimension must match on both input tensors but got shapes "
            f"{list(self.shape)} and {list(other.shape)}"
        )
    return call("tensordot", self, other, (-1,), (-1,))


def outer(self: Any, vec2: Any) -> Any:
    for x in (self, vec2):
        if len(x._a.shape) != 1:
            raise ShapeError(f"outer: Expected 1-D argument, but got {len(x._a.shape)}-D")
    return self.unsqueeze(1) * vec2.unsqueeze(0)


def addr(self: Any, vec1: Any, vec2: Any, beta: Any, alpha: Any) -> Any:
    return _add_scaled(self, outer(vec1, vec2), beta, alpha)


#: Beyond as many products, the sum is taken at once, which is nearer to the exact one.
_MOST_ROUNDED = 64


def addbmm(self: Any, batch1: Any, batch2: Any, beta: Any, alpha: Any) -> Any:
    """The sum of the products. In half precision it is rounded after each of them, as PyTorch's is."""
    product = batch1.bmm(batch2)
    count = product._a.shape[0]
    halves = product._t in (dtypes.float16, dtypes.bfloat16)
    if halves and getattr(count, "hint", 0) is not None and 0 < count <= _MOST_ROUNDED:
        for one, two in zip(batch1.unbind(0), batch2.unbind(0)):
            self, beta = self.addmm(one, two, beta=beta, alpha=alpha), 1
        return self
    return _add_scaled(self, product.sum(0, dtype=product._t), beta, alpha)


def bilinear(input1: Any, input2: Any, weight: Any, bias: Any) -> Any:
    out = call("einsum", "...i,oij,...j->...o", (input1, weight, input2), None)
    return out if bias is None else out + bias


def kron(self: Any, other: Any) -> Any:
    n = max(len(self._a.shape), len(other._a.shape))
    a = (1,) * (n - len(self._a.shape)) + tuple(self._a.shape)
    b = (1,) * (n - len(other._a.shape)) + tuple(other._a.shape)
    left = self.reshape(tuple(x for s in a for x in (s, 1)))
    right = other.reshape(tuple(x for s in b for x in (1, s)))
    return (left * right).reshape(tuple(x * y for x, y in zip(a, b)))


def chain_matmul(matrices: Sequence[Any]) -> Any:
    if not matrices:
        raise InvalidValue("chain_matmul(): Expected one or more matrices")
    result = matrices[0]
    for m in matrices[1:]:
        result = result.mm(m)
    return result


def tensordot(self: Any, other: Any, dims_self: Sequence[int], dims_other: Sequence[int]) -> Any:
    a, b = tuple(self._a.shape), tuple(other._a.shape)
    if len(dims_self) != len(dims_other):
        raise ShapeError(
            "both dimension lists should have same length, got "
            f"{list(dims_self)} and {list(dims_other)}"
        )
    da = [wrap_dim(d, len(a)) for d in dims_self]
    db = [wrap_dim(d, len(b)) for d in dims_other]
    for x, y in zip(da, db):
        # A size of 1 is broadcast: the other operand is summed over that dimension.
        if b[y] == 1 and a[x] != 1:
            self = call("sum.dim_IntList", self, (x,), True, self._t)
        elif a[x] == 1 and b[y] != 1:
            other = call("sum.dim_IntList", other, (y,), True, other._t)
        elif a[x] != b[y]:
            raise ShapeError(
                "contracted dimensions need to match, but first has size "
                f"{a[x]} in dim {x} and second has size {b[y]} in dim {y}"
            )
    a, b = tuple(self._a.shape), tuple(other._a.shape)
    keep_a = [d for d in range(len(a)) if d not in da]
    keep_b = [d for d in range(len(b)) if d not in db]
    k = numel(a[d] for d in da)
    left = self.permute((*keep_a, *da)).reshape((numel(a[d] for d in keep_a), k))
    right = other.permute((*db, *keep_b)).reshape((k, numel(b[d] for d in keep_b)))
    return left.mm(right).reshape((*(a[d] for d in keep_a), *(b[d] for d in keep_b)))


def cross(self: Any, other: Any, dim: int | None) -> Any:
    if dim is None:
        dim = next((i for i, n in enumerate(self._a.shape) if n == 3), None)
        if dim is None:
            raise ShapeError("no dimension of size 3 in input")
    return linalg_cross(self, other, dim)


def linalg_cross(self: Any, other: Any, dim: int) -> Any:
    shape = broadcast(tuple(self._a.shape), tuple(other._a.shape))
    if self.ndim != other.ndim:
        raise ShapeError(
            "linalg.cross: inputs must have the same number of dimensions, found "
            f"{self.ndim} and {other.ndim}."
        )
    d = wrap_dim(dim, len(shape))
    if self._a.shape[d] != 3 or other._a.shape[d] != 3:
        raise ShapeError(
            f"linalg.cross: inputs dimension {dim} must have length 3. Got {self._a.shape[d]} and "
            f"{other._a.shape[d]}."
        )
    a, b = self.expand(shape), other.expand(shape)
    x = [a.select(d, i) for i in range(3)]
    y = [b.select(d, i) for i in range(3)]
    parts = [x[(i + 1) % 3] * y[(i + 2) % 3] - x[(i + 2) % 3] * y[(i + 1) % 3] for i in range(3)]
    return call("stack", tuple(parts), d)


def einsum(equation: str, tensors: Sequence[Any], path: Any) -> Any:
    """Sums of products in Einstein's notation, contracted from left to right by matmul."""
    from mortice._ops.einsum import contract

    return contract(equation, tensors)


# -- gradients -------------------------------------------------------------------------------------


def linear_input_grad(grad: Any, weight: Any) -> Any:
    w = conj(weight)
    if len(w._a.shape) == 1:
        return grad.unsqueeze(-1) * w
    return grad.mm(w) if len(grad._a.shape) == 2 else grad.matmul(w)


def linear_weight_grad(grad: Any, input: Any) -> Any:
    x = conj(input)
    if len(grad._a.shape) != 2 or len(x._a.shape) != 2:
        k = x._a.shape[-1]
        if len(grad._a.shape) == len(x._a.shape) - 1:  # a vector of weights
            return grad.reshape((1, -1)).mm(x.reshape((-1, k))).view((k,))
        grad, x = grad.reshape((-1, grad._a.shape[-1])), x.reshape((-1, k))
    return grad.t().mm(x)


def linear_bias_grad(grad: Any) -> Any:
    """The bias is added to every row; the engine sums further where it was broadcast."""
    n = len(grad._a.shape)
    return grad if n < 2 else call("sum.dim_IntList", grad, tuple(range(n - 1)), False, None)


__all__ = [name for name in dir() if not name.startswith("_")] + ["promote", "scaled"]
