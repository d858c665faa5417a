"""Objects linked for any address: what the cache keeps on Linux."""

from __future__ import annotations

import ctypes
import marshal
import platform
import sys
from typing import Any

import pytest

from mortice_llvm.errors import LoadError
from mortice_llvm.runtime import elf, library, memory
from mortice_llvm.runtime.compiler import compile_text
from mortice_llvm.target import host

# Asked of the system, not of the code: where objects have to be linked here, these tests run.
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="objects are loaded by LLVM elsewhere",
)

# Words that hold addresses, variables with and without a value, and a symbol from outside.
TEXT = """@numbers = internal constant [3 x i64] [i64 5, i64 7, i64 11]
@count = internal global i64 40
@seen = internal global [600 x i64] zeroinitializer
@table = internal constant [2 x ptr] [ptr @one, ptr @two]
declare ptr @memset(ptr, i32, i64)
define internal i64 @one(i64 %x) noinline nounwind {
  %place = getelementptr i64, ptr @numbers, i64 %x
  %n = load i64, ptr %place
  ret i64 %n
}
define internal i64 @two(i64 %x) noinline nounwind {
  %n = load i64, ptr @count
  %more = add i64 %n, %x
  store i64 %more, ptr @count
  store i64 %more, ptr getelementptr (i64, ptr @seen, i64 599)
  %r = load i64, ptr getelementptr (i64, ptr @seen, i64 599)
  ret i64 %r
}
define i64 @f(i64 %which, i64 %x) nounwind {
  %place = getelementptr ptr, ptr @table, i64 %which
  %fn = load ptr, ptr %place
  %r = call i64 %fn(i64 %x)
  ret i64 %r
}
define void @clear(ptr %p, i64 %n) nounwind {
  %r = call ptr @memset(ptr %p, i32 0, i64 %n)
  ret void
}
"""


@pytest.fixture(scope="module")
def image() -> elf.Image:
    return elf.link([compile_text(TEXT, host())])


def _functions(image: elf.Image) -> tuple[Any, Any]:
    loaded = library.Library(elf.place(image, library.resolve))
    number, pointer = ctypes.c_int64, ctypes.c_void_p
    return loaded.function("f", number, number, restype=number), loaded.function(
        "clear", pointer, number
    )


def test_each_copy_of_an_image_has_variables_of_its_own(image: elf.Image) -> None:
    for _ in range(2):
        f, clear = _functions(elf.parse(elf.dump(image)))
        assert [f(0, 0), f(0, 2), f(1, 2), f(1, 3)] == [5, 11, 42, 45]
        room = ctypes.create_string_buffer(b"x" * 8, 8)
        clear(room, 7)
        assert room.raw == bytes(7) + b"x"
    assert set(image.open) == {"memset"}
    assert len(image.absolute) >= 2


def test_an_image_is_one_mapping(image: elf.Image, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many objects are in it."""
    calls: list[str] = []
    for name in ("new", "protect"):
        fn = getattr(memory, name)
        monkeypatch.setattr(memory, name, lambda *a, n=name, fn=fn: calls.append(n) or fn(*a))
    parts = [compile_text(f"define i32 @g{k}() {{\n ret i32 {k}\n}}\n", host()) for k in range(5)]
    loaded = library.Library(elf.load(parts, library.resolve))
    found = [loaded.function(f"g{k}", restype=ctypes.c_int)() for k in range(5)]
    assert found == [0, 1, 2, 3, 4]
    assert calls == ["new", "protect"]


def test_a_damaged_image_is_told(image: elf.Image) -> None:
    entry = elf.dump(image)
    assert elf.parse(entry) == image
    for cut in range(0, len(entry) - 1, 61):
        with pytest.raises(LoadError):
            elf.parse(entry[:cut])
    wrong = [
        image._replace(open={"memset": len(image.data) - 7}),
        image._replace(absolute=(-1,)),
        image._replace(code_size=image.size + 4096),
        image._replace(size=100),
        image._replace(open=None),  # type: ignore[arg-type]
    ]
    for bad in wrong:
        with pytest.raises(LoadError):
            elf.parse(elf.dump(bad))
    with pytest.raises(LoadError):
        elf.parse(elf._MAGIC + marshal.dumps([1, 2]))


def test_a_hit_parses_no_object(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("MORTICE_CACHE_DIR", str(tmp_path))
    text = "define i32 @f() {\n ret i32 7\n}\n"
    library.load(b"seven", lambda _: text, uses_pool=False)
    monkeypatch.setattr(elf, "_Object", None)
    loaded = library.load(b"seven", lambda _: "", uses_pool=False)
    assert loaded.function("f", restype=ctypes.c_int)() == 7
