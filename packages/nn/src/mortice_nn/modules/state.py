"""state_dict: what a Module saves, how it loads it, and what it says when the two do not fit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import mortice
from mortice import Tensor
from mortice.errors import ArgumentError, StateDictError
from mortice_nn.modules import hooks
from mortice_nn.modules.hooks import RemovableHandle, Table

if TYPE_CHECKING:
    from mortice_nn.modules.module import Module

EXTRA_STATE = "_extra_state"
SHOWN_MISMATCHES = 30


class _KeyLists(NamedTuple):
    missing_keys: list[str]
    unexpected_keys: list[str]


class IncompatibleKeys(_KeyLists):
    """What ``load_state_dict`` returns: names that the file lacked, and names it had too many."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


class ModuleState:
    """The half of Module that saves and loads; see ``modules.module``."""

    _version: int = 1
    _parameters: dict[str, Any]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _non_persistent_buffers_set: set[str]
    _state_dict_hooks: Table
    _state_dict_pre_hooks: Table
    _load_state_dict_pre_hooks: Table
    _load_state_dict_post_hooks: Table

    # -- hooks -------------------------------------------------------------------------------

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run ``hook(module, prefix, keep_vars)`` before ``state_dict`` collects."""
        return hooks.add(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run ``hook(module, state_dict, prefix, local_metadata)``; it may edit in place only."""

        def checked(module: Any, state: Any, prefix: str, local_metadata: Any) -> None:
            if hook(module, state, prefix, local_metadata) is not None:
                raise ArgumentError("a state_dict post-hook edits in place and must return None")

        return hooks.add(self._state_dict_hooks, checked)

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """As the post-hook, but what it returns, if not None, replaces the state_dict."""
        return hooks.add(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run ``hook(module, state_dict, prefix, local_metadata, strict, missing_keys,
        unexpected_keys, error_msgs)`` before this module takes its entries.
        """

        def bound(*args: Any) -> None:
            hook(self, *args)

        return hooks.add(self._load_state_dict_pre_hooks, bound)

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], with_module: bool = False
    ) -> RemovableHandle:
        if with_module:
            return self.register_load_state_dict_pre_hook(hook)
        return hooks.add(self._load_state_dict_pre_hooks, hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run ``hook(module, incompatible_keys)`` after loading; it may edit the two lists."""
        return hooks.add(self._load_state_dict_post_hooks, hook)

    # -- saving ------------------------------------------------------------------------------

    def get_extra_state(self) -> Any:
        """Override, with ``set_extra_state``, to keep more than tensors in the state_dict."""
        raise NotImplementedError(
            f"{type(self).__name__} does not override get_extra_state; a class that overrides "
            "set_extra_state must override both"
        )

    def set_extra_state(self, state: Any) -> None:
        """Takes what ``get_extra_state`` returned when the state_dict was made."""
        raise NotImplementedError(
            f"{type(self).__name__} does not override set_extra_state; a class that overrides "
            "get_extra_state must override both"
        )

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        """Put this module's own parameters and persistent buffers into ``destination``."""
        for name, tensor in (*self._parameters.items(), *self._buffers.items()):
            if tensor is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = tensor if keep_vars else tensor.detach()
        if type(self).get_extra_state is not ModuleState.get_extra_state:
            destination[prefix + EXTRA_STATE] = self.get_extra_state()

    def state_dict(
        self,
        *args: Any,
        destination: Any = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> Any:
        """All parameters and persistent buffers by dotted name, in an OrderedDict.

        The tensors share memory with the module's and are detached unless ``keep_vars``. The
        attribute ``_metadata`` maps module names to ``{"version": n}``.
        """
        if args:
            names = ("destination", "prefix", "keep_vars")
            given = dict(zip(names, args, strict=False))
            destination = given.get("destination", destination)
            prefix = given.get("prefix", prefix)
            keep_vars = given.get("keep_vars", keep_vars)
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(
                    destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars
                )
        for hook in self._state_dict_hooks.values():
            replaced = hook(self, destination, prefix, local_metadata)
            if replaced is not None:
                destination = replaced
        return destination

    # -- loading -----------------------------------------------------------------------------

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Copy this module's own entries out of ``state_dict``.

        Subclasses override it to accept older layouts (``local_metadata["version"]``). Problems
        are appended to the three lists, not raised.
        """
        for hook in self._load_state_dict_pre_hooks.values():
            hook(
                state_dict,
                prefix,
                local_metadata,
                strict,
                missing_keys,
                unexpected_keys,
                error_msgs,
            )
        assign = bool(local_metadata.get("assign_to_params_buffers", False))
        own: dict[str, Tensor] = {
            name: tensor
            for name, tensor in (*self._parameters.items(), *self._buffers.items())
            if tensor is not None and name not in self._non_persistent_buffers_set
        }
        for name, tensor in own.items():
            key = prefix + name
            if key in state_dict:
                _load_one(self, name, tensor, key, state_dict[key], assign, error_msgs)
            elif strict:
                missing_keys.append(key)
        extra_key = prefix + EXTRA_STATE
        if type(self).set_extra_state is not ModuleState.set_extra_state:
            if extra_key in state_dict:
                self.set_extra_state(state_dict[extra_key])
            elif strict:
                missing_keys.append(extra_key)
        elif strict and extra_key in state_dict:
            unexpected_keys.append(extra_key)
        if strict:
            known = {*own, *self._modules}
            for key in state_dict:
                if key.startswith(prefix) and key != extra_key:
                    first, _, rest = key[len(prefix) :].partition(".")
                    if first not in known or (rest and first not in self._modules):
                        unexpected_keys.append(key)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copy ``state_dict`` into this module and its children.

        ``strict``: names must match exactly, else StateDictError lists what is missing and what is
        too much, with the nearest names. ``assign``: take the tensors themselves, with their dtype
        and device, instead of copying into the existing ones. Sizes must match in any case.
        Returns ``(missing_keys, unexpected_keys)``.
        """
        if not isinstance(state_dict, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(
                f"load_state_dict expected a dict of names to tensors, found "
                f"{type(state_dict).__name__}"
            )
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []
        metadata = getattr(state_dict, "_metadata", None)
        state: Any = OrderedDict(state_dict)
        if metadata is not None:
            state._metadata = metadata

        def load(module: Any, local_state: Any, prefix: str) -> None:
            local_metadata = {} if metadata is None else dict(metadata.get(prefix[:-1], {}))
            if assign:
                local_metadata["assign_to_params_buffers"] = True
            module._load_from_state_dict(
                local_state, prefix, local_metadata, True, missing, unexpected, errors
            )
            for name, child in module._modules.items():
                if child is not None:
                    inner = f"{prefix}{name}."
                    child_state = {k: v for k, v in local_state.items() if k.startswith(inner)}
                    load(child, child_state, inner)
            incompatible = IncompatibleKeys(missing, unexpected)
            for hook in module._load_state_dict_post_hooks.values():
                if hook(module, incompatible) is not None:
                    raise ArgumentError(
                        "a load_state_dict post-hook edits the lists in place and must return None"
                    )

        load(self, state, "")
        problems = _name_problems(missing, unexpected) if strict else []
        problems += errors
        if problems:
            shown = problems[:SHOWN_MISMATCHES]
            if len(problems) > len(shown):
                shown.append(f"... and {len(problems) - len(shown)} more problems.")
            hint = "\n\tPass strict=False to load the names that do fit." if not errors else ""
            raise StateDictError(
                f"Error(s) in loading state_dict for {type(self).__name__}:\n\t"
                + "\n\t".join(shown)
                + hint
            )
        return IncompatibleKeys(missing, unexpected)


def _name_problems(missing: list[str], unexpected: list[str]) -> list[str]:
    """One line for the names of each kind, each missing name with its nearest unexpected one."""
    lines: list[str] = []
    if unexpected:
        names = ", ".join(f'"{key}"' for key in unexpected[:SHOWN_MISMATCHES])
        lines.append(f"Unexpected key(s) in state_dict: {names}{_more(unexpected)}.")
    if missing:
        names = ", ".join(_with_nearest(key, unexpected) for key in missing[:SHOWN_MISMATCHES])
        lines.append(f"Missing key(s) in state_dict: {names}{_more(missing)}.")
    if missing and unexpected:
        prefix = _common_prefix(missing, unexpected)
        if prefix:
            lines.append(prefix)
    return lines


def _more(keys: list[str]) -> str:
    return f" and {len(keys) - SHOWN_MISMATCHES} more" if len(keys) > SHOWN_MISMATCHES else ""


def _with_nearest(key: str, candidates: Iterable[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(key, list(candidates), n=1, cutoff=0.7)
    return f'"{key}" (nearest in the state_dict: "{close[0]}")' if close else f'"{key}"'


def _common_prefix(missing: list[str], unexpected: list[str]) -> str:
    """The usual accident: one side's names carry a wrapper's prefix such as ``module.``."""
    for ours, theirs, verb in ((missing, unexpected, "strip"), (unexpected, missing, "add")):
        heads = {key.partition(".")[0] for key in theirs}
        if len(heads) == 1:
            head = heads.pop() + "."
            if {key.removeprefix(head) for key in theirs} == set(ours):
                where = "from" if verb == "strip" else "to"
                return f'The names fit if you {verb} the prefix "{head}" {where} the state_dict\'s.'
    return ""


def _load_one(
    module: Any,
    name: str,
    tensor: Tensor,
    key: str,
    value: Any,
    assign: bool,
    errors: list[str],
) -> None:
    """Copy or assign one entry; a misfit becomes a line in ``errors``."""
    if not isinstance(value, Tensor):
        errors.append(
            f'expected a tensor for "{key}" in the state_dict, found {type(value).__name__}.'
        )
        return
    # Files written before 0-d tensors existed hold scalars as shape (1,).
    if tensor.ndim == 0 and tuple(value.shape) == (1,):
        value = value[0]
    if tuple(value.shape) != tuple(tensor.shape):
        errors.append(
            f'size mismatch for "{key}": the state_dict has shape {tuple(value.shape)}, the model '
            f"{tuple(tensor.shape)}."
        )
        return
    if tensor.device.type == "meta" and value.device.type != "meta" and not assign:
        import warnings

        warnings.warn(
            f'"{key}" is on device meta, so copying into it does nothing; pass assign=True to '
            "take the tensors of the state_dict",
            stacklevel=2,
        )
    try:
        with mortice.no_grad():
            if assign:
                _assign(module, name, tensor, value)
            else:
                tensor.copy_(value)
    except Exception as error:
        errors.append(
            f'copying "{key}" of shape {tuple(value.shape)} failed: {type(error).__name__}: {error}'
        )


def _assign(module: Any, name: str, old: Tensor, value: Tensor) -> None:
    from mortice_nn.parameter import Buffer, Parameter

    if isinstance(old, Parameter) and not isinstance(value, Parameter):
        value = Parameter(value, requires_grad=old.requires_grad)
    elif isinstance(old, Parameter):
        value.requires_grad_(old.requires_grad)
    elif isinstance(old, Buffer) and not isinstance(value, Buffer):
        value = Buffer(value, persistent=old.persistent)
    setattr(module, name, value)
