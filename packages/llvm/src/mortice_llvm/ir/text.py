"""Prints a kernel as text; ``parse`` reads it back to an equal kernel."""

from __future__ import annotations

from .nodes import Instr, Kernel

# Operations whose attribute is a name, not a constant.
NAMING = ("load", "store", "load_at", "store_at", "param", "index")


def _literal(value: object) -> str:
    """A constant as text that ``float`` or ``int`` reads back exactly."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


def _instr(i: Instr) -> str:
    operands = [f"%{a}" for a in i.args]
    if i.attr is not None:
        named = i.op in NAMING
        operands.insert(0, str(i.attr) if named else _literal(i.attr))
    left = "" if i.id < 0 else f"%{i.id} = "
    return f"  {left}{i.op} {i.dtype} {', '.join(operands)}".rstrip()


def text(kernel: Kernel) -> str:
    """Returns the kernel's text: a head line, parameters, regions, ``end``."""
    over = f"; {kernel.over}" if kernel.over else ""
    tile = f" tile {kernel.tile}" if kernel.tile > 1 else ""
    blocks = " blocks" if kernel.blocks else ""
    lines = [f"kernel {kernel.name}({', '.join(kernel.dims)}{over}){tile}{blocks}"]
    lines += [
        f"  {b.mode} {b.name} {b.dtype} [{', '.join(map(str, b.strides))}]" for b in kernel.buffers
    ]
    lines += [f"  scalar {s.name} {s.dtype}" for s in kernel.scalars]
    for region in kernel.regions:
        lines.append(region.kind)
        lines += map(_instr, region.instrs)
    return "\n".join([*lines, "end", ""])
