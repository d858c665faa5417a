"""What machine code is made for: instruction-set levels, and the level of this machine.

Detection reads /proc/cpuinfo on Linux, so that a cached kernel loads without llvmlite. Levels
are few on purpose: they are part of every cache key, and each is tested.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from .errors import NotAvailable, nearest


class Target(NamedTuple):
    """One instruction-set level.

    ``width`` is the number of 32-bit lanes of a kernel's vectors (several registers: the
    independent halves hide latency); ``masked`` says that masked loads and stores of every
    element size are cheap, ``fma`` that a fused multiply-add is one instruction.
    """

    name: str
    arch: str
    cpu: str
    features: str
    width: int
    masked: bool
    fma: bool
    needs: frozenset[str]


_AVX2 = frozenset({"avx2", "fma", "f16c", "bmi1", "bmi2", "movbe"})
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"}

TARGETS: dict[str, Target] = {
    t.name: t
    for t in (
        Target("avx512", "x86_64", "x86-64-v4", "", 64, True, True, frozenset(_AVX512)),
        Target("avx2", "x86_64", "x86-64-v3", "", 32, False, True, _AVX2),
        Target("sse2", "x86_64", "x86-64", "", 16, False, False, frozenset()),
        Target("neon", "aarch64", "generic", "+neon", 32, False, True, frozenset()),
    )
}

_ARCH = {"amd64": "x86_64", "x86_64": "x86_64", "arm64": "aarch64", "aarch64": "aarch64"}
_host: Target | None = None


def machine() -> str:
    """The processor family: ``x86_64``, ``aarch64`` or what the system calls it."""
    if hasattr(os, "uname"):
        name = os.uname().machine.lower()
    else:
        name = os.environ.get("PROCESSOR_ARCHITECTURE", "").lower()
    return _ARCH.get(name, name)


def triple(target: Target) -> str:
    """LLVM's name of the platform that ``target`` is compiled for on this system."""
    tail = {"linux": "unknown-linux-gnu", "darwin": "apple-darwin", "win32": "pc-windows-msvc"}
    return f"{target.arch}-{tail.get(sys.platform, 'unknown-unknown')}"


def _cpu_flags() -> frozenset[str]:
    """Instruction-set flags of this x86 machine, as Linux names them."""
    if sys.platform == "linux":
        with open("/proc/cpuinfo", "rb") as f:
            text = f.read(8192).decode("ascii", "replace")
        for line in text.splitlines():
            if line.startswith("flags"):
                return frozenset(line.partition(":")[2].split())
        return frozenset()
    # Elsewhere the object loader is LLVM's own, so llvmlite is imported in any case.
    import llvmlite.binding as llvm

    return frozenset(
        k.replace("bmi", "bmi1") if k == "bmi" else k
        for k, on in llvm.get_host_cpu_features().items()
        if on
    )


def named(name: str) -> Target:
    """The target called ``name``; raises NotAvailable with the names that exist."""
    if name not in TARGETS:
        raise NotAvailable(
            f"unknown target {name!r}; expected one of {', '.join(TARGETS)}."
            + nearest(name, list(TARGETS))
        )
    return TARGETS[name]


def host() -> Target:
    """The best target that this machine runs; ``MORTICE_LLVM_TARGET`` lowers it."""
    global _host
    if _host is None:
        arch = machine()
        fitting = [t for t in TARGETS.values() if t.arch == arch]
        if not fitting:
            raise NotAvailable(f"no code generation for {arch!r}; expected x86_64 or aarch64")
        flags = _cpu_flags() if arch == "x86_64" else frozenset()
        runs = [t for t in fitting if t.needs <= flags]
        wanted = os.environ.get("MORTICE_LLVM_TARGET")
        if wanted:
            if named(wanted) not in runs:
                raise NotAvailable(
                    f"MORTICE_LLVM_TARGET={wanted}: this machine runs "
                    f"{', '.join(t.name for t in runs)}"
                )
            _host = named(wanted)
        else:
            _host = runs[0]
    return _host
