"""Values that are known all the same: one-element tensors made of numbers inside a FakeTensorMode.

``mortice.tensor(3) + 1`` is fake there, and its ``item()`` is 4: operators on such tensors alone are run
on the real values, too, as long as nothing else writes to them.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from mortice._capture.fake_array import constant_of, is_fake
from mortice._dispatch import keys as K
from mortice._dispatch.operator import Kernel, Operator
from mortice._dispatch.state import THREAD, Guard, refresh


def applies(op: Operator) -> bool:
    """Whether an operator may give a known value: it takes tensors singly, and draws none."""
    arguments = op.schema.arguments
    return (
        bool(arguments)
        and arguments[0].type.is_tensor
        and not any(a.type.is_tensor and a.type.is_list for a in arguments)
        and op.schema.mutated in ((), (0,))
        and op.row.kind in ("kernel", "inplace", "composite", "view")
        and op.row.family not in ("random", "metadata")
        and op.name not in ("_local_scalar_dense", "resize_")
    )


@contextmanager
def _on_real_tensors() -> Generator[None, None, None]:
    modes, THREAD.fake_modes = THREAD.fake_modes, []
    refresh()
    try:
        with Guard(exclude=K.MODE | K.PYTHON | K.AUTOGRAD | K.RECORD):
            yield
    finally:
        THREAD.fake_modes = modes
        refresh()


def run(op: Operator, kernel: Kernel, args: Any) -> Any:
    """The fake result, with its value beside it where all arguments' are known."""
    given: list[Any] = []
    for x in args:
        value = constant_of(x) if is_fake(x) else x
        if value is None and x is not None:
            return kernel(*args)
        if is_fake(x) and value is not None and value.numel() != 1:
            return kernel(*args)
        given.append(value)
    result = kernel(*args)
    if not is_fake(result):
        return result
    with _on_real_tensors():
        if op.schema.mutated:
            given[0] = given[0].clone()
        value = op(*given)
    # The write is counted once the operator is done.
    result._a.constant = (value, result._version + len(op.schema.mutated))
    return result
