"""What a call costs whose sizes no call had before.

    python benchmarks/growing.py [--quick] [--no-write]

One process, one thread. Each program is compiled by the default backend and called with a size that
grows by one: keys and values of a decoder, a vector, a batch, a batch in training. Beside it the same
sizes once more, and uncompiled. Median CPU time of the thread, and how often the backend's passes ran. Writes
benchmarks/results/growing.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from harness import describe, one_thread
from harness.report import duration

RESULTS = Path(__file__).parent / "results" / "growing.md"
#: Width of the decoder, heads, first length; and how many calls come before those that count.
DIM, HEADS, LENGTH, WARM = 64, 4, 16, 20


class Program(NamedTuple):
    """What is timed, compiled and not, and its inputs for the n-th size."""

    compiled: Callable[..., Any]
    uncompiled: Callable[..., Any]
    inputs: Callable[[int], tuple[Any, ...]]


class Line(NamedTuple):
    """One row: seconds for a new size, a known one, and uncompiled; how often passes ran."""

    name: str
    new: float
    known: float
    uncompiled: float
    planned: int


def decoder(layers: int) -> Program:
    """A step of a decoder: attention over keys and values of all tokens so far, and an MLP."""
    import mortice
    import mortice.nn.functional as F

    def weights(*shape: int) -> Any:
        return mortice.randn(*shape) * 0.1

    made = [
        (*(weights(DIM, DIM) for _ in range(4)), weights(DIM, 4 * DIM), weights(4 * DIM, DIM))
        for _ in range(layers)
    ]

    def step(x: Any, keys: list[Any], values: list[Any]) -> Any:
        for i, (wq, wk, wv, wo, up, down) in enumerate(made):
            h = F.layer_norm(x, (DIM,))
            q, k, v = ((h @ w).view(1, HEADS, 1, DIM // HEADS) for w in (wq, wk, wv))
            k, v = mortice.cat([keys[i], k], 2), mortice.cat([values[i], v], 2)
            scores = mortice.softmax(q @ k.transpose(-1, -2) * (DIM // HEADS) ** -0.5, -1)
            x = x + (scores @ v).reshape(1, DIM) @ wo
            x = x + F.gelu(F.layer_norm(x, (DIM,)) @ up) @ down
        return x

    def inputs(n: int) -> tuple[Any, ...]:
        shape = (1, HEADS, LENGTH + n, DIM // HEADS)
        lists = ([mortice.randn(*shape) for _ in range(layers)] for _ in range(2))
        return mortice.randn(1, DIM), *lists

    return Program(mortice.compile(step), step, inputs)


def trained() -> Program:
    """Loss and gradient of an MLP."""
    import mortice
    import mortice.nn.functional as F

    up, down = mortice.randn(64, 128), mortice.randn(128, 10, requires_grad=True)

    def loss(x: Any) -> Any:
        return F.relu(x @ up).matmul(down).square().mean()

    def step(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: mortice.autograd.grad(f(x), [down])

    return Program(step(mortice.compile(loss)), step(loss), lambda n: (mortice.randn(20 + n, 64),))


def programs() -> dict[str, Program]:
    """All of them, by name."""
    import mortice
    import mortice.nn.functional as F

    up, down = mortice.randn(64, 128), mortice.randn(128, 10)

    def three(x: Any, y: Any) -> Any:
        return mortice.tanh(x * y) - y

    def mlp(x: Any) -> Any:
        return F.softmax(F.relu(x @ up) @ down, -1)

    return {
        "decoder step, 1 layer": decoder(1),
        "decoder step, 2 layers": decoder(2),
        "3 operators on a vector": Program(
            mortice.compile(three),
            three,
            lambda n: (mortice.randn(1000 + n), mortice.randn(1000 + n)),
        ),
        "MLP, forward": Program(mortice.compile(mlp), mlp, lambda n: (mortice.randn(20 + n, 64),)),
        "MLP, loss and gradient": trained(),
    }


def seconds(f: Callable[..., Any], inputs: list[tuple[Any, ...]]) -> list[float]:
    """CPU time of each call."""
    found: list[float] = []
    for given in inputs:
        start = time.thread_time()
        f(*given)
        found.append(time.thread_time() - start)
    return found


def timed(name: str, program: Program, sizes: int) -> Line:
    from mortice_inductor import front

    planned = 0
    compiled = front._compiled

    def counting(*args: Any) -> Any:
        nonlocal planned
        planned += 1
        return compiled(*args)

    given = [program.inputs(n) for n in range(sizes)]
    front._compiled = counting
    try:
        new = seconds(program.compiled, given)[WARM:]
    finally:
        front._compiled = compiled
    last = given[-WARM:]  # of more sizes programs are not kept
    known, uncompiled = (
        seconds(f, last * 3)[WARM:] for f in (program.compiled, program.uncompiled)
    )
    return Line(name, *map(statistics.median, (new, known, uncompiled)), planned)


def page(lines: list[Line], sizes: int) -> list[str]:
    head = ("", "new size", "known size", "uncompiled", f"passes, in {sizes} sizes")
    made = (
        "One process, one thread. Each call has a size that no call had before. Median CPU time. "
        "Made by `python3 dev.py bench growing`."
    )
    text = ["# Calls of another size", "", made, ""]
    text += [f"- {line}" for line in describe("mortice", "mortice-cpu", "numpy")]
    text += ["", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for x in lines:
        cells = (*map(duration, (x.new, x.known, x.uncompiled)), str(x.planned))
        text.append(f"| {x.name} | {' | '.join(cells)} |")
    return text


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer sizes; nothing is written")
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args(argv)
    one_thread()
    sizes = 60 if options.quick else 200
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["MORTICE_CACHE_DIR"] = scratch
        lines = [timed(name, program, sizes) for name, program in programs().items()]
    text = page(lines, sizes)
    print("\n".join(text))
    if not (options.quick or options.no_write):
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text("\n".join(text) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
