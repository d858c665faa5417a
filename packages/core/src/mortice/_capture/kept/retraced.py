"""A captured graph of an earlier process: known by its text, and recorded again if it has to be seen.

Its replay needs neither steps nor graph. Where somebody looks at it, or a call comes that it does not
answer, the operators of its text are recorded once more, on tensors of the same sizes without values.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mortice._base.errors import InvalidState
from mortice._capture.captured import Captured
from mortice._capture.dynamic import Symbols
from mortice._capture.family import Outline
from mortice._capture.kernels import Call
from mortice._capture.recorder import Recorder
from mortice._capture.tree import Slot, Step, Tree, all_outputs, path
from mortice._dispatch import keys as K
from mortice._dispatch.operator import get
from mortice._dispatch.state import unrecorded
from mortice._tensor.make import empty
from mortice._types import layout
from mortice._types.device import Device
from mortice._types.dtypes import by_name
from mortice._types.dtypes import default as default_dtype

_NOTHING = Outline((), ())


class Retraced(Captured):
    """A graph of which the text is there, as ``Captured.text`` gave it; ``numbers`` as they were then."""

    def __init__(self, text: bytes, numbers: Sequence[Any]) -> None:
        super().__init__((), (), numbers, (), Symbols.none(_NOTHING))
        self.kept_text = text
        #: With which it was recorded, and is again.
        self.default_dtype = default_dtype.dtype

    def text(self) -> bytes | None:
        return self.kept_text

    def path(self) -> tuple[list[Step], list[Slot]]:
        """The steps of the recording, and the memories that somebody saw at its end."""
        assert self.kept_text is not None
        present = default_dtype.dtype
        default_dtype.dtype = self.default_dtype
        try:
            with unrecorded(flush=False):
                return _Reader(self.numbers).read(marshal.loads(self.kept_text))  # noqa: S302  our own
        finally:
            default_dtype.dtype = present

    def _build(self) -> None:
        self.steps, self.wanted = self.path()
        super()._build()


class _Recorder(Recorder):
    """Records what was one segment as one: nothing is run, whatever values tensors have."""

    def flush(self, why: str = "", *, allowed: bool = False) -> None:
        pass

    def run_now(self, op: Any, beneath: int, args: Any) -> Any:
        raise InvalidState(f"{op.qualified} was recorded by an earlier process, and now cannot be.")


class _Reader:
    def __init__(self, numbers: Sequence[Any]) -> None:
        self._recorder = _Recorder(None, Tree())
        self._recorder.tree.recorder = self._recorder
        self._leaves: list[Any] = []
        self._numbers = iter(numbers)
        #: Tensors that the path makes are alive until it ends, as they were for a reason not written.
        self._alive: list[Any] = []

    def read(self, text: Sequence[Any]) -> tuple[list[Step], list[Slot]]:
        *steps, wanted, _, _ = text
        recorder = self._recorder
        try:
            for step in steps:
                self._step(*step)
            made = path(recorder.at)
        finally:
            recorder._begin()  # pyright: ignore[reportPrivateUsage]
        outputs = {o.number: o for o in all_outputs(made)}
        leaves = {leaf.number: leaf for s in made for leaf in s.new_leaves}
        return made, [(outputs if kind == "made" else leaves)[n] for kind, n in wanted]

    def _step(self, leaves: Sequence[Any], name: str, keys: str, wants: Sequence[Any]) -> None:
        self._leaves += [_leaf(*leaf) for leaf in leaves]
        call = Call(get(name), K.described(keys))
        if any(type(want) is tuple and want[0] == "number" for want in wants):
            self._recorder.tree.varied.add(call)  # an input, also where the operator looks at it
        self._alive.append(self._recorder.record(call, tuple(map(self._argument, wants))))

    def _argument(self, want: Any) -> Any:
        return _READ[want[0]](self, *want[1:]) if type(want) is tuple else want

    def made(self, number: int) -> Any:
        return self._recorder.made[number]()

    def leaf(self, number: int) -> Any:
        return self._leaves[number]

    def several(self, items: Sequence[Any]) -> list[Any]:
        return [self._argument(x) for x in items]

    def number(self) -> Any:
        return next(self._numbers)


def _leaf(keys: str, dtype: str, device: str, shape: Any, strides: Any, first: Any) -> Any:
    """A tensor like one that the recording found in memory; its own memory is never touched."""
    assert first is None
    made = empty(tuple(shape), by_name(dtype), Device(device), tuple(strides))
    return made.requires_grad_(True) if K.described(keys) & K.AUTOGRAD else made


_LAYOUTS = {
    repr(x): x for x in vars(layout).values() if isinstance(x, (layout.Layout, layout.MemoryFormat))
}
_READ: Mapping[str, Callable[..., Any]] = {
    "made": _Reader.made,
    "leaf": _Reader.leaf,
    "tuple": lambda r, items: tuple(r.several(items)),
    "list": lambda r, items: r.several(items),
    "complex": lambda r, real, imag: complex(real, imag),
    "dtype": lambda r, name: by_name(name),
    "device": lambda r, name: Device(name),
    "layout": lambda r, name: _LAYOUTS[name],
    "format": lambda r, name: _LAYOUTS[name],
    "number": lambda r, name: r.number(),
}
