"""Loads x86-64 ELF object files into memory, without LLVM.

Sections marked for loading are copied into one fresh mapping, relocations of a few kinds are
applied, open symbols go through stubs, and the mapping turns from writable to executable. It is
never unmapped: worker threads may still be inside it when the process ends.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..errors import LoadError, NotAvailable

_ALLOC, _NOBITS, _SYMTAB, _RELA = 2, 8, 2, 4
_R64, _PC32, _PLT32, _PC64 = 1, 2, 4, 24
_GOT_KINDS = (9, 41, 42)  # GOTPCREL, GOTPCRELX, REX_GOTPCRELX
_X86_64 = 62
_PROT_CODE = 5  # read and execute
_PAGE = 4096
_STUB = 16


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


def externs(objects: Sequence[bytes]) -> set[str]:
    """Names that the object files together leave open."""
    symbols = [s for obj in objects for s in _symbols(obj, _sections(obj)) if s.name]
    return {s.name for s in symbols if s.section == 0} - {s.name for s in symbols if s.section}


def _map(size: int) -> int:
    """Address of fresh readable and writable memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    ]
    at = libc.mmap(None, size, 3, 0x22, -1, 0)  # read|write, private|anonymous (Linux)
    if at in (None, ctypes.c_void_p(-1).value):
        raise LoadError(f"cannot map {size} bytes: errno {ctypes.get_errno()}")
    return at


def _make_executable(at: int, size: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(size), _PROT_CODE):
        raise NotAvailable(
            "this system does not allow executable memory made at run time: errno "
            f"{ctypes.get_errno()}"
        )


class _Image:
    """Layout: read-only and code sections, stubs, then writable sections on pages of their own."""

    def __init__(self, obj: bytes) -> None:
        if len(obj) > 20 and struct.unpack_from("<H", obj, 18)[0] != _X86_64:
            raise LoadError("expected an object file for x86-64")
        self.obj = obj
        self.sections = _sections(obj)
        self.symbols = _symbols(obj, self.sections)
        self.at: dict[int, int] = {}
        open_names = sorted(externs([obj]))
        end = self._place(0, writable=False)
        end = (end + _STUB - 1) // _STUB * _STUB
        self.stubs = {n: end + _STUB * k for k, n in enumerate(open_names)}
        end += _STUB * len(open_names)
        # Addresses of defined symbols that code reads through a table.
        self.table: dict[int, int] = {}
        for k in self._through_table():
            self.table[k] = end
            end += 8
        self.code_size = (end + _PAGE - 1) // _PAGE * _PAGE
        end = self._place(self.code_size, writable=True)
        self.size = max((end + _PAGE - 1) // _PAGE * _PAGE, _PAGE)
        self.data = bytearray(self.size)

    def _place(self, end: int, *, writable: bool) -> int:
        for k, s in enumerate(self.sections):
            if s.flags & _ALLOC and bool(s.flags & 1) == writable:
                align = max(s.align, 1)
                end = (end + align - 1) // align * align
                self.at[k] = end
                end += s.size
        return end

    def _relocations(self) -> list[tuple[int, int, int, int]]:
        """(place in the image, kind, symbol, addend) of loaded sections."""
        out: list[tuple[int, int, int, int]] = []
        for s in self.sections:
            if s.type != _RELA or s.info not in self.at:
                continue
            base = self.at[s.info]
            rows = memoryview(self.obj)[s.offset : s.offset + s.size]
            for where, info, addend in struct.iter_unpack("<QQq", rows):
                out.append((base + where, info & 0xFFFFFFFF, info >> 32, addend))
        return out

    def _through_table(self) -> list[int]:
        return sorted({sym for _, kind, sym, _ in self._relocations() if kind in _GOT_KINDS})

    def _address(self, symbol: int, base: int) -> int:
        s = self.symbols[symbol]
        if s.section in self.at:
            return base + self.at[s.section] + s.value
        if s.name in self.stubs:
            return base + self.stubs[s.name]
        raise LoadError(f"symbol {s.name!r} lies in a section that is not loaded")

    def exported(self, base: int) -> dict[str, int]:
        """The addresses of its global symbols in an image at ``base``."""
        return {
            s.name: base + self.at[s.section] + s.value
            for s in self.symbols
            if s.is_global and s.section in self.at
        }

    def fill(self, base: int, resolve: Callable[[str], int]) -> None:
        """Makes the image for address ``base``."""
        data = self.data
        for k, at in self.at.items():
            s = self.sections[k]
            if s.type != _NOBITS:
                data[at : at + s.size] = self.obj[s.offset : s.offset + s.size]
        for name, at in self.stubs.items():
            # jmp *0(%rip), and the address behind it
            data[at : at + 14] = b"\xff\x25\0\0\0\0" + struct.pack("<Q", resolve(name))
        for symbol, at in self.table.items():
            struct.pack_into("<Q", data, at, self._address(symbol, base))
        for at, kind, symbol, addend in self._relocations():
            self._apply(base, at, kind, symbol, addend)

    def _apply(self, base: int, at: int, kind: int, symbol: int, addend: int) -> None:
        place = base + at
        if kind in _GOT_KINDS:
            struct.pack_into("<i", self.data, at, base + self.table[symbol] + addend - place)
            return
        target = self._address(symbol, base) + addend
        if kind in (_PC32, _PLT32):
            struct.pack_into("<i", self.data, at, target - place)
        elif kind == _R64:
            struct.pack_into("<Q", self.data, at, target & 0xFFFFFFFFFFFFFFFF)
        elif kind == _PC64:
            struct.pack_into("<q", self.data, at, target - place)
        else:
            raise LoadError(f"relocation kind {kind} is not accepted")


def load(objects: Sequence[bytes], resolve: Callable[[str], int]) -> dict[str, int]:
    """Loads object files that may use each other's symbols; ``resolve`` gives the address of any
    other open symbol.

    Returns the addresses of their global symbols; raises LoadError.
    """
    try:
        images = [_Image(obj) for obj in objects]
        bases = [_map(image.size) for image in images]
        found: dict[str, int] = {}
        for image, base in zip(images, bases, strict=True):
            found |= image.exported(base)

        def address(name: str) -> int:
            return found[name] if name in found else resolve(name)

        for image, base in zip(images, bases, strict=True):
            image.fill(base, address)
    except (struct.error, IndexError, ValueError, UnicodeDecodeError) as e:
        raise LoadError(f"the object file is damaged: {e}") from e
    for image, base in zip(images, bases, strict=True):
        ctypes.memmove(base, bytes(image.data), image.size)
        _make_executable(base, image.code_size)
    return found
