"""Symbolic integers: the normal form against sympy's values, ranges, guards."""

from __future__ import annotations

import math
import operator

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from mortice.errors import GuardOnDataDependent, InvalidState
from mortice.fake import ShapeEnv, SymInt, check, compile_guards, sym_float, sym_max, sym_min

NAMES = ("s0", "s1", "s2")
BINARY = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "max": sym_max,
    "min": sym_min,
}

trees = st.recursive(
    st.one_of(st.sampled_from(NAMES), st.integers(-6, 6)),
    lambda inner: st.tuples(st.sampled_from(sorted(BINARY)), inner, inner),
    max_leaves=8,
)
sizes = st.tuples(*(st.integers(2, 30) for _ in NAMES))


def build(tree, leaves, ops):
    """The tree computed with ``ops`` over ``leaves``; ZeroDivisionError where it divides by zero."""
    if isinstance(tree, str):
        return leaves[tree]
    if isinstance(tree, int):
        return tree
    op, a, b = tree
    return ops[op](build(a, leaves, ops), build(b, leaves, ops))


def fresh(hints=(5, 7, 11)):
    env = ShapeEnv()
    return env, dict(zip(NAMES, (env.size(h) for h in hints)))


def sympy_leaves():
    ops = {
        **BINARY,
        "//": lambda a, b: sympy.floor(sympy.sympify(a) / b),
        "%": lambda a, b: sympy.Mod(a, b),
        "max": sympy.Max,
        "min": sympy.Min,
    }
    return {n: sympy.Symbol(n, integer=True, positive=True) for n in NAMES}, ops


@settings(max_examples=150, deadline=None)
@given(trees, sizes)
def test_value_is_the_one_that_integers_give(tree, values):
    _, leaves = fresh()
    bound = dict(zip(NAMES, values))
    try:
        plain = build(tree, bound, {**BINARY, "max": max, "min": min})
        symbolic = build(tree, leaves, BINARY)
    except ZeroDivisionError:
        return
    found = symbolic.evaluate(bound) if isinstance(symbolic, SymInt) else symbolic
    assert found == plain
    if isinstance(symbolic, SymInt):
        assert eval(symbolic.source(), {"math": math}, dict(bound)) == plain


@settings(max_examples=60, deadline=None)
@given(trees, sizes)
def test_value_is_sympys(tree, values):
    symbols, ops = sympy_leaves()
    _, leaves = fresh()
    bound = dict(zip(NAMES, values))
    try:
        build(tree, bound, {**BINARY, "max": max, "min": min})
        ours = build(tree, leaves, BINARY)
        theirs = sympy.sympify(build(tree, symbols, ops))
    except ZeroDivisionError:
        return
    value = theirs.subs({symbols[n]: v for n, v in bound.items()})
    assert (ours.evaluate(bound) if isinstance(ours, SymInt) else ours) == int(value)


@settings(max_examples=150, deadline=None)
@given(trees, sizes)
def test_range_holds_the_value(tree, values):
    env, leaves = fresh()
    try:
        found = build(tree, leaves, BINARY)
    except ZeroDivisionError:
        return
    if not isinstance(found, SymInt):
        return
    try:
        value = found.evaluate(dict(zip(NAMES, values)))
    except ZeroDivisionError:
        return
    low, high = env.range_of(found.expr)
    assert low <= value <= high


@settings(max_examples=100, deadline=None)
@given(trees, trees, sizes, sizes)
def test_answers_and_guards_agree(first, second, hints, others):
    """An answer is the hints'; wherever its guards hold, it is the other sizes' as well."""
    env, leaves = fresh(hints)
    try:
        a, b = build(first, leaves, BINARY), build(second, leaves, BINARY)
        plain = [build(t, dict(zip(NAMES, hints)), BINARY) for t in (first, second)]
        elsewhere = [build(t, dict(zip(NAMES, others)), BINARY) for t in (first, second)]
    except ZeroDivisionError:
        return
    answers = [bool(a < b), bool(a == b), bool(a <= b)]
    assert answers == [plain[0] < plain[1], plain[0] == plain[1], plain[0] <= plain[1]]
    values = dict(zip(NAMES, others))
    assert all(g.holds(dict(zip(NAMES, hints))) for g in env.guards)
    if all(g.holds(values) for g in env.guards):
        assert answers == [
            elsewhere[0] < elsewhere[1],
            elsewhere[0] == elsewhere[1],
            elsewhere[0] <= elsewhere[1],
        ]
    assert compile_guards(env.guards, NAMES)(*others) == all(g.holds(values) for g in env.guards)


def test_polynomials_equal_as_such_are_equal_and_hash_alike():
    env, leaves = fresh()
    a, b = leaves["s0"], leaves["s1"]
    assert (a + b) ** 2 == a * a + 2 * a * b + b * b
    assert hash((a + b) * (a - b)) == hash(a * a - b * b)
    assert not env.guards


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a + 2 - a", "2"),
        ("(a * b + b) // b", "s0 + 1"),
        ("(4 * a + 2) // 2", "2*s0 + 1"),
        ("(2 * a) // (4 * b)", "(s0 // (2*s1))"),
        ("(a * b) % b", "0"),
        ("(a + 6) % 3", "(s0 % 3)"),
        ("(a - 1) // 2 + 1", "((s0 + 1) // 2)"),
        ("-(-a // 2)", "-((-s0) // 2)"),
    ],
)
def test_normal_form(text, shown):
    _, leaves = fresh()
    found = eval(text, {"a": leaves["s0"], "b": leaves["s1"]})
    assert str(found) == shown


def test_ranges_decide_without_guards():
    env, leaves = fresh()
    a, b = leaves["s0"], leaves["s1"]
    assert a > 0 and a >= 2 and a != 1 and 0 not in (a, b)
    assert a * b > b and a * b - b >= 2
    assert max(1, a) is a and a // a == 1 and (a % 4) < 4
    assert env.guards == ()


def test_what_was_learnt_is_not_asked_again():
    env, leaves = fresh()
    a, b = leaves["s0"], leaves["s1"]
    assert a < 10
    assert a <= 9 and a != 12 and 2 * a < 20
    assert a != b
    assert b != a
    assert [str(g) for g in env.guards] == ["s0 < 10", "s0 != s1"]


def test_equal_symbols_become_one():
    env = ShapeEnv()
    a, b = env.size(6), env.size(6)
    assert a == b
    assert [str(g) for g in env.guards] == ["s0 == s1"]
    assert (a - b) * 3 == 0 and str(a * b) in ("s0**2", "s1**2")
    assert len(env.guards) == 1


def test_index_specialises():
    env, leaves = fresh()
    assert list(range(leaves["s0"])) == [0, 1, 2, 3, 4]
    assert [str(g) for g in env.guards] == ["s0 == 5"]
    assert env.is_specialised("s0") == 5 and env.is_specialised("s1") is None
    assert leaves["s0"] + 1 == 6 and len(env.guards) == 1


def test_guards_are_data():
    env, leaves = fresh()
    assert leaves["s0"] * 2 < leaves["s1"] + 9
    (guard,) = env.guards
    assert str(guard) == "2*s0 < s1 + 9" and guard.symbols == {"s0", "s1"}
    assert guard.holds({"s0": 4, "s1": 0}) and not guard.holds({"s0": 9, "s1": 1})
    assert "test_symbolic.py" in guard.where
    with pytest.raises(AttributeError):
        guard.relation = "=="


def test_floats():
    env, leaves = fresh()
    a = leaves["s0"]
    half = a / 2
    assert half.evaluate({"s0": 9}) == 4.5 and half.hint == 2.5
    assert str(math.floor(half)) == "(s0 // 2)" and math.floor(a * 1.5).evaluate({"s0": 3}) == 4
    assert math.ceil(a * 0.5).evaluate({"s0": 7}) == 4
    assert (a**-0.5).evaluate({"s0": 4}) == 0.5 and sym_float(a).evaluate({"s0": 3}) == 3.0
    assert env.guards == ()
    assert half > 2
    assert half > 2
    assert len(env.guards) == 1
    assert math.sqrt(env.size(9)) == 3.0


def test_small_sizes_stay_numbers():
    env = ShapeEnv()
    assert [env.size(n) for n in (0, 1)] == [0, 1]
    zero = env.size(0, min=0)
    assert zero.hint == 0 and zero == 0 and len(env.guards) == 1


def test_unbacked_sizes():
    env = ShapeEnv()
    u = env.unbacked(min=1)
    assert u >= 1 and u + 1 > 1 and u == u
    with pytest.raises(GuardOnDataDependent, match=r"u0 == 5.*1 <= u0.*test_symbolic.py:\d+"):
        bool(u == 5)
    check(u < 8)
    assert u < 9 and u != 20
    with pytest.raises(InvalidState, match="Expected cond"):
        check(u >= 8)
    assert env.guards == () and [str(g) for g in env.assumed] == ["u0 < 8"]
    with pytest.raises(GuardOnDataDependent):
        int(u)


def test_symbols_of_two_environments_do_not_mix():
    a, b = ShapeEnv().size(3), ShapeEnv().size(4)
    with pytest.raises(InvalidState, match="another ShapeEnv"):
        a + b
