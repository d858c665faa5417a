"""What stands where mortice has nothing of that name: it can be imported, and fails when used."""

from __future__ import annotations

import functools
import types
from typing import Any


class AbsentFeature(NotImplementedError):
    """A test uses something of PyTorch's that mortice has not; ``name`` says what."""

    def __init__(self, name: str) -> None:
        super().__init__(f"mortice has no {name}")
        self.name = name


#: While a test file is imported, what is absent may be called, as a decorator or for a default.
importing = [False]


class Absent:
    """False, without attributes of its own; calling it raises AbsentFeature."""

    def __init__(self, name: str) -> None:
        self.__dict__["name"] = self.__dict__["__name__"] = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__") and attribute.endswith("__"):
            raise AttributeError(attribute)
        return Absent(f"{self.name}.{attribute}")

    def __setattr__(self, attribute: str, value: Any) -> None:
        if not importing[0]:
            raise AbsentFeature(f"{self.name}.{attribute}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not importing[0]:
            raise AbsentFeature(self.name)
        if len(args) == 1 and not kwargs and isinstance(args[0], (types.FunctionType, type)):
            return _failing(args[0], self.name)
        return Absent(self.name)

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (object,)

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Any:
        if importing[0]:
            return iter(())
        raise AbsentFeature(self.name)

    def __enter__(self) -> Any:
        raise AbsentFeature(self.name)

    def __exit__(self, *exc: object) -> None:
        pass

    def __contains__(self, item: object) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<absent {self.name}>"


def _failing(decorated: Any, name: str) -> Any:
    if isinstance(decorated, type):
        return decorated

    @functools.wraps(decorated)
    def fails(*args: Any, **kwargs: Any) -> Any:
        raise AbsentFeature(name)

    return fails


class AbsentModule(types.ModuleType):
    """A module of which mortice has nothing."""

    __path__: list[str] = []
    __all__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")
