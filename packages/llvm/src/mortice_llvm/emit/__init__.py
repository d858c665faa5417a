"""From loop IR to LLVM text: vectors are spelt out, so that no LLVM pass has to find them."""

from __future__ import annotations

from .kernel import emit_kernel, emit_module

__all__ = ["emit_kernel", "emit_module"]
