"""The seam to native code: a replay plan as a backend is given it, and what it gives back.

A backend that declares a ``native_entry`` is asked, once a plan has replayed
``NATIVE_AFTER`` times, for one callable that checks the plan's guards, runs it and makes the
result. The Python form here, ``stretch.Node``, means the same and stays behind it: every call that
the native one does not take goes there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mortice._capture.guards import Guard, Source

#: Replays before a backend is asked: a function called now and then is not worth it.
NATIVE_AFTER = 8


class Direct:
    """A plan of one segment whose outputs are the results.

    Attributes:
        run: ``run(*operands) -> tuple`` of tensors.
        operands: (position among the wanted objects, None), or (None, the constant).
        outputs: (position in the tuple, number of dimensions) of each tensor returned.
        plain: the call was in no dispatch mode, so that ``run`` may be called as it is; else only if
            it is known to read none.
        kind: ``one``, ``tuple`` or ``list``: what the call returns.
        settle: ``settle(outs, wanted) -> result``, for outputs that are not row-major after all.
    """

    __slots__ = ("kind", "operands", "outputs", "plain", "run", "settle")

    def __init__(
        self,
        run: Callable[..., Sequence[Any]],
        operands: tuple[tuple[int | None, Any], ...],
        outputs: tuple[tuple[int, int], ...],
        plain: bool,
        kind: str,
        settle: Callable[[Any, Any], Any],
    ) -> None:
        self.run = run
        self.operands = operands
        self.outputs = outputs
        self.plain = plain
        self.kind = kind
        self.settle = settle


class NativePlan:
    """A plan that is one stretch: guards, what it needs, how it ends.

    Attributes:
        guards: in the order in which they may be checked; all hold in this call.
        wanted: where the objects are that the rest needs.
        finish: ``finish(wanted) -> result``, for any plan.
        direct: the same as data, where it is as simple as that.
        args, kwargs: this call's, to look at objects by ``mortice.native.find``.
        miss: ``miss(*args, **kwargs) -> result``, for calls that do not pass the guards.
    """

    __slots__ = ("args", "direct", "finish", "guards", "kwargs", "miss", "wanted")

    def __init__(
        self,
        guards: tuple[Guard, ...],
        wanted: tuple[Source, ...],
        finish: Callable[[tuple[Any, ...]], Any],
        direct: Direct | None,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        miss: Callable[..., Any],
    ) -> None:
        self.guards = guards
        self.wanted = wanted
        self.finish = finish
        self.direct = direct
        self.args = args
        self.kwargs = kwargs
        self.miss = miss


class NativeRecorder:
    """Native forms of what a recorder does in every call; each leaves the unusual to Python.

    A backend that declares a ``native_recorder`` is asked for it once a function of its has always run
    ``NATIVE_AFTER`` times; it then serves every compiled function of the process.

    Attributes:
        recording: ``recording(call, kinds, python) -> kernel``: the Python kernel that records an
            operator (``kernels.py``), or a native one that means the same and falls back on it.
        finish: ``finish(recorder, step, finale) -> bool``: does what ``Recorder.finish`` does, or
            nothing, and says which. What it raises is the graph's error. Other threads wait while it runs
            (``Recorder.busy``).
        call: ``call(fn, trees, python, raised) -> callable``: ``python``, or a native function of the
            same meaning (``Compiled.call_recorded``).
        quick: ``quick(table, *operands)``: the result of the operator of a dispatch table, where it is the
            one expected next with these operands, or None.
        take_over, give_back: from one to the other, Python functions that C code calls, those behind
            Python's operators (``RecordingLayout.stubs``) and ``Compiled.__call__``, may be answered without
            running them. They stay the objects that they are.
    """

    __slots__ = ("call", "finish", "give_back", "quick", "recording", "take_over")

    def __init__(
        self,
        recording: Callable[[Any, str, Callable[..., Any]], Callable[..., Any]],
        finish: Callable[[Any, Any, Any], bool],
        call: Callable[
            [Any, list[Any], Callable[..., Any], Callable[..., Any]], Callable[..., Any]
        ],
        quick: Callable[..., Any],
        take_over: Callable[[], None],
        give_back: Callable[[], None],
    ) -> None:
        self.recording = recording
        self.finish = finish
        self.call = call
        self.quick = quick
        self.take_over = take_over
        self.give_back = give_back


#: The native recorder, if there is one.
NATIVE_RECORDER: list[NativeRecorder] = []


class NativeEntry:
    """What ``native_entry(plan)`` gives: the callable, and how many calls it has answered."""

    __slots__ = ("answered", "call")

    def __init__(self, call: Callable[..., Any], answered: Callable[[], int]) -> None:
        self.call = call
        self.answered = answered
