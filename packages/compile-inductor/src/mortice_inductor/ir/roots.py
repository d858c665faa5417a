"""What a graph must compute, and exchanging values in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .values import Trace, Value, walk


class Roots(NamedTuple):
    """What must be computed: outputs and writes, simplified."""

    outputs: tuple[Any, ...]
    writes: tuple[tuple[int, Value], ...]
    checks: tuple[Any, ...]
    #: (node, its value), where nodes are still told apart.
    named: tuple[tuple[str, Value], ...] = ()

    def values(self) -> list[Value]:
        """All of them, once each."""
        found = [v for v in self.outputs if isinstance(v, Value)]
        found += [v for _, v in self.writes]
        found += [c.value for c in self.checks]
        return list(dict.fromkeys(found))


def replaced(
    t: Trace, roots: Roots, new: dict[int, Value],
    rule: Callable[[Value], Value | None] | None = None,
) -> Roots:  # fmt: skip
    """The roots with some values exchanged, everywhere: those of ``new``, and what ``rule`` makes
    of a value whose operands are exchanged already.
    """
    done: dict[int, Value] = dict(new)
    for v in walk(roots.values()):
        if v.uid in done:
            continue
        args = tuple(done[a.uid] for a in v.args)
        made = v
        t.where = v.where
        if any(a is not b for a, b in zip(args, v.args)):
            made = t.make(v.op, args, v.shape, v.dtype, v.attr)
        done[v.uid] = (rule(made) if rule else None) or made
    return Roots(
        tuple(done[v.uid] if isinstance(v, Value) else v for v in roots.outputs),
        tuple((k, done[v.uid]) for k, v in roots.writes),
        tuple(c._replace(value=done[c.value.uid]) for c in roots.checks),
        tuple((name, done.get(v.uid, v)) for name, v in roots.named),
    )
