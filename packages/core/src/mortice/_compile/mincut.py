"""Minimum cut of a directed graph, by maximum flow.

Dinic's algorithm (E. A. Dinic, 1970): levels by breadth-first search, then a blocking flow by
depth-first search over edges that go one level down, until the sink is out of reach. Capacities
are whole numbers, so that it ends and costs compare exactly.
"""

from __future__ import annotations

from collections import deque

INFINITE = 1 << 62


class FlowNetwork:
    """Nodes are numbered from 0 by ``node()``; edge 2k+1 is the reverse of edge 2k.

    ``work`` counts the edges looked at, by which tests see how the cost grows.
    """

    def __init__(self) -> None:
        self.heads: list[int] = []  # where an edge leads
        self.room: list[int] = []  # what an edge can still carry
        self.edges: list[list[int]] = []  # edges that leave a node
        self.work = 0

    def node(self) -> int:
        """Add a node; returns its number."""
        self.edges.append([])
        return len(self.edges) - 1

    def edge(self, tail: int, head: int, capacity: int) -> None:
        """Add an edge that carries at most ``capacity``."""
        for a, b, room in ((tail, head, capacity), (head, tail, 0)):
            self.edges[a].append(len(self.heads))
            self.heads.append(b)
            self.room.append(room)

    def minimum_cut(self, source: int, sink: int) -> tuple[int, frozenset[int]]:
        """(capacity of the cut, nodes on the source's side); of several, the one nearest to it.

        A capacity of ``INFINITE`` or more means that source and sink cannot be parted.
        """
        flow = 0
        while flow < INFINITE:
            levels = self._levels(source)
            if levels[sink] < 0:
                return flow, frozenset(i for i, level in enumerate(levels) if level >= 0)
            flow += self._blocking_flow(source, sink, levels)
        return flow, frozenset()

    def _levels(self, source: int) -> list[int]:
        """Distance of each node from the source over edges with room; -1 out of reach."""
        levels = [-1] * len(self.edges)
        levels[source] = 0
        waiting = deque((source,))
        while waiting:
            tail = waiting.popleft()
            for e in self.edges[tail]:
                self.work += 1
                head = self.heads[e]
                if self.room[e] and levels[head] < 0:
                    levels[head] = levels[tail] + 1
                    waiting.append(head)
        return levels

    def _blocking_flow(self, source: int, sink: int, levels: list[int]) -> int:
        """Push along paths of descending levels until each is blocked. No recursion: graphs of
        programs are thousands of nodes deep.
        """
        room, heads = self.room, self.heads
        untried = [len(edges) for edges in self.edges]  # edges after these lead nowhere
        path: list[int] = []
        tail = source
        total = 0
        while True:
            if tail == sink:
                pushed = min(room[e] for e in path)
                total += pushed
                for e in path:
                    room[e] -= pushed
                    room[e ^ 1] += pushed
                blocked = next(i for i, e in enumerate(path) if not room[e])
                tail = heads[path[blocked] ^ 1]
                del path[blocked:]
                self.work += len(path)
                if total >= INFINITE:
                    return total
            elif untried[tail]:
                e = self.edges[tail][untried[tail] - 1]
                self.work += 1
                if room[e] and levels[heads[e]] == levels[tail] + 1:
                    path.append(e)
                    tail = heads[e]
                else:
                    untried[tail] -= 1
            elif path:
                tail = heads[path.pop() ^ 1]
                untried[tail] -= 1
            else:
                return total
