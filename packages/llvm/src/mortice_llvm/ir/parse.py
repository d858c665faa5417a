"""Reads the text form of a kernel."""

from __future__ import annotations

from ..errors import InvalidKernel
from .nodes import Buffer, Instr, Kernel, Region, Scalar
from .text import NAMING


def _stride(word: str) -> int | str:
    return int(word) if word.lstrip("-").isdigit() else word


def _constant(word: str, dtype: str) -> int | float | bool:
    if word in ("true", "false"):
        return word == "true"
    return float(word) if "f" in dtype else int(word)


def _instr(line: str) -> Instr:
    left, eq, right = line.partition(" = ")
    ident = int(left.strip()[1:]) if eq else -1
    words = (right if eq else left).split(None, 2)
    op, dtype = words[0], words[1]
    operands = [w.strip() for w in words[2].split(",")] if len(words) > 2 else []
    attr: str | int | float | bool | None = None
    if operands and not operands[0].startswith("%"):
        word = operands.pop(0)
        attr = word if op in NAMING else _constant(word, dtype)
    return Instr(ident, op, dtype, tuple(int(w[1:]) for w in operands), attr)


def _tail(words: list[str]) -> tuple[int, bool]:
    """``tile N`` and ``blocks``, if they are there."""
    tile = int(words[words.index("tile") + 1]) if "tile" in words else 1
    return tile, "blocks" in words


def parse(source: str) -> Kernel:
    """Returns the kernel written in ``source``; raises InvalidKernel naming the line."""
    name, over, tile, blocks, dims = "", "", 1, False, ()
    buffers: list[Buffer] = []
    scalars: list[Scalar] = []
    regions: list[tuple[str, list[Instr]]] = []
    ended = False
    for number, raw in enumerate(source.splitlines(), 1):
        line = raw.strip()
        try:
            if not line or ended:
                continue
            word, _, rest = line.partition(" ")
            if word == "kernel":
                name, _, inside = rest.partition("(")
                inside, _, tail = inside.partition(")")
                tile, blocks = _tail(tail.split())
                inside, _, over = inside.partition(";")
                dims = tuple(d.strip() for d in inside.split(","))
            elif word in ("in", "out"):
                ident, dtype, strides = rest.split(None, 2)
                parts = strides.strip("[]").split(",")
                buffers.append(Buffer(ident, dtype, word, tuple(_stride(s.strip()) for s in parts)))
            elif word == "scalar":
                scalars.append(Scalar(*rest.split()))
            elif line in ("each", "row", "fold"):
                regions.append((line, []))
            elif line == "end":
                ended = True
            else:
                regions[-1][1].append(_instr(line))
        except (ValueError, IndexError, TypeError) as e:
            raise InvalidKernel(f"line {number} of a kernel cannot be read: {line!r}") from e
    if not name or not ended:
        raise InvalidKernel("a kernel starts with 'kernel NAME(DIMS)' and closes with 'end'")
    body = tuple(Region(kind, tuple(instrs)) for kind, instrs in regions)
    return Kernel(name, dims, tuple(buffers), tuple(scalars), body, over.strip(), tile, blocks)
