"""Vector loads and stores: consecutive elements, or one address per lane, with or without mask."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import CompileError
from .casts import from_memory, to_memory
from .lanes import Lanes, Text


def lanes_below(text: Text, i: str, stop: str, width: int) -> str:
    """The mask of a vector's lanes from element ``i`` on that come before ``stop``; at least one does."""
    bits = f"i{width}"
    left = text.value(f"sub i64 {stop}, {i}")
    few = text.value(f"call i64 @llvm.umin.i64(i64 {left}, i64 {width})")
    unused = text.value(f"sub i64 {width}, {few}")
    if width < 64:
        unused = text.value(f"trunc i64 {unused} to {bits}")
    used = text.value(f"lshr {bits} -1, {unused}")
    return text.value(f"bitcast {bits} {used} to <{width} x i1>")


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
        return from_memory(v, self._raw_load(v, address, scattered))

    def _raw_load(self, v: Lanes, address: str, scattered: bool = False) -> str:
        """As they are in memory."""
        size, text = v.dtype.size, v.text
        if v.width == 1:
            return text.value(f"load {v.dtype.memory}, ptr {address}, align {size}")
        if not scattered and self.mask is None:
            vector = self._parts(v, False)[0]
            return text.value(f"load {vector}, ptr {address}, align {size}")
        return self._masked_load(v, address, self.mask or "splat (i1 true)", scattered)

    def load_where(self, v: Lanes, addresses: str, where: str) -> str:
        """Elements from each lane's address where ``where`` is true, else 0."""
        text = v.text
        if v.width > 1:
            if self.mask is not None:
                where = v.both(where, self.mask)
            return from_memory(v, self._masked_load(v, addresses, where, True))
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
        return v.text.value(f"call {vector} {name}({pointers} {address}, i32 {v.dtype.size}, "
                            f"{masks} {mask}, {vector} zeroinitializer)")  # fmt: skip

    def store(self, v: Lanes, value: str, address: str, *, scattered: bool = False) -> None:
        """Writes active lanes to ``address`` on, or to each lane's address."""
        self._raw_store(v, to_memory(v, value), address, scattered)

    def _raw_store(self, v: Lanes, raw: str, address: str, scattered: bool) -> None:
        """What is as memory has it."""
        size, text = v.dtype.size, v.text
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


class Ending(Memory):
    """Accesses of a loop whose last iteration may be partial: each asks whether this one is, so that
    what lies between them is there once. For consecutive elements only.
    """

    def __init__(self, text: Text, i: str, stop: str, width: int) -> None:
        super().__init__(None)
        self.text = text
        self.width = width
        self.left = text.value(f"sub i64 {stop}, {i}")
        self.whole = text.value(f"icmp sge i64 {self.left}, {width}")

    def _active(self) -> Memory:
        """Accesses of the lanes that are left, in a partial iteration."""
        bits = f"i{self.width}"
        t = self.text
        left = self.left if self.width == 64 else t.value(f"trunc i64 {self.left} to {bits}")
        others = t.value(f"shl {bits} -1, {left}")
        mask = t.value(f"xor {bits} {others}, -1")
        return Memory(t.value(f"bitcast {bits} {mask} to <{self.width} x i1>"))

    def _either(self, whole: Callable[[], str], partial: Callable[[], str]) -> tuple[str, str]:
        """Runs one of two texts; what each gives, with its block, as a phi takes them."""
        t = self.text
        tag = t.fresh()
        t.do(f"br i1 {self.whole}, label %whole{tag}, label %partial{tag}")
        given: list[str] = []
        for name, write in (("whole", whole), ("partial", partial)):
            t.label(f"{name}{tag}")
            given.append(f"[{write()}, %{t.block}]")
            t.do(f"br label %both{tag}")
        t.label(f"both{tag}")
        return given[0], given[1]

    def load(self, v: Lanes, address: str, *, scattered: bool = False) -> str:
        if scattered:
            raise CompileError("an ending loop reads consecutive elements only")
        raw = self._parts(v, False)[0]
        a, b = self._either(
            lambda: self._raw_load(v, address), lambda: self._active()._raw_load(v, address)
        )
        return from_memory(v, self.text.value(f"phi {raw} {a}, {b}"))

    def store(self, v: Lanes, value: str, address: str, *, scattered: bool = False) -> None:
        if scattered:
            raise CompileError("an ending loop writes consecutive elements only")
        raw = to_memory(v, value)

        def write(memory: Memory) -> str:
            memory._raw_store(v, raw, address, False)
            return ""

        self._either(lambda: write(Memory(None)), lambda: write(self._active()))
