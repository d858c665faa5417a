"""Inductor's recorder for the fuzzers."""

from __future__ import annotations


def record_natively() -> None:
    """Let inductor's recorder serve all calls from the third on."""
    from mortice._capture import compiled
    from mortice._capture.kernels import install_recorder
    from mortice_inductor.plugin import native_recorder

    compiled.NATIVE_AFTER = 2
    install_recorder(native_recorder)
