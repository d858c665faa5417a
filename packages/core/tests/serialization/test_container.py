"""The zip reader takes one reading of a file, and refuses whatever has a second."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from builder import Entry, Zip, entries, tensor

from mortice import serialization
from mortice.errors import CheckpointError, InvalidValue
from mortice.serialization.bounds import Limits
from mortice.serialization.container import Container
from mortice.serialization.source import Source


def load(archive: Zip, **arguments: Any) -> Any:
    return serialization.load(io.BytesIO(archive.build()), **arguments)


def good() -> Zip:
    return Zip(*entries(tensor()))


def test_the_archive_that_the_cases_start_from_loads() -> None:
    assert load(good())._a.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_zip64_ends_and_fields_are_read() -> None:
    archive = good()
    archive.zip64 = {}
    assert load(archive).shape == (2, 3)
    archive.end = {"count": 0xFFFF, "here": 0xFFFF, "size": 0xFFFFFFFF, "start": 0xFFFFFFFF}
    assert load(archive).shape == (2, 3)
    entry = archive.entries[2]
    entry.central = {"size": 0xFFFFFFFF, "compressed": 0xFFFFFFFF}
    entry.central_extra = struct.pack("<HHHHQQ", 7, 0, 1, 16, 24, 24)
    assert load(archive).shape == (2, 3)


def test_a_comment_is_read_over() -> None:
    archive = good()
    archive.comment = b"written by hand"
    assert load(archive).shape == (2, 3)


def test_a_deflated_pickle_and_storage_load() -> None:
    parts = entries(tensor())
    for index in (0, 2):
        parts[index] = Entry(parts[index].name, parts[index].payload, 8)
    assert load(Zip(*parts))._a.tolist() == [[0, 1, 2], [3, 4, 5]]


def _entry(index: int = 2, **changes: Any) -> Callable[[Zip], None]:
    def change(archive: Zip) -> None:
        for name, value in changes.items():
            setattr(archive.entries[index], name, value)

    return change


def _archive(**changes: Any) -> Callable[[Zip], None]:
    def change(archive: Zip) -> None:
        for name, value in changes.items():
            setattr(archive, name, value)

    return change


def _duplicate(archive: Zip) -> None:
    archive.entries.insert(3, Entry("archive/data/0", bytes(24)))


def _overlap(archive: Zip) -> None:
    archive.entries[3].central = {"offset": 0}


def _deflate(data: bytes, **changes: Any) -> Callable[[Zip], None]:
    def change(archive: Zip) -> None:
        entry = Entry("archive/data/0", data, 8)
        for name, value in changes.items():
            setattr(entry, name, value)
        if "payload" in changes:
            entry.compressed = len(entry.payload)
        archive.entries[2] = entry

    return change


_SATURATED = {"size": 0xFFFFFFFF, "compressed": 0xFFFFFFFF}
_PLAIN = struct.pack("<6f", *range(6))

CASES: dict[str, tuple[Callable[[Zip], None], str]] = {
    "two records of one name": (_duplicate, "two records are named"),
    "overlapping records": (_overlap, "overlap"),
    "encrypted": (_entry(flags=1), "encrypted"),
    "unknown compression": (_entry(method=12), "compression method 12"),
    "stored with two sizes": (_entry(compressed=20), "that takes 20"),
    "another disk": (_entry(central={"disk": 1}), "several parts"),
    "end record of another disk": (_archive(end={"disk": 1}), "several parts"),
    "central magic": (_entry(central={"magic": b"PK\x01\x00"}), "directory is damaged"),
    "local magic": (_entry(local={"magic": b"PK\x03\x00"}), "no record header"),
    "local name": (_entry(local={"name": b"archive/data/1"}), "disagree"),
    "local longer name": (_entry(local={"name": b"archive/data/00"}), "disagree"),
    "local method": (_entry(local={"method": 8}), "disagree"),
    "local flags": (_entry(local={"flags": 8}), "disagree"),
    "local size": (_entry(local={"size": 23}), "disagree"),
    "local checksum": (_entry(local={"crc": 1}), "disagree"),
    "a name of several readings": (_entry(name=b"archive/../x"), "not a plain path"),
    "an absolute name": (_entry(name=b"/archive/x"), "not a plain path"),
    "a backslash": (_entry(name=b"archive\\x"), "not a plain path"),
    "a control character": (_entry(name=b"archive/\x00x"), "not a plain path"),
    "a name not in UTF-8": (_entry(name=b"archive/\xff"), "not UTF-8"),
    "outside the folder": (_entry(name=b"other/data/0"), "outside the folder"),
    "beside the folder": (_entry(name=b"data"), "outside the folder"),
    "name beyond the directory": (_entry(-1, central={"name_size": 999}), "cut short"),
    "a record beyond the directory": (_entry(central={"offset": 1 << 20}), "beyond"),
    "a record into the directory": (_entry(-1, size=99, compressed=99), "runs into"),
    "bytes behind the directory": (_archive(after_directory=b"xx"), "ends at byte"),
    "directory counted short": (_archive(end={"count": 3, "here": 3}), "after the zip directory"),
    "directory counted long": (_archive(end={"count": 5, "here": 5}), "cut short"),
    "directory counted too long": (_archive(end={"count": 99, "here": 99}), "do not fit"),
    "counts that differ": (_archive(end={"here": 3}), "several parts"),
    "no records": (_archive(entries=[], before_directory=b"PK\x03\x04"), "without records"),
    "bytes behind the end": (_archive(tail=b"xx"), "not where the file ends"),
    "zip64 disagrees": (_archive(zip64={}, end={"count": 7, "here": 7}), "disagree about"),
    "zip64 magic": (_archive(zip64={"magic": b"PK\x06\x00"}), "zip64 end record is damaged"),
    "zip64 length": (_archive(zip64={"length": 45}), "zip64 end record is damaged"),
    "zip64 disk": (_archive(zip64={"disk": 1}), "several parts"),
    "zip64 disks": (_archive(zip64={"disks": 2}), "zip64 end record is not where"),
    "zip64 place": (_archive(zip64={"at": 0}), "zip64 end record is not where"),
    "zip64 field missing": (
        _entry(central=_SATURATED, central_extra=struct.pack("<HHQ", 1, 8, 24)),
        "zip64 field is missing",
    ),
    "zip64 field cut": (
        _entry(central=_SATURATED, central_extra=struct.pack("<HHQ", 1, 99, 24)),
        "zip64 field is missing",
    ),
    "zip64 field absent": (_entry(central=_SATURATED), "zip64 field is missing"),
    "a flipped byte": (_entry(payload=b"\1" + _PLAIN[1:]), "checksum"),
    "a flipped byte, deflated": (_deflate(_PLAIN, crc=1), "checksum"),
    "inflates past its size": (_deflate(_PLAIN + b"x", size=24), "inflates past"),
    "inflates short": (_deflate(_PLAIN[:20], size=24), "inflates to 20"),
    "inflates from rubbish": (_deflate(_PLAIN, payload=b"\xff" * 30), "cannot be inflated"),
    "inflates from a part": (_deflate(_PLAIN, payload=b"\x01\x18"), "inflates to"),
    "a bomb": (_deflate(bytes(4 << 20)), "over 100 times"),
    "version": (_entry(-1, payload=b"0\n", crc=0xFFFFFFFF), "checksum"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_has_two_readings_is_refused(name: str) -> None:
    change, message = CASES[name]
    archive = good()
    if name == "a bomb":
        from builder import storage

        big = tensor(data=storage(numel=1 << 20))
        archive = Zip(*entries(big, {"0": b""}))
    change(archive)
    with pytest.raises(CheckpointError, match=message) as caught:
        load(archive)
    error = caught.value
    assert error.fix
    assert error.record is not None or error.file_offset is not None or name == "no records"


def test_limits_are_raised_by_name() -> None:
    from builder import storage

    archive = Zip(*entries(tensor(data=storage(numel=1 << 20)), {"0": b""}))
    archive.entries[2] = Entry("archive/data/0", bytes(4 << 20), 8)
    with pytest.raises(CheckpointError, match=r"inflate_ratio.*N"):
        load(archive)
    assert load(archive, limits={"inflate_ratio": 2000}).untyped_storage().nbytes() == 4 << 20
    with serialization.limits(inflate_ratio=2000):
        assert load(archive).shape == (2, 3)
    with pytest.raises(CheckpointError, match="4 records, over the limit of 3"):
        load(good(), limits={"records": 3})
    with pytest.raises(CheckpointError, match=r"over the 10 .*pickle_bytes"):
        load(good(), limits={"pickle_bytes": 10})
    with pytest.raises(InvalidValue, match=r"no limit 'record'.*Did you mean 'records'"):
        load(good(), limits={"record": 3})
    for wrong in (-1, 1.5, True):
        with pytest.raises(InvalidValue, match="whole number"):
            load(good(), limits={"records": wrong})  # type: ignore[dict-item]
    assert "records=7" in repr(Limits(records=7))


@pytest.mark.parametrize(
    ("index", "data", "message"),
    [
        (1, b"middle", "neither little nor big"),
        (-1, b"11\n", "not one of 1 to 10"),
        (-1, b"three", "not one of 1 to 10"),
    ],
)
def test_records_of_the_frame(index: int, data: bytes, message: str) -> None:
    parts = entries(tensor())
    parts[index] = Entry(parts[index].name, data)
    with pytest.raises(CheckpointError, match=message):
        load(Zip(*parts))


@pytest.mark.parametrize("length", [0, 1, 3, 4, 21, 22, 100])
def test_a_cut_file_is_refused(length: int) -> None:
    data = good().build()
    for cut in (data[:length], data[: len(data) - 1 - length]):
        with pytest.raises(CheckpointError):
            serialization.load(io.BytesIO(cut))


def test_a_file_that_shrinks_while_it_is_read(tmp_path: Any) -> None:
    from builder import storage

    path = tmp_path / "big.pt"
    values = np.zeros(1 << 20, np.float32)
    body = tensor(data=storage(numel=values.size))
    path.write_bytes(Zip(*entries(body, {"0": values.tobytes()})).build())
    source = Source(path)
    container = Container(source, Limits())
    path.write_bytes(path.read_bytes()[: 1 << 20])
    with pytest.raises(CheckpointError, match="ends early"):
        container.read_into(container.record("data/0"), memoryview(bytearray(4 << 20)), True)
    with pytest.raises(CheckpointError, match="ends early"):
        source.read((4 << 20) - 10, 100)
    source.close()


class _Slow(io.RawIOBase):
    """A file object that gives a few bytes at a time and has no readinto."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def read(self, size: int = -1) -> bytes:
        return self._file.read(min(size, 7) if size >= 0 else 7)

    readinto = None  # type: ignore[assignment]

    def seek(self, *where: int) -> int:
        return self._file.seek(*where)

    def tell(self) -> int:
        return self._file.tell()


def test_file_objects_of_all_kinds(tmp_path: Any) -> None:
    data = good().build()
    assert serialization.load(_Slow(data)).shape == (2, 3)
    path = tmp_path / "x.pt"
    path.write_bytes(data)
    for given in (path, str(path), str(path).encode()):
        assert serialization.load(given).shape == (2, 3)
    with open(path, "rb") as file:
        assert serialization.load(file).shape == (2, 3)
        assert not file.closed
        assert file.tell() == len(data)
    with pytest.raises(InvalidValue, match="open for text"), open(path) as text:
        serialization.load(text)
    with pytest.raises(InvalidValue, match=r"io\.BytesIO"):
        serialization.load(data[0])
    with pytest.raises(FileNotFoundError):
        serialization.load(tmp_path / "none.pt")


def test_a_stream_that_cannot_seek() -> None:
    class Pipe(io.BytesIO):
        def seek(self, *where: int) -> int:
            raise io.UnsupportedOperation("seek")

    with pytest.raises(CheckpointError, match=r"cannot seek.*BytesIO"):
        serialization.load(Pipe(good().build()))


def test_a_checkpoint_behind_other_data_in_a_stream() -> None:
    stream = io.BytesIO(b"header" + good().build())
    stream.seek(6)
    assert serialization.load(stream).shape == (2, 3)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty file"),
        (b"\x93NUMPY" + bytes(99), "numpy"),
        (b"GGUF" + bytes(99), "GGUF"),
        (b"\x1f\x8b" + bytes(99), "gzip"),
        (b"PK\x05\x06" + bytes(18), "empty zip"),
        (b"\x80\x04N.", "bare pickle"),
        (b"rubbish that is long", "not a checkpoint"),
        ((16).to_bytes(8, "little") + b"{" + b" " * 15 + bytes(99), "safetensors"),
        (bytes(257) + b"ustar" + bytes(99), "tar checkpoint"),
    ],
)
def test_other_files_are_named(data: bytes, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        serialization.load(io.BytesIO(data))
