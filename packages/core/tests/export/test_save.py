import io
import json
import random
import zipfile

import pytest

import mortice
from mortice import export
from mortice.errors import ExportError, MorticeError
from mortice.export import Dim

weight = mortice.randn(4, 3)


def f(x, pair, *, flag):
    y = mortice.softmax(x @ weight.t(), -1).view(x.shape[0] // 1, 2, -1)
    parts = y.to(mortice.float64).split(1, 1)
    x.mul_(2)
    return {
        "y": parts[0] * float("inf"),
        "n": [x.shape[0] * 3 + 1, pair["k"][1]],
        "z": pair["k"][0].clone(),
    }


def program():
    shapes = {"x": {0: Dim("b", min=2, max=100)}}
    return export.export(
        f,
        (mortice.ones(5, 3), {"k": (mortice.ones(2), "text")}),
        {"flag": True},
        dynamic_shapes=shapes,
    )


def saved(p):
    buffer = io.BytesIO()
    export.save(p, buffer)
    return buffer.getvalue()


def repacked(data, change):
    """The file with ``change(parts)`` made to its parts."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = {n: archive.read(n) for n in archive.namelist()}
    change(parts)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return buffer.getvalue()


def described(data, change):
    """The file with ``change(description)`` made to its JSON."""

    def of_parts(parts):
        description = json.loads(parts["program.json"])
        change(description)
        parts["program.json"] = json.dumps(description).encode()

    return repacked(data, of_parts)


def load(data):
    return export.load(io.BytesIO(data))


def test_saved_and_loaded_is_the_same(tmp_path):
    p = program()
    export.save(p, tmp_path / "p.mpt")
    assert [q.name for q in tmp_path.iterdir()] == ["p.mpt"]
    q = export.load(tmp_path / "p.mpt")
    assert str(q) == str(p)
    assert q.guards.relations == p.guards.relations and q.guards.ranges == p.guards.ranges
    assert mortice.equal(q.constants["tensor_constant0"], weight)
    args, kwargs = q.example_inputs
    assert args[0].shape == (5, 3) and args[1]["k"][1] == "text" and kwargs == {"flag": True}
    assert saved(q) == saved(p) == (tmp_path / "p.mpt").read_bytes()
    results = []
    for run in (f, p.module(), q.module(), q.run_decompositions().module()):
        x = mortice.arange(21.0).view(7, 3)
        out = run(x, {"k": (mortice.ones(2), "text")}, flag=True)
        results.append((out["y"], x, out["z"], out["n"]))
    for y, x, z, n in results[1:]:
        assert mortice.allclose(y, results[0][0], equal_nan=True)
        assert (
            mortice.equal(x, results[0][1])
            and mortice.equal(z, results[0][2])
            and n == results[0][3]
        )
    stacks = [n.stack_trace for n in q.graph.nodes if n.op == "call_function"]
    assert all("test_save.py" in s for s in stacks)
    assert [tuple(map(str, n.meta["val"].shape)) for n in q.graph.find_nodes(op="placeholder")[:2]] == [
        ("4", "3"), ("s0", "3"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("python::eval", "may not call the function 'eval'"),
        ("python::__import__", "may not call"),
        ("os::system", r"the operator os::system, which is not there\. Install"),
        ("aten::no_such_thing", "not there"),
    ],
)
def test_only_operators_are_called(target, message):
    def change(d):
        next(n for n in d["nodes"] if n["op"] == "call_function")["target"] = target

    with pytest.raises(ExportError, match=message):
        load(described(saved(program()), change))


@pytest.mark.parametrize("op", ["call_method", "call_module", "get_attr"])
def test_only_calls_of_functions(op):
    def change(d):
        next(n for n in d["nodes"] if n["op"] == "call_function")["op"] = op

    with pytest.raises(ExportError, match="no nodes of kind"):
        load(described(saved(program()), change))


@pytest.mark.parametrize(
    "size",
    ["__import__('os')", "s0.env", "(lambda: 1)()", "s9", "[1]", "s0 if 1 else 2", "9**9**9", "s0**s0", "max(s0, key=s0)", "(" * 5000, "1" * 20000, True, None, {}],
)  # fmt: skip
def test_sizes_are_arithmetic_alone(size):
    def change(d):
        d["guards"][0]["sizes"][1] = size

    with pytest.raises(ExportError):
        load(described(saved(program()), change))


def test_damage_is_told():
    data = saved(program())
    cases = [
        (b"not a zip", "no exported program"),
        (repacked(data, lambda p: p.pop("format")), "a zip but no exported program"),
        (repacked(data, lambda p: p.pop("program.json")), "has no program.json"),
        (repacked(data, lambda p: p.update({"program.json": b"{"})), "program.json is damaged"),
        (
            repacked(data, lambda p: p.update({"program.json": b"[" * 100_000})),
            "program.json is damaged",
        ),
        (
            described(data, lambda d: d.update(format=99)),
            "format 99; this version .* reads format 1",
        ),
        (described(data, lambda d: d.pop("nodes")), "damaged: KeyError"),
        (described(data, lambda d: d["nodes"].reverse()), "no node before it"),
        (
            described(data, lambda d: d["relations"].append(["s0", "is", "1", ""])),
            "unknown relation",
        ),
    ]
    for damaged, message in cases:
        with pytest.raises(ExportError, match=message):
            load(damaged)
    buffer = io.BytesIO()
    mortice.save([1], buffer)
    with pytest.raises(ExportError, match=r"read by mortice\.load"):
        load(buffer.getvalue())
    with pytest.raises(ExportError, match="must hold tensors by name"):
        load(repacked(data, lambda p: p.update({"state.pt": buffer.getvalue()})))


def test_changed_bytes_of_the_description_never_do_anything_else():
    """Every damage is an ExportError or a program; nothing else is raised, nothing else happens."""
    data = saved(program())
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        text = archive.read("program.json").decode()
    rng = random.Random(0)
    loaded = 0
    for _ in range(300):
        changed = list(text)
        for _ in range(rng.choice((1, 1, 3))):
            changed[rng.randrange(len(changed))] = rng.choice('0123456789"[]{}:,abns*')
        parts = {"program.json": "".join(changed).encode()}
        try:
            load(repacked(data, lambda p, parts=parts: p.update(parts)))
            loaded += 1
        except MorticeError:
            continue
    assert 0 < loaded < 300


def test_what_cannot_be_saved_is_told():
    import collections

    Point = collections.namedtuple("Point", "x")
    p = export.export(lambda x: Point(x + 1), (mortice.ones(1),))
    with pytest.raises(ExportError, match="Point is none of them.*dict"):
        saved(p)
    q = export.export(lambda p: p.x + 1, (Point(mortice.ones(1)),))
    with pytest.raises(ExportError, match="Point"):
        saved(q)


def test_operators_of_libraries():
    lib = mortice.library.Library("exported", "DEF")
    lib.define("twice(Tensor x) -> Tensor")
    lib.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
    lib.impl("twice", mortice.empty_like, "Meta")
    p = export.export(lambda x: mortice.ops.exported.twice(x), (mortice.ones(2),))
    data = saved(p)
    assert load(data).module()(mortice.ones(2)).tolist() == [2.0, 2.0]
    lib._destroy()
    with pytest.raises(
        ExportError, match="exported::twice, which is not there.*namespace 'exported'"
    ):
        load(data)
