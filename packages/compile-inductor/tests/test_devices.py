"""Graphs on a device whose package brings a code generator: the example of the repository."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inductor_graphs import graph

import mortice
from mortice_inductor import UnknownOption, compile_fx, devices

SOURCE = Path(__file__).parents[3] / "examples" / "mitre-inductor" / "src"
X, Y = mortice.linspace(-2, 2, 60).reshape(6, 10), mortice.linspace(0.5, 1, 10)


@pytest.fixture(scope="module")
def mitre() -> Iterator[Any]:
    """The device in this process, and its generator's counts."""
    sys.path.insert(0, str(SOURCE))
    plugin = importlib.import_module("mitre_inductor.plugin")
    mortice.plugins.register("device", "mitre", plugin.Mitre)
    yield importlib.import_module("mitre_inductor.codegen")
    mortice.plugins.unregister("device", "mitre")
    devices._BACKENDS.pop("mitre", None)
    sys.path.remove(str(SOURCE))


BODIES: dict[str, Any] = {
    "elementwise": lambda c, a, b: c("tanh", c("add.Tensor", c("mul.Tensor", a, b), a)),
    "softmax": lambda c, a, b: c("_softmax", c("mul.Tensor", a, b), -1, False),
    "softmax of columns": lambda c, a, b: c("_softmax", a, 0, False),
    "sums": lambda c, a, b: (c("sum.dim_IntList", a, [0]), c("sum", a), c("amax", a, [1])),
    "gelu and its column sums": lambda c, a, b: (
        c("gelu", a), c("sum.dim_IntList", c("gelu", a), [0]),
    ),
    "padded": lambda c, a, b: c("exp", c("constant_pad_nd", a, [1, 2], 0.5)),
    "transposed": lambda c, a, b: c("exp", c("t", a)),
    "product": lambda c, a, b: c("relu", c("mv", a, b)),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_results_are_those_of_the_cpu(name: str, mitre: Any) -> None:
    gm = graph(BODIES[name], 2)
    x, y = X.to("mitre"), Y.to("mitre")
    compiled = compile_fx(gm, [x, y])
    before = mitre.COUNTS["launched"]
    found = compiled(x, y)
    assert mitre.COUNTS["launched"] > before
    for f, e in zip(found, gm(X, Y), strict=True):
        assert f.device.type == "mitre"
        assert mortice.allclose(f.cpu(), e, rtol=1e-5, atol=1e-6)


# Gradients of leaves are added up outside of compiled code.
@pytest.mark.filterwarnings("ignore:aten..add.Tensor has no kernel for device 'mitre'")
def test_writes_numbers_and_training(mitre: Any) -> None:
    def body(c: Any, a: Any, s: Any) -> Any:
        return c("copy_", a, c("mul.Scalar", a, s))

    x = X.to("mitre")
    compiled = compile_fx(graph(body, 2), [x, 2.0])
    compiled(x, 2.0)
    compiled(x, 3.0)
    assert mortice.allclose(x.cpu(), X * 6)
    p = Y.to("mitre").requires_grad_()
    mortice.compile(lambda v: (v * v).sum(), backend="inductor")(p).backward()
    assert mortice.allclose(p.grad.cpu(), Y * 2)


def test_its_options(mitre: Any, capsys: pytest.CaptureFixture[str]) -> None:
    x = X.to("mitre")
    gm = graph(lambda c, a: c("exp", a), 1)
    compile_fx(gm, [x], config_patches={"mitre.show_source": True})
    assert "np.exp" in capsys.readouterr().out
    compile_fx(gm, [x])
    assert capsys.readouterr().out == ""
    with pytest.raises(UnknownOption, match="Did you mean 'mitre.show_source'"):
        compile_fx(gm, [x], config_patches={"mitre.show_sources": True})


def test_what_it_cannot_compile_runs_operator_by_operator(mitre: Any) -> None:
    x = X.to("mitre")
    with pytest.warns(UserWarning, match="does not compile a kernel"):
        compiled = compile_fx(graph(lambda c, a: c("atan", a), 1), [x])
    with pytest.warns(UserWarning, match="atan"):
        (out,) = compiled(x)
    assert mortice.allclose(out.cpu(), X.atan())
