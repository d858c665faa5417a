"""CRC-32 of large data, computed by several threads or beside other work.

zlib computes it at about 7 GB/s and lets go of the interpreter meanwhile; a gigabyte of checkpoint
still costs a seventh of a second, which threads hide.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Sequence
from typing import Any

_POLYNOMIAL = 0xEDB88320


def combine(first: int, second: int, length: int) -> int:
    """The CRC-32 of two pieces in a row, from theirs and the length of the second.

    Algorithm: zlib's crc32_combine. Appending ``length`` zero bytes is linear over GF(2), so it is
    a 32 x 32 bit matrix, made by squaring the one for a single zero bit.
    """
    if not length:
        return first
    matrix = [_POLYNOMIAL, *(1 << bit for bit in range(31))]  # one zero bit
    matrix = _square(_square(matrix))  # four
    while length:
        matrix = _square(matrix)  # eight, then twice as many each time
        if length & 1:
            first = _times(matrix, first)
        length >>= 1
    return first ^ second


def _times(matrix: Sequence[int], vector: int) -> int:
    total, row = 0, 0
    while vector:
        if vector & 1:
            total ^= matrix[row]
        vector >>= 1
        row += 1
    return total


def _square(matrix: Sequence[int]) -> list[int]:
    return [_times(matrix, row) for row in matrix]


class Beside:
    """The CRC-32 of ``view``, computed by a thread while the caller does something else."""

    def __init__(self, view: memoryview) -> None:
        self._crc = 0
        self._view = view
        self._thread = threading.Thread(target=self._run, name="mortice-crc32")
        self._thread.start()

    def _run(self) -> None:
        self._crc = zlib.crc32(self._view)

    def result(self) -> int:
        """Wait for it."""
        self._thread.join()
        return self._crc


def in_parts(parts: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run each of ``parts`` in a thread of its own (the first in this one); their results in order.

    Raises what the first of them that failed raised, after all have ended.
    """
    results: list[Any] = [None] * len(parts)
    errors: list[BaseException | None] = [None] * len(parts)

    def run(index: int) -> None:
        try:
            results[index] = parts[index]()
        except BaseException as error:
            errors[index] = error

    threads = [
        threading.Thread(target=run, args=(index,), name="mortice-load")
        for index in range(1, len(parts))
    ]
    for thread in threads:
        thread.start()
    run(0)
    for thread in threads:
        thread.join()
    for error in errors:
        if error is not None:
            raise error
    return results
