"""Functions made of text, whose code may be there already: from an earlier process."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType
from typing import Any

try:
    from _blake2 import blake2b  # hashlib would load OpenSSL first
except ImportError:
    from hashlib import blake2b

#: Gives code, for marshal, by the hash of its text; None where there is none.
Codes = Callable[[bytes], "bytes | None"]


def code_of(text: str, file: str) -> CodeType:
    """The code of the one function that a text defines."""
    module = compile(text, file, "exec")
    return next(x for x in module.co_consts if isinstance(x, CodeType))


def made_of(text: str, file: str, names: dict[str, Any], known: Codes | None) -> Any:
    """The function that a text defines, with ``names`` as its globals; ``text`` is its attribute.

    It has no defaults. ``names`` has ``__builtins__`` where it uses any.
    """
    kept = None if known is None else known(hash_of(text.encode()))
    code = code_of(text, file) if kept is None else marshal.loads(kept)  # noqa: S302  our own
    made: Any = FunctionType(code, names)
    made.text = text
    return made


def codes_of(functions: Iterable[Any]) -> dict[bytes, bytes]:
    """What ``made_of`` is to be given for the same texts, in this version of Python."""
    return {hash_of(f.text.encode()): marshal.dumps(f.__code__, 4) for f in functions}


def hash_of(data: bytes) -> bytes:
    """A hash of 16 bytes. What it is of is the user's own: nobody forges it."""
    return blake2b(data, digest_size=16).digest()
