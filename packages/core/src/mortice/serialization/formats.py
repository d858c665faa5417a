"""Constants of the checkpoint format: names in files, and what they stand for."""

from __future__ import annotations

import _compat_pickle  # the standard library's own tables of renamed modules

PROTOCOL = 2
ALIGNMENT = 64

# dtype name -> (bytes of an element, bytes of the unit that byte order swaps, typed storage class).
# Dtypes without a class are written as UntypedStorage, their dtype beside the tensor.
DTYPES: dict[str, tuple[int, int, str]] = {
    "float64": (8, 8, "DoubleStorage"),
    "float32": (4, 4, "FloatStorage"),
    "float16": (2, 2, "HalfStorage"),
    "bfloat16": (2, 2, "BFloat16Storage"),
    "int64": (8, 8, "LongStorage"),
    "int32": (4, 4, "IntStorage"),
    "int16": (2, 2, "ShortStorage"),
    "int8": (1, 1, "CharStorage"),
    "uint8": (1, 1, "ByteStorage"),
    "bool": (1, 1, "BoolStorage"),
    "complex128": (16, 8, "ComplexDoubleStorage"),
    "complex64": (8, 4, "ComplexFloatStorage"),
    "qint8": (1, 1, "QInt8Storage"),
    "quint8": (1, 1, "QUInt8Storage"),
    "qint32": (4, 4, "QInt32Storage"),
    "quint4x2": (1, 1, "QUInt4x2Storage"),
    "quint2x4": (1, 1, "QUInt2x4Storage"),
    "complex32": (4, 2, ""),
    "uint16": (2, 2, ""),
    "uint32": (4, 4, ""),
    "uint64": (8, 8, ""),
    "float8_e4m3fn": (1, 1, ""),
    "float8_e5m2": (1, 1, ""),
    "float8_e4m3fnuz": (1, 1, ""),
    "float8_e5m2fnuz": (1, 1, ""),
    "float8_e8m0fnu": (1, 1, ""),
    "float4_e2m1fn_x2": (1, 1, ""),
    "bits8": (1, 1, ""),
    "bits16": (2, 2, ""),
    "bits1x8": (1, 1, ""),
    "bits2x4": (1, 1, ""),
    "bits4x2": (1, 1, ""),
}

# Named in files as values only; no tensor of them is ever written.
NAMED_DTYPES = frozenset(DTYPES) | {
    f"{sign}int{bits}" for sign in ("u", "") for bits in range(1, 8)
}

FLOATING = frozenset(
    name
    for name in DTYPES
    if name.startswith(("float", "bfloat", "complex")) and not name.startswith("float4")
)

# Those that numpy negates and converts: no bits, no quantised, none narrower than a byte.
COMPUTING = frozenset(
    name for name in DTYPES if name != "complex32" and not name.startswith(("q", "bits", "float4"))
)

QUANTISED = frozenset(name for name in DTYPES if name.startswith(("qint", "quint")))

# typed storage class -> dtype; torch.cuda.FloatStorage and so on in files of old are the same.
STORAGE_DTYPES = {cls: name for name, (_, _, cls) in DTYPES.items() if cls}

SPARSE_LAYOUTS = ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")
LAYOUTS = ("strided", *SPARSE_LAYOUTS, "jagged", "_mkldnn")

QSCHEMES = (
    "per_tensor_affine",
    "per_tensor_symmetric",
    "per_channel_affine",
    "per_channel_symmetric",
    "per_channel_affine_float_qparams",
)


def python3_name(module: str, name: str) -> tuple[str, str]:
    """A name as protocol 2 writes it, which is that of Python 2, as we know it."""
    found = _compat_pickle.NAME_MAPPING.get((module, name))
    return found or (_compat_pickle.IMPORT_MAPPING.get(module, module), name)


def python2_name(module: str, name: str) -> tuple[str, str]:
    """A name as protocol 2 writes it."""
    found = _compat_pickle.REVERSE_NAME_MAPPING.get((module, name))
    return found or (_compat_pickle.REVERSE_IMPORT_MAPPING.get(module, module), name)


# Builtins through which arguments alone reach everything.
BLOCKED_BUILTINS = frozenset(
    "eval exec compile open __import__ getattr setattr delattr input breakpoint globals locals "
    "vars memoryview type super object".split()
)

# No list of safe globals opens these.
BLOCKED_MODULES = frozenset(
    "sys os posix nt subprocess importlib runpy ctypes pickle _pickle marshal shutil socket pty "
    "code codeop webbrowser".split()
)


def is_blocked(full: str) -> bool:
    """Whether a full name can run programs, whatever anyone marks safe."""
    module, _, name = full.partition(".")
    return module in BLOCKED_MODULES or (
        module == "builtins" and name.partition(".")[0] in BLOCKED_BUILTINS
    )
