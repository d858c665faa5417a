"""Tests named test_parity_* import PyTorch: they exist only where it is installed."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") is not None else ["test_parity_*.py"]
