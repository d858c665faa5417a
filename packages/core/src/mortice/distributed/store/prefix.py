"""PrefixStore: a part of another store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from mortice.errors import StoreTimeout

from .base import Store, seconds


class PrefixStore(Store):
    """Another store's table with ``prefix/`` before each key, so that users do not meet."""

    def __init__(self, prefix: str, store: Store) -> None:
        super().__init__(store.timeout)
        self.prefix = prefix
        self.underlying_store = store

    def _key(self, key: str) -> str:
        return f"{self.prefix}/{key}"

    def _keys(self, keys: Sequence[str]) -> list[str]:
        return [self._key(key) for key in keys]

    def set(self, key: str, value: str | bytes) -> None:
        self.underlying_store.set(self._key(key), value)

    def get(self, key: str) -> bytes:
        self.wait([key])
        return self.underlying_store.get(self._key(key))

    def add(self, key: str, amount: int) -> int:
        return self.underlying_store.add(self._key(key), amount)

    def append(self, key: str, value: str | bytes) -> None:
        self.underlying_store.append(self._key(key), value)

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        return self.underlying_store.compare_set(self._key(key), expected, desired)

    def delete_key(self, key: str) -> bool:
        return self.underlying_store.delete_key(self._key(key))

    def num_keys(self) -> int:
        return self.underlying_store.num_keys()

    def check(self, keys: Sequence[str]) -> bool:
        return self.underlying_store.check(self._keys(keys))

    def wait(self, keys: Sequence[str], timeout: timedelta | float | None = None) -> None:
        limit = self._timeout if timeout is None else seconds(timeout)
        try:
            self.underlying_store.wait(self._keys(keys), limit)
        except StoreTimeout as error:
            # The message has the full keys; the caller knows them without the prefix.
            bare = tuple(key[len(self.prefix) + 1 :] for key in error.keys)
            raise StoreTimeout(str(error), bare) from None

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        self.wait(keys)
        return self.underlying_store.multi_get(self._keys(keys))

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        self.underlying_store.multi_set(self._keys(keys), values)

    def leave_will(self, key: str, value: str | bytes) -> bool:
        return self.underlying_store.leave_will(self._key(key), value)

    def revoke_will(self, key: str) -> None:
        self.underlying_store.revoke_will(self._key(key))

    def close(self) -> None:
        """Close the store that this one is a part of."""
        self.underlying_store.close()
