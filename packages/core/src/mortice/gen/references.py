"""Whether the functions that stanzas name exist and fit, read from the source: nothing is imported."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from pathlib import Path

from mortice._base.errors import SchemaError, nearest
from mortice.gen.model import Stanza

#: Fields of a stanza that name a function of the module beside the YAML.
FIELDS = ("shape", "body", "decomposition", "view", "inverse")
#: Those of them that are called with the schema's arguments.
CALLED_WITH_ARGUMENTS = ("shape", "body", "decomposition", "view")
#: ``node`` is the history; ``needs`` says, in a formula for several arguments, which are wanted.
_GIVEN = frozenset(("node", "needs", *dir(builtins)))


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
    """SchemaError names the first stanza whose rule, kernel or formula is of no function there is,
    or whose rule takes other parameters than the operator has.
    """
    module = source.with_suffix(".py")
    known = names_in(module) if module.exists() else set()
    functions = _functions_in(module) if module.exists() else {}
    modules: dict[str, set[str] | None] = {}
    for stanza in stanzas:
        for field in FIELDS:
            name = getattr(stanza, field)
            where = _where(source, stanza, field)
            if "." in name:
                _check_dotted(where, field, name, source, modules)
            elif name and known is not None and name not in known:
                raise _missing(where, field, name, module, known)
            if field in CALLED_WITH_ARGUMENTS and name in functions:
                _check_parameters(where, field, stanza, functions[name])
        for device, target in stanza.dispatch.items():
            where = _where(source, stanza, "dispatch", device)
            if "." not in target:
                raise SchemaError(
                    f"{where}: dispatch for {device} is {target!r}; expected 'module.function' within "
                    "the package, such as 'cpu.weld'"
                )
            _check_dotted(where, f"dispatch for {device}", target, source, modules)
        if known is not None and isinstance(stanza.grad, dict):
            _check_formulas(source, stanza, module, known)


def _where(source: Path, stanza: Stanza, *place: str) -> str:
    return f"{source.name}, line {stanza.line(*place)}: {stanza.name}"


def _functions_in(path: Path) -> dict[str, ast.FunctionDef]:
    """The undecorated functions that a module defines at its top level, by name."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    found = [node for node in _top_level(tree) if isinstance(node, ast.FunctionDef)]
    return {node.name: node for node in found if not node.decorator_list}


def _check_parameters(where: str, field: str, stanza: Stanza, function: ast.FunctionDef) -> None:
    """A rule is called with every argument of the schema, by position."""
    given = [a.name for a in stanza.schema.arguments]
    told = function.args
    positional = [*told.posonlyargs, *told.args]
    least = len(positional) - len(told.defaults)
    by_name = [a.arg for a, d in zip(told.kwonlyargs, told.kw_defaults) if d is None]
    if not by_name and least <= len(given) and (told.vararg or len(given) <= len(positional)):
        return
    taken = f"{function.name}({ast.unparse(told)})"
    raise SchemaError(
        f"{where}: {field} names {taken} (line {function.lineno}), and it is called with the "
        f"{len(given)} argument{'s' * (len(given) != 1)} of the schema by position: "
        f"{function.name}({', '.join(given)})."
    )


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


def _check_formulas(source: Path, stanza: Stanza, module: Path, known: set[str]) -> None:
    """Names that a gradient formula reads, and functions that it calls."""
    helpers = names_in(Path(__file__).parent.parent / "_ops" / "formulas.py") or set()
    values = {a.name for a in stanza.schema.arguments} | {"grad", "grads", "result"}
    values |= {f"result{i}" for i in range(len(stanza.schema.returns))}
    for argument, formula in stanza.grad.items():
        try:
            tree = ast.parse(str(formula).strip(), mode="eval")
        except SyntaxError:
            continue  # told where the formula is compiled
        nodes = list(ast.walk(tree))
        called = {
            n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
        }
        bound = {n.arg for n in nodes if isinstance(n, ast.arg)}
        bound |= {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        for node in nodes:
            if (
                not isinstance(node, ast.Name)
                or node.id in known | helpers | values | bound | _GIVEN
            ):
                continue
            where = _where(source, stanza, "grad", str(argument))
            if node.id in called:
                told, near = (
                    f"calls {node.id!r}, which is no function of {module.name}",
                    known | helpers,
                )
            else:
                told = f"reads {node.id!r}, which is none of {', '.join(sorted(values))}"
                near = values | known
            raise SchemaError(
                f"{where}: the formula for {argument} {told}.{nearest(node.id, near)}"
            )
