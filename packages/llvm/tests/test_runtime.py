from __future__ import annotations

import os
import platform
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

import mortice_llvm
from mortice_llvm import kernels
from mortice_llvm.errors import CompileError, LoadError, NotAvailable
from mortice_llvm.runtime import cache, elf, library
from mortice_llvm.runtime.compiler import check_externs, compile_text
from mortice_llvm.target import host

linux = pytest.mark.skipif(not library.loads_elf(), reason="objects are loaded by LLVM here")


def _child(code: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **env},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


GELU = """
    import sys, array
    from mortice_llvm import kernels
    x = array.array("f", [1.0] * 100); y = array.array("f", [0.0] * 100)
    kernels.pointwise("gelu")(y.buffer_info()[0], x.buffer_info()[0], 100)
    print(round(y[0], 5), round(y[99], 5), "llvmlite" in sys.modules, "numpy" in sys.modules)
"""


@linux
def test_a_cached_kernel_needs_neither_llvmlite_nor_numpy(tmp_path):
    env = {"MORTICE_CACHE_DIR": str(tmp_path)}
    assert _child(GELU, **env) == "0.84134 0.84134 True False"
    assert _child(GELU, **env) == "0.84134 0.84134 False False"


def test_without_llvmlite_the_error_says_what_to_install(tmp_path):
    code = """
        import sys
        sys.modules["llvmlite"] = sys.modules["llvmlite.binding"] = None
        from mortice_llvm import kernels
        from mortice_llvm.errors import NotAvailable
        try:
            kernels.pointwise("gelu")
        except NotAvailable as e:
            print(e)
    """
    assert "pip install llvmlite" in _child(code, MORTICE_CACHE_DIR=str(tmp_path))


@linux
def test_a_system_without_executable_memory_is_told(monkeypatch):
    obj = compile_text("define i32 @f() {\n ret i32 7\n}\n", host())
    monkeypatch.setattr(elf, "_PROT_CODE", 1 << 30)
    with pytest.raises(NotAvailable, match="executable memory"):
        elf.load([obj], library.resolve)


@linux
def test_damaged_entries_are_misses(tmp_path):
    env = {"MORTICE_CACHE_DIR": str(tmp_path)}
    _child(GELU, **env)
    for k, path in enumerate(sorted((tmp_path / "llvm").iterdir())):
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2] if k else b"")
    assert _child(GELU, **env) == "0.84134 0.84134 True False"
    assert _child(GELU, **env) == "0.84134 0.84134 False False"


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("no directory")
    assert _child(GELU, MORTICE_CACHE_DIR=str(blocked)) == "0.84134 0.84134 True False"


def test_a_limit_that_is_no_number_is_said(monkeypatch):
    for good, bytes_ in (("", 512 << 20), ("0", 0), (" 1000 ", 1000)):
        monkeypatch.setenv("MORTICE_CACHE_LIMIT", good)
        assert cache.limit() == bytes_
    for bad in ("abc", "-1", "1.5", "512M"):
        monkeypatch.setenv("MORTICE_CACHE_LIMIT", bad)
        with pytest.warns(UserWarning, match=f"MORTICE_CACHE_LIMIT is '{bad}'; expected a whole"):
            assert cache.limit() == 512 << 20


def test_the_directory_is_where_core_has_it(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setenv("MORTICE_CACHE_DIR", os.path.join("~", "kept"))
    assert cache.directory() == str(tmp_path / "kept" / "llvm")


def test_a_program_may_say_where_the_directory_is(tmp_path):
    cache.follow(lambda: str(tmp_path))
    assert cache.directory() == str(tmp_path / "llvm")
    cache.follow(lambda: None)
    assert cache.directory().startswith(os.path.expanduser("~"))


def test_many_processes_fill_one_cache(tmp_path):
    code = textwrap.dedent(GELU)
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "MORTICE_CACHE_DIR": str(tmp_path),
    }
    running = [
        subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for p in running:
        out, _ = p.communicate(timeout=100)
        assert out.startswith("0.84134 0.84134")
    assert not [n for n in os.listdir(tmp_path / "llvm") if n.endswith(".tmp")]


def test_an_entry_with_a_sound_head_and_another_objects_bytes_is_a_miss(monkeypatch, tmp_path):
    monkeypatch.setenv("MORTICE_CACHE_DIR", str(tmp_path))
    key = b"k" * 20
    assert cache.write(key, b"no object at all")
    assert cache.read(key) == b"no object at all"
    if library.loads_elf():
        with pytest.raises(LoadError):
            elf.load([b"no object at all"], library.resolve)


def test_the_hash_of_sources_is_of_all_of_them(monkeypatch):
    root = Path(mortice_llvm.__file__).parent
    read: list[Path] = []
    monkeypatch.setattr(cache, "_source_hash", None)

    def opened(path, mode):
        read.append(Path(path))
        return Path(path).open(mode)

    monkeypatch.setattr(cache, "open", opened, raising=False)
    cache.source_hash()
    assert {p.resolve() for p in read} == {p.resolve() for p in root.rglob("*.py")}


def test_the_oldest_entries_go_when_the_cache_is_full(tmp_path):
    for k in range(10):
        path = tmp_path / f"{k}.o"
        path.write_bytes(bytes(100))
        os.utime(path, (k, k))
    assert cache.prune(str(tmp_path), 1000) == 0
    assert cache.prune(str(tmp_path), 800) == 4
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"{k}.o" for k in range(4, 10)]


@linux
def test_the_loader_refuses_damage_and_never_crashes():
    text = "define i32 @f() {\n ret i32 7\n}\n"
    obj = compile_text(text, host())
    assert library.load_object(obj).function("f", restype=library.ctypes.c_int)() == 7
    for cut in range(0, len(obj) - 1, 97):
        try:
            elf.load([obj[:cut]], library.resolve)
        except LoadError:
            continue
        pytest.fail(f"an object cut at {cut} was accepted")


@linux
def test_symbols_outside_the_accepted_ones_are_refused():
    obj = compile_text(
        "declare double @sin(double)\ndefine double @f(double %x) {\n"
        "  %y = call double @sin(double %x)\n  ret double %y\n}\n",
        host(),
    )
    with pytest.raises(CompileError, match="sin"):
        check_externs(elf.externs([obj]))


def test_llvms_message_is_passed_on():
    with pytest.raises(CompileError, match="expected"):
        compile_text("this is no LLVM text", host())


# -- threads -------------------------------------------------------------------------------------


@pytest.fixture
def three_threads():
    before = mortice_llvm.get_num_threads()
    mortice_llvm.set_num_threads(3)
    yield
    mortice_llvm.set_num_threads(before)


def test_many_threads_give_the_same(three_threads, call):
    x = np.random.default_rng(0).standard_normal(1_000_003).astype(np.float32)
    y, z = np.empty_like(x), np.empty_like(x)
    gelu = kernels.pointwise("gelu")
    for _ in range(20):
        y[:] = 0
        call(gelu, y, x, x.size)
    mortice_llvm.set_num_threads(1)
    call(gelu, z, x, x.size)
    assert np.array_equal(y, z)


def test_callers_at_the_same_time(three_threads, call):
    x = np.random.default_rng(1).standard_normal(200_000).astype(np.float32)
    want = x * x
    square = kernels.pointwise("square")
    wrong: list[int] = []

    def work() -> None:
        y = np.empty_like(x)
        for k in range(100):
            y[:] = 0
            call(square, y, x, x.size)
            if not np.array_equal(y, want):
                wrong.append(k)

    callers = [threading.Thread(target=work) for _ in range(3)]
    for c in callers:
        c.start()
    for c in callers:
        c.join()
    assert wrong == []


STACKS = """
import ctypes
import numpy as np
from mortice_llvm import set_num_threads
from mortice_llvm.runtime.library import load
set_num_threads(4)
attributes = ctypes.create_string_buffer(128)
libc = ctypes.CDLL(None)
assert libc.pthread_attr_init(attributes) == 0
assert libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(128 << 10)) == 0
assert libc.pthread_setattr_default_np(attributes) == 0
deep = load(b"deep", lambda target: '''
declare void @mortice_parallel_for(ptr, ptr, i64, i64)
define internal void @part(ptr %seen, i64 %lo, i64 %hi) {
  %stack = alloca [262144 x i8], align 64
  store volatile i8 1, ptr %stack
  %at = getelementptr i64, ptr %seen, i64 %lo
  %place = ptrtoint ptr %stack to i64
  store i64 %place, ptr %at
  ret void
}
define void @deep(ptr %seen) {
  call void @mortice_parallel_for(ptr @part, ptr %seen, i64 64, i64 1)
  ret void
}
''').function("deep", ctypes.c_void_p)
seen = np.zeros(64, "i8")
while len(set(seen >> 20)) < 2:  # until a worker has done a part, too
    deep(seen.ctypes.data)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks glibc for small stacks")
def test_workers_have_stacks_of_their_own_size():
    """256 KiB of it are used where threads have 128 KiB by default, as with musl."""
    _child(STACKS)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_the_pool_survives_fork():
    code = """
        import os, warnings
        import numpy as np, mortice_llvm
        from mortice_llvm import kernels
        warnings.simplefilter("ignore")
        mortice_llvm.set_num_threads(2)
        x = np.ones(300_000, np.float32); y = np.zeros_like(x)
        def run():
            y[:] = 0
            kernels.pointwise("square")(y.ctypes.data, x.ctypes.data, x.size)
            return bool((y == 1).all())
        assert run()
        child = os.fork()
        if child == 0:
            ok = all(run() for _ in range(50))
            grandchild = os.fork()
            if grandchild == 0:
                os._exit(0 if run() else 1)
            ok = ok and os.waitpid(grandchild, 0)[1] == 0
            os._exit(0 if ok else 1)
        status = os.waitpid(child, 0)[1]
        print(status, run())
    """
    assert _child(code) == "0 True"


def test_the_number_of_threads_is_checked():
    with pytest.raises(ValueError, match="at least 1"):
        mortice_llvm.set_num_threads(0)
    assert (
        _child(
            "import mortice_llvm; print(mortice_llvm.get_num_threads())", MORTICE_NUM_THREADS="5"
        )
        == "5"
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_forking_while_other_threads_compile():
    code = """
        import os, threading, warnings
        import numpy as np
        from mortice_llvm import kernels
        warnings.simplefilter("ignore")
        x = np.ones(100, np.float32); y = np.zeros_like(x)
        names = ["exp", "log", "sinh", "cosh", "tan", "erf", "erfc", "asinh"]
        def work():
            for name in names:
                kernels.pointwise(name)
        kernels.pointwise("relu")  # imports are done: those are Python's to guard
        maker = threading.Thread(target=work)
        maker.start()
        bad = 0
        for name in ["square", "neg", "abs", "floor", "ceil", "sqrt"]:
            child = os.fork()
            if child == 0:
                kernels.pointwise(name)(y.ctypes.data, x.ctypes.data, 100)
                os._exit(0)
            bad += os.waitpid(child, 0)[1]
        maker.join()
        print(bad)
    """
    assert _child(code) == "0"
