"""What every store does, as tests: import them beside a fixture ``stores``.

::

    from mortice_testing.distributed.store_contract import *  # noqa: F403

    @pytest.fixture
    def stores():
        yield first, second  # two users of one empty table, with a timeout of words.PATIENCE

What is there must be found however long that takes, so the short limits are those of tests that wait
for what never comes.
"""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest

from mortice import errors
from mortice.distributed import Store

from .words import PATIENCE

__all__ = [
    "test_a_key_is_text",
    "test_a_large_value",
    "test_a_wait_that_ends_names_the_keys",
    "test_a_zero_timeout_asks_once",
    "test_add",
    "test_add_takes_integers",
    "test_add_to_what_is_no_number",
    "test_append",
    "test_compare_set",
    "test_count_and_check",
    "test_delete",
    "test_keys_are_a_list",
    "test_only_bytes_and_text",
    "test_other_threads_go_on_while_one_waits",
    "test_set_and_get",
    "test_several_at_once",
    "test_timeouts_are_checked",
    "test_waits_for_what_add_makes",
    "test_waits_for_what_is_set_later",
]


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
    b.wait(["there", "later", "last"], PATIENCE)
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
    assert 0.07 < time.monotonic() - started < PATIENCE  # not the store's own limit
    assert caught.value.keys == ("missing", "other")
    assert "missing" in str(caught.value)
    assert "0.08 s" in str(caught.value)
    assert isinstance(caught.value, TimeoutError)
    b.set_timeout(0.1)
    with pytest.raises(errors.StoreTimeout, match="never"):
        b.get("never")
    assert b.get("there") == b""


def test_other_threads_go_on_while_one_waits(stores: tuple[Store, Store]) -> None:
    _, b = stores
    got: list[bytes] = []
    waiting = threading.Thread(target=lambda: got.append(b.get("go")))
    waiting.start()
    time.sleep(0.05)
    b.set("meanwhile", "x")
    assert b.get("meanwhile") == b"x"
    b.set("go", "now")
    waiting.join(PATIENCE)
    assert got == [b"now"]


def test_a_zero_timeout_asks_once(stores: tuple[Store, Store]) -> None:
    a, b = stores
    a.set("k", "v")
    b.wait(["k"], 0)
    with pytest.raises(errors.StoreTimeout):
        b.wait(["missing"], 0)


def test_timeouts_are_checked(stores: tuple[Store, Store]) -> None:
    a, _ = stores
    assert a.timeout == timedelta(seconds=PATIENCE)
    a.set_timeout(timedelta(seconds=2))
    assert a.timeout == timedelta(seconds=2)
    with pytest.raises(errors.ArgumentError, match="timedelta"):
        a.set_timeout("long")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidValue, match="negative"):
        a.set_timeout(-1)


def test_only_bytes_and_text(stores: tuple[Store, Store]) -> None:
    with pytest.raises(errors.ArgumentError, match="found int"):
        stores[0].set("k", 3)  # type: ignore[arg-type]


def test_a_key_is_text(stores: tuple[Store, Store]) -> None:
    a, b = stores
    calls = [
        lambda: a.set(3, "x"),  # type: ignore[arg-type]
        lambda: a.get(3),  # type: ignore[arg-type]
        lambda: a.add(key=b"n", amount=1),  # type: ignore[arg-type]
        lambda: a.append(None, "x"),  # type: ignore[arg-type]
        lambda: a.compare_set(3, "", "x"),  # type: ignore[arg-type]
        lambda: a.delete_key(3),  # type: ignore[arg-type]
        lambda: a.check([3]),  # type: ignore[list-item]
        lambda: a.wait(["k", 3]),  # type: ignore[list-item]
        lambda: a.multi_set([3], ["x"]),  # type: ignore[list-item]
    ]
    before = b.num_keys()
    for call in calls:
        with pytest.raises(errors.ArgumentError, match="a key is text"):
            call()
    assert b.num_keys() == before


def test_keys_are_a_list(stores: tuple[Store, Store]) -> None:
    a, _ = stores
    a.multi_set(["a", "b", "c"], ["1", "2", "3"])
    for call in (a.check, a.wait, a.multi_get):
        with pytest.raises(errors.ArgumentError, match=r"list of keys, found str; write \['abc'\]"):
            call("abc")
    assert a.multi_get(key for key in "abc") == [b"1", b"2", b"3"]  # type: ignore[arg-type]


def test_add_takes_integers(stores: tuple[Store, Store]) -> None:
    a, b = stores
    assert a.add("n", 2) == 2
    for amount in (1.5, "1", None):
        with pytest.raises(errors.ArgumentError, match="expected an integer"):
            b.add("n", amount)  # type: ignore[arg-type]
    assert a.get("n") == b"2"
