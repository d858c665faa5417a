"""Where the observer runs: it has a table of instructions for each Python that it knows."""

from __future__ import annotations

import sys

import pytest

from mortice._capture.observer import decode

#: Elsewhere compiled calls always run, which other tests see to.
supported = pytest.mark.skipif(
    sys.version_info[:2] not in decode.VERSIONS, reason="no opcode table for this Python"
)
