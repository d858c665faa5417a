"""A store for ``mortice.distributed`` in a Redis server, written as a third party would.

::

    import dowel_store  # teaches mortice what redis:// is

    dist.init_process_group("gloo", init_method="redis://cache:6379/job-7", rank=..., world_size=...)
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlparse

import redis

from mortice.distributed import Store, register_rendezvous_handler
from mortice.errors import DistStoreError, InvalidValue, StoreTimeout

__all__ = ["RedisStore"]
__version__ = "0.1.0"

_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.05

# What PyTorch's stores do in one step, Redis does in a script.
_COMPARE_SET = """
local found = redis.call('GET', KEYS[1])
if found == ARGV[1] or (not found and ARGV[1] == '') then
  redis.call('SET', KEYS[1], ARGV[2])
  return ARGV[2]
end
return found or ARGV[1]
"""


class RedisStore(Store):
    """Keys live in the server under ``namespace:``. Several jobs may share a server."""

    def __init__(
        self, host: str, port: int = 6379, namespace: str = "mortice", timeout: Any = 300.0
    ) -> None:
        super().__init__(timeout)
        self._prefix = f"{namespace}:"
        self._client = redis.Redis(host, port)
        self._compare_set = self._client.register_script(_COMPARE_SET)

    def _key(self, key: str) -> str:
        return self._prefix + key

    def _ask(self, command: Any, *arguments: Any) -> Any:
        try:
            return command(*arguments)
        except redis.exceptions.ResponseError as error:
            raise InvalidValue(f"Redis: the value is no number, or too large: {error}") from error
        except redis.exceptions.RedisError as error:
            raise DistStoreError(f"the Redis server does not answer: {error}") from error

    def set(self, key: str, value: str | bytes) -> None:
        self._ask(self._client.set, self._key(key), _checked(value))

    def get(self, key: str) -> bytes:
        self.wait([key])
        found = self._ask(self._client.get, self._key(key))
        if found is None:
            raise StoreTimeout(f"RedisStore: {key!r} was deleted meanwhile", (key,))
        return found

    def add(self, key: str, amount: int) -> int:
        return int(self._ask(self._client.incrby, self._key(key), amount))

    def append(self, key: str, value: str | bytes) -> None:
        self._ask(self._client.append, self._key(key), _checked(value))

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        return self._ask(
            self._compare_set, [self._key(key)], [_checked(expected), _checked(desired)]
        )

    def delete_key(self, key: str) -> bool:
        return bool(self._ask(self._client.delete, self._key(key)))

    def num_keys(self) -> int:
        return sum(1 for _ in self._ask(self._client.scan_iter, f"{self._prefix}*"))

    def check(self, keys: Sequence[str]) -> bool:
        return not self._missing(keys)

    def wait(self, keys: Sequence[str], timeout: timedelta | float | None = None) -> None:
        limit = self.timeout if timeout is None else timeout
        seconds = limit.total_seconds() if isinstance(limit, timedelta) else limit
        end, pause = time.monotonic() + seconds, _FIRST_PAUSE
        while missing := self._missing(keys):
            left = end - time.monotonic()
            if left <= 0:
                named = ", ".join(map(repr, missing))
                raise StoreTimeout(
                    f"RedisStore: timed out after {seconds:g} s waiting for keys: {named}",
                    tuple(missing),
                )
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _missing(self, keys: Sequence[str]) -> list[str]:
        if not keys:
            return []
        pipeline = self._client.pipeline()
        for key in keys:
            pipeline.exists(self._key(key))
        return [key for key, there in zip(keys, self._ask(pipeline.execute)) if not there]

    def close(self) -> None:
        self._client.close()


def _checked(value: Any) -> Any:
    if isinstance(value, (str, bytes)):
        return value
    from mortice.errors import ArgumentError

    raise ArgumentError(f"a store keeps str and bytes, found {type(value).__name__}.")


def _meet(url: str, rank: int, world_size: int, timeout: float) -> tuple[Store, int, int]:
    """``redis://host:port/namespace?rank=0&world_size=2``."""
    parsed = urlparse(url)
    words = {key: int(values[-1]) for key, values in parse_qs(parsed.query).items()}
    rank = words.get("rank", rank)
    world_size = words.get("world_size", world_size)
    if rank < 0 or world_size < 1 or not parsed.hostname:
        raise InvalidValue(f"init_method {url!r}: host, rank and world_size are needed.")
    namespace = parsed.path.strip("/") or "mortice"
    store = RedisStore(parsed.hostname, parsed.port or 6379, namespace, timeout)
    return store, rank, world_size


register_rendezvous_handler("redis", _meet)
