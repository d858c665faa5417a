"""Functions traced in place of operators: tables of them, and what such a function may do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mortice._base.errors import InvalidState, InvalidValue, MorticeError, nearest
from mortice._tensor.tensor import Tensor
from mortice.fx.node import map_aggregate

if TYPE_CHECKING:
    from collections.abc import Generator

    from mortice.fx.faking import Faking

#: How often a function may come back to its operator (on a part of its arguments, or in another
#: dtype) before it is taken to go on without end.
DEPTH = 16


def check_table(table: Any) -> None:
    """InvalidValue for a dict whose keys are no operator overloads, or whose values no functions."""
    if type(table) is not dict:
        return  # other mappings know their operators without being gone through
    overload = import_module("mortice.ops").OpOverload
    for op, function in table.items():  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(op, overload):
            raise not_an_overload(op)
        if not callable(function):  # pyright: ignore[reportUnknownArgumentType]
            raise InvalidValue(f"the decomposition of {op} is {function!r}; expected a function.")


def not_an_overload(key: Any) -> InvalidValue:
    """The error for another key in a table of decompositions."""
    return InvalidValue(
        "a table of decompositions has operator overloads as keys, such as "
        f"mortice.ops.aten.add.Tensor, and not {type(key).__name__} {key!r}.{_meant(key)}"
    )


def _meant(key: Any) -> str:
    """`` Did you mean mortice.ops.aten.tanh.default?`` for a packet or a name, else nothing."""
    overloads = getattr(key, "op_overloads", None)
    if overloads is not None:
        return f" It has the overloads {', '.join(map(str, overloads()))}."
    if not isinstance(key, str):
        return ""
    rows = import_module("mortice._generated.registry").ROWS
    name = key.removeprefix("mortice.ops.").removeprefix("aten.").removeprefix("aten::")
    plain = name.removesuffix(".default")
    found = nearest(plain, rows)
    if plain in rows:
        meant = plain
    elif found:
        meant = found.split("'")[1]
    else:
        return ""
    return f" Did you mean mortice.ops.aten.{meant if '.' in meant else f'{meant}.default'}?"


class Substitutes:
    """A table in use: which of its functions are running, one within the other."""

    def __init__(self, table: Mapping[Any, Callable[..., Any]], faking: Faking) -> None:
        check_table(table)
        self.table = table
        self.faking = faking
        self._running: list[Any] = []

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], mode: Any) -> Any:
        """What stands in place of an operator, traced in ``mode``; NotImplemented if nothing does."""
        function = self.table.get(func)
        if function is None:
            return NotImplemented
        with self._within(func, function), mode:
            result = function(*args, **kwargs)
        if result is not NotImplemented and _is_foreign(function):
            self._check(func, function, args, kwargs, result)
        return result

    @contextmanager
    def _within(self, func: Any, function: Any) -> Generator[None, None, None]:
        if self._running.count(func) >= DEPTH:
            raise InvalidState(
                f"the decomposition of {func}, {described(function)}, calls {func} itself, again and "
                "again. Call other operators, or return NotImplemented where it shall stay."
            )
        self._running.append(func)
        try:
            yield
        finally:
            self._running.pop()

    def _check(
        self, func: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        """InvalidValue for results of another number, shape or dtype than the operator's own."""
        if func._schema.mutated or {"nondeterministic_seeded", "dynamic_output_shape"} & set(
            func.tags
        ):
            return
        args, kwargs = map_aggregate((args, kwargs), self._shown)
        try:
            with self.faking.mode:
                expected = func(*args, **kwargs)
        except (MorticeError, NotImplementedError):
            return  # nothing infers it: that may be why it is taken apart
        wanted, found = _layouts(expected), _layouts(result)
        if wanted != found:
            raise InvalidValue(
                f"the decomposition of {func}, {described(function)}, gives {_told(found)}, and the "
                f"operator gives {_told(wanted)}."
            )

    def _shown(self, x: Any) -> Any:
        return self.faking.shown(x) if isinstance(x, Tensor) else x


def _is_foreign(function: Any) -> bool:
    """Whether a function is a user's: core's own are tested where they are."""
    return str(getattr(function, "__module__", "")).partition(".")[0] != "mortice"


def described(function: Any) -> str:
    """A function by name, file and line."""
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", None) or repr(function)
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"


def _layouts(result: Any) -> Any:
    if isinstance(result, (tuple, list)):
        return [_layouts(x) for x in result]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(result, Tensor):
        # Symbolic sizes by the values that they had: to compare them would be a guard.
        return tuple(str(getattr(n, "hint", n)) for n in result.shape), result.dtype
    return type(result).__name__  # pyright: ignore[reportUnknownArgumentType]


def _told(layout: Any) -> str:
    if isinstance(layout, str):
        return layout
    if isinstance(layout, list):
        return f"({', '.join(map(_told, layout))})"  # pyright: ignore[reportUnknownArgumentType]
    shape, dtype = layout
    return f"{str(dtype).removeprefix('mortice.')}[{', '.join(shape)}]"
