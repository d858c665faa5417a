"""Guards hold until what they say has changed, compiled and one by one alike."""

from __future__ import annotations

import collections
import gc
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from packages.core.tests.capture.observing import supported

import mortice
from mortice._capture.guard_check import first_failure
from mortice._capture.guard_code import compile_check
from mortice._capture.guard_fast import fast_check
from mortice._capture.guards import Argument, Guard, IsObject, Ref
from mortice._capture.observer import observe
from mortice._capture.versions import can_read

pytestmark = supported


class Layer:
    scale = 2.0

    def __init__(self) -> None:
        self.w = mortice.ones(3)
        self.on = True
        self.sizes = (1, 2)
        self.more = [1.0, "a"]

    def forward(self, x: Any) -> Any:
        return x

    def helper(self) -> int:
        return 1


class Slotted:
    __slots__ = ("a",)

    def __init__(self, a: Any) -> None:
        self.a = a


class State:
    """Fresh state for each case, and a function that reads all of it."""

    def __init__(self) -> None:
        self.layer = Layer()
        self.slotted = Slotted(1)
        self.module = types.ModuleType("m")
        self.module.k = 1  # type: ignore[attr-defined]
        self.table: dict[str, Any] = {"a": 1.0, "n": float("nan"), "z": 0.0}
        self.ordered = collections.OrderedDict(x=1)
        self.members = {"in"}
        cell = 5

        class Sub(Layer):
            def forward(self, x: Any) -> Any:
                return super().forward(x)

        self.Sub = Sub
        self.sub = Sub()

        def helper(x: Any, a: Any = 1, *, b: Any = 2) -> Any:
            return x, a, b, cell

        def set_cell(v: Any) -> None:
            nonlocal cell
            cell = v

        self.helper, self.set_cell = helper, set_cell

    def read(self, x: Any, y: Any) -> Any:
        layer = self.layer
        out = [layer.w, layer.on, layer.sizes[1], layer.forward(x), layer.scale, x.shape, y]
        out += [self.slotted.a, self.module.k, self.table["a"], self.table["n"], self.table["z"]]
        out += list(layer.more)
        out += list(self.ordered)
        out += ["in" in self.members, "q" in self.table, self.helper(1), self.sub.forward(x)]
        return out


CHANGES: dict[str, Callable[[State], Any]] = {
    "attribute": lambda s: setattr(s.layer, "on", False),
    "attribute to an equal of another type": lambda s: setattr(s.layer, "on", 1),
    "tensor's dtype": lambda s: setattr(s.layer, "w", mortice.ones(3, dtype=mortice.float64)),
    "tensor's shape": lambda s: setattr(s.layer, "w", mortice.ones(4)),
    "tensor's grad": lambda s: s.layer.w.requires_grad_(),
    "tensor to number": lambda s: setattr(s.layer, "w", 1),
    "attribute deleted": lambda s: delattr(s.layer, "on"),
    "method in the instance": lambda s: setattr(s.layer, "forward", lambda x: x),
    "other object": lambda s: setattr(s, "layer", s.slotted),
    "class of the object": lambda s: setattr(s.layer, "__class__", s.Sub),
    "dict of the object": lambda s: setattr(s.layer, "__dict__", {"on": True}),
    "slot": lambda s: setattr(s.slotted, "a", 2),
    "slot deleted": lambda s: delattr(s.slotted, "a"),
    "module": lambda s: setattr(s.module, "k", 2),
    "dict item": lambda s: s.table.__setitem__("a", 2.0),
    "NaN to number": lambda s: s.table.__setitem__("n", 1.0),
    "sign of zero": lambda s: s.table.__setitem__("z", -0.0),
    "key added": lambda s: s.table.__setitem__("q", 1),
    "key removed": lambda s: s.table.pop("a"),
    "list item": lambda s: s.layer.more.__setitem__(0, 2.0),
    "list grown": lambda s: s.layer.more.append(1),
    "ordered key": lambda s: s.ordered.__setitem__("y", 1),
    "member": lambda s: s.members.clear(),
    "code": lambda s: (
        setattr(s.helper, "__code__", (lambda x, a, *, b: 1).__code__)
        if not s.helper.__closure__
        else s.set_cell(7)
    ),
    "defaults": lambda s: setattr(s.helper, "__defaults__", (3,)),
    "keyword default": lambda s: s.helper.__kwdefaults__.__setitem__("b", 3),
    "cell": lambda s: s.set_cell(6),
    "bases": lambda s: setattr(
        s.Sub, "__bases__", (type("L2", (Layer,), {"forward": lambda s, x: x}),)
    ),
    "method of the class": lambda s: setattr(s.Sub, "forward", lambda self, x: x),
    "grad mode": lambda s: mortice.set_grad_enabled(False),
}


def watched(state: State) -> tuple[Any, Any, Any]:
    args = (mortice.ones(2, 2), 5)
    _, w = observe(state.read, args, {})
    assert not w.reasons, [str(r) for r in w.reasons]
    return w, compile_check(w.guards, ()), args


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_is_noticed(name: str) -> None:
    state = State()
    w, check, args = watched(state)
    assert check(args, {}) == ()
    assert first_failure(w.guards, args, {}) is None
    try:
        CHANGES[name](state)
        failed = check(args, {})
        assert failed != (), check.text
        assert first_failure(w.guards, args, {})
        if failed >= 0 and name != "bases":  # the two forms stop at one guard
            assert first_failure(w.guards, args, {}) == first_failure([w.guards[failed]], args, {})
    finally:
        mortice.set_grad_enabled(True)


@pytest.mark.skipif(not can_read(), reason="versions are not where they are expected")
@pytest.mark.parametrize("name", CHANGES)
def test_every_change_is_noticed_by_versions(name: str) -> None:
    state = State()
    w, full, args = watched(state)
    fast = fast_check(w.guards, (), args, {}, full, lambda: None)
    assert fast is not None
    assert fast(args, {}) == ()
    try:
        CHANGES[name](state)
        assert fast(args, {}) == full(args, {}) != (), fast.text
    finally:
        mortice.set_grad_enabled(True)


def test_versions_stand_in_for_most_lookups() -> None:
    """A Module of 20 modules: lookups of the full check and of the quick one."""
    if not can_read():
        pytest.skip("versions are not where they are expected")
    nn = pytest.importorskip("mortice.nn")
    layers = [m for _ in range(10) for m in (nn.Linear(4, 4), nn.ReLU())]
    net = nn.Sequential(*layers).requires_grad_(False)
    args = (mortice.ones(2, 4),)
    _, w = observe(net, args, {})
    full = compile_check(w.guards, ())
    fast = fast_check(w.guards, (), args, {}, full, lambda: None)
    assert fast is not None
    assert fast(args, {}) == full(args, {}) == ()
    assert full.text.count("\n") < 750
    assert fast.text.count("\n") < 220
    net[3].register_forward_hook(lambda m, i, o: o)
    assert fast(args, {}) == full(args, {}) != ()


def test_what_a_quick_check_knows_is_forgotten_when_its_owner_dies() -> None:
    nn = pytest.importorskip("mortice.nn")
    nets = [nn.Sequential(nn.Linear(2, 2), nn.ReLU())]
    gone = weakref.ref(nets[0]), weakref.ref(nets[0][0].weight)
    compiled = mortice.compile(lambda x: nets[0](x), backend="eager")
    for _ in range(5):
        compiled(mortice.ones(2))
    assert compiled.verdict.replayed == 4
    nets[0] = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    gc.collect()
    assert gone[0]() is None
    assert gone[1]() is None
    for _ in range(5):
        compiled(mortice.ones(2))
    assert compiled.verdict.replayed == 9


def test_changes_of_nothing_read_are_not_noticed() -> None:
    state = State()
    _, check, args = watched(state)
    state.layer.unread = 1  # type: ignore[attr-defined]
    state.table["other"] = 1
    state.module.other = 1  # type: ignore[attr-defined]
    state.layer.w = mortice.zeros(3)  # another tensor of the same kind
    assert check(args, {}) == ()


@pytest.mark.parametrize(
    "args",
    [
        (mortice.ones(2, 3), 5), (mortice.ones(2, 2).t(), 5), (mortice.ones(2, 2), 6),
        (mortice.ones(2, 2), 5.0), (mortice.ones(2, 2), True), (1, 5), (mortice.ones(2, 2),),
        (mortice.ones(2, 2, dtype=mortice.int64), 5), (mortice.ones(2, 2, requires_grad=True), 5),
    ],
)  # fmt: skip
def test_arguments_of_another_kind_are_noticed(args: Any) -> None:
    w, check, good = watched(State())
    assert check(good, {}) == ()
    assert check(args, {}) != ()
    assert first_failure(w.guards, args, {})


def test_nested_arguments() -> None:
    def f(batch: Any, **more: Any) -> Any:
        return batch["x"][0] + batch["y"], more["k"]

    x = mortice.ones(2)
    args, kwargs = ({"x": [x, 1], "y": x},), {"k": (1, "a")}
    _, w = observe(f, args, kwargs)
    assert not w.reasons
    check = compile_check(w.guards, ())
    assert check(args, kwargs) == ()
    other = mortice.ones(2)
    assert check(({"x": [other, 1], "y": other},), {"k": (1, "a")}) == ()
    assert check(({"x": [other, 1], "y": x},), {"k": (1, "a")}) != ()  # no longer one tensor
    assert check(({"y": x, "x": [x, 1]},), {"k": (1, "a")}) != ()
    assert check(({"x": (x, 1), "y": x},), {"k": (1, "a")}) != ()
    assert check(({"x": [x, 2], "y": x},), {"k": (1, "a")}) != ()
    assert check(args, {"k": (1, "b")}) != ()


def test_guards_keep_no_object_alive() -> None:
    layer = Layer()
    gone = weakref.ref(layer), weakref.ref(layer.w)

    def f(x: Any, owner: Any) -> Any:
        return x + owner.w

    args = (mortice.ones(3), layer)
    _, w = observe(f, args, {})
    check = compile_check(w.guards, ())
    assert check(args, {}) == ()
    del layer, args, w, _
    gc.collect()
    assert gone[0]() is None
    assert gone[1]() is None
    assert check((mortice.ones(3), Layer()), {}) == ()  # another of the same kind will do


def test_an_object_that_is_gone_is_no_other_and_not_none() -> None:
    def other() -> None:
        pass

    def gone() -> None:
        pass

    ref = Ref(gone)
    ref.number = id(other)  # as if it had come to lie where the other one was
    guards = [Guard(Argument(0), IsObject(ref))]
    check = compile_check(guards, ())
    assert first_failure(guards, (gone,), {}) is None
    assert check((gone,), {}) == ()
    del gone
    gc.collect()
    assert not ref.alive()
    for value in (other, None):
        assert first_failure(guards, (value,), {}) is not None
        assert check((value,), {}) == 0
