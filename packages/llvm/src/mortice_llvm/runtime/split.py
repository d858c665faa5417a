"""Cuts a module's text into modules that LLVM can compile at the same time, and their objects' pack.

Nothing is inlined across functions (no LLVM pass over IR is run), so where a function stands does
not matter for its code: a call from another part costs one jump more.
"""

from __future__ import annotations

import re
import struct

from ..errors import LoadError

#: Characters of text in a part at least: 15 ms of LLVM's time, far more than a thread costs.
LEAST = 24_000

_FUNCTION = re.compile(r"^define .*?^}\n", re.DOTALL | re.MULTILINE)
_MAGIC = b"MRTPACK\n"


def split(text: str, most: int) -> list[str]:
    """At most ``most`` modules which together define what ``text`` does, of about equal size.

    A module with variables stays whole: each part would have its own.
    """
    count = min(most, len(text) // LEAST)
    if count < 2 or " global " in text:
        return [text]
    functions = _FUNCTION.findall(text)
    if len(functions) < 2:
        return [text]
    rest = _FUNCTION.sub("", text)
    shares: list[list[int]] = [[] for _ in range(count)]
    sizes = [0] * count
    for k in sorted(range(len(functions)), key=lambda k: -len(functions[k])):
        least = sizes.index(min(sizes))
        shares[least].append(k)
        sizes[least] += len(functions[k])
    declared = [_declaration(f) for f in functions]
    return [_part(rest, functions, declared, set(share)) for share in shares if share]


def _part(rest: str, functions: list[str], declared: list[str], share: set[int]) -> str:
    body = [
        f.replace("define internal ", "define ", 1) if k in share else declared[k]
        for k, f in enumerate(functions)
    ]
    return rest + "".join(body)


def _declaration(function: str) -> str:
    head = function[: function.index("{\n")]
    return head.replace("define internal ", "declare ", 1).replace("define ", "declare ", 1) + "\n"


def pack(objects: list[bytes]) -> bytes:
    """One entry for the cache: a single object is its own."""
    if len(objects) == 1:
        return objects[0]
    sizes = struct.pack(f"<{len(objects) + 1}Q", len(objects), *map(len, objects))
    return _MAGIC + sizes + b"".join(objects)


def unpack(entry: bytes) -> list[bytes]:
    """The objects of an entry; LoadError where it is damaged."""
    if not entry.startswith(_MAGIC):
        return [entry]
    try:
        (count,) = struct.unpack_from("<Q", entry, len(_MAGIC))
        sizes = struct.unpack_from(f"<{count}Q", entry, len(_MAGIC) + 8)
    except (struct.error, MemoryError) as e:
        raise LoadError(f"the pack of objects is damaged: {e}") from e
    at, objects = len(_MAGIC) + 8 * (count + 1), []
    if at + sum(sizes) != len(entry):
        raise LoadError("the pack of objects is cut short")
    for size in sizes:
        objects.append(entry[at : at + size])
        at += size
    return objects
