"""What test files take from ``torch.testing._internal.common_utils`` and its neighbours."""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import inspect
import itertools
import math
import os
import pickle
import random
import re
import subprocess
import sys
import tempfile
import unittest
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import rename

import mortice

#: With ``words`` False, assertRaisesRegex and its like look at the exception's type alone.
settings = {"words": True}

IS_WINDOWS = sys.platform == "win32"
IS_MACOS = sys.platform == "darwin"
IS_LINUX = sys.platform == "linux"
IS_FBCODE = IS_SANDCASTLE = IS_ARM64 = IS_JETSON = IS_CI = False
TEST_WITH_TORCHDYNAMO = TEST_WITH_TORCHINDUCTOR = TEST_WITH_CROSSREF = TEST_WITH_ROCM = False
TEST_WITH_SLOW = TEST_WITH_ASAN = TEST_WITH_UBSAN = TEST_WITH_TSAN = TEST_WITH_AOT_EAGER = False
TEST_CUDA = TEST_MULTIGPU = TEST_MPS = TEST_XPU = TEST_HPU = TEST_SCIPY = TEST_ACCELERATOR = False
RUN_CUDA = HAS_CUDA = PLATFORM_SUPPORTS_FLASH_ATTENTION = False
TEST_NUMPY = True
TEST_TRANSFORMERS = False


class TestCase(unittest.TestCase):
    """unittest's, with comparison of tensors and what PyTorch's adds to it."""

    maxDiff = None
    precision = 0.0
    rel_tol = 0.0

    def assertEqual(self, first: Any, second: Any, msg: Any = None, **options: Any) -> None:
        difference = _difference(first, second, options)
        if difference is not None:
            self.fail(f"{difference}{'' if msg is None else f': {msg}'}")

    def assertNotEqual(self, first: Any, second: Any, msg: Any = None, **options: Any) -> None:
        if _difference(first, second, options) is None:
            self.fail(f"{first!r} == {second!r}")

    def assertEqualIgnoreType(self, first: Any, second: Any, **options: Any) -> None:
        self.assertEqual(first, second, exact_dtype=False, **options)

    def assertAlmostEqual(self, first: Any, second: Any, **options: Any) -> None:
        self.assertEqual(first, second, atol=1e-5, rtol=1e-5)

    def assertExpectedInline(self, actual: Any, expect: str, skip: int = 0) -> None:
        if str(actual).strip() != rename.words(expect).strip():
            self.fail(f"expected\n{rename.words(expect)}\nfound\n{actual}")

    def assertExpectedRaisesInline(
        self, kind: Any, function: Any, expect: str, *args: Any, **kwargs: Any
    ) -> None:
        with self.assertRaises(kind) as caught:
            function(*args, **kwargs)
        if settings["words"]:
            self.assertExpectedInline(str(caught.exception), expect)

    def assertRaisesRegex(self, kind: Any, regex: Any, *args: Any, **kwargs: Any) -> Any:
        if settings["words"]:
            return super().assertRaisesRegex(kind, regex, *args, **kwargs)
        return self.assertRaises(kind, *args, **kwargs)

    def assertWarnsRegex(self, kind: Any, regex: Any, *args: Any, **kwargs: Any) -> Any:
        if settings["words"]:
            return super().assertWarnsRegex(kind, regex, *args, **kwargs)
        return self.assertWarns(kind, *args, **kwargs)

    @contextlib.contextmanager
    def assertWarnsOnceRegex(self, kind: Any, regex: str = "") -> Iterator[None]:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            yield
        found = [w for w in seen if issubclass(w.category, kind)]
        assert len(found) == 1, f"{len(found)} warnings"
        if settings["words"]:
            assert re.search(regex, str(found[0].message))

    def assertNotWarn(self, function: Any, msg: str = "") -> None:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            function()
        assert not seen, msg

    def wrap_with_cuda_policy(self, name: str, function: Any) -> Any:
        return function

    @staticmethod
    def runWithPytorchAPIUsageStderr(code: str) -> str:
        raise unittest.SkipTest("runs PyTorch in another process")


def _difference(a: Any, b: Any, options: dict[str, Any]) -> str | None:
    if isinstance(a, mortice.Tensor) or isinstance(b, mortice.Tensor):
        return _tensor_difference(a, b, options)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        if len(a) != len(b):
            return f"{len(a)} elements, expected {len(b)}"
        found = (_difference(x, y, options) for x, y in zip(a, b, strict=True))
        return next((d for d in found if d is not None), None)
    if isinstance(a, dict) and isinstance(b, dict):
        if set(a) != set(b):
            return f"keys {sorted(map(str, a))}, expected {sorted(map(str, b))}"
        found = (_difference(a[k], b[k], options) for k in a)
        return next((d for d in found if d is not None), None)
    if isinstance(a, float) or isinstance(b, float):
        atol, rtol = options.get("atol") or 1e-7, options.get("rtol") or 1e-7
        close = math.isclose(a, b, rel_tol=rtol, abs_tol=atol) or (a != a and b != b)
        return None if close else f"{a!r}, expected {b!r}"
    return None if a == b else f"{a!r}, expected {b!r}"


def _tensor_difference(a: Any, b: Any, options: dict[str, Any]) -> str | None:
    if not (isinstance(a, mortice.Tensor) and isinstance(b, mortice.Tensor)):
        number, tensor = (b, a) if isinstance(a, mortice.Tensor) else (a, b)
        if not isinstance(number, (int, float, complex, np.ndarray, list)) or not isinstance(
            tensor, mortice.Tensor
        ):
            return f"{a!r}, expected {b!r}"
        same = np.allclose(tensor.detach().numpy(), number, equal_nan=True)
        return None if same else f"{a!r}, expected {b!r}"
    if tuple(a.shape) != tuple(b.shape):
        return f"shape {tuple(a.shape)}, expected {tuple(b.shape)}"
    if options.get("exact_dtype", True) and a.dtype != b.dtype:
        return f"dtype {a.dtype}, expected {b.dtype}"
    with mortice.overrides.DisableMorticeFunctionSubclass(), _below_subclasses(a, b):
        atol, rtol = options.get("atol") or 1e-5, options.get("rtol") or 1.3e-6
        same = mortice.allclose(
            a.detach().to(b.dtype), b.detach(), rtol=rtol, atol=atol, equal_nan=True
        )
    return None if same else f"{a!r}, expected {b!r}"


def _below_subclasses(*tensors: Any) -> Any:
    """Compare data, where there is some; wrappers without data compare by what they do."""
    if not all(isinstance(t._a, np.ndarray) for t in tensors):
        return contextlib.nullcontext()
    from mortice._dispatch import keys as K
    from mortice._dispatch.state import Guard

    return Guard(exclude=K.MODE | K.PYTHON)


# -- parametrization -----------------------------------------------------------------------------


class subtest:
    def __init__(self, arg_values: Any, name: str | None = None, decorators: Any = ()) -> None:
        self.arg_values, self.name = arg_values, name


def parametrize(names: str, values: Any, name_fn: Any = None) -> Any:
    """Several tests of one, by ``instantiate_parametrized_tests``."""

    def decorate(function: Any) -> Any:
        keys = [n.strip() for n in names.split(",")]
        cases = []
        for value in values:
            label = None
            if isinstance(value, subtest):
                value, label = value.arg_values, value.name
            given = (value,) if len(keys) == 1 else value
            label = label or (name_fn(*given) if name_fn else "_".join(map(_label, given)))
            cases.append((label, dict(zip(keys, given, strict=True))))
        function.parametrized = [*getattr(function, "parametrized", []), cases]
        return function

    return decorate


def _label(value: Any) -> str:
    return re.sub(r"\W+", "_", getattr(value, "__name__", str(value)))


def instantiate_parametrized_tests(cls: type) -> type:
    for name, function in list(vars(cls).items()):
        axes = getattr(function, "parametrized", None)
        if not axes:
            continue
        delattr(cls, name)
        for combination in itertools.product(*axes):
            kwargs = {k: v for _, given in combination for k, v in given.items()}
            label = "_".join(label for label, _ in combination)
            setattr(cls, f"{name}_{label}", _bound(function, kwargs))
    return cls


def _bound(function: Any, kwargs: dict[str, Any]) -> Any:
    @functools.wraps(function)
    def run(self: Any, *args: Any, **more: Any) -> Any:
        return function(self, *args, **kwargs, **more)

    return run


def instantiate_device_type_tests(
    cls: type, scope: dict[str, Any], except_for: Any = None, only_for: Any = None, **options: Any
) -> None:
    """The class once, for the CPU."""
    scope.pop(cls.__name__, None)
    instantiate_parametrized_tests(cls)
    members: dict[str, Any] = {"device_type": "cpu", "device": "cpu"}
    for name, function in inspect.getmembers(cls, inspect.isfunction):
        if not name.startswith("test"):
            continue
        wants = list(inspect.signature(inspect.unwrap(function)).parameters)
        members[name] = None
        if "op" in wants or "opinfo" in wants:
            continue  # over the operators of PyTorch's own database
        members[f"{name}_cpu"] = _bound(function, {"device": "cpu"} if "device" in wants else {})
    for name, function in vars(cls).items():
        if getattr(function, "needs_op_db", False):
            members.pop(f"{name}_cpu", None)
    scope[f"{cls.__name__}CPU"] = type(f"{cls.__name__}CPU", (cls,), members)
    scope[f"{cls.__name__}CPU"].__module__ = scope["__name__"]


class OpDTypes:
    """Which dtypes ``ops`` would try; its tests do not run here."""

    any_one = supported = none = unsupported = any_common_cpu_cuda_one = None


def ops(*args: Any, **kwargs: Any) -> Any:
    def decorate(function: Any) -> Any:
        function.needs_op_db = True
        return function

    return decorate


# -- decorators ----------------------------------------------------------------------------------


def _identity(*args: Any, **kwargs: Any) -> Any:
    """A decorator without effect here, with or without arguments."""
    if len(args) == 1 and not kwargs and callable(args[0]):
        return args[0]
    return lambda function: function


def _skipping(reason: str) -> Any:
    return lambda *args, **kwargs: unittest.skip(reason)


IDENTITIES = (
    "skipIfTorchDynamo", "xfailIfTorchDynamo", "skipIfCrossRef", "skipIfRocm", "skipIfTorchInductor",
    "skipIfXpu", "skipIfMps", "skipIfHpu", "slowTest", "markDynamoStrictTest", "suppress_warnings",
    "dtypes", "onlyCPU", "onlyNativeDeviceTypes", "deviceCountAtLeast", "skipMeta", "unMarkDynamoStrictTest",
    "skipCPUIf", "xfailIf", "skipIfS390X", "serialTest", "runOnRocm",
)  # fmt: skip


def run_tests(*args: Any, **kwargs: Any) -> None:
    """Nothing: the runner runs them."""


@contextlib.contextmanager
def TemporaryFileName(*args: Any, **kwargs: Any) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield os.path.join(folder, "file")


def make_tensor(*shape: Any, dtype: Any, device: Any = "cpu", **options: Any) -> Any:
    """Random elements of a dtype; ``low``, ``high`` and ``requires_grad`` count."""
    sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    low, high = options.get("low"), options.get("high")
    if dtype.is_floating_point or dtype.is_complex:
        low, high = (-9 if low is None else low), (9 if high is None else high)
        made = mortice.rand(*sizes, dtype=dtype, device=device) * (high - low) + low
    elif dtype is mortice.bool:
        made = mortice.randint(0, 2, sizes, device=device).bool()
    else:
        made = mortice.randint(low or 0, 10 if high is None else high, sizes, device=device)
        made = made.to(dtype)
    return made.requires_grad_(options.get("requires_grad", False))


def numpy_to_torch_dtype_dict() -> dict[Any, Any]:
    return {}


@contextlib.contextmanager
def set_default_dtype(dtype: Any) -> Iterator[None]:
    before = mortice.get_default_dtype()
    mortice.set_default_dtype(dtype)
    try:
        yield
    finally:
        mortice.set_default_dtype(before)


def freeze_rng_state() -> Any:
    return contextlib.nullcontext()


def gradcheck(function: Any, inputs: Any, **options: Any) -> bool:
    return mortice.testing.gradcheck(function, inputs, **options)


def gradgradcheck(function: Any, inputs: Any, *rest: Any, **options: Any) -> bool:
    return mortice.testing.gradgradcheck(function, inputs, *rest, **options)


def everything() -> dict[str, Any]:
    """What ``from common_utils import *`` and its neighbours bring."""
    given = {n: v for n, v in globals().items() if not n.startswith("_")}
    given.update(dict.fromkeys(IDENTITIES, _identity))
    given.update(
        dict.fromkeys(
            ("onlyCUDA", "onlyOn", "onlyAccelerator", "skipCUDAIf"),
            _skipping("needs an accelerator"),
        )
    )
    modules = (contextlib, copy, functools, inspect, itertools, math, os, pickle, random, re)
    given.update({m.__name__: m for m in (*modules, subprocess, sys, tempfile, unittest, warnings)})
    given["pytree"] = importlib.import_module("torch.utils._pytree")
    given["torch"] = sys.modules["torch"]
    given["np"] = given["numpy"] = np
    return given
