"""``custom_op``: an operator from a Python function, checked where PyTorch crashes or is silent."""

from __future__ import annotations

import contextlib
import logging
import warnings
import weakref
from collections.abc import Callable, Generator, Sequence
from typing import Any

from mortice._base.errors import (
    ArgumentError,
    InvalidState,
    InvalidValue,
    NoKernel,
    PluginError,
    RegistrationError,
    SchemaMismatch,
)
from mortice._dispatch import keys as K
from mortice._dispatch.backends import locate
from mortice._dispatch.bind import Misfit, bind
from mortice._dispatch.modes import check_result
from mortice._dispatch.operator import Operator, get
from mortice._dispatch.schema import parse
from mortice._library import fakes, gradient, tagged
from mortice._library.infer import infer_schema, literal_choices
from mortice._library.registration import Library, registry_name, split_qualname
from mortice._library.tags import Tag

_DEFINITIONS: weakref.WeakValueDictionary[str, CustomOpDef] = weakref.WeakValueDictionary()
_KEPT: dict[str, CustomOpDef] = {}
_log = logging.getLogger(__name__)


def custom_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Sequence[str],
    device_types: Any = None,
    schema: str | None = None,
    tags: Any = (),
) -> Any:
    """Make ``fn`` the operator ``name`` ("ns::name"); a decorator if ``fn`` is left away.

    ``mutates_args`` names the tensor arguments written to, or is "unknown". ``device_types`` limits
    ``fn`` to some devices. The schema is inferred from annotations if not given.
    """

    def make(function: Callable[..., Any]) -> CustomOpDef:
        split_qualname(name)
        given = (tags,) if isinstance(tags, Tag) else tuple(tags)
        if schema is None:
            text = infer_schema(function, mutates_args=mutates_args, tags=given)
            choices = literal_choices(function)
        else:
            text, choices = schema, {}
            _check_mutates(name, text, mutates_args)
        if Tag.out not in given:
            _refuse_keyword_tensors(name, text)
        definition = CustomOpDef(name, text, function, given, choices)
        _KEPT[name] = definition
        if device_types is None:
            definition._register_default(function)
        else:
            definition.register_kernel(device_types, function)
        return definition

    return make if fn is None else make(fn)


def _refuse_keyword_tensors(name: str, schema: str) -> None:
    keywords = [a.name for a in parse(f"op{schema}").arguments if a.kwarg_only and a.type.is_tensor]
    if keywords:
        raise NotImplementedError(
            f"custom_op {name} takes tensors as keywords ({', '.join(keywords)}): kwarg-only Tensor args "
            "are not supported. Make them positional."
        )


def _check_mutates(name: str, schema: str, mutates_args: Any) -> None:
    parsed = parse(f"op{schema}")
    mutated = {a.name for a in parsed.arguments if a.type.is_mutable}
    if mutates_args != "unknown" and set(mutates_args) != mutated:
        raise InvalidValue(
            f"Attempted to create a custom op with `mutates_args={mutates_args}` and "
            f"`schema={schema}. The schema suggests that the op mutates {sorted(mutated)} which is "
            "different from what was provided to us in `mutates_args`. Please make these consistent."
        )


class CustomOpDef:
    """A custom operator: call it, and register kernels, a fake and a gradient for it."""

    def __init__(
        self,
        name: str,
        schema: str,
        function: Callable[..., Any],
        tags: tuple[Tag, ...],
        choices: dict[str, tuple[str, ...]],
    ) -> None:
        namespace, short = split_qualname(name)
        previous = _KEPT.pop(name, None)
        if previous is not None:
            previous._library._destroy()
        self._qualname = name
        self._namespace = namespace
        self._name = short
        self._init_fn = function
        self._choices = choices
        self._tag = tagged.tag_of(tags)
        self._backward: Any = None
        self._disabled: set[str] = set()
        self._kernels: dict[str, Callable[..., Any]] = {}
        self._library = Library(namespace, "FRAGMENT")
        all_tags = (Tag.pt2_compliant_tag, *(t for t in tags if t is not Tag.pt2_compliant_tag))
        self._library.define(short + schema, tags=all_tags)
        self.operator: Operator = get(registry_name(parse(short + schema, namespace)))
        self.operator.missing_meta = self._missing_fake
        from importlib import import_module

        packet = getattr(
            getattr(import_module("mortice.ops"), namespace), self.operator.schema.name
        )
        self._opoverload = getattr(packet, self.operator.schema.overload or "default")
        if self._tag is not None:
            fakes.register_fake(self, tagged.fake(self.operator), lib=self._library)
        _DEFINITIONS[name] = self
        self.__class__ = import_module("mortice.ops").direct_class(CustomOpDef, self.operator)

    def _missing_fake(self) -> Exception:
        return RegistrationError(
            f"There was no fake impl registered for {self!r}. This is necessary for compiling, "
            f"exporting and tensors without data. Please use `{self._init_fn.__name__}.register_fake` "
            "to add one."
        )

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._opoverload(*args, **kwargs)

    def _general(self, args: Any, kwargs: Any) -> Any:
        return self._opoverload(*args, **kwargs)

    # -- kernels -------------------------------------------------------------------------------

    def _register_default(self, function: Callable[..., Any]) -> None:
        self._library.impl(self._name, self._checked(function, None), "CompositeExplicitAutograd")

    def register_kernel(self, device_types: Any, fn: Callable[..., Any] | None = None, /) -> Any:
        """Run ``fn`` on some devices (a type or several, or None for all)."""

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            if device_types is None:
                self._register_default(function)
                return function
            wanted = [device_types] if isinstance(device_types, str) else list(device_types)
            for device in wanted:
                kernel = self._checked(function, device)
                self._kernels[device] = function
                key = K.device_key_name(device)
                K.device_bit(device)
                self._library.impl(self._name, kernel, key, allow_override=True)
                self._select_by_device(kernel)
            return function

        return register if fn is None else register(fn)

    def _select_by_device(self, kernel: Any) -> None:
        """Without tensor arguments, the argument ``device`` chooses; there must be one."""
        schema = self.operator.schema
        if schema.tensor_positions:
            return
        if "device" not in schema.by_name:
            raise InvalidValue(
                f"{self._qualname}: Functions without tensor inputs are required to have a `device: "
                "mortice.device` argument"
            )

    def _checked(self, function: Callable[..., Any], device: str | None) -> Callable[..., Any]:
        """``function`` with the checks that keep operators honest about aliases and choices."""
        op = self.operator
        tensors = op.schema.tensor_positions
        choices = self._choices
        returns_alias = any(r.type.alias for r in op.schema.returns)
        if self._tag is not None:
            function = tagged.checked(op, self._tag, function)

        if not choices and device is None and not returns_alias:
            return _checking(op, function, tensors)

        def kernel(*args: Any, **kwargs: Any) -> Any:
            if choices:
                self._check_choices(args, kwargs)
            if device is not None and device in self._disabled:
                return self._init_fn(*args, **kwargs)
            result = function(*args, **kwargs)
            if not returns_alias and result is not None:
                _check_aliases(op, args, result, tensors)
            return result

        return kernel

    def _check_choices(self, args: Any, kwargs: Any) -> None:
        for i, argument in enumerate(self.operator.schema.arguments):
            allowed = self._choices.get(argument.name)
            if allowed is None:
                continue
            value = args[i] if i < len(args) else kwargs.get(argument.name)
            if value is not None and value not in allowed:
                from mortice._base.errors import nearest

                raise InvalidValue(
                    f"{self._qualname}: argument {argument.name!r} must be one of {list(allowed)}, not "
                    f"{value!r}.{nearest(str(value), allowed)}"
                )

    def _no_op(self, device_type: str, enabled: bool) -> str:
        """Why ``set_kernel_enabled`` changes nothing, if so."""
        if device_type not in self._kernels:
            return "no kernel was registered for this device type"
        if enabled is (device_type not in self._disabled):
            return f"the kernel is already {'enabled' if enabled else 'disabled'}"
        return ""

    @contextlib.contextmanager
    def set_kernel_enabled(
        self, device_type: str, enabled: bool = True
    ) -> Generator[None, None, None]:
        """Within, a device's kernel is used or the original function is."""
        before = device_type in self._disabled
        no_op = self._no_op(device_type, enabled)
        if no_op:
            _log.warning("%r.set_kernel_enabled(%r, %s): %s", self, device_type, enabled, no_op)
        (self._disabled.discard if enabled else self._disabled.add)(device_type)
        try:
            yield
        finally:
            (self._disabled.add if before else self._disabled.discard)(device_type)

    # -- rules ---------------------------------------------------------------------------------

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Say what the operator does to sizes and dtypes."""
        if self._tag is not None:
            warnings.warn(
                f"{self!r} is tagged with mortice.{self._tag}: its fake, which returns what is written "
                "to, follows from that. The one that is registered now replaces it.",
                UserWarning,
                stacklevel=2,
            )
        return fakes.register_fake(self, fn, lib=self._library)

    def register_autograd(
        self, backward: Callable[..., Any] | None, /, *, setup_context: Any = None
    ) -> None:
        """Give the operator a gradient; ``backward=None`` declares that it has none."""
        gradient.register_autograd(self, backward, setup_context=setup_context, lib=self._library)
        self._backward = backward

    def register_vmap(self, func: Callable[..., Any] | None = None, /) -> Any:
        """Say what the operator does to a batch, as ``mortice.library.register_vmap``."""
        from mortice._library.vmap import register_vmap

        return register_vmap(self, func, lib=self._library)

    def register_autocast(self, device_type: str, cast_inputs: Any) -> Any:
        """Within autocast on ``device_type``, cast floating inputs to ``cast_inputs``."""
        register_autocast(self, device_type, cast_inputs, lib=self._library)

    def register_mortice_dispatch(self, dispatch_class: Any, fn: Any = None, /) -> Any:
        """Say what a mode or subclass does with this operator."""
        return register_mortice_dispatch(self, dispatch_class, fn, lib=self._library)


def _checking(op: Operator, function: Callable[..., Any], positions: Sequence[int]) -> Any:
    """``function`` with its result checked; a fresh tensor is seen to be one at a glance."""
    returns = op.schema.returns
    single = len(returns) == 1 and not returns[0].type.is_list

    def kernel(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if single and getattr(result, "_s", result) is None:  # nobody shares its memory
            for value in args:
                if value is result:
                    break
            else:
                return result
        if result is not None:
            _check_aliases(op, args, result, positions)
        return check_result(op, result)

    kernel.checks_result = True  # type: ignore[attr-defined]
    return kernel


def _check_aliases(op: Operator, args: Any, result: Any, positions: Sequence[int]) -> None:
    """An output may not share memory with an input or with another output."""
    outputs = [
        x
        for r in (result if isinstance(result, (tuple, list)) else (result,))
        for x in (r if isinstance(r, (tuple, list)) else (r,))
        if hasattr(x, "_k")
    ]
    inputs = [
        x
        for i in positions
        if i < len(args)
        for x in (args[i] if isinstance(args[i], (tuple, list)) else (args[i],))
        if hasattr(x, "_k")
    ]
    for i, out in enumerate(outputs):
        for other in (*inputs, *outputs[:i]):
            if out is other or (out._s is not None and out._s is other._s and out.numel()):
                raise SchemaMismatch(
                    f"{op.qualified} (with implementation in {op.schema.namespace}): The output of this "
                    "custom operator (1) must not also be an input to this custom operator and (2) may "
                    "not alias any inputs to this custom operator or other returns. The most common "
                    "way to trigger this error is if we have y = custom_op(x) and y and x are the same "
                    "Tensor. Please instead return a clone of the offending output tensor(s) (e.g. "
                    "return x.clone())."
                )


def register_autocast(
    op: Any, device_type: str, cast_inputs: Any, /, *, lib: Library | None = None
) -> None:
    """Within autocast on a device, cast an operator's floating inputs (float64 aside)."""
    from mortice._library.registration import get_operator, kept_library
    from mortice._types.dtypes import DType, float64

    if not isinstance(device_type, str):
        raise InvalidValue(f"register_autocast: device_type must be a str, not {device_type!r}")
    if cast_inputs.__class__ is not DType:
        raise InvalidValue(f"register_autocast: cast_inputs must be a dtype, not {cast_inputs!r}")
    operator = get_operator(op, "register_autocast")

    def cast(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value)(cast(x) for x in value)
        if not hasattr(value, "_k") or value.device.type != device_type:
            return value
        eligible = value._t.is_floating_point and value._t is not float64
        return value.to(cast_inputs) if eligible else value

    def kernel(*values: Any) -> Any:
        from mortice._dispatch.state import Guard

        with Guard(exclude=K.AUTOCAST):
            return operator(*[cast(v) for v in values])

    operator.register("Autocast", kernel)
    library = lib or kept_library(operator.schema.namespace, "FRAGMENT")
    library._undo.append(lambda: operator.unregister("Autocast", kernel))  # pyright: ignore[reportPrivateUsage]


def register_mortice_dispatch(
    op: Any, dispatch_class: Any, func: Any = None, /, *, lib: Library | None = None
) -> Any:
    """``func(mode_or_cls, func, types, args, kwargs)`` handles ``op`` for a mode or subclass."""
    from mortice._library.registration import get_operator, kept_library

    operator = get_operator(op, "register_mortice_dispatch")

    def register(fn: Any) -> Any:
        rules = operator.dispatch_rules
        if dispatch_class in rules:
            raise RegistrationError(
                f"{dispatch_class.__name__} already has a `__mortice_dispatch__` rule registered for "
                f"{operator.qualified}"
            )
        rules[dispatch_class] = fn
        library = lib or kept_library(operator.schema.namespace, "FRAGMENT")
        library._undo.append(lambda: rules.pop(dispatch_class, None) and None)  # pyright: ignore[reportPrivateUsage]
        return fn

    return register if func is None else register(func)


class KernelHandle:
    """A kernel of an operator at a dispatch key, whatever is registered over it later.

    Calling it is InvalidState once the library that registered it is gone.
    """

    def __init__(self, operator: Operator, key: str, kernel: Any, registered: bool) -> None:
        self.operator = operator
        self.dispatch_key = key
        self._kernel = kernel
        self._registered = registered

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it on the operator's arguments."""
        op = self.operator
        if self._registered and self._kernel not in op.kernels.get(self.dispatch_key, ()):
            raise InvalidState(
                f"The kernel of {op.qualified} for {self.dispatch_key} has been invalidated: its "
                "library is gone."
            )
        try:
            values = bind(op.schema, args, kwargs, op.row.numbers, "self")
        except Misfit as misfit:
            raise SchemaMismatch(f"{op.qualified}(): {misfit}.\nDeclaration: {op.schema}") from None
        return self._kernel(*values)

    def call_boxed(self, keys: Any, *args: Any, **kwargs: Any) -> Any:
        """The same with the DispatchKeySet of the call before its arguments."""
        return self(*args, **kwargs)


def get_kernel(op: Any, dispatch_key: Any) -> KernelHandle:
    """The kernel of an operator at a dispatch key: the newest that was registered, else the device's own.

    InvalidValue for a wrong key, RegistrationError if there is none.
    """
    from mortice._library.registration import get_operator

    if not isinstance(dispatch_key, str):
        raise InvalidValue(f"get_kernel: Invalid dispatch key {dispatch_key!r}; give its name")
    operator = get_operator(op, "get_kernel")
    try:
        K.parse_key(dispatch_key)
    except RegistrationError as error:
        raise InvalidValue(f"Invalid dispatch key: {dispatch_key!r}. {error}") from None
    key = K.canonical(dispatch_key)
    kernel = operator.registered(key)
    if kernel is not None:
        return KernelHandle(operator, key, kernel, registered=True)
    functionality, device = K.parse_key(key)
    try:
        if functionality or device is None:
            raise NoKernel("a functionality has none of its own")
        how, own = locate(operator, device)
        if how == "fallback":
            raise NoKernel(f"it runs on the CPU instead of {device}")
    except (NoKernel, PluginError) as error:
        raise RegistrationError(
            f"no kernel for {dispatch_key} for {operator.qualified}: {error}"
        ) from None
    return KernelHandle(operator, key, own, registered=False)


__all__ = [
    "ArgumentError",
    "CustomOpDef",
    "custom_op",
    "get_kernel",
    "register_autocast",
    "register_mortice_dispatch",
]
