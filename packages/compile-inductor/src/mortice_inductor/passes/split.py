"""Large reductions in two stages: blocks first, then over the blocks.

A reduction down columns would touch another page at every step; in blocks of some rows a page
serves all columns before the next is needed (3 to 5 times as fast from 500 rows on), rounding
errors stay small, and there are more rows to share out to threads. A reduction of everything has
one row, so it is cut for the threads' sake. The cut depends on sizes alone: results do not depend on
the number of threads.
"""

from __future__ import annotations

import math

from ..ir.roots import Roots, replaced
from ..ir.values import Trace, Value

#: Reductions down columns are cut from this many steps and elements on, into blocks of at most so
#: many steps: 4 arrays then stay within the 64 pages of a first-level TLB.
STEPS, ELEMENTS, BLOCK = 64, 16384, (8, 16)
#: Those along rows, if there are fewer than ROWS, into parts of these lengths.
ROWS, LENGTH, PART = 16, 65536, (256, 16384)


def split_reductions(t: Trace, roots: Roots) -> Roots:
    """The roots with large reductions in two stages."""
    return replaced(t, roots, {}, lambda v: _split(t, v) if v.op == "reduce" else None)


def _split(t: Trace, v: Value) -> Value | None:
    how, dims = v.attr
    shape = v.args[0].shape
    first, last = dims[0], dims[-1]
    if how.startswith("arg") or last - first + 1 != len(dims):
        return None
    count = math.prod(shape[d] for d in dims)
    after = math.prod(shape[last + 1 :])
    total = v.args[0].numel
    if after > 1 and count >= STEPS and total >= ELEMENTS:
        size = _divisor(count, *BLOCK)
    elif after == 1 and v.numel < ROWS and count >= LENGTH:
        size = _divisor(count, *PART)
    else:
        return None
    if not size:
        return None
    cut = (*shape[:first], count // size, size, *shape[last + 1 :])
    blocks = t.reduce(how, (first + 1,), *(t.reshape(a, cut) for a in v.args))
    return t.reduce("sum" if how == "dot" else how, (first,), blocks)


def _divisor(n: int, low: int, high: int) -> int:
    """The greatest divisor of ``n`` from ``low`` to ``high``, or 0."""
    if high - low > 32:  # of a symbolic number so many questions would be asked: it is fixed
        n = int(n)
    return next((k for k in range(min(high, n), low - 1, -1) if n % k == 0), 0)
