"""Which sizes of an exported program may vary: ``Dim``, and ``dynamic_shapes``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from mortice._base.errors import ExportError, InvalidValue, nearest
from mortice._tensor.tensor import Tensor
from mortice.utils import pytree


@dataclasses.dataclass(frozen=True)
class DimHint:
    """How a size without a name is treated: ``Dim.AUTO``, ``Dim.DYNAMIC`` or ``Dim.STATIC``."""

    kind: str

    def __repr__(self) -> str:
        return f"Dim.{self.kind}"


@dataclasses.dataclass(frozen=True)
class Dim:
    """A size that may vary. Where one is given for several sizes, they are equal in every call.

    ``2 * dim + 1`` is the size that it says; its root must be a size of some input itself. Without a
    least size, 1 is allowed where the program does not treat it apart, else 2.
    """

    name: str
    min: int | None = None
    max: int | None = None
    scale: int = 1
    offset: int = 0

    #: Becomes symbolic, and may turn out to be fixed by the program.
    AUTO: ClassVar[DimHint] = DimHint("AUTO")
    #: Becomes symbolic; that the program fixes it is an error.
    DYNAMIC: ClassVar[DimHint] = DimHint("DYNAMIC")
    #: Is what the example has.
    STATIC: ClassVar[DimHint] = DimHint("STATIC")

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise InvalidValue(f"the name of a Dim is a Python identifier, not {self.name!r}")
        if self.min is not None and self.max is not None and self.min >= self.max:
            raise InvalidValue(
                f"Dim {self.name!r}: min {self.min} must be less than max {self.max}"
            )

    @property
    def root(self) -> Dim:
        return Dim(self.name, self.min, self.max)

    @property
    def is_derived(self) -> bool:
        return self.scale != 1 or self.offset != 0

    def __mul__(self, factor: int) -> Dim:
        if factor < 1:
            raise InvalidValue(f"a Dim can be multiplied by positive integers, not {factor}")
        return dataclasses.replace(self, scale=self.scale * factor, offset=self.offset * factor)

    __rmul__ = __mul__

    def __add__(self, number: int) -> Dim:
        return dataclasses.replace(self, offset=self.offset + number)

    __radd__ = __add__

    def __sub__(self, number: int) -> Dim:
        return self + -number

    def __repr__(self) -> str:
        text = self.name if self.scale == 1 else f"{self.scale}*{self.name}"
        if self.offset:
            text += f" {'+' if self.offset > 0 else '-'} {abs(self.offset)}"
        return text


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """Several Dims at once."""
    return tuple(Dim(name, min, max) for name in names)


Spec = Any  # Dim, DimHint, an int (the size itself) or None (static)


def by_leaf(names: Sequence[str], values: Sequence[Any], given: Any) -> list[dict[int, Spec]]:
    """For each leaf of the arguments, in order, what is said of its dims (position -> Spec).

    ``given`` follows the arguments: a dict by their names, or a sequence; within, the structure of
    each argument, and for a tensor a dict by dim or a sequence with an entry for each dim.
    """
    specs: Sequence[Any]
    if given is None:
        specs = [None] * len(values)
    elif isinstance(given, Mapping):
        for name in given:
            if name not in names:
                raise ExportError(
                    f"dynamic_shapes: there is no argument {name!r}.{nearest(str(name), names)} The arguments "
                    f"are: {', '.join(names)}"
                )
        specs = [given.get(name) for name in names]
    elif isinstance(given, Sequence):
        if len(given) != len(values):
            raise ExportError(
                f"dynamic_shapes has {len(given)} entries for {len(values)} arguments: {', '.join(names)}"
            )
        specs = given
    else:
        raise ExportError(
            f"dynamic_shapes must be a dict by argument or a sequence, not {type(given).__name__}"
        )
    return [
        found
        for name, value, spec in zip(names, values, specs)
        for found in _walk(name, value, spec)
    ]


def _walk(path: str, value: Any, spec: Any) -> Iterator[dict[int, Spec]]:
    if isinstance(value, Tensor):
        yield _of_tensor(path, value, spec)
        return
    structure = pytree.tree_structure(value)
    if structure.is_leaf():
        if spec is not None and not (isinstance(spec, DimHint) and spec.kind == "STATIC"):
            raise ExportError(
                f"dynamic_shapes: {path} is a {type(value).__name__}, which has no sizes; expected None"
            )
        yield {}
        return
    children = pytree.tree_flatten_with_path(value, is_leaf=lambda x: x is not value)[0]
    for i, ((key, *_), child) in enumerate(children):
        yield from _walk(f"{path}{key}", child, _child_spec(path, key, spec, i, len(children)))


def _child_spec(path: str, key: Any, spec: Any, position: int, count: int) -> Any:
    if spec is None:
        return None
    if isinstance(spec, Mapping):
        return spec.get(getattr(key, "key", getattr(key, "name", None)))
    if isinstance(spec, Sequence) and len(spec) == count:
        return spec[position]
    raise ExportError(
        f"dynamic_shapes: {path} has {count} items, and what is given for it does not fit: {spec!r}"
    )


def _of_tensor(path: str, tensor: Any, spec: Any) -> dict[int, Spec]:
    if spec is None:
        return {}
    if isinstance(spec, DimHint):
        return dict.fromkeys(range(tensor.ndim), spec)
    if isinstance(spec, Mapping):
        found = {d: s for d, s in spec.items() if s is not None}
    elif isinstance(spec, Sequence) and len(spec) == tensor.ndim:
        found = {d: s for d, s in enumerate(spec) if s is not None}
    else:
        raise ExportError(
            f"dynamic_shapes: {path} is a tensor of {tensor.ndim} dims; expected a dict by dim or a sequence "
            f"of {tensor.ndim} entries, not {spec!r}"
        )
    for d, one in found.items():
        if not isinstance(d, int) or not -tensor.ndim <= d < tensor.ndim:
            raise ExportError(f"dynamic_shapes: {path} has no dim {d!r}; it has {tensor.ndim} dims")
        if not isinstance(one, (Dim, DimHint, int)):
            raise ExportError(
                f"dynamic_shapes: dim {d} of {path} is {one!r}; expected a Dim, Dim.AUTO, Dim.DYNAMIC, "
                "Dim.STATIC, a size or None"
            )
        if isinstance(one, int) and one != tensor.shape[d]:
            raise ExportError(
                f"dynamic_shapes: dim {d} of {path} is given as {one}, but the example has {tensor.shape[d]}"
            )
    return {d % tensor.ndim: one for d, one in found.items()}
