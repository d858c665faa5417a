"""Loads x86-64 ELF object files into memory, without LLVM.

``link`` lays the sections of some objects out as one image and applies relocations of a few kinds,
as far as they do not depend on where the image will lie; open symbols go through stubs. That is
what the cache keeps. ``place`` copies an image into one fresh mapping, adds what depends on the
address, and turns its code from writable to executable. It is never unmapped: worker threads may
still be inside it when the process ends.
"""

from __future__ import annotations

import ctypes
import marshal
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..errors import LoadError, NotAvailable
from . import memory

_ALLOC, _NOBITS, _SYMTAB, _RELA = 2, 8, 2, 4
_R64, _PC32, _PLT32, _PC64 = 1, 2, 4, 24
_GOT_KINDS = (9, 41, 42)  # GOTPCREL, GOTPCRELX, REX_GOTPCRELX
_X86_64 = 62
_PROT_CODE = 5  # read and execute
_STUB = 16
_WORD = (1 << 64) - 1
_MAGIC = b"MRTIMG1\n"


class Image(NamedTuple):
    """Objects linked for any address; places are bytes from its start.

    Attributes:
        size: of the mapping, in bytes.
        code_size: of its first part, which is executable and not writable.
        data: what it begins with; zeros follow.
        exports: places of global symbols.
        open: for each symbol that it needs, where its address is to be written.
        absolute: where words lie to which the image's address is to be added.
    """

    size: int
    code_size: int
    data: bytes
    exports: dict[str, int]
    open: dict[str, int]
    absolute: tuple[int, ...]


# -- object files ----------------------------------------------------------------------------------


class _Section(NamedTuple):
    name: int
    type: int
    flags: int
    addr: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int


class _Symbol(NamedTuple):
    name: str
    section: int
    value: int
    is_global: bool


def _sections(obj: bytes) -> list[_Section]:
    if len(obj) < 64 or obj[:6] != b"\x7fELF\x02\x01":
        raise LoadError("expected a 64-bit little-endian ELF object file")
    (offset,) = struct.unpack_from("<Q", obj, 40)
    (count,) = struct.unpack_from("<H", obj, 60)
    if offset + 64 * count > len(obj):
        raise LoadError("the object file is cut short")
    out = [_Section(*struct.unpack_from("<IIQQQQIIQQ", obj, offset + 64 * k)) for k in range(count)]
    for s in out:
        if s.type != _NOBITS and s.offset + s.size > len(obj):
            raise LoadError("a section reaches past the end of the object file")
    return out


def _symbols(obj: bytes, sections: list[_Section]) -> list[_Symbol]:
    table = next((s for s in sections if s.type == _SYMTAB), None)
    if table is None:
        return []
    names = sections[table.link].offset
    out: list[_Symbol] = []
    rows = memoryview(obj)[table.offset : table.offset + table.size]
    for name, info, _, section, value, _ in struct.iter_unpack("<IBBHQQ", rows):
        end = obj.index(b"\0", names + name)
        out.append(_Symbol(obj[names + name : end].decode(), section, value, info >> 4 != 0))
    return out


class _Object:
    """A parsed object file, and where in the image its sections go."""

    def __init__(self, obj: bytes) -> None:
        self.data = obj
        self.sections = _sections(obj)
        (self.machine,) = struct.unpack_from("<H", obj, 18)
        self.symbols = _symbols(obj, self.sections)
        self.at: dict[int, int] = {}

    def place(self, end: int, *, writable: bool) -> int:
        """Lays out its sections of one kind behind ``end``; the new end."""
        for k, s in enumerate(self.sections):
            if s.flags & _ALLOC and bool(s.flags & 1) == writable:
                self.at[k] = end = _up(end, max(s.align, 1))
                end += s.size
        return end

    def relocations(self) -> list[tuple[int, int, int, int]]:
        """(section, offset in it, kind and symbol, addend) of sections that are loaded."""
        out: list[tuple[int, int, int, int]] = []
        for s in self.sections:
            if s.type != _RELA or not self.sections[s.info].flags & _ALLOC:
                continue
            rows = memoryview(self.data)[s.offset : s.offset + s.size]
            out += [(s.info, *row) for row in struct.iter_unpack("<QQq", rows)]
        return out


def externs(objects: Sequence[bytes]) -> set[str]:
    """Names that the object files together leave open."""
    return _open([_Object(obj) for obj in objects])


def _open(objects: Sequence[_Object]) -> set[str]:
    symbols = [s for o in objects for s in o.symbols if s.name]
    return {s.name for s in symbols if s.section == 0} - {s.name for s in symbols if s.section}


def _up(at: int, unit: int) -> int:
    return (at + unit - 1) // unit * unit


# -- from objects to an image ----------------------------------------------------------------------


def link(objects: Sequence[bytes]) -> Image:
    """Object files that may use each other's symbols as one image; raises LoadError."""
    try:
        return _Linker([_Object(obj) for obj in objects]).image()
    except (struct.error, IndexError, ValueError, UnicodeDecodeError, MemoryError) as e:
        raise LoadError(f"the object file is damaged: {e}") from e


class _Linker:
    """Layout: read-only and code sections, stubs, addresses of symbols that code reads from a
    table; then writable sections, on pages of their own.
    """

    def __init__(self, objects: list[_Object]) -> None:
        if any(o.machine != _X86_64 for o in objects):
            raise LoadError("expected an object file for x86-64")
        self.objects = objects
        end = 0
        for o in objects:
            end = o.place(end, writable=False)
        end = _up(end, _STUB)
        self.stubs = {n: end + _STUB * k for k, n in enumerate(sorted(_open(objects)))}
        end += _STUB * len(self.stubs)
        self.table: dict[tuple[int, int], int] = {}
        for key in self._through_table():
            self.table[key] = end
            end += 8
        self.code_size = end = _up(end, memory.PAGE)
        for o in objects:
            end = o.place(end, writable=True)
        self.size = max(_up(end, memory.PAGE), memory.PAGE)
        self.exports = {
            s.name: o.at[s.section] + s.value
            for o in objects
            for s in o.symbols
            if s.is_global and s.section in o.at
        }
        self.absolute: list[int] = []

    def _through_table(self) -> list[tuple[int, int]]:
        return sorted(
            {(k, info >> 32) for k, o in enumerate(self.objects)
             for _, _, info, _ in o.relocations() if info & 0xFFFFFFFF in _GOT_KINDS}
        )  # fmt: skip

    def image(self) -> Image:
        self.data = bytearray(self.size)
        for o in self.objects:
            for k, at in o.at.items():
                s = o.sections[k]
                if s.type != _NOBITS:
                    self.data[at : at + s.size] = o.data[s.offset : s.offset + s.size]
        for at in self.stubs.values():
            self.data[at : at + 6] = b"\xff\x25\0\0\0\0"  # jmp *0(%rip): to the address behind it
        for (k, symbol), at in self.table.items():
            self._add_absolute(at, self._at(k, symbol))
        for k, o in enumerate(self.objects):
            for section, offset, info, addend in o.relocations():
                self._apply(k, o.at[section] + offset, info & 0xFFFFFFFF, info >> 32, addend)
        opened = {name: at + 6 for name, at in self.stubs.items()}
        # Zeros at the end are what fresh memory has anyhow, unless something will be written there.
        used = [
            len(self.data.rstrip(b"\0")),
            *(at + 8 for at in (*opened.values(), *self.absolute)),
        ]
        data = bytes(self.data[: max(used)])
        return Image(self.size, self.code_size, data, self.exports, opened, tuple(self.absolute))

    def _at(self, number: int, symbol: int) -> int:
        """The place of a symbol of an object."""
        o = self.objects[number]
        s = o.symbols[symbol]
        if s.section in o.at:
            return o.at[s.section] + s.value
        found = self.exports.get(s.name, self.stubs.get(s.name))
        if s.section or found is None:
            raise LoadError(f"symbol {s.name!r} lies in a section that is not loaded")
        return found

    def _add_absolute(self, at: int, target: int) -> None:
        struct.pack_into("<Q", self.data, at, target & _WORD)
        self.absolute.append(at)

    def _apply(self, number: int, at: int, kind: int, symbol: int, addend: int) -> None:
        if kind in _GOT_KINDS:
            struct.pack_into("<i", self.data, at, self.table[number, symbol] + addend - at)
            return
        target = self._at(number, symbol) + addend
        if kind in (_PC32, _PLT32):
            struct.pack_into("<i", self.data, at, target - at)
        elif kind == _R64:
            self._add_absolute(at, target)
        elif kind == _PC64:
            struct.pack_into("<q", self.data, at, target - at)
        else:
            raise LoadError(f"relocation kind {kind} is not accepted")


# -- images ----------------------------------------------------------------------------------------


def dump(image: Image) -> bytes:
    """An image as bytes."""
    return _MAGIC + marshal.dumps(tuple(image), 2)


def parse(entry: bytes) -> Image:
    """The image that ``dump`` was given; LoadError for other bytes."""
    if not entry.startswith(_MAGIC):
        raise LoadError("expected an image of linked objects")
    try:
        image = Image(*marshal.loads(entry[len(_MAGIC) :]))  # noqa: S302  checked by its hash
        places = (*image.open.values(), *image.absolute)
        sound = 0 <= image.code_size <= image.size and len(image.data) <= image.size
        if not sound or any(not 0 <= at <= len(image.data) - 8 for at in places):
            raise LoadError("an image's places lie outside of it")
    except (ValueError, EOFError, TypeError, AttributeError, MemoryError) as e:
        raise LoadError(f"the image is damaged: {e}") from e
    return image


def place(image: Image, resolve: Callable[[str], int]) -> dict[str, int]:
    """Puts an image into memory; ``resolve`` gives the addresses of open symbols.

    Returns the addresses of its global symbols. Raises LoadError, NotAvailable where the system
    allows no code made at run time.
    """
    addresses = {name: resolve(name) for name in image.open}
    base = memory.new(image.size)
    data = bytearray(image.data)
    for at in image.absolute:
        (word,) = struct.unpack_from("<Q", data, at)
        struct.pack_into("<Q", data, at, (word + base) & _WORD)
    for name, at in image.open.items():
        struct.pack_into("<Q", data, at, addresses[name])
    ctypes.memmove(base, bytes(data), len(data))
    error = memory.protect(base, image.code_size, _PROT_CODE)
    if error:
        memory.give_back(base, image.size)
        raise NotAvailable(
            f"this system does not allow executable memory made at run time: errno {error}"
        )
    return {name: base + at for name, at in image.exports.items()}


def load(objects: Sequence[bytes], resolve: Callable[[str], int]) -> dict[str, int]:
    """Links and places object files."""
    return place(link(objects), resolve)
