"""What every store does: one contract, over all kinds and over parts of them."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mortice import errors
from mortice.distributed import FileStore, HashStore, PrefixStore, Store, TCPStore
from mortice_testing.distributed.gang import held_port
from mortice_testing.distributed.store_contract import *  # noqa: F403
from mortice_testing.distributed.words import PATIENCE

KINDS = ("hash", "file", "tcp", "prefix-hash", "prefix-file", "prefix-tcp")


def made(kind: str, folder: Path) -> tuple[Store, Store]:
    """Two users of one table."""
    if kind.startswith("prefix-"):
        first, second = made(kind.removeprefix("prefix-"), folder)
        return PrefixStore("part", first), PrefixStore("part", second)
    if kind == "hash":
        store = HashStore(timeout=PATIENCE)
        return store, store
    if kind == "file":
        path = folder / "store"
        return FileStore(path, 2, timeout=PATIENCE), FileStore(path, 2, timeout=PATIENCE)
    master = TCPStore("127.0.0.1", 0, is_master=True, timeout=PATIENCE)
    return master, TCPStore("127.0.0.1", master.port, timeout=PATIENCE)


@pytest.fixture(params=KINDS)
def stores(request: Any, tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    first, second = made(request.param, tmp_path)
    yield first, second
    for one in {id(second): second, id(first): first}.values():
        one.close()


# -- what is of one kind alone ------------------------------------------------------------------


def test_prefixes_do_not_meet() -> None:
    base = HashStore()
    one, two = PrefixStore("1", base), PrefixStore("2", base)
    one.set("k", "a")
    two.set("k", "b")
    assert (one.get("k"), two.get("k"), base.get("1/k")) == (b"a", b"b", b"a")
    with pytest.raises(errors.StoreTimeout, match="1/x") as caught:
        one.wait(["x"], 0)
    assert caught.value.keys == ("x",)


def test_many_clients() -> None:
    master = TCPStore("127.0.0.1", 0, is_master=True)
    clients = [TCPStore("127.0.0.1", master.port) for _ in range(50)]

    def work(client: TCPStore) -> None:
        for _ in range(20):
            client.add("n", 1)

    threads = [threading.Thread(target=work, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert master.get("n") == b"1000"
    for client in clients:
        client.close()
    master.close()


def test_a_port_in_use() -> None:
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(errors.DistNetworkError, match=f"port {port}") as caught:
            TCPStore("127.0.0.1", port, is_master=True, timeout=0.2)
        assert caught.value.errno == errno.EADDRINUSE


def test_a_port_that_becomes_free() -> None:
    other = socket.socket()
    other.bind(("", 0))
    other.listen()
    port = other.getsockname()[1]
    timer = threading.Timer(0.3, other.close)
    timer.start()
    store = TCPStore("127.0.0.1", port, is_master=True, timeout=PATIENCE)
    assert store.port == port
    store.close()
    timer.join()


def test_nobody_there() -> None:
    with held_port() as held:
        port = held.getsockname()[1]
        with pytest.raises(errors.DistNetworkError, match="no store answers"):
            TCPStore("127.0.0.1", port, timeout=0.2)


def test_masters_of_one_process_may_share() -> None:
    one = TCPStore("127.0.0.1", 0, is_master=True, multi_tenant=True)
    two = TCPStore("127.0.0.1", one.port, is_master=True, multi_tenant=True)
    one.set("k", "v")
    one.close()
    assert two.get("k") == b"v"
    two.close()


def test_the_master_waits_for_the_others() -> None:
    with pytest.raises(errors.StoreTimeout, match="1 of 2 users"):
        TCPStore("127.0.0.1", 0, 2, is_master=True, timeout=0.1)


def test_a_stranger_is_sent_away() -> None:
    master = TCPStore("127.0.0.1", 0, is_master=True)
    with socket.create_connection(("127.0.0.1", master.port)) as stranger:
        stranger.settimeout(PATIENCE)
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        try:
            assert stranger.recv(10) == b""
        except ConnectionResetError:
            pass
    master.set("k", "v")
    assert master.get("k") == b"v"
    master.close()


def test_the_server_goes() -> None:
    master = TCPStore("127.0.0.1", 0, is_master=True)
    client = TCPStore("127.0.0.1", master.port, timeout=PATIENCE)
    master.close()
    with pytest.raises(errors.DistError, match=str(client.port)):
        client.set("k", "v")
    client.close()
    with pytest.raises(errors.DistStoreError, match="closed"):
        client.set("k", "v")


@pytest.mark.parametrize("kind", ["file", "tcp", "prefix-tcp"])
@pytest.mark.parametrize("fork", [False, True])
def test_a_will_is_done_when_its_process_is_killed(kind: str, fork: bool, tmp_path: Path) -> None:
    ours, other = made(kind, tmp_path)
    where = other.underlying_store if isinstance(other, PrefixStore) else other
    how = (
        f"FileStore({where.path!r})"
        if isinstance(where, FileStore)
        else f'TCPStore("127.0.0.1", {where.port})'  # type: ignore[attr-defined]
    )
    code = f"""
    import os, time
    from mortice.distributed import FileStore, PrefixStore, TCPStore
    store = {f'PrefixStore("part", {how})' if kind.startswith("prefix") else how}
    assert store.leave_will("gone", "7,")
    if {fork}:
        if os.fork() == 0:
            time.sleep(600)  # a child that lives on does not keep the will from being done
    store.set("ready", "")
    time.sleep(600)
    """
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], start_new_session=True)
    try:
        ours.wait(["ready"])
        time.sleep(0.15)  # longer than a FileStore goes without looking
        assert not ours.check(["gone"])
        child.kill()
        assert ours.get("gone") == b"7,"
    finally:
        os.killpg(child.pid, signal.SIGKILL)  # and with it the child's child
        child.wait()
    for one in (other, ours):
        one.close()
    assert not list(tmp_path.glob("*will*"))


@pytest.mark.parametrize("kind", ["file", "tcp"])
def test_a_will_that_is_revoked(kind: str, tmp_path: Path) -> None:
    ours, other = made(kind, tmp_path)
    other.leave_will("gone", "7,")
    other.revoke_will("gone")
    other.close()
    with pytest.raises(errors.StoreTimeout):
        ours.wait(["gone"], 0.3)
    ours.close()
    assert not list(tmp_path.glob("*will*"))


def test_the_last_user_removes_the_file(tmp_path: Path) -> None:
    path = tmp_path / "store"
    one, two = FileStore(path, 2), FileStore(path, 2)
    one.set("k", "v")
    one.close()
    assert two.get("k") == b"v"
    two.close()
    assert not path.exists()


def test_a_record_cut_short_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "store"
    one = FileStore(path, timeout=0.2)
    one.set("k", "v")
    with path.open("ab") as file:
        file.write(b"S\x05\0\0\0\x99\0\0\0half")  # as if its writer had been killed
    two = FileStore(path, timeout=0.2)
    two.set("after", "x")
    assert (one.get("k"), one.get("after")) == (b"v", b"x")
    one.close()
    two.close()


def test_a_file_that_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(errors.DistStoreError, match="No such file"):
        FileStore(tmp_path / "absent" / "store")


def test_what_is_no_store_is_told_apart() -> None:
    """A server of something else; and arguments that name none."""
    with pytest.raises(errors.ArgumentError, match="'x'"):
        TCPStore("127.0.0.1", "x")  # type: ignore[arg-type]
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")
                connection.recv(1 << 16)

        thread = threading.Thread(target=answer)
        thread.start()
        port = server.getsockname()[1]
        with pytest.raises(errors.DistNetworkError, match="is no store of mortice's") as caught:
            TCPStore("127.0.0.1", port, timeout=PATIENCE)
        thread.join()
    assert ".." not in str(caught.value).replace("127.0.0.1", "")


@pytest.mark.parametrize("text", [b"S", b"Some text that is no log", b"\0" * 64, b"D" * 64])
def test_a_file_of_something_else_is_left_alone(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(text)
    if text == b"S":  # as far as it goes it may be one, whose writer was killed
        FileStore(path).close()
        return
    with pytest.raises(errors.DistStoreError, match="is no store"):
        FileStore(path)
    assert path.read_bytes() == text
