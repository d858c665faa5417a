"""Checksums by several threads, and large storages read by them."""

from __future__ import annotations

import os
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mortice
from mortice import serialization
from mortice.errors import CheckpointError
from mortice.serialization import checksum, source
from mortice.serialization.bounds import Limits
from mortice.serialization.container import Container


@pytest.mark.parametrize("length", [0, 1, 2, 3, 7, 8, 255, 4096, 100_003])
def test_two_checksums_make_the_one_of_both(length: int) -> None:
    data = np.random.default_rng(length).bytes(1000 + length)
    first, second = data[:1000], data[1000:]
    assert checksum.combine(zlib.crc32(first), zlib.crc32(second), length) == zlib.crc32(data)


def test_parts_end_before_an_error_is_raised() -> None:
    ended: list[int] = []

    def good(index: int) -> Any:
        return lambda: ended.append(index) or index

    def bad() -> None:
        raise ValueError("this one")

    assert checksum.in_parts([good(0), good(1), good(2)]) == [0, 1, 2]
    with pytest.raises(ValueError, match="this one"):
        checksum.in_parts([bad, good(3), good(4)])
    assert {3, 4} <= set(ended)


@pytest.fixture
def large(tmp_path: Path, monkeypatch: Any) -> Path:
    monkeypatch.setattr(source, "_SHARE", 2 << 20)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    path = tmp_path / "large.pt"
    values = np.arange((35 << 20) // 4 + 1, dtype=np.float32)
    serialization.save({"w": mortice.from_numpy(values)}, path)
    return path


def test_a_large_storage_is_read_by_threads(large: Path) -> None:
    loaded = serialization.load(large)["w"].numpy()
    assert (loaded == np.arange(len(loaded), dtype=np.float32)).all()
    loaded[0] = 5
    with open(large, "rb") as file:
        again = serialization.load(file)["w"].numpy()
    assert again[0] == 0
    assert (again[1:] == loaded[1:]).all()


def test_a_flipped_byte_of_a_large_storage_is_found(large: Path) -> None:
    data = bytearray(large.read_bytes())
    data[30 << 20] ^= 1
    large.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"checksum .* record 'data/0'"):
        serialization.load(large)


@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be replaced there")
def test_a_file_replaced_while_it_is_read(large: Path, tmp_path: Path) -> None:
    opened = source.Source(large)
    container = Container(opened, Limits())
    other = tmp_path / "other.pt"
    other.write_bytes(large.read_bytes())
    os.replace(other, large)
    record = container.record("data/0")
    with pytest.raises(CheckpointError, match="replaced while it was read"):
        container.read_into(record, memoryview(bytearray(record.size)), True)
    opened.close()
