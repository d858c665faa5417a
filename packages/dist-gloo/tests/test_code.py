"""The machine code between Gloo and what it calls."""

from __future__ import annotations

import ctypes
import errno
import mmap
import platform
import sys
from pathlib import Path

import pytest

from mortice_gloo import _thunk, native

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="machine code for Linux on x86-64",
)


def test_the_network_thread_tries_locks_through_patient_code() -> None:
    native.load()
    path = native.library_path()
    library = ctypes.CDLL(path)
    places = [*native._relocations(Path(path).read_bytes())]
    base = native._base(library, places)
    assert base is not None
    (slot,) = [where for name, where, _ in places if name == "pthread_mutex_trylock"]
    code = ctypes.c_uint64.from_address(base + slot).value
    expected = _thunk.IMAGE[_thunk.PATIENT : _thunk.FRAMES]
    assert ctypes.string_at(code, len(expected)) == expected
    lock = ctypes.create_string_buffer(64)  # zeros are an unlocked mutex
    attempt = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(code)
    at = ctypes.addressof(lock)
    assert [attempt(at), attempt(at)] == [0, errno.EBUSY]


def test_patient_code_gives_the_core_away_after_vain_tries_only() -> None:
    native.load()
    calls: list[str] = []
    answers = [0, errno.EBUSY, errno.EBUSY, 0]

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    def attempt(at: int) -> int:
        calls.append(f"try {at}")
        return answers[len([c for c in calls if c != "yield"]) - 1]

    @ctypes.CFUNCTYPE(ctypes.c_int)
    def give_way() -> int:
        calls.append("yield")
        return 0

    entry = native._placed(ctypes.cast(attempt, ctypes.c_void_p).value or 0, _thunk.PATIENT)
    slot = entry - _thunk.PATIENT + _thunk.SLOT + 8 * _thunk.SLOTS.index("yield")
    native._write(slot, ctypes.cast(give_way, ctypes.c_void_p).value or 0)
    native._protect(entry, mmap.PROT_READ | mmap.PROT_EXEC)
    code = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(entry)
    assert [code(7) for _ in answers] == answers
    assert calls == ["try 7", "try 7", "yield", "try 7", "yield", "try 7"]
