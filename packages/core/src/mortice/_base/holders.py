"""How many hold an object: what ``sys.getrefcount`` says less what the interpreter adds.

What counts depends on the version: 3.10 counts parameters and what lies on the value stack twice,
3.11 to 3.13 once; 3.14 borrows both and counts neither. So it is measured.
"""

from __future__ import annotations

import sys
from typing import Any


def counted(x: Any) -> int:
    """References to ``x`` as counted in here; to be called with a local variable."""
    return sys.getrefcount(x)


def _measured() -> int:
    fresh = object()
    return counted(fresh)


#: What ``counted`` gives for an object that one local variable holds and nobody else.
ONE_LOCAL = _measured()
