"""Compiled Modules: the same Module, seen through a class whose calls are compiled."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any

_CLASSES: weakref.WeakKeyDictionary[type, type] = weakref.WeakKeyDictionary()


class CompiledCall:
    """What is mixed into the class of a compiled Module.

    The Module given and the compiled one are two objects with one ``__dict__``: parameters,
    buffers, children, hooks, mode and every attribute are the same, whichever is asked.
    """

    __slots__ = ()
    original: Any
    compiled: Any

    def __init_subclass__(cls, **keywords: Any) -> None:
        # Nothing of the user's: a class that keeps a list of its subclasses need not see this one.
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.compiled(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.compiled(*args, **kwargs)

    def __mortice_compile__(self, wrap: Callable[..., Any]) -> Any:
        return compiled_module(self.original, wrap)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        settings = self.compiled.settings
        return compiled_module(
            copy.deepcopy(self.original, memo), lambda fn: type(self.compiled)(fn, settings)
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickled as the Module itself: compiled code is made anew where it is loaded."""
        return _itself, (self.original,)


def _itself(module: Any) -> Any:
    return module


def compiled_module(module: Any, wrap: Callable[..., Any]) -> Any:
    """``module`` as a Module whose calls, hooks included, go through ``wrap(call)``."""
    cls: Any = _CLASSES.get(type(module))
    if cls is None:
        cls = _CLASSES[type(module)] = _made(type(module))
    made = object.__new__(cls)
    object.__setattr__(made, "__dict__", module.__dict__)
    cls.original.__set__(made, module)
    cls.compiled.__set__(made, wrap(module.__call__))
    return made


def _made(base: type) -> type:
    body = {
        "__slots__": ("original", "compiled"),
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
    }
    return type(base)(base.__name__, (CompiledCall, base), body)
