"""Stanzas as data: reading the YAML, checking it, and the operators that each stanza implies.

A stanza declares one functional operator and may ask for its in-place and ``out=`` forms:

    - func: mul.Tensor(Tensor self, Tensor other) -> Tensor
      variants: function, method     # the default
      inplace: true                  # also mul_.Tensor
      out: true                      # also mul.out
      shape: pointwise               # rule in the family's Python file
      tags: [core, pointwise]
      grad:                          # formulas; `none` for operators without gradient
        self: mul_conj(grad, other)
        other: mul_conj(grad, self)
      nondifferentiable: [1]         # outputs that never require grad, by number

Instead of kernels a stanza may name ``body`` (composite of public operators, differentiable
through them), ``decomposition`` (used below autograd where a device has no kernel) or ``view``
(a rule giving sizes, strides and offset; no device needs a kernel for it).
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from mortice._base.errors import SchemaError, nearest
from mortice._dispatch.schema import Argument, FunctionSchema, Return, Type, parse

STANZA_KEYS = frozenset(
    (
        "func", "variants", "inplace", "out", "shape", "tags", "grad", "body", "decomposition",
        "view", "python_name", "numbers", "doc", "inverse", "save", "dispatch", "nondifferentiable",
    )
)  # fmt: skip


class Stanza:
    """One declaration: the parsed schema and the stanza's other fields."""

    __slots__ = (
        "body", "decomposition", "dispatch", "doc", "family", "grad", "inplace", "inverse", "lines",
        "nondifferentiable",
        "numbers", "out",
        "schema", "shape", "tags", "variants", "view",
    )  # fmt: skip

    def __init__(self, family: str, fields: dict[str, Any], namespace: str) -> None:
        for key in fields:
            if key not in STANZA_KEYS:
                raise SchemaError(f"unknown field {key!r}.{nearest(key, STANZA_KEYS)}")
        if "func" not in fields:
            raise SchemaError("a stanza needs the field 'func' with a schema")
        for key in ("inplace", "numbers"):
            if not isinstance(fields.get(key, False), bool):
                raise SchemaError(f"{key} is {fields[key]!r}; expected true or false")
        self.family = family
        self.schema: FunctionSchema = parse(fields["func"], namespace)
        variants = fields.get("variants", "function, method")
        self.variants = tuple(v.strip() for v in variants.split(",") if v.strip())
        self.inplace: bool = bool(fields.get("inplace", False))
        self.out: Any = fields.get("out", False)
        self.shape: str = fields.get("shape", "")
        self.tags: tuple[str, ...] = tuple(fields.get("tags", ()))
        self.grad: Any = fields.get("grad")
        self.body: str = fields.get("body", "")
        self.decomposition: str = fields.get("decomposition", "")
        self.view: str = fields.get("view", "")
        self.numbers: bool = bool(fields.get("numbers", False))
        self.doc: str = fields.get("doc", "")
        self.inverse: str = fields.get("inverse", "")
        #: device type -> "module.function" within the package, for operators from outside core.
        self.dispatch: dict[str, str] = dict(fields.get("dispatch") or {})
        self.nondifferentiable: tuple[int, ...] = tuple(fields.get("nondifferentiable", ()))
        #: (field,) or (field, key) -> its line in the YAML; () for the stanza's first.
        self.lines: dict[tuple[str, ...], int] = {}
        self._check()

    def line(self, *place: str) -> int:
        """The line of a field, or of a key of one, else that of the stanza; 0 if it is not known."""
        found = self.lines.get(place) or self.lines.get(place[:1]) if place else None
        return found or self.lines.get((), 0)

    def _check(self) -> None:
        if isinstance(self.grad, dict):
            names = {a.name for a in self.schema.arguments}
            for key in self.grad:
                for name in str(key).split(","):
                    if name.strip() not in names:
                        raise SchemaError(
                            f"gradient for unknown argument {name!r}.{nearest(name, names)}"
                        )
        for v in self.variants:
            if v not in ("function", "method", "none"):
                raise SchemaError(f"unknown variant {v!r}; use function, method or none")

    @property
    def name(self) -> str:
        """Registry name: ``add.Tensor``; with namespace where it is not aten."""
        return registry_name(self.schema)

    @property
    def kind(self) -> str:
        if self.view:
            return "view"
        return "composite" if self.body and not self.shape else "kernel"


class Declared:
    """One operator to register: a stanza's own, or its in-place or ``out=`` form."""

    __slots__ = ("form", "schema", "stanza")

    def __init__(self, stanza: Stanza, form: str, schema: FunctionSchema) -> None:
        self.stanza = stanza
        self.form = form  # "functional", "inplace", "out"
        self.schema = schema

    @property
    def name(self) -> str:
        return registry_name(self.schema)

    @property
    def ident(self) -> str:
        return identifier(self.name)


def registry_name(schema: FunctionSchema) -> str:
    prefix = "" if schema.namespace == "aten" else f"{schema.namespace}::"
    return f"{prefix}{schema.name}" + (f".{schema.overload}" if schema.overload else "")


def identifier(name: str) -> str:
    """``add.Tensor`` -> ``add_Tensor``; in-place ``add_.Tensor`` -> ``add__Tensor``."""
    return name.replace("::", "_").replace(".", "_")


def load(path: Path, family: str, namespace: str = "aten") -> list[Stanza]:
    """All stanzas of one YAML file; SchemaError names file and stanza."""
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise SchemaError(
            "reading operator declarations needs PyYAML: pip install pyyaml"
        ) from error
    try:
        text = path.read_text(encoding="utf-8")
        data = yaml.safe_load(text) or []
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark is not None else ""
        told = getattr(error, "problem", None) or error
        raise SchemaError(f"{path.name}{place}: not valid YAML: {told}") from error
    if not isinstance(data, list):
        raise SchemaError(f"{path.name}: expected a list of stanzas ('- func: ...')")
    stanzas: list[Stanza] = []
    for i, fields in enumerate(data):
        where = f"{path.name}, stanza {i + 1}"
        if not isinstance(fields, dict):
            raise SchemaError(f"{where}: expected fields such as 'func:', found {fields!r}")
        try:
            stanzas.append(Stanza(family, fields, namespace))
        except SchemaError as error:
            raise SchemaError(f"{where}: {error}") from None
    if stanzas:
        for stanza, node in zip(stanzas, yaml.compose(text).value):
            stanza.lines = _lines(node)
    return stanzas


def _lines(node: Any) -> dict[tuple[str, ...], int]:
    """Where the fields of a stanza are, and the keys of those that are mappings."""
    found: dict[tuple[str, ...], int] = {(): node.start_mark.line + 1}
    for key, value in node.value:
        found[key.value,] = key.start_mark.line + 1
        if value.id == "mapping":
            found.update(((key.value, k.value), k.start_mark.line + 1) for k, _ in value.value)
    return found


def infer_numbers(stanzas: list[Stanza]) -> None:
    """Where an operator has a ``Scalar`` form, its ``Tensor`` form takes Python numbers itself."""
    scalar = {s.schema.name for s in stanzas if s.schema.overload.startswith("Scalar")}
    scalar |= {s.schema.name for s in stanzas if s.schema.overload == "Tensor_Scalar"}
    for s in stanzas:
        if s.schema.name in scalar and s.schema.overload in (
            "Tensor",
            "Tensor_Tensor",
            "Tensor_mode",
        ):
            s.numbers = True


def declared(stanza: Stanza) -> list[Declared]:
    """The operators that a stanza implies, its own first."""
    mutates = bool(stanza.schema.arguments) and stanza.schema.arguments[0].type.is_mutable
    found = [Declared(stanza, "inplace" if mutates else "functional", stanza.schema)]
    if stanza.inplace:
        found.append(Declared(stanza, "inplace", inplace_schema(stanza.schema)))
    if stanza.out:
        name = stanza.out if isinstance(stanza.out, str) else ""
        found.append(Declared(stanza, "out", out_schema(stanza.schema, name)))
    return found


def _with_alias(kind: Type, alias: str) -> Type:
    changed = copy.copy(kind)
    changed.alias = alias
    return changed


def inplace_schema(schema: FunctionSchema) -> FunctionSchema:
    first = schema.arguments[0]
    mutated = Argument(first.name, _with_alias(first.type, "a!"), first.default, False)
    return FunctionSchema(
        schema.namespace,
        schema.name + "_",
        schema.overload,
        (mutated, *schema.arguments[1:]),
        (Return("", _with_alias(schema.returns[0].type, "a!")),),
    )


def out_schema(schema: FunctionSchema, overload: str) -> FunctionSchema:
    if not overload:
        overload = f"{schema.overload}_out" if schema.overload not in ("", "Tensor") else "out"
    outs: list[Argument] = []
    returns: list[Return] = []
    for i, r in enumerate(schema.returns):
        kind = _with_alias(r.type, f"{chr(ord('a') + i)}!")
        name = "out" if len(schema.returns) == 1 else (r.name or f"out{i}")
        outs.append(Argument(name, kind, parse("f(int x) -> ()").arguments[0].default, True))
        returns.append(Return(r.name, kind))
    return FunctionSchema(
        schema.namespace, schema.name, overload, (*schema.arguments, *outs), tuple(returns)
    )
