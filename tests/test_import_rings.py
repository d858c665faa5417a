"""Modules that import each other in a ring, by imports inside functions, too.

The imports at the top of modules make no ring; import-linter sees to the floors. An import inside a
function, or of a name in a string, loads nothing until it runs, but whoever reads the modules has
to know all of the ring at once. The rings there are stand below; another one fails here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

# Each is one ring, by package and floor. A ring may lose modules, which are then to be taken off
# here, and gain none. The first is core's heart: a tensor knows its history and how it is made,
# an operator that its kernels are made of operators; each step back up is a seam that is named in
# pyproject.toml, or asks the operators by their public names.
RINGS: tuple[dict[str, str], ...] = (
    {
        "mortice": "ops",
        "mortice._autograd": (
            "autocast engine function inplace node undifferentiable variable views"
        ),
        "mortice._dispatch": "backends call modes operator plan",
        "mortice._library": "custom fakes gradient infer registration tagged vmap",
        "mortice._ops": "formulas view view_bodies",
        "mortice._tensor": (
            "construct copying current device_methods device_module devices fallback generator "
            "host kernels make memory moves printing rows sharing storage streams subclass tensor "
            "transfer typed_storage"
        ),
    },
    # The module that `config` is replaced by is asked for by its name.
    {"mortice_inductor": "config options"},
    # The thread pool is compiled as kernels are, and kernels use the pool.
    {"mortice_llvm.runtime": "compiler library threads"},
)


def _modules(root: Path) -> dict[str, Path]:
    found = {}
    for source in root.glob("packages/*/src"):
        for path in source.rglob("*.py"):
            parts = path.relative_to(source).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def _imports(tree: ast.AST, package: list[str]) -> Iterator[tuple[str, str]]:
    """(module, name in it or "") of each import that runs, wherever it stands."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            for given in node.args[:1]:
                if isinstance(given, ast.Constant) and isinstance(given.value, str):
                    yield given.value, ""
        yield from _imports(node, package)


def _graph(root: Path) -> dict[str, set[str]]:
    modules = _modules(root)
    graph = {}
    for name, path in modules.items():
        package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
        wanted = _imports(ast.parse(path.read_text(encoding="utf-8")), package)
        targets = {f"{m}.{n}" if f"{m}.{n}" in modules else m for m, n in wanted}
        graph[name] = targets & modules.keys() - {name}
    return graph


def _rings(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """The strongly connected components of more than one module (Tarjan's algorithm)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: set[frozenset[str]] = set()

    def visit(v: str) -> None:
        number[v] = low[v] = len(number)
        stack.append(v)
        for w in graph[v]:
            if w not in number:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], number[w])
        if low[v] == number[v]:
            at = stack.index(v)
            ring, stack[at:] = stack[at:], []
            if len(ring) > 1:
                found.add(frozenset(ring))

    for v in graph:
        if v not in number:
            visit(v)
    return found


def test_no_ring_but_those_named(root: Path) -> None:
    named = {
        frozenset(f"{package}.{name}" for package, names in ring.items() for name in names.split())
        for ring in RINGS
    }
    graph = _graph(root)
    assert len(graph) > 400
    found = _rings(graph)
    told = [
        f"{module} -> {target}"
        for ring in found - named
        for module in sorted(ring)
        for target in sorted(graph[module] & ring)
    ]
    assert found == named, "\n".join(told)


def test_rings_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert _rings(graph) == {frozenset("abc"), frozenset("de")}


def test_imports_inside_functions_and_by_name_count() -> None:
    text = """
if TYPE_CHECKING:
    from .typed import T
import os
def f():
    from . import near
    from ..other import thing
    return import_module("far.away")
"""
    seen = set(_imports(ast.parse(text), ["top", "inner"]))
    assert seen == {("os", ""), ("top.inner", "near"), ("top.other", "thing"), ("far.away", "")}
