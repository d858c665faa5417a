"""The zip container of a checkpoint, read strictly.

Two zip readers can disagree about one file: about which of two records with one name counts, where
the directory is, whether the sizes in front of a record or those in the directory hold. Whoever
checks a file with one reader and loads it with another is fooled by that. So this reader accepts
one reading only and refuses whatever has a second: the directory must end where its end record
begins, names are unique and plain, records do not overlap, and what stands in front of each record
must repeat what the directory says.

Format: APPNOTE.TXT 6.3.10 of PKWARE (sections 4.3.7 to 4.3.16), zip64 included, STORED and DEFLATE.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

from mortice.errors import CheckpointError
from mortice.serialization.bounds import Limits, hint

if TYPE_CHECKING:
    from mortice.serialization.source import Source

_END = struct.Struct("<4s4H2LH")
_END64_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")

LOCAL_MAGIC = b"PK\x03\x04"
_CENTRAL_MAGIC = b"PK\x01\x02"
_END_MAGIC = b"PK\x05\x06"
_END64_MAGIC = b"PK\x06\x06"
_LOCATOR_MAGIC = b"PK\x06\x07"

_STORED, _DEFLATED = 0, 8
_ENCRYPTED = 0x1 | 0x40 | 0x2000
_HAS_DESCRIPTOR = 0x8
_SATURATED16, _SATURATED32 = 0xFFFF, 0xFFFFFFFF
_INFLATE_STEP = 1 << 20
_LARGE = 1 << 20
# Below this a compressed record may inflate as it likes: small text compresses well.
_FREE_INFLATION = 1 << 20

_DAMAGED = "The file is damaged or was altered; copy or download it again."
_ODD = "Written by PyTorch or mortice it would not be so; do not trust the file."


class Record:
    """One record of the container, as its directory describes it."""

    __slots__ = (
        "compressed",
        "crc",
        "data_offset",
        "flags",
        "header_offset",
        "method",
        "name",
        "raw_name",
        "size",
    )

    def __init__(
        self,
        name: str,
        raw_name: bytes,
        flags: int,
        method: int,
        crc: int,
        compressed: int,
        size: int,
        header_offset: int,
    ) -> None:
        self.name = name
        self.raw_name = raw_name
        self.flags = flags
        self.method = method
        self.crc = crc
        self.compressed = compressed
        self.size = size
        self.header_offset = header_offset
        self.data_offset = -1

    @property
    def stored(self) -> bool:
        return self.method == _STORED


class Container:
    """The records under the one root folder of a zip file, by their name inside that folder.

    Raises CheckpointError for anything that a strict reading does not allow.
    """

    __slots__ = ("checksums", "limits", "records", "root", "source")

    def __init__(self, source: Source, limits: Limits) -> None:
        self.source = source
        self.limits = limits
        directory_at, directory_size, count = self._find_directory()
        if count > limits.records:
            raise self._refuse(
                f"{count} records, over the limit of {limits.records}", fix=hint("records")
            )
        found = self._read_directory(directory_at, directory_size, count)
        self._place(found, directory_at)
        self.root = self._common_root(found)
        strip = len(self.root) + 1
        self.records: dict[str, Record] = {}
        for record in found:
            record.name = record.name[strip:]
            self.records[record.name] = record
        # A writer told to leave checksums out writes zero for every record.
        self.checksums = any(record.crc for record in found if record.size)

    def __contains__(self, name: str) -> bool:
        return name in self.records

    def record(self, name: str) -> Record:
        """The record ``name``. Raises CheckpointError if there is none."""
        found = self.records.get(name)
        if found is None:
            raise self._refuse(f"there is no record {name!r}", fix=_DAMAGED)
        return found

    def read(self, name: str, most: int, verify: bool = True) -> bytes:
        """The bytes of a record of at most ``most`` bytes, its checksum checked."""
        record = self.record(name)
        if record.size > most:
            raise self._refuse(
                f"{record.size} bytes, over the {most} that this record may have",
                record,
                fix=hint("pickle_bytes"),
            )
        if record.method == _STORED:
            data = self.source.read(record.data_offset, record.size)
            if verify:
                self._check_crc(record, zlib.crc32(data))
            return data
        data = bytearray(self._inflated_size(record))
        self._inflate(record, memoryview(data), verify)
        return bytes(data)

    def read_into(self, record: Record, view: memoryview, verify: bool) -> None:
        """Fill ``view`` (of the record's size) with the record's bytes."""
        if record.method == _DEFLATED:
            self._inflate(record, view, verify)
            return
        if record.size > _LARGE:
            crc = self.source.read_large(record.data_offset, view, verify)
        else:
            self.source.read_into(record.data_offset, view)
            crc = zlib.crc32(view) if verify else 0
        if verify:
            self._check_crc(record, crc)

    def verify_mapped(self, record: Record, view: memoryview) -> None:
        """Check the checksum of a record that is mapped, by reading it."""
        self._check_crc(record, zlib.crc32(view))

    def inflated_size(self, record: Record) -> int:
        """The size to allocate for a record; refuses what no honest compression gives."""
        return self._inflated_size(record) if record.method == _DEFLATED else record.size

    # -- the directory ---------------------------------------------------------------------------

    def _find_directory(self) -> tuple[int, int, int]:
        source = self.source
        if source.size < _END.size:
            raise self._refuse("too short for a zip file", fix=_DAMAGED)
        tail_size = min(source.size, _END.size + _SATURATED16)
        tail_at = source.size - tail_size
        tail = source.read(tail_at, tail_size)
        at = tail.rfind(_END_MAGIC)
        if at < 0:
            raise self._refuse(
                "the zip directory is missing at the end of the file",
                fix="It was cut short; copy or download it again.",
            )
        end_at = tail_at + at
        if at + _END.size > tail_size:
            raise self._refuse("the zip end record is cut short", at=end_at, fix=_DAMAGED)
        _, disk, first_disk, here, count, size, start, comment = _END.unpack_from(tail, at)
        if end_at + _END.size + comment != source.size:
            raise self._refuse(
                "the zip end record is not where the file ends", at=end_at, fix=_DAMAGED
            )
        if disk or first_disk or here != count:
            raise self._refuse("a zip file in several parts", at=end_at, fix=_ODD)
        before = end_at
        locator_at = end_at - _END64_LOCATOR.size
        if locator_at >= 0:
            locator = source.read(locator_at, _END64_LOCATOR.size)
            if locator.startswith(_LOCATOR_MAGIC):
                before, count, size, start = self._read_end64(
                    locator, locator_at, (count, size, start)
                )
        if start + size != before:
            raise self._refuse(
                f"the zip directory ends at byte {start + size}, its end record starts at {before}",
                at=end_at,
                fix=_DAMAGED,
            )
        return start, size, count

    def _read_end64(
        self, locator: bytes, locator_at: int, short: tuple[int, int, int]
    ) -> tuple[int, int, int, int]:
        _, disk, at, disks = _END64_LOCATOR.unpack(locator)
        if disk or disks != 1 or at + _END64.size != locator_at:
            raise self._refuse(
                "the zip64 end record is not where it should be", at=locator_at, fix=_DAMAGED
            )
        fields = _END64.unpack(self.source.read(at, _END64.size))
        magic, length, _, _, disk, first_disk, here, count, size, start = fields
        if magic != _END64_MAGIC or length != _END64.size - 12:
            raise self._refuse("the zip64 end record is damaged", at=at, fix=_DAMAGED)
        if disk or first_disk or here != count:
            raise self._refuse("a zip file in several parts", at=at, fix=_ODD)
        for name, in_short, in_long, full in (
            ("count", short[0], count, _SATURATED16),
            ("size", short[1], size, _SATURATED32),
            ("offset", short[2], start, _SATURATED32),
        ):
            if in_short not in (in_long, full):
                raise self._refuse(
                    f"the two zip end records disagree about the directory's {name}: "
                    f"{in_short} and {in_long}",
                    at=at,
                    fix=_ODD,
                )
        return at, count, size, start

    def _read_directory(self, at: int, size: int, count: int) -> list[Record]:
        if count * _CENTRAL.size > size:
            raise self._refuse(
                f"{count} records do not fit in a directory of {size} bytes", at=at, fix=_DAMAGED
            )
        data = self.source.read(at, size)
        found: list[Record] = []
        seen: set[bytes] = set()
        position = 0
        for _ in range(count):
            if position + _CENTRAL.size > size:
                raise self._refuse("the zip directory is cut short", at=at + position, fix=_DAMAGED)
            (
                magic,
                _,
                _,
                flags,
                method,
                _,
                _,
                crc,
                compressed,
                full,
                name_size,
                extra_size,
                comment_size,
                disk,
                _,
                _,
                header_at,
            ) = _CENTRAL.unpack_from(data, position)
            if magic != _CENTRAL_MAGIC:
                raise self._refuse("the zip directory is damaged", at=at + position, fix=_DAMAGED)
            name_at = position + _CENTRAL.size
            extra_at = name_at + name_size
            following = extra_at + extra_size + comment_size
            if following > size:
                raise self._refuse("the zip directory is cut short", at=at + position, fix=_DAMAGED)
            raw_name = data[name_at:extra_at]
            if _SATURATED32 in (compressed, full, header_at):
                full, compressed, header_at = self._zip64_sizes(
                    data[extra_at : extra_at + extra_size],
                    (full, compressed, header_at),
                    at + extra_at,
                )
            name = self._plain_name(raw_name, at + name_at)
            if raw_name in seen:
                raise self._refuse(
                    f"two records are named {name!r}, and readers differ in which one counts",
                    at=at + position,
                    fix=_ODD,
                )
            seen.add(raw_name)
            record = Record(name, raw_name, flags, method, crc, compressed, full, header_at)
            if flags & _ENCRYPTED:
                raise self._refuse("an encrypted record", record, fix="Decrypt the file first.")
            if method not in (_STORED, _DEFLATED):
                raise self._refuse(
                    f"compression method {method}", record, fix="Only STORED and DEFLATE are read."
                )
            if method == _STORED and compressed != full:
                raise self._refuse(
                    f"a stored record of {full} bytes that takes {compressed}", record, fix=_DAMAGED
                )
            if disk:
                raise self._refuse("a zip file in several parts", record, fix=_ODD)
            found.append(record)
            position = following
        if position != size:
            raise self._refuse(
                f"{size - position} bytes after the zip directory's last entry",
                at=at + position,
                fix=_ODD,
            )
        if not found:
            raise self._refuse("a zip file without records", fix=_DAMAGED)
        return found

    def _zip64_sizes(
        self, extra: bytes, short: tuple[int, int, int], at: int
    ) -> tuple[int, int, int]:
        position = 0
        values = list(short)
        while position + 4 <= len(extra):
            kind, length = struct.unpack_from("<HH", extra, position)
            position += 4
            if position + length > len(extra):
                break
            if kind == 1:
                field = position
                for index, value in enumerate(short):
                    if value == _SATURATED32:
                        if field + 8 > position + length:
                            raise self._refuse("a zip64 field is missing", at=at, fix=_DAMAGED)
                        values[index] = struct.unpack_from("<Q", extra, field)[0]
                        field += 8
                return values[0], values[1], values[2]
            position += length
        raise self._refuse("a zip64 field is missing", at=at, fix=_DAMAGED)

    def _plain_name(self, raw: bytes, at: int) -> str:
        try:
            name = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self._refuse(f"the record name {raw!r} is not UTF-8", at=at, fix=_ODD) from None
        parts = name.split("/")
        control = any(ord(letter) < 32 for letter in name)
        if control or "\\" in name or ".." in parts or "" in parts[:-1]:
            raise self._refuse(f"the record name {name!r} is not a plain path", at=at, fix=_ODD)
        return name

    def _common_root(self, found: list[Record]) -> str:
        root = found[0].name.partition("/")[0]
        for record in found:
            folder, slash, _ = record.name.partition("/")
            if not slash or folder != root:
                raise self._refuse(
                    f"a record outside the folder {root!r} of the others",
                    record,
                    fix="Not a checkpoint as torch.save or mortice.save writes it.",
                )
        return root

    def _place(self, found: list[Record], directory_at: int) -> None:
        """Find where each record's data begins; check the local headers and that none overlap."""
        source = self.source
        previous_end = 0
        for record in sorted(found, key=lambda record: record.header_offset):
            at = record.header_offset
            if at < previous_end:
                raise self._refuse("two records overlap", record, fix=_ODD)
            if at + _LOCAL.size > directory_at:
                raise self._refuse("a record beyond the zip directory", record, fix=_DAMAGED)
            head = source.read(at, min(_LOCAL.size + len(record.raw_name), directory_at - at))
            (magic, _, flags, method, _, _, crc, compressed, full, name_size, extra_size) = (
                _LOCAL.unpack_from(head)
            )
            if magic != LOCAL_MAGIC:
                raise self._refuse(
                    f"no record header at byte {at} of the file", record, fix=_DAMAGED
                )
            if (
                name_size != len(record.raw_name)
                or head[_LOCAL.size :] != record.raw_name
                or method != record.method
                or (flags ^ record.flags) & ~0x800
            ):
                raise self._refuse(
                    "a record's own header and the directory disagree", record, fix=_ODD
                )
            if not flags & _HAS_DESCRIPTOR:
                for own, listed in (
                    (crc, record.crc),
                    (compressed, record.compressed),
                    (full, record.size),
                ):
                    if own not in (listed, _SATURATED32):
                        raise self._refuse(
                            "a record's own header and the directory disagree", record, fix=_ODD
                        )
            record.data_offset = at + _LOCAL.size + name_size + extra_size
            previous_end = record.data_offset + record.compressed
            if previous_end > directory_at:
                raise self._refuse("a record runs into the zip directory", record, fix=_DAMAGED)

    # -- records -------------------------------------------------------------------------------

    def _inflated_size(self, record: Record) -> int:
        ratio = self.limits.inflate_ratio
        if record.size > max(_FREE_INFLATION, record.compressed * ratio):
            raise self._refuse(
                f"{record.compressed} bytes that inflate to {record.size}, over {ratio} times",
                record,
                fix=hint("inflate_ratio"),
            )
        return record.size

    def _inflate(self, record: Record, view: memoryview, verify: bool) -> None:
        engine = zlib.decompressobj(-zlib.MAX_WBITS)
        crc, done, taken = 0, 0, 0
        pending = b""
        try:
            while not engine.eof:
                if not pending:
                    step = min(_INFLATE_STEP, record.compressed - taken)
                    if step <= 0:
                        break
                    pending = self.source.read(record.data_offset + taken, step)
                    taken += step
                # One byte more than fits, to notice a record that inflates past its size.
                piece = engine.decompress(pending, min(_INFLATE_STEP, record.size - done + 1))
                pending = engine.unconsumed_tail
                if done + len(piece) > record.size:
                    raise self._refuse(f"inflates past its {record.size} bytes", record, fix=_ODD)
                view[done : done + len(piece)] = piece
                done += len(piece)
                crc = zlib.crc32(piece, crc)
        except zlib.error as error:
            raise self._refuse(f"cannot be inflated ({error})", record, fix=_DAMAGED) from error
        if done != record.size or not engine.eof or taken != record.compressed:
            raise self._refuse(
                f"inflates to {done} bytes, {record.size} expected", record, fix=_DAMAGED
            )
        if verify:
            self._check_crc(record, crc)

    def _check_crc(self, record: Record, crc: int) -> None:
        if crc == record.crc or not self.checksums:
            return
        # Zero is what writers put that leave a storage for others to fill (`skip_data`).
        if record.crc or not record.name.startswith("data/"):
            raise self._refuse(
                f"the checksum is {crc:08x}, the file says {record.crc:08x}: its bytes changed",
                record,
                fix=_DAMAGED + " verify=False loads it as it is.",
            )

    def _refuse(
        self, problem: str, record: Record | None = None, *, at: int | None = None, fix: str = ""
    ) -> CheckpointError:
        if record is not None and at is None:
            at = record.header_offset
        return CheckpointError(
            problem,
            path=self.source.path,
            record=record.name if record is not None else None,
            file_offset=at,
            fix=fix,
        )
