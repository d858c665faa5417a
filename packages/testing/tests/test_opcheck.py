import pytest

import mortice
from mortice import Tensor
from mortice.library import custom_op
from mortice.testing import OpCheckError, opcheck


def x(requires_grad=False):
    return mortice.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=requires_grad)


@custom_op("opcheck_tests::good", mutates_args=())
def good(t: Tensor) -> Tensor:
    return t * 2


@good.register_fake
def _(t):
    return mortice.empty_like(t)


good.register_autograd(lambda ctx, grad: grad * 2)


@custom_op("opcheck_tests::writes", mutates_args=())
def writes(t: Tensor) -> Tensor:
    t.add_(1)
    return t * 2


@custom_op("opcheck_tests::wrong_fake", mutates_args=())
def wrong_fake(t: Tensor) -> Tensor:
    return t.sum(0)


@wrong_fake.register_fake
def _(t):
    return mortice.empty_like(t)


@custom_op("opcheck_tests::no_grad", mutates_args=())
def no_grad(t: Tensor) -> Tensor:
    return t * 2


@no_grad.register_fake
def _(t):
    return mortice.empty_like(t)


def test_good_operator():
    assert set(opcheck(good, (x(True),)).values()) == {"SUCCESS"}


@pytest.mark.parametrize(
    ("op", "args"),
    [
        (lambda: mortice.ops.aten.mm.default, (x(True), x().t().contiguous())),
        (lambda: mortice.ops.aten.add.Tensor, (x(True), x())),
        (lambda: mortice.ops.aten.relu, (x(),)),
        (lambda: mortice.ops.aten.transpose.int, (x(), 0, 1)),
        (lambda: mortice.ops.aten.add_.Tensor, (x(), x())),
    ],
)
def test_operators_of_core(op, args):
    op = op()
    if isinstance(op, mortice.ops.OpOverloadPacket):
        op = op.default
    assert set(opcheck(op, args).values()) == {"SUCCESS"}


def test_undeclared_write():
    sample = x()
    with pytest.raises(OpCheckError, match=r"test_schema failed: argument 't' was changed"):
        opcheck(writes, (sample,), test_utils="test_schema")
    assert sample.tolist() == x().tolist()


def test_undeclared_alias():
    with mortice.library.scoped_library("opcheck_alias", "DEF") as lib:
        lib.define("same(Tensor t) -> Tensor")
        lib.impl("same", lambda t: t, "CPU")
        with pytest.raises(OpCheckError, match=r"result 0 shares memory with argument 't'"):
            opcheck(mortice.ops.opcheck_alias.same.default, (x(),), test_utils=["test_schema"])


def test_wrong_fake():
    with pytest.raises(
        OpCheckError, match=r"the fake says shape \(2, 3\), the operator gives \(3,"
    ):
        opcheck(wrong_fake, (x(),), test_utils="test_faketensor")


def test_missing_derivative():
    with pytest.raises(OpCheckError, match="test_autograd_registration failed"):
        opcheck(no_grad, (x(True),), test_utils="test_autograd_registration")


def test_failures_can_be_returned():
    results = opcheck(wrong_fake, (x(),), raise_exception=False)
    assert results["test_schema"] == "SUCCESS"
    assert isinstance(results["test_faketensor"], OpCheckError)


def test_misuse():
    with pytest.raises(ValueError, match="expected a custom_op"):
        opcheck(lambda t: t, (x(),))
    with pytest.raises(ValueError, match="Did you mean 'test_schema'"):
        opcheck(good, (x(),), test_utils="test_scheme")
    with pytest.raises(ValueError, match="several overloads"):
        opcheck(mortice.ops.aten.add, (x(), x()))


# -- compiled ------------------------------------------------------------------------------------


@custom_op("opcheck_tests::writes_declared", mutates_args=("t",))
def writes_declared(t: Tensor) -> None:
    t.mul_(2)


COUNT = [0]


@custom_op("opcheck_tests::counts", mutates_args=())
def counts(t: Tensor) -> Tensor:
    COUNT[0] += 1
    return t + COUNT[0]


@counts.register_fake
def _(t):
    return mortice.empty_like(t)


def test_compiled_with_symbolic_sizes():
    results = opcheck(good, (x(True),), test_utils="test_aot_dispatch_dynamic")
    assert results == {"test_aot_dispatch_dynamic": "SUCCESS"}
    opcheck(writes_declared, (x(),), test_utils="test_aot_dispatch_dynamic")


def test_an_operator_with_state_is_found():
    with pytest.raises(OpCheckError, match="depend on something that is no argument"):
        opcheck(counts, (x(),), test_utils="test_aot_dispatch_dynamic")


def test_fakes_with_sizes_that_depend_on_values():
    @mortice.library.custom_op("opcheck_test::positive", mutates_args=())
    def positive(t: mortice.Tensor) -> mortice.Tensor:
        return t[t > 0].clone()

    @positive.register_fake
    def _(t):
        return t.new_empty(mortice.library.get_ctx().new_dynamic_size())

    opcheck(positive, (mortice.tensor([1.0, -2.0, 3.0]),), test_utils="test_faketensor")


def test_fakes_are_tried_with_symbolic_sizes():
    @mortice.library.custom_op("opcheck_test::twice", mutates_args=())
    def twice(t: mortice.Tensor) -> mortice.Tensor:
        return mortice.cat([t, t])

    @twice.register_fake
    def _(t):
        known = t.shape[0] if type(t.shape[0]) is int else 0
        return t.new_empty(known * 2, *t.shape[1:])

    with pytest.raises(OpCheckError, match="with symbolic sizes the fake says shape"):
        opcheck(twice, (mortice.ones(3, 2),), test_utils="test_faketensor")


def test_tolerances_and_all_tests():
    with pytest.raises(ValueError, match="both rtol and atol"):
        opcheck(good, (x(),), rtol=1e-3)
    assert set(opcheck(good, (x(),), test_utils="ALL").values()) == {"SUCCESS"}
    COUNT[0] = 0
    call = mortice.ops.opcheck_tests.counts.default
    with pytest.raises(OpCheckError, match="test_aot_dispatch_static"):
        opcheck(call, (x(),), test_utils="test_aot_dispatch_static")
    opcheck(call, (x(),), test_utils="test_aot_dispatch_static", rtol=0.0, atol=100.0)


def test_schema_failures_are_returned_as_they_are():
    results = opcheck(writes, (x(),), test_utils="test_schema", raise_exception=False)
    assert isinstance(results["test_schema"], RuntimeError)
