"""Run as a program: what compiled calls of the functions ``f`` of some modules gave and cost.

The first argument is JSON: rows of (module, code to run between importing it as ``lib`` and compiling, how
often the calls that ``lib.calls()`` makes are made). One line of JSON is printed: for each module whether all
results were eager's, how many plans were found on disk, how many calls were observed and operators recorded.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

import mortice
from mortice._capture import instances, recorder
from mortice._compile.explain import report_of

RECORDED = [0]


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [list(value), *(x for v in value.values() for x in leaves(v))]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *(x for v in value for x in leaves(v))]
    return [value]


def same(a: Any, b: Any, inputs: list[Any]) -> bool:
    if not isinstance(a, mortice.Tensor):
        return type(a) is type(b) and a == b
    if a.shape != b.shape or a.dtype != b.dtype or a.requires_grad != b.requires_grad:
        return False
    if a.requires_grad:
        found = [mortice.autograd.grad(t.sum(), inputs, allow_unused=True) for t in (a, b)]
        return all(x is y is None or same(x, y, []) for x, y in zip(*found))
    return bool(mortice.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True))


def played(lib: Any, change: str, times: int) -> dict[str, Any]:
    """One case; what a change does to the framework ends with it."""
    dtype, grad, relu = mortice.get_default_dtype(), mortice.is_grad_enabled(), mortice.relu
    try:
        exec(change, {"lib": lib, "mortice": mortice})
        calls = lib.calls()
        inputs = [x for call in calls for x in call if getattr(x, "requires_grad", False)]
        others = set(map(id, instances.alive()))
        compiled = mortice.compile(lib.f, backend="inductor")
        (own,) = [c for c in instances.alive() if id(c) not in others]
        RECORDED[0] = 0
        good = True
        for _ in range(times):
            for args in calls:
                found, wanted = leaves(compiled(*args)), leaves(lib.f(*args))
                good &= len(found) == len(wanted)
                good &= all(same(a, b, inputs) for a, b in zip(found, wanted))
    finally:
        mortice.set_default_dtype(dtype)
        mortice.set_grad_enabled(grad)
        mortice.relu = relu
    verdict, recorded = own.verdict, RECORDED[0]
    return {
        "same": good, "kept": verdict.kept, "observed": verdict.observed, "recorded": recorded,
        "nodes": [s.nodes for s in own.segments], "reasons": list(map(str, verdict.reasons)),
        "misses": verdict.misses, "calls": str(report_of(own)).splitlines()[1],
    }  # fmt: skip


def main() -> None:
    original = recorder.Recorder.record

    def counted(self: Any, *args: Any) -> Any:
        RECORDED[0] += 1
        return original(self, *args)

    recorder.Recorder.record = counted  # type: ignore[method-assign]
    rows = json.loads(sys.argv[1])
    print(json.dumps({m: played(import_module(m), change, n) for m, change, n in rows}))


main()
