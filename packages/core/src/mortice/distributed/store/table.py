"""The table itself, in memory: what HashStore is, and what the server of TCPStore keeps."""

from __future__ import annotations

from collections.abc import Sequence

from .base import number


class Table:
    """Keys and values; not for several threads at once."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def set(self, key: str, value: bytes) -> None:
        self.values[key] = value

    def get(self, key: str) -> bytes | None:
        return self.values.get(key)

    def add(self, key: str, amount: int) -> int:
        total = number(key, self.values.get(key, b"0")) + amount
        self.values[key] = str(total).encode()
        return total

    def append(self, key: str, value: bytes) -> None:
        self.values[key] = self.values.get(key, b"") + value

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        found = self.values.get(key)
        if found == expected or (found is None and not expected):
            self.values[key] = desired
            return desired
        return expected if found is None else found

    def delete(self, key: str) -> bool:
        return self.values.pop(key, None) is not None

    def missing(self, keys: Sequence[str]) -> list[str]:
        return [key for key in keys if key not in self.values]
