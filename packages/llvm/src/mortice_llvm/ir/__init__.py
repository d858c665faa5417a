"""The loop IR: nodes, builder, printer, parser, verifier."""

from __future__ import annotations

from .build import Build, Expr
from .nodes import Buffer, Instr, Kernel, Region, Scalar
from .parse import parse
from .text import text
from .verify import verify

__all__ = [
    "Buffer",
    "Build",
    "Expr",
    "Instr",
    "Kernel",
    "Region",
    "Scalar",
    "parse",
    "text",
    "verify",
]
