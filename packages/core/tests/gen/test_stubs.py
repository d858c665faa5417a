"""The generated stubs name everything that ``mortice`` and ``Tensor`` get at import."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mortice
from mortice import _generated
from mortice.gen import stubs

FOLDER = Path(_generated.__file__).parent


def declared(tree: ast.Module | ast.ClassDef) -> set[str]:
    found = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    return found | {
        n.target.id
        for n in tree.body
        if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
    }


def test_every_function_dtype_and_layout_is_declared() -> None:
    tree = ast.parse((FOLDER / "names.pyi").read_text(encoding="utf-8"))
    names = declared(tree)
    assert {"float32", "bool", "strided", "channels_last"} <= names
    for family in _generated.every_family():
        assert set(family.FUNCTIONS) <= names
    for name in names:
        assert hasattr(mortice, name), name


def test_every_method_is_declared() -> None:
    tree = ast.parse((FOLDER / "methods.pyi").read_text(encoding="utf-8"))
    (methods,) = [n for n in tree.body if isinstance(n, ast.ClassDef)]
    names = declared(methods)
    for family in _generated.every_family():
        assert set(family.METHODS) <= names
    for name in names:
        assert hasattr(mortice.Tensor, name), name


def test_no_builtin_is_meant_where_a_dtype_or_method_hides_it() -> None:
    for name in ("names.pyi", "methods.pyi"):
        tree = ast.parse((FOLDER / name).read_text(encoding="utf-8"))
        for function in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)):
            used = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
            assert not used & {"bool", "complex", "float", "int", "str"}, function.name


@pytest.mark.parametrize(
    ("source", "stub"),
    [
        ("def f(x: Tensor, n: int = 2) -> Tensor: ...", "def f(self, n: _int=...) -> Tensor: ..."),
        ("def f(t, *, g: np.ndarray) -> Shape: ...", "def f(self, *, g: Any) -> Any: ..."),
    ],
)
def test_hand_written_methods_keep_what_the_stub_can_say(
    source: str, stub: str, tmp_path: Path
) -> None:
    for folder in ("_tensor", "_ops", "_autograd"):
        (tmp_path / folder).mkdir()
    (tmp_path / "_ops" / "x.py").write_text(f'{source}\nMETHODS: dict = {{"f": f}}\n')
    text = stubs.emit_methods([], tmp_path)
    assert f"    {stub}\n" in text
