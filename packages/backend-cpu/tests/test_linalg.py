"""Matrix products against numpy, half precision, gradients, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import mortice
from mortice.testing import gradcheck

RNG = np.random.default_rng(1)


def array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 4)),
        ((2, 3), (3, 4)),
        ((5, 2, 3), (3, 4)),
        ((5, 2, 3), (3,)),
        ((3,), (5, 3, 4)),
        ((5, 1, 2, 3), (6, 3, 4)),
        ((0, 3), (3, 4)),
    ],
)
def test_matmul_equals_numpy_and_differentiates(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = array(*a), array(*b)
    out = mortice.matmul(mortice.from_numpy(x), mortice.from_numpy(y))
    np.testing.assert_allclose(out.numpy(), x @ y, atol=1e-12)
    if 0 not in a:
        inputs = tuple(mortice.from_numpy(v).requires_grad_() for v in (x, y))
        assert gradcheck(mortice.matmul, inputs, fast_mode=True)


def test_addmm_scales_and_a_beta_of_zero_ignores_what_was_there() -> None:
    m, a, b = array(2, 4), array(2, 3), array(3, 4)
    t = [mortice.from_numpy(v) for v in (m, a, b)]
    np.testing.assert_allclose(
        mortice.addmm(*t, beta=2, alpha=0.5).numpy(), 2 * m + 0.5 * (a @ b), atol=1e-12
    )
    nan = mortice.full((2, 4), float("nan"), dtype=mortice.float64)
    assert not mortice.addmm(nan, t[1], t[2], beta=0).isnan().any()


def test_half_precision_is_summed_in_float32() -> None:
    a = mortice.full((1, 4096), 0.01, dtype=mortice.bfloat16)
    b = mortice.ones(4096, 1, dtype=mortice.bfloat16)
    exact = 4096 * a[0, 0].item()
    assert abs(a.mm(b).item() - exact) / exact < 2**-8


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", ((2, 3), (3, 4))),
        ("ij->ji", ((2, 3),)),
        ("ii->i", ((3, 3),)),
        ("ii", ((3, 3),)),
        ("bij,bjk->bik", ((5, 2, 3), (5, 3, 4))),
        ("...ij,...jk->...ik", ((5, 1, 2, 3), (6, 3, 4))),
        ("i,j->ij", ((2,), (3,))),
        ("ij,ij->", ((2, 3), (2, 3))),
        ("abc,cd,be->aed", ((2, 3, 4), (4, 5), (3, 6))),
    ],
)
def test_einsum_equals_numpy(equation: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    arrays = [array(*s) for s in shapes]
    out = mortice.einsum(equation, *map(mortice.from_numpy, arrays))
    np.testing.assert_allclose(out.numpy(), np.einsum(equation, *arrays), atol=1e-12)


def test_linear_with_and_without_bias() -> None:
    x, w, b = array(5, 2, 3), array(4, 3), array(4)
    t = [mortice.from_numpy(v).requires_grad_() for v in (x, w, b)]
    np.testing.assert_allclose(mortice.linear(*t).detach().numpy(), x @ w.T + b, atol=1e-12)
    assert gradcheck(mortice.linear, tuple(t), fast_mode=True)
    assert gradcheck(mortice.linear, tuple(t[:2]), fast_mode=True)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda o: o(2, 3).mm(o(2, 3)), r"cannot be multiplied \(2x3 and 2x3\)"),
        (lambda o: o(2, 3).mm(o(3)), "mat2 must be a matrix, got 1D"),
        (lambda o: o(2, 3).mm(o(3, 2).double()), "same dtype"),
        (lambda o: mortice.linear(o(2, 3), o(4, 5)), "the input's last dimension must be .* 5"),
        (lambda o: mortice.einsum("ij,jk", o(2, 3), o(4, 5)), "subscript j has size 4"),
    ],
)
def test_what_does_not_fit_is_named(call: object, complaint: str) -> None:
    with pytest.raises(RuntimeError, match=complaint):
        call(mortice.ones)  # type: ignore[operator]


def test_threads_are_set_for_kernels_and_blas_alike() -> None:
    before = mortice.get_num_threads()
    try:
        mortice.set_num_threads(1)
        assert mortice.get_num_threads() == 1
        with pytest.raises(RuntimeError, match="expects a positive integer, but got 0"):
            mortice.set_num_threads(0)
    finally:
        mortice.set_num_threads(before)


def test_results_go_by_their_names() -> None:
    a = mortice.tensor([[2.0, 0.0], [0.0, 3.0]], requires_grad=True)
    values = mortice.linalg.eigh(a).eigenvalues
    assert values.tolist() == [2.0, 3.0]
    values.sum().backward()
    assert a.grad is not None and a.grad.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert mortice.linalg.svd(a).S.tolist() == [3.0, 2.0]
    assert mortice.linalg.slogdet(a).sign.item() == 1.0
    assert repr(mortice.linalg.qr(a.detach())).startswith("mortice.return_types.linalg_qr(\nQ=")


def test_equal_promotes() -> None:
    x = mortice.tensor([1, 2])
    assert mortice.equal(x, mortice.tensor([1.0, 2.0]))
    assert not mortice.equal(x, mortice.tensor([1.0, 2.5]))
    assert not mortice.equal(x, mortice.tensor([1.0]))
