"""Playing cases, eager and compiled, and the table of their verdicts.

``python -m packages.core.tests.capture.playing`` writes docs/capture-cases.md.
"""

from __future__ import annotations

import collections
import pathlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from packages.core.tests.capture import (  # noqa: F401  each adds its cases
    cases,
    cases_adversaries,
    cases_gradients,
    cases_state,
)
from packages.core.tests.capture.world import ALWAYS, CASES, LOG, REPLAY, reset

import mortice
from mortice import Tensor


def norm(o: Any) -> Any:
    """A value that can be compared, and does not change any more."""
    if isinstance(o, Tensor):
        has_grad = o.is_leaf or o.retains_grad
        grad = o.grad.tolist() if has_grad and o.grad is not None else None
        return (str(o.dtype), tuple(o.shape), o.stride(), o.requires_grad, repr(o.tolist()), grad)
    if isinstance(o, np.ndarray):
        return ("ndarray", o.tolist())
    if isinstance(o, (list, tuple)):
        return [type(o).__name__, *map(norm, o)]
    if isinstance(o, dict):
        return {"": type(o).__name__} | {k: norm(v) for k, v in o.items()}
    return repr(o) if type(o) in (int, float, str, bool, type(None)) else type(o).__name__


def differentiate(result: Any) -> None:
    """Backward from everything that a call returned, so that gradients are compared, too."""
    for x in result if isinstance(result, (list, tuple)) else [result]:
        if isinstance(x, Tensor) and x.requires_grad and x.grad_fn is not None:
            x.float().pow(2).sum().backward(retain_graph=True)


def play(make: Any, compile: Callable[[Any], Any], times: int = 1) -> tuple[list[Any], Any]:
    """What each step shows to a user, and the compiled function; each call is made ``times``."""
    reset()
    try:
        return _played(make, compile, times)
    finally:
        reset()  # a case may leave modes that other tests would run in


def _played(make: Any, compile: Callable[[Any], Any], times: int) -> tuple[list[Any], Any]:
    f, steps, *more = make()
    kept = more[0] if more else []
    check = more[1] if len(more) > 1 else None
    compiled = compile(f)
    out: list[Any] = []
    for change, arguments in (s for c, a in steps for s in ((c, a), *[(None, a)] * (times - 1))):
        if change:
            change()
        args, kwargs = arguments()
        same: Any = None
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("default")
            try:
                result = compiled(*args, **kwargs)
                same = [result is x for x in args]
                if check is not None:
                    check(result)
                differentiate(result)
                result = norm(result)
            except BaseException as error:
                result = f"{type(error).__name__}: {error}"
        noted = [(w.category.__name__, str(w.message), w.lineno, w.filename) for w in seen]
        state = norm([*args, *kwargs.values(), *kept])
        out.append((result, same, state, list(LOG), noted))
    return out, getattr(compiled, "compiled", compiled)


def table() -> str:
    """The cases with their verdicts as a Markdown table."""
    lines = [
        "| case | verdict | replays of calls | why it always runs |",
        "|---|---|---|---|",
    ]
    counts = collections.Counter()
    for c in CASES:
        _, compiled = play(c.make, lambda f: mortice.compile(f, backend="eager"))
        steps = len(c.make()[1])
        v = compiled.verdict
        counts[v.name] += 1
        reason = v.reasons[0].text if v.reasons and v.name == ALWAYS else ""
        lines.append(f"| {c.name} | {v.name} | {v.replayed} of {steps} | {reason} |")
    total = f"{len(CASES)} cases: {counts[REPLAY]} are replayed, {counts[ALWAYS]} always run."
    return "\n".join([*lines, "", total])


def main() -> None:
    text = table()
    page = pathlib.Path(__file__).parents[4] / "docs" / "capture-cases.md"
    page.write_text(HEAD + text + "\n")
    print(text)


HEAD = """# What a compiled call does when the world changes

Each case is a small function and what changes between its calls: a global, a method, a hook, a
dtype. A compiled call must then do what the function itself does: same results, aliases, gradients,
errors and side effects, in the same order. Either it is *replayed*, because everything that it reads
is guarded and it changes nothing outside; or the function *always runs* and only its operators are
compiled. The tests assert verdict and number of replays of every case.

`python -m packages.core.tests.capture.playing` writes this page.

"""

if __name__ == "__main__":
    main()
