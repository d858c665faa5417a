"""Errors of this package. It stands without mortice's core, so it has its own base class."""

from __future__ import annotations


class KernelError(Exception):
    """Base of all errors raised by mortice_llvm."""


class InvalidKernel(KernelError, ValueError):
    """A loop-IR kernel, or its text, is not well formed."""


class UnknownKernel(KernelError, LookupError):
    """No kernel, scalar operation or dtype has that name."""


class CompileError(KernelError, RuntimeError):
    """LLVM refused the text, or the object needs a symbol that is not allowed."""


class LoadError(KernelError, RuntimeError):
    """An object file is damaged or uses a relocation outside the accepted ones."""


class NotAvailable(KernelError, NotImplementedError):
    """The operation exists, but not for this dtype or target."""


def nearest(name: str, known: list[str]) -> str:
    """Returns " Did you mean 'x'?" for the closest of ``known``, or an empty string."""
    from difflib import get_close_matches

    found = get_close_matches(name, known, 1)
    return f" Did you mean {found[0]!r}?" if found else ""
