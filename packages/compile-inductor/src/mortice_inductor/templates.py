"""Plans for all sizes, as functions of a graph's symbolic sizes; ``sizing`` makes them.

Another size of a known graph costs the evaluation of some integers, and a plan of the memory between
kernels, whose order is by size.
"""

from __future__ import annotations

import marshal
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

from mortice_llvm.runtime import cache as objects

from . import cache, specs
from .passes.memory import Life, Lives, placed
from .plan import CallStep, Plan
from .specs import Spec, TensorSpec

#: How many a graph has, in memory and on disk; what fits none of them is planned by itself.
LIMIT = 32

#: Classes that sources of templates name.
NAMED: dict[str, Any] = {
    t.__name__: t
    for t in (Plan, CallStep, Life, Lives, specs.TensorSpec, specs.NumberSpec, specs.GeneratorSpec,
              specs.OtherSpec)
}  # fmt: skip


class Template:
    """A plan as functions of symbols' values.

    Attributes:
        names: the symbols. places: for each, the input and the dimension that show it.
        texts: Python sources of the key of calls that it is for, of the conditions on the symbols, and
            of (plan, what needs memory).
        things: what has no source; sources call it ``o``.
        same: which inputs share memory. code: the key of the machine code.
        constants: tensors that the graph holds.
    """

    def __init__(
        self, names: tuple[str, ...], places: tuple[tuple[int, int], ...],
        texts: tuple[str, str, str], things: tuple[Any, ...], same: tuple[Any, ...], code: bytes,
        constants: tuple[Any, ...] = (),
    ) -> None:  # fmt: skip
        self.names = names
        self.places = places
        self.texts = texts
        self.things = things
        self.same = same
        self.code = code
        self.constants = constants

    def _function(self, text: str) -> Callable[..., Any]:
        scope = {**NAMED, "math": math, "o": self.things}
        # Made by ``sizing``, of symbols' names, numbers, strings and the names in the scope.
        return eval(f"lambda {', '.join(self.names)}: {text}", scope)  # noqa: S307

    @cached_property
    def _key(self) -> Callable[..., Any]:
        return self._function(self.texts[0])

    @cached_property
    def _holds(self) -> Callable[..., bool]:
        return self._function(self.texts[1])

    @cached_property
    def _plan(self) -> Callable[..., tuple[Plan, Lives]]:
        return self._function(self.texts[2])

    def sizes_of(
        self, at_hand: Sequence[Spec], key: Any, same: tuple[Any, ...]
    ) -> list[int] | None:
        """The symbols' values for inputs that it is for; else None."""
        if same != self.same:
            return None
        values: list[int] = []
        for k, d in self.places:
            spec = at_hand[k]
            if not isinstance(spec, TensorSpec) or len(spec.shape) <= d or spec.shape[d] < 2:
                return None
            values.append(spec.shape[d])
        return values if self._holds(*values) and self._key(*values) == key else None

    def plan(self, values: Sequence[int]) -> Plan:
        """The plan for these sizes."""
        return placed(*self._plan(*values))

    def written(self) -> bytes | None:
        """As text of marshal; None where it holds what only this process has."""
        if self.constants:
            return None
        data = (self.names, self.places, self.texts, cache.plain(self.things), self.same, self.code)
        return marshal.dumps(data, 2)


def _restored(data: bytes) -> Template | None:
    """What was ``written``; None for something else, or where its machine code is gone."""
    from .runtime.code import NoCode, load_code

    try:
        names, places, texts, things, same, code = marshal.loads(data)  # noqa: S302  checked by its hash
        load_code(code, None)
        return Template(names, places, texts, cache.restored(things), same, code)
    except (ValueError, EOFError, TypeError, KeyError, NoCode):
        return None


class Templates:
    """The templates of one graph, the one used last first. Who uses it holds the graph's lock.

    ``identity``: what stands for the graph on disk, where it may be kept there.
    """

    def __init__(self, identity: bytes | None) -> None:
        self.known: list[Template] = []
        self._identity = identity
        #: How many of those on disk were looked at.
        self._read = 0

    def find(
        self, at_hand: Sequence[Spec], key: Any, same: tuple[Any, ...]
    ) -> tuple[Template, Plan] | None:
        """One for inputs of this layout, and its plan for them."""
        for one in chain(self.known, self._on_disk()):
            values = one.sizes_of(at_hand, key, same)
            if values is not None:
                if one is not self.known[0]:
                    self.known = [one, *(x for x in self.known if x is not one)]
                return one, one.plan(values)
        return None

    @property
    def is_full(self) -> bool:
        """Whether there are to be no more."""
        return max(len(self.known), self._read) >= LIMIT

    def add(self, made: Template) -> None:
        """Uses a new one, and keeps it."""
        self.known = [made, *self.known]
        data = None if self._identity is None else made.written()
        if data is not None:
            objects.write(self._place(), data)
            self._read += 1

    def _on_disk(self) -> Iterator[Template]:
        """Those that other processes kept and this one has not seen yet."""
        while self._identity is not None and self._read < LIMIT:
            data = objects.read(self._place())
            if data is None:
                return
            self._read += 1
            found = _restored(data)
            if found is not None:
                self.known = [*self.known, found]
                yield found

    def _place(self) -> bytes:
        assert self._identity is not None
        return objects.digest(b"template", self._identity, str(self._read).encode())
