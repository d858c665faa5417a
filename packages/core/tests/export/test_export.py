import copy

import pytest

import mortice
import mortice.fake
from mortice.errors import (
    ExportError,
    GuardOnDataDependent,
    InputGuardError,
    InvalidState,
    InvalidValue,
)
from mortice.export import Dim, InputKind, OutputKind, dims, export

aten = mortice.ops.aten


def names(program):
    return [str(n.target) for n in program.graph.find_nodes(op="call_function")]


def test_a_function_with_fixed_sizes():
    weight = mortice.randn(4, 3)

    def f(x, *, scale):
        return (x @ weight.t()).relu() * scale

    program = export(f, (mortice.ones(2, 3),), {"scale": 2})
    assert names(program) == [
        "aten.t.default",
        "aten.mm.default",
        "aten.relu.default",
        "aten.mul.Tensor",
    ]
    signature = program.graph_signature
    assert [s.kind for s in signature.input_specs] == [
        InputKind.CONSTANT_TENSOR, InputKind.USER_INPUT, InputKind.USER_INPUT,
    ]  # fmt: skip
    assert signature.user_inputs == ["x", 2]
    assert [s.kind for s in signature.output_specs] == [OutputKind.USER_OUTPUT]
    x = mortice.randn(2, 3)
    module = program.module()
    assert mortice.equal(module(x, scale=2), f(x, scale=2))
    with pytest.raises(
        InputGuardError, match=r"x\.size\(\)\[0\] == 2, but it is 5.*dynamic_shapes"
    ):
        module(mortice.randn(5, 3), scale=2)
    with pytest.raises(AssertionError, match="scale == 2, but it is 3"):
        module(x, scale=3)
    with pytest.raises(InputGuardError, match=r"x\.dtype == mortice\.float32"):
        module(x.double(), scale=2)
    with pytest.raises(InputGuardError, match="must have 2 dims, but it has 1"):
        module(x[0], scale=2)
    with pytest.raises(InputGuardError, match="must be a Tensor, but it is a list"):
        module([1.0], scale=2)
    with pytest.raises(InvalidState, match=r"program\.module\(\)"):
        program(x)
    assert program.module(check_guards=False)(mortice.ones(5, 3), scale=2).shape == (5, 4)


def test_sizes_that_vary():
    batch = Dim("batch", max=64)

    def f(x, y):
        return {"out": mortice.cat([x, y]), "rows": x.shape[0] * 2}

    shapes = {"x": {0: batch}, "y": (2 * batch, None)}
    program = export(f, (mortice.ones(3, 4), mortice.ones(6, 4)), dynamic_shapes=shapes)
    assert program.range_constraints == {"s0": (1, 64)}
    module = program.module()
    for n in (1, 3, 64):
        out = module(mortice.ones(n, 4), mortice.ones(2 * n, 4))
        assert out["out"].shape == (3 * n, 4) and out["rows"] == 2 * n
    with pytest.raises(
        InputGuardError, match=r"y\.size\(\)\[0\] == 2\*x\.size\(\)\[0\] \(6\), but it is 7"
    ):
        module(mortice.ones(3, 4), mortice.ones(7, 4))
    with pytest.raises(InputGuardError, match=r"x\.size\(\)\[0\] <= 64, but it is 65"):
        module(mortice.ones(65, 4), mortice.ones(130, 4))


def test_a_size_of_one_is_allowed_where_the_program_does_not_ask():
    b = Dim("b")
    program = export(lambda x: x * 2, (mortice.ones(3),), dynamic_shapes={"x": {0: b}})
    assert program.range_constraints == {"s0": (1, float("inf"))}

    def asks(x):
        return x * 2 if x.shape[0] == 1 else x * 3

    program = export(asks, (mortice.ones(3),), dynamic_shapes={"x": {0: b}})
    assert program.range_constraints == {"s0": (2, float("inf"))}
    assert program.module()(mortice.ones(2)).tolist() == [3.0, 3.0]
    with pytest.raises(InputGuardError, match=">= 2, but it is 1"):
        program.module()(mortice.ones(1))
    with pytest.raises(ExportError, match=r"the program needs s0 != 1 at .*test_export.py"):
        export(asks, (mortice.ones(3),), dynamic_shapes={"x": {0: Dim("b", min=1)}})


@pytest.mark.parametrize(
    ("f", "spec", "message"),
    [
        (
            lambda x: x.view(2, 4),
            Dim("b"),
            r"x\.size\(\)\[0\] may vary.*\(b\), but the program fixes it at 8, at .*test_export",
        ),
        (lambda x: x.view(2, 4), Dim.DYNAMIC, "fixes it at 8"),
        (lambda x: x.view(2, -1), Dim("b"), r"needs \(s0 % 2\) == 0 at .*multiple of a Dim"),
        (
            lambda x: x[:4] if x.shape[0] > 5 else x,
            Dim("b"),
            r"needs s0 > 5 .*Write Dim\('b', min=6\)",
        ),
    ],
)
def test_what_is_said_to_vary_must(f, spec, message):
    with pytest.raises(ExportError, match=f"Constraints violated: .*{message}"):
        export(f, (mortice.ones(8),), dynamic_shapes={"x": {0: spec}})


def test_sizes_of_one_together_are_not_asked_about():
    """Flattening asks whether there is more than one row; sizes of 2 and more settle it."""
    a, b = dims("a", "b")
    program = export(
        lambda x: x.reshape(-1, 3) * 2, (mortice.ones(4, 5, 3),), dynamic_shapes=({0: a, 1: b},)
    )
    assert program.module()(mortice.ones(2, 9, 3)).shape == (18, 3)


def test_two_dims_that_must_be_one():
    a, b = dims("a", "b")
    with pytest.raises(ExportError, match=r"needs s0 == s1.*Use one Dim for both"):
        export(
            lambda x, y: x + y,
            (mortice.ones(8), mortice.ones(8)),
            dynamic_shapes={"x": {0: a}, "y": {0: b}},
        )


def test_hints():
    def f(x, y):
        return x.view(2, -1).sum() + (x + y).sum()

    example = (mortice.ones(8), mortice.ones(8))
    program = export(f, example, dynamic_shapes=({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC}))
    module = program.module()
    assert module(mortice.ones(6), mortice.ones(6)).item() == 18
    with pytest.raises(
        InputGuardError, match=r"Guard failed: x\.size\(\)\[0\] == y\.size\(\)\[0\], with"
    ):
        module(mortice.ones(6), mortice.ones(4))
    with pytest.raises(InputGuardError, match=r"\(x\.size\(\)\[0\] % 2\) == 0.*test_export.py"):
        module(mortice.ones(7), mortice.ones(7))
    fixed = export(lambda x: x.view(2, 4), (mortice.ones(8),), dynamic_shapes={"x": Dim.AUTO})
    assert fixed.range_constraints == {}
    with pytest.raises(InputGuardError, match="== 8, but it is 6"):
        fixed.module()(mortice.ones(6))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"z": None}, r"no argument 'z'. The arguments are: x, y"),
        ({"xx": None}, "Did you mean 'x'"),
        ((None,), "has 1 entries for 2 arguments: x, y"),
        ({"x": {2: Dim("b")}}, "x has no dim 2; it has 2 dims"),
        ({"x": (Dim("b"),)}, "a sequence of 2 entries"),
        ({"x": {0: "b"}}, "dim 0 of x is 'b'; expected a Dim"),
        ({"x": {0: 5}}, "given as 5, but the example has 3"),
        ({"y": Dim("b")}, "y is a list|has 2 items"),
        (
            {"x": {0: Dim("b")}, "y": [{0: Dim("b")}, None]},
            r"x\.size\(\)\[0\], which is 3 .* y\[0\]\.size\(\)\[0\], which is 2",
        ),
        (
            {"x": {0: Dim("b", min=4)}},
            r"is 3 in the example, which is outside the range of b: \[4, inf\]",
        ),
        ({"x": {0: 2 * Dim("b")}}, "no input has the size b itself"),
        ({"y": [None, {1: Dim("b")}]}, "is 1 in the example"),
        (3, "must be a dict by argument or a sequence"),
    ],
)
def test_dynamic_shapes_that_do_not_fit(shapes, message):
    def f(x, y):
        return x.sum() + y[0].sum() + y[1].sum()

    example = (mortice.ones(3, 4), [mortice.ones(2), mortice.ones(2, 1)])
    with pytest.raises(ExportError, match=message):
        export(f, example, dynamic_shapes=shapes)


def test_bad_dims_and_examples():
    with pytest.raises(InvalidValue, match="Python identifier"):
        Dim("a b")
    with pytest.raises(InvalidValue, match="min 5 must be less than max 3"):
        Dim("a", min=5, max=3)
    assert repr(2 * Dim("a") + 1) == "2*a + 1" and repr(Dim("a") - 1) == "a - 1"
    with pytest.raises(ExportError, match=r"args must be a tuple"):
        export(lambda x: x, mortice.ones(1))
    with pytest.raises(ExportError, match="does not fit"):
        export(lambda x: x, (mortice.ones(1), 2))


def test_branches_on_values_are_refused_with_their_line():
    def f(x):
        return x if x.sum() > 0 else -x

    with pytest.raises(GuardOnDataDependent, match=r"test_export\.py:\d+.*mortice\.where"):
        export(f, (mortice.ones(3),))


def test_values_that_become_sizes():
    def f(x):
        n = x.sum().to(mortice.int64).item()
        mortice.fake.check(n >= 0)
        return mortice.zeros(n), x.nonzero()

    module = export(f, (mortice.ones(3),)).module()
    zeros, places = module(mortice.tensor([2.0, 0.0, 3.0]))
    assert zeros.shape == (5,) and places.tolist() == [[0], [2]]


def test_writes_to_inputs():
    def f(x, y):
        x.add_(1)
        x[0].mul_(y.sum())
        return x * 1

    program = export(f, (mortice.ones(2, 2), mortice.ones(2)))
    assert program.graph_signature.user_inputs_to_mutate == {"select_scatter": "x"}
    x, other = mortice.ones(2, 2), mortice.ones(2, 2)
    y = mortice.tensor([1.0, 2.0])
    assert mortice.equal(program.module()(x, y), f(other, y)) and mortice.equal(x, other)


def test_writes_to_what_is_not_kept_are_refused():
    counter = mortice.zeros(2)

    def f(x):
        counter.add_(1)
        return x + counter

    with pytest.raises(ExportError, match=r"no argument, parameter or buffer.*register_buffer"):
        export(f, (mortice.ones(2),))


def test_constants_made_in_the_program():
    def f(x):
        return x[mortice.tensor([2, 0])] + mortice.tensor([1.0, 2.0])

    program = export(f, (mortice.arange(3.0),))
    assert {n: c.tolist() for n, c in program.constants.items()} == {
        "tensor_constant0": [2, 0], "tensor_constant1": [1.0, 2.0],
    }  # fmt: skip
    assert program.module()(mortice.tensor([5.0, 6.0, 7.0])).tolist() == [8.0, 7.0]


def test_run_decompositions():
    def f(x):
        return mortice.special.entr(x).t()

    program = export(f, (mortice.rand(3, 4),), dynamic_shapes={"x": {0: Dim("b")}})
    apart = program.run_decompositions()
    assert "aten.special_entr.default" in names(program)
    assert "aten.special_entr.default" not in names(apart) and "aten.permute.default" in names(
        apart
    )
    x = mortice.rand(5, 4)
    assert mortice.allclose(apart.module()(x), f(x))
    assert names(program.run_decompositions({})) == names(program)
    kept = program.run_decompositions({aten.t.default: lambda x: x.transpose(0, 1)})
    assert names(kept) == ["aten.special_entr.default", "aten.transpose.int"]
    assert [s.arg.name for s in apart.graph_signature.output_specs] == ["permute"]


def test_text_and_copies():
    program = export(
        lambda x: x + mortice.ones(2), (mortice.ones(3, 2),), dynamic_shapes=({0: Dim("b")},)
    )
    text = str(program)
    for part in ("class ExportedGraph", "x: USER_INPUT", "add: USER_OUTPUT", "s0: [1, inf]"):
        assert part in text
    other = copy.deepcopy(program)
    assert other.graph is not program.graph and str(other) == text
