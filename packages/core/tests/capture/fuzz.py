"""Random programs whose compiled form must give, leave and say what eager does.

``python fuzz.py FIRST COUNT [replay] [aot] [native] [steady]`` runs more of them than the tests do;
``native`` with inductor's recorder, and ``steady`` with calls that are like those before.
"""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from comparing import aliases, tensors

import mortice

SHAPES = ((2, 3), (3,), (2, 1), (1, 3), (3, 2), (3, 3), ())
DTYPES = ("float32", "float32", "float32", "float64", "int64", "bool")
UNARY = (
    "-{0}",
    "{0}.relu()",
    "{0}.exp().clamp(max=3)",
    "{0}.sin()",
    "{0}.abs()",
    "{0}.clone()",
    "{0}.sigmoid()",
)
BINARY = (
    "{0} + {1}", "{0} - {1}", "{0} * {1}", "mortice.where({0} > {1}, {0}, {1})", "mortice.maximum({0}, {1})",
    "{0} @ {1}", "{0} / ({1}.abs() + 1)", "mortice.cat([{0}, {1}])", "mortice.stack([{0}, {1}])",
)  # fmt: skip
WITH_NUMBER = (
    "{0} * {2}",
    "{0} + {2}",
    "{2} - {0}",
    "{0}.clamp(min={2})",
    "{0} ** 2",
    "{0}.add({0}, alpha={2})",
)
VIEWS = (
    "{0}.t()", "{0}[0]", "{0}[-1]", "{0}[1:]", "{0}[..., 0]", "{0}[..., ::2]", "{0}.view(-1)", "{0}.reshape(-1)",
    "{0}.unsqueeze(0)", "{0}.squeeze()", "{0}.detach()", "{0}.expand(2, 3)", "{0}.split(1, 0)[0]",
    "{0}.unbind(0)[1]", "{0}.diagonal()", "{0}[None, ...]", "{0}.transpose(0, -1)", "{0}.data",
)  # fmt: skip
REDUCE = (
    "{0}.sum()",
    "{0}.mean()",
    "{0}.sum(0)",
    "{0}.amax(-1)",
    "{0}.cumsum(0)",
    "{0}.softmax(-1)",
    "{0}.argmax()",
)
CAST = ("{0}.double()", "{0}.float()", "{0}.to(mortice.int64)", "({0} > 0)", "{0}.bool()")
WRITES = (
    "{0}.add_({1})", "{0}.mul_({1})", "{0}.copy_({1})", "{0}.mul_({2})", "{0}.sub_({2})", "{0}.zero_()",
    "{0}.relu_()", "{0}.fill_({2})", "{0}[0] = {1}", "{0}[...] = {1}", "{0}[0].mul_({2})", "{0}.t().add_({2})",
    "{0} += {1}", "{0}.masked_fill_({0} > 0, {2})", "{0}.lerp_({1}, 0.5)", "{0}[..., 1:] = {2}",
    "{0}.view(-1).add_({2})", "{0}.detach().mul_({2})", "{0}.data.add_({2})", "{0}.clamp_(min={2})",
    "mortice.add({0}, {1}, out={0})", "{0}.unsqueeze_(0)", "{0}.addcmul_({1}, {1}, value={2})",
)  # fmt: skip
EFFECTS = (
    "log.append({0}.sum().item())", "log.append({0}.tolist())", "kept.append({0})", "log.append({0}._version)",
    "log.append(tuple({0}.shape))", "log.append({0}.requires_grad)", "log.append(repr({0}))",
    "log.append(len(kept))", "kept.append({0}.detach())", "log.append({0}.is_leaf)", "state.n += 1",
    "log.append(state.n)", "state.t = {0}", "v{new} = state.t", "state.t.add_({2})",
)  # fmt: skip


class State:
    """An object outside of the function."""

    def __init__(self) -> None:
        self.n = 0
        self.t = mortice.ones(2, 3)


class Program:
    """A function's source, made by chance from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = self.random.randint(1, 3)
        self.names = [f"a{i}" for i in range(self.count)]
        self.lines: list[str] = []
        self.indent = 1
        self.new = 0
        for _ in range(self.random.randint(2, 9)):
            self.statement()
        chosen = [self.random.choice(self.names) for _ in range(self.random.randint(1, 4))]
        self.emit(f"return [{', '.join(chosen)}]")
        head = f"def f({', '.join([f'a{i}' for i in range(self.count)])}, n, log, kept, state):"
        self.source = "\n".join([head, *self.lines])

    def emit(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def name(self) -> str:
        names = self.names if self.random.random() < 0.5 else self.names[-3:]
        return self.random.choice(names)

    def fill(self, text: str) -> str:
        number = self.random.choice(("n", "2", "0.5", "-1", "n + 1", "1"))
        return text.format(self.name(), self.name(), number, new=self.new)

    def statement(self) -> None:
        kind = self.random.random()
        if kind < 0.12:
            self.block()
        elif kind < 0.42:
            self.emit(self.fill(self.random.choice(WRITES)))
        elif kind < 0.54:
            self.emit(self.fill(self.random.choice(EFFECTS)))
            if self.lines[-1].strip().startswith("v"):
                self.assigned()
        else:
            table = self.random.choice(
                (UNARY, BINARY, BINARY, WITH_NUMBER, VIEWS, VIEWS, REDUCE, CAST)
            )
            if self.random.random() < 0.15:
                self.emit(f"{self.name()} = {self.fill(self.random.choice(table))}")
                return
            self.emit(f"v{self.new} = {self.fill(self.random.choice(table))}")
            self.assigned()

    def assigned(self) -> None:
        self.names.append(f"v{self.new}")
        self.new += 1

    def block(self) -> None:
        if self.indent > 2:
            return
        head = self.random.choice(
            (
                f"if {self.name()}.sum() > {self.random.choice(('0', 'n', '2'))}:",
                "with mortice.no_grad():",
                f"for i in range({self.random.randint(1, 3)}):",
                "if n > 1:",
                "with mortice.enable_grad():",
            )
        )
        self.emit(head)
        known = len(self.names)
        self.indent += 1
        self.emit("pass")
        for _ in range(self.random.randint(1, 3)):
            self.statement()
        self.indent -= 1
        if head.startswith("if"):
            del self.names[known:]


def arguments(seed: int, count: int, longer: int = 0) -> list[Any]:
    """Tensors of several dtypes, with and without gradients, some sharing memory.

    ``longer`` is added to sizes of 3: the same arguments, larger.
    """
    r = random.Random(seed)
    g = np.random.default_rng(seed)
    made: list[Any] = []
    for _ in range(count):
        how = r.random()
        if made and how < 0.12:
            made.append(made[-1])
        elif made and how < 0.3:
            made.append(_view(made[r.randrange(len(made))], r))
        else:
            dtype = r.choice(DTYPES)
            data = g.integers(-3, 4, [m + longer * (m == 3) for m in r.choice(SHAPES)]) / (
                1 if dtype in ("int64", "bool") else 2
            )
            t = mortice.tensor(data, dtype=getattr(mortice, dtype))
            if t.is_floating_point() and r.random() < 0.5:
                t.requires_grad_(True)
                if r.random() < 0.4:
                    t = t * 1
            made.append(t)
    return made


def _view(t: Any, r: random.Random) -> Any:
    if not t.numel():
        return t.detach()
    if t.dim() == 2:
        return r.choice((t.t(), t[0], t[:, 1:], t.detach(), t[1:]))
    return r.choice((t.unsqueeze(0), t.detach(), t[...]))


def outcome(
    f: Callable[..., Any], seed: int, count: int, n: Any, state: State, longer: int = 0
) -> Any:
    """All that a call gives and leaves: result, error, log, what was kept, arguments, gradients."""
    args = arguments(seed, count, longer)
    leaves = [t for t in args if t.requires_grad]
    log: list[Any] = []
    kept: list[Any] = []
    error = ""
    result: Any = None
    try:
        result = f(*args, n, log, kept, state)
    except Exception as raised:
        error = type(raised).__name__
    everything = [*tensors(result), *kept, *args, state.t]
    seen = [
        (
            t.dtype,
            tuple(t.shape),
            _strides(t),
            t.requires_grad,
            t.is_leaf,
            t.detach().tolist(),
        )
        for t in everything
    ]
    shared = aliases(result, kept, args)
    gradients: Any = None
    tracked = [t for t in everything if t.requires_grad and t.grad_fn is not None]
    if tracked:
        try:
            for i, t in enumerate(tracked):
                t.backward(t.detach().cos() + i, retain_graph=True)
            gradients = [
                None if not t.is_leaf or t.grad is None else t.grad.tolist() for t in leaves
            ]
        except Exception as raised:
            gradients = type(raised).__name__
    state.t = state.t.detach().clone()
    return error, seen, log, shared, gradients, state.n


def _strides(t: Any) -> Any:
    """Strides where they matter: of several elements, in dims of several."""
    return [s for s, n in zip(t.stride(), t.shape) if n > 1] if t.numel() else None


def differences(a: Any, b: Any) -> str:
    """What differs; gradients may differ in the last bits.

    Either may refuse a backward pass because a value that it kept was written to: which values are
    kept is its own choice.
    """
    for name, x, y in zip(("error", "tensors", "log", "aliases"), a, b):
        if _shown(x) != _shown(y):
            return f"{name}: {x}\n   eager: {y}"
    if a[5] != b[5]:
        return f"state: {a[5]}, eager: {b[5]}"
    if isinstance(b[4], str) or a[4] == "AutogradError" or repr(a[4]) == repr(b[4]):
        return ""
    if isinstance(a[4], str) or not _close(a[4], b[4]):
        return f"gradients: {a[4]}\n   eager: {b[4]}"
    return ""


def _shown(x: Any) -> str:
    """As text; the names of histories, which wrap lines, are the graphs' own."""
    on_one_line = re.sub(r"(\\n|\s)+", " ", repr(x))
    return re.sub(r", grad_fn=<\w+>", "", on_one_line)


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_close, a, b))
    if a is None:  # nothing depends on it; eager may say so with zeros
        return b is None or not np.any(b)
    if b is None:
        return False
    return bool(np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True))


def check(seed: int, make: Callable[[Any], Any], calls: int = 7, steady: bool = False) -> str:
    """Empty, or the program and what its compiled form did differently.

    ``steady``: with arguments of one kind, but for the last call but one.
    """
    program = Program(seed)
    scope: dict[str, Any] = {"mortice": mortice}
    exec(compile(program.source, f"<program {seed}>", "exec"), scope)
    f = scope["f"]
    compiled = make(f)
    mine, theirs = State(), State()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call in range(calls):
            which = seed * 7 + (call if call < 2 else call % 2)
            n = (1, 2, 2.5, 3)[call % 4]
            longer = max(call - 3, 0)
            if steady:
                which, n, longer = seed * 7 + (call == calls - 2), 2, 0
            got = outcome(compiled, which, program.count, n, mine, longer)
            want = outcome(f, which, program.count, n, theirs, longer)
            if (
                ".data." in program.source
            ):  # a write behind autograd's back: eager's own is not right
                got, want = (*got[:4], None, got[5]), (*want[:4], None, want[5])
            different = differences(got, want)
            if different:
                return f"seed {seed}, call {call}\n{program.source}\n{different}"
    return ""


def main() -> None:
    import sys
    import traceback

    from conftest import interpreted

    from mortice._capture.compiled import Compiled
    from mortice._compile.settings import Settings

    def make(f: Any) -> Any:
        settings = Settings(None, "interpreted", interpreted)  # type: ignore[arg-type]
        compiled = Compiled(f, settings)
        if "replay" not in sys.argv:
            compiled.replay = None
        return compiled

    if "aot" in sys.argv:
        from mortice._compile.front import compile as real

        def make(f: Any) -> Any:
            compiled = real(f, backend="aot_eager")
            if "replay" not in sys.argv:
                compiled.replay = None
            return compiled

    if "native" in sys.argv:
        from natively import record_natively

        record_natively()
    first, count = int(sys.argv[1]), int(sys.argv[2])
    failed = 0
    for seed in range(first, first + count):
        try:
            found = check(seed, make, steady="steady" in sys.argv)
        except Exception:
            found = f"seed {seed}\n{Program(seed).source}\n{traceback.format_exc(limit=-6)}"
        if found:
            failed += 1
            if failed <= int(sys.argv[3]) if len(sys.argv) > 3 and sys.argv[3].isdigit() else 5:
                print(found, "\n" + "-" * 60)
    print(f"{count} programs, {failed} different")


if __name__ == "__main__":
    main()
