"""Optimizer: parameter groups, state, and what all update rules share."""

from __future__ import annotations

import functools
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import mortice
from mortice import Tensor
from mortice.backend import count_up
from mortice.errors import ArgumentError, InvalidState, InvalidValue
from mortice_nn.modules import hooks
from mortice_nn.modules.hooks import RemovableHandle, Table
from mortice_nn.parameter import Parameter

Closure = Callable[[], Any] | None


class _Required:
    """Stands for an option that every group must state."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()

HOOK_TABLES = (
    "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks",
    "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)


# Marks a step method that is wrapped already.
HOOKED = "_mortice_hooked"


class Optimizer:
    """Updates parameters from their gradients.

    ``params``: an iterable of tensors, of ``(name, tensor)``, or of dicts with a key "params" and
    options that override ``defaults`` for that group. Update rules are subclasses with a ``step``
    method, which runs without recording gradients and between the step hooks.

    ``foreach``, ``fused`` and ``capturable`` are accepted and kept in the groups, for checkpoints;
    they choose between implementations in PyTorch and mean nothing here. ``differentiable=True``
    is refused.
    """

    param_groups: list[dict[str, Any]]
    state: defaultdict[Any, Any]
    _optimizer_step_pre_hooks: Table
    _optimizer_step_post_hooks: Table
    _optimizer_state_dict_pre_hooks: Table
    _optimizer_state_dict_post_hooks: Table
    _optimizer_load_state_dict_pre_hooks: Table
    _optimizer_load_state_dict_post_hooks: Table

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        step = cls.__dict__.get("step")
        if step is not None and not hasattr(step, HOOKED):
            cls.step = _hooked(step)

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise ArgumentError(
                "params argument given to the optimizer should be an iterable of tensors or dicts, "
                "but got one tensor; write [tensor]"
            )
        if not isinstance(params, Iterable):
            kind = type(params).__name__
            hint = ""
            if callable(getattr(params, "parameters", None)):
                hint = f"; write {type(self).__name__}(module.parameters(), ...)"
            raise ArgumentError(
                "params argument given to the optimizer should be an iterable of tensors or dicts, "
                f"but got a {kind}{hint}"
            )
        self.defaults = defaults
        for table in HOOK_TABLES:
            setattr(self, table, OrderedDict())
        self.state = defaultdict(dict)
        self.param_groups = []
        groups = list(params)
        if not groups:
            raise InvalidValue("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    # -- groups ------------------------------------------------------------------------------

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group: a dict with "params" (a tensor or an iterable) and options."""
        if not isinstance(param_group, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"param_group must be a dict, but got {type(param_group).__name__}")
        params = param_group["params"]
        if isinstance(params, set):
            raise ArgumentError(
                "optimizer parameters need to be organized in ordered collections, but the "
                "ordering of tensors in sets will change between runs; use a list"
            )
        params = [params] if isinstance(params, Tensor) else list(params)
        names: list[str] = []
        tensors: list[Tensor] = []
        for entry in params:
            name, tensor = entry if isinstance(entry, tuple) else (None, entry)
            _check_parameter(tensor)
            tensors.append(tensor)
            if name is not None:
                names.append(name)
        if names and len(names) != len(tensors):
            raise InvalidValue("all optimizer params should be with names, or none of them")
        param_group["params"] = tensors
        if names:
            param_group["param_names"] = names
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise InvalidValue(
                    f"parameter group didn't specify a value of required optimization parameter "
                    f"{name}"
                )
            param_group.setdefault(name, default)
        if len(set(tensors)) != len(tensors):
            import warnings

            warnings.warn("optimizer contains a parameter group with duplicate parameters",
                          stacklevel=3)  # fmt: skip
        known = {id(p) for group in self.param_groups for p in group["params"]}
        if any(id(p) in known for p in tensors):
            raise InvalidValue("some parameters appear in more than one parameter group")
        if param_group.get("differentiable"):
            raise InvalidValue(
                "differentiable=True is not supported; write the update with tensor operations"
            )
        self.param_groups.append(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop all gradients, or set them to zero in place."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                if set_to_none:
                    p.grad = None
                else:
                    p.grad.detach_()
                    p.grad.zero_()

    def step(self, closure: Closure = None) -> Any:
        """Update all parameters once; returns what ``closure``, if given, returned.

        ``closure`` clears the gradients, computes the loss, calls backward and returns the loss.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define step()")

    # -- saving and loading ------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """``{"state": {number: {...}}, "param_groups": [...]}``, tensors by reference.

        Parameters are numbered over all groups in order.
        """
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        numbers: dict[int, int] = {}
        groups: list[dict[str, Any]] = []
        for group in self.param_groups:
            for p in group["params"]:
                numbers.setdefault(id(p), len(numbers))
            packed = {name: value for name, value in group.items() if name != "params"}
            packed["params"] = [numbers[id(p)] for p in group["params"]]
            groups.append(packed)
        state = {
            (numbers[id(key)] if isinstance(key, Tensor) else key): value
            for key, value in self.state.items()
        }
        result: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            result = hook(self, result) or result
        return result

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` returned for the same parameters in the same order."""
        state_dict = dict(state_dict)
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = hook(self, state_dict) or state_dict
        saved = deepcopy(state_dict["param_groups"])
        sizes = [len(group["params"]) for group in self.param_groups]
        saved_sizes = [len(group["params"]) for group in saved]
        if len(sizes) != len(saved_sizes):
            raise InvalidValue(
                f"loaded state dict has a different number of parameter groups: {len(saved_sizes)} "
                f"where the optimizer has {len(sizes)}"
            )
        if sizes != saved_sizes:
            raise InvalidValue(
                "loaded state dict contains a parameter group that doesn't match the size of "
                f"optimizer's group: sizes {saved_sizes} where the optimizer has {sizes}"
            )
        by_number: dict[Any, Tensor] = {}
        for group, theirs in zip(self.param_groups, saved, strict=True):
            by_number.update(zip(theirs["params"], group["params"], strict=True))
        state: defaultdict[Any, Any] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in by_number:
                state[by_number[key]] = _cast(by_number[key], value)
            else:
                state[key] = value
        for group, theirs in zip(self.param_groups, saved, strict=True):
            theirs["params"] = group["params"]
            if "param_names" in group and "param_names" not in theirs:
                theirs["param_names"] = group["param_names"]
        self.__setstate__({"state": state, "param_groups": saved})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    def __getstate__(self) -> dict[str, Any]:
        return {
            "defaults": self.defaults, "state": self.state, "param_groups": self.param_groups
        }  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for table in HOOK_TABLES:
            self.__dict__.setdefault(table, OrderedDict())
        # A checkpoint of an older version lacks the options that were added since.
        for group in self.param_groups:
            for name, default in self.__dict__.get("defaults", {}).items():
                if default is not required:
                    group.setdefault(name, default)

    def __repr__(self) -> str:
        text = type(self).__name__ + " ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            text += "".join(f"    {k}: {group[k]}\n" for k in sorted(group) if k != "params")
        return text + ")"

    # -- hooks -------------------------------------------------------------------------------

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run ``hook(optimizer, args, kwargs) -> None | (args, kwargs)`` before each step."""
        return hooks.add(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run ``hook(optimizer, args, kwargs)`` after each step."""
        return hooks.add(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Run ``hook(optimizer)`` before ``state_dict``."""
        return hooks.add(self._optimizer_state_dict_pre_hooks, hook, first=prepend)

    def register_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Run ``hook(optimizer, state_dict) -> state_dict | None`` after ``state_dict``."""
        return hooks.add(self._optimizer_state_dict_post_hooks, hook, first=prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Run ``hook(optimizer, state_dict) -> state_dict | None`` before loading."""
        return hooks.add(self._optimizer_load_state_dict_pre_hooks, hook, first=prepend)

    def register_load_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Run ``hook(optimizer)`` after loading."""
        return hooks.add(self._optimizer_load_state_dict_post_hooks, hook, first=prepend)


def _hooked(step: Callable[..., Any]) -> Callable[..., Any]:
    """``step`` without gradients and between the step hooks."""

    @functools.wraps(step)
    def run(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        for hook in self._optimizer_step_pre_hooks.values():
            changed = hook(self, args, kwargs)
            if changed is not None:
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise ArgumentError(
                        "a step pre-hook must return None or (args, kwargs), not "
                        f"{type(changed).__name__}"
                    )
                args, kwargs = changed
        with mortice.no_grad():
            result = step(self, *args, **kwargs)
        self.__dict__["_opt_called"] = True
        for hook in self._optimizer_step_post_hooks.values():
            hook(self, args, kwargs)
        return result

    setattr(run, HOOKED, True)
    return run


def run_closure(closure: Closure) -> Any:
    """The loss of ``closure``, computed with gradients; None without one."""
    if closure is None:
        return None
    with mortice.enable_grad():
        return closure()


def number(value: Any) -> float:
    """A learning rate or factor, which may be a 0-d tensor, as a number."""
    return float(value.item() if isinstance(value, Tensor) else value)


def check_range(name: str, value: Any, low: float = 0.0, below: float | None = None) -> None:
    """``value`` must be at least ``low`` and, if given, less than ``below``."""
    given = value.item() if isinstance(value, Tensor) else value
    size = number(given)
    if not low <= size or (below is not None and not size < below):
        limit = f"at least {low}" if below is None else f"in [{low}, {below})"
        raise InvalidValue(f"Invalid {name}: {given}; it must be {limit}")


def check_common(lr: Any, weight_decay: Any, eps: float | None = None) -> None:
    """The ranges that most update rules share."""
    check_range("learning rate", lr)
    check_range("weight_decay value", weight_decay)
    if eps is not None:
        check_range("epsilon value", eps)
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise InvalidValue("Tensor lr must be 1-element")


def check_betas(betas: Iterable[Any]) -> None:
    """Both decay rates must be in [0, 1)."""
    for i, beta in enumerate(betas):
        check_range(f"beta parameter at index {i}", beta, 0.0, 1.0)


#: Fills in the state of a parameter: (parameter, its state, its group).
MakeState = Callable[[Any, dict[str, Any], dict[str, Any]], None]


def begin(optimizer: Optimizer, make: MakeState, key: str = "step") -> set[int]:
    """Make the state of each parameter that has a gradient and no ``key`` in its state yet.

    It is made uncaptured and before the updates, so that in a compiled step the state is an input
    from the first step on, and all steps are one graph. Returns the ids of these parameters.
    """
    states = optimizer.state
    new: dict[int, tuple[Any, dict[str, Any]]] = {}
    for group in optimizer.param_groups:
        for p in group["params"]:
            state = states.get(p)
            if (not state or state.get(key) is None) and p.grad is not None:
                new[id(p)] = p, group
    if new:
        from mortice.compiler import disable

        def fill() -> None:
            for p, group in new.values():
                make(p, states[p], group)

        disable(fill, reason="the state of an optimizer is made once")()
    return set(new)


def zeros(p: Tensor) -> Tensor:
    """Zeros in the form of a parameter, without gradient."""
    return mortice.zeros_like(p, requires_grad=False)


def new_step() -> Tensor:
    """A step count: a 0-d float32 tensor on the host, as checkpoints hold it."""
    return mortice.tensor(0.0, dtype=mortice.float32)


def count_step(state: dict[str, Any]) -> float:
    """Add 1 to the step count; returns it."""
    step = state["step"]
    if isinstance(step, Tensor):
        return float(count_up(step))
    state["step"] = step + 1
    return float(state["step"])


def gradient(p: Tensor, group: dict[str, Any], decay: float = 0) -> Tensor | None:
    """p.grad with ``maximize`` and the L2 term applied; None where there is none."""
    grad = p.grad
    if grad is None:
        return None
    if grad.is_sparse:
        raise InvalidState("this optimizer does not support sparse gradients")
    if group["maximize"]:
        grad = -grad
    return grad.add(p, alpha=decay) if decay else grad


def _check_parameter(tensor: Any) -> None:
    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"optimizer can only optimize Tensors, but one of the params is "
                            f"{type(tensor).__name__}")  # fmt: skip
    if not (isinstance(tensor, Parameter) or tensor.is_leaf or tensor.retains_grad):
        raise InvalidValue(
            "can't optimize a non-leaf Tensor: it is computed from others; optimise those"
        )


def _cast(p: Tensor, value: Any, key: str | None = None) -> Any:
    """Saved state on the parameter's device and, if that is floating, in its dtype.

    The step count keeps its own: it would lose digits in half precision.
    """
    if isinstance(value, Tensor):
        # A copy in any case: two optimizers must not count on one step tensor.
        if key == "step":
            return value.clone()
        dtype = p.dtype if p.is_floating_point() else value.dtype
        return value.to(device=p.device, dtype=dtype, copy=True)
    if isinstance(value, dict):
        return {k: _cast(p, v, k) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and not isinstance(value, str):
        return type(value)(_cast(p, v) for v in value)
    return value
