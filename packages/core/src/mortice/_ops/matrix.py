"""Factorisations and solvers: shape rules, composites, gradients.

Gradients follow M. Giles, "An extended collection of matrix derivative results" (2008), with
conjugate transposes for complex matrices. ``ct`` is the conjugate transpose.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mortice._base.errors import DTypeError, InvalidState, InvalidValue, ShapeError
from mortice._ops.formulas import call, conj, has_values
from mortice._types import dtypes
from mortice._types.shapes import broadcast, numel


def ct(x: Any) -> Any:
    """Conjugate transpose of the last two dimensions."""
    return conj(x).transpose(-2, -1)


def _eps(x: Any) -> float:
    return 1.1920928955078125e-07 if x._t.to_real() is dtypes.float32 else 2.220446049250313e-16


# -- shape rules ---------------------------------------------------------------------------------


def matrices(name: str, a: Any, square: bool = False) -> tuple[int, ...]:
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
    shape = matrices("linalg.inv", A, True)
    return [(shape, A._t), (shape[:-2], dtypes.int32)]


def det(A: Any) -> Any:
    return matrices("linalg.det", A, True)[:-2], A._t


def slogdet(A: Any) -> Any:
    shape = matrices("linalg.slogdet", A, True)[:-2]
    return [(shape, A._t), (shape, A._t.to_real())]


def solve_rule(A: Any, B: Any) -> Any:
    a, b = matrices("linalg.solve", A, True), tuple(B._a.shape)
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
    shape = matrices("linalg.cholesky", self, True)
    return [(shape, self._t), (shape[:-2], dtypes.int32)]


def qr(A: Any, mode: str) -> Any:
    *batch, m, n = matrices("linalg.qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise InvalidValue(
            f"linalg.qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), "
            "'r', or 'complete'"
        )
    k = min(m, n)
    q = (0,) if mode == "r" else (*batch, m, m if mode == "complete" else k)
    return [(q, A._t), ((*batch, m if mode == "complete" else k, n), A._t)]


def svd_rule(A: Any, full_matrices: bool, compute_uv: bool) -> Any:
    *batch, m, n = matrices("linalg.svd", A)
    k = min(m, n)
    u = (*batch, m, m if full_matrices else k) if compute_uv else (0,)
    v = (*batch, n if full_matrices else k, n) if compute_uv else (0,)
    return [(u, A._t), ((*batch, k), A._t.to_real()), (v, A._t)]


def eigh_rule(A: Any, UPLO: str, compute_v: bool) -> Any:
    shape = matrices("linalg.eigh", A, True)
    if UPLO.upper() not in ("L", "U"):
        raise ShapeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return [(shape[:-1], A._t.to_real()), (shape if compute_v else (0,), A._t)]


def eig(self: Any) -> Any:
    shape = matrices("linalg.eig", self, True)
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
    if has_values(result) and bool((result == 0).any()):
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
    *batch, m, n = matrices("linalg.pinv", self)
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
    shape = matrices("linalg.pinv", self)
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
    shape = matrices("linalg.matrix_rank", self)
    s = eigvalsh(self, "L").abs() if hermitian else svdvals(self)
    if not s._a.shape[-1]:
        return call("full", shape[:-2], 0, dtypes.int64, None, self.device, None)
    return (s > _tolerance(s, atol, rtol, shape[-2], shape[-1])).sum(-1)


def matrix_rank_tol(self: Any, tol: float, hermitian: bool) -> Any:
    return matrix_rank(self, tol, 0.0, hermitian)


__all__ = [name for name in dir() if not name.startswith("_")]
