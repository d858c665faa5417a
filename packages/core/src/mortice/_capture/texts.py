"""Functions made of text, whose code may be there already: from an earlier process."""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Mapping
from types import CodeType, FunctionType
from typing import Any

try:
    from _blake2 import blake2b  # hashlib would load OpenSSL first
except ImportError:
    from hashlib import blake2b

#: Code, for marshal, by the hash of its text.
Codes = Mapping[bytes, bytes]


def code_of(text: str, file: str) -> CodeType:
    """The code of the one function that a text defines."""
    module = compile(text, file, "exec")
    return next(x for x in module.co_consts if isinstance(x, CodeType))


def made_of(text: str, file: str, names: dict[str, Any], known: Codes) -> Any:
    """The function that a text defines, with ``names`` as its globals; ``text`` is its attribute."""
    kept = known.get(_hash(text)) if known else None
    code = code_of(text, file) if kept is None else marshal.loads(kept)  # noqa: S302  our own
    made: Any = FunctionType(code, names)
    made.text = text
    return made


def codes_of(functions: Iterable[Any]) -> dict[bytes, bytes]:
    """What ``made_of`` takes for functions of the same texts in this version of Python."""
    return {_hash(f.text): marshal.dumps(f.__code__, 4) for f in functions}


def _hash(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16).digest()
