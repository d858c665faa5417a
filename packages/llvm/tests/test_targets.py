from __future__ import annotations

import re
import sys
import time

import numpy as np
import pytest

from mortice_llvm import target
from mortice_llvm.emit import emit_kernel
from mortice_llvm.emit.philox import emit_fill
from mortice_llvm.errors import NotAvailable
from mortice_llvm.kernels.build import build
from mortice_llvm.kernels.table import entry
from mortice_llvm.runtime import elf, library
from mortice_llvm.runtime import threads as pool
from mortice_llvm.runtime.compiler import check_externs, compile_text
from mortice_llvm.runtime.pool_text import SERIAL, pool_text


@pytest.mark.parametrize("name", target.TARGETS)
def test_every_target_compiles(name):
    """Machine code is made for each target, also those that this machine cannot run."""
    t = target.named(name)
    machine = 62 if t.arch == "x86_64" else 183
    kernels = [("pointwise", n) for n in ("gelu", "sin", "pow", "log", "lt", "adam")]
    kernels += [("row", n) for n in ("softmax", "argmax", "layer_norm_affine")]
    texts = [emit_kernel(build(entry(f, n), "k", "f32"), t) for f, n in kernels]
    texts += [emit_kernel(build(entry("pointwise", "add"), "k", d), t) for d in ("bf16", "i8")]
    texts += [emit_fill("f32", "k", t), pool_text(t, "linux"), pool_text(t, "darwin")]
    for text in texts:
        obj = compile_text(text, t)
        if obj[:4] == b"\x7fELF":
            assert int.from_bytes(obj[18:20], "little") == machine
            check_externs(elf.externs([obj]))


def test_windows_has_no_pool_yet():
    assert pool_text(target.host(), "win32") == SERIAL


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX threads are missing")
@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_both_ways_of_waiting(call, system, monkeypatch):
    """The pool with a futex (on Linux) and with a condition variable (on every POSIX system)."""
    if system == "linux" and sys.platform != "linux":
        system = "darwin"
    t = target.host()
    made = library.load_object(compile_text(pool_text(t, system), t), uses_pool=False)
    made.function("mortice_pool_reset")()
    made.function("mortice_pool_allow", library.ctypes.c_int)(4)
    monkeypatch.setattr(
        library, "parallel_for", lambda: made.address("mortice_parallel_for"), raising=True
    )
    text = emit_kernel(build(entry("pointwise", "square"), f"on_{system}", "f32"), t)
    p, n = library.ctypes.c_void_p, library.ctypes.c_int64
    square = library.load_object(compile_text(text, t)).function(f"on_{system}", p, p, n)
    x = np.random.default_rng(0).standard_normal(200_000).astype(np.float32)
    for k in range(60):
        y = np.zeros_like(x)
        call(square, y, x, x.size)
        assert np.array_equal(y, x * x)
        if k % 20 == 0:
            time.sleep(0.05)  # the workers go to sleep


def test_the_level_can_be_lowered_and_not_raised(monkeypatch):
    monkeypatch.setattr(target, "_host", None)
    lowest = [t for t in target.TARGETS.values() if t.arch == target.machine()][-1]
    monkeypatch.setenv("MORTICE_LLVM_TARGET", lowest.name)
    assert target.host() is lowest
    monkeypatch.setattr(target, "_host", None)
    monkeypatch.setenv("MORTICE_LLVM_TARGET", "avx513")
    with pytest.raises(NotAvailable, match="'avx512'"):
        target.host()
    other = "neon" if target.machine() == "x86_64" else "avx2"
    monkeypatch.setenv("MORTICE_LLVM_TARGET", other)
    with pytest.raises(NotAvailable, match="this machine runs"):
        target.host()


@pytest.mark.parametrize("many", [False, True])
def test_llvms_own_loader_where_there_is_no_other(monkeypatch, call, many):
    monkeypatch.setattr(library, "loads_elf", lambda: False)
    monkeypatch.setattr(pool, "_library", None)
    t = target.host()
    text = emit_kernel(build(entry("pointwise", "gelu_tanh"), "by_llvm", "f32"), t)
    fn = library.load_object(compile_text(text, t)).function(
        "by_llvm", library.ctypes.c_void_p, library.ctypes.c_void_p, library.ctypes.c_int64
    )
    n = 100_000 if many else 100
    x = np.ones(n, np.float32)
    y = np.zeros_like(x)
    call(fn, y, x, n)
    assert np.allclose(y, 0.841192, rtol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "registers"),
    [("f32", 4), ("f64", 4), ("i32", 4), ("bf16", 4), ("i16", 2), ("i8", 1)],
)
def test_a_short_loop_loads_a_vector_and_then_works_and_stores_by_registers(dtype, registers):
    """Stores one behind the other are half as slow again where addresses lie badly."""
    sign = {"load": "l", "store": "s", "add": "a", "fadd": "a"}
    for t in target.TARGETS.values():
        text = emit_kernel(build(entry("pointwise", "add"), "k", dtype), t)
        loop = text[text.index("\nloop") : text.index("\nafter")]
        done = "".join(sign[d] for d in re.findall(r"\b(load|store|f?add) <", loop))
        assert re.sub("a+", "a", done) == "ll" * registers + "as" * registers, t.name
