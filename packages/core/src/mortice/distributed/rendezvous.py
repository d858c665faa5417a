"""Rendezvous: from ``env://``, ``tcp://`` or ``file://`` to a store, a rank and a world size."""

from __future__ import annotations

import os
from collections.abc import Callable
from urllib.parse import ParseResult, parse_qs, urlparse

from mortice.errors import InvalidValue, nearest

from .store import FileStore, PrefixStore, Store, TCPStore

Meeting = tuple[Store, int, int]
Handler = Callable[[str, int, int, float], Meeting]


def meet(url: str, rank: int, world_size: int, timeout: float) -> Meeting:
    """(store, rank, world size) for an ``init_method``; -1 for numbers that the URL must give."""
    parsed = urlparse(url)
    handler = _HANDLERS.get(parsed.scheme)
    if handler is None:
        known = [f"{scheme}://" for scheme in _HANDLERS]
        raise InvalidValue(
            f"init_method {url!r}: no such way to meet.{nearest(f'{parsed.scheme}://', known)} "
            f"Known: {', '.join(known)}."
        )
    return handler(url, rank, world_size, timeout)


def register_rendezvous_handler(scheme: str, handler: Handler) -> None:
    """Let ``init_method="scheme://..."`` call ``handler(url, rank, world_size, timeout)``, which
    returns (store, rank, world size); rank and world size are -1 where they were not given.
    """
    if scheme in _HANDLERS:
        raise InvalidValue(f"there is a handler for {scheme}:// already.")
    _HANDLERS[scheme] = handler


def check_rank(rank: int, world_size: int) -> None:
    """Raise InvalidValue for a rank that a world of this size does not have: before any waiting."""
    if world_size < 1:
        raise InvalidValue(f"init_process_group: world size is {world_size}; expected 1 or more.")
    if not 0 <= rank < world_size:
        raise InvalidValue(
            f"init_process_group: rank {rank} is not below world size {world_size}; ranks are 0 to "
            f"{world_size - 1}."
        )


def _query(parsed: ParseResult, url: str, rank: int, world_size: int) -> tuple[int, int]:
    """Rank and world size from the URL's query, where the arguments do not give them."""
    words = {key: values[-1] for key, values in parse_qs(parsed.query).items()}
    given = {"rank": rank, "world_size": world_size}
    for name, value in given.items():
        if value < 0:
            word = words.get(name)
            if word is None or not word.isdigit():
                raise InvalidValue(
                    f"init_method {url!r} needs {name}: pass {name}=, or put ?{name}=N into it."
                )
            given[name] = int(word)
    check_rank(given["rank"], given["world_size"])
    return given["rank"], given["world_size"]


def _tcp(url: str, rank: int, world_size: int, timeout: float) -> Meeting:
    parsed = urlparse(url)
    try:
        port = parsed.port
    except ValueError:  # no number, or above 65535
        port = None
    if not parsed.hostname or port is None:
        raise InvalidValue(f"init_method {url!r}: write tcp://HOST:PORT.")
    rank, world_size = _query(parsed, url, rank, world_size)
    return _tcp_store(parsed.hostname, port, rank, timeout), rank, world_size


def _tcp_store(host: str, port: int, rank: int, timeout: float, *, agent: bool = False) -> Store:
    serves = rank == 0 and not agent
    return TCPStore(host, port, is_master=serves, timeout=timeout, multi_tenant=True)


def _file(url: str, rank: int, world_size: int, timeout: float) -> Meeting:
    parsed = urlparse(url)
    path = f"{parsed.netloc}{parsed.path}"
    if not path:
        raise InvalidValue(f"init_method {url!r}: write file:///PATH.")
    rank, world_size = _query(parsed, url, rank, world_size)
    return FileStore(path, world_size, timeout), rank, world_size


def _variable(name: str, given: int) -> int:
    if given >= 0:
        return given
    text = os.environ.get(name)
    if text is None:
        missing = [n for n in _VARIABLES if n not in os.environ]
        raise InvalidValue(
            f"init_method env:// needs the environment variable {name}, which is not set "
            f"(not set: {', '.join(missing)}). `mortice run -n 4 script.py` sets them all."
        )
    try:
        return int(text)
    except ValueError:
        raise InvalidValue(f"the environment variable {name} is {text!r}, no number.") from None


_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def _env(url: str, rank: int, world_size: int, timeout: float) -> Meeting:
    rank = _variable("RANK", rank)
    world_size = _variable("WORLD_SIZE", world_size)
    check_rank(rank, world_size)
    host = os.environ.get("MASTER_ADDR", "")
    if not host:
        _variable("MASTER_ADDR", -1)
    port = _variable("MASTER_PORT", -1)
    # Under a launcher the store is served by it and outlives a gang; each restart has its part.
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = _tcp_store(host, port, rank, timeout, agent=agent)
    if agent:
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = PrefixStore(f"attempt/{attempt}", store)
    return store, rank, world_size


_HANDLERS: dict[str, Handler] = {"env": _env, "tcp": _tcp, "file": _file}
