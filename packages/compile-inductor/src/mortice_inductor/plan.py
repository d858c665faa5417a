"""What the runtime follows: plain data, so that it can be kept on disk."""

from __future__ import annotations

from typing import Any, NamedTuple


class CallStep(NamedTuple):
    """An operator for the dispatcher: ``args`` and ``results`` are numbers of buffers."""

    target: str
    template: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    args: tuple[int, ...]
    results: tuple[int, ...]
    single: bool
    where: str


class Plan(NamedTuple):
    """A compiled graph.

    The table of ``words`` 64-bit words holds, in this order: numbers that the caller gives, seed
    and offset of ``draws`` random operators (from ``draw_slot`` on), addresses of BLAS routines,
    addresses of buffers, constants. ``slots`` has (number, word, kind, shape, strides, dtype,
    source) of each buffer; ``offsets`` its place in the arena. ``blocks`` are (input, bytes) of
    memory that is written to where the call alone has that input, and in place of which there is new
    memory elsewhere; ``lent`` are (buffer, block, offset) of the outputs that lie there. A step is
    ("native", function, labels of its kernels) or a CallStep. An output is ("buffer", number),
    ("input", k) or ("object", x). ``checks`` are (buffer of a bool that must be false, then the fields
    of a ``Refusal``).
    """

    words: int
    specs: tuple[Any, ...]
    draws: int
    draw_slot: int
    blas: dict[str, int]
    constants: tuple[int, tuple[int, ...]]
    slots: tuple[tuple[Any, ...], ...]
    arena: int
    offsets: tuple[tuple[int, int], ...]
    blocks: tuple[tuple[int, int], ...]
    lent: tuple[tuple[int, int, int], ...]
    steps: tuple[Any, ...]
    outputs: tuple[Any, ...]
    checks: tuple[tuple[Any, ...], ...]
