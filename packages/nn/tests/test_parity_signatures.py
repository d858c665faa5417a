"""Names, order and defaults of arguments against PyTorch's."""

from __future__ import annotations

import inspect

import pytest

from mortice import nn

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.parity

# Takes *args and **kwargs there; here the arguments are spelt out.
FREE_FORM = {"RNN", "LSTM", "GRU", "RNNBase"}
MODULES = sorted(
    name
    for name in nn.__all__
    if isinstance(getattr(nn, name), type)
    and hasattr(torch.nn, name)
    and issubclass(getattr(nn, name), nn.Module)
    and name not in FREE_FORM
)
# There a dispatcher on return_indices with *args and **kwargs stands in front.
BOOLEAN_DISPATCH = {f"{kind}max_pool{n}d" for kind in ("", "adaptive_") for n in (1, 2, 3)}
# Builtins have no signature to compare.
FUNCTIONS = sorted(
    name
    for name in nn.functional.__all__
    if inspect.isfunction(getattr(torch.nn.functional, name, None)) and name not in BOOLEAN_DISPATCH
)
INITS = sorted(name for name in dir(nn.init) if name.endswith("_") and not name.startswith("_"))
UTILS = [name for name in nn.utils.__all__ if callable(getattr(nn.utils, name))]


def arguments(function: object) -> list[tuple[str, object]]:
    result = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in ("self", "args", "kwargs"):
            continue
        default = parameter.default
        result.append((parameter.name, repr(default) if default is not inspect._empty else None))
    return result


def check(ours: object, theirs: object) -> None:
    expected = arguments(theirs)
    # functions as defaults print with their address
    assert [(n, d if d is None or "0x" not in d else "...") for n, d in arguments(ours)] == [
        (n, d if d is None or "0x" not in d else "...") for n, d in expected
    ]


@pytest.mark.parametrize("name", MODULES)
def test_constructor(name: str) -> None:
    check(getattr(nn, name).__init__, getattr(torch.nn, name).__init__)


@pytest.mark.parametrize("name", MODULES)
def test_forward(name: str) -> None:
    if getattr(torch.nn, name).forward is torch.nn.Module.forward:
        return
    check(getattr(nn, name).forward, getattr(torch.nn, name).forward)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name: str) -> None:
    check(getattr(nn.functional, name), getattr(torch.nn.functional, name))


@pytest.mark.parametrize("name", INITS)
def test_init(name: str) -> None:
    check(getattr(nn.init, name), getattr(torch.nn.init, name))


@pytest.mark.parametrize("name", UTILS)
def test_utils(name: str) -> None:
    check(getattr(nn.utils, name), getattr(torch.nn.utils, name))


METHODS = sorted(
    name
    for name in vars(torch.nn.Module)
    if inspect.isfunction(getattr(torch.nn.Module, name))
    and hasattr(nn.Module, name)
    and name != "forward"  # each subclass has its own
)


@pytest.mark.parametrize("name", METHODS)
def test_module_method(name: str) -> None:
    check(getattr(nn.Module, name), getattr(torch.nn.Module, name))
