"""What tells that code comes from the same sources in another process.

Not all that a class is made of is guarded: what it says depends on where it was written. Of modules of
users the text is compared, of others and of the framework's packages their size and time; Python's own and
core's are known by their versions and by the hashes that stand over all plans.
"""

from __future__ import annotations

import os
import sys
import types
from typing import Any

from mortice._capture.observer.framework import is_library
from mortice._capture.texts import hash_of
from mortice._dispatch.state import STARTED

#: A hash of a file's text, or its size and time.
FileMark = bytes | tuple[int, int]


class Unnamed(Exception):
    """An object that another process cannot know; the text says which."""


def is_known(module: str) -> bool:
    """Whether a module's code is known without looking at its file."""
    return is_library(module) or is_standard(module)


def is_standard(module: str) -> bool:
    """Whether a module is Python's own, and not one of somebody's with the name of one."""
    if module == "builtins":
        return True
    if module.partition(".")[0] not in sys.stdlib_module_names:
        return False
    path = _path(sys.modules.get(module))
    return path is None or (
        path.startswith(_LIBRARY) and not path.startswith(tuple(_LIBRARY + x for x in _OTHERS))
    )


#: Where Python's own modules lie, and what lies there besides.
_LIBRARY = os.path.dirname(getattr(os, "__file__", None) or sys.prefix) + os.sep
_OTHERS = ("site-packages", "dist-packages")


def _path(module: Any) -> str | None:
    found = module.__dict__.get("__file__") if type(module) is types.ModuleType else None
    return found if type(found) is str else None


def mark_of(module: str) -> FileMark:
    """What the file of a module is known by. Raises Unnamed where that may not be what was imported."""
    path = _path(sys.modules.get(module))
    if path is None:
        raise Unnamed(f"module {module}, which comes from no file")
    try:
        stat = os.stat(path)
        if stat.st_mtime_ns > _began() or stat.st_ctime_ns > STARTED:
            raise Unnamed(
                f"module {module}, whose file was changed since it may have been imported"
            )
        if is_library(module) or not path.endswith((".py", ".pyc")):
            return stat.st_size, stat.st_mtime_ns
        key = path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
        found = _marks.get(key)
        if found is None:
            with open(path, "rb") as file:
                found = _marks[key] = hash_of(file.read())
    except OSError:
        raise Unnamed(f"module {module}, whose file is gone") from None
    return found


_marks: dict[tuple[str, int, int, int], bytes] = {}


def _began() -> int:
    """When this process began, in ns, perhaps a little earlier; where the system does not say, when
    the framework was imported.
    """
    global _process
    if _process is None:
        _process = STARTED
        try:
            with open("/proc/self/stat", "rb") as file:
                ticks = int(file.read().rpartition(b")")[2].split()[19])
            with open("/proc/stat", "rb") as file:
                (line,) = [x for x in file.read().splitlines() if x.startswith(b"btime ")]
            since = ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
            _process = min(STARTED, int(line.split()[1]) * 1_000_000_000 + since)
        except (OSError, ValueError, IndexError):
            pass
    return _process


_process: int | None = None
