import pytest

import mortice
from mortice.testing import GradcheckError, gradcheck, gradgradcheck, make_tensor

DOUBLE = mortice.float64
BOTH = pytest.mark.parametrize("fast", [False, True], ids=["slow", "fast"])


def leaf(*shape, dtype=DOUBLE, **options):
    return make_tensor(*shape, dtype=dtype, low=-2, high=2, requires_grad=True, **options)


class Wrong(mortice.autograd.Function):
    """Doubles; its backward triples."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 3


class WrongTwice(mortice.autograd.Function):
    """Squares; the first derivative is right, the second is cut off."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 2 * x.detach()


@BOTH
def test_right_gradients(fast):
    x, w = leaf(3, 4), leaf(4, 2, noncontiguous=True)
    assert gradcheck(lambda x, w: (x @ w).tanh(), (x, w), fast_mode=fast)
    assert gradgradcheck(lambda x, w: (x @ w).tanh(), (x, w), fast_mode=fast)


@BOTH
def test_complex(fast):
    c = leaf(3, dtype=mortice.complex128)
    assert gradcheck(lambda c: c.exp() * c, (c,), fast_mode=fast)
    assert gradcheck(lambda c: (c * c.conj()).real, (c,), fast_mode=fast)
    assert gradgradcheck(lambda c: c * c, (c,), fast_mode=fast)


@BOTH
def test_several_outputs_some_without_gradient(fast):
    x = leaf(3, 2)
    assert gradcheck(lambda x: (x.argmax(), x.sin(), [x.cos()]), (x,), fast_mode=fast)


def test_wrong_gradient_names_the_entry():
    with pytest.raises(GradcheckError, match=r"is 3 by backward, 2 by differences"):
        gradcheck(Wrong.apply, (leaf(2, 2),))
    assert not gradcheck(Wrong.apply, (leaf(2, 2),), raise_exception=False)


def test_wrong_gradient_in_fast_mode():
    with pytest.raises(GradcheckError, match="fast_mode=False names the entry"):
        gradcheck(Wrong.apply, (leaf(2, 2),), fast_mode=True)


@BOTH
def test_wrong_second_derivative(fast):
    x = leaf(3)
    assert gradcheck(WrongTwice.apply, (x,), fast_mode=fast)
    with pytest.raises(GradcheckError):
        gradgradcheck(WrongTwice.apply, (x,), fast_mode=fast)


@BOTH
def test_cut_graph(fast):
    with pytest.raises(GradcheckError, match="does not require grad"):
        gradcheck(lambda x: x.detach() * 2, (leaf(2),), fast_mode=fast)


def test_is_a_runtime_error():
    with pytest.raises(RuntimeError):
        gradcheck(Wrong.apply, (leaf(2),))


def test_nondeterministic_backward():
    class Drifts(mortice.autograd.Function):
        calls = 0

        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            Drifts.calls += 1
            return g * (2 + 1e-7 * Drifts.calls)

    with pytest.raises(GradcheckError, match="two backward runs"):
        gradcheck(Drifts.apply, (leaf(2),))
    assert gradcheck(Drifts.apply, (leaf(2),), nondet_tol=1e-3)


def test_nothing_requires_grad():
    with pytest.raises(ValueError, match="no input requires grad"):
        gradcheck(lambda x: x, (mortice.ones(2, dtype=DOUBLE),))


def test_single_precision_warns():
    with pytest.warns(UserWarning, match="float64 or complex128"):
        gradcheck(lambda x: x * 2, (leaf(2, dtype=mortice.float32),), raise_exception=False)


def test_expanded_input_is_refused():
    x = mortice.ones(1, dtype=DOUBLE).expand(3).requires_grad_()
    with pytest.raises(RuntimeError, match=r"share memory .*contiguous"):
        gradcheck(lambda x: x * 2, (x,))


@pytest.mark.parametrize("option", ["check_batched_grad", "check_forward_ad"])
def test_unsupported_option_says_so(option):
    with pytest.raises(ValueError, match=option):
        gradcheck(lambda x: x, (leaf(2),), **{option: True})


def test_given_cotangents_and_non_tensors():
    x = leaf(3)
    assert gradcheck(lambda x, k: x**k, (x, 3))
    assert gradgradcheck(lambda x, k: x**k, (x, 3), leaf(3))
    assert gradgradcheck(lambda x: x.sin(), (x,), gen_non_contig_grad_outputs=True)


def test_empty_input():
    assert gradcheck(lambda x: x * 2, (leaf(0, 3),))
