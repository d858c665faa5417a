"""The order of steps: as they were made, except that every step comes after what it needs."""

from __future__ import annotations

from .fuse import Cycle, Kernel, Work, before


def schedule(work: list[Work], maker: dict[int, Work]) -> list[Work]:
    """Steps in an order in which they can run; kernels that lost all their stores are left out."""
    out: list[Work] = []
    done: set[int] = set()
    inside: set[int] = set()
    for first in work:
        stack: list[tuple[Work, bool]] = [(first, False)]
        while stack:
            w, ready = stack.pop()
            if ready:
                if w.number not in done:
                    done.add(w.number)
                    out.append(w)
                continue
            if w.number in done:
                continue
            if w.number in inside:
                raise Cycle
            inside.add(w.number)
            stack.append((w, True))
            stack += [(x, False) for x in before(w, maker, work) if x.number not in done]
    return [w for w in out if not isinstance(w, Kernel) or w.stores or w.reductions]
