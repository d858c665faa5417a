"""A replay that gives up where the call then goes another way than the replay went."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from packages.core.tests.capture.observing import supported

import mortice

pytestmark = supported


class World:
    """What the function reads; ``meddle`` runs once, behind the next segment, as another thread may."""

    def __init__(self) -> None:
        self.way = "add"
        self.meddle: Callable[[], None] | None = None

    def backend(self, gm: Any, example_inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            result = gm(*args)
            meddle, self.meddle = self.meddle, None
            if meddle is not None:
                meddle()
            return result

        return run


def program(world: World) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        if world.way == "add":
            x.add_(1.0)
        elif world.way == "mul":
            x.mul_(3.0)
        y = x * 2
        if x.sum() > 10:
            y = y + 100
        x[0].mul_(2.0)
        return y

    return f


@pytest.mark.parametrize("then", ["mul", "nothing", "add"])
@pytest.mark.parametrize("large", [False, True])
def test_the_call_is_computed_as_python_goes(then: str, large: bool) -> None:
    world = World()
    f = program(world)
    compiled = mortice.compile(f, backend=world.backend)
    for _ in range(3):
        compiled(mortice.zeros(3))
    assert compiled.verdict.replayed
    before = compiled.verdict.resumed
    start = mortice.full((3,), 30.0 if large else 1.0)
    mine, theirs = start.clone(), start.clone()
    world.meddle = lambda: setattr(world, "way", then)
    got = compiled(mine)
    assert world.meddle is None
    if compiled.verdict.resumed == before:  # the replay had its way: nothing was read again
        assert not large
        world.way = "add"
    want = f(theirs)
    assert got.tolist() == want.tolist()
    assert mine.tolist() == theirs.tolist()
    assert mine._version == theirs._version


def test_writes_of_several_segments_are_undone() -> None:
    world = World()

    def f(x: Any, z: Any) -> Any:
        x.add_(1.0)
        if x.sum() > 1000:
            return x
        z.add_(x)
        if world.way == "mul":
            z.mul_(2.0)
        if z.sum() > 10:
            return z * 5
        return z * 2

    compiled = mortice.compile(f, backend=world.backend)
    for _ in range(3):
        compiled(mortice.zeros(3), mortice.zeros(3))
    assert compiled.verdict.replayed

    def second() -> None:
        world.meddle = lambda: setattr(world, "way", "mul")

    world.meddle = second
    mine = [mortice.ones(3), mortice.full((3,), 20.0)]
    theirs = [t.clone() for t in mine]
    got = compiled(*mine)
    assert compiled.verdict.resumed == 1
    want = f(*theirs)
    assert got.tolist() == want.tolist()
    assert [t.tolist() for t in mine] == [t.tolist() for t in theirs]
