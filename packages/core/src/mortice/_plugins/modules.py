"""``mortice.<name>`` as a plug-in's module: the group ``mortice.modules``.

A finder on ``sys.meta_path`` maps ``mortice.nn`` and all below it to ``mortice_nn``: one module
object under both names, so that no class exists twice. It stands first because Python's own
finder, given ``mortice.nn.functional``, would look in the package's directory and make a second
copy. What core or a parent package itself has always wins over an entry.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

ROOT = "mortice"

# alias -> the module it stands for, as far as they were imported
_targets: dict[str, str] = {}


def install() -> None:
    """Put the finder first on sys.meta_path, once."""
    if not any(isinstance(finder, ModuleFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, ModuleFinder())


class ModuleFinder:
    """Finds plug-ins' modules under ``mortice.``; returns None for everything else at once."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("mortice."):
            return None
        parent, _, child = fullname.rpartition(".")
        if parent in _targets:
            return _spec_of_alias(fullname, f"{_targets[parent]}.{child}")
        if "._" in fullname:  # core's own, and no entry may have such a name
            return None
        return _own(fullname, path) or _spec_of_entry(fullname)


def _own(fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """The spec of a module that is really there, from whichever finder knows it."""
    for finder in sys.meta_path:
        if isinstance(finder, ModuleFinder):
            continue
        try:
            spec = finder.find_spec(fullname, path, None)
        except KeyError:
            # A directory of stubs looks like a namespace package, and importlib wants the parent of
            # one to be imported; core_owns asks without importing it.
            continue
        # A directory that holds only .pyi stubs looks like a namespace package, with no loader.
        if spec is not None and spec.loader is not None and spec.origin is not None:
            return spec
    return None


class AliasLoader:
    """Executes an alias by importing its target, and putting that very object in its place."""

    def __init__(self, target: str) -> None:
        self.target = target

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        import importlib

        # importlib hands out what stands in sys.modules after this, not the module it gave us
        sys.modules[module.__name__] = importlib.import_module(self.target)

    def __getattr__(self, name: str) -> Any:
        """get_code, get_source and the like, for ``python -m`` and inspection: the target's."""
        if name in ("get_code", "get_source", "is_package", "get_filename"):
            return lambda _fullname: getattr(_loader_of(self.target), name)(self.target)
        raise AttributeError(name)


class NamespaceLoader:
    """Makes the parent package of a nested entry (``a`` for ``a.b``) where nobody provides one."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__.partition(".")[2]

        def __getattr__(attribute: str) -> Any:
            return get(f"{name}.{attribute}")

        module.__dict__["__getattr__"] = __getattr__
        module.__doc__ = f"Holds the plug-in modules under mortice.{name}."


def _new_spec(fullname: str, loader: Any, origin: str | None = None) -> ModuleSpec:
    # importlib.abc.Loader, which type checkers want here, is too slow to import for a base class
    return ModuleSpec(fullname, loader, origin=origin, is_package=True)


def _loader_of(module: str) -> Any:
    import importlib.util

    spec = importlib.util.find_spec(module)
    assert spec is not None
    return spec.loader


def _spec_of_alias(fullname: str, target: str) -> ModuleSpec | None:
    import importlib.util

    original = importlib.util.find_spec(target)
    if original is None:
        return None
    _targets[fullname] = target
    spec = _new_spec(fullname, AliasLoader(target), origin=original.origin)
    spec.submodule_search_locations = original.submodule_search_locations
    return spec


def _spec_of_entry(fullname: str) -> ModuleSpec | None:
    """A spec for a name that an entry provides, or that is the parent of one."""
    from mortice._base import absent

    from . import resolution
    from .groups import KINDS, not_installed_hint

    group = KINDS["module"]
    name = fullname[len(ROOT) + 1 :]
    found, chosen, statuses = resolution.resolve(group, name)
    if found:
        if chosen is None:
            raise _import_error(fullname, resolution.error_for(found[0], statuses[found[0]]))
        return _new_spec(fullname, EntryLoader(name))
    if "." not in name and device_module_exists(name):
        return _new_spec(fullname, DeviceModuleLoader(name))
    if _is_parent(name):
        return _new_spec(fullname, NamespaceLoader())
    hint = not_installed_hint("module", name) or absent.hint(name)
    if hint:
        raise ModuleNotFoundError(f"No module named {fullname!r}.{hint}", name=fullname)
    return None


class EntryLoader:
    """Executes ``mortice.<name>`` by loading its entry."""

    def __init__(self, name: str) -> None:
        self.name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = _load(self.name)


#: ``mortice.<device type>``, made by core where no entry brings a module. Set by ``_tensor.devices``.
device_module_exists: Callable[[str], bool] = lambda name: False  # noqa: E731
make_device_module: Callable[[str], Any] = lambda name: None  # noqa: E731


class DeviceModuleLoader:
    """Makes ``mortice.<device type>``."""

    def __init__(self, device_type: str) -> None:
        self.device_type = device_type

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return make_device_module(self.device_type)

    def exec_module(self, module: ModuleType) -> None:
        pass


def _load(name: str) -> ModuleType:
    """Load the module entry ``name``, and note what its sub-modules are called."""
    from mortice._base.errors import PluginError

    from . import manager

    fullname = f"{ROOT}.{name}"
    try:
        module: ModuleType = manager.load("mortice.modules", name)
    except PluginError as error:
        raise _import_error(fullname, error) from error
    _targets[fullname] = module.__name__
    return module


def _import_error(fullname: str, error: Any) -> ImportError:
    """The plug-in's error as an ImportError too, which ``import`` is expected to raise."""
    from mortice._base.errors import PluginImportError

    result = PluginImportError(str(error))
    result.name = fullname
    result.state = error.state
    result.__cause__ = error.__cause__ or error
    return result


def _is_parent(name: str) -> bool:
    from . import catalog
    from .groups import KINDS

    return any(entry.name.startswith(f"{name}.") for entry in catalog.entries(KINDS["module"]))


# -- attributes ---------------------------------------------------------------------------------


def get(name: str) -> ModuleType:
    """``mortice.<name>``, for the ``__getattr__`` of mortice and of its sub-packages.

    Raises UnknownName (an AttributeError) if nobody provides it, and the plug-in's own error if
    somebody does but it cannot be used.
    """
    import importlib

    from mortice._base import absent
    from mortice._base.errors import UnknownName

    fullname = f"{ROOT}.{name}"
    child = name.rpartition(".")[2]
    if not child.startswith("_"):
        try:
            return importlib.import_module(fullname)
        except ModuleNotFoundError as error:
            if error.name != fullname:
                raise
            told = str(error)
    else:
        told = ""
    parent = fullname.rpartition(".")[0]
    hint = told.partition("'.")[2] or absent.hint(name) or _nearest(parent, child)
    raise UnknownName(f"module {parent!r} has no attribute {child!r}.{hint}", name=child)


def _nearest(parent: str, child: str) -> str:
    from mortice._base.errors import nearest

    from . import catalog
    from .groups import KINDS

    names = [entry.name for entry in catalog.entries(KINDS["module"])]
    module = sys.modules.get(parent)
    public = [one for one in dir(module) if not one.startswith("_")] if module else []
    if child.startswith("_"):
        return ""
    return nearest(child, [*names, *public])


def names() -> list[str]:
    """The top-level names that entries provide, for ``dir(mortice)``; reads metadata."""
    from . import catalog
    from .groups import KINDS

    return sorted({e.name.partition(".")[0] for e in catalog.entries(KINDS["module"])})
