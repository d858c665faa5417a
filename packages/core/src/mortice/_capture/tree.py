"""The tree of recordings: every sequence of operators that a compiled object has recorded.

A path from the root is one segment. A step says which operator was called with which operands, and
what that gave; a later call that does the same again finds the step and its results by comparing
identities, without inferring anything (see ``kernels.py``). Handles of results belong to the
steps, so a tree serves one call at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from mortice._base.errors import InvalidValue
from mortice._tensor.array import DeviceArray, PendingArray

#: A tree with more steps than this is given up: its segments stay, its predictions are made anew.
TREE_STEPS = 20_000


class Leaf:
    """A tensor that a segment found in memory: an input of its graph.

    Attributes:
        number: position among the segment's leaves.
        first: the first leaf over the same memory; None if this is it.
        tensor: what is bound to it in the call under way, or None.
        extents: sizes and strides of a host tensor as 64-bit numbers, for native code.
    """

    __slots__ = (
        "device", "dtype", "extents", "first", "handle_type", "key", "number", "shape", "strides",
        "tensor",
    )  # fmt: skip

    def __init__(self, number: int, tensor: Any, first: Leaf | None) -> None:
        a = tensor._a
        self.number = number
        self.key: int = tensor._k
        self.dtype = tensor._t
        self.device = tensor.device
        self.shape = a.shape
        self.strides = a.strides
        self.handle_type = type(a)
        extents = () if self.handle_type is DeviceArray else (*a.shape, *a.strides)
        self.extents = struct.pack(f"<{len(extents)}q", *extents)
        self.first = first
        self.tensor: Any = None

    @property
    def steps(self) -> tuple[int, ...]:
        """Strides in elements."""
        if self.handle_type is DeviceArray:
            return self.strides
        return tuple(s // self.dtype.itemsize for s in self.strides)

    @property
    def cell(self) -> Leaf:
        """What stands for the memory: the first leaf over it."""
        return self.first or self


class Output:
    """A tensor that a step makes.

    Attributes:
        handle: its metadata, and its identity while it is pending.
        key, dtype, edge: what the tensor's slots are filled with.
        base: what it is a view of, a Leaf or an Output; None if it has memory of its own.
        leaf: the Leaf that its views begin at, or None.
        part: its position among the views that the operator makes, where it makes several.
        number: position among the segment's outputs.
        steps: strides in bytes.
        step: what makes it; None in a plan of an earlier process.
    """

    __slots__ = (
        "base", "cell", "dtype", "edge", "handle", "key", "leaf", "number", "part", "step", "steps",
    )  # fmt: skip

    def __init__(
        self,
        step: Step | None,
        number: int,
        handle: PendingArray,
        key: int,
        edge: Any,
        base: Leaf | Output | None = None,
        part: int | None = None,
    ) -> None:
        self.step: Any = step
        self.number = number
        self.handle = handle
        self.dtype = handle.dtype
        self.steps = tuple(s * handle.dtype.itemsize for s in handle.strides)
        self.key = key
        self.edge = edge
        self.base = base
        self.part = part
        self.cell: Leaf | Output = self if base is None else base.cell
        self.leaf: Leaf | None = base.leaf if isinstance(base, Output) else base
        handle.output = self

    def moved(self, leaves: Sequence[Any] = ()) -> int:
        """Where the tensor that stands for the leaf begins in its memory, in elements of this one.

        It differs from call to call: the rows of a matrix are the same recording. ``leaves``: the
        tensors of a path's leaves, where they are not bound any more.
        """
        leaf = self.leaf
        t = None if leaf is None else leaves[leaf.number] if leaves else leaf.tensor
        return 0 if t is None else start_of(t, self.dtype)


def start_of(t: Any, dtype: Any) -> int:
    """Where a tensor begins in its memory, in elements of ``dtype``."""
    offset, rest = divmod(t.storage_offset() * t._t.itemsize, dtype.itemsize)
    if rest:
        raise InvalidValue(
            f"a tensor that begins at element {t.storage_offset()} of its memory cannot be seen as "
            f"{dtype!r}: it begins within an element of it. Clone it first."
        )
    return offset


#: Memory as an operand names it.
Slot = Leaf | Output


class Step:
    """One operator at one place of the tree.

    Attributes:
        call: the operator with its key set (``kernels.Call``).
        wants: for each argument what a call must bring to be this step: a handle, a Leaf, a number's
            type or bounds (``refusals.Accepted``), or a plain value; a tuple of those for a list of
            tensors.
        outputs: what it makes, in the operator's order; None where it makes nothing.
        ahead: the step that followed last time. after: the first of the next segment, where one ended
            with this step last time; the root's is the first of a call.
        ends: whether the segment ends with it, because it may refuse values.
        by_keys: whether the kernel is that of the operands' keys, no mode having had a say. epoch: the
            ``GLOBAL.epoch`` in which a stub was seen to come to it, if by_keys; for native code.
        line: (file, line, function) of the user's call.
        usual: how the path ended here last time, if native code can (``finale.Finale``).
        leaves, numbers, generators, made: how many the path has had, this step's included.
    """

    __slots__ = (
        "after", "ahead", "by_keys", "call", "children", "edge", "ends", "epoch", "generators", "handle", "key", "leaves", "line",
        "made", "new_leaves", "number_positions", "numbers", "outputs", "parent", "plans", "result",
        "simple", "token", "usual", "wants",
    )  # fmt: skip

    def __init__(self, parent: Step | None, call: Any, wants: tuple[Any, ...]) -> None:
        self.parent = parent
        self.call = call
        self.token = call
        self.wants = wants
        self.children: dict[Any, Step] = {}
        self.ahead: Any = NOTHING
        self.after: Any = NOTHING
        self.outputs: list[Output | None] = []
        self.plans: dict[Any, Any] = {}
        self.usual: Any = None
        self.simple = self.ends = self.by_keys = False
        self.epoch = -1
        self.result: Any = None
        self.line: tuple[str, int, str] = ("", 0, "")
        self.new_leaves: tuple[Leaf, ...] = ()
        self.number_positions: tuple[int, ...] = ()
        if parent is None:
            self.leaves = self.numbers = self.generators = self.made = 0
        else:
            self.leaves = parent.leaves
            self.numbers = parent.numbers
            self.generators = parent.generators
            self.made = parent.made
        self.handle: Any = None
        self.key = 0
        self.edge: Any = None


class _Nothing:
    """Follows a step that nothing has followed yet; no call is it."""

    __slots__ = ("token",)

    def __init__(self) -> None:
        self.token = object()


NOTHING: Any = _Nothing()


def path(step: Step) -> list[Step]:
    """The steps from the first of the segment to ``step``."""
    found: list[Step] = []
    at: Step | None = step
    while at is not None and at.parent is not None:
        found.append(at)
        at = at.parent
    found.reverse()
    return found


def all_outputs(steps: Sequence[Step]) -> Iterator[Output]:
    for s in steps:
        for out in s.outputs:
            if out is not None:
                yield out


class Tree:
    """A root, and the recorder that walks it at the moment.

    ``walker`` is the recorder of earlier calls, which the next one uses again. ``varied``: operators
    (``Call``) whose numbers were part of a step, and then others came.
    """

    __slots__ = ("recorder", "root", "size", "varied", "walker")

    def __init__(self) -> None:
        self.root = Step(None, None, ())
        self.recorder: Any = None
        self.walker: Any = None
        self.varied: set[Any] = set()
        self.size = 0
