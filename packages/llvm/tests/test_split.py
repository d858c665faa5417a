"""Long modules are cut into parts that threads compile side by side."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest

from mortice_llvm.errors import CompileError, LoadError
from mortice_llvm.runtime import compiler, elf, library
from mortice_llvm.runtime import split as sp
from mortice_llvm.target import host

# f calls g, g calls h, and h has the addresses of both taken: parts need each other both ways.
TEXT = """@weights = internal constant [2 x i64] [i64 3, i64 5]
declare i64 @llvm.umin.i64(i64, i64)
define internal i64 @h(i64 %x, ptr %back) noinline nounwind {
  %w = load i64, ptr getelementptr (i64, ptr @weights, i64 1)
  %small = icmp ult i64 %x, 100
  br i1 %small, label %again, label %done
again:
  %more = mul i64 %x, %w
  %r = call i64 %back(i64 %more)
  ret i64 %r
done:
  ret i64 %x
}
define i64 @g(i64 %x) nounwind {
  %y = call i64 @h(i64 %x, ptr @g)
  ret i64 %y
}
define i64 @f(i64 %x) nounwind {
  %y = call i64 @g(i64 %x)
  %z = call i64 @llvm.umin.i64(i64 %y, i64 1000)
  ret i64 %z
}
"""


@pytest.fixture
def short_parts(monkeypatch):
    monkeypatch.setattr(sp, "LEAST", 50)
    monkeypatch.setattr(compiler, "get_num_threads", lambda: 3)


@pytest.mark.parametrize("most", [1, 2, 3, 8])
def test_parts_define_every_function_once(monkeypatch, most):
    monkeypatch.setattr(sp, "LEAST", 50)
    parts = sp.split(TEXT, most)
    assert len(parts) == min(most, 3)
    for name in "fgh":
        defined = [p for p in parts if f"@{name}(" in p and f"define i64 @{name}(" in p]
        assert len(defined) == 1 or (most == 1 and name == "h"), name
    assert all("@weights = internal constant" in p for p in parts)


def test_short_text_and_text_with_variables_stay_whole(monkeypatch):
    assert sp.split(TEXT, 8) == [TEXT]
    monkeypatch.setattr(sp, "LEAST", 50)
    text = TEXT.replace("internal constant", "internal global")
    assert sp.split(text, 8) == [text]


def test_parts_run_as_the_whole_does(short_parts):
    entry = compiler.compile_parts(TEXT, host())
    assert len(sp.unpack(entry)) == 3
    for obj in (entry, compiler.compile_text(TEXT, host())):
        f = library.load_object(obj).function("f", ctypes.c_int64, restype=ctypes.c_int64)
        assert [f(1), f(7), f(101), f(5000)] == [125, 175, 101, 1000]


def test_parts_leave_open_only_what_none_of_them_defines(short_parts):
    if not library.loads_elf():
        pytest.skip("objects are loaded by LLVM here")
    objects = sp.unpack(compiler.compile_parts(TEXT, host()))
    assert elf.externs(objects) == set()
    assert any(elf.externs([obj]) for obj in objects)


def test_each_part_is_compiled_in_a_thread_of_its_own(short_parts, monkeypatch):
    seen: list[int] = []
    all_there = threading.Barrier(3, timeout=60)
    emit = compiler._emit

    def meeting(machine: Any, module: Any) -> bytes:
        seen.append(threading.get_ident())
        all_there.wait()  # breaks unless three threads are here at once
        return emit(machine, module)

    monkeypatch.setattr(compiler, "_emit", meeting)
    assert len(sp.unpack(compiler.compile_parts(TEXT, host()))) == 3
    assert len(set(seen)) == 3


def test_an_error_in_one_part_reaches_the_caller(short_parts, monkeypatch):
    def failing(machine: Any, module: Any) -> bytes:
        if threading.current_thread() is threading.main_thread():
            return b""
        raise CompileError("this part cannot be compiled")

    monkeypatch.setattr(compiler, "_emit", failing)
    with pytest.raises(CompileError, match="this part"):
        compiler.compile_parts(TEXT, host())


def test_a_damaged_pack_is_told(short_parts):
    entry = compiler.compile_parts(TEXT, host())
    for cut in (9, 20, 60, len(entry) - 1):
        with pytest.raises(LoadError):
            sp.unpack(entry[:cut])
    with pytest.raises(LoadError):
        sp.unpack(entry[:8] + b"\xff" * 8 + entry[16:])
