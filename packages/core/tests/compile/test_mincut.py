"""Minimum cuts against all cuts, on small random graphs."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from mortice._compile.mincut import INFINITE, FlowNetwork


def network(n, edges):
    flow = FlowNetwork()
    for _ in range(n):
        flow.node()
    for a, b, capacity in edges:
        flow.edge(a, b, capacity)
    return flow


def brute(n, edges):
    inner = range(2, n)
    cuts = ({0, *chosen} for size in range(n - 1) for chosen in combinations(inner, size))
    return min(sum(c for a, b, c in edges if a in side and b not in side) for side in cuts)


@given(
    st.integers(2, 7).flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.lists(
                st.tuples(st.integers(0, n - 1), st.integers(0, n - 1), st.integers(0, 9)),
                max_size=18,
            ),
        )
    )
)
def test_it_is_the_least_of_all_cuts(problem):
    n, edges = problem
    value, side = network(n, edges).minimum_cut(0, 1)
    assert value == brute(n, edges)
    assert 0 in side
    assert 1 not in side
    assert value == sum(c for a, b, c in edges if a in side and b not in side)


def test_what_cannot_be_parted_says_so():
    value, _ = network(3, [(0, 2, INFINITE), (2, 1, INFINITE)]).minimum_cut(0, 1)
    assert value >= INFINITE


def test_of_equal_cuts_the_one_nearest_to_the_source():
    _, side = network(4, [(0, 2, 5), (2, 3, 5), (3, 1, 5)]).minimum_cut(0, 1)
    assert side == {0}


def test_depth_is_no_recursion():
    n = 5000
    edges = [(i, i + 1, 3) for i in range(2, n - 1)] + [(0, 2, 7), (n - 1, 1, 7)]
    assert network(n, edges).minimum_cut(0, 1)[0] == 3
