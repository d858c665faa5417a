"""Factorisations and solvers: shape rules, composites, gradients.

Gradients follow M. Giles, "An extended collection of matrix derivative results" (2008), with
conjugate transposes for complex matrices. ``ct`` is the conjugate transpose.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mortice._base.errors import DTypeError, InvalidState, InvalidValue, ShapeError
from mortice._ops.formulas import call, conj
from mortice._types import dtypes
from mortice._types.shapes import broadcast, numel, wrap_dims


def ct(x: Any) -> Any:
    """Conjugate transpose of the last two dimensions."""
    return conj(x).transpose(-2, -1)


def _eps(x: Any) -> float:
    return 1.1920928955078125e-07 if x._t.to_real() is dtypes.float32 else 2.220446049250313e-16


# -- shape rules ---------------------------------------------------------------------------------


def _matrices(name: str, a: Any, square: bool = False) -> tuple[int, ...]:
    shape = tuple(a._a.shape)
    if len(shape) < 2:
        raise ShapeError(
            f"{name}: The input tensor A must have at least 2 dimensions, got {len(shape)}."
        )
    if square and shape[-1] != shape[-2]:
        raise ShapeError(
            f"{name}: A must be batches of square matrices, but they are {shape[-2]} by {shape[-1]} matrices"
        )
    if not a._t.differentiable or a._t.itemsize < 4:
        raise DTypeError(
            f"{name}: Expected a floating point or complex tensor of at least 32 bits as input. Got {a._t!r}"
        )
    return shape


def inv_ex(A: Any, check_errors: bool) -> Any:
    shape = _matrices("linalg.inv", A, True)
    return [(shape, A._t), (shape[:-2], dtypes.int32)]


def det(A: Any) -> Any:
    return _matrices("linalg.det", A, True)[:-2], A._t


def slogdet(A: Any) -> Any:
    shape = _matrices("linalg.slogdet", A, True)[:-2]
    return [(shape, A._t), (shape, A._t.to_real())]


def solve_rule(A: Any, B: Any) -> Any:
    a, b = _matrices("linalg.solve", A, True), tuple(B._a.shape)
    if A._t is not B._t:
        raise DTypeError(
            f"linalg.solve: Expected A and B to have the same dtype, got {A._t!r} and {B._t!r}"
        )
    if len(b) < 2 or b[-2] != a[-1]:
        raise ShapeError(
            f"linalg.solve: Incompatible shapes of A and B for the equation AX = B ({list(a[-2:])} and "
            f"{list(b[-2:])})"
        )
    return (*broadcast(a[:-2], b[:-2]), a[-1], b[-1]), A._t


def cholesky_ex(self: Any, upper: bool, check_errors: bool) -> Any:
    shape = _matrices("linalg.cholesky", self, True)
    return [(shape, self._t), (shape[:-2], dtypes.int32)]


def qr(A: Any, mode: str) -> Any:
    *batch, m, n = _matrices("linalg.qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise InvalidValue(
            f"linalg.qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), "
            "'r', or 'complete'"
        )
    k = min(m, n)
    q = (0,) if mode == "r" else (*batch, m, m if mode == "complete" else k)
    return [(q, A._t), ((*batch, m if mode == "complete" else k, n), A._t)]


def svd_rule(A: Any, full_matrices: bool, compute_uv: bool) -> Any:
    *batch, m, n = _matrices("linalg.svd", A)
    k = min(m, n)
    u = (*batch, m, m if full_matrices else k) if compute_uv else (0,)
    v = (*batch, n if full_matrices else k, n) if compute_uv else (0,)
    return [(u, A._t), ((*batch, k), A._t.to_real()), (v, A._t)]


def eigh_rule(A: Any, UPLO: str, compute_v: bool) -> Any:
    shape = _matrices("linalg.eigh", A, True)
    if UPLO.upper() not in ("L", "U"):
        raise ShapeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return [(shape[:-1], A._t.to_real()), (shape if compute_v else (0,), A._t)]


def eig(self: Any) -> Any:
    shape = _matrices("linalg.eig", self, True)
    return [(shape[:-1], self._t.to_complex()), (shape, self._t.to_complex())]


# -- inverses and solvers --------------------------------------------------------------------------


def inv(A: Any) -> Any:
    return call("linalg_inv_ex", A, True)[0]


def det_alias(self: Any) -> Any:
    return call("linalg_det", self)


def slogdet_alias(self: Any) -> Any:
    return call("linalg_slogdet", self)


def logdet(self: Any) -> Any:
    sign, value = call("linalg_slogdet", self)
    if self._t.is_complex:
        return sign.log() + value
    return call("where.ScalarSelf", sign == -1, math.nan, value)


def solve(A: Any, B: Any, left: bool) -> Any:
    a, b = tuple(A._a.shape), tuple(B._a.shape)
    is_vector = len(b) == 1 or (len(a) - 1 == len(b) and b == a[:-1])
    if is_vector:
        if not left:
            raise ShapeError(
                "linalg.solve: Vector broadcasting of the left hand side is not supported"
            )
        return call("_solve", A, B.unsqueeze(-1)).squeeze(-1)
    if left:
        return call("_solve", A, B)
    return ct(call("_solve", ct(A), ct(B)))


def solve_grad(needs: Sequence[bool], grad: Any, A: Any, result: Any) -> Any:
    for_b = call("_solve", ct(A), grad)
    return (-for_b.matmul(ct(result)) if needs[0] else None, for_b if needs[1] else None)


def solve_triangular(self: Any, B: Any, upper: bool, left: bool, unitriangular: bool) -> Any:
    a = self.triu(0) if upper else self.tril(0)
    if unitriangular:
        n = a._a.shape[-1]
        eye = call("eye", n, a._t, None, a.device, None)
        a = (self.triu(1) if upper else self.tril(-1)) + eye
    return solve(a, B, left)


def triangular_solve(self: Any, A: Any, upper: bool, transpose: bool, unitriangular: bool) -> Any:
    a, is_upper = (A.transpose(-2, -1), not upper) if transpose else (A, upper)
    return solve_triangular(a, self, is_upper, True, unitriangular), A.clone()


def det_grad(grad: Any, A: Any, result: Any) -> Any:
    """d det(A) = det(A) tr(A^-1 dA); by cofactors of the SVD where A is singular."""
    n = A._a.shape[-1]
    if n == 0:
        return A * 0
    factor = (grad * conj(result)).unsqueeze(-1).unsqueeze(-1)
    if bool((result == 0).any()):
        return _singular_det_grad(grad, A)
    return factor * ct(inv(A))


def _singular_det_grad(grad: Any, A: Any) -> Any:
    """det(U) det(Vh) U diag(products of the other singular values) Vh, finite for singular A."""
    u, s, vh = call("_linalg_svd", A, False, True)
    n = s._a.shape[-1]
    others = [
        call(
            "cat",
            (call("slice.Tensor", s, -1, 0, i, 1), call("slice.Tensor", s, -1, i + 1, n, 1)),
            -1,
        )
        for i in range(n)
    ]
    gamma = call("stack", tuple(call("prod.dim_int", o, -1, False, None) for o in others), -1)
    unit = call("linalg_det", u) * call("linalg_det", vh)
    core = (u * gamma.unsqueeze(-2).to(u._t)).matmul(vh)
    return (grad * conj(unit)).unsqueeze(-1).unsqueeze(-1) * core


def slogdet_grad(grads: Sequence[Any], A: Any, sign: Any) -> Any:
    grad_sign, grad_log = grads
    inverse = ct(inv(A))
    factor = None
    if grad_log is not None:
        factor = grad_log.to(A._t)
    if A._t.is_complex and grad_sign is not None:  # the phase turns with the imaginary part
        turn = (conj(grad_sign) * sign).imag.to(A._t) * 1j
        turn = -turn
        factor = turn if factor is None else factor + turn
    if factor is None:
        return None
    return factor.unsqueeze(-1).unsqueeze(-1) * inverse


# -- Cholesky --------------------------------------------------------------------------------------


def cholesky(self: Any, upper: bool) -> Any:
    return call("linalg_cholesky_ex", self, upper, True)[0]


def cholesky_checked(self: Any, upper: bool) -> Any:
    return cholesky(self, upper)


def cholesky_grad(grad: Any, factor: Any, upper: bool) -> Any:
    if grad is None:
        return None
    lower, g = (ct(factor), ct(grad)) if upper else (factor, grad)
    phi = ct(lower).matmul(g)
    phi = (phi.tril(0) + ct(phi.tril(-1))) * 0.5
    right = solve_triangular(ct(lower), phi, True, True, False)
    return ct(solve_triangular(ct(lower), ct(right), True, True, False))


def cholesky_inverse(self: Any, upper: bool) -> Any:
    factor = ct(self.triu(0)) if upper else self.tril(0)
    return inv(factor.matmul(ct(factor)))


def cholesky_solve(self: Any, input2: Any, upper: bool) -> Any:
    factor = ct(input2.triu(0)) if upper else input2.tril(0)
    return solve(factor.matmul(ct(factor)), self, True)


# -- QR, SVD, eigenvalues --------------------------------------------------------------------------


def _symmetric_from_lower(x: Any) -> Any:
    """The Hermitian matrix with the lower triangle of ``x``; its diagonal is real."""
    diagonal = x.diagonal(0, -2, -1)
    real = diagonal.real.to(x._t) if x._t.is_complex else diagonal
    below = x.tril(-1)
    return below + ct(below) + real.diag_embed()


def qr_grad(grads: Sequence[Any], q: Any, r: Any, mode: str) -> Any:
    gq, gr = grads
    m, n = q._a.shape[-2], r._a.shape[-1]
    k = r._a.shape[-2]
    if mode == "r":
        raise InvalidState(
            "The derivative of linalg.qr depends on Q, which is not computed in mode 'r'"
        )
    if mode == "complete" and m > n:
        raise InvalidState(
            "The QR decomposition is not differentiable when mode='complete' and nrows > ncols"
        )
    if gq is None and gr is None:
        return None
    if m >= n:
        return _tall_qr_grad(gq, gr, q, r)
    # A wide matrix: the first k columns by the square case, the rest by R = Q^H A.
    left = call("slice.Tensor", r, -1, 0, k, 1)
    gr_left = None if gr is None else call("slice.Tensor", gr, -1, 0, k, 1)
    right = None if gr is None else call("slice.Tensor", gr, -1, k, n, 1)
    if right is not None:
        rest = call("slice.Tensor", r, -1, k, n, 1)
        extra = q.matmul(rest).matmul(ct(right))
        gq = extra if gq is None else gq + extra
    first = _tall_qr_grad(gq, gr_left, q, left)
    second = (
        q.matmul(right)
        if right is not None
        else call("full", (*q._a.shape[:-1], n - k), 0, q._t, None, q.device, None)
    )
    return call("cat", (first, second), -1)


def _tall_qr_grad(gq: Any, gr: Any, q: Any, r: Any) -> Any:
    inner = None
    if gr is not None:
        inner = r.matmul(ct(gr))
    if gq is not None:
        part = ct(gq).matmul(q)
        inner = -part if inner is None else inner - part
    sym = _symmetric_from_lower(inner)
    total = q.matmul(sym)
    if gq is not None:
        total = total + gq
    return ct(solve_triangular(r, ct(total), True, True, False))


def svd(A: Any, full_matrices: bool) -> Any:
    return call("_linalg_svd", A, full_matrices, True)


def svdvals(A: Any) -> Any:
    needs = A.requires_grad
    return call("_linalg_svd", A, False, needs)[1]


def svd_grad(grads: Sequence[Any], u: Any, s: Any, vh: Any, full_matrices: bool) -> Any:
    gu, gs, gvh = grads
    if gu is None and gvh is None:
        if gs is None:
            return None
        k = s._a.shape[-1]
        left = call("slice.Tensor", u, -1, 0, k, 1)
        right = call("slice.Tensor", vh, -2, 0, k, 1)
        return (left * gs.unsqueeze(-2).to(u._t)).matmul(right)
    if full_matrices and u._a.shape[-1] != vh._a.shape[-2]:
        # The extra vectors are any basis of the rest: only the first k have a gradient.
        k = s._a.shape[-1]
        u, gu = (None if x is None else call("slice.Tensor", x, -1, 0, k, 1) for x in (u, gu))
        vh, gvh = (None if x is None else call("slice.Tensor", x, -2, 0, k, 1) for x in (vh, gvh))
    return _thin_svd_grad(gu, gs, gvh, u, s, vh)


def _thin_svd_grad(gu: Any, gs: Any, gvh: Any, u: Any, s: Any, vh: Any) -> Any:
    v = ct(vh)
    k = s._a.shape[-1]
    square = s * s
    gap = square.unsqueeze(-2) - square.unsqueeze(-1)
    eye = call("eye", k, s._t, None, s.device, None)
    f = (1 - eye) / (gap + eye)
    sigma = s.unsqueeze(-1)
    inner = None
    if gu is not None:
        j = ct(u).matmul(gu)
        inner = (f.to(u._t) * (j - ct(j))) * s.unsqueeze(-2).to(u._t)
    if gvh is not None:
        g = ct(gvh)
        j = vh.matmul(g)
        part = sigma.to(u._t) * (f.to(u._t) * (j - ct(j)))
        inner = part if inner is None else inner + part
    if gs is not None:
        part = gs.to(u._t).diag_embed()
        inner = part if inner is None else inner + part
    if u._t.is_complex and gu is not None:  # the phase of each pair of vectors is free
        phase = (ct(u).matmul(gu)).diagonal(0, -2, -1).imag / s
        inner = inner + (phase.to(u._t) * 1j).diag_embed()
    out = u.matmul(inner).matmul(vh)
    m, n = u._a.shape[-2], vh._a.shape[-1]
    if gu is not None and m > k:
        scaled = gu / s.unsqueeze(-2).to(u._t)
        out = out + (scaled - u.matmul(ct(u).matmul(scaled))).matmul(vh)
    if gvh is not None and n > k:
        scaled = gvh / s.unsqueeze(-1).to(u._t)
        out = out + u.matmul(scaled - scaled.matmul(v).matmul(vh))
    return out


def eigh(self: Any, UPLO: str) -> Any:
    return call("_linalg_eigh", self, UPLO, True)


def eigvalsh(self: Any, UPLO: str) -> Any:
    return call("_linalg_eigh", self, UPLO, self.requires_grad)[0]


def eigh_grad(grads: Sequence[Any], values: Any, vectors: Any) -> Any:
    gl, gv = grads
    if gl is None and gv is None:
        return None
    inner = None if gl is None else gl.to(vectors._t).diag_embed()
    if gv is not None:
        n = values._a.shape[-1]
        eye = call("eye", n, values._t, None, values.device, None)
        gap = values.unsqueeze(-2) - values.unsqueeze(-1)
        part = ct(vectors).matmul(gv) * ((1 - eye) / (gap + eye)).to(vectors._t)
        inner = part if inner is None else inner + part
    return vectors.matmul(inner).matmul(ct(vectors))


def eig_grad(grads: Sequence[Any], dtype: Any, values: Any, vectors: Any) -> Any:
    """Boeddeker et al. 2017, with the eigenvectors' norm kept at one and their phase free."""
    gl, gv = grads
    if gl is None and gv is None:
        return None
    adjoint = ct(vectors)
    inner = None if gl is None else gl.diag_embed()
    if gv is not None:
        n = values._a.shape[-1]
        along = adjoint.matmul(gv)
        size = along.diagonal(0, -2, -1).real.to(vectors._t).unsqueeze(-2)
        part = along - adjoint.matmul(vectors * size)
        eye = call("eye", n, values._t, None, values.device, None)
        gap = conj(values.unsqueeze(-2) - values.unsqueeze(-1))
        part = part * (1 - eye) / (gap + eye)
        inner = part if inner is None else inner + part
    assert inner is not None  # one of the two gradients is given
    found = call("_solve", adjoint, inner.matmul(adjoint))
    return found if dtype.is_complex else found.real


def eigvals(self: Any) -> Any:
    return call("linalg_eig", self)[0]


# -- composites of these -----------------------------------------------------------------------------


def _tolerance(s: Any, atol: Any, rtol: Any, rows: int, columns: int) -> Any:
    """Singular values at or below the tolerance count as zero."""
    if rtol is None:
        relative = max(rows, columns) * _eps(s)
        given = atol is not None and (hasattr(atol, "_k") or atol > 0)
        rtol = 0.0 if given else relative
    atol = 0.0 if atol is None else atol
    largest = s.amax((-1,), True) if s._a.shape[-1] else s
    if hasattr(rtol, "_k"):
        rtol = rtol.unsqueeze(-1)
    if hasattr(atol, "_k"):
        atol = atol.unsqueeze(-1)
    cut = largest * rtol
    if hasattr(atol, "_k"):
        return call(
            "maximum", cut, atol.to(cut._t).expand_as(cut) if atol.ndim else atol.to(cut._t)
        )
    return cut.clamp(min=float(atol))


def pinv(self: Any, atol: Any, rtol: Any, hermitian: bool) -> Any:
    if hasattr(atol, "_k") or hasattr(rtol, "_k"):
        return pinv_values(self, atol, rtol, hermitian)
    return call("_linalg_pinv", self, atol, rtol, hermitian)


def pinv_rule(self: Any, atol: Any, rtol: Any, hermitian: bool) -> Any:
    *batch, m, n = _matrices("linalg.pinv", self)
    return (*batch, n, m), self._t


def pinv_grad(grad: Any, a: Any, p: Any) -> Any:
    """Golub and Pereyra 1973, of constant rank: unlike the SVD's it exists at equal values."""
    g, ph = ct(grad), ct(p)
    if a._a.shape[-2] <= a._a.shape[-1]:
        k = g.matmul(p)
        kph = k.matmul(ph)
        inner = ph.matmul(p).matmul(g - k.matmul(a))
        return kph - ct(p.matmul(k)) - a.matmul(p).matmul(kph) + inner
    k = p.matmul(g)
    phk = ph.matmul(k)
    inner = (g - a.matmul(k)).matmul(p).matmul(ph)
    return inner - ct(k.matmul(p)) + phk - phk.matmul(p).matmul(a)


def pinv_values(self: Any, atol: Any, rtol: Any, hermitian: bool) -> Any:
    shape = _matrices("linalg.pinv", self)
    if not numel(shape):
        return ct(self).clone()
    if hermitian:
        values, vectors = eigh(self, "L")
        size = values.abs()
        small = size <= _tolerance(size, atol, rtol, shape[-2], shape[-1])
        inverse = call("where.ScalarSelf", small, 0.0, 1 / values.masked_fill(small, 1.0))
        return (vectors * inverse.unsqueeze(-2).to(vectors._t)).matmul(ct(vectors))
    u, s, vh = svd(self, False)
    small = s <= _tolerance(s, atol, rtol, shape[-2], shape[-1])
    inverse = call("where.ScalarSelf", small, 0.0, 1 / s.masked_fill(small, 1.0))
    return (ct(vh) * inverse.unsqueeze(-2).to(u._t)).matmul(ct(u))


def pinv_rcond(self: Any, rcond: float, hermitian: bool) -> Any:
    return pinv(self, 0.0, rcond, hermitian)


def matrix_rank(self: Any, atol: Any, rtol: Any, hermitian: bool) -> Any:
    shape = _matrices("linalg.matrix_rank", self)
    s = eigvalsh(self, "L").abs() if hermitian else svdvals(self)
    if not s._a.shape[-1]:
        return call("full", shape[:-2], 0, dtypes.int64, None, self.device, None)
    return (s > _tolerance(s, atol, rtol, shape[-2], shape[-1])).sum(-1)


def matrix_rank_tol(self: Any, tol: float, hermitian: bool) -> Any:
    return matrix_rank(self, tol, 0.0, hermitian)


def matrix_power(self: Any, n: int) -> Any:
    shape = _matrices("linalg.matrix_power", self, True)
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
    _matrices("linalg.cond", self)
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
    shape = _matrices("linalg.matrix_exp", self, True)
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
