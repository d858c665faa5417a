"""Eager operators beside torch's, in one run, on one thread.

    python benchmarks/eager.py [--only NAME,...] [--quick] [--strict] [--no-write]

Writes benchmarks/results/eager.md with the machine's name. Every case's results are compared before
they are timed. numpy's own function is timed beside where there is one.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from harness import Candidate, Case, Measured, describe, measure, one_thread, table

RESULTS = Path(__file__).parent / "results" / "eager.md"
OURS, THEIRS, BESIDE = "mortice", "torch", "numpy"

Build = Callable[[Any, Callable[..., Any]], Callable[[], Any]]


def arrays(seed: int = 0) -> Callable[..., Any]:
    """A source of float32 arrays, the same ones for every library."""
    import numpy as np

    random = np.random.default_rng(seed)
    return lambda *shape: random.standard_normal(shape, dtype=np.float32)


# -- the cases: build(library, array source) -> what is timed ------------------------------------


def add(lib: Any, make: Any) -> Callable[[], Any]:
    x, y, f = lib.from_numpy(make(1)), lib.from_numpy(make(1)), lib.add
    return lambda: f(x, y)


def add_operator(lib: Any, make: Any) -> Callable[[], Any]:
    x, y = lib.from_numpy(make(1)), lib.from_numpy(make(1))
    return lambda: x + y


def add_with_grad(lib: Any, make: Any) -> Callable[[], Any]:
    x, y, f = lib.from_numpy(make(1)), lib.from_numpy(make(1)).requires_grad_(), lib.add
    return lambda: f(x, y)


def view(lib: Any, make: Any) -> Callable[[], Any]:
    x, f = lib.from_numpy(make(64, 64)), lib.Tensor.view
    return lambda: f(x, (4096,))


def transpose(lib: Any, make: Any) -> Callable[[], Any]:
    x, f = lib.from_numpy(make(64, 64)), lib.transpose
    return lambda: f(x, 0, 1)


def relu(lib: Any, make: Any) -> Callable[[], Any]:
    x, f = lib.from_numpy(make(1)), lib.relu
    return lambda: f(x)


def softmax(lib: Any, make: Any) -> Callable[[], Any]:
    x, f = lib.from_numpy(make(1024, 1024)), lib.softmax
    return lambda: f(x, 1)


def layer_norm(lib: Any, make: Any) -> Callable[[], Any]:
    x, w, b = (lib.from_numpy(make(*shape)) for shape in ((1024, 1024), (1024,), (1024,)))
    f = lib.nn.functional.layer_norm
    return lambda: f(x, (1024,), w, b)


def gelu(lib: Any, make: Any) -> Callable[[], Any]:
    x, f = lib.from_numpy(make(1_000_000)), lib.nn.functional.gelu
    return lambda: f(x)


def conv2d(lib: Any, make: Any) -> Callable[[], Any]:
    """The 3 x 3 convolution of a ResNet's first stage, one picture."""
    x, w, b = (lib.from_numpy(make(*s)) for s in ((1, 64, 56, 56), (64, 64, 3, 3), (64,)))
    f = lib.nn.functional.conv2d
    return lambda: f(x, w, b, 1, 1)


def mlp_step(lib: Any, make: Any) -> Callable[[], Any]:
    """Forward, cross entropy, backward and SGD of 64 x 784-512-512-10; returns the loss."""
    nn = lib.nn
    sizes = (784, 512, 512, 10)
    layers: list[Any] = []
    for fan_in, fan_out in itertools.pairwise(sizes):
        linear = nn.Linear(fan_in, fan_out)
        with lib.no_grad():
            linear.weight.copy_(lib.from_numpy(make(fan_out, fan_in) / fan_in**0.5))
            linear.bias.copy_(lib.from_numpy(make(fan_out)))
        layers += [linear, nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    optimizer = lib.optim.SGD(model.parameters(), lr=1e-3)
    x = lib.from_numpy(make(64, 784))
    target = lib.arange(64) % 10
    cross_entropy = nn.functional.cross_entropy

    def step() -> Any:
        optimizer.zero_grad()
        loss = cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    return step


def numpy_add(np: Any, make: Any) -> Callable[[], Any]:
    a, b, f = make(1), make(1), np.add
    return lambda: f(a, b)


# name, build, the largest ratio to torch, numpy's own way
CASES: list[tuple[str, Build, float | None, Any]] = [
    ("add, 1 element", add, 0.8, numpy_add),
    ("add, 1 element, with grad", add_with_grad, 0.8, numpy_add),
    ("view 64x64", view, 0.5, None),
    ("transpose 64x64", transpose, 0.5, None),
    ("relu, 1 element", relu, 0.8, None),
    ("MLP step 64x784-512-512-10", mlp_step, 1.1, None),
    ("softmax 1024x1024", softmax, 3.0, None),
    ("layer_norm 1024x1024", layer_norm, 3.0, None),
    ("gelu 1M", gelu, 3.0, None),
    ("conv2d 1x64x56x56, 3x3", conv2d, 3.0, None),
    ("x + y, 1 element", add_operator, None, numpy_add),
]


def agree(name: str, ours: Callable[[], Any], theirs: Callable[[], Any]) -> None:
    """Both give the same result; for the MLP, the same losses over three steps."""
    import numpy as np

    for _ in range(3):
        mine, other = ours().detach().numpy(), theirs().detach().numpy()
        np.testing.assert_allclose(mine, other, rtol=2e-4, atol=2e-4, err_msg=name)


def build(only: list[str]) -> tuple[list[Case], dict[str, str]]:
    """The cases, and those that cannot run with the reason."""
    import numpy as np
    import torch

    import mortice

    torch.set_num_threads(1)
    cases: list[Case] = []
    broken: dict[str, str] = {}
    for name, make, target, beside in CASES:
        if only and not any(part in name for part in only):
            continue
        try:
            ours, theirs = make(mortice, arrays()), make(torch, arrays())
            agree(name, ours, theirs)
        except Exception as error:
            broken[name] = f"{type(error).__name__}: {error}".splitlines()[0]
            continue
        candidates = [Candidate(OURS, ours), Candidate(THEIRS, theirs)]
        if beside is not None:
            candidates.append(Candidate(BESIDE, beside(np, arrays())))
        cases.append(Case(name, candidates, target))
    return cases, broken


def page(results: list[Measured], broken: dict[str, str], dropped: str) -> list[str]:
    """The whole report."""
    bounded = [r for r in results if r.case.target is not None]
    met = sum(r.ratio(OURS, THEIRS) <= (r.case.target or 0) for r in bounded)
    batches = len(next(iter(results[0].cpu.values()))) if results else 0
    summary = (
        "One thread, one process, one run. Median CPU time per call over "
        f"{batches} interleaved batches in phases with pauses; made by `python3 dev.py bench eager`."
    )
    lines = [
        "# Eager operators beside torch",
        "",
        summary,
        "",
        *(f"- {text}" for text in describe("mortice", "mortice-cpu", "numpy", "torch")),
    ]
    if dropped:
        lines.append(f"- Unset for the run: {dropped}")
    lines += ["", *table(results, OURS, THEIRS, BESIDE), ""]
    lines += [f"{met} of {len(bounded) + len(broken)} targets met."]
    lines += [f"Not measured, {name}: {why}" for name, why in broken.items()]
    return lines


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="parts of names, comma-separated")
    parser.add_argument("--quick", action="store_true", help="fewer batches; nothing is written")
    parser.add_argument("--strict", action="store_true", help="fail when a target is missed")
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args(argv)
    dropped = one_thread()
    only = [part for part in options.only.split(",") if part]
    cases, broken = build(only)
    results = measure(cases, phases=2, rounds=4) if options.quick else measure(cases)
    lines = page(results, broken, dropped)
    print("\n".join(lines))
    if not (options.quick or options.no_write or only):
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    missed = [r for r in results if r.case.target and r.ratio(OURS, THEIRS) > r.case.target]
    return 1 if options.strict and (missed or broken) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
