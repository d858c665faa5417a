"""Fake tensors: metadata without data, through views, writes and gradients."""

from __future__ import annotations

import copy
import threading

import pytest

import mortice
from mortice.errors import (
    DataDependentOutput,
    DeviceError,
    DynamicOutputShape,
    FakeTensorError,
    GuardOnDataDependent,
    InvalidValue,
    ShapeError,
)
from mortice.fake import FakeTensor, FakeTensorMode, ShapeEnv, is_fake, mode_of


@pytest.fixture
def env():
    return ShapeEnv()


@pytest.fixture
def mode(env):
    return FakeTensorMode(env)


def test_says_where_the_data_would_be(mode):
    x = mode.from_tensor(mortice.ones(2, 3))
    assert is_fake(x) and isinstance(x, FakeTensor) and isinstance(x, mortice.Tensor)
    assert x.device == mortice.device("cpu") and x.is_cpu and not x.is_meta
    assert x.shape == (2, 3) and x.stride() == (3, 1) and x.dtype == mortice.float32
    assert not isinstance(mortice.ones(2), FakeTensor)


def test_same_tensor_same_fake(mode):
    t = mortice.ones(2)
    assert mode.from_tensor(t) is mode.from_tensor(t)
    fake = mode.from_tensor(t)
    assert mode.from_tensor(fake) is fake
    with pytest.raises(InvalidValue, match="a fake already"):
        mode.from_tensor(fake, dynamic_dims=(0,))


def test_factories_inside_are_fake(mode):
    with mode:
        made = [
            mortice.zeros(2, 3), mortice.arange(5), mortice.randn(4), mortice.full((2,), 3),
            mortice.eye(3), mortice.tensor([[1.0, 2.0]]), mortice.empty_strided((2, 2), (1, 2)),
        ]  # fmt: skip
    assert all(is_fake(x) and mode_of(x) is mode for x in made)
    assert [tuple(x.shape) for x in made] == [(2, 3), (5,), (4,), (2,), (3, 3), (1, 2), (2, 2)]
    assert made[1].dtype == mortice.int64 and made[6].stride() == (1, 2)
    assert not is_fake(mortice.zeros(2))


def test_operators_outside_the_mode_stay_fake(mode):
    x = mode.from_tensor(mortice.ones(2, 3))
    y = mortice.nn.functional.layer_norm(x, (3,)) + x.new_zeros(3)
    assert is_fake(y) and tuple(y.shape) == (2, 3)


def test_views_share_a_storage(mode):
    x = mode.from_tensor(mortice.ones(3, 4))
    v = x.T[1:]
    assert is_fake(v) and tuple(v.shape) == (3, 3) and v.stride() == (1, 4)
    assert v.storage_offset() == 1 and v._base is x and v.untyped_storage() is x.untyped_storage()
    before = x._version
    v.add_(1)
    assert x._version == before + 1 == v._version


def test_fakes_of_tensors_that_share_share(mode):
    t = mortice.ones(4, 4)
    a, b = mode.from_tensor(t[0]), mode.from_tensor(t[1:])
    assert a.untyped_storage() is b.untyped_storage() and b.storage_offset() == 4


def test_out_is_resized_and_checked(mode):
    x = mode.from_tensor(mortice.ones(3))
    with mode:
        out = mortice.empty(0)
    assert mortice.add(x, x, out=out) is out and tuple(out.shape) == (3,)
    with pytest.raises(RuntimeError, match="can't be cast"), mode:
        mortice.add(x, x, out=mortice.empty(3, dtype=mortice.int64))


def test_errors_of_shapes_are_those_of_real_tensors(mode):
    x = mode.from_tensor(mortice.ones(2, 3))
    with pytest.raises(ShapeError):
        x @ x
    with pytest.raises(ShapeError, match="doesn't match the broadcast"):
        x[0].add_(x)


def test_real_tensors_are_refused_unless_allowed(mode):
    x = mode.from_tensor(mortice.ones(3))
    with pytest.raises(FakeTensorError, match=r"aten::add.Tensor: argument 'other' \(position 2\)"):
        x + mortice.ones(3)
    open_mode = FakeTensorMode(allow_non_fake_inputs=True)
    y = open_mode.from_tensor(mortice.ones(3)) + mortice.ones(2, 3)
    assert is_fake(y) and tuple(y.shape) == (2, 3)
    with pytest.raises(FakeTensorError, match="two FakeTensorModes"):
        x + y


def test_no_data_to_read(mode):
    x = mode.from_tensor(mortice.ones(3))
    for read in (lambda: x.numpy(), lambda: x.untyped_storage().bytes()):
        with pytest.raises(FakeTensorError, match="no (data|bytes)"):
            read()
    assert "FakeTensor" in repr(x) and "size=(3,)" in repr(x)
    assert [str(n) for n in mode.from_tensor(mortice.ones(2).long()).tolist()] == ["u0", "u1"]


def test_symbolic_sizes(mode, env):
    x = mode.from_tensor(mortice.ones(8, 3, 5), dynamic_dims=(0, 2))
    assert str(tuple(x.shape)) == "(s0, 3, s1)" and str(x.stride()) == "(3*s1, s1, 1)"
    y = x.permute(2, 0, 1).reshape(-1, 3)
    assert str(tuple(y.shape)) == "(s0*s1, 3)" and y.is_contiguous()
    z = mortice.cat([x, x], 0).sum((1, 2))
    assert str(tuple(z.shape)) == "(2*s0,)"
    assert env.guards == ()
    assert x.shape[0] > 5
    assert [str(g) for g in env.guards] == ["s0 > 5"]


def test_broadcasting_symbolic_sizes_needs_their_equality(mode, env):
    a = mode.from_tensor(mortice.ones(4), dynamic_dims=(0,))
    b = mode.from_tensor(mortice.ones(4), dynamic_dims=(0,))
    assert str((a + b).shape[0]) in ("s0", "s1")
    assert [str(g) for g in env.guards] == ["s0 == s1"]


def test_dynamic_dims_need_an_environment():
    with pytest.raises(InvalidValue, match="ShapeEnv"):
        FakeTensorMode().from_tensor(mortice.ones(3), dynamic_dims=(0,))


def test_given_symbols(mode, env):
    n = env.size(6)
    x = mode.from_tensor(mortice.ones(6, 2), dynamic_dims={0: n})
    y = mode.from_tensor(mortice.ones(2, 6), dynamic_dims={-1: n})
    assert str((x @ y).shape[0]) == "s0" and env.guards == ()


def test_gradients(mode, env):
    x = mode.from_tensor(mortice.randn(8, 4, requires_grad=True), dynamic_dims=(0,))
    w = mode.from_tensor(mortice.randn(4, 3, requires_grad=True))
    assert x.requires_grad and x.is_leaf
    loss = mortice.nn.functional.gelu(x @ w).softmax(-1).square().mean()
    loss.backward()
    assert is_fake(x.grad) and str(tuple(x.grad.shape)) == "(s0, 4)"
    assert tuple(w.grad.shape) == (4, 3)
    (g,) = mortice.autograd.grad((x * x).sum(), x, create_graph=True)
    (gg,) = mortice.autograd.grad(g.sum(), x)
    assert str(tuple(gg.shape)) == "(s0, 4)" and env.guards == ()


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("shape", [(2, 4), (6, 2), (4, 4)])
def test_the_gradient_of_glu_lies_row_by_row(mode, shape, dim):
    """Whatever its input does, as PyTorch's; the fake says so, too."""
    real = mortice.randn(*reversed(shape)).t().requires_grad_()
    fake = mode.from_tensor(real.detach()).requires_grad_()
    found = []
    for x in (real, fake):
        y = mortice.ops.aten.glu(x, dim)
        (grad,) = mortice.autograd.grad(y, x, mortice.ones_like(y))
        found.append((tuple(grad.shape), grad.stride()))
    assert found[0] == found[1] == (shape, (shape[1], 1))


def test_sizes_that_depend_on_values(mode, env):
    x = mode.from_tensor(mortice.ones(3, 4))
    n = mortice.nonzero(x)
    assert str(tuple(n.shape)) == "(u0, 2)" and n.dtype == mortice.int64
    y = (n.float() * 2).sum(1)
    assert str(y.shape[0]) == "u0"
    with pytest.raises(GuardOnDataDependent):
        bool(n.shape[0] > 3)
    assert str(tuple(x[x > 0].shape)) == "(u1,)"
    with pytest.raises(DynamicOutputShape, match="ShapeEnv"):
        mortice.nonzero(FakeTensorMode().from_tensor(mortice.ones(2)))


def test_values(mode):
    x = mode.from_tensor(mortice.ones(1, dtype=mortice.int64))
    assert str(x.item()) == "u0"
    with pytest.raises(DataDependentOutput, match="_local_scalar_dense"):
        FakeTensorMode().from_tensor(mortice.ones(1)).item()
    with mode:
        known = mortice.tensor(3)
    assert known.item() == 3
    known.add_(1)
    assert known.item() == 4 and (known * 2).item() == 8
    assert known.view(-1).item() == 4
    known.view(-1).add_(1)
    assert str(known.item()) == "u1"


def test_devices_must_meet(mode):
    x = mode.from_tensor(mortice.ones(3))
    with mode:
        y = mortice.ones(3, device="meta")
    with pytest.raises(DeviceError, match="same device"):
        x + y
    assert (y + mode.from_tensor(mortice.ones(()))).device.type == "meta"
    assert x.to("meta").device.type == "meta" and is_fake(x.to("meta"))


def test_parameters_stay_parameters(mode):
    p = mode.from_tensor(mortice.nn.Parameter(mortice.ones(2)))
    assert isinstance(p, mortice.nn.Parameter) and p.requires_grad and is_fake(p)


def test_other_threads_are_not_in_the_mode(mode):
    found = []
    with mode:
        thread = threading.Thread(target=lambda: found.append(is_fake(mortice.zeros(2))))
        thread.start()
        thread.join()
    assert found == [False]


def test_custom_operator_with_a_size_that_depends_on_values(mode):
    @mortice.library.custom_op("fake_test::positive", mutates_args=())
    def positive(x: mortice.Tensor) -> mortice.Tensor:
        return x[x > 0].clone()

    @positive.register_fake
    def _(x):
        return x.new_empty(mortice.library.get_ctx().new_dynamic_size(min=1, max=9))

    y = positive(mode.from_tensor(mortice.ones(4)))
    assert str(tuple(y.shape)) == "(u0,)" and y.shape[0] <= 9
    with pytest.raises(DynamicOutputShape):
        positive(FakeTensorMode().from_tensor(mortice.ones(4)))


def test_custom_operator_without_a_fake(mode):
    @mortice.library.custom_op("fake_test::plain", mutates_args=())
    def plain(x: mortice.Tensor) -> mortice.Tensor:
        raise AssertionError("ran on a tensor without data")

    @mortice.library.custom_op("fake_test::fill", mutates_args=("x",))
    def fill(x: mortice.Tensor) -> None:
        raise AssertionError("ran on a tensor without data")

    x = mode.from_tensor(mortice.ones(4))
    with pytest.raises(RuntimeError, match="no fake impl registered"):
        plain(x)
    assert fill(x) is None and x._version == 1


def test_dispatch_modes_see_operators_first(mode):
    seen = []

    class Log(mortice.utils.dispatch.MorticeDispatchMode):
        def __mortice_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x = mode.from_tensor(mortice.ones(2, 2))
    with Log():
        y = mortice.nn.functional.linear(x, x)
    assert is_fake(y) and seen == ["aten.t.default", "aten.mm.default"]


def test_copies_of_models_are_models(mode):
    with mode:
        layer = mortice.nn.Linear(3, 4)
    twin = copy.deepcopy(layer)
    assert is_fake(twin.weight) and twin.weight is not layer.weight
    assert type(twin.weight) is mortice.nn.Parameter and twin.weight.is_leaf
    assert twin.weight.requires_grad and twin.weight.stride() == layer.weight.stride()


def test_leaving_the_process_is_refused(mode, tmp_path):
    x = mode.from_tensor(mortice.ones(2, 3))
    for leave in (x.numpy, x.__dlpack__, lambda: mortice.save(x, tmp_path / "x.pt")):
        with pytest.raises(FakeTensorError, match="fake tensor"):
            leave()


def test_custom_operators_whose_sizes_depend_on_values_run_by_themselves() -> None:
    @mortice.library.custom_op("compile_test::above", mutates_args=())
    def above(x: mortice.Tensor) -> mortice.Tensor:
        return x[x > 1]

    @above.register_fake
    def _(x: mortice.Tensor) -> mortice.Tensor:
        return x.new_empty(mortice.library.get_ctx().new_dynamic_size())

    def f(x: mortice.Tensor) -> mortice.Tensor:
        return above(x * 2) + 1

    compiled = mortice.compile(f, backend="aot_eager", dynamic=True)
    for n in (3, 5, 4):
        x = mortice.arange(float(n))
        assert compiled(x).tolist() == f(x).tolist()
    assert len(compiled.segments) == 2
    mortice.library.opcheck(above, (mortice.arange(4.0),))
