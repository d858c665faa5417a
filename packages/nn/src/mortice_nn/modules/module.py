"""Module, the base class of everything with parameters."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import mortice
from mortice import Tensor
from mortice.errors import ArgumentError, InvalidState, InvalidValue, UnknownName
from mortice_nn.modules import hooks
from mortice_nn.modules.convert import ModuleConvert
from mortice_nn.modules.hooks import (
    GLOBAL,
    RemovableHandle,
    Table,
    call_with_hooks,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
)
from mortice_nn.modules.state import ModuleState
from mortice_nn.parameter import Buffer, Parameter

__all__ = [
    "Module",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
]

Self = TypeVar("Self", bound="Module")

# Made anew in every instance; a module unpickled from an older file gets those it lacks.
HOOK_TABLES = (
    "_backward_pre_hooks",
    "_backward_hooks",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)


class Module(ModuleState, ModuleConvert):
    """A callable with parameters, buffers and child modules, found by assigning them to it.

    Subclasses call ``super().__init__()`` before assigning, and define ``forward``.
    """

    dump_patches: bool = False
    _compiled_call: Any = None
    training: bool
    _forward_hooks: Table
    _forward_hooks_with_kwargs: dict[int, bool]
    _forward_hooks_always_called: dict[int, bool]
    _forward_pre_hooks: Table
    _forward_pre_hooks_with_kwargs: dict[int, bool]
    _backward_hooks: Table
    _backward_pre_hooks: Table

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args or kwargs:
            given = ", ".join([*map(repr, args), *kwargs])
            raise ArgumentError(
                f"Module.__init__ takes no arguments, but {type(self).__name__} passed {given}; "
                "a misspelt keyword of the module ends up here"
            )
        # object.__setattr__ by way of __dict__: Module.__setattr__ needs these very tables.
        values = self.__dict__
        values["training"] = True
        values["_parameters"] = {}
        values["_buffers"] = {}
        values["_non_persistent_buffers_set"] = set()
        values["_modules"] = {}
        for table in HOOK_TABLES:
            values[table] = OrderedDict()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The computation; every subclass defines it. Call the module, not this, to run hooks."""
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._compiled_call is not None:
            return self._compiled_call(*args, **kwargs)
        if (
            self._forward_hooks
            or self._forward_pre_hooks
            or self._backward_hooks
            or self._backward_pre_hooks
            or GLOBAL
        ):
            return call_with_hooks(self, args, kwargs)
        return self.forward(*args, **kwargs)

    def _uncompiled(self, *args: Any, **kwargs: Any) -> Any:
        """What ``__call__`` is without ``compile()``: the hooks and forward."""
        # As in __call__, which calls nothing more for the sake of those that are not compiled.
        if (
            self._forward_hooks
            or self._forward_pre_hooks
            or self._backward_hooks
            or self._backward_pre_hooks
            or GLOBAL
        ):
            return call_with_hooks(self, args, kwargs)
        return self.forward(*args, **kwargs)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile the calls of this module, in place; arguments are ``mortice.compile``'s.

        The module stays what it is: its type, names in ``state_dict`` and copies. A copy, and what
        is loaded from a pickle, is not compiled.
        """
        self.__dict__["_compiled_call"] = mortice.compile(self._uncompiled, *args, **kwargs)

    def __mortice_compile__(self, wrap: Callable[..., Any]) -> Any:
        """What ``mortice.compile(module)`` gives: a Module that shares all state with this one."""
        from mortice_nn.modules.compiled import compiled_module

        return compiled_module(self, wrap)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_compiled_call"}

    # -- registration ------------------------------------------------------------------------

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Make ``self.<name>`` a tensor that moves and saves with the module but is not trained.

        A buffer that is not ``persistent`` is left out of ``state_dict()``.
        """
        self._check_new_name("buffer", name, self._buffers)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise ArgumentError(
                f"cannot register a {type(tensor).__name__} as buffer {name!r}; expected a tensor "
                "or None"
            )
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Make ``self.<name>`` a parameter; None reserves the name without a value."""
        self._check_new_name("parameter", name, self._parameters)
        if param is not None:
            if not isinstance(param, Parameter):
                raise ArgumentError(
                    f"cannot register a {type(param).__name__} as parameter {name!r}; wrap it in "
                    "mortice.nn.Parameter"
                )
            if param.grad_fn is not None:
                raise InvalidValue(
                    f"cannot register {name!r}: a parameter must be a leaf of the graph, and this "
                    "one was computed; pass x.detach(), or compute it in forward"
                )
        self._parameters[name] = param

    def add_module(self, name: str, module: Module | None) -> None:
        """Make ``self.<name>`` a child module."""
        if module is not None and not isinstance(module, Module):
            if isinstance(module, type) and issubclass(module, Module):
                raise ArgumentError(
                    f"{name!r} is the class {module.__name__}, and a module made of it is expected: "
                    f"write {module.__name__}(...)"
                )
            raise ArgumentError(
                f"{name!r} cannot be a child module: {type(module).__name__} is not a Module subclass"
            )
        self._check_new_name("module", name, self._modules)
        self._modules[name] = module

    register_module = add_module

    def _check_new_name(self, kind: str, name: Any, own: dict[str, Any]) -> None:
        if "_parameters" not in self.__dict__:
            raise _no_init(self, kind)
        if not isinstance(name, str):
            raise ArgumentError(f"a {kind}'s name should be a string, not {type(name).__name__}")
        if "." in name:
            # no apostrophes: KeyError shows the repr of its message
            raise KeyError(f"{kind} name {name} must not contain a dot, which separates modules")
        if not name:
            raise KeyError(f"{kind} name must not be empty")
        if name not in own and hasattr(self, name):
            raise KeyError(f"attribute {name} already exists in {type(self).__name__}")

    # -- attributes --------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__
        table = values.get("_parameters")
        if table is not None and name in table:
            return table[name]
        table = values.get("_buffers")
        if table is not None and name in table:
            return table[name]
        table = values.get("_modules")
        if table is not None and name in table:
            return table[name]
        if "_parameters" not in values and (name in HOOK_TABLES or name in _TABLES):
            raise _no_init(self, "attribute")
        raise _NoAttribute(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        values = self.__dict__
        parameters = values.get("_parameters")
        if isinstance(value, Parameter):
            if parameters is None:
                raise _no_init(self, "parameter")
            _forget(self, name, values, self._buffers, self._modules)
            self.register_parameter(name, value)
        elif parameters is not None and name in parameters:
            if value is not None:
                raise ArgumentError(
                    f"cannot assign a {type(value).__name__} as parameter {name!r}; expected "
                    "mortice.nn.Parameter or None"
                )
            self.register_parameter(name, None)
        elif isinstance(value, Module):
            if parameters is None:
                raise _no_init(self, "module")
            _forget(self, name, values, self._parameters, self._buffers)
            self._check_new_name("module", name, self._modules)
            self._modules[name] = value
        elif parameters is not None and name in self._modules:
            if value is not None:
                raise ArgumentError(
                    f"cannot assign a {type(value).__name__} as child module {name!r}; expected "
                    "mortice.nn.Module or None"
                )
            self._modules[name] = None
        elif isinstance(value, Buffer):
            if parameters is None:
                raise _no_init(self, "buffer")
            _forget(self, name, values, self._parameters, self._modules)
            self.register_buffer(name, value, value.persistent)
        elif parameters is not None and name in self._buffers:
            if value is not None and not isinstance(value, Tensor):
                raise ArgumentError(
                    f"cannot assign a {type(value).__name__} as buffer {name!r}; expected a tensor "
                    "or None"
                )
            self._buffers[name] = value
        else:
            object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        for table in (self._parameters, self._buffers, self._modules):
            if name in table:
                del table[name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        names = {*dir(type(self)), *self.__dict__}
        names.update(self._parameters, self._buffers, self._modules)
        return sorted(name for name in names if not name[0].isdigit())

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for table in HOOK_TABLES:
            self.__dict__.setdefault(table, OrderedDict())
        self.__dict__.setdefault("_non_persistent_buffers_set", set())

    # -- hooks -------------------------------------------------------------------------------

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Run ``hook(module, args)`` before forward; what it returns replaces the arguments.

        ``with_kwargs``: ``hook(module, args, kwargs)``, returning None or ``(args, kwargs)``.
        """
        flags = self._forward_pre_hooks_with_kwargs if with_kwargs else None
        return hooks.add(self._forward_pre_hooks, hook, flags, first=prepend)

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Run ``hook(module, args, output)`` after forward; what it returns replaces the output.

        ``with_kwargs``: ``hook(module, args, kwargs, output)``. ``always_call``: run it also when
        forward, or an earlier hook, raises.
        """
        flags = self._forward_hooks_with_kwargs if with_kwargs else None
        handle = hooks.add(self._forward_hooks, hook, flags, first=prepend)
        if always_call:
            self._forward_hooks_always_called[handle.id] = True
            handle.tables = (*handle.tables, self._forward_hooks_always_called)
        return handle

    def register_full_backward_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Run ``hook(module, grad_output)`` before the module's backward."""
        return hooks.add(self._backward_pre_hooks, hook, first=prepend)

    def register_full_backward_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Run ``hook(module, grad_input, grad_output)`` when both gradients are known.

        Returned gradients replace grad_input.
        """
        return hooks.add(self._backward_hooks, hook, first=prepend)

    # -- traversal ---------------------------------------------------------------------------

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module as ``prefix``, then all below it by dotted name, each once."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                inner = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, inner, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all below it, each once."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules assigned to this one, each once."""
        seen: set[Module] = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """As ``named_children`` without the names."""
        for _, module in self.named_children():
            yield module

    def _named_members(
        self,
        get_members_fn: Callable[[Module], Any],
        prefix: str = "",
        recurse: bool = True,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Any]]:
        seen: set[Any] = set()
        modules: Any = (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
            if recurse
            else ((prefix, self),)
        )
        for module_prefix, module in modules:
            for name, member in get_members_fn(module):
                if member is None or member in seen:
                    continue
                if remove_duplicate:
                    seen.add(member)
                yield (f"{module_prefix}.{name}" if module_prefix else name), member

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Every parameter with its dotted name, each once."""
        yield from self._named_members(
            lambda module: module._parameters.items(), prefix, recurse, remove_duplicate
        )

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Every parameter of this module and, with ``recurse``, of those below it."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Every buffer with its dotted name, each once."""
        yield from self._named_members(
            lambda module: module._buffers.items(), prefix, recurse, remove_duplicate
        )

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Every buffer of this module and, with ``recurse``, of those below it."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def get_submodule(self, target: str) -> Module:
        """The module called ``target`` ("layers.0.conv"; "" is this one)."""
        module: Any = self
        for i, name in enumerate(target.split(".") if target else ()):
            found = getattr(module, name, None)
            if not isinstance(found, Module):
                owner = ".".join(target.split(".")[:i]) or type(self).__name__
                problem = "is not a Module" if found is not None else "does not exist"
                raise UnknownName(
                    f"{owner} has no submodule {name!r}: it {problem}"
                    + _nearest(name, module._modules)
                )
            module = found
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Replace, or unless ``strict`` add, the module called ``target``."""
        if not target:
            raise InvalidValue("cannot replace the root module; give the name of one below it")
        owner_name, _, name = target.rpartition(".")
        owner = self.get_submodule(owner_name)
        if not isinstance(module, Module):
            raise InvalidValue(f"expected a Module for {target!r}, found {type(module).__name__}")
        if strict and not hasattr(owner, name):
            raise UnknownName(
                f"{target!r} does not exist and strict=True" + _nearest(name, owner._modules)
            )
        setattr(owner, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter called ``target``."""
        return self._get_tensor(target, "parameter", "_parameters")

    def get_buffer(self, target: str) -> Tensor:
        """The buffer called ``target``."""
        return self._get_tensor(target, "buffer", "_buffers")

    def _get_tensor(self, target: str, kind: str, table: str) -> Any:
        owner_name, _, name = target.rpartition(".")
        owner = self.get_submodule(owner_name)
        found = getattr(owner, table).get(name)
        if found is None:
            raise UnknownName(
                f"{type(owner).__name__} has no {kind} {name!r}"
                + _nearest(name, getattr(owner, table))
            )
        return found

    def apply(self: Self, fn: Callable[[Module], Any]) -> Self:
        """Call ``fn`` on every module, children first (initialisation, mostly)."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    # -- modes -------------------------------------------------------------------------------

    def train(self: Self, mode: bool = True) -> Self:
        """Set training mode (dropout, batch norm) here and below; returns self."""
        if not isinstance(mode, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"training mode is expected to be a bool, found {mode!r}")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self: Self) -> Self:
        """Set evaluation mode here and below; returns self."""
        return self.train(False)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        """Train, or freeze, every parameter here and below; returns self."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or set them to zero in place."""
        for parameter in self.parameters():
            grad = parameter.grad
            if grad is None:
                continue
            if set_to_none:
                parameter.grad = None
            else:
                with mortice.no_grad():
                    if grad.grad_fn is not None:
                        grad.detach_()
                    else:
                        grad.requires_grad_(False)
                    grad.zero_()

    # -- printing ----------------------------------------------------------------------------

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What stands in the parentheses of ``repr``; subclasses give their arguments."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr().split("\n") if self.extra_repr() else []
        children = [f"({name}): {_indent(repr(module))}" for name, module in self._modules.items()]
        return layout_repr(self._get_name(), extra, children)


_TABLES = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "training")


def layout_repr(name: str, extra: list[str], children: list[str]) -> str:
    """``Name(extra)`` on one line where it fits, else one entry a line."""
    lines = extra + children
    if not lines:
        return f"{name}()"
    if len(extra) == 1 and not children:
        return f"{name}({extra[0]})"
    return f"{name}(\n  " + "\n  ".join(lines) + "\n)"


def _indent(text: str) -> str:
    return text.replace("\n", "\n  ")


def _forget(module: Module, name: str, *tables: dict[str, Any]) -> None:
    """A name belongs to one table only; assigning another kind of value moves it."""
    for table in tables:
        table.pop(name, None)
    module._non_persistent_buffers_set.discard(name)


def _no_init(module: Module, kind: str) -> InvalidState | UnknownName:
    return UnknownName(
        f"cannot use or assign a {kind} before Module.__init__() call; "
        f"{type(module).__name__}.__init__ must call super().__init__() first"
    )


class _NoAttribute(UnknownName):
    """Looks for the nearest name only when it is shown: hasattr() raises it too, and often."""

    def __init__(self, module: Module, name: str) -> None:
        super().__init__(f"'{type(module).__name__}' object has no attribute '{name}'")
        self._name = name
        values = module.__dict__
        tables = (values.get(table, ()) for table in ("_parameters", "_buffers", "_modules"))
        self._known = [*(known for table in tables for known in table), *values]

    def __str__(self) -> str:
        message = super().__str__()
        return (
            message if self._name.startswith("__") else message + _nearest(self._name, self._known)
        )

    def __reduce__(self) -> Any:
        return UnknownName, (str(self),)  # without the module, which may not be pickled


def _nearest(name: str, choices: Any) -> str:
    near = [choice for choice in choices if abs(len(choice) - len(name)) <= 3]
    if not near:
        return ""
    from difflib import get_close_matches

    close = get_close_matches(name, near, n=1)
    return f". Did you mean '{close[0]}'?" if close else ""
