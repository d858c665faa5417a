"""The Redis store in examples/, against a real Redis server (Debian's package redis-server)."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mortice
import mortice.distributed as dist
from mortice import errors
from mortice_testing.distributed.gang import Gang, held_port
from mortice_testing.distributed.store_contract import *  # noqa: F403
from mortice_testing.distributed.words import PATIENCE

SOURCE = Path(__file__).resolve().parent.parent / "examples" / "dowel-store" / "src"

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("there is no redis-server: apt install redis-server")
    pytest.importorskip("redis", reason="pip install redis")
    held = held_port()
    number = held.getsockname()[1]
    folder = tmp_path_factory.mktemp("redis")
    options = ["--port", str(number), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    server = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL)
    end = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", number), 1).close()
            break
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.05)
    yield number
    server.terminate()
    server.wait(PATIENCE)
    held.close()


@pytest.fixture(scope="module")
def dowel() -> Iterator[Any]:
    sys.path.insert(0, str(SOURCE))
    import dowel_store

    yield dowel_store
    sys.path.remove(str(SOURCE))


@pytest.fixture
def stores(port: int, dowel: Any, request: pytest.FixtureRequest) -> Iterator[tuple[Any, Any]]:
    made = [
        dowel.RedisStore("127.0.0.1", port, namespace=request.node.name, timeout=PATIENCE)
        for _ in range(2)
    ]
    yield made[0], made[1]
    for one in made:
        one.close()


def test_a_server_that_is_not_there(dowel: Any) -> None:
    with held_port() as held:
        store = dowel.RedisStore("127.0.0.1", held.getsockname()[1], timeout=0.3)
        with pytest.raises(errors.DistStoreError, match="does not answer"):
            store.set("k", "v")


def meets(rank: int, size: int, source: str, url: str) -> float:
    sys.path.insert(0, source)
    import dowel_store  # noqa: F401

    dist.init_process_group("gloo", url, rank=rank, world_size=size, timeout=PATIENCE)
    t = mortice.ones(1)
    dist.all_reduce(t)
    dist.destroy_process_group()
    return t.item()


def test_ranks_meet_there(port: int, dowel: Any) -> None:
    with Gang(2) as gang:
        url = f"redis://127.0.0.1:{port}/job"
        assert gang.run(meets, str(SOURCE), url) == [2.0, 2.0]
