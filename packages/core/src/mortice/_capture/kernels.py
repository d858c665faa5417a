"""The Record key: what operators do while a call is compiled.

``kernel`` is asked once per operator and key set. Its usual answer, ``_recording``, is a function
generated for the operator's kinds of arguments: it compares the call with the step that followed
last time, and if it is the same, makes the result from the step (0.5 us). Everything else goes to
the recorder.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any
from weakref import ref

from mortice._capture import effects
from mortice._capture.draws import WITHOUT_ARGUMENT
from mortice._capture.native_seam import NATIVE_RECORDER, NativeRecorder
from mortice._capture.reading import read_value
from mortice._capture.refusals import Accepted
from mortice._capture.stubs import operator_stubs
from mortice._capture.tree import Leaf
from mortice._dispatch import backends, operator
from mortice._dispatch import keys as K
from mortice._dispatch.bind import default_of
from mortice._dispatch.operator import Kernel, Operator, clear_tables, get, mark_composite
from mortice._dispatch.state import GLOBAL, THREAD, unrecorded
from mortice._tensor import rows
from mortice._tensor.make import storage_of
from mortice._tensor.tensor import Tensor
from mortice._types.dtypes import default as default_dtype

#: Keys under which operators are not recorded: they run, and what was recorded runs before them.
_NOT_RECORDED = K.MODE | K.PYTHON | K.META | K.FAKE

_new = object.__new__


class Call:
    """An operator at one key set, as steps know it.

    Attributes:
        beneath: the key set with which it runs instead of being recorded.
        grad: whether it records gradient history.
        kinds: one letter per argument: T tensor, N tensor, number or None, O tensor or None, L list of
            tensors, F number that is an input of the graph, G generator, S part of the recording,
            Z tensor or a number that is part of the recording, but see ``refusals.POWERS``.
        form: ``fresh`` (makes tensors), ``view``, ``inplace``, ``mutating`` (writes to some arguments
            and makes tensors).
        generator: position of its generator argument; draws: whether it may draw without one.
        table: the operator's dispatch table. stubs: what may stand for the operator where it is called
            without a key set: the table, and the function behind one of Python's operators.
        defaults: values of arguments that are left out. letters: ``kinds`` as bytes. kernel: what records
            it, where that needs nothing around it; for native code.
        sizes: positions of integer arguments that may follow from sizes.
        raises: whether the segment ends with it, because it may refuse values.
    """

    __slots__ = (
        "beneath", "defaults", "draws", "form", "generator", "grad", "kernel", "keys", "kinds", "letters", "op",
        "raises", "sizes", "stubs", "table",
    )  # fmt: skip

    def __init__(self, op: Operator, keys: int) -> None:
        self.op = op
        self.keys = keys
        self.beneath = keys & ~K.RECORD
        self.grad = bool(keys & K.AUTOGRAD)
        self.kinds = _kinds(op)
        self.form = _form(op)
        self.raises = op.name in effects.MAY_RAISE
        arguments = enumerate(op.schema.arguments)
        bases = ("SymInt", "Scalar") if op.name in effects.RANGES else ("SymInt",)
        self.sizes = frozenset(i for i, a in arguments if a.type.base in bases)
        at = self.kinds.find("G")
        self.generator = None if at < 0 else at
        self.draws = op.name in WITHOUT_ARGUMENT
        self.table = op.table
        self.letters = self.kinds.encode()
        self.defaults = tuple([default_of(a) for a in op.schema.arguments])
        self.stubs: tuple[Any, ...] = (op.table, *operator_stubs(op.name))
        self.kernel: Kernel | None = None

    def __repr__(self) -> str:
        return f"<Call {self.op.name} {K.describe(self.keys)}>"


def _kinds(op: Operator) -> str:
    static = op.name in effects.STATIC_NUMBERS
    letters: list[str] = []
    for a in op.schema.arguments:
        kind = a.type
        if kind.is_tensor:
            if kind.is_list:
                letters.append("L")
            else:
                letters.append("N" if op.row.numbers else "O" if kind.is_optional else "T")
        elif kind.base == "Scalar" and not kind.is_list and not static:
            letters.append("F")
        else:
            letters.append("G" if kind.base == "Generator" else "S")
    if static:
        letters = ["Z" if x == "N" else x for x in letters]  # a number among operands stays one
    return "".join(letters)


def _form(op: Operator) -> str:
    if op.row.kind == "view":
        return "view"
    mutated = op.schema.mutated
    if not mutated:
        return "fresh"
    returned = op.schema.returns
    if mutated == (0,) and len(returned) == 1 and returned[0].type.is_mutable:
        return "inplace"
    return "mutating"


# -- choosing ------------------------------------------------------------------------------------


def kernel(op: Operator, keys: int) -> Kernel:
    """What an operator does where the Record key is set."""
    beneath = keys & ~K.RECORD
    devices = sum(1 for _ in K.devices_in(keys))
    if keys & (K.MODE | K.PYTHON) and not keys & (K.AUTOGRAD | K.FAKE | K.META):
        return _through_python(op, beneath)
    if keys & _NOT_RECORDED or devices > 1 or _is_replaced(op, keys):
        return _immediate(op, beneath)
    if op.row.kind == "out":
        return _into_out(op, beneath)
    if op.name in effects.VALUES:
        return _reading(op, beneath)
    if op.name in effects.IMMEDIATE:
        return _immediate(op, beneath)
    if _is_composite(op):
        return _composite(op, beneath)
    if not _inferable(op):
        return _immediate(op, beneath)
    return _recording(op, keys)


def _is_replaced(op: Operator, keys: int) -> bool:
    """Whether somebody's kernel stands for an operator of core's where no graph would have it, or where it
    is not in eager: graphs have other operators for those that write and for views, and are traced below
    autograd; composites may have kernels of their own.
    """
    if "::" in op.name:
        return False
    devices = list(K.devices_in(keys))
    above = (*(f"Autograd{K.device_key_name(d)}" for d in devices), *_ABOVE)
    if op.kernels and any(key in op.kernels for key in above):
        return True
    if not (op.schema.mutated or op.row.kind == "view"):
        return False
    functional = get(op.row.functional) if op.row.functional else op
    return any(backends.replaced(one, d) for one in (op, functional) for d in devices)


_ABOVE = ("Autograd", "CompositeImplicitAutograd")


def _is_composite(op: Operator) -> bool:
    """Whether the operators that it is made of are recorded instead of itself."""
    if op.registered("CompositeImplicitAutograd") is not None:
        return not any(k in op.kernels for k in ("CPU", "CompositeExplicitAutograd"))
    if op.row.kind == "inplace" and not op.row.shape and not op.row.derivative:
        return True
    return op.row.kind == "composite" and not op.kernels


def _inferable(op: Operator) -> bool:
    """Whether sizes and dtypes of the results follow from those of the operands."""
    if op.row.shape or op.registered("Meta") is not None:
        return True
    return op.name == "copy_" or bool(op.schema.mutated and not op.schema.returns)


def _composite(op: Operator, beneath: int) -> Kernel:
    normal: list[Kernel] = []
    body = op.registered("CompositeImplicitAutograd") or op.body()
    if body is None:
        body = op.lookup(beneath)  # an in-place form of a composite operator
    elif op.schema.mutated and not beneath & K.AUTOGRAD and "uncounted" not in op.row.tags:
        body = backends.counting(op, body)

    def through_body(*args: Any) -> Any:
        if THREAD.recorder is None:
            if not normal:
                normal.append(op.lookup(beneath))
            return normal[0](*settled(args))
        return body(*args)

    return mark_composite(through_body)


def _through_python(op: Operator, beneath: int) -> Kernel:
    """Modes and subclasses see the operator as ever; what they call in turn is recorded.

    Not where gradients are recorded: their history would be made of what has no value yet.
    """

    def through(*args: Any) -> Any:
        return op.lookup(beneath)(*(settled(args) if THREAD.recorder is None else args))

    return mark_composite(through)


def settled(args: Any) -> Any:
    """The arguments, after everything recorded that they depend on has run."""
    for x in args:
        if hasattr(x, "_k"):
            GLOBAL.settle(x, "")
        elif isinstance(x, (list, tuple)):
            settled(x)
    return args


def _immediate(op: Operator, beneath: int) -> Kernel:
    """Run what was recorded, then the operator."""

    def run(*args: Any) -> Any:
        recorder = THREAD.recorder
        if recorder is None:
            return op.lookup(beneath)(*settled(args))
        return recorder.run_now(op, beneath, args)

    return mark_composite(run)


def _into_out(op: Operator, beneath: int) -> Kernel:
    """``out=`` is a copy of the result, where the tensor has the result's sizes."""
    functional = get(op.row.functional)
    n = len(functional.schema.arguments)
    immediate = _immediate(op, beneath)
    tags = frozenset(op.row.tags) | frozenset(functional.row.tags)
    if beneath & K.AUTOGRAD or tags & _PARTICULAR or len(op.schema.mutated) != 1:
        return immediate

    def into_out(*args: Any) -> Any:
        recorder = THREAD.recorder
        if recorder is None:
            return immediate(*args)
        result, out = functional(*args[:n]), args[n]
        rows.check_cast(op, result._t, out._t)
        if tuple(result._a.shape) == tuple(out._a.shape) and result.device == out.device:
            rows.check_overlap(op, out)
            get("copy_")(out, result, False)
        else:
            with unrecorded(f"{op.name} resizes what it writes to"):
                recorder.note_immediate(op)
                rows.fill_out(op, out, result)
        return out

    return mark_composite(into_out)


#: Tags of operators whose ``out=`` forms ask more of the tensor than that the result fits.
_PARTICULAR = frozenset(("distinct_out", "exact_out"))


def _reading(op: Operator, beneath: int) -> Kernel:
    """As ``_immediate``; the value given to Python is kept with the call's trace."""

    def read(*args: Any) -> Any:
        recorder = THREAD.recorder
        if recorder is None:
            return op.lookup(beneath)(*settled(args))
        value = read_value(recorder, op, beneath, args)
        return recorder.value_read(args[0], op.name, value)

    return mark_composite(read)


def bind(recorder: Any, leaf: Leaf, t: Any) -> bool:
    """Let a tensor be a leaf that the step expects; False if it is not such a one."""
    if type(t._a) is not leaf.handle_type:
        return False  # one that is recorded gets no storage by that
    s = t._s
    if s is None:
        s = storage_of(t)
    a = t._a  # with the strides that it has beside its storage
    if (
        t._k != leaf.key
        or t._t is not leaf.dtype
        or a.shape != leaf.shape
        or a.strides != leaf.strides
        or len(recorder.leaves) != leaf.number
    ):
        return False
    cell = s.owner or s
    if cell.exported:
        return False
    first = leaf.first
    if cell.pending is not None:
        if first is None or cell is not recorder.storages[first.number]:
            return False
    elif first is not None:
        return False
    recorder.leaves.append(leaf)
    leaf.tensor = t
    recorder.storages.append(cell)
    cell.pending = recorder
    return True


# -- generated -----------------------------------------------------------------------------------

#: Whether an argument is the tensor that is wanted; AttributeError if it is none.
_IS_TENSOR = (
    "(a{i}._a is w{i} or (w{i}.__class__ is Leaf and (w{i}.tensor is a{i}"
    " or (w{i}.tensor is None and bind(recorder, w{i}, a{i})))))"
)
_NUMBER_OR_TENSOR = (
    "((a{i}.__class__ is w{i} and not numbers.append(a{i})) if w{i}.__class__ is type"
    f" else a{{i}} is None if w{{i}} is None else {_IS_TENSOR})"
)
_IS_TAKEN = "(w{i}.__class__ is Accepted and w{i}.takes(a{i}) and not numbers.append(a{i}))"
#: Whether an argument of a kind is what the step wants; leaves are bound, and numbers noted, by it.
_CHECKS = {
    "T": _IS_TENSOR,
    "N": _NUMBER_OR_TENSOR,
    "O": _NUMBER_OR_TENSOR,
    "Z": f'({_IS_TENSOR} if hasattr(a{{i}}, "_k") else same(a{{i}}, w{{i}}) or {_IS_TAKEN})',
    "F": (
        "(a{i} is w{i} or (a{i}.__class__ is w{i} and not numbers.append(a{i}))"
        f" or {_IS_TAKEN})"
    ),
    "S": "(a{i} is w{i} or same(a{i}, w{i}))",
}

#: ``busy`` keeps other threads away (``Recorder.flush``): a lock would take 50 ns.
_SOURCE = """
def recording({names}):
    recorder = THREAD.recorder
    if recorder is None:
        return outside({args})
    quick = True
    recorder.busy = True
    try:
        step = recorder.at.ahead
        if step.token is CALL:
            quick = step.simple and not recorder.asked
            if quick:
                {wants} = step.wants
{numbers}                if {checks}:
                    r = new(Tensor)
                    r._a = step.handle
                    r._k = step.key
                    r._t = step.result
                    r._g = step.edge
                    r._s = None
                    r._b = None
                    recorder.made.append(ref(r))
                    recorder.at = step
                    return r
    except AttributeError:  # a number where a tensor is wanted
        pass
    finally:
        recorder.busy = False
    return recorder.record(CALL, {args}) if quick else advancing({names})


def advancing({names}):
    recorder = THREAD.recorder
    with recorder.lock:
        step = recorder.at.ahead
        if step.token is CALL:
            {wants} = step.wants
            try:
{numbers}                matches = {checks}
            except AttributeError:
                matches = False
            if matches:
                return recorder.advance(step, {args})
        return recorder.record(CALL, {args})
"""
_CODE: dict[str, Any] = {}


def same(a: Any, b: Any) -> bool:
    """Whether two plain values are the same to an operator: 1 is not True, and 0.0 is not -0.0."""
    if type(a) is not type(b):
        return False
    if type(a) is tuple:
        return len(a) == len(b) and all(x is y or same(x, y) for x, y in zip(a, b))
    return a == b and (type(a) is not float or repr(a) == repr(b))


#: (operator, key set, default dtype, its registered kernels) -> Call, which outlives the dispatch
#: tables. The default dtype is that of what factories make, which is known once it was recorded.
_CALLS: dict[Any, Call] = {}


def call_of(op: Operator, keys: int) -> Call:
    known = (op, keys, default_dtype.dtype, tuple((k, *map(id, v)) for k, v in op.kernels.items()))
    found = _CALLS.get(known)
    if found is None:
        found = _CALLS.setdefault(known, Call(op, keys))
    return found


def _recording(op: Operator, keys: int) -> Kernel:
    call = call_of(op, keys)
    direct = set(call.kinds) <= set(_CHECKS) and not call.draws
    recorded = _awaited(call) if direct else _general(call)
    if direct and NATIVE_RECORDER:
        recorded = NATIVE_RECORDER[0].recording(call, call.kinds, recorded)
    if keys & K.VIEW and GLOBAL.views_may_be_stale:
        call.kernel = None
        return _refreshing(op, call, recorded)
    call.kernel = recorded
    return recorded


def install_recorder(find: Callable[[], NativeRecorder | None] | None) -> None:
    """Let a backend's native recorder serve every compiled function, if it has one."""
    made = find() if find is not None and not NATIVE_RECORDER else None
    if made is not None:
        NATIVE_RECORDER.append(made)
        made.take_over()
        GLOBAL.quick = made.quick
        clear_tables()


def uninstall_recorder() -> None:
    """Record in Python again, as before ``install_recorder``."""
    if NATIVE_RECORDER:
        NATIVE_RECORDER.pop().give_back()
        GLOBAL.quick = None
        clear_tables()


def _outside(call: Call) -> Callable[..., Any]:
    op, beneath = call.op, call.beneath

    def outside(args: Any) -> Any:
        return op.lookup(beneath)(*settled(args))

    return outside


def _awaited(call: Call) -> Kernel:
    """As ``_direct``, which is made when a recorded step is first expected: compiling it takes 0.3 ms,
    and an operator's first calls have nothing to be compared with.
    """
    made: Kernel | None = None

    def recording(*args: Any) -> Any:
        nonlocal made
        if made is None:
            recorder = THREAD.recorder
            if recorder is not None and recorder.at.ahead.token is not call:
                return recorder.record(call, args)
            made = _direct(call)
            for keys, kernel in list(call.op.table.items()):
                if kernel is recording:
                    call.op.table[keys] = made
            if call.kernel is recording:
                call.kernel = made
        return made(*args)

    return recording


def _direct(call: Call) -> Kernel:
    kinds = call.kinds
    code = _CODE.get(kinds)
    if code is None:
        code = _CODE[kinds] = compile(_source(kinds), f"<mortice record {kinds}>", "exec")
    scope: dict[str, Any] = {
        "Accepted": Accepted, "CALL": call, "Leaf": Leaf, "THREAD": THREAD, "Tensor": Tensor, "bind": bind, "new": _new,
        "outside": _outside(call), "ref": ref, "same": same,
    }  # fmt: skip
    exec(code, scope)  # noqa: S102  made of positions and the letters of kinds only
    return scope["recording"]


def _source(kinds: str) -> str:
    names = ", ".join(f"a{i}" for i in range(len(kinds)))
    checks = " and ".join(_CHECKS[k].format(i=i) for i, k in enumerate(kinds))
    wants = ", ".join(f"w{i}" for i in range(len(kinds)))
    return _SOURCE.format(
        names=names,
        args=f"({names},)" if kinds else "()",
        checks=checks or "True",
        numbers="                numbers = recorder.numbers\n" if set(kinds) & set("NOFZ") else "",
        wants=f"({wants},)" if kinds else "_",
    )


def _general(call: Call) -> Kernel:
    """As ``_direct``, for operators with lists of tensors or generators, by a loop."""
    outside = _outside(call)
    kinds = call.kinds
    predictable = not call.draws

    def recording(*args: Any) -> Any:
        recorder = THREAD.recorder
        if recorder is None:
            return outside(args)
        with recorder.lock:
            step = recorder.at.ahead
            if (
                predictable
                and step.token is call
                and all(map(_matches, repeat(recorder), kinds, step.wants, args))
            ):
                return recorder.advance(step, args)
        return recorder.record(call, args)

    return recording


def _matches(recorder: Any, kind: str, want: Any, x: Any) -> bool:
    """Whether an argument is what a step wants; leaves are bound, and numbers noted, as they come."""
    if kind == "G":
        return True
    if hasattr(x, "_k"):
        if x._a is want:
            return True
        if want.__class__ is not Leaf:
            return False
        return want.tensor is x or (want.tensor is None and bind(recorder, want, x))
    if kind == "L" and x is not None:
        return len(x) == len(want) and all(map(_matches, repeat(recorder), "O" * len(x), want, x))
    if want.__class__ is type or want.__class__ is Accepted:
        if not (x.__class__ is want or (want.__class__ is Accepted and want.takes(x))):
            return False
        recorder.numbers.append(x)
        return True
    return x is want or same(x, want)


def _refreshing(op: Operator, call: Call, recorded: Kernel) -> Kernel:
    """Views whose base got a new history get theirs first; they may require grad now."""
    from mortice._autograd.views import refresh

    def refreshed(*args: Any) -> Any:
        for x in args:
            for t in x if isinstance(x, (list, tuple)) else (x,):
                if getattr(t, "_k", 0) & K.VIEW:
                    refresh(t)
        # Only what a history changes: what stands above recording (autocast) has had its turn.
        changed = (op.keys_of(args) ^ call.keys) & (K.AUTOGRAD | K.VIEW)
        if not changed:
            return recorded(*args)
        return op.lookup(call.keys ^ changed)(*args)

    return refreshed


operator.recording_kernel = kernel
