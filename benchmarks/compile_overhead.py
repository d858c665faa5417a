"""What compiling costs beside the computation: capture, and calls of compiled functions.

    python benchmarks/compile_overhead.py [--quick] [--strict] [--no-write]

One process, one thread, one run: mortice beside torch.compile (its backend ``eager``, which is
capture and guards alone, and inductor) and jax.jit. The functions compute next to nothing, so that
what is timed is overhead; mortice's backend ``null`` returns the outputs of its first call. numpy's
add of the same arrays is timed beside. Writes benchmarks/results/compile_overhead.md.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from harness import Candidate, Case, describe, measure, one_thread
from harness.report import duration

RESULTS = Path(__file__).parent / "results" / "compile_overhead.md"
OURS = "mortice"
EAGER, INDUCTOR, JAX, NUMPY = "torch, eager", "torch, inductor", "jax.jit", "numpy add"
UNCOMPILED = "mortice, uncompiled"
COLUMNS = (OURS, UNCOMPILED, EAGER, INDUCTOR, JAX, NUMPY)
MODULES = 20


class Line(NamedTuple):
    """One row: seconds by column, and the most that ours may take."""

    name: str
    seconds: dict[str, float]
    target: float


# -- calls ------------------------------------------------------------------------------------------


def ten(lib: Any) -> Callable[..., Any]:
    """Ten operators."""

    def function(x: Any, y: Any) -> Any:
        a = x + y
        b = a * x
        c = lib.sin(b)
        d = c - y
        e = lib.exp(d)
        f = e + a
        g = f * c
        h = lib.tanh(g)
        i = h - b
        return i * e

    return function


def stack(nn: Any) -> Any:
    """A Module of 20 sub-modules of 4 features."""
    layers = [m for _ in range(MODULES // 2) for m in (nn.Linear(4, 4), nn.ReLU())]
    return nn.Sequential(*layers).eval().requires_grad_(False)


def calls() -> list[tuple[Case, float]]:
    """(what is timed, the most seconds that ours may take)."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import torch

    import mortice

    torch.set_num_threads(1)
    a, b = (np.arange(4, dtype=np.float32) / n for n in (3, 5))
    ours = [mortice.from_numpy(x.copy()).clone() for x in (a, b)]
    theirs = [torch.from_numpy(x.copy()) for x in (a, b)]
    jaxes = [jnp.asarray(x) for x in (a, b)]
    replayed = mortice.compile(ten(mortice), backend="null")
    running = mortice.compile(ten(mortice), backend="null")
    running.replay = None  # as after a verdict that calls cannot be replayed
    torched = {
        EAGER: torch.compile(ten(torch), backend="eager"),
        INDUCTOR: torch.compile(ten(torch)),
    }
    jitted = jax.jit(ten(jnp))
    function = ten(mortice)
    others = [
        Candidate(UNCOMPILED, lambda: function(*ours)),
        *(Candidate(label, lambda f=f: f(*theirs)) for label, f in torched.items()),
        Candidate(JAX, lambda: jitted(*jaxes)),
        Candidate(NUMPY, lambda: np.add(a, b)),
    ]
    model = mortice.compile(stack(mortice.nn), backend="null")
    torch_models = {
        EAGER: torch.compile(stack(torch.nn), backend="eager"),
        INDUCTOR: torch.compile(stack(torch.nn)),
    }
    row, torch_row = mortice.ones(1, 4), torch.ones(1, 4)
    modules = [
        Candidate(OURS, lambda: model(row)),
        *(Candidate(label, lambda m=m: m(torch_row)) for label, m in torch_models.items()),
    ]
    return [
        (Case("10 operators on 4 elements, always run",
              [Candidate(OURS, lambda: running(*ours)), *others]), 12e-6),
        (Case("10 operators on 4 elements, replayed",
              [Candidate(OURS, lambda: replayed(*ours)), *others]), 6e-6),
        (Case(f"Module of {MODULES} sub-modules, replayed", modules), 15e-6),
    ]  # fmt: skip


def native_calls() -> list[tuple[Case, float]]:
    """As ``calls``; from here on the process has inductor's native recorder, for every backend."""
    import numpy as np

    import mortice

    a, b = (np.arange(4, dtype=np.float32) / n for n in (3, 5))
    x, y = (mortice.from_numpy(v.copy()).clone() for v in (a, b))
    w = x.clone().requires_grad_(True)
    function = ten(mortice)

    def compiled() -> Callable[..., Any]:
        made = mortice.compile(ten(mortice))
        made.replay = None
        for _ in range(20):  # inductor is asked for its recorder after some calls
            made(x, y)
            made(w, y)
        return made

    running = compiled()
    add = Candidate(NUMPY, lambda: np.add(a, b))
    return [
        (Case("10 operators on 4 elements, always run by inductor's recorder",
              [Candidate(OURS, lambda: running(x, y)),
               Candidate(UNCOMPILED, lambda: function(x, y)), add]), 2e-6),
        (Case("the same, with an input that requires grad",
              [Candidate(OURS, lambda: running(w, y)),
               Candidate(UNCOMPILED, lambda: function(w, y)), add]), 3e-6),
    ]  # fmt: skip


def native_replays() -> list[tuple[Case, float]]:
    """Replays of functions that inductor compiled, by its native entry where it takes them."""
    import numpy as np

    import mortice

    a, b = (np.arange(4, dtype=np.float32) / n for n in (3, 5))
    x, y = (mortice.from_numpy(v.copy()).clone() for v in (a, b))
    w = x.clone().requires_grad_(True)
    row = mortice.ones(1, 4)

    def scaled(t: Any) -> Any:
        for _ in range(5):
            t = t * 1.5 + 0.5
        return t

    def replayed(fn: Any, *given: Any) -> Callable[[], Any]:
        made = mortice.compile(fn)
        for _ in range(60):
            made(*given)
        return lambda: made(*given)

    add = Candidate(NUMPY, lambda: np.add(a, b))
    rows: list[tuple[str, Callable[[], Any], float]] = [
        ("an add of 4 elements", replayed(lambda p, q: p + q, x, y), 1e-6),
        ("10 operators", replayed(ten(mortice), x, y), 1e-6),
        ("10 operators, with an input that requires grad", replayed(ten(mortice), w, y), 3e-6),
        ("10 operators with numbers, the same", replayed(scaled, w), 3e-6),
        (f"Module of {MODULES} sub-modules", replayed(stack(mortice.nn), row), 5e-6),
    ]
    return [
        (Case(f"{name}, replayed by inductor", [Candidate(OURS, run), add]), most)
        for name, run, most in rows
    ]


def timed_calls(quick: bool) -> list[Line]:
    return [
        *timed(calls(), quick),
        *timed(native_calls(), quick),
        *timed(native_replays(), quick),
    ]


def timed(cases: list[tuple[Case, float]], quick: bool) -> list[Line]:
    only = [case for case, _ in cases]
    found = measure(only, phases=2, rounds=4) if quick else measure(only)
    return [
        Line(case.name, {c.label: r.median(c.label) for c in case.candidates}, target)
        for (case, target), r in zip(cases, found, strict=True)
    ]


# -- capture ------------------------------------------------------------------------------------------


def encoder(lib: Any) -> tuple[Any, Any]:
    """Two layers of a transformer's encoder, and an input."""
    layer = lib.nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
    model = lib.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    return model, lib.ones(4, 32, 128)


def first_call(
    make: Callable[[], Callable[[], Any]], plain: Callable[[], Any], times: int
) -> float:
    """Median seconds of a first call, less a call of the function itself."""
    spent = []
    for _ in range(times):
        call = make()
        gc.collect()
        start = time.perf_counter()
        call()
        spent.append(time.perf_counter() - start)
    plain()
    start = time.perf_counter()
    plain()
    return max(statistics.median(spent) - (time.perf_counter() - start), 0.0)


def capture(quick: bool) -> Line:
    """First calls of the two encoder layers, compiled anew each time in a process that is warm."""
    import torch

    import mortice

    (ours, x), (theirs, y) = encoder(mortice), encoder(torch)
    times = 3 if quick else 7

    def of_torch(backend: str) -> Callable[[], Callable[[], Any]]:
        def make() -> Callable[[], Any]:
            torch._dynamo.reset()
            compiled = torch.compile(theirs, backend=backend)
            return lambda: compiled(y)

        return make

    def of_ours() -> Callable[[], Any]:
        compiled = mortice.compile(ours, backend="eager")
        return lambda: compiled(x)

    with mortice.no_grad(), torch.no_grad():
        seconds = {
            OURS: first_call(of_ours, lambda: ours(x), times),
            EAGER: first_call(of_torch("eager"), lambda: theirs(y), times),
            INDUCTOR: first_call(of_torch("inductor"), lambda: theirs(y), 1 if quick else 2),
            JAX: jax_capture(times),
        }
    return Line("first call of 2 encoder layers, less a plain call", seconds, 0.3)


def jax_capture(times: int) -> float:
    """The same layers written for jax: tracing, lowering and compiling."""
    import jax
    import jax.numpy as jnp

    d, heads = 128, 4
    shapes = {"qkv": (d, 3 * d), "out": (d, d), "up": (d, 256), "down": (256, d)}
    layers = [{k: jnp.ones(s) * 0.01 for k, s in shapes.items()} for _ in range(2)]

    def norm(x: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)

    def layer(x: Any, w: Any) -> Any:
        n, s, _ = x.shape
        q, k, v = jnp.split(x @ w["qkv"], 3, -1)
        q, k, v = (t.reshape(n, s, heads, d // heads).transpose(0, 2, 1, 3) for t in (q, k, v))
        weights = jax.nn.softmax(q @ k.transpose(0, 1, 3, 2) / (d // heads) ** 0.5, -1)
        y = (weights @ v).transpose(0, 2, 1, 3).reshape(n, s, d) @ w["out"]
        x = norm(x + y)
        return norm(x + jax.nn.relu(x @ w["up"]) @ w["down"])

    def model(x: Any) -> Any:
        for w in layers:
            x = layer(x, w)
        return x

    x = jnp.ones((4, 32, d))

    def make() -> Callable[[], Any]:
        jax.clear_caches()
        jitted = jax.jit(model)
        return lambda: jitted(x).block_until_ready()

    return first_call(make, lambda: model(x).block_until_ready(), times)


# -- report ---------------------------------------------------------------------------------------------


def page(lines: list[Line], dropped: str) -> list[str]:
    head = ["", *COLUMNS, "ours at most", "met"]
    rows = [
        [
            line.name,
            *(duration(line.seconds[c]) if c in line.seconds else "" for c in COLUMNS),
            duration(line.target),
            "yes" if line.seconds[OURS] <= line.target else "no",
        ]
        for line in lines
    ]
    made = (
        "One process, one thread. Calls: median CPU time over interleaved batches. First calls: "
        "median wall time in a warm process, torch's caches off. Made by "
        "`python3 dev.py bench compile_overhead`."
    )
    text = [
        "# What compiling costs beside the computation",
        "",
        made,
        "",
        *(f"- {text}" for text in describe("mortice", "mortice-cpu", "numpy", "torch", "jax")),
    ]
    if dropped:
        text.append(f"- Unset for the run: {dropped}")
    text += ["", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    text += ["| " + " | ".join(row) + " |" for row in rows]
    met = sum(line.seconds[OURS] <= line.target for line in lines)
    return [*text, "", f"{met} of {len(lines)} targets met."]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer batches; nothing is written")
    parser.add_argument("--strict", action="store_true", help="fail when a target is missed")
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args(argv)
    dropped = one_thread()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = scratch
        os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
        lines = [*timed_calls(options.quick), capture(options.quick)]
    text = page(lines, dropped)
    print("\n".join(text))
    if not (options.quick or options.no_write):
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text("\n".join(text) + "\n", encoding="utf-8")
    missed = [line for line in lines if line.seconds[OURS] > line.target]
    return 1 if options.strict and missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
