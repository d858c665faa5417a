"""Element types. One table holds every fact about a dtype; adding one is adding a row.

dtypes that numpy itself lacks (bfloat16, float8) are numpy extension types of ml_dtypes, which is
imported only when one of them is used (4 ms).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

BOOL, UNSIGNED, SIGNED, FLOAT, COMPLEX, OPAQUE = range(6)


class DType:
    """A dtype such as ``mortice.float32``. Interned: compare with ``is``.

    Attributes:
        name: ``"float32"``.
        kind: one of the module's BOOL ... OPAQUE, in order of promotion category.
        itemsize: bytes per element.
        storage_only: the dtype loads, converts and saves, but no operator computes with it.
    """

    __slots__ = (
        "__weakref__",
        "_numpy",
        "differentiable",
        "is_complex",
        "is_floating_point",
        "itemsize",
        "kind",
        "name",
        "storage_only",
    )

    name: str
    kind: int
    itemsize: int
    is_floating_point: bool
    is_complex: bool
    differentiable: bool
    storage_only: bool

    def __init__(self, name: str, kind: int, itemsize: int, storage_only: bool = False) -> None:
        self.name = name
        self.kind = kind
        self.itemsize = itemsize
        self.is_floating_point = kind == FLOAT
        self.is_complex = kind == COMPLEX
        self.differentiable = kind == FLOAT or kind == COMPLEX
        self.storage_only = storage_only
        self._numpy: Any = None

    @property
    def is_signed(self) -> bool:
        return self.kind >= SIGNED

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype that holds the elements on the host."""
        if self._numpy is None:
            self._numpy = _find_numpy(self)
            if not self.storage_only:  # those borrow the type of another
                _BY_NUMPY[self._numpy] = self
        return self._numpy

    def to_real(self) -> DType:
        """complex64 -> float32 and so on; real dtypes are returned as they are."""
        return _REAL.get(self.name, self)

    def to_complex(self) -> DType:
        """float32 -> complex64 and so on; complex dtypes are returned as they are."""
        return _COMPLEX_OF.get(self.name, self)

    def __repr__(self) -> str:
        return f"mortice.{self.name}"

    def __reduce__(self) -> Any:
        return (by_name, (self.name,))

    def __copy__(self) -> DType:
        return self

    def __deepcopy__(self, memo: Any) -> DType:
        return self


_ROWS = (
    # name, kind, bytes, storage only
    ("bool", BOOL, 1, False),
    ("uint8", UNSIGNED, 1, False),
    ("uint16", UNSIGNED, 2, False),
    ("uint32", UNSIGNED, 4, False),
    ("uint64", UNSIGNED, 8, False),
    ("int8", SIGNED, 1, False),
    ("int16", SIGNED, 2, False),
    ("int32", SIGNED, 4, False),
    ("int64", SIGNED, 8, False),
    ("float16", FLOAT, 2, False),
    ("bfloat16", FLOAT, 2, False),
    ("float32", FLOAT, 4, False),
    ("float64", FLOAT, 8, False),
    ("float8_e4m3fn", FLOAT, 1, False),
    ("float8_e5m2", FLOAT, 1, False),
    ("float8_e4m3fnuz", FLOAT, 1, False),
    ("float8_e5m2fnuz", FLOAT, 1, False),
    ("float8_e8m0fnu", FLOAT, 1, False),
    ("complex64", COMPLEX, 8, False),
    ("complex128", COMPLEX, 16, False),
    ("complex32", COMPLEX, 4, True),
    ("quint8", OPAQUE, 1, True),
    ("qint8", OPAQUE, 1, True),
    ("qint32", OPAQUE, 4, True),
    ("quint4x2", OPAQUE, 1, True),
    ("quint2x4", OPAQUE, 1, True),
    ("float4_e2m1fn_x2", OPAQUE, 1, True),
    ("bits8", OPAQUE, 1, True),
    ("bits16", OPAQUE, 2, True),
    ("bits1x8", OPAQUE, 1, True),
    ("bits2x4", OPAQUE, 1, True),
    ("bits4x2", OPAQUE, 1, True),
    # Narrower than a byte: named in files, held by none.
    *((f"{sign}int{bits}", OPAQUE, 1, True) for sign in ("u", "") for bits in range(1, 8)),
)

ALL: dict[str, DType] = {row[0]: DType(*row) for row in _ROWS}

#: PyTorch's second names.
ALIASES = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "cfloat": "complex64",
    "cdouble": "complex128",
    "chalf": "complex32",
}

_REAL = {
    "complex64": ALL["float32"],
    "complex128": ALL["float64"],
    "complex32": ALL["float16"],
}
_COMPLEX_OF = {
    "float16": ALL["complex32"],
    "bfloat16": ALL["complex64"],
    "float32": ALL["complex64"],
    "float64": ALL["complex128"],
}
# Storage-only dtypes have no arithmetic, so their bytes are held in a plain type of that size.
_HELD_AS: dict[str, Any] = {
    "complex32": [("real", "<f2"), ("imag", "<f2")],  # with which numpy refuses to compute, too
    "qint8": "int8",
    "qint32": "int32",
    "bits16": "uint16",
    **{row[0]: "uint8" for row in _ROWS if row[3] and row[2] == 1 and row[0] != "qint8"},
}
_FROM_ML_DTYPES = frozenset(name for name in ALL if name == "bfloat16" or name.startswith("float8"))
_BY_NUMPY: dict[Any, DType] = {}


def _find_numpy(dtype: DType) -> np.dtype[Any]:
    import numpy as np

    name = dtype.name
    if name in _FROM_ML_DTYPES:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(_HELD_AS.get(name, name))


def by_name(name: str) -> DType:
    """The dtype called ``name``, PyTorch's aliases included. KeyError if there is none."""
    return ALL[ALIASES.get(name, name)]


def from_numpy(dtype: np.dtype[Any]) -> DType | None:
    """The dtype of a numpy array's elements, or None if mortice has none such."""
    found = _BY_NUMPY.get(dtype)
    if found is None:
        found = ALL.get(str(dtype.name))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        if found is None or found.storage_only:
            return None
        if dtype.byteorder not in "=|" and not dtype.isnative:
            return None
        found.numpy  # noqa: B018  fills the table
        _BY_NUMPY[dtype] = found
    return found


bool_ = ALL["bool"]
uint8 = ALL["uint8"]
int8 = ALL["int8"]
int16 = ALL["int16"]
int32 = ALL["int32"]
int64 = ALL["int64"]
float16 = ALL["float16"]
bfloat16 = ALL["bfloat16"]
float32 = ALL["float32"]
float64 = ALL["float64"]
complex64 = ALL["complex64"]
complex128 = ALL["complex128"]


class _Default:
    """Process-wide default dtype of floating-point tensors; ``set_default_dtype`` changes it."""

    __slots__ = ("dtype",)

    def __init__(self) -> None:
        self.dtype = float32


default = _Default()


def of_number(value: Any) -> DType:
    """The dtype that a Python number has as a tensor of its own."""
    # Symbolic numbers say what they stand for.
    kind: Any = getattr(type(value), "_number_type", None) or type(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if kind is bool:
        return bool_
    if kind is int:
        return int64
    if kind is complex:
        return default.dtype.to_complex()
    if kind is float:
        return default.dtype
    if isinstance(value, bool):
        return bool_
    if isinstance(value, int):
        return int64
    if isinstance(value, complex) and not isinstance(value, float):
        return default.dtype.to_complex()
    return default.dtype
