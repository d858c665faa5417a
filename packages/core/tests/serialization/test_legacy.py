"""The format before the zip container."""

from __future__ import annotations

import io
import struct
from typing import Any

import pytest
from builder import FLOAT, group, pickle, storage, tensor, text, whole

from mortice import serialization
from mortice.errors import CheckpointError

MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


def legacy(
    body: bytes,
    keys: bytes | None = None,
    blobs: bytes | None = None,
    version: bytes = b"M\xe9\x03",
    system: bytes = b"}",
) -> bytes:
    keys = b"](" + text("0") + b"e" if keys is None else keys
    blobs = struct.pack("<q6f", 6, *range(6)) if blobs is None else blobs
    return MAGIC + pickle(version) + pickle(system) + pickle(body) + pickle(keys) + blobs


def old_storage(key: str = "0", numel: int = 6, view: bytes = b"N") -> bytes:
    return group(text("storage"), FLOAT, text(key), text("cpu"), whole(numel), view) + b"Q"


def load(data: bytes, **arguments: Any) -> Any:
    return serialization.load(io.BytesIO(data), **arguments)


def test_it_loads() -> None:
    assert load(legacy(tensor(data=old_storage())))._a.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert load(legacy(tensor(data=storage())))._a.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert load(legacy(whole(5), b"]", b"")) == 5


def test_several_in_one_stream() -> None:
    stream = io.BytesIO(legacy(whole(1), b"]", b"") + legacy(tensor(data=old_storage())) + b"end")
    assert serialization.load(stream) == 1
    assert serialization.load(stream).shape == (2, 3)
    assert stream.read() == b"end"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (legacy(whole(1), version=b"M\xea\x03"), "protocol version 1002"),
        (legacy(whole(1), system=b"ctorch\nfloat32\n"), "system information names"),
        (legacy(whole(1), system=storage()), "persistent id where no storage"),
        (legacy(whole(1), keys=b"}"), "is not a list"),
        (legacy(whole(1), keys=b"](K\x01e"), "'int', which no tensor uses"),
        (legacy(tensor(data=old_storage()), keys=b"](" + text("0") * 2 + b"e"), "listed twice"),
        (legacy(tensor(data=old_storage()), keys=b"]"), "used but not listed"),
        (legacy(tensor(data=old_storage()), blobs=struct.pack("<q", 5)), "holds 5 elements"),
        (legacy(tensor(data=old_storage()), blobs=struct.pack("<qf", 6, 0)), "4 are left"),
        (legacy(tensor(data=old_storage()), blobs=b"\6"), "ends early"),
        (legacy(tensor(data=old_storage(numel=1 << 40))), "in a file of"),
        (legacy(tensor(data=old_storage(view=group(text("v"))))), "before 2017"),
        (legacy(b"cos\nsystem\n)R"), "can run programs"),
        (MAGIC, "without STOP"),
    ],
)
def test_damage_is_named(data: bytes, message: str, tmp_path: Any) -> None:
    with pytest.raises(CheckpointError, match=message):
        load(data)
    path = tmp_path / "old.pt"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=message):
        serialization.load(path)
