"""Each operator of prims against PyTorch's on the same values."""

from __future__ import annotations

import re

import numpy as np
import pytest

import mortice
from mortice._dispatch.operator import get
from mortice._generated.registry import ROWS

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.parity,
    pytest.mark.filterwarnings("ignore:TypedStorage is deprecated"),  # what PyTorch says of itself
]

NAMES = sorted(n.removeprefix("prims::") for n in ROWS if n.startswith("prims::"))
RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def integers(*shape):
    return RNG.integers(-4, 5, shape)


POSITIVE = (np.abs(normal(3, 4)) + 0.1).astype(np.float32)
WILD = np.array([0.0, -0.0, 1, -1, 2.5, 30, -30, np.inf, -np.inf, np.nan, 1e-6, 100], np.float32)
BINARY_FLOAT = "add atan2 div eq fmax fmin fmod ge gt hypot le lt maximum minimum mul ne nextafter pow remainder sub".split()
BINARY_INT = "add bitwise_and bitwise_or bitwise_xor div eq fmod gcd ge gt le lt maximum minimum mul ne remainder sub".split()


class D:
    """A dtype by its name, in either library."""

    def __init__(self, name):
        self.name = name


class Dev:
    pass


def cases():
    """Operator -> [(args, kwargs)] with numpy arrays for tensors."""
    found = {}
    for name in NAMES:
        schema = str(get(f"prims::{name}").schema)
        if re.search(r"\(Tensor self\) -> Tensor$", schema):
            found[name] = [
                ((normal(3, 4),), {}),
                ((POSITIVE,), {}),
                ((WILD,), {}),
                ((normal(3, 4).T,), {}),
            ]
    found["bitwise_not"] = [((integers(3, 4),), {})]
    for name in ("bessel_j0", "bessel_j1"):  # of infinity, PyTorch's are nan
        finite = WILD[np.isfinite(WILD)]
        far = np.array([24.9, 25.1, 60.0, 3000.0], np.float32)
        found[name] = [((finite,), {}), ((normal(3, 4).T * 5,), {}), ((far,), {})]
    for name in BINARY_FLOAT:
        found[name] = [
            ((normal(3, 4), normal(3, 4)), {}),
            ((normal(3), np.float32(2.5)), {}),
            ((WILD, WILD[::-1].copy()), {}),
        ]
    for name in BINARY_INT:
        found.setdefault(name, []).append(((integers(3, 4), np.abs(integers(3, 4)) + 1), {}))
    a, b = np.abs(integers(5)), np.abs(integers(5))
    found["shift_left"] = found["shift_right_arithmetic"] = [((a, b), {})]
    big = np.array([0.5, 1, 2, 10, 50, 3, 0, 1], np.float32)
    found["igamma"] = found["igammac"] = [
        ((POSITIVE * 3, POSITIVE[::-1] * 4), {}),
        ((big, big[::-1].copy()), {}),
    ]
    found["zeta"] = [((POSITIVE + 1.5, POSITIVE), {})]
    z = normal(3, 4) + 1j * normal(3, 4)
    z = z.astype(np.complex64)
    for name in ("conj", "conj_physical", "real", "imag"):
        found[name] = [((z,), {})]
    found["abs"].append(((z,), {}))
    found["frexp"] = [((normal(5),), {})]
    x, cube = normal(3, 4), normal(2, 3, 4)
    like = {"dtype": D("float64"), "device": Dev(), "requires_grad": False}
    found |= {
        "_sink_tokens": [(([normal(0)],), {})],
        "amax": [((x, [0]), {}), ((x, [0, 1]), {})],
        "amin": [((x, [0]), {}), ((x, [0, 1]), {})],
        "sum": [((x, [0]), {}), ((x, [0, 1]), {}), ((integers(3, 2), [1]), {})],
        "prod": [((x, [0]), {}), ((cube, [0, 2]), {})],
        "var": [((x, [0], 1.0), {}), ((x, [0, 1], 0.0), {})],
        "as_strided": [((x, [2, 2], [4, 1], 1), {})],
        "as_strided_scatter": [((x, normal(2, 2), [2, 2], [4, 1], 1), {})],
        "broadcast_in_dim": [((normal(3, 1), [2, 3, 4], [1, 2]), {}), ((normal(), [2], []), {})],
        "cat": [(([x, x], 1), {})],
        "clone": [((x,), {})],
        "collapse": [((cube, 0, 1), {}), ((cube, 1, 1), {})],
        "collapse_view": [((cube, 0, 1), {}), ((cube, 0, 2), {})],
        "split_dim": [((x, 1, 2), {})],
        "squeeze": [((normal(1, 3, 1), [0, 2]), {})],
        "transpose": [((cube, [2, 0, 1]), {})],
        "view_of": [((x,), {})],
        "view_of_dtype": [((x, D("int32")), {})],
        "reshape": [((cube, [4, 6]), {})],
        "rev": [((x, [0, 1]), {})],
        "convert_element_type": [((x, D("int64")), {})],
        "device_put": [((x, Dev()), {})],
        "copy_strided": [((x, [1, 3]), {})],
        "copy_to": [((x, normal(3, 4)), {})],
        "resize": [((x, [2, 2]), {})],
        "item": [((normal(1),), {})],
        "maximum_value": [((D(d),), {}) for d in ("float32", "int32", "uint8", "bool")],
        "minimum_value": [((D(d),), {}) for d in ("float32", "int32", "uint8", "bool")],
        "fill": [((x, 2.5), {})],
        "where": [((x > 0, x, x + 1), {}), ((x > 0, x, np.float32(2)), {})],
        "full": [(([2, 3], 1.5), like)],
        "full_like": [((x, 1.5), like)],
        "iota": [((5,), {"start": 2, "step": 3, "dtype": D("int64"), "device": Dev(), "requires_grad": False})],
        "scalar_tensor": [((2.5,), {"dtype": D("float64"), "device": Dev()}), ((3,), {"dtype": D("int64"), "device": Dev()})],
        "svd": [],  # signs are free: see below
        "fft_c2c": [((z,), {"dim": [1], "forward": True}), ((z,), {"dim": [0, 1], "forward": False})],
        "fft_r2c": [((x,), {"dim": [1], "onesided": True})],
        "fft_c2r": [((z,), {"dim": [1], "last_dim_size": 6})],
    }  # fmt: skip
    return found


CASES = cases()
#: Made of memory or chance: tested below by what is true of them.
APART = {
    "empty",
    "empty_permuted",
    "empty_strided",
    "normal",
    "uniform",
    "svd",
    "_make_token",
    "xor_sum",
}


def into(library, value):
    """An argument in one of the libraries."""
    if isinstance(value, D):
        return getattr(library, value.name)
    if isinstance(value, Dev):
        return library.device("cpu")
    if isinstance(value, np.ndarray) and value.flags.c_contiguous:
        return library.from_numpy(value.copy())
    if isinstance(value, np.ndarray):
        return library.from_numpy(value.T.copy()).t()
    if isinstance(value, np.generic):
        return library.tensor(value.item(), dtype=getattr(library, value.dtype.name))
    if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
        return [into(library, x) for x in value]
    return value


def same(ours, theirs, tolerance=2e-5):
    if isinstance(theirs, (tuple, list)):
        for a, b in zip(ours, theirs):
            same(a, b)
        return
    if not isinstance(theirs, torch.Tensor):
        assert ours == theirs
        return
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert str(ours.dtype).removeprefix("mortice.") == str(theirs.dtype).removeprefix("torch.")
    assert tuple(ours.stride()) == tuple(theirs.stride())
    a, b = ours.resolve_conj().numpy(), theirs.resolve_conj().numpy()
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in APART])
def test_as_in_pytorch(name):
    assert CASES.get(name), f"{name} has no case"
    for args, kwargs in CASES[name]:
        ours, theirs = (
            getattr(library.ops.prims, name)(
                *(into(library, x) for x in args),
                **{k: into(library, v) for k, v in kwargs.items()},
            )
            for library in (mortice, torch)
        )
        same(ours, theirs)


def test_every_operator_is_there():
    theirs = {
        str(s.name).removeprefix("prims::")
        for s in torch._C._jit_get_all_schemas()
        if s.name.startswith("prims::")
    }
    assert theirs <= set(NAMES) | {"inductor_seeds"}


def test_xor_sum():
    """PyTorch has no kernel for it."""
    a = integers(3, 4)
    for dims, axes in (([0], 0), (None, (0, 1))):
        found = mortice.ops.prims.xor_sum(mortice.from_numpy(a), dims).numpy()
        np.testing.assert_array_equal(found, np.bitwise_xor.reduce(a, axis=axes))


def test_svd_recomposes():
    a = normal(4, 3)
    u, s, vh = mortice.ops.prims.svd(mortice.from_numpy(a), full_matrices=False)
    expected = torch.ops.prims.svd(torch.from_numpy(a), full_matrices=False)[1]
    np.testing.assert_allclose(s.numpy(), expected.numpy(), rtol=1e-5)
    np.testing.assert_allclose(((u * s) @ vh).numpy(), a, atol=1e-5)


def test_memory_and_chance():
    p = mortice.ops.prims
    options = {"dtype": mortice.float32, "device": mortice.device("cpu"), "requires_grad": True}
    assert p.empty([2, 3], **options).requires_grad
    for layout in ([0, 1, 2], [2, 0, 1]):
        expected = torch.ops.prims.empty_permuted(
            [2, 3, 4], layout, dtype=torch.float32, device=torch.device("cpu"), requires_grad=False
        )
        assert p.empty_permuted([2, 3, 4], layout, **options).stride() == expected.stride()
    assert p.empty_strided([2, 3], [1, 2], **options).stride() == (1, 2)
    x = p.normal([2000], mean=3.0, std=0.5, **{**options, "requires_grad": False})
    assert abs(x.mean().item() - 3) < 0.1 and abs(x.std().item() - 0.5) < 0.1
    y = p.uniform(
        [2000], low=2.0, high=3.0, dtype=mortice.float32, device=mortice.device("cpu"), stride=[1]
    )
    assert y.min().item() >= 2 and y.max().item() < 3
    assert p._make_token().numel() == 0


def test_gradients_are_refused_as_there():
    x = mortice.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="derivative for prims::sin is not implemented"):
        mortice.ops.prims.sin(x).sum().backward()
