"""What a call of an exported program must be like, as data, checked before it runs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from mortice._base.errors import InputGuardError
from mortice._tensor.tensor import Tensor
from mortice._types.symbolic_env import Guard


@dataclasses.dataclass(frozen=True)
class TensorGuard:
    """An input's dtype, device type and sizes: numbers, or expressions over the symbols."""

    path: str
    dtype: Any
    device: str
    sizes: tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class ValueGuard:
    """An input that is no tensor keeps the value of the example."""

    path: str
    value: Any


@dataclasses.dataclass(frozen=True, eq=False)
class InputGuards:
    """Guards of each input in order; ranges of the symbols; what must hold between them.

    Calling it with the inputs raises InputGuardError at the first that fails.
    """

    inputs: tuple[TensorGuard | ValueGuard, ...]
    ranges: Mapping[str, tuple[float, float]]
    relations: tuple[Guard, ...]

    __name__ = "check_inputs"

    def __call__(self, *values: Any) -> None:
        bound: dict[str, int] = {}
        where: dict[str, str] = {}
        pending: list[tuple[str, Any, int]] = []
        for guard, value in zip(self.inputs, values):
            if isinstance(guard, ValueGuard):
                _check_value(guard, value)
                continue
            _check_tensor(guard, value)
            for d, (wanted, size) in enumerate(zip(guard.sizes, value.shape)):
                pending.append((f"{guard.path}.size()[{d}]", wanted, size))
                name = getattr(wanted, "symbol", None)
                if name is not None and name not in bound:
                    bound[name] = size
                    where[name] = pending[-1][0]
        for place, wanted, size in pending:
            _check_size(place, wanted, size, bound, where)
        self._check_ranges(bound, where)
        for relation in self.relations:
            if relation.symbols <= bound.keys() and not relation.holds(bound):
                raise InputGuardError(
                    f"Guard failed: {_in_places(relation.source(), where)}, with "
                    f"{', '.join(f'{where[n]} = {bound[n]}' for n in sorted(relation.symbols))}. The program "
                    f"was traced so at {relation.where or 'an unknown line'}."
                )

    def _check_ranges(self, bound: Mapping[str, int], where: Mapping[str, str]) -> None:
        for name, size in bound.items():
            low, high = self.ranges.get(name, (0, float("inf")))
            if not low <= size <= high:
                bounds = f">= {low:g}" if size < low else f"<= {high:g}"
                raise InputGuardError(
                    f"Guard failed: {where[name]} {bounds}, but it is {size}. Export with another range for "
                    "this Dim, or with an example of such a size."
                )


def _check_value(guard: ValueGuard, value: Any) -> None:
    if type(value) is not type(guard.value) or (value is not guard.value and value != guard.value):
        raise InputGuardError(
            f"Guard failed: {guard.path} == {guard.value!r}, but it is {value!r}. The program was exported for "
            "this value; export again for another."
        )


def _check_tensor(guard: TensorGuard, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise InputGuardError(
            f"Guard failed: {guard.path} must be a Tensor, but it is a {type(value).__name__}."
        )
    if value.dtype is not guard.dtype:
        raise InputGuardError(
            f"Guard failed: {guard.path}.dtype == {guard.dtype!r}, but it is {value.dtype!r}. Convert it, or "
            "export with an example of this dtype."
        )
    if value.device.type != guard.device:
        raise InputGuardError(
            f"Guard failed: {guard.path} must be on device {guard.device}, but it is on {value.device}."
        )
    if value.ndim != len(guard.sizes):
        raise InputGuardError(
            f"Guard failed: {guard.path} must have {len(guard.sizes)} dims, but it has {value.ndim}."
        )


def _check_size(
    place: str, wanted: Any, size: int, bound: Mapping[str, int], where: Mapping[str, str]
) -> None:
    expected: Any = wanted if isinstance(wanted, int) else wanted.evaluate(bound)
    if expected == size:
        return
    if isinstance(wanted, int):
        raise InputGuardError(
            f"Guard failed: {place} == {wanted}, but it is {size}. If this size may vary, say so with "
            "dynamic_shapes when exporting."
        )
    raise InputGuardError(
        f"Guard failed: {place} == {_in_places(wanted.source(), where)} ({expected}), but it is {size}."
    )


def _in_places(source: str, where: Mapping[str, str]) -> str:
    """An expression with symbols replaced by the sizes that they are."""
    return re.sub(r"\b[a-z]\d+\b", lambda m: where.get(m.group(), m.group()), source)
