"""Text of one LLVM function, and ``Lanes``: the operations on one element type and width."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial

from ..dtypes import DTYPES, DType
from ..target import Target


class Text:
    """Lines of one module under construction: functions, declarations, helpers."""

    def __init__(self, target: Target) -> None:
        self.target = target
        # A list among the lines is a place that is filled later.
        self.lines: list[str | list[str]] = []
        self.declared: dict[str, None] = {}
        self.helpers: dict[str, str] = {}
        self.block = "entry"
        self._allocas: list[str] = []
        self._count = 0
        #: Whether multiply-adds of vectors load their constants: see ``Lanes.fma``.
        self.loads_constants = False
        # By type: constants that lie in memory, and their places.
        self._tables: dict[str, dict[str, int]] = {}
        # By function, block and operand: what has been loaded already.
        self._loaded: dict[tuple[int, str, str], str] = {}

    def fresh(self) -> str:
        """A new number for names of values and blocks."""
        self._count += 1
        return str(self._count)

    def value(self, text: str) -> str:
        """Appends ``%new = text`` and returns the new name."""
        name = f"%t{self.fresh()}"
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """Appends an instruction without a result."""
        self.lines.append("  " + text)

    def later(self) -> list[str]:
        """Marks this place; what is appended to the returned list stands here."""
        place: list[str] = []
        self.lines.append(place)
        return place

    def step(self, counter: str, by: int) -> str:
        """``counter + by``, for the counter of a loop.

        Not an ``add``, whose course LLVM would follow: it would weigh other ways to count and to
        form addresses, which are no better here, for 15% of all its time on a small kernel.
        """
        self.declare("declare i64 @llvm.uadd.sat.i64(i64, i64)")
        return f"call i64 @llvm.uadd.sat.i64(i64 {counter}, i64 {by})"

    def label(self, name: str) -> None:
        """Starts the block ``name``; ``entry`` starts a function."""
        self.lines.append(name + ":")
        self.block = name
        if name == "entry":
            self._allocas = self.later()

    def alloca(self, what: str) -> str:
        """Stack memory of the function, wherever in it the text stands now."""
        name = f"%m{self.fresh()}"
        self._allocas.append(f"  {name} = alloca {what}")
        return name

    def constant(self, type_: str, literal: str) -> str:
        """The address of a number in a table that LLVM does not know the contents of."""
        table = self._tables.setdefault(type_, {})
        at, start = table.setdefault(literal, len(table)), f"%{type_}s"
        line = f"  {start} = freeze ptr @{type_}s"
        if line not in self._allocas:
            self._allocas.append(line)
        return self.value(f"getelementptr {type_}, ptr {start}, i64 {at}")

    def once(self, operand: str, make: Callable[[], str]) -> str:
        """What ``make`` gives, made once in this block for ``operand``."""
        key = (id(self._allocas), self.block, operand)
        if key not in self._loaded:
            self._loaded[key] = make()
        return self._loaded[key]

    def declare(self, text: str) -> None:
        """Adds a declaration once."""
        self.declared[text] = None

    def module(self) -> str:
        """The whole module's text."""
        body: list[str] = []
        for line in self.lines:
            body += [line] if isinstance(line, str) else line
        for type_, table in self._tables.items():
            numbers = ", ".join(f"{type_} {literal}" for literal in table)
            body.append(f"@{type_}s = internal constant [{len(table)} x {type_}] [{numbers}]")
        return "\n".join([*sorted(self.declared), "", *self.helpers.values(), *body, ""])


def _float_literal(value: float, bits: int) -> str:
    if bits == 32:
        try:
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            value = float("inf") if value > 0 else float("-inf")
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


class Lanes:
    """Operations on ``width`` values of one dtype; width 1 is plain scalars.

    Every method appends to the text and returns the name of the result. Without a fused
    multiply-add in the target, ``fma`` is a multiplication and an addition, so that code that
    needs its single rounding must not be offered there.
    """

    def __init__(self, text: Text, dtype: str, width: int) -> None:
        self.text = text
        self.dtype: DType = DTYPES[dtype]
        self.width = width
        self.target = text.target
        reg = self.dtype.register
        self.type = reg if width == 1 else f"<{width} x {reg}>"
        self.bool_type = "i1" if width == 1 else f"<{width} x i1>"
        short = {"float": "f32", "double": "f64"}.get(reg, reg)
        self.suffix = short if width == 1 else f"v{width}{short}"

    def like(self, dtype: str) -> Lanes:
        """Lanes of the same width and another dtype."""
        return Lanes(self.text, dtype, self.width)

    @property
    def ints(self) -> Lanes:
        """The signed integers of the same size (for the bits of floats)."""
        return self.like("i64" if self.dtype.bits == 64 else "i32")

    # -- constants -----------------------------------------------------------------------------

    def c(self, value: float) -> str:
        """A constant in every lane."""
        if self.dtype.kind == "f":
            lit = _float_literal(value, self.dtype.bits)
        elif self.dtype.kind == "b":
            lit = "true" if value else "false"
        else:
            lit = str(int(value))
        return lit if self.width == 1 else f"splat ({self.dtype.register} {lit})"

    def splat(self, scalar: str) -> str:
        """A scalar value in every lane."""
        if self.width == 1:
            return scalar
        one = self.text.value(
            f"insertelement {self.type} poison, {self.dtype.register} {scalar}, i64 0"
        )
        zeros = f"<{self.width} x i32> zeroinitializer"
        return self.text.value(f"shufflevector {self.type} {one}, {self.type} poison, {zeros}")

    def iota(self, start: int = 0) -> str:
        """Lane numbers ``start``, ``start + 1``, ..."""
        reg = self.dtype.register
        if self.width == 1:
            return str(start)
        return "<" + ", ".join(f"{reg} {start + k}" for k in range(self.width)) + ">"

    # -- arithmetic ----------------------------------------------------------------------------

    def op(self, name: str, a: str, b: str) -> str:
        """A two-operand LLVM instruction."""
        return self.text.value(f"{name} {self.type} {a}, {b}")

    def call(self, intrinsic: str, *args: str) -> str:
        """An LLVM intrinsic with all operands of this type."""
        name = f"@llvm.{intrinsic}.{self.suffix}"
        self.text.declare(f"declare {self.type} {name}({', '.join([self.type] * len(args))})")
        given = ", ".join(f"{self.type} {a}" for a in args)
        return self.text.value(f"call {self.type} {name}({given})")

    def add(self, a: str, b: str) -> str:
        """a + b."""
        return self.op("fadd" if self.dtype.kind == "f" else "add", a, b)

    def sub(self, a: str, b: str) -> str:
        """a - b."""
        return self.op("fsub" if self.dtype.kind == "f" else "sub", a, b)

    def mul(self, a: str, b: str) -> str:
        """a * b."""
        return self.op("fmul" if self.dtype.kind == "f" else "mul", a, b)

    def div(self, a: str, b: str) -> str:
        """a / b of floats."""
        return self.op("fdiv", a, b)

    def fma(self, a: str, b: str, c: str) -> str:
        """a * b + c, rounded once where the target can."""
        if self.target.fma:
            return self.call("fma", *map(self._loaded, (a, b, c)))
        return self.add(self.mul(a, b), c)

    def _loaded(self, x: str) -> str:
        """``x``; where constants are loaded, and it is one, from memory.

        LLVM tries the negation of every constant in a multiply-add, lane by lane, and holds as
        many constants as it can in registers all through a loop, for which it then weighs the
        lives of the others. Loads it leaves where they are. That spares it a sixth of its time for
        a body with more constants than there are registers, which is as fast; one with few, which
        the registers do hold, would be slower by a twentieth.
        """
        if not (self.text.loads_constants and self.width > 1 and x.startswith("splat (")):
            return x
        type_, literal = x[len("splat (") : -1].split()

        def load() -> str:
            address = self.text.constant(type_, literal)
            return self.splat(self.text.value(f"load {type_}, ptr {address}"))

        return self.text.once(f"{self.type} {literal}", load)

    def neg(self, a: str) -> str:
        """-a of a float (also of zeros)."""
        return self.text.value(f"fneg {self.type} {a}")

    def abs(self, a: str) -> str:
        """|a| of a float."""
        return self.call("fabs", a)

    def copysign(self, a: str, sign: str) -> str:
        """|a| with the sign of ``sign``."""
        return self.call("copysign", a, sign)

    def cmp(self, how: str, a: str, b: str) -> str:
        """Compares; ``how`` as in LLVM (``olt``, ``une``, ``slt``, ...)."""
        inst = "fcmp" if self.dtype.kind == "f" else "icmp"
        return self.text.value(f"{inst} {how} {self.type} {a}, {b}")

    def select(self, where: str, a: str, b: str) -> str:
        """``a`` where ``where`` is true, else ``b``."""
        return self.text.value(f"select {self.bool_type} {where}, {self.type} {a}, {self.type} {b}")

    def both(self, a: str, b: str) -> str:
        """Logical and of two masks."""
        return self.text.value(f"and {self.bool_type} {a}, {b}")

    def either(self, a: str, b: str) -> str:
        """Logical or of two masks."""
        return self.text.value(f"or {self.bool_type} {a}, {b}")

    def at_most(self, bound: str, x: str) -> str:
        """min(bound, x) where a NaN in x stays."""
        return self.select(self.cmp("olt", bound, x), bound, x)

    def at_least(self, bound: str, x: str) -> str:
        """max(bound, x) where a NaN in x stays."""
        return self.select(self.cmp("ogt", bound, x), bound, x)

    def two_product(self, a: str, b: str) -> tuple[str, str]:
        """a * b as a sum of two floats, exact (T. J. Dekker where nothing is fused)."""
        p = self.mul(a, b)
        if self.target.fma:
            return p, self.call("fma", a, b, self.neg(p))
        split = self.c(4097.0 if self.dtype.bits == 32 else 134217729.0)

        def parts(x: str) -> tuple[str, str]:
            big = self.mul(x, split)
            high = self.sub(big, self.sub(big, x))
            return high, self.sub(x, high)

        (ah, al), (bh, bl) = parts(a), parts(b)
        e = self.sub(self.mul(ah, bh), p)
        e = self.add(self.add(e, self.mul(ah, bl)), self.mul(al, bh))
        return p, self.add(e, self.mul(al, bl))

    def two_sum(self, a: str, b: str) -> tuple[str, str]:
        """a + b as a sum of two floats, exact, where |a| >= |b| or a is 0."""
        s = self.add(a, b)
        return s, self.sub(b, self.sub(s, a))

    def any(self, mask: str) -> str:
        """An i1: true if any lane of the mask is."""
        bits = self.text.value(f"bitcast {self.bool_type} {mask} to i{self.width}")
        return self.text.value(f"icmp ne i{self.width} {bits}, 0")

    def poly(self, x: str, coefficients: Sequence[float]) -> str:
        """The polynomial with these coefficients, highest power first (Horner)."""
        r = self.c(coefficients[0])
        for k in coefficients[1:]:
            r = self.fma(r, x, self.c(k))
        return r

    # -- between floats and integers -----------------------------------------------------------

    def convert(self, how: str, a: str, to: Lanes) -> str:
        """A cast instruction (``bitcast``, ``sitofp``, ``zext``, ...) to the lanes ``to``."""
        return self.text.value(f"{how} {self.type} {a} to {to.type}")

    def bits(self, a: str) -> str:
        """A float's bits as an integer."""
        return self.convert("bitcast", a, self.ints)

    def from_bits(self, i: str) -> str:
        """The float with these bits."""
        return self.ints.convert("bitcast", i, self)

    def round_small(self, x: str) -> tuple[str, str]:
        """The nearest integer to ``x``, as a float and as an integer, for |x| below 2**21.

        Adding 1.5 * 2**p leaves the integer in the low bits of the sum.
        """
        return self._rounded(self.add(x, self.c(self._magic)))

    def round_product(self, x: str, factor: float) -> tuple[str, str]:
        """As ``round_small`` of x * factor."""
        return self._rounded(self.fma(x, self.c(factor), self.c(self._magic)))

    @property
    def _magic(self) -> float:
        return 12582912.0 if self.dtype.bits == 32 else 6755399441055744.0

    def _rounded(self, sum_: str) -> tuple[str, str]:
        word = 0x4B400000 if self.dtype.bits == 32 else 0x4338000000000000
        ints = self.ints
        return self.sub(sum_, self.c(self._magic)), ints.sub(self.bits(sum_), ints.c(word))

    def scale(self, x: str, n: str, ni: str) -> str:
        """x * 2**n for a normal x and integral n (float ``n``, integer ``ni``), right also where
        the result is subnormal or overflows; |n| at most twice the exponent range.
        """
        if self.has_float_parts:
            return self._by_parts("scalef", [x, n], "zeroinitializer")
        ints = self.ints
        bias, shift = (127, 23) if self.dtype.bits == 32 else (1023, 52)
        half = ints.op("ashr", ni, ints.c(1))
        rest = ints.sub(ni, half)
        for part in (half, rest):
            power = ints.op("shl", ints.add(part, ints.c(bias)), ints.c(shift))
            x = self.mul(x, self.from_bits(power))
        return x

    def pieces(self, x: str, size: int) -> list[str]:
        """Cuts a vector into parts of ``size`` lanes."""
        places = range(0, self.width, size)
        if x.startswith("splat ("):
            return [x] * len(places)
        part, tag = self._part(size)
        fn = f"@llvm.vector.extract.{tag}.{self.suffix}"
        self.text.declare(f"declare {part} {fn}({self.type}, i64 immarg)")
        cuts = [f"call {part} {fn}({self.type} {x}, i64 {at})" for at in places]
        return [self.text.once(cut, partial(self.text.value, cut)) for cut in cuts]

    def joined(self, parts: list[str]) -> str:
        """Joins vectors of equal size into one of this width."""
        size = self.width // len(parts)
        part, tag = self._part(size)
        fn = f"@llvm.vector.insert.{self.suffix}.{tag}"
        self.text.declare(f"declare {self.type} {fn}({self.type}, {part}, i64 immarg)")
        x = "poison"
        for k, p in enumerate(parts):
            x = self.text.value(
                f"call {self.type} {fn}({self.type} {x}, {part} {p}, i64 {k * size})"
            )
        return x

    def _part(self, size: int) -> tuple[str, str]:
        """The type of ``size`` lanes, and its short name."""
        lanes = Lanes(self.text, self.dtype.name, size)
        return lanes.type, lanes.suffix

    @property
    def has_float_parts(self) -> bool:
        """True where instructions scale by powers of two and split floats (AVX-512)."""
        return self.target.name == "avx512" and self.width * self.dtype.bits >= 512

    def exponent(self, x: str) -> str:
        """floor(log2 |x|) as a float; -inf for 0 (with ``has_float_parts``)."""
        return self._by_parts("getexp", [x], "zeroinitializer")

    def mantissa(self, x: str) -> str:
        """x / 2**exponent in [1, 2); NaN for negative x, 1 for 0 and infinity."""
        return self._by_parts("getmant", [x], "zeroinitializer", "i32 8")

    def _by_parts(self, name: str, args: list[str], other: str, number: str = "") -> str:
        """An AVX-512 instruction on register-sized parts (the cutting is free)."""
        size, tag = (16, "ps") if self.dtype.bits == 32 else (8, "pd")
        part = f"<{size} x {self.dtype.register}>"
        fn = f"@llvm.x86.avx512.mask.{name}.{tag}.512"
        kinds = [part] * len(args) + ["i32"] * bool(number) + [part, f"i{size}", "i32"]
        self.text.declare(f"declare {part} {fn}({', '.join(kinds)})")
        tail = [number] * bool(number) + [f"{part} {other}", f"i{size} -1", "i32 4"]
        done: list[str] = []
        for pieces in zip(*(self.pieces(a, size) for a in args), strict=True):
            given = ", ".join([f"{part} {p}" for p in pieces] + tail)
            done.append(self.text.value(f"call {part} {fn}({given})"))
        return self.joined(done)
