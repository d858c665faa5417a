"""The functions and classes that files may name, beside those of the format itself.

As in PyTorch the list is one per process; unlike there, `safe_globals` restores what was in it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from mortice.errors import InvalidValue
from mortice.serialization.formats import is_blocked
from mortice.serialization.naming import names_of

_lock = threading.Lock()
# What was added, in order, under a key that makes adding twice harmless.
_added: dict[Any, Any] = {}
_targets: dict[str, tuple[Any]] | None = None


def add_safe_globals(safe_globals: Iterable[Any]) -> None:
    """Let files name these functions and classes. An item is one, or a pair (it, "full.name").

    Loading may then call them with any arguments that the file chooses: add only what is harmless
    with all of them. Modules that can run programs stay closed. Raises InvalidValue for an item
    that is neither.
    """
    global _targets
    items = list(safe_globals)
    for item in items:
        _entry(item)
    with _lock:
        for item in items:
            _added[_key(item)] = item
        _targets = None


def clear_safe_globals() -> None:
    """Forget all that `add_safe_globals` added."""
    global _targets
    with _lock:
        _added.clear()
        _targets = None


def get_safe_globals() -> list[Any]:
    """What `add_safe_globals` added and is in force, in order."""
    with _lock:
        return list(_added.values())


class safe_globals:
    """Context manager: `add_safe_globals` for a block, then whatever was safe before it."""

    def __init__(self, safe_globals: Iterable[Any]) -> None:
        self._items = list(safe_globals)
        self._new: list[Any] = []

    def __enter__(self) -> None:
        with _lock:
            self._new = [key for key in map(_key, self._items) if key not in _added]
        add_safe_globals(self._items)

    def __exit__(self, *exception: object) -> None:
        global _targets
        with _lock:
            for key in self._new:
                _added.pop(key, None)
            _targets = None


def targets() -> dict[str, tuple[Any]]:
    """Full name -> (object,), for every name by which a file may mean one."""
    global _targets
    with _lock:
        if _targets is None:
            built: dict[str, tuple[Any]] = {}
            for item in _added.values():
                target, names = _entry(item)
                for name in names:
                    built[name] = (target,)
            _targets = built
        return _targets


def is_safe_type(cls: type) -> bool:
    """Whether ``cls`` itself was marked safe."""
    return any(target[0] is cls for target in targets().values())


def paste_all(names: Iterable[str]) -> str:
    """One line that allows all of ``names``; ``X1`` and so on stand for what has to be found."""
    modules: list[str] = []
    items: list[str] = []
    for full in names:
        module, item = _written(full)
        if module and module not in modules:
            modules.append(module)
        items.append(item or f'(X{len(items) + 1}, "{full}")')
    imports = f"import {', '.join(['mortice.serialization', *modules])}"
    return f"{imports}; mortice.serialization.add_safe_globals([{', '.join(items)}])"


def _written(full: str) -> tuple[str, str]:
    """(module to import, how Python names it there); ("", "") for PyTorch's without a counterpart."""
    module, _, name = full.rpartition(".")
    for theirs, ours in (("torch.nn.modules.", "mortice.nn"), ("torch.optim.", "mortice.optim")):
        if full.startswith(theirs):
            return ours, f"{ours}.{name}"
    if full.startswith("torch."):
        return "", ""
    if not module or module == "builtins":
        return "", name
    return module, full


def paste_hint(full: str) -> str:
    """What to type to allow ``full``."""
    module, item = _written(full)
    if not item:
        return (
            f"If you trust the file, name what stands for it here: "
            f'mortice.serialization.add_safe_globals([(X, "{full}")]).'
        )
    first = f"import {module}; " if module else ""
    return f"If you trust the file: {first}mortice.serialization.add_safe_globals([{item}])."


def _key(item: Any) -> Any:
    return (id(item[0]), item[1]) if isinstance(item, tuple) else id(item)


def _entry(item: Any) -> tuple[Any, list[str]]:
    if isinstance(item, tuple):
        if len(item) != 2 or not isinstance(item[1], str):
            raise InvalidValue(
                f"a safe global is a function, a class, or a pair (it, 'full.name'), not {item!r}."
            )
        target, names = item[0], [item[1]]
    else:
        target = item
        names = names_of(item)
        if not names:
            raise InvalidValue(
                f"{item!r} has no __module__ and __qualname__. Give its name: (it, 'full.name')."
            )
    if not callable(target):
        raise InvalidValue(f"{target!r} is no function or class; only those can be safe globals.")
    for name in names:
        if is_blocked(name):
            raise InvalidValue(
                f"{name} cannot be a safe global: it can run programs. "
                "Wrap what you need of it in a function of your own."
            )
    return target, names
