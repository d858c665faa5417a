"""Sequential, ModuleList, ModuleDict, ParameterList and ParameterDict."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mortice import Tensor
from mortice.errors import ArgumentError, InvalidValue
from mortice_nn.modules.module import Module, layout_repr
from mortice_nn.parameter import Parameter


def _position(index: Any, length: int) -> int:
    """``index`` from the front, as lists count."""
    i = operator.index(index)
    if not -length <= i < length:
        raise IndexError(f"index {i} is out of range for {length} entries")
    return i % length


class _Numbered(Module):
    """Children named "0", "1", ...: what Sequential and ModuleList share."""

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())  # pyright: ignore[reportReturnType]

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def _key(self, index: Any) -> str:
        return list(self._modules)[_position(index, len(self._modules))]

    def _renumber(self, modules: Iterable[Any]) -> None:
        modules = list(modules)
        self._modules.clear()
        self._modules.update((str(i), module) for i, module in enumerate(modules))

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._key(index), module)

    def __delitem__(self, index: int | slice) -> None:
        if isinstance(index, slice):
            for key in list(self._modules)[index]:
                delattr(self, key)
        else:
            delattr(self, self._key(index))
        self._renumber(self._modules.values())

    def append(self, module: Module) -> Any:
        """Add ``module`` at the end; returns self."""
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Add ``module`` before position ``index``."""
        if not isinstance(module, Module):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"expected a Module, found {type(module).__name__}")
        modules = list(self._modules.values())
        modules.insert(index, module)
        self._renumber(modules)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Add every one of ``modules``; returns self."""
        for module in list(modules):
            self.append(module)
        return self

    def pop(self, key: int | slice) -> Any:
        """Take out and return the module at ``key``."""
        module = self[key]
        del self[key]
        return module

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError  # each subclass knows what a slice of it is


class Sequential(_Numbered):
    """Calls its modules one after the other, each with the last one's output.

    Takes the modules, or one OrderedDict of names to modules.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], Mapping):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(OrderedDict(list(self._modules.items())[index]))
        return self._modules[self._key(index)]

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)  # pyright: ignore[reportOptionalCall]
        return input

    def __add__(self, other: Any) -> Sequential:
        if not isinstance(other, Sequential):
            raise InvalidValue(f"add expects another Sequential, found {type(other).__name__}")
        return Sequential(*self, *other)

    def __iadd__(self, other: Any) -> Sequential:
        if not isinstance(other, Sequential):
            raise InvalidValue(f"add expects another Sequential, found {type(other).__name__}")
        return self.extend(other)

    def __mul__(self, times: int) -> Sequential:
        _check_times(times)
        return Sequential(*(module for _ in range(times) for module in self))

    __rmul__ = __mul__

    def __imul__(self, times: int) -> Sequential:
        _check_times(times)
        modules = list(self)
        for _ in range(times - 1):
            self.extend(modules)
        return self


def _check_times(times: Any) -> None:
    if not isinstance(times, int):
        raise ArgumentError(f"Sequential * {type(times).__name__}: expected an int")
    if times <= 0:
        raise InvalidValue(f"Sequential * {times}: the factor must be positive")


class ModuleList(_Numbered):
    """A list of modules that the owner's ``parameters()`` and ``state_dict()`` see."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self._modules.values())[index])  # pyright: ignore
        return self._modules[self._key(index)]

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def __repr__(self) -> str:
        """Runs of equal entries are shown once, with their count."""
        runs: list[list[Any]] = []  # [first, last, text]
        for i, module in enumerate(self):
            text = repr(module)
            if runs and runs[-1][2] == text:
                runs[-1][1] = i
            else:
                runs.append([i, i, text])
        lines: list[str] = []
        for first, last, text in runs:
            head = f"({first})" if first == last else f"({first}-{last})"
            count = "" if first == last else f"{last - first + 1} x "
            lines.append(f"{head}: {count}" + text.replace("\n", "\n  "))
        return layout_repr(self._get_name(), [], lines)


class ModuleDict(Module):
    """A dict of modules that the owner's ``parameters()`` and ``state_dict()`` see."""

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]  # pyright: ignore[reportReturnType]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Take out everything."""
        self._modules.clear()

    def pop(self, key: str) -> Module:
        """Take out and return the module called ``key``."""
        module = self[key]
        del self[key]
        return module

    def keys(self) -> Any:
        """The names."""
        return self._modules.keys()

    def items(self) -> Any:
        """Names and modules."""
        return self._modules.items()

    def values(self) -> Any:
        """The modules."""
        return self._modules.values()

    def update(self, modules: Any) -> None:
        """Add, or replace by, what a mapping or an iterable of pairs holds."""
        for key, module in _pairs(modules, "ModuleDict.update"):
            self[key] = module


def _pairs(source: Any, what: str) -> list[tuple[str, Any]]:
    if isinstance(source, (Mapping, ModuleDict, ParameterDict)):
        return list(source.items())
    if not isinstance(source, Iterable):
        raise ArgumentError(
            f"{what} should be called with a mapping or an iterable of key/value pairs, found "
            f"{type(source).__name__}"
        )
    pairs: list[Any] = list(source)  # pyright: ignore[reportUnknownArgumentType]
    for i, pair in enumerate(pairs):
        if not isinstance(pair, Iterable) or len(tuple(pair)) != 2:  # pyright: ignore
            raise InvalidValue(f"{what}: element {i} is not a (key, value) pair")
    return [tuple(pair) for pair in pairs]  # pyright: ignore[reportReturnType]


def _as_parameter(value: Any) -> Any:
    """Tensors become parameters; anything else is kept as it is."""
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        return Parameter(value)
    return value


def _describe(value: Any) -> str:
    if not isinstance(value, Tensor):
        return f"Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    size = "x".join(str(n) for n in value.shape)
    return f"{kind} containing: [{value.dtype} of size {size}]"


class ParameterList(Module):
    """A list whose tensors are parameters of the owner; other values are kept as they are."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)([self[i] for i in range(*index.indices(len(self)))])
        return getattr(self, str(_position(index, len(self))))

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, str(_position(index, len(self))), _as_parameter(value))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __iadd__(self, values: Iterable[Any]) -> ParameterList:
        return self.extend(values)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def append(self, value: Any) -> ParameterList:
        """Add ``value`` at the end; returns self."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add every one of ``values``; returns self."""
        if isinstance(values, Tensor) or not isinstance(values, Iterable):  # pyright: ignore
            raise ArgumentError(
                f"ParameterList.extend should be called with an iterable, but got "
                f"{type(values).__name__}"
            )
        for value in values:
            self.append(value)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("ParameterList should not be called; it holds values")

    def __repr__(self) -> str:
        return _container_repr(self._get_name(), list(enumerate(self)))


class ParameterDict(Module):
    """A dict whose tensors are parameters of the owner; other values are kept as they are."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(
                f"index given to ParameterDict cannot be used as a key as it is not a string "
                f"({type(key).__name__})"
            )
        self._keys[key] = None
        setattr(self, key, _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        if key not in self._keys:
            raise KeyError(key)
        del self._keys[key]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __or__(self, other: Any) -> ParameterDict:
        return ParameterDict({**dict(self.items()), **dict(_pairs(other, "ParameterDict |"))})

    def __ior__(self, other: Any) -> ParameterDict:
        self.update(other)
        return self

    def copy(self) -> ParameterDict:
        """A new ParameterDict with the same values."""
        return ParameterDict(OrderedDict(self.items()))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of ``key``, set to ``default`` if there is none."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Take out everything."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Any:
        """Take out and return the value of ``key``."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Take out and return the last pair."""
        key = next(reversed(self))
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of ``key``, or ``default``."""
        return self[key] if key in self else default  # noqa: SIM401

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A new ParameterDict with ``default`` for every key."""
        return ParameterDict((key, default) for key in keys)

    def keys(self) -> Any:
        """The names."""
        return self._keys.keys()

    def items(self) -> list[tuple[str, Any]]:
        """Names and values."""
        return [(key, self[key]) for key in self._keys]

    def values(self) -> list[Any]:
        """The values."""
        return [self[key] for key in self._keys]

    def update(self, parameters: Any) -> None:
        """Add, or replace by, what a mapping or an iterable of pairs holds."""
        for key, value in _pairs(parameters, "ParameterDict.update"):
            self[key] = value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("ParameterDict should not be called; it holds values")

    def __repr__(self) -> str:
        return _container_repr(self._get_name(), self.items())


def _container_repr(name: str, items: list[tuple[Any, Any]]) -> str:
    lines = [f"({key}): {_describe(value)}" for key, value in items]
    return name + "(" + "\n".join("  " + line for line in lines) + ")"
