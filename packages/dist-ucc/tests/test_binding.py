"""What needs no UCC: its structures, the exchange that it asks for, and its absence."""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import Any

import numpy as np
import pytest

from mortice.backend import Unavailable
from mortice.distributed import HashStore, Setup
from mortice.errors import DistBackendError, OperationTimeout
from mortice_ucc import library
from mortice_ucc import structures as ucc
from mortice_ucc.communicator import UccCommunicator
from mortice_ucc.exchange import Exchange

# Sizes and places as a C compiler makes them of UCC's header (1.10; x86-64).
SIZES = {
    "LibParams": 40,
    "Oob": 40,
    "ContextParams": 80,
    "TeamParams": 208,
    "Even": 32,
    "Uneven": 40,
}
PLACES = {
    "Oob": {"n_oob_eps": 32, "oob_ep": 36},
    "ContextParams": {"oob": 16, "mem_params": 64},
    "TeamParams": {"ep": 32, "ep_range": 48, "oob": 72, "ep_map": 168, "id": 200},
    "Uneven": {"displacements": 16, "datatype": 24, "mem_type": 32},
    "Arguments": {
        "src": 16, "dst": 56, "op": 96, "flags": 104, "root": 112, "tag": 124, "cb": 136,
        "timeout": 152, "active_set": 160, "later": 184,
    },
}  # fmt: skip


@pytest.mark.skipif(ctypes.sizeof(ctypes.c_void_p) != 8, reason="the numbers are of 64 bits")
def test_structures_lie_as_in_the_header() -> None:
    assert {name: ctypes.sizeof(getattr(ucc, name)) for name in SIZES} == SIZES
    for name, places in PLACES.items():
        cls = getattr(ucc, name)
        assert {member: getattr(cls, member).offset for member in places} == places, name
    # Version 1.10 has 200 bytes of arguments, and copies that many.
    assert ctypes.sizeof(ucc.Arguments) >= 200


def setup(store: HashStore, rank: int, **more: Any) -> Setup:
    return Setup(store, rank, 2, (0, 1), more.pop("timeout", 60.0), "test", **more)


def gather(exchange: Exchange, data: bytes) -> bytes:
    """An exchange of two ranks as UCC does it: through the function pointers."""
    oob = exchange.oob
    room = ctypes.create_string_buffer(2 * len(data))
    request = ctypes.c_void_p()
    source = ctypes.create_string_buffer(data, len(data))
    code = oob.allgather(
        ctypes.addressof(source), ctypes.addressof(room), len(data), None, ctypes.byref(request)
    )
    assert code == ucc.OK
    assert request.value  # UCC takes NULL for no request
    while (code := oob.req_test(request)) == ucc.IN_PROGRESS:
        pass
    oob.req_free(request)
    if code != ucc.OK:
        assert exchange.error is not None
        raise exchange.error
    return room.raw


def test_an_exchange() -> None:
    store = HashStore()
    found: dict[int, list[bytes]] = {}

    def rank(number: int) -> None:
        exchange = Exchange(setup(store, number), "ucc")
        assert (exchange.oob.n_oob_eps, exchange.oob.oob_ep) == (2, number)
        found[number] = [gather(exchange, bytes([number, k, 0])) for k in range(3)]

    threads = [threading.Thread(target=rank, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    both = [bytes([0, k, 0, 1, k, 0]) for k in range(3)]
    assert found == {0: both, 1: both}


def test_an_exchange_ends() -> None:
    late = Exchange(setup(HashStore(), 0, timeout=0.01), "ucc")
    with pytest.raises(OperationTimeout, match=r"within 0.01 s"):
        gather(late, b"a")
    lonely = Exchange(setup(HashStore(), 0, gone=lambda: (1,)), "ucc")
    with pytest.raises(DistBackendError, match="rank 1 has ended"):
        gather(lonely, b"a")


@pytest.fixture
def afresh(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(library, "_library", None)
    monkeypatch.delenv("HPCX_UCC_DIR", raising=False)
    return monkeypatch


def test_without_ucc(afresh: pytest.MonkeyPatch) -> None:
    afresh.setattr(library, "_NAME", "libnothing.so.1")
    with pytest.raises(Unavailable, match="no libnothing.so.1 .*conda-forge"):
        library.load()


@pytest.mark.skipif(sys.platform != "linux", reason="the library's name is Linux's")
def test_what_is_no_ucc(afresh: pytest.MonkeyPatch) -> None:
    afresh.setattr(library, "_NAME", "libc.so.6")
    with pytest.raises(Unavailable, match="no UCC that is known"):
        library.load()


def test_what_was_not_received_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """UCC says of operations that went wrong that they went well, and leaves the memory as it was."""
    received = [True]

    def call(self: UccCommunicator, kind: int, *held: Any, **members: Any) -> None:
        if received[0]:
            held[-1][...] = held[0][0]

    monkeypatch.setattr(UccCommunicator, "_call", call)
    comm = object.__new__(UccCommunicator)
    comm.rank, comm.size, comm._ended_collectives = 0, 2, 0
    data = np.zeros(8, np.uint8)
    comm.broadcast(data, 0)
    comm.barrier()
    received[0] = False
    for operation in (lambda: comm.broadcast(data, 0), comm.barrier, lambda: comm.recv(data, 1, 0)):
        with pytest.raises(DistBackendError, match="UCC did not receive what"):
            operation()
