"""Parity with torch 2.13: torch's own OpInfo samples through torch and mortice in one process.

From a source checkout, in an environment with torch 2.13, expecttest, pyyaml and what our packages
need (numpy, ml_dtypes, llvmlite, pluggy, ...); packages/*/src need not be on PYTHONPATH:

    python tests/parity/run.py --ops add,linalg.qr -v        # two operators, each failing sample
    python tests/parity/run.py --ops nn.functional. --dtype float32   # names ending in . or * match
    python tests/parity/run.py --ops 'grad*' --aspects grad,gradgrad
    python tests/parity/run.py --overloads mm.default,convolution_backward.default -v
    python tests/parity/run.py --core                        # the Core ATen overloads
    python tests/parity/run.py                               # everything, a few samples each
    python tests/parity/run.py --full --update               # everything, the committed list renewed
    python tests/parity/run.py --aspects compiled --samples 3          # inductor against eager
    python tests/parity/run.py --list                        # names, and what mortice has of them

or ``python3 dev.py parity -- ARGS``, which makes the environment.

Checked for each sample and dtype: the result (forward), the same from non-contiguous copies
(strided), the method, the in-place and the out= variant, first and second derivatives (grad,
gradgrad), torch's error inputs (error: the exception's type counts), random operators by
distribution (random). For overloads, calls that torch's samples come down to, forward and
backward, are recorded and made again through ``mortice.ops.aten`` (overload).

``known_failures.json`` lists what fails, with reasons. ``--check`` fails when an operator in the
list fails a check that is not listed; ``--update`` takes mended checks out and adds operators that
are not in it yet, never a new failure of one that is.

Exit status: 0, or 1 when --check or --strict found something, or 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before numpy and torch: workers are the parallelism
sys.path.insert(0, str(Path(__file__).parent))

import checkout

checkout.use()

from checks import ASPECTS, DTYPES
from worker import Pool, Unit

# Compiling takes 50 ms a sample: it is asked for by name.
DEFAULT = tuple(a for a in ASPECTS if a != "compiled")


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="parity", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--ops", default="", help="OpInfo names, comma-separated; add:variant, prefix. and * work")
    add("--overloads", default="", help="aten overloads, comma-separated")
    add("--core", action="store_true", help="all Core ATen overloads")
    add("--dtype", default="", help=f"comma-separated, of {', '.join(DTYPES)}")
    add("--aspects", default="", help=f"comma-separated, of {', '.join(ASPECTS)}")
    add("--seed", type=int, default=0)
    add("--samples", type=int, default=8, help="per operator and dtype, spread over torch's list")
    add("--full", action="store_true", help="all samples")
    add("--jobs", type=int, default=1, help="worker processes")
    add("--timeout", type=float, default=30.0, help="seconds for one check")
    add("-v", "--verbose", action="store_true", help="print every failing sample")
    add("-q", "--quiet", action="store_true", help="only operators that fail, and totals")
    add("--json", metavar="FILE", help="write all rows to FILE")
    add("--report", metavar="FILE", help="write totals and all rows to FILE, as Markdown")
    add("--check", action="store_true", help="fail on failures that are not in the committed list")
    add("--strict", action="store_true", help="fail on any failure")
    add("--update", action="store_true", help="renew the committed list (it only shrinks)")
    add("--list", action="store_true", help="print names and stop")
    add("--index", action="store_true", help="find anew which samples call which overloads")
    return parser.parse_args(argv)


def split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def matches(name: str, patterns: list[str]) -> bool:
    plain = name.split(":", maxsplit=1)[0]
    return any(
        fnmatch.fnmatch(name, p)
        or fnmatch.fnmatch(plain, p)
        or (p.endswith(".") and plain.startswith(p))
        for p in patterns
    )


class Runner:
    """What a worker does with a unit. Made before the fork, so that imports are paid once."""

    def __init__(self, options: argparse.Namespace) -> None:
        from checks import quiet
        from names import excluded, full_name
        from torch.testing._internal.common_methods_invocations import op_db

        quiet()
        self.options = options
        self.ops = {full_name(op): op for op in op_db if not excluded(op)}

    def __call__(
        self, unit: Unit, skip: frozenset[str], begin: Callable[[str], None]
    ) -> Iterator[tuple[str, str, str | None, str]]:
        import aten
        import randoms
        from checks import OperatorChecks, Plan, quiet

        quiet()
        limit = None if self.options.full else self.options.samples
        aspects = frozenset(split(self.options.aspects) or DEFAULT)
        plan = Plan(limit, self.options.seed, aspects, skip, begin)
        if unit.kind == "overload":
            yield from aten.run(unit.operator, unit.dtype, self.ops, plan)
        elif unit.kind == "random":
            for _, result in randoms.run({unit.operator}, plan):
                yield result
        elif unit.kind == "error":
            yield from OperatorChecks(self.ops[unit.operator], plan).errors()
        else:
            yield from OperatorChecks(self.ops[unit.operator], plan).run(unit.dtype)


def units(runner: Runner, options: argparse.Namespace) -> tuple[list[Unit], dict[str, str]]:
    """The work, and the operators that mortice lacks with the name that was looked for."""
    import aten
    import randoms

    dtypes = split(options.dtype) or list(DTYPES)
    overloads = split(options.overloads) + (aten.core_overloads() if options.core else [])
    patterns = split(options.ops)
    everything = not patterns and not overloads
    work: list[Unit] = []
    absent: dict[str, str] = {}
    for name, op in runner.ops.items():
        if not (everything or (patterns and matches(name, patterns))):
            continue
        missing = lacks(op)
        if missing is not None:
            absent[name] = missing
            continue
        work += [Unit(name, "op", dtype) for dtype in dtypes]
        work.append(Unit(name, "error", "any"))
    draws = {name for name, _ in randoms.CASES}
    work += [
        Unit(name, "random", "any")
        for name in sorted(draws)
        if everything or matches(name, patterns)
    ]
    if everything:
        overloads = aten.core_overloads()
    work += [Unit(name, "overload", dtype) for name in overloads for dtype in dtypes]
    chosen = set(split(options.aspects) or DEFAULT)
    if chosen & {"fake", "symbolic"}:
        chosen.add("overload")  # units of overloads have these aspects, too
    return [unit for unit in work if unit.kind == "op" or unit.kind in chosen], absent


def lacks(op: Any) -> str | None:
    """The name that mortice has not, or None."""
    from names import Absent, function, is_torch_testing, walk

    import mortice

    try:
        function(op)
    except Absent as error:
        return str(error)
    except ImportError:
        return None  # broken: its checks will say so
    if not is_torch_testing(op.op):
        return None
    # A lambda of torch's around the operator: what it calls is known by the OpInfo's name alone.
    places = [(mortice, op.name), (mortice.Tensor, op.name), (mortice.Tensor, op.name + "_")]
    places.append((mortice, f"ops.aten.{op.name}"))
    for root, path in places:
        try:
            walk(root, path)
            return None
        except Absent as error:
            missing = str(error)
    return missing


def row_name(unit: Unit) -> str:
    return f"aten.{unit.operator}" if unit.kind == "overload" else unit.operator


def collect(runner: Runner, options: argparse.Namespace) -> list[Any]:
    """Runs everything; prints each operator's row when its last unit is done."""
    import report

    work, absent = units(runner, options)
    left: dict[str, int] = {}
    for unit in work:
        left[row_name(unit)] = left.get(row_name(unit), 0) + 1
    found: dict[str, dict[str, Any]] = {name: {} for name in left}
    rows = [report.Row(name, {}, missing) for name, missing in sorted(absent.items())]
    print(report.header())
    if not options.quiet:
        for row in rows:
            print(report.line(row))
    pool = Pool(runner, max(1, options.jobs), options.timeout)
    for unit, result in pool.map(work):
        name = row_name(unit)
        if result is not None:
            key, aspect, message, sample = result
            found[name][key] = (aspect, message, sample)
            continue
        left[name] -= 1
        if left[name] == 0:
            rows.append(finish(name, found.pop(name), options))
    return rows


def finish(name: str, results: dict[str, Any], options: argparse.Namespace) -> Any:
    import report

    row = report.Row(name, results, _all_absent(results))
    if row.absent is not None:
        row = report.Row(name, {}, row.absent)
    if row.absent is None and not row.results:
        return row  # torch has no sample of it on this dtype
    if row.failing or not options.quiet:
        print(report.line(row))
        for text in report.details(row) if options.verbose else report.reasons(row):
            print(text)
        sys.stdout.flush()
    return row


def _all_absent(results: dict[str, Any]) -> str | None:
    messages = {message for _, message, _ in results.values()}
    if len(messages) == 1:
        (only,) = messages
        if only is not None and only.startswith("absent: "):
            return only.removeprefix("absent: ")
    return None


def judge(rows: list[Any], options: argparse.Namespace) -> int:
    """Applies the committed list; returns the exit status."""
    from known import Known

    known = Known()
    grown: dict[str, dict[str, str]] = {}
    for row in rows:
        if row.absent is not None:
            if row.name in known.failures:
                grown[row.name] = {"-": f"absent, and was there: {row.absent}"}
            continue
        ran = set(row.results)
        unexpected = known.unexpected(row.name, row.failing)
        if unexpected:
            grown[row.name] = unexpected
        if options.update:
            known.update(row.name, ran, row.failing)
    if options.update:
        known.save()
        print(f"{known.path.name}: {known.summary()}")
    for name, checks in grown.items():
        print(
            f"not in the list of known failures: {name}: {len(checks)}, e.g. "
            + "; ".join(f"{key}: {why[:100]}" for key, why in list(checks.items())[:2])
        )
    failed = (options.check and grown) or (options.strict and any(row.failing for row in rows))
    return 1 if failed else 0


def main(argv: list[str]) -> int:
    options = arguments(argv)
    wrong = [d for d in split(options.dtype) if d not in DTYPES]
    wrong += [a for a in split(options.aspects) if a not in ASPECTS]
    if wrong:
        print(f"parity: unknown dtype or aspect {', '.join(wrong)}; see --help", file=sys.stderr)
        return 2
    started = time.monotonic()
    runner = Runner(options)
    if options.index:
        return make_index(runner, options)
    if options.list:
        for name, op in sorted(runner.ops.items()):
            print(f"{name:<50} {lacks(op) or 'there'}")
        return 0
    rows = collect(runner, options)
    if not rows:
        print(
            f"parity: nothing is called {options.ops or options.overloads}; see --list",
            file=sys.stderr,
        )
        return 2
    import report

    print("\n".join(["", *report.totals(rows), f"{time.monotonic() - started:.0f} s"]))
    if options.json:
        Path(options.json).write_text(json.dumps(report.as_json(rows), indent=1) + "\n")
    if options.report:
        size = "--full" if options.full else f"--samples {options.samples}"
        chosen = f" --ops {options.ops}" if options.ops else ""
        command = f"python3 dev.py parity -- {size} --seed {options.seed}{chosen}"
        text = report.markdown(rows, command, time.monotonic() - started)
        Path(options.report).write_text("\n".join(text) + "\n", encoding="utf-8")
    return judge(rows, options)


def make_index(runner: Runner, options: argparse.Namespace) -> int:
    import aten
    from checks import Plan

    plan = Plan(options.samples, options.seed, frozenset(), frozenset(), lambda key: None)
    found = aten.index(list(runner.ops.values()), plan)
    aten.SOURCES.write_text(json.dumps(found, indent=0) + "\n")
    print(
        f"{len(found)} overloads; of the core, without a source: "
        + ", ".join(name for name in aten.core_overloads() if name not in found)
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
