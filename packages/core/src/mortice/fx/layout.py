"""Layered layout of a directed graph without cycles.

The steps are Sugiyama's: layers by longest paths, long edges cut by points, orders by barycentres,
then positions that are as near to the neighbours' as the widths allow (least squares, by pooling
adjacent violators).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Hashable, Mapping, Sequence

Key = Hashable
_SWEEPS = 6
_GAP = 24.0


@dataclasses.dataclass
class _Item:
    """A box, or a point where an edge crosses a layer."""

    width: float
    layer: int
    up: list[_Item] = dataclasses.field(default_factory=list["_Item"])
    down: list[_Item] = dataclasses.field(default_factory=list["_Item"])
    x: float = 0.0
    order: float = 0.0


@dataclasses.dataclass(frozen=True)
class Layout:
    """Centres of the boxes, the layer of each, and for each edge the points that it goes through."""

    centres: dict[Key, float]
    layers: dict[Key, int]
    #: (from, to) -> x at each layer from the first's to the second's.
    edges: dict[tuple[Key, Key], list[float]]
    width: float
    depth: int


def layered(
    widths: Mapping[Key, float], inputs: Mapping[Key, Sequence[Key]], loose: Collection[Key] = ()
) -> Layout:
    """Where to put boxes of these widths; keys are in an order in which inputs come first.

    ``inputs``: key -> the keys whose edges lead to it. Those in ``loose``, whose inputs must be loose,
    too, are pulled down to just above their first use.
    """
    layer = _layers(inputs, loose)
    items = {key: _Item(widths[key], layer[key]) for key in widths}
    edges: dict[tuple[Key, Key], list[_Item]] = {}
    rows: list[list[_Item]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for key, item in items.items():
        rows[item.layer].append(item)
        for other in inputs[key]:
            edges[other, key] = _chain(items[other], item, rows)
    _order(rows)
    _place(rows)
    left = min((i.x - i.width / 2 for row in rows for i in row), default=0.0)
    for row in rows:
        for item in row:
            item.x -= left
    return Layout(
        centres={key: item.x for key, item in items.items()},
        layers=layer,
        edges={pair: [i.x for i in chain] for pair, chain in edges.items()},
        width=max((i.x + i.width / 2 for row in rows for i in row), default=0.0),
        depth=len(rows),
    )


def _layers(inputs: Mapping[Key, Sequence[Key]], loose: Collection[Key]) -> dict[Key, int]:
    layer: dict[Key, int] = {}
    for key, others in inputs.items():
        layer[key] = 1 + max((layer[o] for o in others), default=-1)
    first_use: dict[Key, int] = {}
    for key in reversed(layer):
        if key in loose and key in first_use:
            layer[key] = first_use[key] - 1
        for other in inputs[key]:
            first_use[other] = min(first_use.get(other, layer[key]), layer[key])
    return layer


def _chain(start: _Item, end: _Item, rows: list[list[_Item]]) -> list[_Item]:
    """The edge as a chain of neighbours, one in each layer."""
    chain = [start]
    for layer in range(start.layer + 1, end.layer):
        point = _Item(0.0, layer)
        rows[layer].append(point)
        chain.append(point)
    chain.append(end)
    for a, b in itertools.pairwise(chain):
        a.down.append(b)
        b.up.append(a)
    return chain


def _order(rows: list[list[_Item]]) -> None:
    """Sort each layer by the mean position of its neighbours, downwards and upwards in turn."""
    for row in rows:
        _number(row)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            for item in row:
                near = item.up if down else item.down
                if near:
                    item.order = sum(i.order for i in near) / len(near)
            row.sort(key=_by_order)
            _number(row)


def _by_order(item: _Item) -> float:
    return item.order


def _number(row: list[_Item]) -> None:
    for i, item in enumerate(row):
        item.order = i / max(len(row) - 1, 1)


def _place(rows: list[list[_Item]]) -> None:
    for row in rows:
        at = 0.0
        for item in row:
            item.x = at + item.width / 2
            at += item.width + _GAP
    for sweep in range(2 * _SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            wishes = [_mean(item.up if down else item.down, item.x) for item in row]
            for item, x in zip(row, _apart(row, wishes)):
                item.x = x


def _mean(near: list[_Item], otherwise: float) -> float:
    return sum(i.x for i in near) / len(near) if near else otherwise


def _apart(row: list[_Item], wishes: list[float]) -> list[float]:
    """The positions nearest to ``wishes`` in which neighbours in the row do not overlap."""
    offsets = [0.0]
    for a, b in itertools.pairwise(row):
        offsets.append(offsets[-1] + (a.width + b.width) / 2 + _GAP)
    # Without the offsets the positions need only not decrease.
    blocks: list[tuple[float, int]] = []
    for wish, offset in zip(wishes, offsets):
        total, count = wish - offset, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / count:
            before, n = blocks.pop()
            total, count = total + before, count + n
        blocks.append((total, count))
    levels = [total / count for total, count in blocks for _ in range(count)]
    return [level + offset for level, offset in zip(levels, offsets)]
