"""What operators do on fake tensors, taken from their rows: which rule, and on which device.

The first that there is: a fake that the operator's author registered, a rule for results that
depend on values, a user's composite kernel, the row's view, in-place or ``out=`` form, its shape
rule, its decomposition or body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mortice._base.errors import FakeTensorError, NoKernel
from mortice._capture import fake_constants, fake_rules
from mortice._capture.fake_array import FakeArray, is_real, mode_of
from mortice._dispatch import keys as K
from mortice._dispatch.backends import _mixture  # pyright: ignore[reportPrivateUsage]
from mortice._dispatch.operator import Kernel, Operator, get, is_composite, mark_composite
from mortice._dispatch.state import THREAD
from mortice._tensor import rows
from mortice._types.device import Device, current_default

if TYPE_CHECKING:
    from mortice._capture.fake import FakeTensorMode


def in_mode(op: Operator, kernel: Kernel) -> Kernel:
    """``kernel``, run inside the mode of its tensors, so that what it makes is fake as well."""
    positions = op.schema.tensor_positions

    def inside(*args: Any) -> Any:
        active = THREAD.fake_modes
        if active and (mode := active[-1]) is not None:
            for i in positions:
                found = mode_of(args[i])
                if found is not None:
                    mode = found
                    break
            if mode is active[-1]:
                return kernel(*args)
        else:
            mode = next(m for m in (mode_of(args[i]) for i in positions) if m is not None)
        with mode:
            return kernel(*args)

    return mark_composite(inside) if is_composite(kernel) else inside


def kernel(op: Operator, keys: int) -> Kernel:
    """The kernel of an operator for fake tensors; ``keys`` are the devices'."""
    if len(list(K.devices_in(keys))) > 1 and "cross_device" not in op.row.tags:
        return _yielding(op)
    run = _select(op)
    positions = op.schema.tensor_positions
    may_be_known = fake_constants.applies(op)

    def on_fake(*args: Any) -> Any:
        mode = THREAD.fake_modes[-1]
        for i in positions:
            value = args[i]
            if value is not None and _has_foreign(value, mode):
                args = _converted(op, mode, args)
                break
        if may_be_known and getattr(getattr(args[0], "_a", None), "constant", None) is not None:
            return fake_constants.run(op, run, args)
        return run(*args)

    return mark_composite(on_fake) if is_composite(run) else on_fake


def _has_foreign(value: Any, mode: FakeTensorMode) -> bool:
    """Whether an argument holds a tensor that is not a fake of ``mode``."""
    keys = getattr(value, "_k", None)
    if keys is not None:
        return not keys & K.FAKE or value._a.mode is not mode
    if isinstance(value, (list, tuple)):
        return any(_has_foreign(x, mode) for x in value)  # pyright: ignore[reportUnknownVariableType]
    return False


def _converted(op: Operator, mode: FakeTensorMode, args: Any) -> tuple[Any, ...]:
    """The arguments with real tensors made fake, where the mode allows that."""

    def convert(value: Any, position: int) -> Any:
        if isinstance(value, (list, tuple)):
            return [convert(x, position) for x in value]  # pyright: ignore[reportUnknownVariableType]
        if not hasattr(value, "_k"):
            return value
        if is_real(value):
            if mode.allow_non_fake_inputs:
                return mode.from_tensor(value)
            name = op.schema.arguments[position].name
            raise FakeTensorError(
                f"{op.qualified}: argument {name!r} (position {position + 1}) is a real tensor of "
                f"shape {tuple(value.shape)}, and fake tensors are computed with here. Convert it "
                "with mode.from_tensor(tensor), or make the mode with "
                "FakeTensorMode(allow_non_fake_inputs=True)."
            )
        if value._a.mode is not mode:
            raise FakeTensorError(
                f"{op.qualified}: fake tensors of two FakeTensorModes meet. Make all with one."
            )
        return value

    return tuple(convert(x, i) for i, x in enumerate(args))


def _yielding(op: Operator) -> Kernel:
    """Tensors of several device types: those on the CPU without dimensions go to the others'."""

    def on_one_device(*args: Any) -> Any:
        mode = THREAD.fake_modes[-1]
        where = _device_of(op, args)

        def moved(value: Any, position: int) -> Any:
            if isinstance(value, (list, tuple)):
                return [moved(x, position) for x in value]  # pyright: ignore[reportUnknownVariableType]
            if not hasattr(value, "_k") or value.device.type == where.type:
                return value
            if value.ndim or value.device.type != "cpu":
                raise _mixture(op, position, value.device.type, where.type)
            return mode.empty((), value._t, where)

        return op(*[moved(x, i) for i, x in enumerate(args)])

    return on_one_device


def _device_of(op: Operator, args: Any) -> Device:
    """Where the result is: as asked, else where the tensors are, those with dimensions first."""
    position = op.schema.by_name.get("device")
    if position is not None and args[position] is not None:
        return Device(args[position])
    found: Device | None = None
    for i in op.schema.tensor_positions:
        for x in args[i] if isinstance(args[i], (list, tuple)) else (args[i],):
            if not hasattr(x, "_k"):
                continue  # None, or a number that stands for a tensor
            if x.device.type != "cpu" or x.ndim:
                return x.device
            found = x.device
    return found or current_default()


# -- selection -------------------------------------------------------------------------------------


def _select(op: Operator) -> Kernel:
    meta = op.registered("Meta")
    if meta is not None:
        return _by_user(meta)
    rule = fake_rules.RULES.get(op.name)
    if rule is not None:
        return rule
    for key in ("CompositeExplicitAutogradNonFunctional", "CompositeExplicitAutograd"):
        found = op.registered(key)
        if found is not None:
            return _user_composite(op, found)
    make = _BY_KIND.get(op.row.kind)
    if make is not None:
        return make(op)
    if op.row.shape:
        return _by_shape(op)
    found = op.decomposition() or op.registered("CompositeImplicitAutograd") or op.body()
    if found is not None:
        return mark_composite(found)
    if not op.schema.returns:
        return lambda *args: None  # writes to its arguments: sizes stay
    raise _missing(op)


def _missing(op: Operator) -> Exception:
    if op.missing_meta is not None:
        return op.missing_meta()
    return NoKernel(
        f"{op.qualified} has no fake: nothing says what it does to sizes and dtypes. Add one with "
        f"mortice.library.register_fake({op.qualified!r}, function)."
    )


def _user_composite(op: Operator, found: Kernel) -> Kernel:
    if op.missing_meta is None:
        return mark_composite(found)
    if not op.schema.returns:
        return lambda *args: None
    raise op.missing_meta()  # a kernel of unknown needs is not run on what has no data


def _by_user(meta: Kernel) -> Kernel:
    from mortice._library.fakes import fake_context

    def on_fake(*args: Any) -> Any:
        with fake_context(THREAD.fake_modes[-1].new_size):
            return meta(*args)

    return mark_composite(on_fake)


def _by_shape(op: Operator) -> Kernel:
    """The shape rule's (sizes, dtype[, strides]), or a list of those, as fake tensors.

    A result that the schema says is an argument written to is that argument.
    """
    rule = rows.spec_rule(op)
    written = {op.schema.arguments[i].type.alias: i for i in op.schema.mutated}
    same = [written.get(r.type.alias) if r.type.alias else None for r in op.schema.returns]

    def on_fake(*args: Any) -> Any:
        found = rule(*args)
        mode = THREAD.fake_modes[-1]
        if type(found) is list:
            where = _device_of(op, args)
            return tuple(_made(mode, one, where) for one in found)
        if same and same[0] is not None:
            return args[same[0]]
        if type(found) is tuple:
            return _made(mode, found, _device_of(op, args))
        return found  # a number: sym_size and such

    return on_fake


def _made(mode: FakeTensorMode, found: Any, device: Device) -> Any:
    if type(found) is not tuple:
        return found
    return mode.wrap(FakeArray(mode, found[0], found[1], device, *found[2:]))


def _view(op: Operator) -> Kernel:
    return rows.view_kernel(op, "meta")


def _inplace(op: Operator) -> Kernel:
    functional = get(op.row.functional)
    if rows.is_differentiable_composite(functional):
        return rows.inplace_kernel(op, "meta")

    def inplace(self: Any, *args: Any) -> Any:
        rows.write_back(op, self, functional(self, *args))
        return self

    return mark_composite(inplace)


def _out(op: Operator) -> Kernel:
    return rows.out_kernel(op, "meta")


_BY_KIND: dict[str, Any] = {"view": _view, "inplace": _inplace, "out": _out}
