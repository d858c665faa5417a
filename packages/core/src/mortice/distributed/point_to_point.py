"""Messages between two ranks. Those with one tag arrive in the order in which they were sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mortice._tensor.tensor import Tensor
from mortice.errors import ArgumentError, InvalidValue

from . import arguments
from .coalescing import submit
from .group import is_outside, resolved
from .work import Work


def isend(
    tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0,
    group_dst: int | None = None,
) -> Work | None:  # fmt: skip
    """Begin to send to ``dst`` (a rank of the whole). The tensor must not change until the end."""
    return _begin("send", tensor, dst, group_dst, group, tag)


def irecv(
    tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0,
    group_src: int | None = None,
) -> Work | None:  # fmt: skip
    """Begin to receive from ``src`` (a rank of the whole; from anyone if not given)."""
    return _begin("recv", tensor, src, group_src, group, tag)


def send(
    tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0,
    group_dst: int | None = None,
) -> None:  # fmt: skip
    """Send to ``dst``; returns when the tensor may change again."""
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(
    tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0,
    group_src: int | None = None,
) -> int:  # fmt: skip
    """Receive from ``src``, or from anyone; returns the sender as a rank of the whole, -1 outside."""
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    return resolved(group).global_rank(work.source_rank())


def _begin(
    name: str, tensor: Tensor, rank: int | None, group_rank: int | None, group: Any, tag: int
) -> Work | None:
    if is_outside(group):
        return None
    t = arguments.tensor(tensor, name, "tensor")
    found = resolved(group)
    if tag < 0:
        raise InvalidValue(f"{name}: tag is {tag}; expected 0 or more.")
    if name == "recv" and rank is None and group_rank is None:
        peer = -1
    else:
        peer = arguments.root(found, rank, group_rank, name, "dst" if name == "send" else "src")
        if peer == found.rank():
            raise InvalidValue(f"{name}: rank {found.watch.rank} is this rank itself.")
    given, filled = ((t,), ()) if name == "send" else ((), (t,))
    return submit(name, group, t, True, None, given, filled, root=peer, tag=tag)


class P2POp:
    """One message for ``batch_isend_irecv``: ``op`` is ``isend`` or ``irecv``."""

    def __init__(
        self, op: Callable[..., Any], tensor: Tensor, peer: int | None = None, group: Any = None,
        tag: int = 0, group_peer: int | None = None,
    ) -> None:  # fmt: skip
        if op not in (isend, irecv):
            raise InvalidValue(
                "P2POp: op must be mortice.distributed.isend or irecv, "
                f"found {getattr(op, '__name__', op)!r}."
            )
        self.op = op
        self.tensor = tensor
        self.peer = peer
        self.group = group
        self.tag = tag
        self.group_peer = group_peer

    def __repr__(self) -> str:
        return f"P2POp({self.op.__name__}, peer={self.peer}, tag={self.tag})"


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Work]:
    """Begin several messages at once, in any order on each rank; returns one Work for each."""
    if not p2p_op_list or not all(isinstance(one, P2POp) for one in p2p_op_list):
        raise ArgumentError("batch_isend_irecv: expected a list of P2POp, which is not empty.")
    if len({id(resolved(one.group)) for one in p2p_op_list if not is_outside(one.group)}) > 1:
        raise InvalidValue("batch_isend_irecv: the operations are of several groups.")
    works = [
        one.op(one.tensor, one.peer, one.group, one.tag, one.group_peer) for one in p2p_op_list
    ]
    return [work for work in works if work is not None]
