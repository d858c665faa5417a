"""Whether the functions that stanzas name exist, read from the source: nothing is imported."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from pathlib import Path

from mortice._base.errors import SchemaError, nearest
from mortice.gen.model import Stanza

#: Fields of a stanza that name a function of the module beside the YAML.
FIELDS = ("shape", "body", "decomposition", "view", "inverse")
_GIVEN = frozenset(("grad", "grads", "result", "node", *dir(builtins)))


def names_in(path: Path) -> set[str] | None:
    """Names that a module binds at its top level; None if a star import leaves that open.

    Star imports from modules beside it are followed.
    """
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    except SyntaxError as error:
        raise SchemaError(f"{path.name}, line {error.lineno}: {error.msg}") from None
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(a.name == "*" for a in node.names):
            module = path.with_name(f"{(node.module or '').rpartition('.')[2]}.py")
            inner = names_in(module) if module.exists() and module != path else None
            if inner is None:
                return None
            found |= inner
    for node in _top_level(tree):
        found.update(_bound(node))
    return found


def _top_level(tree: ast.Module) -> Iterator[ast.stmt]:
    """Statements of the module, those inside ``if``, ``try``, ``for`` and ``with`` included."""
    waiting = list(tree.body)
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, (ast.If, ast.Try, ast.For, ast.While, ast.With)):
            for field in ("body", "orelse", "finalbody"):
                waiting += getattr(node, field, [])
            for handler in getattr(node, "handlers", []):
                waiting += handler.body


def _bound(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0]
    else:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                yield inner.id


def check(stanzas: list[Stanza], source: Path) -> None:
    """SchemaError names the first stanza whose rule, kernel or formula is of no function there is."""
    module = source.with_suffix(".py")
    known = names_in(module) if module.exists() else set()
    modules: dict[str, set[str] | None] = {}
    for stanza in stanzas:
        where = f"{source.name}: {stanza.name}"
        for field in FIELDS:
            name = getattr(stanza, field)
            if "." in name:
                _check_dotted(where, field, name, source, modules)
            elif name and known is not None and name not in known:
                raise _missing(where, field, name, module, known)
        for device, target in stanza.dispatch.items():
            if "." not in target:
                raise SchemaError(
                    f"{where}: dispatch for {device} is {target!r}; expected 'module.function' within "
                    "the package, such as 'cpu.weld'"
                )
            _check_dotted(where, f"dispatch for {device}", target, source, modules)
        if known is not None and isinstance(stanza.grad, dict):
            _check_formulas(where, stanza, module, known)


def _missing(where: str, field: str, name: str, module: Path, known: set[str]) -> SchemaError:
    if not module.exists():
        return SchemaError(
            f"{where}: {field} names {name!r}, a function of {module.name} beside the YAML, and there "
            f"is no such file. Write it, with a function {name}."
        )
    return SchemaError(
        f"{where}: {field} names {name!r}, and {module.name} has no such function."
        f"{nearest(name, known)}"
    )


def _check_dotted(
    where: str, field: str, target: str, source: Path, modules: dict[str, set[str] | None]
) -> None:
    """A function of another module of the package, ``"cpu.weld"``."""
    place, _, name = target.rpartition(".")
    module = source.parent.joinpath(*place.split(".")).with_suffix(".py")
    if not module.exists():
        module = module.with_suffix("") / "__init__.py"
    if not module.exists():
        there = [p.stem for p in source.parent.glob("*.py")]
        raise SchemaError(
            f"{where}: {field} names {target!r}, and the package has no module {place!r}."
            f"{nearest(place, there)}"
        )
    if place not in modules:
        modules[place] = names_in(module)
    known = modules[place]
    if known is not None and name not in known:
        raise SchemaError(
            f"{where}: {field} names {target!r}, and {module.name} has no function {name!r}."
            f"{nearest(name, known)}"
        )


def _check_formulas(where: str, stanza: Stanza, module: Path, known: set[str]) -> None:
    """Functions that a gradient formula calls by name."""
    helpers = names_in(Path(__file__).parent.parent / "_ops" / "formulas.py") or set()
    allowed = known | helpers | _GIVEN
    for argument, formula in stanza.grad.items():
        try:
            tree = ast.parse(str(formula), mode="eval")
        except SyntaxError:
            continue  # told where the formula is compiled
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                name = node.func.id
                if name not in allowed:
                    raise SchemaError(
                        f"{where}: the formula for {argument} calls {name!r}, which is no function of "
                        f"{module.name}.{nearest(name, known | helpers)}"
                    )
