"""Why a place of a compiled function got another graph: what differs from the one before."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mortice._base.logging import active
from mortice._plugins import emit
from mortice.fx import GraphModule, Node
from mortice.fx.node import show_target

_INFO = 20  # logging.INFO, without importing logging


def note_recompiled(compiled: Any, segment: Any) -> None:
    """Keep, log and broadcast why a segment is not the first of its place."""
    before = [s for s in compiled.segments if s.line == segment.line]
    if not before:
        return
    segment.reason = difference(before[-1].module, segment.module)
    logger = active("recompiles")
    if logger is not None:
        file, line, function = segment.line
        logger.info(
            "%s: graph %d for %s:%d, in %s: %s",
            _name(compiled),
            len(before) + 1,
            file,
            line,
            function,
            segment.reason,
        )
    emit("graph_recompiled", backend=compiled.settings.backend_name, reason=segment.reason)


def log_guards(compiled: Any, stretches: Iterable[Any]) -> None:
    """Log what a call depends on that is replayed from now on."""
    logger = active("guards")
    if logger is not None and logger.isEnabledFor(_INFO):
        texts = [f"  {guard}" for stretch in stretches for guard in stretch.guards]
        logger.info("%s is replayed while\n%s", _name(compiled), "\n".join(texts))


def log_verdict(compiled: Any) -> None:
    """Log the verdict on a function, with its reasons."""
    logger = active("replay")
    if logger is not None and logger.isEnabledFor(_INFO):
        logger.info("%s: %s", _name(compiled), "\n".join(compiled.verdict.lines()))


def log_miss(compiled: Any, why: str) -> None:
    """Log why a call was not replayed."""
    logger = active("replay")
    if logger is not None:
        logger.info("%s: not replayed: %s", _name(compiled), why)


def log_outdated(compiled: Any, which: str) -> None:
    """Log that a compiled object begins anew because kernels of operators have come or gone."""
    logger = active("recompiles")
    if logger is not None:
        logger.info("%s begins anew: kernels of %s have come or gone", _name(compiled), which)


def _name(compiled: Any) -> str:
    return getattr(compiled, "__qualname__", None) or repr(compiled.fn)


def difference(old: GraphModule, new: GraphModule) -> str:
    """The first thing in which two captured graphs differ, in words."""
    first, second = list(old.graph.nodes), list(new.graph.nodes)
    inputs = [[n for n in nodes if n.op == "placeholder"] for nodes in (first, second)]
    for i, (a, b) in enumerate(zip(*inputs)):
        changed = _input_difference(a, b)
        if changed:
            return f"input {i}: {changed}"
    if len(inputs[0]) != len(inputs[1]):
        return f"it has {len(inputs[1])} inputs, and had {len(inputs[0])}"
    calls = [[n for n in nodes if n.op == "call_function"] for nodes in (first, second)]
    for i, (a, b) in enumerate(zip(*calls)):
        changed = _call_difference(a, b)
        if changed:
            where = b.meta.get("stack") or ""
            return f"operator {i}: {changed}" + (f" ({where})" if where else "")
    if len(calls[0]) != len(calls[1]):
        return f"it has {len(calls[1])} operators, and had {len(calls[0])}"
    return "other results are alive at its end"


#: What of an input is part of a segment's key.
_FACTS = {
    "shape": lambda x: tuple(x.shape),
    "dtype": lambda x: x.dtype,
    "device": lambda x: x.device,
    "requires_grad": lambda x: x.requires_grad,
    "strides": lambda x: tuple(x.stride()),
}  # fmt: skip


def _input_difference(a: Node, b: Node) -> str:
    old, new = a.meta.get("val"), b.meta.get("val")
    if hasattr(old, "_k") and hasattr(new, "_k"):
        return _first(
            f"{name} {_shown(read(new))}, and was {_shown(read(old))}"
            for name, read in _FACTS.items()
            if _shown(read(old)) != _shown(read(new))
        )
    if type(old) is not type(new):
        return f"{type(new).__name__}, and was {type(old).__name__}"
    return ""


def _call_difference(a: Node, b: Node) -> str:
    if a.target is not b.target:
        return f"{show_target(b.target)}, and was {show_target(a.target)}"
    if a.meta.get("grad") != b.meta.get("grad"):
        return f"{show_target(b.target)} with gradients {'on' if b.meta.get('grad') else 'off'}"
    if str(a.args) != str(b.args) or str(a.kwargs) != str(b.kwargs):
        return f"{show_target(b.target)}{b.args}, and was {show_target(a.target)}{a.args}"
    return ""


def _shown(value: Any) -> str:
    return str(value)


def _first(texts: Iterable[str]) -> str:
    return next(iter(texts), "")
