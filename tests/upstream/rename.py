"""PyTorch's names as ours, in Python source: ``__torch_function__`` is ``__mortice_function__``."""

from __future__ import annotations

import io
import re
import tokenize

_PARTS = (
    ("torch_function", "mortice_function"),
    ("torch_dispatch", "mortice_dispatch"),
    ("TorchFunction", "MorticeFunction"),
    ("TorchDispatch", "MorticeDispatch"),
)
#: In text, ``torch`` as a word; what error messages and logs call us by our own name.
_WORD = re.compile(r"(?<![\w/.-])torch(?![\w/])")


def name(text: str) -> str:
    """One identifier."""
    for theirs, ours in _PARTS:
        text = text.replace(theirs, ours)
    return text


def words(text: str) -> str:
    """A string literal: identifiers, and our name; programs for another process stay as they are."""
    if "import torch" in text:
        return text
    text = text.replace("torch._ops.", "mortice.ops.")
    return _WORD.sub("mortice", name(text))


def source(text: str) -> str:
    """A module. Only identifiers and string literals change, so that line numbers stay."""
    out: list[tokenize.TokenInfo] = []
    middle = getattr(tokenize, "FSTRING_MIDDLE", -1)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            token = token._replace(string=name(token.string))
        elif token.type in (tokenize.STRING, middle):
            token = token._replace(string=words(token.string))
        out.append(token)
    return tokenize.untokenize((t.type, t.string) for t in out)
