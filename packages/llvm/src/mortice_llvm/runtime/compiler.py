"""LLVM text to an object file, through llvmlite. Imported only when something must be compiled."""

from __future__ import annotations

from ..errors import CompileError, NotAvailable
from ..target import Target, triple
from .threads import lock

# Symbols that an object may leave open: ours, what LLVM makes of loops, and what threads need.
ALLOWED_EXTERNS = frozenset(
    "mortice_parallel_for memcpy memmove memset syscall sched_yield pthread_create pthread_detach "
    "pthread_sigmask pthread_mutex_init pthread_mutex_lock pthread_mutex_unlock pthread_cond_init "
    "pthread_cond_wait pthread_cond_broadcast".split()
)

_machines: dict[str, object] = {}


def _target_machine(target: Target) -> object:
    found = _machines.get(target.name)
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
        _machines[target.name] = found
    return found


def compile_text(text: str, target: Target) -> bytes:
    """Returns the object file made of LLVM ``text``; raises CompileError with LLVM's
    message, NotAvailable without llvmlite.
    """
    try:
        import llvmlite.binding as llvm
    except ImportError as e:
        raise NotAvailable(
            "llvmlite is needed to compile a kernel that is not cached yet: pip install llvmlite"
        ) from e
    with lock:
        machine = _target_machine(target)
        try:
            module = llvm.parse_assembly(text, llvm.create_context())
        except RuntimeError as e:
            raise CompileError(f"LLVM cannot read the text of this kernel: {e}") from e
        module.triple = triple(target)
        return machine.emit_object(module)  # type: ignore[attr-defined]


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
