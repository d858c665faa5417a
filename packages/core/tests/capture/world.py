"""What cases are made of: the world that their programs read and change, reset before each run.

A case gives a function and steps; a step changes something (or nothing), then calls. After the steps
may come tensors whose values and gradients are compared as well, and what to do with each result.
With a case stand the verdict to be reached, and how many of the calls are answered by a replay.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import random
import types
from collections.abc import Callable
from typing import Any

import mortice
from mortice import Tensor

REPLAY, ALWAYS = "replay", "always run"


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    make: Callable[[], Any]
    verdict: str
    replays: int


CASES: list[Case] = []


def case(verdict: str, replays: int = 0) -> Any:
    def add(make: Any) -> Any:
        CASES.append(Case(make.__name__.rstrip("_"), make, verdict, replays))
        return make

    return add


def t(*values: float, **more: Any) -> Tensor:
    return mortice.tensor(list(values) or [1.0, 2.0, 3.0], **more)


def A() -> Any:
    return (t(),), {}


def both(*steps: Any) -> list[Any]:
    """Each step twice: the second call shows whether the first left something to replay."""
    return [s for step in steps for s in (step, (None, step[1]))]


# -- the world, reset before each run ------------------------------------------------------------------

LOG: list[Any] = []
#: What other modules of cases reset.
RESETS: list[Callable[[], Any]] = []
G: dict[str, Any] = {}
GL: list[Any] = []
mod = types.ModuleType("mod")


class Lin:
    k = 2.0

    def __init__(self) -> None:
        self.w = t(2.0, 2.0, 2.0)
        self.train = True
        self.n = 0

    def __call__(self, x: Any) -> Any:
        return self.forward(x)

    def forward(self, x: Any) -> Any:
        return x * self.w if self.train else x + self.w

    @property
    def p(self) -> bool:
        return self.train


_FORWARD = Lin.forward


@dataclasses.dataclass
class D:
    a: float = 1.0


class E(enum.Enum):
    A = 1
    B = 2


def reset() -> None:
    G.clear()
    G["k"] = 2.0
    GL[:] = [t(1.0)]
    LOG.clear()
    for more in RESETS:
        more()
    mod.f = lambda x: x * 2  # type: ignore[attr-defined]
    mod.c = 1.0  # type: ignore[attr-defined]
    Lin.k = 2.0
    Lin.forward = _FORWARD  # type: ignore[method-assign]
    random.seed(0)
    mortice.manual_seed(7)
    mortice.set_grad_enabled(True)
    mortice.set_default_dtype(mortice.float32)
    os.environ["MORTICE_CASE"] = "2"


def put(o: Any, name: str, value: Any) -> Any:
    return lambda: setattr(o, name, value)
