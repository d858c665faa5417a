"""Vector loads and stores: consecutive elements, or one address per lane, with or without mask."""

from __future__ import annotations

from .casts import from_memory, to_memory
from .lanes import Lanes


class Memory:
    """Accesses of one loop iteration; ``mask`` names its active lanes (None: all)."""

    def __init__(self, mask: str | None) -> None:
        self.mask = mask

    def _parts(self, v: Lanes, scattered: bool) -> tuple[str, str, str, str]:
        """(vector in memory, pointer type, intrinsic suffix, mask type)."""
        memory = v.dtype.memory
        short = {"float": "f32", "double": "f64"}.get(memory, memory)
        width = v.width
        suffix = f"v{width}{short}" + (f".v{width}p0" if scattered else ".p0")
        pointers = f"<{width} x ptr>" if scattered else "ptr"
        return f"<{width} x {memory}>", pointers, suffix, f"<{width} x i1>"

    def load(self, v: Lanes, address: str, *, scattered: bool = False) -> str:
        """Elements from ``address`` on, or from each lane's address; inactive lanes give 0."""
        size, text = v.dtype.size, v.text
        if v.width == 1:
            return from_memory(v, text.value(f"load {v.dtype.memory}, ptr {address}, align {size}"))
        if not scattered and self.mask is None:
            vector = self._parts(v, False)[0]
            return from_memory(v, text.value(f"load {vector}, ptr {address}, align {size}"))
        return self._masked_load(v, address, self.mask or "splat (i1 true)", scattered)

    def load_where(self, v: Lanes, addresses: str, where: str) -> str:
        """Elements from each lane's address where ``where`` is true, else 0."""
        text = v.text
        if v.width > 1:
            if self.mask is not None:
                where = v.both(where, self.mask)
            return self._masked_load(v, addresses, where, True)
        one = Lanes(text, v.dtype.name, 1)
        pointers = text.value(f"insertelement <1 x ptr> poison, ptr {addresses}, i64 0")
        masks = text.value(f"insertelement <1 x i1> poison, i1 {where}, i64 0")
        memory, short = v.dtype.memory, one.like(v.dtype.name).dtype.memory
        short = {"float": "f32", "double": "f64"}.get(short, short)
        name = f"@llvm.masked.gather.v1{short}.v1p0"
        text.declare(f"declare <1 x {memory}> {name}(<1 x ptr>, i32, <1 x i1>, <1 x {memory}>)")
        got = text.value(f"call <1 x {memory}> {name}(<1 x ptr> {pointers}, i32 {v.dtype.size}, "
                         f"<1 x i1> {masks}, <1 x {memory}> zeroinitializer)")  # fmt: skip
        return from_memory(v, text.value(f"extractelement <1 x {memory}> {got}, i64 0"))

    def _masked_load(self, v: Lanes, address: str, mask: str, scattered: bool) -> str:
        vector, pointers, suffix, masks = self._parts(v, scattered)
        name = f"@llvm.masked.{'gather' if scattered else 'load'}.{suffix}"
        v.text.declare(f"declare {vector} {name}({pointers}, i32, {masks}, {vector})")
        raw = v.text.value(f"call {vector} {name}({pointers} {address}, i32 {v.dtype.size}, "
                           f"{masks} {mask}, {vector} zeroinitializer)")  # fmt: skip
        return from_memory(v, raw)

    def store(self, v: Lanes, value: str, address: str, *, scattered: bool = False) -> None:
        """Writes active lanes to ``address`` on, or to each lane's address."""
        size, text = v.dtype.size, v.text
        raw = to_memory(v, value)
        if v.width == 1:
            text.do(f"store {v.dtype.memory} {raw}, ptr {address}, align {size}")
            return
        vector, pointers, suffix, masks = self._parts(v, scattered)
        if not scattered and self.mask is None:
            text.do(f"store {vector} {raw}, ptr {address}, align {size}")
            return
        mask = self.mask or "splat (i1 true)"
        name = f"@llvm.masked.{'scatter' if scattered else 'store'}.{suffix}"
        text.declare(f"declare void {name}({vector}, {pointers}, i32, {masks})")
        text.do(f"call void {name}({vector} {raw}, {pointers} {address}, i32 {size}, "
                f"{masks} {mask})")  # fmt: skip
