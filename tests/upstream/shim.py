"""``torch`` as mortice, for PyTorch's own test files: a finder of modules in front of all others.

Modules that mortice has are shown under PyTorch's names; the few of ``torch.testing._internal`` that
are pure Python are read from an installed torch, renamed as the test files are; the rest are
AbsentModules, which can be imported and say what is missing when they are used.
"""

from __future__ import annotations

import collections.abc
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
import weakref
from pathlib import Path
from typing import Any

import dispatcher
import rename
import testcase
from absent import Absent, AbsentFeature, AbsentModule, importing

import mortice

#: torch's name of a module -> mortice's.
SAME = {
    "torch": "mortice",
    **{
        f"torch.{name}": f"mortice.{name}"
        for name in (
            "autograd", "autograd.function", "compiler", "distributed", "fft", "fx", "library",
            "linalg", "nn", "nn.functional", "nn.parameter", "nn.utils", "optim", "ops", "overrides",
            "random", "special", "testing", "utils", "utils.data", "utils.dlpack", "multiprocessing",
        )
    },
    "torch._ops": "mortice.ops",
    "torch.utils._python_dispatch": "mortice.utils.dispatch",
    "torch.utils._pytree": "mortice.utils.pytree",
}  # fmt: skip
#: Read from an installed torch.
BORROWED = (
    "torch.testing._internal.logging_tensor",
    "torch.testing._internal.two_tensor",
    "torch.testing._internal.custom_tensor",
    "torch.testing._internal.custom_op_db",
    # The predecessor of custom_op, which stands on torch.library.
    "torch._custom_ops",
    "torch._custom_op.impl",
    "torch._custom_op.autograd",
    "torch.testing._internal.optests.autograd_registration",
    "torch.testing._internal.optests.aot_autograd",
    "torch.testing._internal.optests.generate_tests",
)
STAR = (
    "torch.testing._internal.common_utils", "torch.testing._internal.common_device_type",
    "torch.testing._internal.common_cuda", "torch.testing._internal.common_dtype",
    "torch.testing._internal.jit_utils",
)  # fmt: skip


class AbsentAttribute(AbsentFeature, AttributeError):
    """A module that is there lacks a name."""


class Shown(types.ModuleType):
    """A module of mortice under PyTorch's name, with what is added to it."""

    __path__: list[str] = []

    def __init__(self, name: str, target: Any, added: dict[str, Any]) -> None:
        super().__init__(name)
        self.__dict__["_target"] = target
        self.__dict__.update(added)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        target = self.__dict__["_target"]
        if self.__name__ == "torch" and name.startswith("_") and f"torch.{name}" not in ADDED:
            target = None  # what is private of mortice is not what is private of torch
        path = f"{self.__name__}.{name}"
        if any(known.startswith(path + ".") for known in ADDED):
            return importlib.import_module(path)
        if any(path in known for known in (sys.modules, SAME, ADDED, STAR, BORROWED)):
            return importlib.import_module(path)
        if hasattr(target, name):
            return getattr(target, name)
        if importing[0]:
            return Absent(path)
        raise AbsentAttribute(path)

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__[name] = value

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__:
            del self.__dict__[name]
        else:
            delattr(self.__dict__["_target"], name)

    def __dir__(self) -> list[str]:
        return dir(self.__dict__["_target"])


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, installed: Path | None) -> None:
        self.installed = installed

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] not in ("torch", "functorch"):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=name not in BORROWED)

    def create_module(self, spec: Any) -> Any:
        name = spec.name
        added = ADDED.get(name, {})
        if name in STAR:
            return Shown(name, types.SimpleNamespace(), testcase.everything())
        if name in BORROWED and self.installed is not None:
            return types.ModuleType(name)
        if name in SAME:
            try:
                return Shown(name, importlib.import_module(SAME[name]), added)
            except ImportError:
                return AbsentModule(name)
        if added or any(known.startswith(name + ".") for known in ADDED):
            return Shown(name, types.SimpleNamespace(), added)
        return AbsentModule(name)

    def exec_module(self, module: Any) -> None:
        if module.__name__ not in BORROWED or self.installed is None:
            return
        path = self.installed.parent.joinpath(*module.__name__.split(".")).with_suffix(".py")
        was, importing[0] = importing[0], True
        try:
            exec(compile(rename.source(path.read_text()), str(path), "exec"), module.__dict__)
        finally:
            importing[0] = was
        if module.__name__ in CHANGED:
            module.__dict__.update(CHANGED[module.__name__])


def install() -> None:
    """Put the finder in front; torch must not have been imported."""
    spec = importlib.util.find_spec("torch")
    installed = Path(spec.origin).parent if spec is not None and spec.origin else None
    sys.meta_path.insert(0, Finder(installed))
    _fake_attributes()
    for name in ("torch", "torch.testing", "torch.utils", "torch.library", "torch.overrides"):
        importlib.import_module(name)


# -- what PyTorch has under private names ----------------------------------------------------------


class _Keys:
    """Dispatch keys, which are strings here."""

    def __getattr__(self, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class FileCheck:
    """Looks for texts one after the other."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, str, int]] = []

    def check(self, text: str) -> FileCheck:
        self.steps.append(("check", text, 1))
        return self

    check_same = check_next = check_dag = check

    def check_not(self, text: str) -> FileCheck:
        self.steps.append(("not", text, 1))
        return self

    def check_count(self, text: str, count: int, exactly: bool = False) -> FileCheck:
        self.steps.append(("exactly" if exactly else "count", text, count))
        return self

    def run(self, text: Any) -> None:
        place, text = 0, str(text)
        for kind, wanted, count in self.steps:
            if kind == "not":
                assert wanted not in text[place:], f"{wanted!r} is in\n{text}"
                continue
            if kind == "exactly":
                found = text.count(wanted)
                assert found == count, f"{found} times {wanted!r} in\n{text}"
            for _ in range(count):
                place = text.find(wanted, place)
                assert place >= 0, f"{wanted!r} is not in\n{text}"
                place += len(wanted)


class WeakTensorKeyDictionary(collections.abc.MutableMapping):  # pyright: ignore
    """By identity; entries of tensors that are gone are never found again."""

    def __init__(self) -> None:
        self.entries: dict[int, tuple[Any, Any]] = {}

    def __getitem__(self, key: Any) -> Any:
        found = self.entries[id(key)]
        if found[0]() is not key:
            raise KeyError(key)
        return found[1]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.entries[id(key)] = (weakref.ref(key), value)

    def __delitem__(self, key: Any) -> None:
        del self.entries[id(key)]

    def __iter__(self) -> Any:
        return iter([key for ref, _ in self.entries.values() if (key := ref()) is not None])

    def __len__(self) -> int:
        return len(list(iter(self)))


@contextlib.contextmanager
def _no_dispatch() -> Any:
    from mortice._dispatch import keys as K
    from mortice._dispatch.state import Guard

    with Guard(exclude=K.MODE | K.PYTHON):
        yield


def _modes() -> list[Any]:
    from mortice._dispatch.state import THREAD

    return THREAD.dispatch_modes


def _function_modes() -> list[Any]:
    from mortice._dispatch.state import THREAD

    return THREAD.function_modes


def _same_mode(items: Any) -> bool:
    items = list(items)
    return all(x == items[0] for x in items)


def _below_autograd() -> Any:
    from mortice._dispatch.state import below_autograd

    return below_autograd()


def _set_enabled(function: Any) -> Any:
    return lambda *args: function(*args)


def _abbreviations() -> dict[Any, str]:
    """``f32`` for float32: the letters of the kind, and the bits."""
    kinds = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c", "bool": "b"}
    found: dict[Any, str] = {}
    for name, dtype in mortice._types.dtypes.ALL.items():  # pyright: ignore
        stem = name.rstrip("0123456789")
        found[dtype] = kinds.get(stem, stem) + name[len(stem) :] + ("8" if name == "bool" else "")
    return found


def _fake(t: Any) -> Any:
    return mortice.fake.is_fake(t)


class FakeTensorMode(mortice.fake.FakeTensorMode):
    """PyTorch's parameters. Ours never runs a real kernel on stand-ins."""

    def __init__(
        self,
        *,
        allow_fallback_kernels: bool = False,
        allow_non_fake_inputs: bool = False,
        shape_env: Any = None,
        static_shapes: bool | None = None,
        export: bool = False,
    ) -> None:
        super().__init__(shape_env, allow_non_fake_inputs=allow_non_fake_inputs)
        self.static = shape_env is None if static_shapes is None else static_shapes

    def from_tensor(self, t: Any, *, static_shapes: Any = None, **options: Any) -> Any:
        static = self.static if static_shapes is None else static_shapes
        return super().from_tensor(t, () if static else range(t.ndim))


def _same_metadata(a: Any, b: Any, **options: Any) -> None:
    """What ``torch._prims.utils.compare_tensor_meta`` asserts."""
    assert a.dtype == b.dtype and a.device == b.device and tuple(a.shape) == tuple(b.shape)
    if options.get("check_strides", True):
        pairs = zip(a.shape, a.stride(), b.stride(), strict=True)
        assert all(n <= 1 or x == y for n, x, y in pairs), (a.stride(), b.stride())


class _StorageId:
    """A storage, told from others."""

    def __init__(self, storage: Any) -> None:
        self.storage = storage

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _StorageId) and self.storage is other.storage

    def __hash__(self) -> int:
        return id(self.storage)


class _Source:
    """Where the newest fake of an operator was registered, as PyTorch's registry tells it."""

    def __init__(self, name: str) -> None:
        from mortice._library.fakes import _FAKES

        self.fake_impl = self.abstract_impl = self
        self.kernels = [types.SimpleNamespace(source=where) for _, where in _FAKES.get(name, [])]

    @property
    def kernel(self) -> Any:
        return self.kernels[-1]


def _resolve_packet(name: str, *args: Any, **kwargs: Any) -> str:
    """The overload that a call of ``ns::name`` comes down to."""
    seen: list[str] = []

    class Watch(mortice.utils.dispatch.MorticeDispatchMode):
        def __mortice_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func._overloadname)
            return func(*args, **(kwargs or {}))

    namespace, _, packet = name.partition("::")
    with Watch():
        getattr(getattr(mortice.ops, namespace), packet)(*args, **kwargs)
    return seen[0]


def _supported(optional: bool) -> dict[Any, str]:
    """The annotations that infer_schema reads, as facts about PyTorch's list them."""
    import typing

    T: Any = mortice.Tensor
    number = int | float | bool
    kinds: list[Any] = [T, int, float, bool, number]
    if optional:
        kinds += [str, mortice.dtype, mortice.device]
        kinds += [typing.Union[k, None] for k in kinds]  # noqa: UP007  as the tests take it apart
        items = (T, int, float, bool, number, typing.Union[T, None])  # noqa: UP007
        kinds += [typing.Sequence[k] for k in items] + [list[k] for k in items]
    else:
        kinds.append(list[T])
    return dict.fromkeys(kinds, "")


def _fake_attributes() -> None:
    """PyTorch's attributes of fake tensors, which here are functions of mortice.fake."""
    from mortice._capture.fake_array import constant_of

    Tensor: Any = mortice.Tensor
    Tensor.constant = property(constant_of)
    Tensor.fake_mode = property(mortice.fake.mode_of)
    library: Any = mortice.library.Library
    library._register_mortice_dispatch_rule = dispatcher.register_rule
    overload: Any = mortice.ops.OpOverload
    overload._defined_in_python = property(lambda self: self.namespace not in ("aten", "prims"))
    Tensor.fake_device = property(lambda self: self.device)


class _Later:
    """A function of a module that is imported when it is first called."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(importlib.import_module(self.module), self.name)(*args, **kwargs)


def _compiled_function(
    function: Any, forward: Any, backward: Any, *, dynamic: bool = False, **options: Any
) -> Any:
    return mortice.compile(function, backend="aot_eager", dynamic=dynamic)


def _clone_input(t: Any) -> Any:
    return t.detach().clone().requires_grad_(t.requires_grad)


def _checks() -> dict[str, Any]:
    """The tests of our opcheck, as the generator of tests calls them."""

    def check(name: str) -> Any:
        def run(op: Any, args: Any, kwargs: Any, **options: Any) -> None:
            if not any(map(mortice.fake.is_fake, args)):
                mortice.library.opcheck(op, args, kwargs, test_utils=name)

        return run

    names = ("test_schema", "test_autograd_registration", "test_faketensor")
    names += ("test_aot_dispatch_static", "test_aot_dispatch_dynamic")
    return {name: check(name) for name in names}


_fakes: dict[str, Any] = {
    "FakeTensor": mortice.fake.FakeTensor,
    "FakeTensorMode": FakeTensorMode,
    "DynamicOutputShapeException": mortice.errors.DynamicOutputShape,
    "DataDependentOutputException": mortice.errors.DataDependentOutput,
    "UnsupportedOperatorException": mortice.errors.NoKernel,
    "UnsupportedFakeTensorException": mortice.errors.FakeTensorError,
    "is_fake": _fake,
}
_symbolic: dict[str, Any] = {
    "ShapeEnv": mortice.fake.ShapeEnv,
    "GuardOnDataDependentSymNode": mortice.errors.GuardOnDataDependent,
    "free_symbols": lambda x: getattr(x, "symbols", frozenset()),
    "statically_known_true": lambda x: x if isinstance(x, bool) else x.decided is True,
    "is_symbolic": lambda x: getattr(x, "_is_symbolic", False),
}
_fx: dict[str, Any] = {}
if hasattr(mortice.fx, "make_fx"):
    _fx["make_fx"] = mortice.fx.make_fx

#: Names beside those of mortice's module of the same name.
ADDED: dict[str, dict[str, Any]] = {
    "torch": {
        "SymInt": mortice.fake.SymInt,
        "SymFloat": mortice.fake.SymFloat,
        "SymBool": mortice.fake.SymBool,
        "DispatchKey": _Keys(),
        "_check": mortice.fake.check,
        **{n: getattr(mortice.fake, n) for n in ("sym_max", "sym_min", "sym_not", "sym_int")},
        "_disable_dynamo": lambda function=None, recursive=True: function or (lambda f: f),
        "__version__": "2.13.0",
    },
    "torch.library": {"_scoped_library": mortice.library.scoped_library},
    "torch.overrides": {
        "_get_current_function_mode": lambda: (_function_modes() or [None])[-1],
        "_get_current_function_mode_stack": lambda: list(_function_modes()),
        "enable_reentrant_dispatch": contextlib.nullcontext,
    },
    "torch.utils._python_dispatch": {
        "_get_current_dispatch_mode": lambda: (_modes() or [None])[-1],
        "_get_current_dispatch_mode_stack": lambda: list(_modes()),
    },
    "torch.utils._mode_utils": {"all_same_mode": _same_mode, "no_dispatch": _no_dispatch},
    "torch.utils.weak": {
        "WeakTensorKeyDictionary": WeakTensorKeyDictionary,
        "WeakIdKeyDictionary": WeakTensorKeyDictionary,
    },
    "torch.cuda": {"is_available": lambda: False, "device_count": lambda: 0},
    "torch.utils._dtype_abbrs": {"dtype_abbrs": _abbreviations()},
    "torch.testing": {"FileCheck": FileCheck, "make_tensor": testcase.make_tensor},
    "torch._C": {
        "DispatchKey": _Keys(),
        "DisableMorticeFunctionSubclass": mortice.overrides.DisableMorticeFunctionSubclass,
        "DisableMorticeFunction": mortice.overrides.DisableMorticeFunction,
        "_disabled_mortice_function_impl": mortice.overrides.disabled_mortice_function,
        "_AutoDispatchBelowAutograd": _below_autograd,
        "_storage_id": lambda t: id(t.untyped_storage()),
        "_jit_resolve_packet": _resolve_packet,
        **dispatcher.PRIVATE,
    },
    "torch._subclasses": {**_fakes},
    "torch._subclasses.fake_tensor": _fakes,
    "torch.fx.experimental.symbolic_shapes": _symbolic,
    "torch.fx.experimental.proxy_tensor": _fx,
    "functorch": _fx,
    "torch._dynamo.testing": {
        # Variants of test classes for the compiler's options: without tests.
        "make_test_cls_with_patches": lambda cls, prefix, *rest, **options: type(
            prefix + cls.__name__, (testcase.TestCase,), {}
        ),
    },
    "torch._library.infer_schema": {
        "infer_schema": mortice.library.infer_schema,
        "SUPPORTED_PARAM_TYPES": _supported(True),
        "SUPPORTED_RETURN_TYPES": _supported(False),
        "_TestTensor": mortice.Tensor,
    },
    "torch._library.simple_registry": {"singleton": types.SimpleNamespace(find=_Source)},
    "torch._library.fake_impl": {"set_ctx_getter": dispatcher.set_ctx_getter},
    "torch.testing._internal.optests": {
        "opcheck": mortice.library.opcheck,
        "OpCheckError": mortice.testing.OpCheckError,
        **{
            name: _Later(f"torch.testing._internal.optests.{module}", name)
            for module, names in {
                "autograd_registration": ("autograd_registration_check",),
                "aot_autograd": ("aot_autograd_check",),
                "generate_tests": (
                    "dontGenerateOpCheckTests",
                    "generate_opcheck_tests",
                    "is_inside_opcheck_mode",
                ),
            }.items()
            for name in names
        },
    },
    "torch.testing._internal.optests.make_fx": {"randomize": lambda args: args},
    "torch.testing._utils": {
        "wrapper_set_seed": lambda f, *a, **k: (mortice.manual_seed(42), f(*a, **k))[1]
    },
    "functorch.compile": {"compiled_function": _compiled_function, "nop": None},
    "torch._functorch.config": {"check_custom_op_aliasing": False},
    "torch._dynamo": {"is_compiling": lambda: False},
    "torch._dynamo.utils": {"clone_input": _clone_input},
    "torch.multiprocessing.reductions": {"StorageWeakRef": _StorageId},
    "torch.jit": {"is_tracing": lambda: False, "is_scripting": lambda: False},
    "torch._utils_internal": {"get_file_path_2": lambda *parts: str(Path(*parts))},
    "torch._library.custom_ops": {"CustomOpDef": mortice.library.CustomOpDef},
    "torch._prims": {"utils": types.SimpleNamespace(compare_tensor_meta=_same_metadata)},
    "torch._export.wrappers": {"mark_subclass_constructor_exportable_experimental": lambda f: f},
    "torch._C._profiler": {
        "gather_traceback": lambda *args: None,
        "symbolize_tracebacks": lambda traces: [[] for _ in traces],
    },
    "torch._library.utils": {
        "lookup_op": dispatcher.lookup,
        "is_functional_schema": dispatcher.is_functional_schema,
        "is_tensorlist_like_type": dispatcher.is_tensorlist_like_type,
    },
    "torch.types": {"Number": int | float | bool},
}

#: What borrowed modules have replaced in them.
CHANGED: dict[str, dict[str, Any]] = {
    "torch.testing._internal.optests.generate_tests": {
        "ALL_TEST_UTILS": _checks(),
        "OpCheckError": mortice.testing.OpCheckError,
        "opcheck": mortice.library.opcheck,
    }
}
