"""LLVM text to an object file, through llvmlite. Imported only when something must be compiled."""

from __future__ import annotations

import threading
from ctypes import string_at
from typing import Any

from ..errors import CompileError, NotAvailable
from ..target import Target, triple
from .split import pack, split
from .threads import get_num_threads, lock

# Symbols that an object may leave open: ours, what LLVM makes of loops, and what threads need.
ALLOWED_EXTERNS = frozenset(
    "mortice_parallel_for memcpy memmove memset syscall sched_yield pthread_create pthread_detach "
    "pthread_attr_init pthread_attr_setstacksize pthread_attr_destroy "
    "pthread_sigmask pthread_mutex_init pthread_mutex_lock pthread_mutex_unlock pthread_cond_init "
    "pthread_cond_wait pthread_cond_broadcast".split()
)

# By the target's name and the number of the part: a machine serves one thread at a time.
_machines: dict[tuple[str, int], object] = {}


def _target_machine(target: Target, part: int = 0) -> object:
    found = _machines.get((target.name, part))
    if found is None:
        import llvmlite.binding as llvm

        if target.arch == "x86_64":
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        found = llvm.Target.from_triple(triple(target)).create_target_machine(
            cpu=target.cpu, features=target.features, opt=2, reloc="pic", codemodel="small"
        )
        _machines[target.name, part] = found
    return found


def compile_text(text: str, target: Target) -> bytes:
    """Returns the object file made of LLVM ``text``; raises CompileError with LLVM's
    message, NotAvailable without llvmlite.
    """
    with lock:
        return _emit_all([text], target)[0]


def compile_parts(text: str, target: Target) -> bytes:
    """The same, by all threads that may be used where the text is long: a pack of objects."""
    with lock:
        return pack(_emit_all(split(text, get_num_threads()), target))


def _emit_all(texts: list[str], target: Target) -> list[bytes]:
    """An object for each text, every one but the first made in a thread of its own."""
    parsed = [_parsed(text, target, k) for k, text in enumerate(texts)]
    made: list[bytes] = [b""] * len(parsed)
    errors: list[Exception] = []

    def run(k: int) -> None:
        try:
            made[k] = _emit(*parsed[k])
        except Exception as e:  # raised in the caller's thread
            errors.append(e)

    started: list[threading.Thread] = []
    try:
        for k in range(1, len(parsed)):
            worker = threading.Thread(target=run, args=(k,))
            try:
                worker.start()
            except RuntimeError:  # the system gives no more threads
                run(k)
            else:
                started.append(worker)
        run(0)
    finally:
        for worker in started:
            worker.join()
        # Now, and not when collected: in a cycle (an error's) its context might be gone first.
        for _, module in parsed:
            module.close()
    if errors:
        raise errors[0]
    return made


def _parsed(text: str, target: Target, part: int = 0) -> tuple[Any, Any]:
    """A target machine, and the text as a module with a context of its own."""
    try:
        import llvmlite.binding as llvm
    except ImportError as e:
        raise NotAvailable(
            "llvmlite is needed to compile a kernel that is not cached yet: pip install llvmlite"
        ) from e
    machine = _target_machine(target, part)
    try:
        module = llvm.parse_assembly(text, llvm.create_context())
    except RuntimeError as e:
        raise CompileError(f"LLVM cannot read the text of this kernel: {e}") from e
    module.triple = triple(target)
    return machine, module


def _emit(machine: Any, module: Any) -> bytes:
    """``machine.emit_object(module)`` without llvmlite's lock around all calls, which LLVM itself
    does not need where each thread has a context and a machine of its own; with the lock where
    this llvmlite is built otherwise.
    """
    from llvmlite.binding import ffi

    emit = getattr(ffi.lib.LLVMPY_TargetMachineEmitToMemory, "_cfn", None)
    if emit is None:
        return machine.emit_object(module)
    with ffi.OutputString() as message:
        buffer = emit(machine, module, 1, message)
        if not buffer:
            raise CompileError(f"LLVM cannot compile this kernel: {message}")
    try:
        start, size = ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer)
        return string_at(start, size)
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def prepare(target: Target) -> None:
    """Initialises LLVM for ``target``."""
    with lock:
        _target_machine(target)


def check_externs(names: set[str]) -> None:
    """Raises CompileError if an object needs a symbol outside ALLOWED_EXTERNS."""
    bad = sorted(names - ALLOWED_EXTERNS)
    if bad:
        raise CompileError(
            f"the compiled kernel needs {', '.join(bad)}, which is not allowed; "
            "an operation in it has no code for this target"
        )
