"""What every store does: one contract, over all kinds and over parts of them."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mortice import errors
from mortice.distributed import FileStore, HashStore, PrefixStore, Store, TCPStore

KINDS = ("hash", "file", "tcp", "prefix-hash", "prefix-file", "prefix-tcp")


def made(kind: str, folder: Path) -> tuple[Store, Store]:
    """Two users of one table."""
    if kind.startswith("prefix-"):
        first, second = made(kind.removeprefix("prefix-"), folder)
        return PrefixStore("part", first), PrefixStore("part", second)
    if kind == "hash":
        store = HashStore(timeout=0.3)
        return store, store
    if kind == "file":
        path = folder / "store"
        return FileStore(path, 2, timeout=0.3), FileStore(path, 2, timeout=0.3)
    master = TCPStore("127.0.0.1", 0, is_master=True, timeout=0.3)
    return master, TCPStore("127.0.0.1", master.port, timeout=0.3)


@pytest.fixture(params=KINDS)
def stores(request: Any, tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    first, second = made(request.param, tmp_path)
    yield first, second
    for one in {id(second): second, id(first): first}.values():
        one.close()


def test_set_and_get(stores: tuple[Store, Store]) -> None:
    a, b = stores
    a.set("text", "è")
    a.set("bytes", b"\0\xff")
    a.set("empty", b"")
    assert (b.get("text"), b.get("bytes"), b.get("empty")) == ("è".encode(), b"\0\xff", b"")
    b.set("text", "other")
    assert a.get("text") == b"other"


def test_a_large_value(stores: tuple[Store, Store]) -> None:
    a, b = stores
    value = bytes(range(256)) * 4096
    a.set("large", value)
    assert b.get("large") == value


def test_add(stores: tuple[Store, Store]) -> None:
    a, b = stores
    assert [a.add("n", 2), b.add("n", 3), a.add("n", -7), b.add("n", 0)] == [2, 5, -2, -2]
    assert b.get("n") == b"-2"
    a.set("n", "41")
    assert b.add("n", 1) == 42


def test_add_to_what_is_no_number(stores: tuple[Store, Store]) -> None:
    a, b = stores
    a.set("word", "x")
    with pytest.raises(errors.InvalidValue, match="no number"):
        b.add("word", 1)
    assert a.get("word") == b"x"  # and the connection still works


def test_append(stores: tuple[Store, Store]) -> None:
    a, b = stores
    a.append("log", "one,")
    b.append("log", b"two,")
    assert a.get("log") == b"one,two,"


def test_compare_set(stores: tuple[Store, Store]) -> None:
    a, b = stores
    assert a.compare_set("k", "", "first") == b"first"
    assert b.compare_set("k", "", "second") == b"first"
    assert b.compare_set("k", "first", "second") == b"second"
    assert a.get("k") == b"second"
    assert a.compare_set("absent", "expected", "new") == b"expected"
    assert not a.check(["absent"])


def test_delete(stores: tuple[Store, Store]) -> None:
    a, b = stores
    a.set("k", "v")
    assert b.delete_key("k")
    assert not a.delete_key("k")
    assert not a.check(["k"])


def test_count_and_check(stores: tuple[Store, Store]) -> None:
    a, b = stores
    before = b.num_keys()
    a.set("x", "1")
    a.set("x", "2")
    a.add("y", 1)
    assert b.num_keys() == before + 2
    assert b.check(["x", "y"])
    assert not b.check(["x", "z"])
    assert b.check([])


def test_several_at_once(stores: tuple[Store, Store]) -> None:
    a, b = stores
    a.multi_set(["p", "q"], ["1", b"2"])
    assert b.multi_get(["q", "p", "q"]) == [b"2", b"1", b"2"]
    with pytest.raises(errors.InvalidValue, match="1 keys and 2 values"):
        a.multi_set(["p"], ["1", "2"])


def test_waits_for_what_is_set_later(stores: tuple[Store, Store]) -> None:
    a, b = stores
    a.set("there", "0")
    timer = threading.Timer(0.05, a.multi_set, (["later", "last"], ["1", "2"]))
    timer.start()
    b.wait(["there", "later", "last"], 5)
    assert b.multi_get(["there", "later", "last"]) == [b"0", b"1", b"2"]
    timer.join()


def test_waits_for_what_add_makes(stores: tuple[Store, Store]) -> None:
    a, b = stores
    timer = threading.Timer(0.05, a.add, ("count", 1))
    timer.start()
    assert b.get("count") == b"1"
    timer.join()


def test_a_wait_that_ends_names_the_keys(stores: tuple[Store, Store]) -> None:
    a, b = stores
    a.set("there", "")
    started = time.monotonic()
    with pytest.raises(errors.StoreTimeout) as caught:
        b.wait(["there", "missing", "other"], timedelta(milliseconds=80))
    assert 0.07 < time.monotonic() - started < 1.0
    assert caught.value.keys == ("missing", "other")
    assert "missing" in str(caught.value)
    assert "0.08 s" in str(caught.value)
    assert isinstance(caught.value, TimeoutError)
    with pytest.raises(errors.StoreTimeout, match="never"):
        b.get("never")
    assert b.get("there") == b""


def test_other_threads_go_on_while_one_waits(stores: tuple[Store, Store]) -> None:
    _, b = stores
    got: list[bytes] = []
    b.set_timeout(5)
    waiting = threading.Thread(target=lambda: got.append(b.get("go")))
    waiting.start()
    time.sleep(0.05)
    b.set("meanwhile", "x")
    assert b.get("meanwhile") == b"x"
    b.set("go", "now")
    waiting.join(5)
    assert got == [b"now"]


def test_a_zero_timeout_asks_once(stores: tuple[Store, Store]) -> None:
    a, b = stores
    a.set("k", "v")
    b.wait(["k"], 0)
    with pytest.raises(errors.StoreTimeout):
        b.wait(["missing"], 0)


def test_timeouts_are_checked(stores: tuple[Store, Store]) -> None:
    a, _ = stores
    assert a.timeout == timedelta(seconds=0.3)
    a.set_timeout(timedelta(seconds=2))
    assert a.timeout == timedelta(seconds=2)
    with pytest.raises(errors.ArgumentError, match="timedelta"):
        a.set_timeout("long")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidValue, match="negative"):
        a.set_timeout(-1)


def test_only_bytes_and_text(stores: tuple[Store, Store]) -> None:
    with pytest.raises(errors.ArgumentError, match="found int"):
        stores[0].set("k", 3)  # type: ignore[arg-type]


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
    store = TCPStore("127.0.0.1", port, is_master=True, timeout=5)
    assert store.port == port
    store.close()
    timer.join()


def test_nobody_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
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
        stranger.settimeout(5)
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
    client = TCPStore("127.0.0.1", master.port, timeout=0.3)
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
    ours.set_timeout(20)
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
            time.sleep(3)  # a child that lives on does not keep the will from being done
            os._exit(0)
    store.set("ready", "")
    time.sleep(60)
    """
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)])
    ours.wait(["ready"])
    time.sleep(0.15)
    assert not ours.check(["gone"])
    child.kill()
    started = time.monotonic()
    assert ours.get("gone") == b"7,"
    assert time.monotonic() - started < 2
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
        ours.get("gone")
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
