"""Function schemas in ATen's notation: parsed lazily, printed back exactly.

``add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor``
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mortice._base.errors import SchemaError, nearest

BASE_TYPES = frozenset(
    (
        "Tensor", "Scalar", "int", "SymInt", "float", "bool", "SymBool", "str", "ScalarType",
        "Layout", "Device", "MemoryFormat", "Generator", "Storage", "Dimname", "QScheme", "Stream",
        "complex", "number", "t", "SymFloat", "Any",
    )
)  # fmt: skip
_CORRECTIONS = {
    "int64_t": "Use `SymInt` or `int`",
    "double": "Use `float`",
    "Int": "Use `int`",
    "size_t": "Use `SymInt` or `int`",
    "string": "Use `str`",
    "dtype": "Use `ScalarType`",
}


class Type:
    """``Tensor(a!)?[]``-like type: a base name, how it is wrapped, and its alias annotation.

    ``form`` lists the suffixes from the inside out, such as ``("[]", "?")``; ``length`` is n of
    ``int[n]``, where a single value stands for n of them.
    """

    __slots__ = ("alias", "base", "form", "is_list", "is_optional", "length")

    def __init__(self, base: str, form: tuple[str, ...], alias: str, length: int | None) -> None:
        self.base = base
        self.form = form
        self.alias = alias
        self.length = length
        self.is_list = "[]" in form
        self.is_optional = bool(form) and form[-1] == "?"

    @property
    def is_tensor(self) -> bool:
        return self.base == "Tensor"

    @property
    def is_mutable(self) -> bool:
        return "!" in self.alias

    def __str__(self) -> str:
        text = self.base + (f"({self.alias})" if self.alias else "")
        for suffix in self.form:
            text += f"[{self.length}]" if suffix == "[]" and self.length is not None else suffix
        return text


class AliasInfo(NamedTuple):
    """What an annotation such as ``(a!)`` says: the alias sets, and whether it is written to."""

    before_set: frozenset[str]
    is_write: bool


def _alias_info(kind: Type) -> AliasInfo | None:
    if not kind.alias:
        return None
    names = kind.alias.partition("->")[0].replace("!", "").split("|")
    return AliasInfo(frozenset(n.strip() for n in names), kind.is_mutable)


class Argument:
    """One parameter: its name, type, default (``REQUIRED`` if none) and whether keyword-only."""

    __slots__ = ("default", "kwarg_only", "name", "type")

    def __init__(self, name: str, type: Type, default: Any, kwarg_only: bool) -> None:
        self.name = name
        self.type = type
        self.default = default
        self.kwarg_only = kwarg_only

    @property
    def alias_info(self) -> AliasInfo | None:
        """None where the argument is neither written to nor seen through a result."""
        return _alias_info(self.type)

    @property
    def default_value(self) -> Any:
        """The default, or None where there is none."""
        return None if self.default is REQUIRED else self.default

    @property
    def has_default(self) -> bool:
        return self.default is not REQUIRED

    def __str__(self) -> str:
        text = f"{self.type} {self.name}"
        return text if self.default is REQUIRED else f"{text}={_show_default(self)}"


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Any = _Required()


class Return:
    __slots__ = ("name", "type")

    def __init__(self, name: str, type: Type) -> None:
        self.name = name
        self.type = type

    @property
    def alias_info(self) -> AliasInfo | None:
        """None where the result shares no memory with an argument."""
        return _alias_info(self.type)

    def __str__(self) -> str:
        return f"{self.type} {self.name}" if self.name else str(self.type)


class FunctionSchema:
    """A parsed schema. ``str()`` gives the text back in normal form.

    Attributes:
        namespace, name, overload: ``"aten"``, ``"add"``, ``"Tensor"`` (overload may be empty).
        arguments: all of them in order, keyword-only ones last.
        returns: one entry per returned value.
        tensor_positions: indices of the arguments that are or may hold tensors.
        mutated: indices of the arguments that are written to.
    """

    __slots__ = (
        "arguments", "by_name", "mutated", "name", "namespace", "overload", "positional", "returns",
        "tensor_positions",
    )  # fmt: skip

    def __init__(
        self,
        namespace: str,
        name: str,
        overload: str,
        arguments: tuple[Argument, ...],
        returns: tuple[Return, ...],
    ) -> None:
        self.namespace = namespace
        self.name = name
        self.overload = overload
        self.arguments = arguments
        self.returns = returns
        self.by_name = {a.name: i for i, a in enumerate(arguments)}
        self.positional = sum(not a.kwarg_only for a in arguments)
        self.tensor_positions = tuple(i for i, a in enumerate(arguments) if a.type.is_tensor)
        self.mutated = tuple(i for i, a in enumerate(arguments) if a.type.is_mutable)

    @property
    def qualified(self) -> str:
        """``aten::add.Tensor``."""
        return f"{self.namespace}::{self.name}" + (f".{self.overload}" if self.overload else "")

    @property
    def overload_name(self) -> str:
        return self.overload

    @property
    def is_mutable(self) -> bool:
        """Whether an argument is written to."""
        return bool(self.mutated)

    @property
    def is_view(self) -> bool:
        """Whether an output aliases an input that is not written to."""
        return any(
            r.type.alias and "!" not in r.type.alias and r.type.is_tensor for r in self.returns
        )

    def __str__(self) -> str:
        parts: list[str] = []
        star = False
        for a in self.arguments:
            if a.kwarg_only and not star:
                parts.append("*")
                star = True
            parts.append(str(a))
        returns = ", ".join(map(str, self.returns))
        if len(self.returns) != 1:
            returns = f"({returns})"
        return f"{self.qualified}({', '.join(parts)}) -> {returns}"


def parse(text: str, namespace: str = "aten") -> FunctionSchema:
    """Parse one schema. SchemaError shows the text with a mark where it went wrong."""
    return _Parser(text, namespace).schema()


class _Parser:
    """Recursive descent over the schema's characters; ``at`` is the position reached."""

    def __init__(self, text: str, namespace: str) -> None:
        self.text = text
        self.namespace = namespace
        self.at = 0

    def fail(self, message: str) -> SchemaError:
        return SchemaError(f"{message}:\n{self.text}\n{' ' * self.at}^ HERE")

    def blank(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def take(self, token: str) -> bool:
        self.blank()
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def expect(self, token: str, what: str | None = None) -> None:
        if not self.take(token):
            found = repr(self.text[self.at]) if self.at < len(self.text) else "'eof'"
            raise self.fail(f"expected {what or repr(token)} but found {found} here")

    def word(self, what: str, extra: str = "") -> str:
        self.blank()
        start = self.at
        while self.at < len(self.text) and (
            self.text[self.at].isalnum() or self.text[self.at] in "_" + extra
        ):
            self.at += 1
        if start == self.at:
            raise self.fail(f"expected {what}")
        return self.text[start : self.at]

    def schema(self) -> FunctionSchema:
        namespace, name, overload = self.qualified_name()
        if self.at >= len(self.text.rstrip()):
            raise self.fail("Tried to parse a function schema but only the operator name was given")
        self.expect("(")
        arguments = self.arguments()
        self.expect("->", "an arrow '->'")
        returns = self.returns()
        self.blank()
        if self.at != len(self.text):
            raise self.fail("unexpected text after the schema")
        names = [a.name for a in arguments]
        for name_ in names:
            if names.count(name_) > 1:
                raise self.fail(f"argument name {name_!r} occurs twice")
        return FunctionSchema(namespace, name, overload, tuple(arguments), tuple(returns))

    def qualified_name(self) -> tuple[str, str, str]:
        name = self.word("an operator name")
        namespace = self.namespace
        if self.text.startswith("::", self.at):
            self.at += 2
            namespace, name = name, self.word("an operator name")
        overload = ""
        if self.text.startswith(".", self.at):
            self.at += 1
            overload = self.word("an overload name")
        return namespace, name, overload

    def arguments(self) -> list[Argument]:
        found: list[Argument] = []
        kwarg_only = False
        if self.take(")"):
            return found
        while True:
            if self.take("*"):
                if kwarg_only:
                    raise self.fail("'*' occurs twice")
                kwarg_only = True
            else:
                found.append(self.argument(kwarg_only))
            if self.take(")"):
                return found
            self.expect(",", "',' or ')'")

    def argument(self, kwarg_only: bool) -> Argument:
        kind = self.type()
        name = self.word("an argument name")
        default: Any = REQUIRED
        if self.take("="):
            default = self.default(kind)
        return Argument(name, kind, default, kwarg_only)

    def type(self) -> Type:
        self.blank()
        start = self.at
        base = self.word("a type")
        if base not in BASE_TYPES:
            self.at = start
            hint = _CORRECTIONS.get(base)
            raise self.fail(
                f"unknown type specifier {base!r}."
                + (f" {hint}" if hint else nearest(base, BASE_TYPES))
            )
        alias = ""
        if self.text[self.at :].lstrip().startswith("("):  # "Tensor (a!)" is PyTorch's, too
            self.blank()
            end = self.text.find(")", self.at)
            alias = self.text[self.at + 1 : end]
            self.at = end + 1
        form: list[str] = []
        length: int | None = None
        while self.at < len(self.text) and self.text[self.at] in "[?":
            if self.text[self.at] == "?":
                form.append("?")
                self.at += 1
                continue
            end = self.text.find("]", self.at)
            if end < 0:
                raise self.fail("expected ']'")
            inside = self.text[self.at + 1 : end]
            if inside:
                length = int(inside)
            form.append("[]")
            self.at = end + 1
        # The alias of a list may also stand behind its elements' brackets: Tensor(a)[] only.
        return Type(base, tuple(form), alias, length)

    def default(self, kind: Type) -> Any:
        self.blank()
        if self.take("["):
            items: list[Any] = []
            while not self.take("]"):
                items.append(self.default(kind))
                self.take(",")
            return items
        if self.text.startswith(("'", '"'), self.at):
            quote = self.text[self.at]
            end = self.text.find(quote, self.at + 1)
            value = self.text[self.at + 1 : end]
            self.at = end + 1
            return value
        return _constant(self, self.word("a default value", ".+-"), kind)

    def returns(self) -> list[Return]:
        self.blank()
        if self.text[self.at :].strip() == "None":  # as PyTorch lets "()" be written
            self.at = len(self.text)
            return []
        if not self.take("("):
            kind = self.type()
            self.blank()
            named = self.at < len(self.text) and self.text[self.at].isidentifier()
            return [Return(self.word("a name") if named else "", kind)]
        found: list[Return] = []
        while not self.take(")"):
            kind = self.type()
            self.blank()
            name = "" if self.text[self.at : self.at + 1] in ",)" else self.word("a name")
            found.append(Return(name, kind))
            if not self.take(","):
                self.expect(")")
                break
        return found


_WORDS = {"None": None, "True": True, "False": False}


def _constant(parser: _Parser, word: str, kind: Type) -> Any:
    if word in _WORDS:
        return _WORDS[word]
    if kind.base in ("ScalarType", "Layout", "MemoryFormat", "Device") or word.isidentifier():
        return _named_default(word)
    try:
        if kind.base == "float":
            return float(word)
        return int(word)
    except ValueError:
        try:
            return float(word)
        except ValueError:
            raise parser.fail(f"cannot read {word!r} as a default value") from None


def _named_default(word: str) -> Any:
    """Defaults that are names: ``long``, ``contiguous_format``, ``Mean``."""
    from mortice._types import dtypes, layout

    if word == "Mean":
        return 1
    if word in dtypes.ALL or word in dtypes.ALIASES:
        return dtypes.by_name(word)
    for named in (*layout.MEMORY_FORMATS, *layout.LAYOUTS):
        if named.name == word:
            return named
    raise SchemaError(f"unknown default value {word!r} in a schema")


def _show_default(argument: Argument) -> str:
    value = argument.default
    if isinstance(value, str):
        return f"'{value}'"
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    name: str | None = getattr(value, "name", None)
    if name is not None:
        return {"int64": "long"}.get(name, name)
    return str(value)
