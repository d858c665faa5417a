import math
import threading

import pytest

import mortice
from mortice import fx
from mortice.errors import InvalidState, InvalidValue, TraceError

aten = mortice.ops.aten


def both(f, *args, **kwargs):
    """The traced module, having done what the function does."""
    gm = fx.symbolic_trace(f, **kwargs)
    gm.graph.lint()
    expected, found = f(*args), gm(*args)
    assert mortice.equal(expected, found)
    assert mortice.equal(expected, fx.Interpreter(gm).run(*args))
    return gm


def test_functions_methods_operators_and_constants():
    constant = mortice.tensor([1.0, 2.0])

    def f(x, y=3):
        a = mortice.relu(x) + 1
        b = (2 / a).clamp(max=4) @ constant
        c = a.view(-1, a.size(1))[..., 1:]
        return b.unsqueeze(1) * c - y**2 % 5 + constant.add(x)[:, :1] + aten.neg.default(-c)

    gm = both(f, mortice.randn(3, 2))
    kinds = {n.op for n in gm.graph.nodes}
    assert kinds == {"placeholder", "call_function", "call_method", "get_attr", "output"}
    assert gm._tensor_constant0 is constant
    assert gm(mortice.ones(1, 2), y=1).shape == (1, 1)
    assert "return" in gm.print_readable(print_output=False)


def test_users_lines_are_kept():
    def f(x):
        return x + 1

    (node,) = fx.symbolic_trace(f).graph.find_nodes(op="call_function")
    assert node.stack_trace.endswith("in f: return x + 1")


def test_parameters_keep_names_that_python_has():
    gm = fx.symbolic_trace(lambda input, sum: input - sum)
    assert gm(input=5, sum=3) == 2


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (lambda x: x if x.sum() > 0 else -x, "branches on gt"),
        (lambda x: list(x), "loops over x"),
        (lambda x: range(x), "used as a Python integer"),
        (lambda x: x.__len__(), "len(x) is not known"),
        (lambda x: math.sqrt(x), "used as a Python float"),
        (lambda x: x.__setitem__(0, 1), "writes into x"),
        (lambda x: 1 in x, "asks what x contains"),
        (lambda *args: args[0], r"takes \*args"),
        (lambda **kwargs: kwargs, r"takes \*\*kwargs"),
    ],
)
def test_what_a_stand_in_cannot_do(f, message):
    with pytest.raises(TraceError, match=message.replace("(", r"\(").replace(")", r"\)")):
        fx.symbolic_trace(f)


def test_refusals_name_the_line():
    with pytest.raises(TraceError, match="at .*test_tracer.py.* if x else"):
        fx.symbolic_trace(lambda x: 1 if x else 2)


def test_unpacking_a_known_number():
    def f(x):
        a, b = x.chunk(2)
        c, (d, e) = x.split(1)[0], x.unbind(0)
        return a + b + c + d + e

    both(f, mortice.randn(2, 3))


def test_concrete_args():
    def f(x, flag, mode="a"):
        return x + 1 if flag and mode == "b" else x * 2

    gm = fx.symbolic_trace(f, {"flag": True, "mode": "b"})
    assert gm(mortice.ones(1), True, "b").item() == 2.0
    assert gm(mortice.ones(1)).item() == 2.0
    with pytest.raises(InvalidValue, match="flag has been specialised to True"):
        gm(mortice.ones(1), False)
    with pytest.raises(InvalidValue, match="Did you mean 'flag'"):
        fx.symbolic_trace(f, {"flagg": True})


def test_nested_inputs():
    def f(a, pair):
        return a + pair["l"][0] * pair["k"]

    gm = fx.symbolic_trace(f, {"pair": {"l": [fx.PH], "k": 3}})
    pair = {"l": [mortice.ones(1)], "k": 3}
    assert (
        gm(mortice.ones(1), pair).item()
        == 4.0
        == fx.Interpreter(gm).run(mortice.ones(1), pair).item()
    )
    with pytest.raises(InvalidValue, match="specialised to 3"):
        gm(mortice.ones(1), {**pair, "k": 4})
    with pytest.raises(InvalidValue, match="expected a list but found a tuple"):
        gm(mortice.ones(1), {**pair, "l": (mortice.ones(1),)})


@fx.wrap
def keep(x, n):
    return x * n if x.sum() > 0 else x


fx.wrap("len")


def test_wrapped_functions_are_nodes():
    def f(x):
        return keep(x, 2) + len(x)

    gm = both(f, mortice.ones(3))
    assert [n.name for n in gm.graph.find_nodes(op="call_function")] == ["keep", "len_1", "add"]
    assert len([1, 2]) == 2 and keep(mortice.ones(1), 3).item() == 3.0
    with pytest.raises(InvalidState, match="top level"):
        fx.wrap("keep")


def test_functions_written_in_python_are_nodes():
    gm = both(lambda x: mortice.einsum("ij,kj->ik", x, x), mortice.randn(2, 3))
    assert [n.name for n in gm.graph.find_nodes(op="call_function")] == ["einsum"]


def test_nothing_stays_patched():
    before = mortice.einsum
    with pytest.raises(TraceError):
        fx.symbolic_trace(lambda x: bool(x))
    assert mortice.einsum is before


def test_values_of_two_tracers_do_not_meet():
    kept = []
    fx.symbolic_trace(lambda x: kept.append(x))
    with pytest.raises(TraceError, match="2 tracers"):
        fx.symbolic_trace(lambda x: mortice.add(x, kept[0]))


def test_threads_that_do_not_trace_are_not_affected():
    results = []

    def f(x):
        def other():
            results.append(mortice.einsum("i,i->", mortice.ones(2), mortice.ones(2)).item())

        t = threading.Thread(target=other)
        t.start()
        t.join()
        return mortice.einsum("i,i->", x, x)

    gm = fx.symbolic_trace(f)
    assert results == [2.0]
    assert gm(mortice.ones(3)).item() == 3.0
