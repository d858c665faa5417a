"""Every decomposition computes what the kernels do, and can be traced down to Core ATen."""

import pytest
from operator_calls import samples

import mortice
from mortice import decompositions, fx
from mortice._compile.undecomposed import names
from mortice._dispatch.operator import get
from mortice._generated.registry import ROWS
from mortice.utils import pytree

aten = mortice.ops.aten
TABLE = decompositions.core_aten_decompositions()
SAMPLES = samples()


def overload(name):
    packet, _, which = name.partition(".")
    return getattr(getattr(aten, packet), which or "default")


def call(args):
    """(args, kwargs) of a sample."""
    return (args[:-1], args[-1]) if args and isinstance(args[-1], dict) else (args, {})


def close(a, b):
    if isinstance(a, (tuple, list)):
        assert len(a) == len(b)
        for p, q in zip(a, b):
            close(p, q)
        return
    if a is None or not isinstance(a, mortice.Tensor):
        assert a is b
        return
    assert a.shape == b.shape and a.dtype == b.dtype
    exact = not a.dtype.is_floating_point and not a.dtype.is_complex
    tolerance = 0 if exact else 4e-3 if a.dtype.itemsize == 2 else 2e-5
    assert mortice.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True), (a, b)


@pytest.mark.parametrize("name", SAMPLES)
def test_decomposition_equals_kernel(name):
    op = overload(name)
    found = TABLE.get(op) or decompositions.get_decompositions([op])[op]
    for sample in SAMPLES[name]:
        args, kwargs = call(sample)
        close(op(*args, **kwargs), found(*args, **kwargs))


#: Beside Core ATen: random numbers with their generator said, and what makes memory.
ALLOWED = {
    "empty_like",
    "rand.generator",
    "randn.generator",
    "randperm.generator",
    "randint.low_generator",
}


def is_core(target):
    if target.__module__ == "_operator":
        return True
    row = target.operator.row
    return "core" in row.tags or target.operator.name in ALLOWED


def on_tensors(op, args, kwargs):
    """The call as a function of its tensors alone."""
    leaves, spec = pytree.tree_flatten((args, kwargs))

    def f(*given):
        rest = iter(given)
        a, k = spec.unflatten([next(rest) if isinstance(x, mortice.Tensor) else x for x in leaves])
        return op(*a, **k)

    return f, [x for x in leaves if isinstance(x, mortice.Tensor)]


@pytest.mark.parametrize("mode", ["real", "symbolic"])
@pytest.mark.parametrize("name", SAMPLES)
def test_traced_down_to_core(name, mode):
    op = overload(name)
    table = decompositions.select_decomp_table()
    for sample in SAMPLES[name]:
        args, kwargs = call(sample)
        f, given = on_tensors(op, args, kwargs)
        gm = fx.make_fx(f, table, mode)(*given)
        calls = [n.target for n in gm.graph.nodes if n.op == "call_function"]
        assert not any(getattr(t, "_schema", None) and t._schema.mutated for t in calls)
        # Core ATen has no operators that take complex numbers apart.
        complexes = any(t.dtype.is_complex for t in given)
        assert complexes or all(map(is_core, calls)), calls
        close(op(*args, **kwargs), gm(*given))


def writes(op):
    """In-place and ``out=`` forms: graphs have their functional operators instead."""
    return op.row.kind in ("inplace", "out") or bool(op.schema.mutated)


def test_every_operator_is_core_or_taken_apart_or_has_a_reason():
    reasons = names()
    assert all(name in ROWS for name in reasons)
    assert "factorises" in decompositions.reason_to_stay(aten.linalg_qr.default)
    assert decompositions.reason_to_stay(aten.silu.default) is None
    unexplained, needless = [], []
    for name in ROWS:
        op = get(name)
        if "::" in name or "core" in op.row.tags or writes(op):
            continue
        apart = overload(name) in TABLE
        (unexplained if not apart else needless).append(name) if apart == (
            name in reasons
        ) else None
    assert not unexplained
    assert sorted(needless) == []


def test_every_decomposition_written_for_it_is_tried():
    named = [n for n in ROWS if ROWS[n].get("decomposition", "").startswith("decomposed.")]
    assert len(named) > 120
    assert set(named) <= set(SAMPLES)
