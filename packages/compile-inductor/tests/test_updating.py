"""Operators that write to their arguments."""

from __future__ import annotations

from typing import Any

import pytest
from inductor_graphs import check

import mortice


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(6, 4), (3, 4, 5, 5)])
def test_batch_norm_moves_its_running_statistics(shape: tuple[int, ...], training: bool) -> None:
    def body(call: Any, x: Any, w: Any, b: Any, mean: Any, var: Any) -> Any:
        new_mean, new_var = call("clone", mean), call("clone", var)
        found = call("_native_batch_norm_legit", x, w, b, new_mean, new_var, training, 0.3, 1e-5)
        from operator import getitem

        graph = found.graph
        out = graph.call_function(getitem, (found, 0))
        return out, call("mul.Tensor", new_mean, new_var), new_mean, new_var

    x = mortice.randn(*shape) * 3 + 1
    w, b, mean = (mortice.randn(4) for _ in range(3))
    var = mortice.rand(4) + 0.5
    kept = mean.clone(), var.clone()
    check(body, x, w, b, mean, var)
    assert mortice.equal(mean, kept[0])
    assert mortice.equal(var, kept[1])


def test_what_is_kept_between_passes_is_not_read_after_them() -> None:
    def body(call: Any, x: Any, old: Any, before: Any) -> Any:
        mean = call("mean.dim", x, [0])
        d = call("sub.Tensor", x, mean)
        var = call("mean.dim", call("mul.Tensor", d, d), [0])
        a, b = call("add.Tensor", old, mean), call("add.Tensor", before, var)
        a, b = call("mul.Tensor", a, 0.3), call("mul.Tensor", b, 0.3)
        return call("mul.Tensor", d, call("rsqrt", var)), call("mul.Tensor", a, b), a

    check(body, mortice.randn(6, 4) * 3 + 1, mortice.randn(4), mortice.rand(4))


def test_a_number_as_a_tensor_goes_to_foreign_operators() -> None:
    def body(call: Any, x: Any, rows: Any) -> Any:
        three = call("full", (), 3.0)
        return (call("index_put", x, (rows,), three),)

    check(body, mortice.randn(5, 4), mortice.tensor([1, 3]))
