"""Factorisations by numpy's LAPACK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from mortice import int32
from mortice.backend import shape_rule, wrap
from mortice.errors import InvalidState


def _each(shape: tuple[int, ...], run: Callable[[tuple[int, ...]], None]) -> Any:
    """Run on every matrix of a batch; numbers those that failed, as LAPACK's info does."""
    info = np.zeros(shape, np.int32)
    for place in np.ndindex(*shape):
        try:
            run(place)
        except np.linalg.LinAlgError:
            info[place] = 1
    return info


def _raise_if(failed: Any, name: str, what: str) -> None:
    if failed.any():
        first = np.flatnonzero(failed.reshape(-1))[0]
        where = f" (Batch element {first})" if failed.ndim else ""
        raise InvalidState(f"{name}:{where} {what}")


def inv_ex(A: Any, check_errors: bool) -> Any:
    shape_rule("linalg_inv_ex")(A, check_errors)
    a = A._a
    info = np.zeros(a.shape[:-2], np.int32)
    try:
        r = np.linalg.inv(a)
    except np.linalg.LinAlgError:
        r = np.full_like(a, np.inf)

        def one(place: tuple[int, ...]) -> None:
            r[place] = np.linalg.inv(a[place])

        info = _each(a.shape[:-2], one)
    if check_errors:
        _raise_if(
            info, "linalg.inv",
            "The diagonal element is zero, the inversion could not be completed because the input "
            "matrix is singular.",
        )  # fmt: skip
    return wrap(r, A._t), wrap(info, int32)


def det(A: Any) -> Any:
    _, dtype = shape_rule("linalg_det")(A)
    return wrap(np.asarray(np.linalg.det(A._a), dtype.numpy), dtype)


def slogdet(A: Any) -> Any:
    (_, first), (_, second) = shape_rule("linalg_slogdet")(A)
    sign, value = np.linalg.slogdet(A._a)
    return wrap(np.asarray(sign, first.numpy), first), wrap(np.asarray(value, second.numpy), second)


def solve(A: Any, B: Any) -> Any:
    shape, dtype = shape_rule("_solve")(A, B)
    if 0 in shape:
        return wrap(np.zeros(shape, dtype.numpy), dtype)
    try:
        return wrap(np.ascontiguousarray(np.linalg.solve(A._a, B._a)), dtype)
    except np.linalg.LinAlgError:
        raise InvalidState(
            "linalg.solve: The solver failed because the input matrix is singular."
        ) from None


def cholesky_ex(self: Any, upper: bool, check_errors: bool) -> Any:
    shape_rule("linalg_cholesky_ex")(self, upper, check_errors)
    a = self._a
    source = np.conj(np.swapaxes(a, -2, -1)) if upper else a
    info = np.zeros(a.shape[:-2], np.int32)
    try:
        r = np.linalg.cholesky(source)
    except np.linalg.LinAlgError:
        r = np.tril(source)

        def one(place: tuple[int, ...]) -> None:
            r[place] = np.linalg.cholesky(source[place])

        info = _each(a.shape[:-2], one)
    if check_errors:
        _raise_if(
            info, "linalg.cholesky",
            "The factorization could not be completed because the input is not positive-definite.",
        )  # fmt: skip
    r = np.conj(np.swapaxes(r, -2, -1)).copy() if upper else r
    return wrap(r, self._t), wrap(info, int32)


def qr(A: Any, mode: str) -> Any:
    (q_shape, dtype), (r_shape, _) = shape_rule("linalg_qr")(A, mode)
    a = A._a
    if a.size == 0:
        q = np.zeros(q_shape, a.dtype)
        if mode != "r":
            np.einsum("...ii->...i", q[..., : q_shape[-1], :])[...] = 1
        return wrap(q, dtype), wrap(np.zeros(r_shape, a.dtype), dtype)
    if mode == "r":
        return wrap(np.empty(0, a.dtype), dtype), wrap(np.linalg.qr(a, "r"), dtype)
    q, r = np.linalg.qr(a, cast("Any", mode))
    return wrap(q, dtype), wrap(np.ascontiguousarray(r), dtype)


def svd(A: Any, full_matrices: bool, compute_uv: bool) -> Any:
    (_, dtype), (_, real), _ = shape_rule("_linalg_svd")(A, full_matrices, compute_uv)
    try:
        if not compute_uv:
            s = np.linalg.svd(A._a, compute_uv=False)
            empty = np.empty(0, dtype.numpy)
            return wrap(empty, dtype), wrap(s, real), wrap(empty.copy(), dtype)
        u, s, vh = np.linalg.svd(A._a, full_matrices)
    except np.linalg.LinAlgError:
        raise InvalidState(
            "linalg.svd: The algorithm failed to converge because the input matrix is "
            "ill-conditioned or contains non-finite values."
        ) from None
    return wrap(u, dtype), wrap(s, real), wrap(vh, dtype)


def eigh(A: Any, UPLO: str, compute_v: bool) -> Any:
    (_, real), (_, dtype) = shape_rule("_linalg_eigh")(A, UPLO, compute_v)
    triangle: Any = UPLO.upper()
    if not compute_v:
        values = np.linalg.eigvalsh(A._a, triangle)
        return wrap(values, real), wrap(np.empty(0, dtype.numpy), dtype)
    values, vectors = np.linalg.eigh(A._a, triangle)
    return wrap(values, real), wrap(vectors, dtype)


def eig(self: Any) -> Any:
    (_, dtype), _ = shape_rule("linalg_eig")(self)
    values, vectors = np.linalg.eig(self._a)
    return wrap(values.astype(dtype.numpy), dtype), wrap(vectors.astype(dtype.numpy), dtype)


KERNELS: dict[str, Callable[..., Any]] = {
    "linalg_inv_ex": inv_ex,
    "linalg_det": det,
    "linalg_slogdet": slogdet,
    "_solve": solve,
    "linalg_cholesky_ex": cholesky_ex,
    "linalg_qr": qr,
    "_linalg_svd": svd,
    "_linalg_eigh": eigh,
    "linalg_eig": eig,
}
