"""Graphs as pictures: plain SVG text."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from mortice.fx.graph import Graph
from mortice.fx.layout import Layout, layered
from mortice.fx.node import Node, map_aggregate, show_target
from mortice.fx.symbols import is_symbolic

_CHARACTER = 7.3  # width of one at 12 px
_LINE = 16.0
_PADDING = 10.0
_BETWEEN = 34.0  # from layer to layer
_LONGEST = 36  # characters in a line

#: What a node is -> (fill, border), readable on white and on black.
_COLOURS = {
    "placeholder": ("#dbeafe", "#2563eb"),
    "get_attr": ("#fef3c7", "#b45309"),
    "call_function": ("#f3f4f6", "#4b5563"),
    "call_method": ("#ede9fe", "#6d28d9"),
    "call_module": ("#dcfce7", "#15803d"),
    "output": ("#fee2e2", "#b91c1c"),
}
_WRITES = ("#ffedd5", "#c2410c")

_STYLE = """
text { font: 12px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: #111827 }
.name { font-weight: bold }
.val { fill: #4b5563 }
.title { font-size: 14px; font-weight: bold; fill: #6b7280 }
path { fill: none; stroke: #9ca3af; stroke-width: 1.2 }
"""


def draw(graph: Any, title: str = "") -> str:
    """A graph, or the graph of a module, as an SVG document.

    Inputs are at the top. A box shows the node's name, what it calls with which constants, and the
    dtype and sizes of the result where ``meta["val"]`` has them; pointing at it shows the node in full
    and the user's line.
    """
    found: Graph = graph if isinstance(graph, Graph) else graph.graph
    nodes = list(found.nodes)
    lines = {node: _lines(node) for node in nodes}
    widths: dict[Any, float] = {n: _width(lines[n]) for n in nodes}
    inputs: dict[Any, list[Node]] = {n: n.all_input_nodes for n in nodes}
    layout = layered(widths, inputs, _loose(nodes))
    top, tops, heights = _rows(nodes, lines, layout, _LINE * 2 if title else 8.0)
    parts = [_edge(layout, tops, heights, a, b) for b in nodes for a in inputs[b]]
    parts += [_box(n, lines[n], layout, tops, widths[n]) for n in nodes]
    if title:
        parts.insert(0, f'<text class="title" x="8" y="20">{escape(title)}</text>')
    width, height = layout.width + 16, top
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="-8 0 {width:.0f} {height:.0f}">\n<style>{_STYLE}</style>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _loose(nodes: list[Node]) -> set[Node]:
    """Inputs, and what is made of constants alone."""
    found: set[Node] = set()
    for node in nodes:
        if node.op == "placeholder" or (
            node.op != "output"
            and all(n in found and n.op != "placeholder" for n in node.all_input_nodes)
        ):
            found.add(node)
    return found


def _lines(node: Node) -> list[str]:
    """What a box says."""
    found = [node.name]
    if node.op in ("call_function", "call_method", "call_module", "get_attr"):
        target = show_target(node.target)
        if node.op == "call_function" and not hasattr(node.target, "_schema"):
            target = target.rpartition(".")[2]
        target = target.removesuffix(".default")
        found.append(_short(("self." if node.op == "get_attr" else "") + target))
    constants = _constants(node)
    if constants:
        found.append(_short(constants))
    shown = show_value(node.meta.get("val"))
    if shown:
        found.append(_short(shown))
    return found


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _constants(node: Node) -> str:
    """The arguments that are no nodes, in a call's form; the nodes' places are dots."""
    if node.op not in ("call_function", "call_method", "call_module"):
        return ""
    if all(isinstance(a, Node) for a in node.args) and not node.kwargs:
        return ""

    def show(value: Any) -> str:
        dotted = map_aggregate(value, lambda x: _Dot() if isinstance(x, Node) else x)
        return _DEVICE.sub(r"\1", repr(dotted)).replace("mortice.", "")

    shown = [show(a) for a in node.args]
    return ", ".join([*shown, *(f"{k}={show(v)}" for k, v in node.kwargs.items())])


_DEVICE = re.compile(r"device\(type=('[a-z]+').*?\)")


class _Dot:
    def __repr__(self) -> str:
        return "·"


def show_value(value: Any) -> str:
    """``float32[3, s0]`` for a tensor; ``s0`` for a symbolic number; both of a tuple."""
    if hasattr(value, "_k"):
        return f"{value.dtype.name}[{', '.join(map(str, value.shape))}]"
    if is_symbolic(value) or isinstance(value, (bool, int, float)):
        return str(value)
    if isinstance(value, (tuple, list)):
        return ", ".join(filter(None, map(show_value, value)))  # pyright: ignore[reportUnknownArgumentType]
    return ""


def _width(lines: list[str]) -> float:
    return max(map(len, lines)) * _CHARACTER + 2 * _PADDING


def _height(lines: list[str]) -> float:
    return len(lines) * _LINE + _PADDING


def _rows(
    nodes: list[Node], lines: dict[Node, list[str]], layout: Layout, top: float
) -> tuple[float, list[float], list[float]]:
    """(height of the picture, top of each layer, height of each layer)."""
    heights = [0.0] * layout.depth
    for node in nodes:
        layer = layout.layers[node]
        heights[layer] = max(heights[layer], _height(lines[node]))
    tops: list[float] = []
    for height in heights:
        tops.append(top)
        top += height + _BETWEEN
    return top - _BETWEEN + 8, tops, heights


def _box(node: Node, lines: list[str], layout: Layout, tops: list[float], width: float) -> str:
    fill, border = _COLOURS[node.op]
    schema = getattr(node.target, "_schema", None)
    if schema is not None and schema.mutated:
        fill, border = _WRITES
    x, y = layout.centres[node], tops[layout.layers[node]]
    left = x - width / 2
    full = node.format_node() or node.name
    if node.stack_trace:
        full += f"\n{node.stack_trace}"
    parts = [
        f"<g><title>{escape(full)}</title>",
        f'<rect x="{left:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_height(lines):.1f}" ',
        f'rx="5" fill="{fill}" stroke="{border}"/>',
    ]
    for i, line in enumerate(lines):
        kind = "name" if i == 0 else "val" if i == len(lines) - 1 and "val" in node.meta else "call"
        parts.append(
            f'<text class="{kind}" x="{x:.1f}" y="{y + _LINE * (i + 1):.1f}" text-anchor="middle">'
            f"{escape(line)}</text>"
        )
    return "".join([*parts, "</g>"])


def _edge(layout: Layout, tops: list[float], heights: list[float], a: Node, b: Node) -> str:
    """A curve from the bottom of one box to the top of another, through the layers between."""
    xs = layout.edges[a, b]
    first = layout.layers[a]
    y = tops[first] + _height(_lines(a))
    path = [f"M{xs[0]:.1f} {y:.1f}"]
    for step, x in enumerate(xs[1:], 1):
        layer = first + step
        above = tops[layer - 1] + heights[layer - 1]
        path.append(f"L{xs[step - 1]:.1f} {above:.1f}")
        middle = (above + tops[layer]) / 2
        path.append(
            f"C{xs[step - 1]:.1f} {middle:.1f} {x:.1f} {middle:.1f} {x:.1f} {tops[layer]:.1f}"
        )
    return f'<path d="{"".join(path)}"/>'
