"""The device's own kernels in depth; falling back is an error here."""

from __future__ import annotations

from typing import Any

import pytest

import mortice
from mortice.testing import assert_close, make_tensor


@pytest.fixture(autouse=True)
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mortice.config, "fallback", "error")


def both(function: Any, *tensors: Any) -> tuple[Any, Any]:
    """The result on the device, the result on the CPU."""
    return function(*(t.to("opencl") for t in tensors)).cpu(), function(*tensors)


@pytest.mark.parametrize("size", [1, 63, 64, 16_384, 100_003])
@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "amax", "std", "argmax"])
def test_large_reductions(size: int, name: str) -> None:
    if name == "std" and size == 1:
        pytest.skip("of one value there is none")
    x = make_tensor(size, dtype=mortice.float32, device="cpu")
    assert_close(*both(lambda t: getattr(t, name)(), x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dims", [0, 1, 2, (0, 1), (0, 2), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("view", ["plain", "transposed", "sliced", "expanded"])
def test_reductions_of_any_strides(dims: int | tuple[int, ...], view: str) -> None:
    views = {
        "plain": lambda t: t,
        "transposed": lambda t: t.permute(2, 0, 1),
        "sliced": lambda t: t[::2, 1:, ::3],
        "expanded": lambda t: t[:, :1].expand(5, 9, 7),
    }
    x = make_tensor(5, 6, 7, dtype=mortice.float64, device="cpu")
    assert_close(*both(lambda t: views[view](t).sum(dims), x))
    assert_close(*both(lambda t: views[view](t).amax(dims, keepdim=True), x))


@pytest.mark.parametrize(
    ("m", "k", "n"), [(1, 1, 1), (15, 17, 33), (16, 16, 16), (64, 0, 3), (70, 130, 5)]
)
@pytest.mark.parametrize("dtype", [mortice.float32, mortice.float64])
def test_products(m: int, k: int, n: int, dtype: mortice.dtype) -> None:
    a = make_tensor(m, k, dtype=dtype, device="cpu", low=-1, high=1)
    b = make_tensor(n, k, dtype=dtype, device="cpu", low=-1, high=1)
    c = make_tensor(n, dtype=dtype, device="cpu")
    assert_close(*both(lambda x, y: x @ y.t(), a, b), rtol=1e-4, atol=1e-4)
    assert_close(*both(mortice.nn.functional.linear, a, b, c), rtol=1e-4, atol=1e-4)
    batches = make_tensor(3, m, k, dtype=dtype, device="cpu", low=-1, high=1)
    assert_close(*both(lambda x: x @ x.mT, batches), rtol=1e-4, atol=1e-4)


def test_a_summand_is_not_read_where_beta_is_0() -> None:
    nan = mortice.full((2, 2), float("nan"))
    one = mortice.ones(2, 2)
    assert_close(*both(lambda c, x: mortice.addmm(c, x, x, beta=0), nan, one))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    ("spatial", "options"),
    [
        ((9,), {}),
        ((9,), {"stride": 2, "padding": 1, "dilation": 2}),
        ((6, 7), {"stride": (2, 1), "padding": (0, 2)}),
        ((5, 4, 6), {"padding": 1}),
    ],
)
def test_convolutions(transposed: bool, groups: int, spatial: Any, options: Any) -> None:
    rank = len(spatial)
    name = f"conv_transpose{rank}d" if transposed else f"conv{rank}d"
    function = getattr(mortice.nn.functional, name)
    kernel = (3, 2, 3)[:rank]
    x = make_tensor(2, 4, *spatial, dtype=mortice.float32, device="cpu", low=-1, high=1)
    shape = (4, 6 // groups, *kernel) if transposed else (6, 4 // groups, *kernel)
    w = make_tensor(*shape, dtype=mortice.float32, device="cpu", low=-1, high=1)
    b = make_tensor(6, dtype=mortice.float32, device="cpu")

    def gradients(*tensors: Any) -> Any:
        leaves = [t.detach().requires_grad_(True) for t in tensors]
        out = function(*leaves, groups=groups, **options)
        (out * out).sum().backward()
        return mortice.cat([out.detach().reshape(-1), *(t.grad.reshape(-1) for t in leaves)])

    found, expected = both(gradients, x, w, b)
    assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_special_values() -> None:
    x = mortice.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1e-40, 3e38])
    for name in ("neg", "abs", "exp", "log", "sqrt", "relu", "sign", "isnan", "tanh", "sigmoid"):
        assert_close(*both(lambda t, n=name: getattr(t, n)(), x), equal_nan=True)
    assert_close(*both(lambda t: t.amax(0), x), equal_nan=True)
    assert_close(*both(lambda t: t.argmax(0), x), equal_nan=True)
    assert_close(*both(lambda t: t.clamp(-1, 1), x), equal_nan=True)
    assert_close(*both(lambda t: mortice.maximum(t, t.roll(1)), x), equal_nan=True)


@pytest.mark.parametrize("name", ["int64", "int32", "int16", "int8", "uint8", "bool"])
def test_integers(name: str) -> None:
    x = mortice.tensor([[0, 1, 2], [3, 100, 7]]).to(getattr(mortice, name))
    for function in (
        lambda t: t + t, lambda t: t * 2, lambda t: t + 0.5, lambda t: t / 2, lambda t: t > 1,
        lambda t: t & 1, lambda t: t.sum(), lambda t: t.amax(1), lambda t: t.float(),
        lambda t: t.exp(), lambda t: t.any(0),
    ):  # fmt: skip
        assert_close(*both(function, x))


def test_many_dimensions_are_walked_as_few() -> None:
    from mortice_opencl.source import collapsed

    assert collapsed([2, 3, 4], [[12, 4, 1], [12, 4, 1]]) == ([24], [[1], [1]])
    assert collapsed([2, 3, 4], [[12, 4, 1], [0, 4, 1]]) == ([2, 12], [[12, 1], [0, 1]])
    assert collapsed([2, 1, 4], [[4, 4, 1], [1, 9, 2]]) == ([2, 4], [[4, 1], [1, 2]])
    assert collapsed([], [[], []]) == ([1], [[0], [0]])
    x = make_tensor(2, 3, 2, 3, 2, 2, dtype=mortice.float32, device="cpu")
    y = make_tensor(3, 1, 3, 1, 2, dtype=mortice.float32, device="cpu")
    assert_close(*both(lambda a, b: a.permute(0, 1, 4, 3, 2, 5) * b, x, y))


def test_streams_overlap_and_are_ordered() -> None:
    module = mortice.opencl
    side = module.Stream()
    assert side.native_handle is not module.current_stream().native_handle
    a = make_tensor(300, 300, dtype=mortice.float32, device="cpu").to("opencl")
    start, end = module.Event(enable_timing=True), module.Event(enable_timing=True)
    start.record()
    b = a @ a
    side.wait_stream(module.current_stream())
    with module.stream(side):
        c = b @ a
        end.record()
    module.current_stream().wait_event(end)
    d = c + 1
    assert start.elapsed_time(end) > 0
    expected = a.cpu() @ a.cpu() @ a.cpu() + 1
    assert_close(d.cpu(), expected, rtol=1e-3, atol=1e-1)


def test_a_program_is_built_once() -> None:
    from mortice.backend import runtime

    x = mortice.ones(5, 5, device="opencl")
    _ = x + x
    built = len(runtime("opencl").programs)
    for _ in range(3):
        _ = x + x
        _ = x.reshape(25) + x.reshape(25)  # the same walk
    assert len(runtime("opencl").programs) == built
