"""Tensors without data while a program is traced."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from mortice._tensor.make import alias_of
from mortice._tensor.tensor import Tensor


class Faking:
    """What arguments are traced as: themselves (``"real"``), or fakes with fixed or symbolic sizes.

    Within ``with``, everything is fake unless tracing is real. Arguments that are fakes keep their
    mode.
    """

    def __init__(self, tracing_mode: str, leaves: Iterable[Any] = (), mode: Any = None) -> None:
        # Tensors without data are of a higher floor, which traces by this one.
        self._fake = import_module("mortice.fake")
        self.is_real = tracing_mode == "real"
        self.symbolic = tracing_mode == "symbolic"
        self.mode: Any = mode
        for leaf in leaves:
            self.mode = self.mode or self._fake.mode_of(leaf)
        if self.mode is None:
            env = self._fake.ShapeEnv() if self.symbolic else None
            self.mode = self._fake.FakeTensorMode(env, allow_non_fake_inputs=True)

    def __enter__(self) -> Faking:
        if not self.is_real:
            self.mode.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        if not self.is_real:
            self.mode.__exit__(*exc)

    def leaf(self, value: Any) -> Any:
        """An argument as it is traced."""
        if self.is_real or self._fake.is_fake(value):
            return value
        if isinstance(value, Tensor):
            dims = tuple(range(value.ndim)) if self.symbolic else ()
            return self.mode.from_tensor(value, dynamic_dims=dims)
        if type(value) is int and self.symbolic:
            return self.mode.shape_env.integer(value)
        return value

    def shown(self, tensor: Any) -> Any:
        """A tensor's metadata: itself if it has no data, else a fake of it."""
        if self._fake.is_fake(tensor):
            return alias_of(tensor)
        if self.is_real:
            return self.mode.from_tensor(alias_of(tensor), memoize=False)
        return alias_of(self.mode.from_tensor(tensor))

    def real(self, tensor: Any) -> Any:
        """The values behind a fake that was made of data while the program was traced; else itself."""
        if not self._fake.is_fake(tensor):
            return tensor
        known = self._fake.constant_of(tensor)
        return tensor if known is None else known

    def stand_in(self, shown: Any) -> Any:
        """A new tensor without data of the same sizes, strides and dtype."""
        array = shown._a
        return self.mode.wrap(
            array.restride(tuple(array.shape), tuple(shown.stride()), shown.storage_offset())
        )
