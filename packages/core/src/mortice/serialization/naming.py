"""The names that checkpoints use for things of mortice, and back.

A file names PyTorch's modules, so that either library reads it. What lives in ``mortice_nn`` under
the module path that PyTorch uses is written and found under PyTorch's name.
"""

from __future__ import annotations

from typing import Any

# our module prefix -> PyTorch's
_PREFIXES = (
    ("mortice_nn.optim.", "torch.optim."),
    ("mortice_nn.utils.data.", "torch.utils.data."),
    ("mortice.nn.", "torch.nn."),
    ("mortice.optim.", "torch.optim."),
    ("mortice_nn.", "torch.nn."),
)


def names_of(item: Any) -> list[str]:
    """Every full name by which a file may mean the function or class ``item``."""
    module = getattr(item, "__module__", None)
    name = getattr(item, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return []
    names = [f"{module}.{name}"]
    foreign = torch_module(module)
    if foreign is not None:
        names.append(f"{foreign}.{name}")
    return names


def torch_module(module: str) -> str | None:
    """PyTorch's name for a module of ours, or None where there is none."""
    dotted = module + "."
    for ours, theirs in _PREFIXES:
        if dotted.startswith(ours):
            return (theirs + dotted[len(ours) :]).rstrip(".")
    return None


def our_module(module: str) -> str:
    """Our name for a module of PyTorch's, where we have such a module; else as it is."""
    import importlib.util

    for ours, theirs in _PREFIXES:
        dotted = module + "."
        if not ours.startswith("mortice_nn") or not dotted.startswith(theirs):
            continue
        name = (ours + dotted[len(theirs) :]).rstrip(".")
        try:
            if importlib.util.find_spec(name) is not None:
                return name
        except ModuleNotFoundError:  # of a parent: mortice-nn is not installed
            pass
    return module
