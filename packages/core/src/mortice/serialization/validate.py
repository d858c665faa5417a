"""How the data of a pickle hangs together: depth, cycles, and its size written out as a tree.

Data that shares parts is small in a file and in memory, and may be exponentially large for whoever
copies, compares or prints it; data that contains itself has no end. Both are refused here, before
anything is made of the file.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from mortice.errors import CheckpointError
from mortice.serialization.bounds import Limits, hint
from mortice.serialization.specs import (
    Call,
    Global,
    ParameterSpec,
    Spec,
    StorageClass,
    TypedSpec,
    children,
)

_CONTAINERS = frozenset((list, tuple, dict, OrderedDict, Counter))
_BRANCHING = frozenset((ParameterSpec, TypedSpec, Call))
_ATOMS = frozenset((str, int, bytes, float, bool, complex, type(None)))
_FEW = 1_000_000


class _Open:
    """A container whose inside is being walked."""

    __slots__ = ("depth", "inside", "key", "node", "size")

    def __init__(self, node: Any) -> None:
        self.node = node
        self.key = id(node)
        self.inside = _parts(node)
        self.size = 1
        self.depth = 1


def _parts(node: Any) -> Iterator[Any]:
    kind = type(node)
    if kind is list or kind is tuple:
        return iter(node)
    if kind in _BRANCHING:
        return iter(children(node))
    # Keys too, where they are more than strings and numbers: tensors, names, tuples of them.
    keys = [key for key in node if type(key) not in _ATOMS]
    attributes: Any = vars(node).values() if kind is OrderedDict or kind is Counter else ()
    if keys or attributes:
        return chain(keys, node.values(), attributes)
    return iter(node.values())


def validate(
    root: Any,
    opcodes: int,
    limits: Limits,
    refuse: Callable[[str, str], CheckpointError],
    values: Callable[[Global], bool],
) -> None:
    """Check the data under ``root``, read from ``opcodes`` opcodes.

    ``values`` says whether a bare name may stand as a value. Raises what ``refuse`` makes.
    """
    most = max(_FEW, opcodes * limits.expansion)
    done: dict[int, tuple[int, int]] = {}
    open_ids: set[int] = set()
    stack = [_Open([root])]
    while stack:
        top = stack[-1]
        for node in top.inside:
            kind = type(node)
            if kind in _CONTAINERS or kind in _BRANCHING:
                key = id(node)
                known = done.get(key)
                if known is None:
                    if key in open_ids:
                        if limits.cycles:
                            continue
                        raise refuse("the data contains itself", hint("cycles"))
                    stack.append(_Open(node))
                    open_ids.add(key)
                    break
                top.size += known[0]
                top.depth = max(top.depth, known[1] + 1)
            else:
                top.size += 1
                if kind is Global or kind is StorageClass:
                    _check_name(node, refuse, values)
        else:
            stack.pop()
            _close(top, stack, done, open_ids)
        if len(stack) > limits.depth + 1 or (stack and stack[-1].depth > limits.depth + 1):
            raise refuse(f"containers more than {limits.depth} deep", hint("depth"))
        if top.size > most:
            raise refuse(
                f"data that is over {most} nodes when written out, from {opcodes} opcodes",
                hint("expansion"),
            )


def _close(
    closed: _Open, stack: list[_Open], done: dict[int, tuple[int, int]], open_ids: set[int]
) -> None:
    done[closed.key] = (closed.size, closed.depth)
    open_ids.discard(closed.key)
    if stack:
        above = stack[-1]
        above.size += closed.size
        above.depth = max(above.depth, closed.depth + 1)


def _check_name(
    node: Spec,
    refuse: Callable[[str, str], CheckpointError],
    values: Callable[[Global], bool],
) -> None:
    if isinstance(node, Global):
        if values(node):
            return
        raise refuse(f"the function or class {node.name} stands where data belongs", "")
    raise refuse("a storage class stands where data belongs", "")
