"""What TCPStore's clients and server say to each other: lists of byte strings with a length.

A message is its total length and then each part with its own. The first part of a request is one
of the words below; the first of an answer is ``ok``, ``late`` (then the missing keys) or ``bad``
(then a text).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

_LENGTH = struct.Struct("<I")
HELLO = b"mortice store 1"
LARGEST = 1 << 30

OK, LATE, BAD = b"ok", b"late", b"bad"


def pack(parts: Sequence[bytes]) -> bytes:
    """The message made of ``parts``."""
    body = b"".join(_LENGTH.pack(len(part)) + part for part in parts)
    return _LENGTH.pack(len(body)) + body


def unpack(body: bytes) -> list[bytes]:
    """The parts of a message whose total length has been taken off; ValueError if it is damaged."""
    parts: list[bytes] = []
    at = 0
    while at < len(body):
        (length,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        if at + length > len(body):
            raise ValueError("a part reaches past the end of its message")
        parts.append(body[at : at + length])
        at += length
    return parts


def take(buffer: bytearray) -> list[bytes] | None:
    """The first whole message at the head of ``buffer``, taken out of it; None if there is none."""
    if len(buffer) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(buffer)
    if length > LARGEST:
        raise ValueError(f"a message of {length} bytes")
    end = _LENGTH.size + length
    if len(buffer) < end:
        return None
    parts = unpack(bytes(buffer[_LENGTH.size : end]))
    del buffer[:end]
    return parts
