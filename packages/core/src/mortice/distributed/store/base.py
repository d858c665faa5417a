"""What a store is: a small table of bytes that all ranks see, on which groups are built."""

from __future__ import annotations

import operator
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import wraps
from typing import Any

from mortice.errors import ArgumentError, InvalidValue, StoreTimeout

DEFAULT_TIMEOUT = timedelta(seconds=300)

Value = "str | bytes | bytearray | memoryview"


class Store(ABC):
    """Keys are text, values bytes. ``get`` and ``wait`` wait for keys that are not there yet.

    A new kind of store implements the abstract methods; tests/distributed/test_stores.py says
    what each must do. All of them raise StoreTimeout, which names the keys, after ``timeout``, and
    DistStoreError where the table cannot be reached. Keys and amounts are checked here, for all kinds.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in (*_ONE_KEY, *_MANY_KEYS):
            if name in cls.__dict__:
                setattr(cls, name, _checked(name, cls.__dict__[name]))

    def __init__(self, timeout: timedelta | float = DEFAULT_TIMEOUT) -> None:
        self._timeout = seconds(timeout)

    @property
    def timeout(self) -> timedelta:
        """How long ``get`` and ``wait`` wait."""
        return timedelta(seconds=self._timeout)

    def set_timeout(self, timeout: timedelta | float) -> None:
        self._timeout = seconds(timeout)

    # -- one key ---------------------------------------------------------------------------------

    @abstractmethod
    def set(self, key: str, value: str | bytes) -> None:
        """Set the value of ``key``."""

    @abstractmethod
    def get(self, key: str) -> bytes:
        """The value of ``key``; waits until there is one."""

    @abstractmethod
    def add(self, key: str, amount: int) -> int:
        """Add to the decimal number in ``key`` (0 if there is none); returns the sum."""

    @abstractmethod
    def append(self, key: str, value: str | bytes) -> None:
        """Put bytes behind the value of ``key``."""

    @abstractmethod
    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Set ``desired`` if the value is ``expected``, or if that is empty and there is no key.

        Returns the value afterwards; ``expected`` where there is no key and it was not empty.
        """

    @abstractmethod
    def delete_key(self, key: str) -> bool:
        """Remove ``key``; returns whether it was there."""

    # -- all keys --------------------------------------------------------------------------------

    @abstractmethod
    def num_keys(self) -> int:
        """How many keys there are, those of other prefixes included."""

    @abstractmethod
    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys are there, without waiting."""

    @abstractmethod
    def wait(self, keys: Sequence[str], timeout: timedelta | float | None = None) -> None:
        """Wait until all keys are there."""

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of several keys; waits until all are there."""
        self.wait(keys)
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Set several keys."""
        if len(keys) != len(values):
            raise InvalidValue(
                f"multi_set: {len(keys)} keys and {len(values)} values; give one for each."
            )
        for key, value in zip(keys, values):
            self.set(key, value)

    def has_extended_api(self) -> bool:
        return True

    # -- what outlives its writer ----------------------------------------------------------------

    def leave_will(self, key: str, value: str | bytes) -> bool:
        """Let ``value`` be appended to ``key`` when this process ends before ``revoke_will``,
        however it ends.

        Returns False where a store cannot notice that; ranks are then only missed by time.
        """
        return False

    def revoke_will(self, key: str) -> None:  # noqa: B027 - where there are no wills
        """Take back what ``leave_will`` said."""

    def close(self) -> None:  # noqa: B027 - some have nothing to give back
        """Give connections and files back. The store is not usable afterwards."""


# Methods by what comes first.
_ONE_KEY = ("set", "get", "add", "append", "compare_set", "delete_key", "leave_will", "revoke_will")
_MANY_KEYS = ("check", "wait", "multi_get", "multi_set")


def _checked(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """A store's method that looks at its keys, and at the amount of ``add``, before it begins."""
    first, check = ("key", _key) if name in _ONE_KEY else ("keys", _keys)

    @wraps(method)
    def checked(self: Store, *values: Any, **named: Any) -> Any:
        if values:
            values = (check(name, values[0]), *values[1:])
        elif first in named:
            named[first] = check(name, named[first])
        if name == "add":
            _amount(values[1] if len(values) > 1 else named.get("amount", 0))
        return method(self, *values, **named)

    return checked


def _key(where: str, key: Any) -> str:
    if not isinstance(key, str):
        raise ArgumentError(f"{where}: a key is text, found {type(key).__name__}.")
    return key


def _keys(where: str, keys: Any) -> list[str]:
    if isinstance(keys, (str, bytes)) or not isinstance(keys, Iterable):
        raise ArgumentError(
            f"{where}: expected a list of keys, found {type(keys).__name__}; write [{keys!r}]."
        )
    return [_key(where, key) for key in keys]  # pyright: ignore[reportUnknownVariableType]


def _amount(amount: Any) -> None:
    try:
        operator.index(amount)
    except TypeError:
        raise ArgumentError(f"add: expected an integer, found {amount!r}.") from None


for _name in ("leave_will", "revoke_will", "multi_get", "multi_set"):  # those that Store has itself
    setattr(Store, _name, _checked(_name, getattr(Store, _name)))


def seconds(timeout: timedelta | float) -> float:
    """A time limit in seconds; ArgumentError for what is none, InvalidValue below zero."""
    if isinstance(timeout, timedelta):
        value = timeout.total_seconds()
    elif isinstance(timeout, (int, float)) and not isinstance(timeout, bool):
        value = float(timeout)
    else:
        raise ArgumentError(
            f"timeout: expected a datetime.timedelta or seconds, found {type(timeout).__name__}."
        )
    if not value >= 0:
        raise InvalidValue(f"timeout: {timeout!r} is negative.")
    return value


def as_bytes(value: str | bytes) -> bytes:
    """A value as it is kept."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise ArgumentError(f"a store keeps str and bytes, found {type(value).__name__}.")


def number(key: str, value: bytes) -> int:
    """The number in a value, for ``add``."""
    try:
        return int(value)
    except ValueError:
        raise InvalidValue(f"add: the value of {key!r} is {value[:40]!r}, no number.") from None


def timed_out(where: str, timeout: float, missing: Sequence[str]) -> StoreTimeout:
    """The error for keys that did not appear."""
    shown = ", ".join(repr(key) for key in missing[:8])
    more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
    return StoreTimeout(
        f"{where}: timed out after {timeout:g} s waiting for keys: {shown}{more}. "
        "Whoever was to set them has not come this far, or is gone.",
        tuple(missing),
    )


class Deadline:
    """The end of a time limit."""

    __slots__ = ("at", "limit")

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.at = time.monotonic() + limit

    def left(self) -> float:
        """Seconds that are left; 0 when there are none."""
        return max(0.0, self.at - time.monotonic())
