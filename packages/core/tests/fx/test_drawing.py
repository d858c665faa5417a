import itertools
import xml.etree.ElementTree as ET

import mortice
from mortice import fx
from mortice.fx.layout import layered

SVG = "{http://www.w3.org/2000/svg}"


def picture(graph, title=""):
    root = ET.fromstring(fx.draw(graph, title))
    boxes = []
    for group in root.iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        x, y, w, h = (float(rect.get(k)) for k in ("x", "y", "width", "height"))
        boxes.append(
            (
                [t.text for t in group.iter(f"{SVG}text")],
                group.find(f"{SVG}title").text,
                (x, y, w, h),
            )
        )
    return root, boxes


def traced():
    def f(x, w):
        y = mortice.relu(x @ w.t()) + mortice.tensor([1.0])
        x.mul_(2)
        return mortice.cumsum(y, 1), y.sum(dtype=mortice.float64)

    return fx.make_fx(f, tracing_mode="symbolic")(mortice.ones(2, 3), mortice.ones(4, 3))


def test_boxes_say_what_nodes_are():
    gm = traced()
    root, boxes = picture(gm, "a < b")
    assert len(boxes) == len(gm.graph.nodes)
    lines = {text[0]: text for text, _, _ in boxes}
    assert lines["x"] == ["x", "float32[s0, s1]"]
    assert lines["cumsum"] == ["cumsum", "aten.cumsum", "·, 1", "float32[s0, s2]"]
    assert lines["sum_1"][2:] == ["·, dtype=float64", "float64[]"]
    assert lines["_tensor_constant0"][1] == "self._tensor_constant0"
    titles = {text[0]: title for text, title, _ in boxes}
    assert "test_drawing.py" in titles["relu"] and "%relu : [num_users=1]" in titles["relu"]
    assert root.find(f"{SVG}text").text == "a < b"
    edges = sum(len(n.all_input_nodes) for n in gm.graph.nodes)
    assert len(list(root.iter(f"{SVG}path"))) == edges


def test_boxes_do_not_overlap_and_lie_in_the_picture():
    for gm in (traced(), fx.GraphModule(None, wide())):
        root, boxes = picture(gm)
        left, top, width, height = map(float, root.get("viewBox").split())
        for _, _, (x, y, w, h) in boxes:
            assert left <= x and x + w <= left + width and top <= y and y + h <= top + height
        for (_, _, a), (_, _, b) in itertools.combinations(boxes, 2):
            apart_x = a[0] + a[2] <= b[0] or b[0] + b[2] <= a[0]
            assert apart_x or a[1] + a[3] <= b[1] or b[1] + b[3] <= a[1]


def wide():
    """Many inputs, long edges, a dead node."""
    graph = fx.Graph()
    nodes = [graph.placeholder(f"p_{i}") for i in range(6)]
    for i in range(40):
        pair = (nodes[i * 7 % len(nodes)], nodes[i * 3 % len(nodes)])
        nodes.append(graph.call_function(mortice.ops.aten.add.Tensor, pair))
    graph.output(nodes[-1])
    return graph


def test_users_are_below_what_they_use():
    _, boxes = picture(fx.GraphModule(None, wide()))
    place = {text[0]: box for text, _, box in boxes}
    for node in wide().nodes:
        for used in node.all_input_nodes:
            assert place[used.name][1] + place[used.name][3] < place[node.name][1]


def test_an_empty_graph():
    assert picture(fx.Graph())[1] == []


def test_neighbours_are_near_and_loose_boxes_pulled_down():
    widths = dict.fromkeys("abcdw", 10.0)
    inputs = {"a": "", "w": "", "b": "a", "c": "b", "d": "cw"}
    found = layered(widths, inputs, {"a", "w"})
    assert found.layers == {"a": 0, "b": 1, "c": 2, "w": 2, "d": 3}
    assert found.centres["a"] == found.centres["b"] == found.centres["c"]
    assert abs(found.centres["w"] - found.centres["c"]) == 34.0
    assert found.edges["c", "d"] == [found.centres["c"], found.centres["d"]]
