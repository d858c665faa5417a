"""opcheck finds operators that break what their schema, fake or gradient promises."""

from __future__ import annotations

import pytest

import mortice
from mortice import Tensor
from mortice.errors import InvalidValue
from mortice.testing import OpCheckError, opcheck


@mortice.library.custom_op("opcheck_test::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return x * 2


@mortice.library.custom_op("opcheck_test::spoils", mutates_args=())
def spoils(x: Tensor) -> Tensor:
    x.add_(1)
    return x.clone()


@mortice.library.custom_op("opcheck_test::fills", mutates_args=("x",))
def fills(x: Tensor) -> None:
    x.fill_(3)


@mortice.library.custom_op("opcheck_test::lies", mutates_args=())
def lies(x: Tensor) -> Tensor:
    return x[:1].clone()


@lies.register_fake
def _(x: Tensor) -> Tensor:
    return mortice.empty_like(x)


@pytest.mark.parametrize(
    ("op", "args"),
    [
        (mortice.ops.aten.add.Tensor, (mortice.ones(2, 3), mortice.ones(3))),
        (mortice.ops.aten.transpose.int, (mortice.ones(2, 3), 0, 1)),
        (mortice.ops.aten.add_.Tensor, (mortice.ones(2), mortice.ones(2))),
        (mortice.ops.aten.cat.default, ([mortice.ones(2), mortice.ones(3)],)),
        (mortice.ops.aten.max.dim, (mortice.tensor([[1.0, float("nan")]]), 1)),
        (mortice.ops.aten.argsort.stable, (mortice.ones(3),)),
        (twice, (mortice.ones(2),)),
        (fills, (mortice.ones(2),)),
    ],
    ids=str,
)
def test_operators_that_keep_their_promises(op: object, args: tuple[object, ...]) -> None:
    kwargs = {"stable": True} if "argsort" in str(op) else {}
    checks = ("test_schema", "test_faketensor") if op is twice else ()
    assert set(opcheck(op, args, kwargs, test_utils=checks).values()) == {"SUCCESS"}


def test_a_write_that_the_schema_hides() -> None:
    x = mortice.ones(2)
    with pytest.raises(OpCheckError, match="argument 'x' was written to"):
        opcheck(spoils, (x,), test_utils="test_schema")
    assert x.tolist() == [1.0, 1.0]


def test_an_output_that_is_the_input() -> None:
    library = mortice.library.Library("opcheck_alias", "DEF")
    library.define("same(Tensor x) -> Tensor")
    library.impl("same", lambda x: x, "CPU")
    with pytest.raises(OpCheckError, match="shares memory with argument 'x'"):
        opcheck(mortice.ops.opcheck_alias.same, (mortice.ones(2),), test_utils="test_schema")


def test_a_fake_with_another_shape() -> None:
    with pytest.raises(OpCheckError, match=r"output 0 .*\(1,\).* on device meta .*\(3,\)"):
        opcheck(lies, (mortice.ones(3),), test_utils="test_faketensor")


def test_a_gradient_that_is_lost() -> None:
    library = mortice.library.Library("opcheck_grad", "DEF")
    library.define("plain(Tensor x) -> Tensor")
    library.impl("plain", lambda x: x.detach() * 2, "CompositeImplicitAutograd")
    with pytest.raises(OpCheckError, match="no output requires grad"):
        opcheck(mortice.ops.opcheck_grad.plain, (mortice.ones(2),))


def test_all_results_without_raising() -> None:
    found = mortice.library.opcheck(lies, (mortice.ones(3),), raise_exception=False)
    assert found["test_schema"] == "SUCCESS"
    assert found["test_faketensor"].startswith("OpCheckError: ")


def test_misspelt_checks_and_missing_overloads() -> None:
    with pytest.raises(InvalidValue, match="test_schema"):
        opcheck(twice, (mortice.ones(1),), test_utils="test_shema")
    with pytest.raises(InvalidValue, match="Name one"):
        opcheck(mortice.ops.aten.add, (mortice.ones(1), mortice.ones(1)))
