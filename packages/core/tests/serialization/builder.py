"""Checkpoints put together by hand, opcode by opcode and record by record."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

FLOAT = b"ctorch\nFloatStorage\n"


def text(value: str) -> bytes:
    raw = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(raw)) + raw


def whole(value: int) -> bytes:
    if 0 <= value < 256:
        return bytes((0x4B, value))
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return bytes((0x8A, len(raw))) + raw


def group(*items: bytes) -> bytes:
    """A tuple."""
    return b"(" + b"".join(items) + b"t"


def call(name: str, *args: bytes) -> bytes:
    """REDUCE of a GLOBAL given as 'module name'."""
    module, _, qualname = name.partition(" ")
    return b"c" + f"{module}\n{qualname}\n".encode() + group(*args) + b"R"


def storage(
    key: str = "0", numel: int = 6, cls: bytes = FLOAT, where: bytes | None = None
) -> bytes:
    place = text("cpu") if where is None else where
    return group(text("storage"), cls, text(key), place, whole(numel)) + b"Q"


def dims(*sizes: int) -> bytes:
    return group(*(whole(size) for size in sizes)) if sizes else b")"


HOOKS = b"ccollections\nOrderedDict\n)R"


def tensor(
    size: bytes = dims(2, 3),
    stride: bytes = dims(3, 1),
    offset: bytes = whole(0),
    data: bytes | None = None,
    grad: bytes = b"\x89",
    hooks: bytes = HOOKS,
    *more: bytes,
) -> bytes:
    data = storage() if data is None else data
    return call("torch._utils _rebuild_tensor_v2", data, offset, size, stride, grad, hooks, *more)


def pickle(body: bytes) -> bytes:
    return b"\x80\x02" + body + b"."


class Entry:
    """One record and what its headers say; change what should lie."""

    def __init__(self, name: str | bytes, data: bytes, method: int = 0) -> None:
        self.name = name if isinstance(name, bytes) else name.encode()
        self.payload = data
        if method == 8:
            engine = zlib.compressobj(9, zlib.DEFLATED, -15)
            self.payload = engine.compress(data) + engine.flush()
        self.method = method
        self.flags = 0
        self.crc = zlib.crc32(data)
        self.size = len(data)
        self.compressed = len(self.payload)
        self.local: dict[str, Any] = {}
        self.central: dict[str, Any] = {}
        self.local_extra = b""
        self.central_extra = b""
        self.comment = b""
        self.offset = 0

    def field(self, where: dict[str, Any], name: str) -> Any:
        return where.get(name, getattr(self, name))


class Zip:
    """Writes entries; ``end`` and ``tail`` override the end record's fields."""

    def __init__(self, *entries: Entry) -> None:
        self.entries = list(entries)
        self.end: dict[str, int] = {}
        self.before_directory = b""
        self.after_directory = b""
        self.comment = b""
        self.tail = b""
        self.zip64: dict[str, int] | None = None

    def build(self) -> bytes:
        out = io.BytesIO()
        for entry in self.entries:
            entry.offset = out.tell()
            self._local(out, entry)
            out.write(entry.payload)
        out.write(self.before_directory)
        start = out.tell()
        for entry in self.entries:
            self._central(out, entry)
        size = out.tell() - start
        out.write(self.after_directory)
        self._ends(out, start, size)
        return out.getvalue()

    def _local(self, out: io.BytesIO, entry: Entry) -> None:
        get = lambda name: entry.field(entry.local, name)  # noqa: E731
        name = get("name")
        out.write(
            struct.pack(
                "<4s5H3L2H", entry.local.get("magic", b"PK\x03\x04"), 20, get("flags"),
                get("method"), 0, 0, get("crc"), get("compressed"), get("size"), len(name),
                len(entry.local_extra),
            )
        )  # fmt: skip
        out.write(name + entry.local_extra)

    def _central(self, out: io.BytesIO, entry: Entry) -> None:
        get = lambda name: entry.field(entry.central, name)  # noqa: E731
        name = get("name")
        out.write(
            struct.pack(
                "<4s6H3L5H2L", entry.central.get("magic", b"PK\x01\x02"), 20, 20, get("flags"),
                get("method"), 0, 0, get("crc"), get("compressed"), get("size"),
                entry.central.get("name_size", len(name)), len(entry.central_extra),
                len(entry.comment), entry.central.get("disk", 0), 0, 0, get("offset"),
            )
        )  # fmt: skip
        out.write(name + entry.central_extra + entry.comment)

    def _ends(self, out: io.BytesIO, start: int, size: int) -> None:
        count = len(self.entries)
        if self.zip64 is not None:
            fields = {
                "magic": b"PK\x06\x06", "length": 44, "disk": 0, "count": count, "here": count,
                "size": size, "start": start, "at": out.tell(), "disks": 1, "first": 0,
                **self.zip64,
            }  # fmt: skip
            out.write(
                struct.pack(
                    "<4sQ2H2L4Q", fields["magic"], fields["length"], 45, 45, fields["disk"],
                    fields["first"], fields["here"], fields["count"], fields["size"],
                    fields["start"],
                )
            )  # fmt: skip
            out.write(struct.pack("<4sLQL", b"PK\x06\x07", 0, fields["at"], fields["disks"]))
        end = {
            "disk": 0, "first": 0, "here": count, "count": count, "size": size, "start": start,
            "comment": len(self.comment), **self.end,
        }  # fmt: skip
        out.write(
            struct.pack(
                "<4s4H2LH", b"PK\x05\x06", end["disk"], end["first"], end["here"], end["count"],
                end["size"], end["start"], end["comment"],
            )
        )  # fmt: skip
        out.write(self.comment + self.tail)


def entries(
    body: bytes, storages: dict[str, bytes] | None = None, root: str = "archive"
) -> list[Entry]:
    if storages is None:
        storages = {"0": struct.pack("<6f", *range(6))}
    return [
        Entry(f"{root}/data.pkl", pickle(body)),
        Entry(f"{root}/byteorder", b"little"),
        *(Entry(f"{root}/data/{key}", data) for key, data in storages.items()),
        Entry(f"{root}/version", b"3\n"),
    ]


def checkpoint(body: bytes, storages: dict[str, bytes] | None = None) -> io.BytesIO:
    """A whole file around the opcodes of one object."""
    return io.BytesIO(Zip(*entries(body, storages)).build())
