"""Functions that Python calls, made as machine code: no tuple of arguments, no frame.

``layout`` says whether this interpreter's objects lie where the code expects them, ``code`` writes
the LLVM text of one vectorcall function, ``function`` makes the Python object that runs it. The
text names no address: constants come from a table that the function object carries, so the object
code is cached on disk as any kernel's.
"""

from __future__ import annotations

from .code import Code
from .function import give_back, make, take_over
from .layout import unsupported

__all__ = ["Code", "give_back", "make", "take_over", "unsupported"]
