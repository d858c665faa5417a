import pytest

import mortice
from mortice.testing import make_tensor

# dtype, least and greatest default value
DTYPES = [
    ("bool", 0, 1), ("uint8", 0, 9), ("int8", -9, 9), ("int16", -9, 9), ("int32", -9, 9),
    ("int64", -9, 9), ("float16", -9, 9), ("bfloat16", -9, 9), ("float32", -9, 9),
    ("float64", -9, 9),
]  # fmt: skip


@pytest.mark.parametrize(("name", "least", "greatest"), DTYPES)
def test_default_range(name, least, greatest):
    dtype = getattr(mortice, name)
    x = make_tensor(500, dtype=dtype)
    assert x.dtype == dtype
    values = x.to(mortice.float64)
    assert least <= float(values.min()) < float(values.max()) <= greatest


def test_complex():
    x = make_tensor((3, 4), dtype=mortice.complex64)
    assert x.dtype == mortice.complex64
    assert tuple(x.shape) == (3, 4)
    assert bool((x.imag != 0).any())


def test_bounds():
    x = make_tensor(200, dtype=mortice.float32, low=2.0, high=2.5)
    assert 2.0 <= float(x.min()) <= float(x.max()) <= 2.5
    k = make_tensor(200, dtype=mortice.int64, low=3, high=5)
    assert set(k.tolist()) == {3, 4}
    with pytest.raises(ValueError, match="low must be below high"):
        make_tensor(2, dtype=mortice.float32, low=1, high=1)


def test_exclude_zero():
    x = make_tensor(500, dtype=mortice.int32, low=-1, high=2, exclude_zero=True)
    assert set(x.tolist()) == {-1, 1}


def test_noncontiguous():
    x = make_tensor(3, 4, dtype=mortice.float32, noncontiguous=True)
    assert tuple(x.shape) == (3, 4)
    assert not x.is_contiguous()
    assert make_tensor(1, dtype=mortice.float32, noncontiguous=True).is_contiguous()


def test_requires_grad():
    assert make_tensor(2, dtype=mortice.float32, requires_grad=True).requires_grad
    with pytest.raises(ValueError, match="requires_grad"):
        make_tensor(2, dtype=mortice.int64, requires_grad=True)


def test_seed_repeats():
    mortice.manual_seed(3)
    first = make_tensor(5, dtype=mortice.float32)
    mortice.manual_seed(3)
    assert make_tensor(5, dtype=mortice.float32).tolist() == first.tolist()
