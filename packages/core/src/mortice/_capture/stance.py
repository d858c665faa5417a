"""What compiled functions do instead of compiling: ``mortice.compiler.set_stance``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from mortice._base.errors import CompileError, InvalidState, InvalidValue, nearest
from mortice._dispatch.state import THREAD

STANCES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile")


class Now:
    """The stance in force, of all threads.

    ``eager``: compiled functions run as they are; ``compiles``: what was not captured may be.
    """

    __slots__ = ("compiles", "eager", "name")

    def __init__(self) -> None:
        self.put("default")

    def put(self, name: str) -> None:
        self.name = name
        self.eager = name == "force_eager"
        self.compiles = name == "default"


NOW = Now()


class set_stance:
    """Say what compiled functions do from now on, in all threads, where they would compile.

    ``"default"``: compile. ``"force_eager"``: run the function as it is, whatever was compiled.
    ``"eager_on_recompile"``: use what was compiled, and run what was not operator by operator; nothing
    of it is kept. ``"fail_on_recompile"``: CompileError instead, with the line; what the function did
    before stays done. What an earlier process has compiled and kept counts as compiled. Backward graphs
    of forward graphs that ran are compiled all the same.

    A call sets the stance; ``with set_stance(...):`` and ``@set_stance(...)`` do for a block and for
    the calls of a function. InvalidState inside a function that is being captured.
    """

    def __init__(self, stance: str = "default") -> None:
        if stance not in STANCES:
            raise InvalidValue(
                f"{stance!r} is no stance; expected one of {', '.join(STANCES)}."
                f"{nearest(stance, STANCES)}"
            )
        self.stance = stance
        #: What it was before the call, until a block or a decorator takes it over.
        self._before: str | None = NOW.name
        self._outer: list[str] = []
        self._put(stance)

    def _put(self, stance: str) -> None:
        if THREAD.recorder is not None:
            raise InvalidState(
                "set_stance() inside a compiled function: what it does is being captured. Set the "
                "stance before the call."
            )
        NOW.put(stance)

    def __enter__(self) -> None:
        self._outer.append(self._taken())
        self._put(self.stance)

    def __exit__(self, *exc: object) -> None:
        NOW.put(self._outer.pop())

    def _taken(self) -> str:
        before, self._before = self._before, None
        return NOW.name if before is None else before

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """A decorator: the stance is in force while ``fn`` runs."""
        NOW.put(self._taken())
        stance = self.stance

        @functools.wraps(fn)
        def run(*args: Any, **kwargs: Any) -> Any:
            with set_stance(stance):
                return fn(*args, **kwargs)

        return run


def while_uncompiled(numbers: Any) -> bool:
    """The number check of a plan that is good for as long as the stance is not to compile."""
    return not NOW.compiles


def refuse(name: str, line: tuple[str, int, str]) -> None:
    """Raise where compiling is not allowed."""
    if NOW.name == "fail_on_recompile":
        raise CompileError(
            f"{name} has to be compiled for the segment that begins at {line[0]}:{line[1]}, and the "
            "stance is fail_on_recompile: arguments, or what the function reads, are such as no call "
            "before had, nor is it kept on disk. Call it once with such ones under the stance default."
        )
