"""LLVM text of matrix products: tiles of our own or BLAS on one thread per part, the parts shared
out by our own pool.

BLAS's own threads wait by spinning; on cores that others use too, or beside our pool's, a product
then takes 10 to 100 times as long. So the driver sets BLAS to one thread while it runs, and cuts
products of some size itself: by matrices of a batch, else by rows or columns in blocks, which the
kernels' tiles divide.
"""

from __future__ import annotations

from typing import NamedTuple

#: Rows or columns of a block: of BLAS's, and of our tiles'.
BLOCK, TILE_BLOCK = 64, 16
#: Products of fewer multiplications are not cut: waking a thread takes 5 us. Nor those of fewer
#: elements that something follows: a kernel of so many would not be, either.
LEAST, LEAST_FOLLOWED = 1 << 20, 32768
PARALLEL_FOR = "mortice_parallel_for"
#: What a product's function is given is the address of these words: routine, a, b, c, what follows
#: and its parameters (null: nothing), and the address of the numbers of ``Product``.
ROUTINE, A, B, C, AFTER, GIVEN, NUMBERS = range(7)
#: The numbers; from STEPS on are three for each of a, b and c.
BATCH, M, N, K, LDA, LDB, LDC, STEPS = range(8)


class Kind(NamedTuple):
    """What is in the text of a product: element type, transpositions, BLAS's integers."""

    dtype: str
    trans_a: bool
    trans_b: bool
    integer: str
    tile: bool

    @property
    def name(self) -> str:
        """The name of its function."""
        how = "tile" if self.tile else "gemm"
        return f"{how}_{self.dtype}_{int(self.trans_a)}{int(self.trans_b)}"

    @property
    def block(self) -> int:
        """Rows or columns in a block."""
        return TILE_BLOCK if self.tile else BLOCK


class _Lines:
    """Lines of one function, and fresh names."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0

    def new(self, text: str) -> str:
        self._count += 1
        name = f"%g{self._count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, *lines: str) -> None:
        self.lines += lines

    def address(self, k: int) -> str:
        at = self.new(f"getelementptr i64, ptr %w, i64 {k}")
        return self.new(f"load ptr, ptr {at}, align 8")

    def numbers(self, *which: int) -> list[str]:
        start = self.address(NUMBERS)
        places = [self.new(f"getelementptr i64, ptr {start}, i64 {k}") for k in which]
        return [self.new(f"load i64, ptr {at}, align 8") for at in places]


def functions(kind: Kind) -> list[str]:
    """The lines of ``NAME(ptr words, i64 threads)`` and of its parts."""
    return [*_part_of_batch(kind), *_part_of_block(kind, "rows"), *_part_of_block(kind, "cols"),
            *_entry(kind)]  # fmt: skip


def _call(
    t: _Lines, kind: Kind, places: tuple[str, str, str], m: str, n: str, first: tuple[str, str]
) -> None:  # fmt: skip
    """Does ``m`` rows and ``n`` columns of C, which start at row and column ``first``."""
    if kind.tile:
        _call_tile(t, kind, places, m, n, first)
        return
    size = [m, n, *t.numbers(K, LDA, LDB, LDC)]
    if kind.integer != "i64":
        size = [t.new(f"trunc i64 {x} to i32") for x in size]
    m, n, k, lda, ldb, ldc = (f"{kind.integer} {x}" for x in size)
    real = "float" if kind.dtype == "f32" else "double"
    ta, tb = (112 if x else 111 for x in (kind.trans_a, kind.trans_b))
    a, b, c = places
    t.do(
        f"  call void {t.address(ROUTINE)}(i32 101, i32 {ta}, i32 {tb}, {m}, {n}, {k}, "
        f"{real} 1.0, ptr {a}, {lda}, ptr {b}, {ldb}, {real} 0.0, ptr {c}, {ldc})"
    )


def _call_tile(
    t: _Lines, kind: Kind, places: tuple[str, str, str], m: str, n: str, first: tuple[str, str]
) -> None:  # fmt: skip
    """See ``mortice_llvm.gemm.tile.PARAMETERS``."""
    k, lda, ldb, ldc = t.numbers(K, LDA, LDB, LDC)
    row, step = ("1", lda) if kind.trans_a else (lda, "1")
    a, b, c = places
    after, given = t.address(AFTER), t.address(GIVEN)
    t.do(
        f"  call void {t.address(ROUTINE)}(i64 {m}, i64 {n}, i64 {k}, ptr {a}, i64 {row}, "
        f"i64 {step}, ptr {b}, i64 {ldb}, i1 {int(kind.trans_b)}, ptr {c}, i64 {ldc}, "
        f"ptr {after}, ptr {given}, i64 {first[0]}, i64 {first[1]})"
    )


def _bytes(kind: Kind) -> int:
    return 4 if kind.dtype == "f32" else 8


def _part_of_batch(kind: Kind) -> list[str]:
    """Whole matrices lo to hi."""
    t = _Lines()
    t.do(f"define internal void @{kind.name}_batch(ptr %w, i64 %lo, i64 %hi) nounwind {{",
         "entry:", "  %some = icmp ult i64 %lo, %hi",
         "  br i1 %some, label %loop, label %done", "loop:",
         "  %i = phi i64 [%lo, %entry], [%i.next, %loop]")  # fmt: skip
    places: list[str] = []
    for k in range(3):
        inner, outer_step, inner_step = t.numbers(*(STEPS + 3 * k + j for j in range(3)))
        outer = t.new(f"mul i64 {t.new(f'udiv i64 %i, {inner}')}, {outer_step}")
        within = t.new(f"mul i64 {t.new(f'urem i64 %i, {inner}')}, {inner_step}")
        offset = t.new(f"mul i64 {t.new(f'add i64 {outer}, {within}')}, {_bytes(kind)}")
        places.append(t.new(f"getelementptr i8, ptr {t.address(A + k)}, i64 {offset}"))
    m, n = t.numbers(M, N)
    first = t.new(f"mul i64 %i, {m}")  # rows are counted through the batch
    _call(t, kind, (places[0], places[1], places[2]), m, n, (first, "0"))
    t.do("  %i.next = add i64 %i, 1", "  %i.more = icmp ult i64 %i.next, %hi",
         "  br i1 %i.more, label %loop, label %done", "done:", "  ret void", "}")  # fmt: skip
    return t.lines


def _part_of_block(kind: Kind, along: str) -> list[str]:
    """Blocks lo to hi of the rows (or columns) of one matrix."""
    t = _Lines()
    t.do(f"define internal void @{kind.name}_{along}(ptr %w, i64 %lo, i64 %hi) nounwind {{",
         "entry:")  # fmt: skip
    rows = along == "rows"
    m, n, lda, ldb, ldc = t.numbers(M, N, LDA, LDB, LDC)
    all_ = m if rows else n
    first = t.new(f"mul i64 %lo, {kind.block}")
    past = t.new(f"call i64 @llvm.umin.i64(i64 {t.new(f'mul i64 %hi, {kind.block}')}, i64 {all_})")
    count = t.new(f"sub i64 {past}, {first}")
    # Where the block starts in the operand that is cut: one leading size per row of memory.
    crossed = kind.trans_a if rows else not kind.trans_b
    step = first if crossed else t.new(f"mul i64 {first}, {lda if rows else ldb}")
    cut = t.new(f"mul i64 {step}, {_bytes(kind)}")
    moved = t.new(f"getelementptr i8, ptr {t.address(A if rows else B)}, i64 {cut}")
    step = t.new(f"mul i64 {first}, {ldc}") if rows else first
    out = t.new(f"getelementptr i8, ptr {t.address(C)}, "
                f"i64 {t.new(f'mul i64 {step}, {_bytes(kind)}')}")  # fmt: skip
    if rows:
        _call(t, kind, (moved, t.address(B), out), count, n, (first, "0"))
    else:
        _call(t, kind, (t.address(A), moved, out), m, count, ("0", first))
    t.do("  ret void", "}")
    return t.lines


def _entry(kind: Kind) -> list[str]:
    """Chooses how to cut."""
    t = _Lines()
    t.do(f"define internal void @{kind.name}(ptr %w, i64 %threads) nounwind {{", "entry:")
    batch, m, n, k = t.numbers(BATCH, M, N, K)
    results = t.new(f"mul i64 {t.new(f'mul i64 {m}, {n}')}, {batch}")
    few = t.new(f"icmp ult i64 {t.new(f'mul i64 {results}, {k}')}, {LEAST}")
    follows = t.new(f"icmp ne ptr {t.address(AFTER)}, null")
    many = t.new(f"and i1 {follows}, {t.new(f'icmp ugt i64 {results}, {LEAST_FOLLOWED}')}")
    small = t.new(f"and i1 {few}, {t.new(f'xor i1 {many}, true')}")
    one = t.new("icmp ule i64 %threads, 1")
    t.do(f"  br i1 {t.new(f'or i1 {small}, {one}')}, label %alone, label %shared", "alone:",
         f"  call void @{kind.name}_batch(ptr %w, i64 0, i64 {batch})", "  ret void", "shared:")  # fmt: skip
    several = t.new(f"icmp ugt i64 {batch}, 1")
    t.do(f"  br i1 {several}, label %batches, label %single", "batches:")
    _share(t, f"{kind.name}_batch", batch)
    t.do("single:")
    # Tiles lay B down, a part of the rows at a time: columns cost nothing twice. What follows them
    # reads C again, and parts of columns have lines of the cache in common, one in every row.
    bound = m
    if kind.tile:
        bound = t.new(f"lshr i64 {m}, {t.new(f'select i1 {follows}, i64 0, i64 2')}")
    tall = t.new(f"icmp uge i64 {bound}, {n}")
    t.do(f"  br i1 {tall}, label %rows, label %cols", "rows:")
    _share(t, f"{kind.name}_rows", _blocks(t, m, kind.block))
    t.do("cols:")
    _share(t, f"{kind.name}_cols", _blocks(t, n, kind.block))
    t.do("}")
    return t.lines


def _blocks(t: _Lines, n: str, size: int) -> str:
    return t.new(f"udiv i64 {t.new(f'add i64 {n}, {size - 1}')}, {size}")


def _share(t: _Lines, part: str, units: str) -> None:
    """One part per thread: each part packs the other operand anew."""
    up = t.new(f"add i64 {units}, {t.new('sub i64 %threads, 1')}")
    chunk = t.new(f"udiv i64 {up}, %threads")
    t.do(f"  call void @{PARALLEL_FOR}(ptr @{part}, ptr %w, i64 {units}, i64 {chunk})",
         "  ret void")  # fmt: skip
