"""``compile_fx``: from a graph module and example inputs to a callable."""

from __future__ import annotations

import marshal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import mortice
from mortice import config
from mortice.backend import active_logger, replaced_operators
from mortice.errors import ArgumentError, BackendFailed, CompileError
from mortice.fx import symbols
from mortice_llvm.runtime import cache as objects

from . import cache, devices, options, routing, shown
from .inputs import aliases, kinds_of, misfit, numbers_of
from .options import ConfigModule
from .plan import Plan
from .shown import Recipe
from .specs import DataDependent, NumberSpec, OtherSpec, Spec, TensorSpec, specs_of
from .templates import Templates

objects.follow(lambda: config.cache_dir)

if TYPE_CHECKING:
    from .sizing import Planned

Compiled = Callable[..., tuple[Any, ...]]


def compile_fx(
    gm: Any,
    example_inputs: Sequence[Any],
    inner_compile: Callable[..., Compiled] | None = None,
    config_patches: Mapping[str, Any] | None = None,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
) -> Compiled:
    """Compiles a graph to fused machine code.

    Args:
        gm: a ``mortice.fx.GraphModule`` of functional ATen operators, which may end in ``copy_`` to
            placeholders. It is taken over: passes may change it.
        example_inputs: what the graph will be called with, real or fake: sizes, strides and dtypes
            are taken from them. Symbolic sizes are bound at each call, and other sizes or strides
            than the examples' are compiled anew when they come.
        inner_compile: ``fn(gm, example_inputs) -> callable`` in place of ``compile_fx_inner``.
        config_patches: options for this graph, ``{"name": value, "device.name": value}``; in
            force again whenever more of it is compiled later.
        decompositions: ``{overload: function}``, traced in place of these operators.

    Returns a callable that takes the graph's inputs and gives the tuple of its outputs; ArgumentError
    from it for inputs of another number or kind. Raises UnknownOption and OptionError for options,
    ArgumentError for arguments of another type, InvalidValue for decompositions that do not fit their
    operators, BackendFailed if ``inner_compile`` gives no callable, CompileError for graphs that are no
    such graphs.
    """
    for name, value, wanted, fits in (
        ("config_patches", config_patches, "a dict of options", _is_mapping),
        ("decompositions", decompositions, "a dict {overload: function}", _is_mapping),
        ("inner_compile", inner_compile, "a function fn(gm, example_inputs)", callable),
    ):
        if value is not None and not fits(value):
            raise ArgumentError(f"compile_fx(): {name} is {value!r}; expected {wanted}.")
    given = dict(config_patches or {})
    inner = inner_compile or compile_fx_inner
    meta = gm.meta
    with routing.patched(given):
        if decompositions:
            gm = _decomposed(gm, example_inputs, decompositions)
        compiled = inner(gm, list(example_inputs))
    if not callable(compiled):  # pyright: ignore[reportUnnecessaryComparison]
        raise BackendFailed(
            f"inner_compile {inner!r} returned {type(compiled).__name__}, and a callable is expected, "
            "fn(*inputs) -> tuple. To run the graph as it is, return gm."
        )
    if isinstance(compiled, Variants):
        meta.update(compiled.notes())
    return compiled


def _is_mapping(x: Any) -> bool:
    return isinstance(x, Mapping)


def _decomposed(gm: Any, inputs: Sequence[Any], table: Mapping[Any, Any]) -> Any:
    """The graph traced again, with functions in place of some operators."""
    from mortice.fx import make_fx

    mode = "symbolic" if any(_is_symbolic(x) for x in inputs) else "fake"
    traced = make_fx(gm, table, mode)
    if not any(node.target in table for node in gm.graph.nodes if node.op == "call_function"):
        return gm
    return traced(*inputs)


def compile_fx_inner(gm: Any, example_inputs: Sequence[Any]) -> Compiled:
    """Compiles with the configuration in force, which also later variants are compiled with."""
    return Variants(gm, example_inputs)


class Snapshot:
    """The configuration as it was when the graph was given, entered whenever it is compiled."""

    def __init__(self) -> None:
        self.own = options.own_config()
        owners: list[ConfigModule] = [self.own, *devices.configs()]
        self.values = [(owner, owner.get_config_copy()) for owner in owners]

    def key(self) -> dict[str, Any]:
        """Everything that may change the code, for the cache's key."""
        return {
            f"{owner.__name__}.{name}": _identity(value)
            for owner, values in self.values
            for name, value in values.items()
        }

    def entered(self) -> ExitStack:
        """A context manager."""
        stack = ExitStack()
        for owner, values in self.values:
            stack.enter_context(owner.patch(values))
        return stack


def _identity(value: Any) -> Any:
    """What stands for an option's value in a key: a pass's own name for its version."""
    uuid = getattr(value, "uuid", None)
    return value if uuid is None else uuid() or value


class Variants:
    """A compiled graph: one program per layout of its inputs, the one used last first.

    Kernels do not depend on sizes, so another size costs a new plan, and mostly no new code.
    """

    #: How many programs are kept, and how many bytes between their kernels; the oldest goes.
    LIMIT, ARENAS = 64, 1 << 28

    def __init__(self, gm: Any, example_inputs: Sequence[Any]) -> None:
        bound = _binding(gm)
        inputs = tuple(example_inputs) if bound else _with_numbers(example_inputs)
        symbolic = any(_is_symbolic(x) for x in inputs)
        self._set(lambda: gm, gm.meta.get("identity"), bound, symbolic, kinds_of(inputs))
        if not symbolic:
            self._program(inputs)

    def _set(
        self,
        graph: Callable[[], Any],
        identity: bytes | None,
        bound: frozenset[int],
        symbolic: bool,
        kinds: str,
    ) -> None:
        self.graph = graph
        #: What stands for the graph, and all else but the inputs' layout, in keys of the cache.
        self.identity = identity
        self.bound = bound
        self.symbolic = symbolic
        self.kinds = kinds
        self.count = len(kinds)
        self.snapshot = Snapshot()
        self._programs: dict[Any, Any] = {}
        #: The first one, as long as nobody asks what it is for.
        self._found: Any = None
        #: Bytes of their arenas.
        self.held = 0
        self.templates = Templates(identity if self.snapshot.own.graph_cache else None)
        #: How often a template was tried for in vain.
        self.failed = 0
        self.lock = threading.RLock()
        self.last: Any = None

    @classmethod
    def restored(cls, data: Any, identity: bytes, graph: Any) -> Variants | None:
        """From what ``artifact`` gave; None where it holds no longer. ``graph`` makes the graph."""
        bound, symbolic, kinds, first = data
        made: Variants = object.__new__(cls)
        made._set(graph, identity, frozenset(bound), symbolic, kinds)
        if first is not None:
            program = _found(*first)
            if program is None:
                return None
            program.recipe = partial(_recipe_found, graph, first[0])
            program.graph = graph
            made.last = made._found = program
            made.held = program.arena
        graph.meta.update(made.notes())
        return made

    def artifact(self) -> Any:
        """What ``restored`` needs, as plain data; None where the result holds what has no name."""
        programs = list(self.programs.values())
        if self.symbolic:
            return sorted(self.bound), True, self.kinds, None
        if self.bound or len(programs) != 1 or getattr(programs[0], "code_key", None) is None:
            return None
        from .native.rows import plain

        try:
            code, form = programs[0].code_key, programs[0].form
            data = marshal.dumps(cache.plain(programs[0].plan), 2)
        except (cache.Uncacheable, ValueError):
            return None
        return [], False, self.kinds, (data, code, None if form is None else plain(form))

    def notes(self) -> dict[str, Any]:
        """What is said of it in its graph's ``meta``."""
        return {
            "output_code": partial(shown.output_code, self),
            "fusion": partial(shown.fusion, self),
            "artifact": self.artifact,
        }

    @property
    def programs(self) -> dict[Any, Any]:
        """The programs by what tells their inputs' layouts from others."""
        found = self._found
        if found is not None:
            self._programs[found.plan.specs] = found
            self._found = None
        return self._programs

    @property
    def plan(self) -> Any:
        """The plan of the program used last."""
        return self.last.plan

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        program = self.last
        try:
            fits = program.fits(inputs) and len(inputs) == self.count
        except (AttributeError, IndexError):  # no program yet, or inputs that ``_program`` refuses
            fits = False
        if not fits:
            program = self._program(inputs)
        return program.fast(*inputs)

    @property
    def fast(self) -> Compiled:
        """What runs calls with inputs of the layout last seen, which it takes on trust: native
        code where there is any. The callable itself where sizes or numbers need a look.
        """
        return self if self.last is None or self.bound or self.symbolic else self.last.fast

    def _program(self, inputs: tuple[Any, ...]) -> Any:
        if kinds_of(inputs) != self.kinds:
            raise misfit(self.graph(), inputs, self.kinds)
        specs = specs_of(inputs)
        key = self.key_of(inputs, specs)
        with self.lock:
            found = self.programs.pop(key, None)
            if found is None:
                found = build_program(self, inputs, specs, key)
                found.pinned = tuple((k, inputs[k]) for k in self.bound)
                found.graph = self.graph
                self._make_room(found)
            self.programs[key] = self.last = found
            return found

    def _make_room(self, one: Any) -> None:
        """Lets go of the oldest programs, of which each has an arena."""
        self.held += _arena(one)
        while self.programs and (len(self.programs) >= self.LIMIT or self.held > self.ARENAS):
            self.held -= _arena(self.programs.pop(next(iter(self.programs))))

    def key_of(self, inputs: tuple[Any, ...], specs: tuple[Spec, ...]) -> Any:
        """What tells a layout of inputs from others."""
        out: list[Any] = []
        for k, (x, spec) in enumerate(zip(inputs, specs)):
            if isinstance(spec, OtherSpec):
                out.append((type(x).__name__, repr(x)))
            elif isinstance(spec, NumberSpec) and k in self.bound:
                out.append((spec, x))
            else:
                out.append(spec)
        return tuple(out)


def _arena(program: Any) -> int:
    """Bytes of a program's arena; of those that have none (run operator by operator, on a device) 0."""
    return getattr(program, "arena", 0)


def _with_numbers(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Inputs with values in place of symbolic numbers, of which only the type is part of a program."""
    values = [x.hint if symbols.is_symbolic(x) else None for x in inputs]
    return tuple([x if value is None else value for x, value in zip(inputs, values)])


def _is_symbolic(x: Any) -> bool:
    if symbols.is_symbolic(x):
        return True
    return isinstance(x, mortice.Tensor) and any(
        symbols.is_symbolic(n) for n in (*x.shape, *x.stride(), x.storage_offset())
    )


def _binding(gm: Any) -> frozenset[int]:
    """Number placeholders whose value sizes depend on."""
    bound = symbols.bindings(gm.graph)
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    return frozenset(
        k for k, n in enumerate(placeholders) if any(code == n.name for _, code in bound.get(n, ()))
    )


# -- one program ---------------------------------------------------------------------------------


def build_program(
    variants: Variants, inputs: tuple[Any, ...], specs: tuple[Spec, ...], layout: Any
) -> Any:
    """The program for inputs of this layout: by a template, from the cache on disk, else compiled. A
    graph whose sizes depend on its data is run operator by operator.
    """
    same = aliases(inputs)
    short = None
    as_ever = not has_own_rules() and not is_logged()
    if variants.symbolic and as_ever:
        program = _by_template(variants, inputs, specs, layout, same)
        if program is not None:
            return program
    more = variants.symbolic or variants.programs  # what is first and fixed is in ``artifact``
    if more and variants.identity is not None and as_ever:
        short = _layout_key(variants, specs, same, inputs)
        found = _cached(short)
        if found is not None:
            values = {k: inputs[k] for k in variants.bound}
            found.recipe = partial(_recipe, variants.graph, specs, same, values)
            return found
    try:
        with variants.snapshot.entered():
            return _planned(variants, inputs, specs, same, short, layout)
    except DataDependent as reason:
        from .runtime.operators import OperatorByOperator

        logger = active_logger("fusion")
        if logger is not None:
            logger.info("the graph runs operator by operator: %s", reason)
        return OperatorByOperator(variants.graph())


def _planned(
    variants: Variants, inputs: tuple[Any, ...], specs: tuple[Spec, ...], same: tuple[Any, ...],
    short: bytes | None, layout: Any,
) -> Any:  # fmt: skip
    gm = variants.graph()
    device = _device_of(inputs)
    if device != "cpu":
        from .runtime.foreign import device_program

        return device_program(gm, inputs, specs, device)
    if options.own_config().validate:
        from .runtime.validate import validated

        return validated(gm, inputs, specs, numbers_of(gm, inputs))
    numbers = numbers_of(gm, inputs)
    snapshot = variants.snapshot
    kept = snapshot.own.graph_cache and not _has_own_lowerings(gm) and not is_logged()
    # What is first and fixed is kept by whoever gave the graph an identity: see ``artifact``.
    fixed = not (variants.symbolic or variants.bound or variants.programs)
    known = short is not None or (fixed and variants.identity is not None)
    key = short if known or not kept else cache.key_of(gm, specs, same, snapshot.key(), numbers)
    found = None if known else _cached(key)
    program, code = (found, b"") if found else _compiled(gm, specs, same, numbers, kept, key)
    program.recipe = Recipe(gm, specs, same, numbers, passed=found is None)
    if code and variants.symbolic and variants.programs:
        from .sizing import Planned

        _add_template(variants, inputs, Planned(specs, layout, same, program.plan, code))
    return program


def _by_template(
    variants: Variants, inputs: tuple[Any, ...], specs: tuple[Spec, ...], layout: Any,
    same: tuple[Any, ...],
) -> Any:  # fmt: skip
    """The program that a template gives for inputs of this layout, if there is one, and all that it
    calls is there.
    """
    found = variants.templates.find(specs, layout, same)
    if found is None:
        return None
    from .runtime.code import NoCode, load_code, program_of

    one, plan = found
    try:
        program = program_of(plan, load_code(one.code, None), one.constants)
    except NoCode:
        return None
    values = {k: inputs[k] for k in variants.bound}
    program.recipe = partial(_recipe, variants.graph, specs, same, values)
    return program


def _add_template(variants: Variants, inputs: tuple[Any, ...], planned: Planned) -> None:
    """Makes a template of what was planned for one layout, if that can be done."""
    own = variants.snapshot.own
    if variants.failed >= ATTEMPTS or variants.templates.is_full:
        return
    if is_logged() or has_own_rules() or any(getattr(own, k) is not None for k in _PASSES):
        return
    from .compile import settings
    from .sizing import sized, template

    gm = variants.graph()
    found = sized(gm, inputs, planned.specs)
    made: Any = "its sizes are numbers"
    if found is not None:
        key = variants.key_of(inputs, found.specs)
        made = template(gm, found, key, settings(planned.same, found.numbers), planned)
    if not isinstance(made, str):
        variants.templates.add(made)
        return
    variants.failed += 1
    logger = active_logger("fusion")
    if logger is not None:
        logger.info("each size is planned by itself: %s", made)


#: How often a template is tried for in vain.
ATTEMPTS = 8
#: Options that have a say in what is made, by functions that may want plain integers.
_PASSES = (
    "post_grad_custom_pre_pass", "post_grad_custom_post_pass", "pre_fusion_custom_pass",
    "post_fusion_custom_pass",
)  # fmt: skip


def _layout_key(
    variants: Variants, specs: tuple[Spec, ...], same: tuple[Any, ...], inputs: tuple[Any, ...]
) -> bytes | None:
    """The key of a program for inputs of this layout, where the graph need not be looked at."""
    values = [(k, inputs[k]) for k in sorted(variants.bound)]
    try:
        text = marshal.dumps((cache.plain(specs), same, values), 2)
    except (cache.Uncacheable, ValueError):
        return None
    assert variants.identity is not None
    return objects.digest(b"layout", variants.identity, text)


def _apart(specs: Sequence[Any]) -> tuple[int, ...]:
    """Of inputs that share no memory, for each its own number."""
    return tuple(range(len(specs)))


def _recipe(
    graph: Callable[[], Any], specs: tuple[Spec, ...], same: tuple[Any, ...],
    numbers: Mapping[int, Any] = {},
) -> Recipe:  # fmt: skip
    """The recipe of a program that was found on disk without its graph."""
    stand_ins = tuple(shown.stand_in(s, numbers.get(k)) for k, s in enumerate(specs))
    gm = graph()
    return Recipe(gm, specs, same, numbers_of(gm, stand_ins), passed=False)


def _recipe_found(graph: Callable[[], Any], data: bytes) -> Recipe:
    """The recipe of what ``artifact`` kept."""
    specs = _plan_in(data).specs
    return _recipe(graph, specs, _apart(specs))


def has_own_rules() -> bool:
    """True if users' functions lower operators, whichever these are."""
    user = sys.modules.get("mortice_inductor.lowering.user")
    return user is not None and bool(user.USER or user.FALLBACKS)


def is_logged() -> bool:
    """True if somebody wants to read decisions: then they are made anew."""
    logger = active_logger("fusion")
    return logger is not None and logger.isEnabledFor(10)


def _has_own_lowerings(gm: Any) -> bool:
    """True if users' functions lower, or run, some of the graph's operators."""
    user = sys.modules.get("mortice_inductor.lowering.user")
    rules = () if user is None else (*user.USER, *user.FALLBACKS)
    own = {f"aten.{x}" for x in rules} | set(rules) | replaced_operators("cpu")
    return bool(own) and any(str(node.target) in own for node in gm.graph.nodes)


def _cached(key: bytes | None) -> Any:
    found = None if key is None else cache.read(key)
    return None if found is None else _loaded(*found)


def _found(data: bytes, code: bytes, form: tuple[Any, ...] | None) -> Any:
    """The program that ``artifact`` kept; None where its code is gone."""
    from .native.rows import restored
    from .runtime.code import NoCode, load_code, program_found

    if form is None:
        return _loaded(_plan_in(data), code)
    try:
        program = program_found(partial(_plan_in, data), restored(*form), load_code(code, None))
    except NoCode:
        return None
    program.code_key = code
    return program


def _plan_in(data: bytes) -> Plan:
    return cache.restored(marshal.loads(data))  # noqa: S302  checked by the hash of what it is part of


def _loaded(plan: Plan, code: bytes) -> Any:
    """The program of a plan whose code is kept; None where that is gone."""
    from .runtime.code import NoCode, load_code, program_of

    try:
        program = program_of(plan, load_code(code, None), ())
    except NoCode:
        return None
    program.code_key = code
    return program


def _compiled(
    gm: Any, specs: tuple[Spec, ...], same: tuple[Any, ...], numbers: Any, kept: bool,
    key: bytes | None,
) -> tuple[Any, bytes]:  # fmt: skip
    """(a program made anew, the key of its code); ``kept``: it may be kept on disk, and is where
    there is a key.
    """
    from .compile import compile_graph
    from .runtime.code import program_of

    made = compile_graph(gm, specs, same, numbers)
    program = program_of(made.plan, made.library, made.constants)
    if kept and not made.constants:
        program.code_key = made.code
        if key is not None:
            cache.write(key, made.plan, made.code)
    return program, made.code


def _device_of(inputs: Sequence[Any]) -> str:
    """The one device type of all tensors; CompileError for several."""
    found = {
        x.device.type for x in inputs if isinstance(x, mortice.Tensor) and (x.dim() or not x.is_cpu)
    }
    if not found:
        return "cpu"
    if len(found) > 1:
        raise CompileError(
            f"the graph's inputs are on several devices ({', '.join(sorted(found))}); inductor "
            "compiles graphs of one device. Move the inputs, or split the function."
        )
    return found.pop()


__all__ = ["TensorSpec", "Variants", "compile_fx", "compile_fx_inner"]
