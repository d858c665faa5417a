"""Element types of the loop IR: a name, how it lies in memory, how it lives in a register."""

from __future__ import annotations

from typing import NamedTuple

from .errors import NotAvailable, UnknownKernel, nearest


class DType(NamedTuple):
    """One element type.

    kind is ``f`` float, ``i`` signed, ``u`` unsigned or ``b`` bool. ``memory`` and ``register``
    are LLVM types: bool lies in a byte and computes as i1; the 16-bit floats lie and travel as
    i16 and are cast to f32 before any arithmetic.
    """

    name: str
    kind: str
    bits: int
    memory: str
    register: str

    @property
    def size(self) -> int:
        """Bytes of one element in memory."""
        return max(self.bits, 8) // 8


_ROWS = (
    ("f64", "f", 64, "double", "double"),
    ("f32", "f", 32, "float", "float"),
    ("f16", "f", 16, "i16", "i16"),
    ("bf16", "f", 16, "i16", "i16"),
    ("i64", "i", 64, "i64", "i64"),
    ("i32", "i", 32, "i32", "i32"),
    ("i16", "i", 16, "i16", "i16"),
    ("i8", "i", 8, "i8", "i8"),
    ("u64", "u", 64, "i64", "i64"),
    ("u32", "u", 32, "i32", "i32"),
    ("u16", "u", 16, "i16", "i16"),
    ("u8", "u", 8, "i8", "i8"),
    ("bool", "b", 1, "i8", "i1"),
)

DTYPES: dict[str, DType] = {row[0]: DType(*row) for row in _ROWS}

# Names that numpy and PyTorch use for the same types.
ALIASES: dict[str, str] = {
    "float64": "f64",
    "double": "f64",
    "float32": "f32",
    "float": "f32",
    "float16": "f16",
    "half": "f16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint64": "u64",
    "uint32": "u32",
    "uint16": "u16",
    "uint8": "u8",
    "bool_": "bool",
}


def dtype(name: str) -> DType:
    """Returns the dtype called ``name`` (loop-IR name or numpy's); raises UnknownKernel."""
    name = ALIASES.get(name, name)
    found = DTYPES.get(name)
    if found is None and name.startswith(("complex", "float8")):
        raise NotAvailable(f"kernels do not compute with {name}")
    if found is None:
        known = sorted([*DTYPES, *ALIASES])
        raise UnknownKernel(
            f"unknown dtype {name!r}; expected one of {', '.join(DTYPES)}.{nearest(name, known)}"
        )
    return found


def short(name: str) -> str:
    """The loop-IR name of the dtype called ``name``."""
    return dtype(name).name


def computes_as(name: str) -> str:
    """The dtype in which arithmetic on ``name`` is done: f32 for the 16-bit floats, else itself."""
    return "f32" if name in ("f16", "bf16") else name
