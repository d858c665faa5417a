"""Reading and writing by index, against numpy and against gradients by differences."""

from __future__ import annotations

import numpy as np
import pytest

import mortice
from mortice.errors import ArgumentError, DimensionError, DTypeError, InvalidValue, ShapeError
from mortice.testing import gradcheck, gradgradcheck

SHAPE = (3, 4, 5)


def numbers(*shape, dtype=np.float64):
    return np.random.default_rng(0).standard_normal(shape or SHAPE).astype(dtype)


def leaf(*shape):
    return mortice.from_numpy(numbers(*shape)).requires_grad_()


T = mortice.tensor
INDICES = [
    0,
    -1,
    slice(1, None, 2),
    (slice(None), 1),
    (..., 2),
    (1, ..., None),
    (None, 0, None, slice(0, 2)),
    (0, 1, 2),
    True,
    False,
    (slice(None), True),
    T([0, 2]),
    T([[0, -1], [1, 0]]),
    (slice(None), T([0, 3])),
    (T([0, 1]), slice(None), T([0, 4])),
    (T([0, 1]), T([0, 3])),
    (slice(None), T([0, 1]), T([0, 4])),
    (T([[0], [2]]), T([1, 2, 3])),
    [0, 2],
    (slice(None), [True, False, True, False]),
    np.array([2, 0]),
    np.int64(1),
    T(1),
    range(2),
    (),
    (T([], dtype=mortice.int64),),
]


def numpy_index(index):
    if isinstance(index, tuple):
        return tuple(numpy_index(i) for i in index)
    if isinstance(index, range):
        return list(index)
    return index.numpy() if hasattr(index, "numpy") else index


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_reading_is_numpys(index):
    a = numbers()
    found = mortice.from_numpy(a)[index]
    want = a[numpy_index(index)]
    assert tuple(found.shape) == want.shape
    assert np.array_equal(found.numpy(), want)


@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("kind", ["number", "zero_d", "full"])
def test_writing_is_numpys(index, kind):
    a = numbers()
    x = mortice.from_numpy(a.copy())
    key = numpy_index(index)
    value = {"number": 7.5, "zero_d": np.float64(2.5), "full": a[key] * 2}[kind]
    if np.size(value) == 0:
        return
    x[index] = 7.5 if kind == "number" else mortice.from_numpy(np.array(value))
    a[key] = value
    assert np.array_equal(x.numpy(), a)


def test_masks():
    a = numbers()
    x = mortice.from_numpy(a.copy())
    assert np.array_equal(x[x > 0].numpy(), a[a > 0])
    rows = T([True, False, True])
    assert np.array_equal(x[rows, 1].numpy(), a[[True, False, True], 1])
    plane = mortice.from_numpy(a[:, :, 0] > 0)
    assert np.array_equal(x[plane, 1:3].numpy(), a[a[:, :, 0] > 0][:, 1:3])
    x[x < 0] = 0
    assert np.array_equal(x.numpy(), np.maximum(a, 0))
    x[plane] = mortice.arange(5, dtype=mortice.float64)
    assert x[plane].shape[1] == 5


def test_views_and_copies():
    x = mortice.zeros(SHAPE)
    assert x[0, :, None]._base is x
    assert x[...]._base is x
    assert x[[0]]._base is None
    x[0][1][2] = 3
    assert x[0, 1, 2].item() == 3


def test_leading_ones_of_a_value_are_dropped_and_dtypes_converted():
    x = mortice.zeros(2, 3)
    x[0] = mortice.ones(1, 1, 3)
    x[1] = mortice.tensor([1, 2, 3])
    assert x.tolist() == [[1, 1, 1], [1, 2, 3]]
    y = mortice.zeros(2, dtype=mortice.uint8)
    y[0] = 300
    assert y[0].item() == 44


@pytest.mark.parametrize(
    ("run", "error", "text"),
    [
        (lambda x: x[3], DimensionError, "index 3 is out of bounds for dimension 0 with size 3"),
        (lambda x: x[0, 9], DimensionError, "index 9 is out of bounds for dimension 1 with size 4"),
        (lambda x: x[0, 0, 0, 0], DimensionError, "too many indices for tensor of dimension 3"),
        (lambda x: x[0, 0, 0][0], DimensionError, "invalid index of a 0-dim tensor"),
        (lambda x: x[::-1], InvalidValue, "step must be greater than zero"),
        (lambda x: x[1.5], DimensionError, "got float"),
        (lambda x: x["a"], TypeError, "got str"),
        (
            lambda x: x[T([7])],
            DimensionError,
            "index 7 is out of bounds for dimension 0 with size 3",
        ),
        (lambda x: x[T([0.5])], DimensionError, "must be long, int, byte or bool"),
        (lambda x: x[T([True])], DimensionError, r"mask \[1\] at index 0 does not match"),
        (
            lambda x: x[T([0, 1]), T([0, 1, 2])],
            DimensionError,
            r"broadcast together with shapes \[2\], \[3\]",
        ),
        (lambda x: x.__setitem__(0, [1]), ArgumentError, "can't assign a list"),
        (lambda x: x.__setitem__(0, mortice.ones(2)), ShapeError, "expanded size"),
        (
            lambda x: x.__setitem__(T([0]), mortice.ones(2, dtype=mortice.float64)),
            ShapeError,
            "shape mismatch: value tensor of shape",
        ),
        (lambda x: x.gather(0, T([[0]])), ShapeError, "same number of dimensions as input"),
        (lambda x: x.gather(0, T([[[9]]])), ShapeError, "index 9 is out of bounds"),
        (lambda x: x.index_select(0, T([5])), DimensionError, "index 5 is out of bounds"),
        (lambda x: x.index_add(0, T([0]), mortice.ones(1, 4, 5)), DTypeError, "same scalar type"),
        (lambda x: x.take(T([99])), DimensionError, "out of range"),
        (lambda x: x.scatter_reduce(0, T([[[0]]]), x, "median"), ShapeError, "got median"),
        (
            lambda x: mortice.embedding(x[0], T([9])),
            DimensionError,
            "index 9 for a table of 4 rows",
        ),
        (lambda x: mortice.embedding(x[0], T([0.0])), DTypeError, "Long, Int"),
    ],
)
def test_mistakes_are_named(run, error, text):
    with pytest.raises(error, match=text):
        run(mortice.from_numpy(numbers()))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int32", "bool"])
def test_repeated_places_add_up(dtype):
    kind = getattr(mortice, dtype)
    x = mortice.zeros(3, 2, dtype=kind)
    rows = T([0, 2, 0])
    ones = mortice.ones(3, 2, dtype=kind)
    want = [[1, 1], [0, 0], [1, 1]] if dtype == "bool" else [[2, 2], [0, 0], [1, 1]]
    assert x.index_add(0, rows, ones).tolist() == want
    assert x.index_put((rows,), ones, accumulate=True).tolist() == want
    wide = rows.unsqueeze(1).expand(3, 2)
    assert x.scatter_add(0, wide, ones).tolist() == want
    assert x.tolist() == [[0, 0]] * 3


def test_long_rows_add_up_as_short_ones_do():
    source = numbers(6, 200)
    rows = np.array([0, 3, 0, -1, 2, 3])
    want = np.zeros((4, 200))
    np.add.at(want, rows, source)
    x = mortice.zeros(4, 200, dtype=mortice.float64)
    found = x.index_put((mortice.from_numpy(rows),), mortice.from_numpy(source), accumulate=True)
    assert np.allclose(found.numpy(), want)


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_reductions_into_places(reduce, include_self):
    a = numbers(4)
    source = numbers(6)
    places = [0, 1, 0, 3, 3, 3]
    fold = {"sum": sum, "prod": np.prod, "mean": np.mean, "amax": max, "amin": min}[reduce]
    want = a.copy()
    for i in range(4):
        given = [source[k] for k in range(6) if places[k] == i]
        if given:
            want[i] = fold([a[i], *given] if include_self else given)
    x = mortice.from_numpy(a)
    found = x.scatter_reduce(
        0, T(places), mortice.from_numpy(source), reduce, include_self=include_self
    )
    assert np.allclose(found.numpy(), want)
    if reduce != "sum":
        other = x.index_reduce(
            0, T(places), mortice.from_numpy(source), reduce, include_self=include_self
        )
        assert np.allclose(other.numpy(), want)


def test_gather_takes_less_than_the_whole():
    a = numbers(3, 4)
    index = np.array([[3, 0], [1, 1]])
    found = mortice.from_numpy(a).gather(1, mortice.from_numpy(index))
    assert np.array_equal(found.numpy(), np.take_along_axis(a[:2], index, 1))
    turned = mortice.from_numpy(a.T).gather(0, mortice.from_numpy(index.T.copy()))
    assert np.array_equal(turned.numpy(), found.numpy().T)


def test_distinct_values():
    x = T([[3, 1], [3, 1], [2, 1]])
    values, inverse, counts = mortice.unique(x, return_inverse=True, return_counts=True)
    assert values.tolist() == [1, 2, 3]
    assert values[inverse].tolist() == x.tolist()
    assert counts.tolist() == [3, 1, 2]
    assert mortice.unique(x, dim=0).tolist() == [[2, 1], [3, 1]]
    assert mortice.unique_consecutive(T([1, 1, 2, 1])).tolist() == [1, 2, 1]
    assert mortice.isin(x, T([3, 2])).tolist() == [[True, False], [True, False], [True, False]]


def test_bags_of_embeddings():
    table = numbers(5, 3)
    where, starts = [0, 2, 4, 1, 1], [0, 2, 2]
    for mode, fold in enumerate((np.sum, np.mean, np.max)):
        found = mortice.ops.aten._embedding_bag(
            mortice.from_numpy(table), T(where), T(starts), False, mode
        )[0].numpy()
        assert np.allclose(found[0], fold(table[[0, 2]], axis=0))
        assert (found[1] == 0).all()
        assert np.allclose(found[2], fold(table[[4, 1, 1]], axis=0))


INDEX = T([2, 0, 2])
CASES = {
    "basic": lambda x: x[1:, None, ::2, ..., 0],
    "index": lambda x: x[INDEX, :, INDEX],
    "mask": lambda x: x[mortice.from_numpy(numbers() > 0)],
    "index_select": lambda x: x.index_select(1, INDEX),
    "gather": lambda x: x.gather(1, mortice.zeros(3, 2, 5, dtype=mortice.int64)),
    "take": lambda x: x.take(T([0, 7, 7])),
    "take_along_dim": lambda x: mortice.take_along_dim(x, INDEX.view(3, 1, 1), 1),
    "index_fill": lambda x: x.index_fill(0, T([1]), 3.0),
    "scatter": lambda x: x.scatter(0, mortice.zeros(1, 4, 5, dtype=mortice.int64), x[:1] * 2),
    "scatter_add": lambda x: x.scatter_add(2, INDEX.view(3, 1, 1).expand(3, 4, 2), x[:, :, :2]),
    "index_add": lambda x: x.index_add(1, INDEX, x[:, :3], alpha=2),
    "index_copy": lambda x: x.index_copy(1, T([1, 3]), x[:, :2] * 3),
    "select_scatter": lambda x: x.select_scatter(x[:, 0] * 2, 1, 3),
    "slice_scatter": lambda x: x.slice_scatter(x[:, :2] * 2, 1, 0, 4, 2),
    "diagonal_scatter": lambda x: x.diagonal_scatter(x[:, :, 0] * 2, 0, 1, 2),
    "as_strided_scatter": lambda x: x.as_strided_scatter(x[0, :2, :2] * 2, (2, 2), (5, 1), 3),
    "masked_scatter": lambda x: x.masked_scatter(mortice.from_numpy(numbers() > 0), x * 2),
    "prod": lambda x: x.scatter_reduce(
        0, mortice.zeros(2, 4, 5, dtype=mortice.int64), x[:2], "prod"
    ),
    "amax": lambda x: x.scatter_reduce(
        0, mortice.zeros(2, 4, 5, dtype=mortice.int64), x[:2] + 1, "amax"
    ),
    "mean": lambda x: x.index_reduce(1, INDEX, x[:, :3], "mean", include_self=False),
    "put": lambda x: x.put(T([0, 9]), x[0, 0, :2] * 2),
    "embedding": lambda x: mortice.embedding(x.reshape(12, 5), T([[0, 3], [3, 11]])),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients(name):
    assert gradcheck(CASES[name], (leaf(),))
    assert gradgradcheck(CASES[name], (leaf(),))


def _write_views(x, v):
    y = x * 1
    y[0] = v
    y[:, 1] = v[0] * 2
    y[1, 2, 3] = v[1, 1]
    y[T([2, 2]), T([0, 1])] = v[:2] * v[1]
    y[..., 4] *= 3
    return y * y


def test_gradients_through_writes():
    assert gradcheck(_write_views, (leaf(), leaf(4, 5)))


def test_writing_to_leaves_is_refused():
    x = leaf()
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        x[0] = 1.0
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        x[T([0])] = 1.0
    with mortice.no_grad():
        x[0] = 1.0
    assert x[0, 0, 0].item() == 1


def test_writes_are_counted():
    x = mortice.zeros(3)
    before = x._version
    x[0] = 1.0
    x[T([1])] = 2.0
    assert x._version == before + 2


def _write_parts(x):
    y = x * 1
    y.real[0] *= 3
    y.imag.add_(y.real)
    pairs = mortice.view_as_real(y)
    pairs[..., 1] = pairs[..., 0] * 2
    return mortice.view_as_real(y * y)


def _write_pairs(x):
    y = x * 1
    z = mortice.view_as_complex(y)
    z[1:].mul_(2j)
    return y * y + mortice.view_as_real(z)


def test_gradients_through_writes_to_views_of_another_dtype():
    a = numbers(3, 2, 2)
    assert gradcheck(
        _write_parts, (mortice.from_numpy(a[..., 0] + 1j * a[..., 1]).requires_grad_(),)
    )
    assert gradcheck(_write_pairs, (mortice.from_numpy(a).requires_grad_(),))
    assert not (leaf().view(mortice.int64)).requires_grad


def test_what_a_strided_view_reads_outside_its_tensor_has_no_gradient():
    memory = mortice.arange(6, dtype=mortice.float64)
    x = memory[2:4].detach().requires_grad_()
    seen = x.as_strided((3,), (1,), 0)
    assert seen.tolist() == [0, 1, 2]
    (seen * mortice.tensor([1.0, 2.0, 4.0])).sum().backward()
    assert x.grad.tolist() == [4, 0]
