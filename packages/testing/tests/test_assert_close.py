import math

import pytest

import mortice
from mortice.testing import assert_close


def t(*values, dtype=None):
    return mortice.tensor(list(values), dtype=dtype)


NAN, INF = math.nan, math.inf

CLOSE = [
    (1, 1),
    (1.0, 1.0 + 1e-9),
    (True, True),
    (1 + 2j, 1 + 2j),
    (INF, INF),
    (None, None),
    ([], ()),
    ([1, 2], (1, 2)),
    ({"a": [1.0]}, {"a": (1.0,)}),
]


@pytest.mark.parametrize(("actual", "expected"), CLOSE)
def test_close(actual, expected):
    assert_close(actual, expected)


DIFFERENT = [
    (1, 2, "1 found, 2 expected"),
    (1, 1.0, "an int 1 found, a float 1.0 expected"),
    (1, True, "a bool True expected"),
    (1.0, 1.001, "numbers differ"),
    (NAN, NAN, "numbers differ"),
    (INF, -INF, "numbers differ"),
    (None, 1, "None found, 1 expected"),
    ([1], [1, 2], "1 found, 2 expected"),
    ({"a": 1}, {"b": 1}, "missing 'b'; not expected 'a'"),
    ([{"x": 1}], [{"x": 2}], "in item [0]['x']"),
]


@pytest.mark.parametrize(("actual", "expected", "message"), DIFFERENT)
def test_different(actual, expected, message):
    with pytest.raises(AssertionError) as caught:
        assert_close(actual, expected)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("actual", "expected"), [("a", "a"), (object(), object()), (1, "a"), ([1.0], 1.0)]
)
def test_incomparable(actual, expected):
    with pytest.raises(TypeError, match="cannot compare"):
        assert_close(actual, expected)


def test_tensor_is_not_a_number_nor_a_list():
    with pytest.raises(TypeError, match="cannot compare"):
        assert_close(mortice.tensor(1.0), 1.0)
    with pytest.raises(TypeError, match="cannot compare"):
        assert_close(t(1.0, 2.0), [1.0, 2.0])


def test_message_names_worst_element_index_and_counts():
    with pytest.raises(AssertionError) as caught:
        assert_close(
            mortice.tensor([[1.0, 2.0, 3.0], [4.0, 5.5, 6.1]]),
            mortice.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
        )
    message = str(caught.value)
    assert "2 of 6 elements (33.3 %)" in message
    assert "largest absolute difference 0.5 at index (1, 1): 5.5 found, 5.0 expected" in message


def test_integers_must_be_equal():
    big = 2**60
    assert_close(t(big), t(big))
    with pytest.raises(AssertionError, match="must be equal"):
        assert_close(t(big), t(big + 1))


def test_booleans_must_be_equal():
    with pytest.raises(AssertionError, match="1 of 2 elements"):
        assert_close(t(True, False), t(True, True))


# (dtype, relative difference that passes, one that does not)
LIMITS = [
    ("float16", 9e-4, 4e-3),
    ("bfloat16", 1e-2, 3.2e-2),
    ("float32", 1e-6, 1e-4),
    ("float64", 5e-8, 1e-6),
    ("complex64", 1e-6, 1e-4),
]


@pytest.mark.parametrize(("name", "within", "beyond"), LIMITS)
def test_default_tolerances(name, within, beyond):
    dtype = getattr(mortice, name)
    one = t(100.0, dtype=dtype)
    assert_close(t(100.0 * (1 + within), dtype=dtype), one)
    with pytest.raises(AssertionError):
        assert_close(t(100.0 * (1 + beyond), dtype=dtype), one)


def test_looser_dtype_counts_when_dtypes_may_differ():
    found, wanted = t(1.0001, dtype=mortice.float64), t(1.0, dtype=mortice.float16)
    with pytest.raises(AssertionError, match="dtypes differ"):
        assert_close(found, wanted)
    assert_close(found, wanted, check_dtype=False)


def test_nan_and_infinity():
    assert_close(t(NAN, INF), t(NAN, INF), equal_nan=True)
    with pytest.raises(AssertionError, match="1 of 2"):
        assert_close(t(NAN, INF), t(NAN, INF))
    with pytest.raises(AssertionError):
        assert_close(t(INF), t(-INF), equal_nan=True)
    with pytest.raises(AssertionError):
        assert_close(t(1e30), t(INF))


def test_metadata():
    with pytest.raises(AssertionError, match="shapes differ"):
        assert_close(mortice.ones(2), mortice.ones(3))
    with pytest.raises(AssertionError, match="strides differ"):
        assert_close(mortice.ones(2, 3).t(), mortice.ones(3, 2), check_stride=True)
    assert_close(mortice.ones(2, 3).t(), mortice.ones(3, 2))


def test_tolerances_come_in_pairs():
    assert_close(t(1.0), t(1.1), rtol=0.2, atol=0.0)
    with pytest.raises(ValueError, match="without atol"):
        assert_close(t(1.0), t(1.0), rtol=0.1)


def test_msg_replaces_or_makes_the_message():
    with pytest.raises(AssertionError, match=r"^mine$"):
        assert_close(1, 2, msg="mine")
    with pytest.raises(AssertionError, match=r"^before: numbers differ"):
        assert_close(1, 2, msg=lambda text: "before: " + text)


def test_empty_and_zero_dimensional():
    assert_close(mortice.ones(0, 3), mortice.ones(0, 3))
    with pytest.raises(AssertionError, match=r"at index \(\)"):
        assert_close(mortice.tensor(1.0), mortice.tensor(2.0))
