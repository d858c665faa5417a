"""From an OpInfo of torch to the callables of mortice that stand beside it."""

from __future__ import annotations

import functools
import types
import unittest
from collections.abc import Callable
from typing import Any

import torch

import mortice

# OpInfos with no place here: CUDA's jiterator, kernels that exist on accelerators only, sparse
# layouts (mortice loads and converts them, it does not compute on them).
EXCLUDED_PREFIXES = (
    "jiterator",
    "sparse.",
    "to_sparse",
    "torch._scaled_mm",
    "torch.ops.aten._flash",
    "torch.ops.aten._efficient",
    "_segment_reduce",
    "chalf",  # complex32 is storage-only
)

# Results are random: shape and dtype are compared here, the distribution in randoms.py.
RANDOM = frozenset(
    {
        "cauchy",
        "exponential",
        "geometric",
        "log_normal",
        "normal",
        "uniform",
        "randn",
        "randn_like",
        "rand_like",
        "randint",
        "randint_like",
        "multinomial",
        "bernoulli",
        "nn.functional.rrelu",
        "nn.functional.dropout",
        "nn.functional.dropout2d",
        "nn.functional.dropout3d",
        "nn.functional.alpha_dropout",
        "nn.functional.feature_alpha_dropout",
        "svd_lowrank",
        "pca_lowrank",
        "nn.functional.fractional_max_pool2d",
        "nn.functional.fractional_max_pool3d",
    }
)

# (values, indices) where several indices may be right: an index counts by the value it picks.
PICKING = frozenset({"topk", "kthvalue", "mode", "sort", "median", "nanmedian", "msort", "argsort"})

# Contents are whatever memory held.
UNDEFINED = frozenset(
    {
        "empty",
        "empty_like",
        "new_empty",
        "new_empty_strided",
        "empty_strided",
        "empty_permuted",
    }
)


class Absent(Exception):
    """mortice has no such operator; the message says which name was looked for."""


def draws(op: Any, sample: Any) -> bool:
    """Whether this very sample is random: attention with dropout."""
    if sample.kwargs.get("dropout_p"):
        return True
    if op.name != "nn.functional.multi_head_attention_forward":
        return False
    # (query, key, value, embed_dim, heads, in_weight, in_bias, bias_k, bias_v, zero_attn, dropout_p)
    return bool(sample.args[9]) and sample.kwargs.get("training", True)


def disowned(op: Any, test: str, dtype: torch.dtype) -> bool:
    """Whether torch's own suite expects its gradient test of this operator to fail."""
    return any(
        unittest.expectedFailure in getattr(info, "decorators", ())
        and info.is_active("TestBwdGradients", test, "cpu", dtype, None)
        for info in op.decorators
    )


def full_name(op: Any) -> str:
    """``name`` or ``name:variant`` of an OpInfo."""
    return f"{op.name}:{op.variant_test_name}" if op.variant_test_name else op.name


def excluded(op: Any) -> bool:
    return op.name.startswith(EXCLUDED_PREFIXES)


def walk(root: Any, path: str) -> Any:
    """``root.a.b.c``, or Absent."""
    at = root
    for part in path.split("."):
        try:
            at = getattr(at, part)
        except (AttributeError, ModuleNotFoundError) as error:
            if isinstance(error, ModuleNotFoundError) and not (error.name or "").endswith(part):
                raise  # the module is there and broken: a failure, not an absence
            raise Absent(f"{getattr(root, '__name__', root)}.{path}: {error}") from error
    return at


def _seeded(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    mortice.manual_seed(42)
    return op(*args, **kwargs)


def rebind(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The same Python function with its global ``torch`` (and torch.nn.functional) ours.

    OpInfo wraps many operators in lambdas that reorder arguments or set a seed. Running the very
    lambda against mortice keeps both sides on one call.
    """
    if not isinstance(fn, types.FunctionType):
        raise Absent(f"{fn!r} is not a Python function")
    ours = dict(fn.__globals__)
    ours.update(torch=mortice, wrapper_set_seed=_seeded)
    if "F" in fn.__globals__:
        ours["F"] = walk(mortice, "nn.functional")
    clone = types.FunctionType(fn.__code__, ours, fn.__name__, fn.__defaults__, fn.__closure__)
    clone.__kwdefaults__ = fn.__kwdefaults__
    return clone


def is_torch_testing(fn: object) -> bool:
    return isinstance(fn, types.FunctionType) and fn.__module__.startswith("torch.testing.")


def function(op: Any) -> Callable[..., Any]:
    """mortice's callable for ``op.op``."""
    fn = op.op
    if is_torch_testing(fn):
        return rebind(fn)
    if isinstance(fn, torch._ops.OpOverload):
        return overload(fn)
    if isinstance(fn, torch._ops.OpOverloadPacket):
        return walk(mortice, f"ops.{fn}")
    if isinstance(fn, types.MethodDescriptorType):
        return walk(mortice.Tensor, fn.__name__)
    name = op.name.removeprefix("torch.")
    try:
        return walk(mortice, name)
    except Absent:
        if "." in name:
            raise
        root = mortice if name.startswith("_") and not name.startswith("__") else mortice.Tensor
        return walk(root, name if root is mortice.Tensor else f"ops.aten.{name}")


def overload(op: Any) -> Callable[..., Any]:
    """``mortice.ops.<ns>.<name>.<overload>`` for torch's OpOverload."""
    namespace = op.namespace
    packet = walk(mortice, f"ops.{namespace}.{op._schema.name.split('::')[1]}")
    return walk(packet, op._overloadname)


def method(op: Any) -> Callable[..., Any] | None:
    return _variant(op.get_method(), op.name)


def inplace(op: Any) -> Callable[..., Any] | None:
    return _variant(op.get_inplace(), op.name + "_")


def _variant(theirs: Any, name: str) -> Callable[..., Any] | None:
    if theirs is None:
        return None
    if isinstance(theirs, functools.partial):
        return functools.partial(_variant(theirs.func, name), *theirs.args, **theirs.keywords)
    if is_torch_testing(theirs):
        return rebind(theirs)
    if isinstance(theirs, types.FunctionType) and not theirs.__qualname__.startswith("Tensor"):
        path = f"{theirs.__module__}.{theirs.__qualname__}".removeprefix("torch.")
        return walk(mortice, path)
    return walk(mortice.Tensor, getattr(theirs, "__name__", name))
