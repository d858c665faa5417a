"""Ready kernels by name, called with addresses.

``pointwise(name, dtype)`` and ``row(name, dtype)`` return a ctypes function. It takes the
outputs' and inputs' addresses (integers), then sizes, then numbers; it releases the GIL, and uses
several threads when there is much to do. Getting a kernel costs a dictionary lookup the second
time, well under a millisecond from the object cache, and some ten milliseconds when it must be
compiled. ``custom(kernel)`` does the same for a kernel of one's own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..dtypes import dtype as find_dtype
from ..dtypes import short
from ..errors import InvalidKernel, UnknownKernel, nearest
from ..runtime.library import load
from .table import SIZES, Entry, entry, names

if TYPE_CHECKING:
    from ..ir import Kernel
    from ..target import Target

Call = Callable[..., None]

_ready: dict[tuple[str, ...], Any] = {}

__all__ = ["channel", "column", "custom", "names", "philox", "pointwise", "row", "whole"]


def _signature(outs: int, ins: int, ints: int, floats: int) -> list[type]:
    pointers = [ctypes.c_void_p] * (outs + ins)
    return [*pointers, *[ctypes.c_int64] * ints, *[ctypes.c_double] * floats]


def _named(family: str, name: str, dtype: str) -> Call:
    key = (family, name, dtype)
    found = _ready.get(key)
    if found is None:
        dtype = short(dtype)
        e = entry(family, name)
        if e is None:
            known = names(family)
            raise UnknownKernel(f"no {family} kernel {name!r}.{nearest(name, known)}")
        found = _load(e, name, dtype)
        _ready[key] = found
    return found


def _load(e: Entry, name: str, dtype: str) -> Call:
    symbol = f"{e.family}_{name}_{dtype}"

    def make_text(target: Target) -> str:
        from ..emit import emit_kernel
        from .build import build

        return emit_kernel(build(e, symbol, dtype), target)

    library = load(symbol.encode(), make_text)
    signature = _signature(e.outs, e.ins, SIZES[e.family], len(e.scalars))
    return library.function(symbol, *signature)


def pointwise(name: str, dtype: str = "f32") -> Call:
    """The kernel ``name`` over n contiguous elements: ``fn(out.., in.., n, number..)``.

    dtype is that of inputs and outputs (comparisons write bool). An output may be the same
    memory as an input, but not overlap one in part. Raises UnknownKernel, NotAvailable.
    """
    return _ready.get(("pointwise", name, dtype)) or _named("pointwise", name, dtype)


def row(name: str, dtype: str = "f32") -> Call:
    """The kernel ``name`` along the last axis: ``fn(out.., in.., rows, cols, number..)``.

    Arrays are contiguous (rows, cols); see docs/llvm.md for each kernel's parameters.
    """
    return _ready.get(("row", name, dtype)) or _named("row", name, dtype)


def column(name: str, dtype: str = "f32") -> Call:
    """The kernel ``name`` down the columns of (rows, cols): ``fn(out.., in.., cols, rows)``."""
    return _ready.get(("column", name, dtype)) or _named("column", name, dtype)


def channel(name: str, dtype: str = "f32") -> Call:
    """The kernel ``name`` on (n, c, hw) with one number per channel; see docs/llvm.md."""
    return _ready.get(("channel", name, dtype)) or _named("channel", name, dtype)


def whole(name: str, dtype: str = "f32") -> Call:
    """``sum``, ``prod``, ``max`` or ``min`` of n contiguous elements: ``fn(out, x, n)``.

    Parts of fixed size are reduced first, so the result does not depend on the number of threads.
    """
    key = ("whole", name, dtype)
    found = _ready.get(key)
    if found is None:
        if name not in ("sum", "prod", "max", "min"):
            raise UnknownKernel(f"no reduction of whole arrays {name!r}; sum, prod, max, min")
        found = _ready[key] = _in_parts(row(name, dtype), find_dtype(dtype).size)
    return found


def _in_parts(by_row: Call, size: int, part: int = 16384) -> Call:
    def reduce(out: int, x: int, n: int) -> None:
        rows, tail = divmod(n, part)
        if rows == 0:
            by_row(out, x, 1, n)
            return
        partial = ctypes.create_string_buffer((rows + 1) * size)
        at = ctypes.addressof(partial)
        by_row(at, x, rows, part)
        if tail:
            by_row(at + rows * size, x + rows * part * size, 1, tail)
        by_row(out, at, 1, rows + (tail > 0))

    return reduce


def custom(kernel: Kernel) -> Call:
    """Compiles (or finds in the cache) a loop-IR kernel; parameters as ``Kernel`` says.

    Raises InvalidKernel for a kernel of blocks, which other code calls.
    """
    from ..ir import text, verify

    source = text(kernel)
    found = _ready.get(("custom", source))
    if found is None:
        if verify(kernel).blocks:
            raise InvalidKernel(f"kernel {kernel.name}: expected one that walks all its elements, "
                                "found one of blocks")  # fmt: skip

        def make_text(target: Target) -> str:
            from ..emit import emit_kernel

            return emit_kernel(kernel, target)

        library = load(b"custom/" + source.encode(), make_text)
        kinds = {"f64": ctypes.c_double, "i64": ctypes.c_int64}
        signature = _signature(
            len(kernel.buffers), 0, len(kernel.sizes()) + len(kernel.symbols()), 0
        )
        signature += [kinds[s.dtype] for s in kernel.scalars]
        found = library.function(kernel.name, *signature)
        _ready["custom", source] = found
    return found


def philox(kind: str) -> Call:
    """Random numbers from Philox-4x32-10: ``fn(out, n, seed, offset)``.

    ``kind``: ``u32`` raw words; ``f32`` or ``f64`` uniform in [0, 1); ``normal_f32`` or
    ``normal_f64`` standard normal. seed and offset are taken
    modulo 2**64; ``mortice_llvm.emit.philox`` says which word goes where.
    """
    found = _ready.get(("philox", kind))
    if found is None:
        found = _ready["philox", kind] = _load_philox(kind)
    return found


def _load_philox(kind: str) -> Call:
    known = ["u32", "f32", "f64", "normal_f32", "normal_f64"]
    kind = kind if kind in known else short(kind)
    if kind not in known:
        raise UnknownKernel(f"philox makes {', '.join(known)}, found {kind!r}")
    symbol = f"philox_{kind}"

    def make_text(target: Target) -> str:
        from ..emit.philox import emit_fill

        return emit_fill(kind, symbol, target)

    library = load(symbol.encode(), make_text)
    # Unsigned: a seed may use all 64 bits.
    signature = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint64, ctypes.c_uint64]
    return library.function(symbol, *signature)
