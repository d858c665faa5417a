"""From a key to callable code: cache, else compile; then load."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from ..errors import LoadError
from ..target import Target, host
from . import cache as disk
from .threads import lock, parallel_for


class Library:
    """Loaded code: ``address(name)`` of its functions, ``function(name, ...)`` to call them."""

    def __init__(self, symbols: dict[str, int]) -> None:
        self._symbols = symbols

    def address(self, name: str) -> int:
        """The address of a function."""
        if name not in self._symbols:
            raise LoadError(f"no function {name!r}; there are {', '.join(self._symbols)}")
        return self._symbols[name]

    def function(
        self, name: str, *argtypes: type, restype: type | None = None
    ) -> Callable[..., Any]:
        """The function as a ctypes callable (the GIL is released while it runs)."""
        return ctypes.CFUNCTYPE(restype, *argtypes)(self.address(name))


def loads_elf() -> bool:
    """True where objects are loaded without LLVM."""
    return sys.platform == "linux" and host().arch == "x86_64"


def resolve(name: str) -> int:
    """The address of a symbol that objects may leave open."""
    return parallel_for() if name == "mortice_parallel_for" else _in_libc(name)


@cache
def _in_libc(name: str) -> int:
    return ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value or 0


def _load_by_llvm(objects: list[bytes], uses_pool: bool) -> dict[str, int]:
    """Loads with LLVM's own loader, on platforms that ``elf`` does not know."""
    import llvmlite.binding as llvm

    from .compiler import prepare

    prepare(host())
    if uses_pool:
        llvm.add_symbol("mortice_parallel_for", resolve("mortice_parallel_for"))
    module = llvm.parse_assembly("", llvm.create_context())
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(module, machine)
    files = [llvm.ObjectFileRef.from_data(obj) for obj in objects]
    for file in files:
        engine.add_object_file(file)
    engine.finalize_object()
    # Kept beyond the interpreter's end: a worker thread may be inside this code when it ends.
    for kept in (engine, module, files):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    return _EngineSymbols(engine)


class _EngineSymbols(dict[str, int]):
    """Looks symbols up in an execution engine on demand."""

    def __init__(self, engine: object) -> None:
        super().__init__()
        self.engine = engine

    def __contains__(self, name: object) -> bool:
        return self[str(name)] != 0

    def __missing__(self, name: str) -> int:
        found = self.engine.get_function_address(name)  # type: ignore[attr-defined]
        self[name] = found
        return found


def entry_of(obj: bytes) -> bytes:
    """What the cache keeps of an object file or a pack of them: where objects are loaded without LLVM,
    linked already. Raises CompileError for symbols that may not be left open.
    """
    if not loads_elf():
        return obj
    from . import elf
    from .compiler import check_externs
    from .split import unpack

    image = elf.link(unpack(obj))
    check_externs(set(image.open))
    return elf.dump(image)


def load_entry(entry: bytes, *, uses_pool: bool = True) -> Library:
    """Loads what ``entry_of`` gave; all but the pool itself may use the pool. Raises LoadError."""
    if loads_elf():
        from . import elf

        return Library(elf.place(elf.parse(entry), resolve))
    from .split import unpack

    return Library(_load_by_llvm(unpack(entry), uses_pool))


def load_object(obj: bytes, *, uses_pool: bool = True) -> Library:
    """Loads an object file, or a pack of them, into this process."""
    return load_entry(entry_of(obj), uses_pool=uses_pool)


def load(key: bytes, make_text: Callable[[Target], str], *, uses_pool: bool = True) -> Library:
    """Returns the code for ``key``: from the cache, else compiled from ``make_text(target)``.

    ``key`` must determine the text, given this package's sources and the target.
    """
    target = host()
    with lock:
        form = b"image" if loads_elf() else b"objects"
        system = sys.platform.encode()
        full = disk.digest(disk.source_hash(), target.name.encode(), system, form, key)
        entry = disk.read(full)
        if entry is not None:
            try:
                return load_entry(entry, uses_pool=uses_pool)
            except LoadError:
                pass  # a bad entry is a miss: it is made again below
        from .compiler import compile_parts

        entry = entry_of(compile_parts(make_text(target), target))
        disk.write(full, entry)
        return load_entry(entry, uses_pool=uses_pool)
