"""Hooks on modules: their tables, the handles that remove them, and the call that runs them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import mortice
from mortice import Tensor
from mortice.errors import ArgumentError

if TYPE_CHECKING:
    from mortice_nn.modules.module import Module

Table = OrderedDict[int, Callable[..., Any]]


class RemovableHandle:
    """Takes one hook out of its table with ``remove()``; a context manager removes it at the end.

    ``extra`` are side tables keyed by the same id (flags of that hook).
    """

    next_id = 0

    def __init__(self, table: dict[int, Any], *, extra: tuple[dict[int, Any], ...] = ()) -> None:
        self.tables = (table, *extra)
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1

    def remove(self) -> None:
        for table in self.tables:
            table.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


class _GlobalHooks:
    """Hooks that run for every module; ``bool()`` says whether there is any."""

    def __init__(self) -> None:
        self.forward_pre: Table = OrderedDict()
        self.forward: Table = OrderedDict()
        self.always_called: dict[int, bool] = {}
        self.backward_pre: Table = OrderedDict()
        self.backward: Table = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self.forward_pre or self.forward or self.backward_pre or self.backward)


GLOBAL = _GlobalHooks()


def add(
    table: Table,
    hook: Callable[..., Any],
    flags: dict[int, bool] | None = None,
    *,
    first: bool = False,
) -> RemovableHandle:
    """Enter ``hook`` into ``table`` (and its id into ``flags``), at the front if ``first``."""
    handle = RemovableHandle(table, extra=() if flags is None else (flags,))
    table[handle.id] = hook
    if flags is not None:
        flags[handle.id] = True
    if first:
        table.move_to_end(handle.id, last=False)
    return handle


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run ``hook(module, args) -> args | None`` before every module's forward."""
    return add(GLOBAL.forward_pre, hook)


def register_module_forward_hook(
    hook: Callable[..., Any], *, always_call: bool = False
) -> RemovableHandle:
    """Run ``hook(module, args, output) -> output | None`` after every module's forward."""
    return add(GLOBAL.forward, hook, GLOBAL.always_called if always_call else None)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run ``hook(module, grad_output) -> grad_output | None`` before every module's backward."""
    return add(GLOBAL.backward_pre, hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run ``hook(module, grad_input, grad_output) -> grad_input | None`` after each backward."""
    return add(GLOBAL.backward, hook)


def call_with_hooks(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What ``module(*args, **kwargs)`` does once any hook is registered."""
    called: set[int] = set()
    result: Any = None
    try:
        args, kwargs = _run_forward_pre(module, args, kwargs)
        taps = _BackwardTaps.for_module(module)
        if taps is not None:
            args = taps.tap_inputs(args)
        result = module.forward(*args, **kwargs)
        result = _run_forward(module, args, kwargs, result, called)
        if taps is not None:
            result = taps.tap_outputs(result)
        return result
    except Exception:
        _run_always_called(module, args, kwargs, result, called)
        raise


def _run_forward_pre(
    module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    for key, hook in (*GLOBAL.forward_pre.items(), *module._forward_pre_hooks.items()):
        if key in module._forward_pre_hooks_with_kwargs:
            changed = hook(module, args, kwargs)
            if changed is None:
                continue
            if not (isinstance(changed, tuple) and len(changed) == 2):
                raise ArgumentError(
                    "a forward pre-hook with_kwargs must return None or (args, kwargs), "
                    f"not {type(changed).__name__}"
                )
            args, kwargs = changed
        else:
            changed = hook(module, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
    return args, kwargs


def _run_forward(
    module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, called: set[int]
) -> Any:
    for key, hook in (*GLOBAL.forward.items(), *module._forward_hooks.items()):
        called.add(key)
        if key in module._forward_hooks_with_kwargs:
            changed = hook(module, args, kwargs, result)
        else:
            changed = hook(module, args, result)
        if changed is not None:
            result = changed
    return result


def _run_always_called(
    module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, called: set[int]
) -> None:
    """After an exception: the ``always_call`` hooks that did not run; their errors only warn,
    because the first exception is the one to report.
    """
    always = {**GLOBAL.always_called, **module._forward_hooks_always_called}
    for key, hook in (*GLOBAL.forward.items(), *module._forward_hooks.items()):
        if key not in always or key in called:
            continue
        try:
            if key in module._forward_hooks_with_kwargs:
                hook(module, args, kwargs, result)
            else:
                hook(module, args, result)
        except Exception as error:
            import warnings

            warnings.warn(
                f"forward hook {hook!r} with always_call=True raised while another error was "
                f"being handled: {error!r}",
                stacklevel=2,
            )


class _Tap(mortice.autograd.Function):
    """Identity whose backward passes the gradients through ``callback``."""

    @staticmethod
    def forward(ctx: Any, callback: Callable[..., Any], *tensors: Tensor) -> Any:
        ctx.callback = callback
        ctx.set_materialize_grads(False)
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        return (None, *ctx.callback(grads))


class _BackwardTaps:
    """The backward hooks of one call of one module.

    The tensors going in and coming out pass through a ``_Tap`` each; the outputs' tap sees
    grad_output, the inputs' tap sees grad_input. Where no input requires grad the hooks run with
    ``grad_input`` of Nones as soon as grad_output is known.
    """

    def __init__(
        self,
        module: Module,
        pre: list[Callable[..., Any]],
        post: list[Callable[..., Any]],
    ) -> None:
        self.module, self.pre, self.post = module, pre, post
        self.positions: list[int] = []
        self.input_count = 0
        self.grad_output: tuple[Tensor | None, ...] | None = None

    @staticmethod
    def for_module(module: Module) -> _BackwardTaps | None:
        pre = [*GLOBAL.backward_pre.values(), *module._backward_pre_hooks.values()]
        post = [*GLOBAL.backward.values(), *module._backward_hooks.values()]
        if not (pre or post) or not mortice.is_grad_enabled():
            return None
        return _BackwardTaps(module, pre, post)

    def tap_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self.input_count = len(args)
        if not self.post:
            return args
        self.positions = [
            i for i, arg in enumerate(args) if isinstance(arg, Tensor) and arg.requires_grad
        ]
        if not self.positions:
            return args
        tapped = _Tap.apply(self._on_grad_input, *(args[i] for i in self.positions))
        replaced = list(args)
        for i, tensor in zip(self.positions, tapped, strict=True):
            replaced[i] = tensor
        return tuple(replaced)

    def tap_outputs(self, result: Any) -> Any:
        outputs = result if isinstance(result, tuple) else (result,)
        where = [
            i for i, out in enumerate(outputs) if isinstance(out, Tensor) and out.requires_grad
        ]
        if not where:
            return result
        count = len(outputs)

        def on_grad_output(grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
            return self._on_grad_output(grads, where, count)

        tapped = _Tap.apply(on_grad_output, *(outputs[i] for i in where))
        replaced = list(outputs)
        for i, tensor in zip(where, tapped, strict=True):
            replaced[i] = tensor
        return tuple(replaced) if isinstance(result, tuple) else replaced[0]

    def _on_grad_output(
        self, grads: tuple[Tensor | None, ...], where: list[int], count: int
    ) -> tuple[Tensor | None, ...]:
        full: list[Tensor | None] = [None] * count
        for i, grad in zip(where, grads, strict=True):
            full[i] = grad
        grad_output = tuple(full)
        for hook in self.pre:
            changed = hook(self.module, grad_output)
            if changed is not None:
                grad_output = changed if isinstance(changed, tuple) else (changed,)
                _check_count("backward pre-hook", grad_output, count)
        self.grad_output = grad_output
        if self.post and not self.positions:
            for hook in self.post:
                changed = hook(self.module, (None,) * self.input_count, grad_output)
                if changed is not None and any(grad is not None for grad in changed):
                    raise ArgumentError(
                        "a backward hook returned a gradient for an input that needs none; "
                        "return None"
                    )
        return tuple(grad_output[i] for i in where)

    def _on_grad_input(self, grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        full: list[Tensor | None] = [None] * self.input_count
        for i, grad in zip(self.positions, grads, strict=True):
            full[i] = grad
        grad_input = tuple(full)
        for hook in self.post:
            changed = hook(self.module, grad_input, self.grad_output)
            if changed is not None:
                grad_input = changed if isinstance(changed, tuple) else (changed,)
                _check_count("backward hook", grad_input, self.input_count)
        return tuple(grad_input[i] for i in self.positions)


def _check_count(what: str, grads: tuple[Any, ...], expected: int) -> None:
    if len(grads) != expected:
        raise ArgumentError(
            f"the {what} returned {len(grads)} gradients where {expected} were passed; return as "
            "many, or None to change nothing"
        )
