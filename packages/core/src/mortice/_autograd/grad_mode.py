"""no_grad, enable_grad, set_grad_enabled, inference_mode: context managers and decorators."""

from __future__ import annotations

from typing import Any

from mortice._dispatch.state import THREAD, refresh


class _Context:
    """A context manager that also decorates functions, as PyTorch's do."""

    def __call__(self, function: Any) -> Any:
        import functools
        import inspect

        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def generator(*args: Any, **kwargs: Any) -> Any:
                return _step_inside(self, function(*args, **kwargs))

            return generator

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self._again():
                return function(*args, **kwargs)

        return wrapped

    def _again(self) -> Any:
        return type(self)()

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, *exc: object) -> None:
        raise NotImplementedError


def _step_inside(context: _Context, iterator: Any) -> Any:
    """Run each step of a generator inside the mode, and its consumer outside."""
    value = None
    while True:
        with context._again():  # pyright: ignore[reportPrivateUsage]
            try:
                item = iterator.send(value)
            except StopIteration as stop:
                return stop.value
        value = yield item


class set_grad_enabled(_Context):
    """``set_grad_enabled(mode)`` sets at once, and restores when used as a context manager."""

    def __init__(self, mode: bool) -> None:
        self.mode = bool(mode)
        self.previous = THREAD.grad_enabled
        _set(self.mode)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc: object) -> None:
        _set(self.previous)

    def __call__(self, function: Any) -> Any:
        _set(self.previous)  # as a decorator it acts only inside the function
        return super().__call__(function)

    def _again(self) -> Any:
        return set_grad_enabled(self.mode)


class no_grad(_Context):
    """Operators inside record no gradient history."""

    mode = False

    def __new__(cls, function: Any = None) -> Any:
        self = object.__new__(cls)
        if function is not None:
            return self(function)
        return self

    def __init__(self, function: Any = None) -> None:
        pass

    def __enter__(self) -> Any:
        self.previous = THREAD.grad_enabled
        _set(self.mode)
        return self

    def __exit__(self, *exc: object) -> None:
        _set(self.previous)


class enable_grad(no_grad):
    """Operators inside record gradient history, whatever the mode around."""

    mode = True


class inference_mode(_Context):
    """As no_grad. Tensors made inside are ordinary ones: unlike PyTorch's, they are not marked, and
    may take part in recorded operators later.
    """

    def __new__(cls, mode: Any = True) -> Any:
        self = object.__new__(cls)
        if callable(mode):
            self.mode = True
            return self(mode)
        return self

    def __init__(self, mode: Any = True) -> None:
        if not callable(mode):
            self.mode = bool(mode)

    def __enter__(self) -> Any:
        self.previous = (THREAD.grad_enabled, THREAD.inference)
        THREAD.inference = self.mode
        _set(THREAD.grad_enabled and not self.mode)
        return self

    def __exit__(self, *exc: object) -> None:
        grad, THREAD.inference = self.previous
        _set(grad)

    def _again(self) -> Any:
        return inference_mode(self.mode)


def _set(mode: bool) -> None:
    if THREAD.grad_enabled is not mode:
        THREAD.grad_enabled = mode
        refresh()


def is_grad_enabled() -> bool:
    return THREAD.grad_enabled


def is_inference_mode_enabled() -> bool:
    return THREAD.inference
