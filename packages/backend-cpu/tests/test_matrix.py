"""Factorisations by what they must satisfy, with gradients; Fourier transforms against numpy."""

from __future__ import annotations

import numpy as np
import pytest

import mortice
from mortice import fft, linalg
from mortice.testing import gradcheck

RNG = np.random.default_rng(5)


def leaf(*shape: int) -> mortice.Tensor:
    return mortice.from_numpy(RNG.standard_normal(shape)).requires_grad_()


def close(a: mortice.Tensor, b: mortice.Tensor) -> None:
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), atol=1e-10)


def test_inverse_solve_and_determinant() -> None:
    a, b = leaf(2, 4, 4), leaf(2, 4, 3)
    close(a @ linalg.inv(a), mortice.eye(4, dtype=mortice.float64).expand(2, 4, 4))
    close(a @ linalg.solve(a, b), b)
    close(linalg.solve(a, b.mT, left=False) @ a, b.mT)
    np.testing.assert_allclose(linalg.det(a).detach().numpy(), np.linalg.det(a.detach().numpy()))
    for f in (
        linalg.inv,
        linalg.det,
        lambda a: linalg.slogdet(a).logabsdet,
        lambda a: linalg.solve(a, b),
    ):
        assert gradcheck(f, (a,), fast_mode=True)


def test_the_determinant_of_a_singular_matrix_has_a_gradient() -> None:
    a = mortice.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=mortice.float64, requires_grad=True)
    linalg.det(a).backward()
    np.testing.assert_allclose(a.grad.numpy(), [[4.0, -2.0], [-2.0, 1.0]], atol=1e-12)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 4, 3)])
def test_qr_and_svd_multiply_back(shape: tuple[int, ...]) -> None:
    a = leaf(*shape)
    q, r = linalg.qr(a)
    close(q @ r, a)
    u, s, vh = linalg.svd(a, full_matrices=False)
    close((u * s.unsqueeze(-2)) @ vh, a)
    assert gradcheck(lambda a: linalg.qr(a).R, (a,), fast_mode=True)
    assert gradcheck(linalg.svdvals, (a,), fast_mode=True)


def test_cholesky_and_eigenvalues_of_symmetric_matrices() -> None:
    m = leaf(3, 4, 4)

    def positive(m):
        return m @ m.mT + mortice.eye(4, dtype=m.dtype)

    factor = linalg.cholesky(positive(m))
    close(factor @ factor.mT, positive(m))
    values, vectors = linalg.eigh(positive(m))
    close(vectors @ values.diag_embed() @ vectors.mT, positive(m))
    assert gradcheck(lambda m: linalg.cholesky(positive(m)), (m,), fast_mode=True)
    assert gradcheck(lambda m: linalg.eigvalsh(positive(m)), (m,), fast_mode=True)


def test_pseudo_inverse_rank_power_and_exponential() -> None:
    a = leaf(5, 3)
    close(linalg.pinv(a) @ a, mortice.eye(3, dtype=mortice.float64))
    low = mortice.ones(4, 4, dtype=mortice.float64)
    assert linalg.matrix_rank(low).item() == 1
    b = leaf(3, 3)
    close(linalg.matrix_power(b, 3), b @ b @ b)
    close(linalg.matrix_power(b, -1), linalg.inv(b))
    close(linalg.matrix_exp(b) @ linalg.matrix_exp(-b), mortice.eye(3, dtype=mortice.float64))
    assert gradcheck(linalg.matrix_exp, (b,), fast_mode=True)


@pytest.mark.parametrize("order", ["fro", "nuc", 1, -1, 2, -2, float("inf")])
def test_matrix_norms_equal_numpy(order: object) -> None:
    a = leaf(4, 3)
    expected = np.linalg.norm(a.detach().numpy(), order)
    np.testing.assert_allclose(linalg.matrix_norm(a, order).item(), expected)


def test_multi_dot_chooses_an_order_and_keeps_the_value() -> None:
    matrices = [leaf(2, 9), leaf(9, 3), leaf(3, 8), leaf(8, 1)]
    expected = np.linalg.multi_dot([m.detach().numpy() for m in matrices])
    np.testing.assert_allclose(linalg.multi_dot(matrices).detach().numpy(), expected)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: linalg.inv(mortice.zeros(2, 2)), "singular"),
        (lambda: linalg.inv(mortice.ones(2, 3)), "2 by 3 matrices"),
        (lambda: linalg.cholesky(-mortice.eye(2)), "not positive-definite"),
        (lambda: linalg.solve(mortice.eye(2), mortice.ones(3)), "Incompatible shapes"),
        (lambda: linalg.qr(mortice.eye(2), mode="full"), "unrecognized mode 'full'"),
    ],
)
def test_what_cannot_be_done_is_said(call: object, complaint: str) -> None:
    with pytest.raises((RuntimeError, ValueError), match=complaint):
        call()  # type: ignore[operator]


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_transforms_equal_numpy_and_differentiate(norm: str) -> None:
    x = leaf(3, 8)
    data = x.detach().numpy()
    for ours, theirs in ((fft.fft, np.fft.fft), (fft.rfft, np.fft.rfft), (fft.ihfft, np.fft.ihfft)):
        np.testing.assert_allclose(
            ours(x, norm=norm).detach().numpy(), theirs(data, norm=norm), atol=1e-12
        )
    close(fft.irfft(fft.rfft(x, norm=norm), norm=norm), x)
    close(fft.ifft2(fft.fft2(x, norm=norm), norm=norm).real, x)
    assert gradcheck(lambda x: fft.rfft(x, n=6, norm=norm).abs(), (x,), fast_mode=True)
    assert gradcheck(
        lambda x: fft.irfft(fft.rfft(x, norm=norm) * (1 + 2j), norm=norm), (x,), fast_mode=True
    )


def test_frequencies_and_shifts() -> None:
    np.testing.assert_allclose(fft.fftfreq(5, 0.5).numpy(), np.fft.fftfreq(5, 0.5), atol=1e-7)
    np.testing.assert_allclose(fft.rfftfreq(5).numpy(), np.fft.rfftfreq(5), atol=1e-7)
    assert fft.fftshift(mortice.arange(5)).tolist() == [3, 4, 0, 1, 2]
    with pytest.raises(ValueError, match="Invalid normalization mode: 'othro'"):
        fft.fft(mortice.ones(4), norm="othro")
