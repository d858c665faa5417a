"""``export``: tracing a program with the sizes that may vary as symbols."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from mortice._autograd.grad_mode import no_grad
from mortice._base.errors import ExportError, GuardOnDataDependent, MorticeError
from mortice._capture.fake import FakeTensorMode
from mortice._compile.control import EXPORTING
from mortice._compile.export.dims import Dim, DimHint, by_leaf
from mortice._compile.export.guards import InputGuards, TensorGuard, ValueGuard
from mortice._compile.export.lift import lifted
from mortice._compile.export.program import ExportedProgram
from mortice._tensor.tensor import Tensor
from mortice._types.symbolic_env import Guard, ShapeEnv
from mortice.fx.dispatch_trace import trace
from mortice.utils import pytree


def export(
    mod: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    preserve_module_call_signature: tuple[str, ...] = (),
) -> ExportedProgram:
    """A Module, or a function, as one graph of functional ATen operators with a signature.

    ``mod`` is run once on tensors without data. Sizes are those of the example, unless
    ``dynamic_shapes`` lets them vary; values of arguments that are no tensors are fixed. Branches on
    the values of tensors are refused, with their line.

    Args:
        mod: what to export; parameters, buffers and other tensors that it uses become inputs of the
            graph, kept in ``state_dict`` and ``constants``.
        args: example arguments, nested as ``mod`` takes them.
        kwargs: example keyword arguments.
        dynamic_shapes: a dict by argument, or a sequence, of what varies: for a tensor a dict by dim,
            or a sequence, of ``Dim``, ``Dim.AUTO``, ``Dim.DYNAMIC``, ``Dim.STATIC`` or None.
        strict: accepted for PyTorch's sake; there is one way to trace.
        preserve_module_call_signature: not supported; must be empty.

    Raises ExportError where the program does not let vary what ``dynamic_shapes`` says does.
    """
    if not isinstance(args, tuple):
        raise ExportError(
            f"export(): args must be a tuple of example arguments, not {type(args).__name__}; write (x,)."
        )
    if preserve_module_call_signature:
        raise ExportError("export(): preserve_module_call_signature is not supported.")
    wanted = _Arguments(mod, args, kwargs or {}, dynamic_shapes)
    # Sizes of 1 behave unlike others: they are allowed where nothing in the program asks for them.
    attempt = _Attempt(wanted, least=1)
    program = attempt.run(retry=wanted.has_free_minimum)
    return program if program is not None else _Attempt(wanted, least=2).must_run()


class _Arguments:
    """The example with the names of its parts, and what of it may vary."""

    def __init__(
        self, mod: Any, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: Any
    ) -> None:
        self.mod, self.args, self.kwargs = mod, args, kwargs
        self.names = _names(mod, args, kwargs)
        values = (*args, *kwargs.values())
        self.leaves, self.spec = pytree.tree_flatten((args, kwargs))
        self.paths = [
            f"{name}{pytree.keystr(path)}"
            for name, value in zip(self.names, values)
            for path, _ in pytree.tree_flatten_with_path(value)[0]
        ]
        self.dims = by_leaf(self.names, values, shapes)

    @property
    def has_free_minimum(self) -> bool:
        """Whether some size varies without a least size given."""
        found = (s for dims in self.dims for s in dims.values())
        return any(
            s.kind != "STATIC" if isinstance(s, DimHint) else isinstance(s, Dim) and s.min is None
            for s in found
        )


def _names(mod: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[str]:
    """The parameters that the arguments are for; ExportError if they do not fit."""
    function = getattr(mod, "forward", mod)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return [*(f"arg{i}" for i in range(len(args))), *kwargs]
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ExportError(
            f"export(): the example does not fit {type(mod).__name__}.forward{signature}: {error}"
        ) from None
    del bound
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    known = [p.name for p in signature.parameters.values() if p.kind in kinds]
    names = [known[i] if i < len(known) else f"arg{i}" for i in range(len(args))]
    return [*names, *kwargs]


@dataclasses.dataclass
class _Size:
    """A symbolic size of the example: its symbol, the Dim or hint it is for, where it is first."""

    symbol: Any
    spec: Dim | DimHint
    place: str
    hint: int


#: Relation to a number -> the argument of Dim that says it, and what is added to the number.
_BOUNDS = {">=": ("min", 0), ">": ("min", 1), "<=": ("max", 0), "<": ("max", -1)}


class _Attempt:
    """One trace, with 1 or 2 as the least size of what may vary."""

    def __init__(self, wanted: _Arguments, least: int) -> None:
        self.wanted = wanted
        self.least = least
        self.env = ShapeEnv()
        self.mode = FakeTensorMode(self.env, allow_non_fake_inputs=True)
        self.sizes: dict[str, _Size] = {}
        self._named: dict[str, _Size] = {}
        self.leaves = self._fakes()

    # -- symbolic inputs -----------------------------------------------------------------------

    def _fakes(self) -> list[Any]:
        wanted = self.wanted
        plans: list[dict[int, Any]] = []
        for leaf, dims, path in zip(wanted.leaves, wanted.dims, wanted.paths):
            plans.append(
                {
                    d: self._size(spec, leaf.shape[d], f"{path}.size()[{d}]")
                    for d, spec in dims.items()
                    if not isinstance(spec, int) and not (isinstance(spec, Dim) and spec.is_derived)
                }
            )
        # Derived sizes last: their roots are known by then.
        for leaf, dims, plan, path in zip(wanted.leaves, wanted.dims, plans, wanted.paths):
            for d, spec in dims.items():
                if isinstance(spec, Dim) and spec.is_derived:
                    plan[d] = self._derived(spec, leaf.shape[d], f"{path}.size()[{d}]")
        return [
            self.mode.from_tensor(leaf, dynamic_dims=plan) if isinstance(leaf, Tensor) else leaf
            for leaf, plan in zip(wanted.leaves, plans)
        ]

    def _size(self, spec: Dim | DimHint, hint: int, place: str) -> Any:
        if isinstance(spec, DimHint):
            return hint if spec.kind == "STATIC" else self._symbol(spec, hint, place, None, None)
        known = self._named.get(spec.name)
        if known is not None:
            if known.hint != hint:
                raise ExportError(
                    f"Dim {spec.name!r} is given for {known.place}, which is {known.hint} in the example, and for "
                    f"{place}, which is {hint}. One Dim is one size; use two."
                )
            return known.symbol
        symbol = self._symbol(spec, hint, place, spec.min, spec.max)
        if type(symbol) is not int:
            self._named[spec.name] = self.sizes[symbol.symbol]
        return symbol

    def _symbol(
        self, spec: Dim | DimHint, hint: int, place: str, low: int | None, high: int | None
    ) -> Any:
        least = self.least if low is None else low
        if hint < 2 and low is None:
            if isinstance(spec, DimHint) and spec.kind == "AUTO":
                return hint
            raise ExportError(
                f"{place} may vary by dynamic_shapes, but it is {hint} in the example, and sizes of 0 and 1 "
                "behave unlike others. Give an example with at least 2."
            )
        if hint < least or (high is not None and hint > high):
            raise ExportError(
                f"{place} is {hint} in the example, which is outside the range of {spec!r}: [{least}, "
                f"{'inf' if high is None else high}]."
            )
        symbol = self.env.size(hint, min=least, max=high)
        self.sizes[symbol.symbol] = _Size(symbol, spec, place, hint)
        return symbol

    def _derived(self, spec: Dim, hint: int, place: str) -> Any:
        root = self._named.get(spec.name)
        if root is None:
            raise ExportError(
                f"{place} is {spec!r}, but no input has the size {spec.name} itself, from which it could be "
                "known. Let it vary by a Dim of its own."
            )
        if root.hint * spec.scale + spec.offset != hint:
            raise ExportError(
                f"{place} is {spec!r} by dynamic_shapes, that is {root.hint * spec.scale + spec.offset} in the "
                f"example, but it is {hint}."
            )
        return root.symbol * spec.scale + spec.offset

    # -- the trace -----------------------------------------------------------------------------

    def must_run(self) -> ExportedProgram:
        program = self.run(retry=False)
        assert program is not None
        return program

    def run(self, retry: bool) -> ExportedProgram | None:
        """The program; None if it treats sizes of 1 apart and ``retry`` allows to do without them."""
        wanted = self.wanted
        args, kwargs = wanted.spec.unflatten(self.leaves)
        try:
            with no_grad(), _exporting():
                gm = trace(wanted.mod, args, kwargs, None, "fake", fake_mode=self.mode)
        except GuardOnDataDependent as error:
            if retry:
                return None
            raise GuardOnDataDependent(
                f"{error} Where a program chooses by the values of a tensor, write mortice.where; or leave the "
                "choice outside of the exported program."
            ) from error
        except MorticeError:
            if retry:
                return None
            raise
        relations = self.env.guards
        if retry and any(self._is_about_one(guard) for guard in relations):
            return None
        try:
            self._refuse(relations)
        except ExportError:
            if retry:  # it may be 1 that is refused
                return None
            raise
        fixed = {n: v for n in self.sizes if (v := self.env.is_specialised(n)) is not None}
        guards = InputGuards(
            tuple(self._input_guards(fixed)),
            {n: self._range(n) for n in self.sizes if n not in fixed},
            tuple(g for g in relations if not g.symbols & fixed.keys()),
        )
        return lifted(gm, wanted, self.mode, guards)

    def _is_about_one(self, guard: Guard) -> bool:
        """Whether a guard tells a size of 1 from others, where nobody said that it may be 1."""
        for name in guard.symbols & self.sizes.keys():
            spec = self.sizes[name].spec
            given = isinstance(spec, Dim) and spec.min is not None
            values = {n: s.hint for n, s in self.sizes.items()} | {name: 1}
            if not given and guard.symbols <= values.keys() and not guard.holds(values):
                return True
        return False

    def _refuse(self, relations: Sequence[Guard]) -> None:
        """ExportError where a Dim is fixed, or narrowed beyond what was said of it."""
        for name, size in self.sizes.items():
            value = self.env.is_specialised(name)
            if value is None or (isinstance(size.spec, DimHint) and size.spec.kind == "AUTO"):
                continue
            where = next((g.where for g in relations if name in g.symbols), "")
            raise ExportError(
                f"Constraints violated: {size.place} may vary by dynamic_shapes ({size.spec!r}), but the program "
                f"fixes it at {value}, at {where or 'an unknown line'}. Write the program for any size, or "
                "leave this one out of dynamic_shapes (or use Dim.AUTO)."
            )
        for guard in relations:
            names = [
                n for n in guard.symbols & self.sizes.keys() if self.env.is_specialised(n) is None
            ]
            named = [n for n in names if isinstance(self.sizes[n].spec, Dim)]
            if named:
                shown = ", ".join(
                    f"{n} is {self.sizes[n].place} ({self.sizes[n].spec!r})" for n in named
                )
                mend = self._mend(guard, named)
                raise ExportError(
                    f"Constraints violated: the program needs {guard.source()} at {guard.where}, where {shown}. "
                    f"{mend}, or use Dim.DYNAMIC, which makes it a check of every call."
                )

    def _mend(self, guard: Guard, names: Sequence[str]) -> str:
        """What to write so that a guard is part of what is said of a Dim."""
        if guard.relation == "==" and len(names) == 2:
            return "Use one Dim for both"
        bound = guard.right.constant
        if len(names) == 1 and guard.left.source() == names[0] and bound is not None:
            keyword, shift = _BOUNDS.get(guard.relation, ("", 0))
            if keyword:
                name = self.sizes[names[0]].spec
                return f"Write Dim({str(name)!r}, {keyword}={bound + shift})"
        return "Give the Dim such a range (min=, max=), let the size be a multiple of a Dim"

    def _range(self, name: str) -> tuple[float, float]:
        size = self.sizes[name]
        return self.env.range_of(size.symbol.expr)

    def _input_guards(self, fixed: dict[str, int]) -> list[TensorGuard | ValueGuard]:
        found: list[TensorGuard | ValueGuard] = []
        for leaf, path in zip(self.leaves, self.wanted.paths):
            if isinstance(leaf, Tensor):
                sizes = tuple(_fixed(n, fixed) for n in leaf.shape)
                found.append(TensorGuard(path, leaf.dtype, leaf.device.type, sizes))
            else:
                found.append(ValueGuard(path, leaf))
        return found


def _fixed(size: Any, fixed: dict[str, int]) -> Any:
    """A size with symbols that the program fixes as numbers."""
    if type(size) is int or not size.symbols & fixed.keys():
        return size
    return size.evaluate(fixed) if size.symbols <= fixed.keys() else size


@contextmanager
def _exporting() -> Generator[None, None, None]:
    """``mortice.compiler.is_exporting()`` within."""
    before = EXPORTING.on
    EXPORTING.on = True
    try:
        yield
    finally:
        EXPORTING.on = before
