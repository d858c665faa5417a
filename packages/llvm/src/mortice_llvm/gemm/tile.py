"""LLVM text of a matrix product by register tiles: C = A B, or C += A B over slices of k.

Rows of A are read where they lie, by a stride per row and one per k, so that A and its transpose
are one case. Columns of B are laid down in panels of as many as a tile is wide, KC rows at a time:
copied, or flipped V x V elements at a time in registers. Some panels are laid down together, and
blocks of rows go through them all, so that a block of C is finished soon. A tile is ROWS x (1 to 3 vectors); it holds
its part of C in registers over KC steps. Rows beyond the last are the last again, done twice
with one result; columns beyond the last are masked off. Each element of C is summed in
the order of k whatever the sizes, so results do not depend on how rows and columns are shared out.

(K. Goto and R. A. van de Geijn, "Anatomy of high-performance matrix multiplication", 2008, without
packing A: tiles are used where one operand is small.)
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple

from ..dtypes import DTYPES
from ..emit.kernel import attributes
from ..emit.lanes import Lanes, Text
from ..target import Target
from .shape import SHAPES

#: k's of a panel: 256 x 48 floats are 48 KiB.
KC = 256
#: Up to this many rows B is read where it lies, unless transposed or ragged: laying it down would
#: take 15% of 64 rows' time.
DIRECT = 64


#: Panels that are laid down together, and rows that go through all of them before the next: a block
#: of C, which what follows finds in the cache. 4 x 48 floats are three of a kernel's vectors.
GROUP, BLOCK = 4, 96

#: The function's parameters, with LLVM's types. k is at least 1; ``flip``: B lies transposed.
#: ``after``, unless null, is called as ``after(given, row, row end, column, column end)`` for blocks
#: of C as they are finished, counted from ``first_row`` and ``first_column`` on: a kernel of blocks.
PARAMETERS = (
    "i64 %m, i64 %n, i64 %k, ptr %a, i64 %a_row, i64 %a_step, ptr %b, i64 %ldb, i1 %flip, "
    "ptr %c, i64 %ldc, ptr %after, ptr %given, i64 %first_row, i64 %first_column"
)


def module_text(target: Target, dtype: str, name: str) -> str:
    """The module with the function ``name`` for ``dtype`` (``f32`` or ``f64``). C is row-major; all is in elements."""
    text = Text(target)
    text.declare("declare i64 @llvm.smin.i64(i64, i64)")
    tile = _Tile(text, dtype)
    for vectors in range(1, tile.shape.vectors + 1):
        tile.copy(vectors)
        tile.rows(vectors)
    tile.flip()
    tile.entry(name)
    return text.module() + attributes(target) + "\n"


class Panel(NamedTuple):
    """Some columns of B: where they are laid down if they are ``packed``, how many, in how many
    vectors and columns of a tile.
    """

    at: str
    some: str
    vectors: str
    columns: str
    packed: str


class _Tile:
    def __init__(self, text: Text, dtype: str) -> None:
        self.text = text
        self.dtype = dtype
        self.size = DTYPES[dtype].size
        self.real = DTYPES[dtype].register
        self.shape = SHAPES[text.target.name]
        self.width = self.shape.register // self.size
        self.lanes = Lanes(text, dtype, self.width)

    # -- pieces --------------------------------------------------------------------------------

    def _begin(self, name: str, parameters: str) -> None:
        self.text.lines.append(f"define internal void @{name}({parameters}) noinline #0 {{")
        self.text.label("entry")

    def _end(self) -> None:
        self.text.do("ret void")
        self.text.lines.append("}")

    @contextmanager
    def _loop(self, start: str, stop: str, step: int) -> Generator[str]:
        """A loop over start, start + step, .. below stop; gives the index."""
        t = self.text
        tag = t.fresh()
        head, body, after, i = f"head{tag}", f"body{tag}", f"after{tag}", f"%i{tag}"
        before = t.block
        t.do(f"br label %{head}")
        t.label(head)
        phi = t.later()
        t.do(f"br i1 {t.value(f'icmp slt i64 {i}, {stop}')}, label %{body}, label %{after}")
        t.label(body)
        yield i
        t.do(f"{i}.next = add nsw i64 {i}, {step}")
        phi.append(f"  {i} = phi i64 [{start}, %{before}], [{i}.next, %{t.block}]")
        t.do(f"br label %{head}")
        t.label(after)

    def _at(self, base: str, *terms: tuple[str, str]) -> str:
        """The address of element x0 y0 + x1 y1 + .. from ``base``."""
        t = self.text
        for x, y in terms:
            offset = x if y == "1" else t.value(f"mul nsw i64 {x}, {y}")
            base = t.value(f"getelementptr inbounds {self.real}, ptr {base}, i64 {offset}")
        return base

    def _add(self, a: str, b: str | int) -> str:
        return self.text.value(f"add nsw i64 {a}, {b}")

    def _least(self, a: str, b: str | int) -> str:
        return self.text.value(f"call i64 @llvm.smin.i64(i64 {a}, i64 {b})")

    def _number(self, at: str) -> str:
        return self.text.value(f"load {self.real}, ptr {at}, align {self.size}")

    def _store_number(self, value: str, at: str) -> None:
        self.text.do(f"store {self.real} {value}, ptr {at}, align {self.size}")

    # -- panels --------------------------------------------------------------------------------

    def _masks(self, vectors: int, some: str) -> list[str]:
        """Per vector of a panel, which of its columns are among the first ``some``."""
        t, words = self.text, Lanes(self.text, "i32", self.width)
        count = words.splat(t.value(f"trunc i64 {some} to i32"))
        return [words.cmp("slt", words.iota(v * self.width), count) for v in range(vectors)]

    def _access(self, what: str, result: str) -> str:
        """The declared name of a masked load or store."""
        kind, tag = self.lanes.type, f"v{self.width}f{8 * self.size}"
        name = f"@llvm.masked.{what}.{tag}.p0"
        bits = f"<{self.width} x i1>"
        given = f"ptr, i32, {bits}, {kind}" if what == "load" else f"{kind}, ptr, i32, {bits}"
        self.text.declare(f"declare {result} {name}({given})")
        return name

    def _load(self, at: str, mask: str = "") -> str:
        """A vector; 0 where the mask is false, and nothing of it is read there."""
        kind = self.lanes.type
        if not mask:
            return self.text.value(f"load {kind}, ptr {at}, align {self.size}")
        name = self._access("load", kind)
        return self.text.value(
            f"call {kind} {name}(ptr {at}, i32 {self.size}, <{self.width} x i1> {mask}, "
            f"{kind} zeroinitializer)"
        )

    def _store(self, value: str, at: str, mask: str = "") -> None:
        kind = self.lanes.type
        if not mask:
            self.text.do(f"store {kind} {value}, ptr {at}, align {self.size}")
            return
        name = self._access("store", "void")
        self.text.do(f"call void {name}({kind} {value}, ptr {at}, i32 {self.size}, "
                     f"<{self.width} x i1> {mask})")  # fmt: skip

    def copy(self, vectors: int) -> None:
        """``copy{n}(b, ldb, kc, some, panel)``: ``some`` columns of n vectors, row by row."""
        t, columns = self.text, vectors * self.width
        self._begin(f"copy{vectors}", "ptr %b, i64 %ldb, i64 %kc, i64 %some, ptr %panel")
        masks = self._masks(vectors, "%some")
        whole = t.value(f"icmp sge i64 %some, {columns}")
        t.do(f"br i1 {whole}, label %whole, label %ragged")
        for name, given in (("whole", [""] * vectors), ("ragged", masks)):
            t.label(name)
            with self._loop("0", "%kc", 1) as k:
                source, target = self._at("%b", (k, "%ldb")), self._at("%panel", (k, str(columns)))
                for v in range(vectors):
                    place = (str(v * self.width), "1")
                    self._store(self._load(self._at(source, place), given[v]),
                                self._at(target, place))  # fmt: skip
            t.do("ret void")
        t.lines.append("}")

    def flip(self) -> None:
        """``flip(b, ldb, kc, some, panel, columns)``: the same, where B lies transposed, by blocks of
        V x V.

        Columns beyond the last are the last again; after row kc come zeros, up to a multiple of V,
        which KC is.
        """
        t = self.text
        self._flip_block()
        self._begin("flip", "ptr %b, i64 %ldb, i64 %kc, i64 %some, ptr %panel, i64 %columns")
        with self._loop("0", "%columns", self.width) as j:
            last = t.value(f"sub i64 {self._add('%some', -1)}, {j}")
            source, target = self._at("%b", (j, "%ldb")), self._at("%panel", (j, "1"))
            with self._loop("0", "%kc", self.width) as k:
                left = t.value(f"sub i64 %kc, {k}")
                t.do(f"call void @flip_block(ptr {self._at(source, (k, '1'))}, i64 %ldb, "
                     f"i64 {last}, i64 {left}, ptr {self._at(target, (k, '%columns'))}, "
                     "i64 %columns)")  # fmt: skip
        self._end()

    def _flip_block(self) -> None:
        """``flip_block(b, ldb, last, left, target, columns)``: of V rows of B, of which ``last`` is
        the last, the first ``left`` elements. It is a function of its own since 2 V addresses in a loop
        take 6 ms to compile.
        """
        t, words = self.text, Lanes(self.text, "i32", self.width)
        self._begin(
            "flip_block", "ptr %b, i64 %ldb, i64 %last, i64 %left, ptr %target, i64 %columns"
        )
        count = words.splat(t.value(f"trunc i64 {self._least('%left', self.width)} to i32"))
        mask = words.cmp("slt", words.iota(), count)
        row, block = "%b", [self._load("%b", mask)]
        for r in range(1, self.width):
            step = t.value(f"select i1 {t.value(f'icmp sge i64 %last, {r}')}, i64 %ldb, i64 0")
            row = self._at(row, (step, "1"))
            block.append(self._load(row, mask))
        target = "%target"
        for q, v in enumerate(self._flipped(block)):
            target = self._at(target, ("%columns", "1")) if q else target
            self._store(v, target)
        self._end()

    def _flipped(self, block: list[str]) -> list[str]:
        """The transpose of V vectors: blocks of 1, 2, 4, .. elements change places."""
        n, t = self.width, self.text
        step = 1
        while step < n:
            masks = [
                [lane if not lane & step else n + lane - step for lane in range(n)],
                [lane + step if not lane & step else n + lane for lane in range(n)],
            ]
            made = list(block)
            for r in range(n):
                if r & step:
                    continue
                for which, mask in enumerate(masks):
                    lanes = ", ".join(f"i32 {x}" for x in mask)
                    made[r + which * step] = t.value(
                        f"shufflevector {self.lanes.type} {block[r]}, {self.lanes.type} "
                        f"{block[r + step]}, <{n} x i32> <{lanes}>"
                    )
            block = made
            step *= 2
        return block

    # -- tiles ---------------------------------------------------------------------------------

    def rows(self, vectors: int) -> None:
        """``rows{n}(m, kc, a, a_row, a_step, panel, some, first, c, ldc)``: all tiles of a panel.

        ``first``: C is written, else added to.
        """
        t, rows = self.text, self.shape.rows
        self._begin(
            f"rows{vectors}",
            "i64 %m, i64 %kc, ptr %a, i64 %a_row, i64 %a_step, ptr %panel, i64 %p_step, i64 %some, "
            "i1 %first, ptr %c, i64 %ldc",
        )
        columns = vectors * self.width
        masks = self._masks(vectors, "%some")
        ragged = t.value(f"icmp slt i64 %some, {columns}")
        last = self._add("%m", -1)
        with self._loop("0", "%m", rows) as i:
            index = [self._least(self._add(i, r), last) for r in range(rows)]
            a = [self._at("%a", (x, "%a_row")) for x in index]
            c = [self._at("%c", (x, "%ldc")) for x in index]
            places = [[self._at(row, (str(v * self.width), "1")) for v in range(vectors)]
                      for row in c]  # fmt: skip
            sums = self._sums(vectors, a, self._start(places, masks))
            self._store_all(sums, places, masks, ragged)
        self._end()

    def _store_all(
        self, sums: list[list[str]], places: list[list[str]], masks: list[str], ragged: str
    ) -> None:  # fmt: skip
        """Stores a tile: by masks, where these cost nothing, else only if it is ragged."""
        t, tag = self.text, self.text.fresh()
        ways = [(f"some{tag}", masks), (f"all{tag}", [""] * len(masks))]
        if t.target.masked:
            t.do(f"br label %some{tag}")
            ways.pop()
        else:
            t.do(f"br i1 {ragged}, label %some{tag}, label %all{tag}")
        for name, given in ways:
            t.label(name)
            for line, row in zip(sums, places, strict=True):
                for value, at, mask in zip(line, row, given, strict=True):
                    self._store(value, at, mask)
            t.do(f"br label %stored{tag}")
        t.label(f"stored{tag}")

    def _start(self, places: list[list[str]], masks: list[str]) -> list[list[str]]:
        """The sums at first: 0, or what C holds."""
        t, tag = self.text, self.text.fresh()
        before = t.block
        t.do(f"br i1 %first, label %start{tag}, label %held{tag}")
        t.label(f"held{tag}")
        held = [[self._load(at, m) for at, m in zip(row, masks, strict=True)] for row in places]
        t.do(f"br label %start{tag}")
        t.label(f"start{tag}")
        kind = self.lanes.type
        return [
            [t.value(f"phi {kind} [zeroinitializer, %{before}], [{x}, %held{tag}]") for x in row]
            for row in held
        ]

    def _sums(self, vectors: int, a: list[str], start: list[list[str]]) -> list[list[str]]:
        """The loop over k, at least once."""
        t, lanes, tag = self.text, self.lanes, self.text.fresh()
        before, loop, after = t.block, f"sum{tag}", f"summed{tag}"
        step = t.value(f"mul nsw i64 %a_step, {self.size}")
        t.do(f"br label %{loop}")
        t.label(loop)
        phis = t.later()
        held = [[f"%s{tag}.{r}.{v}" for v in range(vectors)] for r in range(len(a))]
        panel = f"%p{tag}"
        b = [self._load(self._at(panel, (str(v * self.width), "1"))) for v in range(vectors)]
        new: list[list[str]] = []
        for r, row in enumerate(a):
            at = t.value(f"getelementptr inbounds i8, ptr {row}, i64 %o{tag}")
            x = lanes.splat(self._number(at))
            new.append([lanes.fma(x, b[v], held[r][v]) for v in range(vectors)])
        t.do(f"%o{tag}.next = add nsw i64 %o{tag}, {step}")
        t.do(f"{panel}.next = getelementptr inbounds {self.real}, ptr {panel}, i64 %p_step")
        t.do(f"%k{tag}.next = add nsw i64 %k{tag}, -1")
        t.do(f"%k{tag}.more = icmp ne i64 %k{tag}.next, 0")
        t.do(f"br i1 %k{tag}.more, label %{loop}, label %{after}")
        for name, kind, first in (
            (f"%o{tag}", "i64", "0"), (panel, "ptr", "%panel"), (f"%k{tag}", "i64", "%kc"),
        ):  # fmt: skip
            phis.append(f"  {name} = phi {kind} [{first}, %{before}], [{name}.next, %{loop}]")
        for r in range(len(a)):
            for v in range(vectors):
                phis.append(f"  {held[r][v]} = phi {lanes.type} [{start[r][v]}, %{before}], "
                            f"[{new[r][v]}, %{loop}]")  # fmt: skip
        t.label(after)
        return new

    # -- the whole -----------------------------------------------------------------------------

    def entry(self, name: str) -> None:
        """Slices of k, groups of panels, blocks of rows; after the last slice, what follows."""
        t, columns = self.text, self.shape.vectors * self.width
        t.lines.append(f"define void @{name}({PARAMETERS}) #0 {{")
        t.label("entry")
        panels = t.alloca(f"[{GROUP * KC * columns} x {self.real}], align 64")
        down = t.value("select i1 %flip, i64 1, i64 %ldb")
        along = t.value("select i1 %flip, i64 %ldb, i64 1")
        tall = t.value(f"icmp sgt i64 %m, {DIRECT}")
        packs = t.value(f"or i1 {tall}, %flip")
        asked = t.value("icmp ne ptr %after, null")
        with self._loop("0", "%k", KC) as kk:
            kc = self._least(t.value(f"sub i64 %k, {kk}"), KC)
            first = t.value(f"icmp eq i64 {kk}, 0")
            last = t.value(f"icmp sle i64 %k, {self._add(kk, KC)}")
            follows = t.value(f"and i1 {last}, {asked}")
            a = self._at("%a", (kk, "%a_step"))
            with self._loop("0", "%n", GROUP * columns) as left:
                right = self._least(self._add(left, GROUP * columns), "%n")
                with self._loop(left, right, columns) as j:
                    panel = self._panel(panels, left, j, packs)
                    self._lay(panel, self._at("%b", (kk, down), (j, along)), kc)
                with self._loop("0", "%m", BLOCK) as i:
                    bottom = self._least(self._add(i, BLOCK), "%m")
                    height = t.value(f"sub i64 {bottom}, {i}")
                    with self._loop(left, right, columns) as j:
                        panel = self._panel(panels, left, j, packs)
                        at = t.value(f"select i1 {panel.packed}, ptr {panel.at}, "
                                     f"ptr {self._at('%b', (kk, down), (j, '1'))}")  # fmt: skip
                        step = t.value(f"select i1 {panel.packed}, i64 {panel.columns}, i64 %ldb")
                        self._switch(panel.vectors, "rows", (
                            f"i64 {height}, i64 {kc}, ptr {self._at(a, (i, '%a_row'))}, "
                            f"i64 %a_row, i64 %a_step, ptr {at}, i64 {step}, i64 {panel.some}, "
                            f"i1 {first}, ptr {self._at('%c', (i, '%ldc'), (j, '1'))}, i64 %ldc"
                        ))  # fmt: skip
                    self._follow(follows, (i, bottom), (left, right))
        self._end()

    def _panel(self, panels: str, left: str, j: str, packs: str) -> Panel:
        """The panel whose first column is j, in a group that starts at ``left``."""
        t = self.text
        some = self._least(t.value(f"sub i64 %n, {j}"), self.shape.vectors * self.width)
        vectors = t.value(f"udiv i64 {self._add(some, self.width - 1)}, {self.width}")
        columns = t.value(f"mul i64 {vectors}, {self.width}")
        packed = t.value(f"or i1 {packs}, {t.value(f'icmp slt i64 {some}, {columns}')}")
        at = self._at(panels, (t.value(f"sub i64 {j}, {left}"), str(KC)))
        return Panel(at, some, vectors, columns, packed)

    def _lay(self, panel: Panel, b: str, kc: str) -> None:
        """Lays the panel down, if it is to be."""
        t, tag = self.text, self.text.fresh()
        given = f"ptr {b}, i64 %ldb, i64 {kc}, i64 {panel.some}, ptr {panel.at}"
        t.do(f"br i1 {panel.packed}, label %pack{tag}, label %laid{tag}")
        t.label(f"pack{tag}")
        t.do(f"br i1 %flip, label %flip{tag}, label %copy{tag}")
        t.label(f"flip{tag}")
        t.do(f"call void @flip({given}, i64 {panel.columns})")
        t.do(f"br label %laid{tag}")
        t.label(f"copy{tag}")
        self._switch(panel.vectors, "copy", given)
        t.do(f"br label %laid{tag}")
        t.label(f"laid{tag}")

    def _switch(self, vectors: str, name: str, given: str) -> None:
        """Calls the code for as few vectors as a panel needs."""
        t, tag, most = self.text, self.text.fresh(), self.shape.vectors
        cases = " ".join(f"i64 {v}, label %n{tag}.{v}" for v in range(1, most))
        t.do(f"switch i64 {vectors}, label %n{tag}.{most} [{cases}]")
        for v in range(1, most + 1):
            t.label(f"n{tag}.{v}")
            t.do(f"call void @{name}{v}({given})")
            t.do(f"br label %done{tag}")
        t.label(f"done{tag}")

    def _follow(self, follows: str, rows: tuple[str, str], columns: tuple[str, str]) -> None:
        """Calls ``after`` for a block."""
        t, tag = self.text, self.text.fresh()
        t.do(f"br i1 {follows}, label %follow{tag}, label %followed{tag}")
        t.label(f"follow{tag}")
        places = [self._add("%first_row", x) for x in rows]
        places += [self._add("%first_column", x) for x in columns]
        t.do(f"call void %after(ptr %given, {', '.join(f'i64 {x}' for x in places)})")
        t.do(f"br label %followed{tag}")
        t.label(f"followed{tag}")
