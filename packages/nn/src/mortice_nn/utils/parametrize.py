"""Parametrizations: a parameter computed from others each time it is read."""

from __future__ import annotations

import copy
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import mortice
from mortice import Tensor
from mortice.errors import ArgumentError, InvalidState, InvalidValue
from mortice_nn.modules.container import ModuleDict, ModuleList
from mortice_nn.modules.module import Module
from mortice_nn.parameter import Parameter

_caching = 0
_cache: dict[tuple[int, str], Any] = {}


@contextmanager
def cached() -> Generator[None, None, None]:
    """Within it each parametrized tensor is computed once and then kept."""
    global _caching
    _caching += 1
    try:
        yield
    finally:
        _caching -= 1
        if not _caching:
            _cache.clear()


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, and what they compute it from.

    ``original``, or ``original0``, ``original1``, ... where the first parametrization takes
    several tensors (its ``right_inverse`` returned a sequence).
    """

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if not modules:
            raise InvalidValue("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        with mortice.no_grad():
            inner = _inverse(list(self), original)
        self.is_tensor = isinstance(inner, Tensor)
        self.ntensors = 1 if self.is_tensor else len(inner)
        if self.is_tensor:
            if isinstance(original, Parameter):
                # the same object, which optimizers may already hold
                original.data = inner
                self.register_parameter("original", original)
            else:
                self.register_buffer("original", inner)
        else:
            for i, part in enumerate(inner):
                name = f"original{i}"
                if isinstance(original, Parameter):
                    self.register_parameter(name, Parameter(part, original.requires_grad))
                else:
                    self.register_buffer(name, part)
        if not unsafe:
            _check_result(self(), original)

    def _originals(self) -> list[Tensor]:
        if self.is_tensor:
            return [self.original]
        return [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def forward(self) -> Tensor:
        """The tensor."""
        first, *rest = self
        x = first(*self._originals())
        for module in rest:
            x = module(x)
        return x

    def right_inverse(self, value: Tensor) -> None:
        """Set the originals so that the tensor becomes ``value``."""
        with mortice.no_grad():
            inner = _inverse(list(self), value)
            parts = [inner] if self.is_tensor else list(inner)
            if len(parts) != self.ntensors:
                raise InvalidValue(
                    f"'right_inverse' must return {self.ntensors} tensors, found {len(parts)}"
                )
            for original, part in zip(self._originals(), parts, strict=True):
                original.data = part.to(original.dtype)


def _inverse(modules: list[Any], value: Any) -> Any:
    for module in reversed(modules):
        inverse = getattr(module, "right_inverse", None)
        if inverse is None:
            continue  # the identity
        value = inverse(value)
        if not isinstance(value, (Tensor, Sequence)):
            raise InvalidValue(
                f"'right_inverse' of {type(module).__name__} must return a tensor or a sequence "
                f"of tensors, found {type(value).__name__}"
            )
    return value


def _check_result(made: Any, original: Tensor) -> None:
    if not isinstance(made, Tensor):
        raise InvalidValue(f"a parametrization must return a tensor. Got {type(made).__name__}.")
    if made.dtype != original.dtype or made.shape != original.shape:
        raise InvalidValue(
            f"a parametrization must keep dtype and shape, unless unsafe=True: it made "
            f"{tuple(made.shape)} of {made.dtype} from {tuple(original.shape)} of {original.dtype}"
        )


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Make ``module.<tensor_name>`` be ``parametrization(original)``; returns ``module``.

    The class of ``module`` becomes a new subclass of it. Assigning to the tensor needs the
    parametrization's ``right_inverse``. Several are applied in the order of registration.
    ``unsafe`` skips the check that dtype and shape stay.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        chain: Any = module.parametrizations[tensor_name]
        before = getattr(module, tensor_name)
        if not unsafe:
            _check_result(parametrization(before), before)
        chain.append(parametrization)
        chain.unsafe |= unsafe
        return module
    original = module._parameters.get(tensor_name)
    if original is None:
        original = module._buffers.get(tensor_name)
    if original is None:
        raise InvalidValue(
            f"module {type(module).__name__} does not have a parameter, a buffer, or a "
            f"parametrized element with name {tensor_name!r}"
        )
    chain = ParametrizationList([parametrization], original, unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        _make_own_class(module)
        module.parametrizations = ModuleDict()
    setattr(type(module), tensor_name, _as_property(tensor_name))
    module.parametrizations[tensor_name] = chain
    return module


def _make_own_class(module: Module) -> None:
    """Properties live on classes, so this one object gets a class of its own."""
    base = type(module)

    def deepcopy(self: Any, memo: dict[int, Any]) -> Any:
        found = memo.get(id(self))
        if found is not None:
            return found
        twin = object.__new__(base)
        memo[id(self)] = twin
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        _make_own_class(twin)
        for name in twin.parametrizations:
            setattr(type(twin), name, _as_property(name))
        return twin

    def reduce(self: Any, protocol: Any) -> Any:
        raise InvalidState(
            "a parametrized module cannot be pickled, because its class is made at run time; save "
            "its state_dict"
        )

    module.__class__ = type(
        f"Parametrized{base.__name__}",
        (base,),
        {"__deepcopy__": deepcopy, "__reduce_ex__": reduce, "__module__": base.__module__},
    )


def _as_property(name: str) -> property:
    def read(self: Any) -> Tensor:
        if not _caching:
            return self.parametrizations[name]()
        key = (id(self), name)
        if key not in _cache:
            _cache[key] = self.parametrizations[name]()
        return _cache[key]

    def write(self: Any, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    return property(read, write)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether ``module`` has parametrizations, or one of ``tensor_name``."""
    found = module._modules.get("parametrizations")
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """Make ``module.<tensor_name>`` a plain tensor again; returns ``module``.

    It keeps its value if ``leave_parametrized``, else it gets that of ``original``.
    """
    if not is_parametrized(module, tensor_name):
        raise InvalidValue(f"Module {type(module).__name__} does not have a parametrization on "
                           f"{tensor_name}")  # fmt: skip
    chain: Any = module.parametrizations[tensor_name]
    if chain.is_tensor:
        original = chain.original
        if leave_parametrized:
            with mortice.no_grad():
                original.data = getattr(module, tensor_name).detach().clone()
    elif leave_parametrized:
        value = getattr(module, tensor_name).detach()
        trained = chain.original0.requires_grad
        original = Parameter(value, trained) if isinstance(chain.original0, Parameter) else value
    else:
        raise InvalidValue(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is "
            "parametrized in terms of a sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if isinstance(original, Parameter):
        module.register_parameter(tensor_name, original)
    else:
        module.register_buffer(tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class that ``module`` had before it was parametrized."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def named_tensor(module: Module, name: str) -> Tensor:
    """``module.<name>``, which must be a tensor."""
    found = getattr(module, name, None)
    if not isinstance(found, Tensor):
        raise ArgumentError(f"Module {type(module).__name__} has no parameter or buffer {name!r}")
    return found
