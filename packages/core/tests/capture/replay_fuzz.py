"""Random programs, called again and again while their world changes: compiled must equal eager.

``python -m packages.core.tests.capture.replay_fuzz FIRST COUNT [grad|plain|all] [native]`` runs that many seeds, says how
many calls were replayed, and shows the programs that went wrong; ``native``: inductor's recorder records.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import mortice
from mortice import Tensor
from mortice._capture import stretch

CALLS = 8


class Thing:
    """An outer object whose attributes, methods and class change."""

    s = 1.5

    def m(self, x: Any) -> Any:
        return x * self.s

    @property
    def half(self) -> float:
        return self.s / 2


class OtherThing(Thing):
    def m(self, x: Any) -> Any:
        return x + 1


class Program:
    """The source of one random function ``f(x, y, a=..., **k)``."""

    def __init__(self, seed: int, grad: bool) -> None:
        self.rng = random.Random(seed)
        self.grad = grad
        self.impure = self.rng.random() < 0.2
        self.lines = ["def f(x, y, a=1.0, *rest, **k):", "  acc = []; d = {}"]
        self.names = ["x", "y"]
        self.count = 0
        if self.rng.random() < 0.3:
            self.line(1, "def h(q, p=2.0): return q * p + CFG['a'] - a")
            self.helper = True
        else:
            self.helper = False
        for _ in range(self.rng.randrange(3, 10)):
            self.statement(1, 0)
        self.finish()

    def line(self, indent: int, text: str) -> None:
        self.lines.append("  " * indent + text)

    def pick(self, *more: str) -> str:
        return self.rng.choice([*self.names, *more])

    def expression(self) -> str:
        v, u = self.pick(), self.pick()
        choices = [
            f"{v} * {u}", f"{v} + CFG['a']", f"{v} - GB", f"{v} * LST[0]", f"{v}.relu()",
            f"{v} * OBJ.s", f"{v} + OBJ.m({u})", f"{v} * a", f"{v} * OBJ.half", f"{v}.sum() + {u}",
            f"{v}.abs() + 0.5", f"{v}.clamp(-2, 2)", f"{v} / 2", f"-{v}", f"{v}[:]",
            f"mortice.where({v} > 0, {v}, {u})", f"{v}.detach()", f"{v}.exp().clamp(max=9)",
            f"{v}.reshape(-1)", f"{v}.mean() * {u}", f"mortice.ones_like({v}) + {u}",
            f"mortice.stack([{v}, {u}]).sum(0)", f"{v}.clone()", f"sum([{v}, {u}])", f"{v} @ {u} + {v}",
            f"{v} * len(LST)", f"{v}.max() - {u}", f"{v}.double().float()", f"{v} + mortice.tensor([1., 0., 2.])",
        ]  # fmt: skip
        if self.helper:
            choices += [f"h({v})", f"h({v}, p={u})"]
        return self.rng.choice(choices)

    def condition(self) -> str:
        v = self.pick()
        return self.rng.choice(
            [
                f"{v}.sum() > {self.rng.choice([-5, 0, 3, 50])}", f"{v}[0] < {v}[1]",
                f"{v}.max().item() > 2", "a > 1", "OBJ.s > 1.2", f"{v} is x", "CFG['a'] > 0",
                f"int({v}.sum()) % 2", "len(rest)", "'z' in k", f"{v}.requires_grad", f"len({v}) > 2",
            ]
        )  # fmt: skip

    def statement(self, indent: int, depth: int) -> None:
        r = self.rng.random()
        if r < 0.4:
            self.assign(indent)
        elif r < 0.53:
            self.write(indent)
        elif r < 0.6:
            target = self.rng.choice(["acc.append({})", "d['{1}'] = {0}", "acc += [{}]"])
            self.line(indent, target.format(self.pick(), self.rng.choice("pq")))
        elif r < 0.64 and self.impure:
            self.line(
                indent, self.rng.choice(["LOG.append(1)", "OBJ.s = OBJ.s + 1", "CFG['n'] = 3"])
            )
        elif depth < 2:
            self.block(indent, depth)
        else:
            self.assign(indent)

    def assign(self, indent: int) -> None:
        value = self.expression()
        if self.rng.random() < 0.15 and indent > 1:
            self.line(indent, f"{self.pick()} = {value}")
            return
        self.count += 1
        name = f"v{self.count}"
        self.line(indent, f"{name} = {value}")
        if indent == 1:
            self.names.append(name)

    def write(self, indent: int) -> None:
        v = self.pick("GB")
        value = self.pick("0.5", "a")
        self.line(
            indent,
            self.rng.choice(
                [
                    f"{v}.add_({value})", f"{v}.mul_(0.5)", f"{v}[{self.rng.randrange(2)}].add_(1.0)",
                    f"{v}[1:] = 2.0", f"{v}[0] = {value}" if value in ("0.5", "a") or self.grad else f"{v}.copy_({value})",
                    f"{v} += {value}" if v != "GB" else "GB.zero_()", f"{v}.view(-1)[1].mul_(2.0)",
                ]
            ),
        )  # fmt: skip

    def block(self, indent: int, depth: int) -> None:
        kind = self.rng.random()
        if kind < 0.12 and self.grad:
            self.line(indent, "with mortice.no_grad():")
        elif kind < 0.22:
            self.line(indent, f"for i in range({self.rng.choice(['2', 'int(a)', 'len(LST)'])}):")
        elif kind < 0.3:
            self.line(indent, "try:")
            self.statement(indent + 1, depth + 1)
            self.line(indent + 1, f"if {self.condition()}: raise ValueError('v')")
            self.line(indent, "except ValueError as e:")
        else:
            self.line(indent, f"if {self.condition()}:")
        self.statement(indent + 1, depth + 1)
        self.statement(indent + 1, depth + 1)
        if kind >= 0.3:
            if self.rng.random() < 0.5:
                self.line(indent, "else:")
                self.statement(indent + 1, depth + 1)
            if self.rng.random() < 0.3 and indent == 1:
                self.line(indent, f"if {self.condition()}: return {self.pick()}, acc")

    def finish(self) -> None:
        v, u = self.pick(), self.pick()
        self.line(
            1,
            self.rng.choice(
                [
                    f"return [{v}, {u}, acc, GB * 1]", f"return {{'a': {v}, 'b': ({u}, acc), 'd': d}}",
                    f"return {v}", f"return ({v}, {v}[0], {u}, d)", f"return {v}, GB, k, rest",
                ]
            ),
        )  # fmt: skip

    @property
    def source(self) -> str:
        return "\n".join(self.lines)


class World:
    """What a program reads besides its arguments, and how that changes between its calls."""

    def __init__(self, seed: int, grad: bool) -> None:
        self.rng = random.Random(seed)
        self.grad = grad
        #: What the gradients of the last call's arguments are taken for: tensors that nobody wrote to.
        self.leaves: list[Tensor] = []
        #: Whether sizes differ from call to call; then every other tensor has one element.
        self.sized = seed % 3 == 0

        class Mine(Thing):
            pass

        self.Mine = Mine
        self.space: dict[str, Any] = {
            "CFG": {"a": 1.0}, "GB": self.tensor(1.0, -1.0, 0.5), "LST": [2.0], "LOG": [],
            "OBJ": Mine(), "mortice": mortice,
        }  # fmt: skip

    def tensor(self, *values: float) -> Tensor:
        return mortice.tensor(list(values[:1] if self.sized else values))

    def argument(self, *values: float) -> Tensor:
        return mortice.tensor(list(values))

    def change(self) -> None:
        r, rng, space = self.rng.random(), self.rng, self.space
        if r < 0.12:
            space["CFG"]["a"] = rng.choice([1.0, -1.0, 2])
        elif r < 0.2:
            space["GB"] = self.tensor(*[round(rng.uniform(-1, 1), 2) for _ in range(3)])
        elif r < 0.27:
            space["LST"][0] = rng.choice([2.0, 0.5])
        elif r < 0.3:
            space["LST"].append(1.0)
        elif r < 0.37:
            space["OBJ"].s = rng.choice([1.0, 2.0])
        elif r < 0.41:
            space["OBJ"] = rng.choice([self.Mine, OtherThing])()
        elif r < 0.45:
            self.Mine.m = rng.choice([lambda s, x: x * s.s, lambda s, x: x - 1])
        elif r < 0.48:
            space["OBJ"].m = rng.choice([lambda x: x * 3, lambda x: x])
        elif r < 0.5:
            space["OBJ"].__dict__.clear()

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        rng = self.rng
        n = rng.choice([2, 3, 3, 4, 6]) if self.sized else 3
        x = self.argument(*[rng.choice([-1.0, 0.0, 1.0, 2.0]) for _ in range(n)])
        y = x
        if rng.random() >= 0.15:
            other = self.argument(*[1.0, 2.0, -1.0, 0.5, 3.0, -2.0][:n])
            y = x[:] if rng.random() < 0.1 else other
        if rng.random() < 0.1:
            y = self.argument(*[1.0, 0.0, 2.0, 0.0, 3.0, 0.0] * 2)[::2][:n]
        if rng.random() < 0.08:
            x, y = x.double(), y.double()
        self.leaves = []
        if self.grad and rng.random() < 0.7:
            x.requires_grad_()
            self.leaves = [x]
            if rng.random() < 0.3 and y is not x and not y._is_view():
                y.requires_grad_()
                self.leaves.append(y)
            if rng.random() < 0.4:
                x = x * 1
        args: list[Any] = [x, y]
        if rng.random() < 0.5:
            args.append(rng.choice([1.0, 2.5, 2]))
        kwargs = {"z": 1} if rng.random() < 0.1 else {}
        return args, kwargs


def norm(o: Any) -> Any:
    """Values, metadata and structure as text."""
    if isinstance(o, Tensor):
        return f"{o.dtype}{tuple(o.shape)}{o.stride()}{o.requires_grad}{o.tolist()}"
    if isinstance(o, (list, tuple)):
        return [type(o).__name__, *map(norm, o)]
    if isinstance(o, dict):
        return [(k, norm(v)) for k, v in o.items()]
    return f"{type(o).__name__} {o!r}"


def tensors(o: Any) -> list[Tensor]:
    if isinstance(o, Tensor):
        return [o]
    items = o.values() if isinstance(o, dict) else o if isinstance(o, (list, tuple)) else ()
    return [t for x in items for t in tensors(x)]


def aliases(found: list[Tensor]) -> list[Any]:
    """Which of the tensors are one, and which share memory."""
    return [
        (a is b, a.untyped_storage() is b.untyped_storage())
        for i, a in enumerate(found)
        for b in found[:i]
    ]


def differentiate(result: Any, leaves: list[Tensor]) -> Any:
    """Gradients of everything that a call returned; no gradient and one of zeros are the same here:
    a graph without what was overwritten does not go back to it.
    """
    roots = [t for t in tensors(result) if t.requires_grad and t.is_floating_point()]
    if not (roots and leaves):
        return None
    total = sum(t.double().pow(2).sum() for t in roots)
    if not total.requires_grad:
        return None
    grads = mortice.autograd.grad(total, leaves, allow_unused=True)
    return [None if g is None or not g.any() else norm(g) for g in grads]


def agree(want: Any, got: Any) -> bool:
    """Equal; or eager refuses to differentiate what was overwritten, which a graph of values can."""
    return want == got or (type(want) is str and "modified by an inplace operation" in want)


def play(
    source: str, seed: int, grad: bool, compile: Callable[[Any], Any]
) -> tuple[list[Any], Any]:
    """What every call shows: results, aliases, gradients, and the world after it."""
    world = World(seed, grad)
    exec(source, world.space)
    f = compile(world.space["f"])
    out: list[Any] = []
    for _ in range(CALLS):
        world.change()
        args, kwargs = world.arguments()
        found: Any = None
        try:
            result = f(*args, **kwargs)
            found = tensors(result)
            everything = [*found, *tensors(args), world.space["GB"]]
            out.append((norm(result), aliases(everything)))
            out.append(differentiate(result, world.leaves))
        except Exception as error:
            out.append(f"{type(error).__name__}: {error}")
        gb = world.space["GB"]
        obj = world.space["OBJ"]
        out.append((norm(args), norm(gb), len(world.space["LOG"]), obj.s, norm(world.space["CFG"])))
        if gb.requires_grad:
            world.space["GB"] = gb.detach().clone()
        if found and world.rng.random() < 0.3 and not found[0].requires_grad:
            try:
                found[0].add_(1.0)
            except Exception as error:
                out.append(type(error).__name__)
            out.append((norm(args), norm(found)))
    return out, f


def recorded(f: Any) -> Any:
    """Compiled, and always run."""
    compiled = mortice.compile(f, backend="eager", recompile_limit=1000)
    compiled.replay = None
    return compiled


def replayed(f: Any) -> Any:
    stretch.WARM = 1  # checks by versions take part from the second replay on
    return mortice.compile(f, backend="eager", recompile_limit=1000)


MODES = {"recorded": recorded, "replayed": replayed}


def difference(
    seed: int, grad: bool, counts: Counter[str], modes: Any = ("recorded", "replayed")
) -> str | None:
    """What goes wrong with one seed, and in which mode; None if nothing does."""
    source = Program(seed, grad).source
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want, _ = play(source, seed, grad, lambda f: f)
        for name in modes:
            compile = MODES[name]
            try:
                got, f = play(source, seed, grad, compile)
            except Exception as error:
                return f"seed {seed} grad {grad} {name}: {type(error).__name__}: {error}\n{source}"
            counts["calls"] += CALLS
            if name == "replayed":
                counts["replays"] += f.verdict.replayed
                counts["resumed"] += f.verdict.resumed
                counts["always run"] += f.verdict.always_runs
            differ = [(i, a, b) for i, (a, b) in enumerate(zip(want, got)) if not agree(a, b)]
            if differ or len(want) != len(got):
                at, a, b = (differ or [(min(len(want), len(got)), None, None)])[0]
                return f"seed {seed} grad {grad} {name}, entry {at}:\n{source}\nwant {a}\ngot  {b}"
    return None


def main() -> None:
    first, count = int(sys.argv[1]), int(sys.argv[2])
    kinds = {"grad": [True], "plain": [False], "all": [False, True]}[(sys.argv[3:] or ["all"])[0]]
    if "native" in sys.argv:
        from packages.core.tests.capture.natively import record_natively

        record_natively()
    counts: Counter[str] = Counter()
    wrong: dict[str, list[tuple[int, bool]]] = {"recorded": [], "replayed": []}
    for seed in range(first, first + count):
        for grad in kinds:
            found = difference(seed, grad, counts)
            if found is not None:
                mode = "recorded" if "recorded" in found[:40] else "replayed"
                wrong[mode].append((seed, grad))
                if mode == "replayed" and len(wrong[mode]) <= 3:
                    print(found, flush=True)
        if seed % 500 == 499:
            print("at", seed, dict(counts), {m: len(w) for m, w in wrong.items()}, flush=True)
    print(dict(counts), "wrong", wrong)


if __name__ == "__main__":
    main()
