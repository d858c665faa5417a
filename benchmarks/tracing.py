"""What tracing a program into a graph costs, beside torch.

    python benchmarks/tracing.py [--quick] [--strict] [--no-write]

The programs are an encoder of two layers (width 64) and its training step: ``make_fx`` on tensors
without data, with fixed and with symbolic sizes, ``symbolic_trace``, and ``export`` with a batch size
that varies. Each is done once before it is timed, in both libraries. Writes
benchmarks/results/tracing.md.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from harness import Candidate, Case, describe, measure, one_thread, table

RESULTS = Path(__file__).parent / "results" / "tracing.md"
#: The most that ours may take, as a share of torch's time.
TARGETS = {"symbolic_trace, 20 modules": 1.0}
TARGET = 0.2


def encoder(nn: Any) -> Any:
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def step(lib: Any, model: Any) -> Callable[[Any], Any]:
    """Gradients of all parameters."""
    parameters = list(model.parameters())
    return lambda x: lib.autograd.grad(model(x).sum(), parameters)


def perceptron(nn: Any) -> Any:
    return nn.Sequential(*[m for _ in range(10) for m in (nn.Linear(64, 64), nn.ReLU())])


def ours() -> dict[str, Callable[[], object]]:
    import mortice
    from mortice import export, fx, nn

    model, x = encoder(nn), mortice.randn(2, 16, 64)
    layers, batch = perceptron(nn).eval(), export.Dim("batch")
    rows = mortice.randn(4, 64)
    return {
        "make_fx, training step, fixed sizes": lambda: fx.make_fx(step(mortice, model), tracing_mode="fake")(x),
        "make_fx, training step, symbolic sizes": lambda: fx.make_fx(
            step(mortice, model), tracing_mode="symbolic"
        )(x),
        "symbolic_trace, 20 modules": lambda: fx.symbolic_trace(layers),
        "export, 20 modules, any batch": lambda: export.export(
            layers, (rows,), dynamic_shapes=({0: batch},)
        ),
    }  # fmt: skip


def theirs() -> dict[str, Callable[[], object]]:
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    torch.set_num_threads(1)
    nn = torch.nn
    model, x = encoder(nn), torch.randn(2, 16, 64)
    layers, batch = perceptron(nn).eval(), torch.export.Dim("batch")
    rows = torch.randn(4, 64)
    return {
        # Its fake tensors do not take parameters that are no arguments: real ones, then.
        "make_fx, training step, fixed sizes": lambda: make_fx(step(torch, model))(x),
        "make_fx, training step, symbolic sizes": lambda: make_fx(
            step(torch, model), tracing_mode="symbolic", _allow_non_fake_inputs=True
        )(x),
        "symbolic_trace, 20 modules": lambda: torch.fx.symbolic_trace(layers),
        "export, 20 modules, any batch": lambda: torch.export.export(
            layers, (rows,), dynamic_shapes=({0: batch},)
        ),
    }


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer batches; nothing is written")
    parser.add_argument("--strict", action="store_true", help="fail when a target is missed")
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args(argv)
    warnings.filterwarnings("ignore", module="torch")
    one_thread()
    mortice_does, torch_does = ours(), theirs()
    cases = [
        Case(
            name,
            [Candidate("mortice", run), Candidate("torch", torch_does[name])],
            TARGETS.get(name, TARGET),
        )
        for name, run in mortice_does.items()
    ]
    results = measure(cases, phases=1 if options.quick else 3, rounds=1 if options.quick else 3)
    about = [f"- {line}" for line in describe("mortice", "numpy", "torch")]
    text = ["# Tracing a program into a graph", "", *about, ""]
    text += table(results, "mortice", "torch", "")
    print("\n".join(text))
    if not (options.quick or options.no_write):
        RESULTS.write_text("\n".join(text) + "\n", encoding="utf-8")
    missed = [r for r in results if r.ratio("mortice", "torch") > (r.case.target or 0)]
    return 1 if options.strict and missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
