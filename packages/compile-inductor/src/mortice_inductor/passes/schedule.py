"""The order of steps: as they were made, except that every step comes after what it needs, and that
a step that gives back as much memory as it takes runs as soon as it can.

Sums of gradients are such steps: they were made last, so that everything they add up would lie in
memory to the end of the graph (12 MiB instead of 6 in the backward of a small transformer, all of it
touched by the first call) and be read when it is in no cache any more.
"""

from __future__ import annotations

from collections.abc import Mapping

from .fuse import Cycle, Kernel, Work, before


def schedule(work: list[Work], maker: dict[int, Work], sizes: Mapping[int, int]) -> list[Work]:
    """Steps in an order in which they can run; kernels that lost all their stores are left out.

    ``sizes``: bytes, by ``uid``, of the values that need memory only until they have been read.
    """
    needs = {w.number: {x.number for x in before(w, maker, work)} for w in work}
    order = _sorted(work, needs)
    kept = [w for w in order if not isinstance(w, Kernel) or w.stores or w.reductions]
    return _Order(kept, needs, maker, sizes).run()


def _sorted(work: list[Work], needs: dict[int, set[int]]) -> list[Work]:
    """Each after what it needs; Cycle if that cannot be."""
    by_number = {w.number: w for w in work}
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
            stack += [(by_number[n], False) for n in sorted(needs[w.number] - done)]
    return out


class _Order:
    """Moves steps of a valid order forward where that leaves no more in memory."""

    def __init__(
        self, order: list[Work], needs: dict[int, set[int]], maker: dict[int, Work],
        sizes: Mapping[int, int],
    ) -> None:  # fmt: skip
        self.order = order
        self.sizes = sizes
        #: What each step still waits for.
        self.waits = {w.number: set(needs[w.number]) for w in order}
        self.followers: dict[int, list[Work]] = {}
        #: Who has yet to read each value that takes memory.
        self.readers: dict[int, set[int]] = {}
        self.makes: dict[int, list[int]] = {}
        for w in order:
            for n in needs[w.number]:
                self.followers.setdefault(n, []).append(w)
            for uid in w.reads:
                if uid in sizes and maker[uid] is not w:
                    self.readers.setdefault(uid, set()).add(w.number)
        for uid in self.readers:
            self.makes.setdefault(maker[uid].number, []).append(uid)
        self.by_number = {w.number: w for w in order}

    def run(self) -> list[Work]:
        """The new order."""
        out: dict[int, Work] = {}
        for w in self.order:
            pending = [w]
            while pending:
                x = pending.pop()
                if x.number in out:
                    continue
                if x is not w and (self.waits[x.number] or self._grows(x)):
                    continue
                out[x.number] = x
                pending += self._after(x)
        return list(out.values())

    def _grows(self, w: Work) -> bool:
        """Whether more is in memory after ``w`` than before."""
        taken = sum(self.sizes[u] for u in self.makes.get(w.number, ()))
        last = (u for u in w.reads if self.readers.get(u) == {w.number})
        return taken > sum(self.sizes[u] for u in last)

    def _after(self, w: Work) -> list[Work]:
        """What may run now that ``w`` has run: what waited for it, and who alone has yet to read
        what it read; last first.
        """
        found: dict[int, Work] = {}
        for x in self.followers.get(w.number, ()):
            self.waits[x.number].discard(w.number)
            found[x.number] = x
        for uid in w.reads:
            left = self.readers.get(uid)
            if left is not None:
                left.discard(w.number)
                if len(left) == 1:
                    (n,) = left
                    found[n] = self.by_number[n]
        return sorted(found.values(), key=lambda x: -x.number)
