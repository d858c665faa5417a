"""What is tried for one OpInfo and one dtype: forward, variants, gradients, error inputs."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import fakes
import numpy as np
import torch
import traces
from compare import Comparison
from convert import (
    ToMortice,
    Unsupported,
    mortice_tensors,
    tensor_from_mortice,
    torch_tensors,
)
from names import (
    PICKING,
    RANDOM,
    UNDEFINED,
    Absent,
    disowned,
    draws,
    full_name,
    function,
    inplace,
    method,
    rebind,
)

import mortice

DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int64": torch.int64,
    "int32": torch.int32,
    "uint8": torch.uint8,
    "bool": torch.bool,
    "complex64": torch.complex64,
}
ASPECTS = (
    "forward",
    "strided",
    "method",
    "inplace",
    "out",
    "grad",
    "gradgrad",
    "error",
    "random",
    "overload",
    "fake",
    "symbolic",
    "compiled",
    "traced",
)
# Those that look at one sample without gradients.
ONE_SAMPLE = (
    "forward", "strided", "method", "inplace", "out", "fake", "symbolic", "compiled", "traced",
)  # fmt: skip


class Result(NamedTuple):
    """One check. ``key`` is stable for a seed; ``message`` is None when it passed."""

    key: str
    aspect: str
    message: str | None
    sample: str = ""


class Plan(NamedTuple):
    """What to run: samples per dtype (None: all), seed, aspects, keys never to start again."""

    samples: int | None
    seed: int
    aspects: frozenset[str]
    skip: frozenset[str]
    begin: Callable[[str], None]  # told of each check before it starts


def seed_all(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def spread(samples: list[Any], limit: int | None) -> list[tuple[int, Any]]:
    """At most ``limit`` of them, evenly over the list, first and last always in."""
    numbered = list(enumerate(samples))
    if limit is None or len(samples) <= limit:
        return numbered
    picks = sorted({round(i * (len(samples) - 1) / (limit - 1)) for i in range(limit)})
    return [numbered[i] for i in picks]


def brief(value: Any) -> str:
    """``f32[2,3]`` for tensors, repr for the rest."""
    if isinstance(value, torch.Tensor):
        kind = str(value.dtype).removeprefix("torch.")
        steps = "" if value.is_contiguous() else f" strides {list(value.stride())}"
        return f"{kind}{list(value.shape)}{steps}"
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        inside = ", ".join(brief(item) for item in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    text = repr(value)
    return text if len(text) < 60 else text[:57] + "..."


def brief_sample(sample: Any) -> str:
    parts = [brief(sample.input), *(brief(arg) for arg in sample.args)]
    parts += [f"{key}={brief(value)}" for key, value in sample.kwargs.items()]
    return ", ".join(parts)


def say(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    place = ""
    at = error.__traceback__
    while at is not None:
        file = at.tb_frame.f_code.co_filename
        if "mortice" in file and "parity" not in file:
            place = f" [{'/'.join(file.split('/')[-2:])}:{at.tb_lineno}]"
        at = at.tb_next
    return f"{type(error).__name__}: {lines[0][:220]}{place}"


class OperatorChecks:
    """All checks of one OpInfo. Absent is raised at once when mortice lacks the operator."""

    def __init__(self, op: Any, plan: Plan) -> None:
        self.op, self.plan = op, plan
        self.ours = function(op)
        self.values = op.name not in RANDOM and op.name not in UNDEFINED
        self.comparison = Comparison(op, values=self.values)
        self.same_gradient = Comparison(op, values=self.values, gradient=True)

    def same(self, actual: Any, expected: Any, precise: Any = None) -> str | None:
        """None, or what differs from torch's result."""
        if draws(self.op, self.sample):
            return Comparison(values=False)(actual, expected)
        pair = isinstance(expected, tuple) and len(expected) == 2
        if self.op.name in PICKING and pair and isinstance(actual, tuple) and len(actual) == 2:
            return self.comparison.picked(self.sample.input, self._dim(), actual, expected)
        if self.op.name == "argsort":
            return self.comparison.ordered(self.sample.input, self._dim(), actual, expected)
        return self.comparison(actual, expected, precise)

    def _dim(self) -> int:
        """The dimension of the sample's call: the first integer after k, if any, else the last."""
        rest = self.sample.args[1 if self.op.name in ("topk", "kthvalue") else 0 :]
        return self.sample.kwargs.get("dim", rest[0] if rest else -1)

    def run(self, dtype_name: str) -> Iterator[Result]:
        dtype = DTYPES[dtype_name]
        if dtype in self.op.supported_dtypes("cpu"):
            for index, sample in self._samples(dtype, requires_grad=False):
                yield from self._one(dtype_name, index, sample)
        wants_grad = {"grad", "gradgrad", "fake", "symbolic", "traced"} & self.plan.aspects
        if wants_grad and self.values and dtype in self.op.supported_backward_dtypes("cpu"):
            for index, sample in self._samples(dtype, requires_grad=True):
                yield from self._gradients(dtype_name, index, sample)

    def _samples(self, dtype: torch.dtype, *, requires_grad: bool) -> list[tuple[int, Any]]:
        seed_all(self.plan.seed)
        listed = self.op.sample_inputs("cpu", dtype, requires_grad=requires_grad, set_seed=False)
        return spread(list(listed), self.plan.samples)

    def _one(self, dtype_name: str, index: int, sample: Any) -> Iterator[Result]:
        self.sample = sample
        self.after = copy_sample(sample)
        try:
            expected = self._theirs(self.op.op, self.after)
        except Exception:  # torch itself refuses this sample on this dtype: nothing to compare
            return
        if any(t.dtype is torch.complex32 for t in torch_tensors(expected)):
            return  # storage-only in mortice
        for aspect in ONE_SAMPLE:
            key = f"{dtype_name} {aspect} {index}"
            if aspect not in self.plan.aspects or key in self.plan.skip:
                continue
            self.plan.begin(key)
            try:
                message = getattr(self, "_" + aspect)(sample, expected)
            except (Unsupported, NotApplicable):
                continue
            except Exception as error:
                message = say(error)
            yield Result(key, aspect, message, brief_sample(sample) if message else "")

    # -- forward and its variants ------------------------------------------------------------

    def _theirs(self, fn: Callable[..., Any], sample: Any) -> Any:
        torch.manual_seed(self.plan.seed)
        return sample.output_process_fn_grad(fn(sample.input, *sample.args, **sample.kwargs))

    def _call(self, fn: Callable[..., Any], sample: Any, **extra: Any) -> tuple[Any, ToMortice]:
        convert = ToMortice()
        first, args = convert(sample.input), convert(tuple(sample.args))
        kwargs = {**convert(dict(sample.kwargs)), **extra}
        result = fn(first, *args, **kwargs)
        return convert(sample.output_process_fn_grad)(result), convert

    def _precise(self, sample: Any) -> Callable[[], Any]:
        def run() -> Any:
            return self._theirs(self.op.op, sample.transform(widen))

        return run

    def _forward(self, sample: Any, expected: Any) -> str | None:
        actual, convert = self._call(self.ours, sample)
        difference = self.same(actual, expected, self._precise(sample))
        return difference or self._same_writes(sample, convert)

    def _same_writes(self, sample: Any, convert: ToMortice) -> str | None:
        """Arguments end up as torch leaves them: untouched, or written (running statistics)."""
        if not self.values:
            return None
        known = {id(theirs): ours for theirs, ours in convert.leaves}
        for before, after in zip(sample_tensors(sample), sample_tensors(self.after), strict=True):
            difference = self.comparison(known[id(before)], after)
            if difference is not None:
                return f"an argument afterwards: {difference}"
        return None

    def _compiled(self, sample: Any, expected: Any) -> str | None:
        """As compiled by inductor, against eager: the first call and one that may be replayed.

        Fused code rounds to 16 bits once, at its end: a result as near as eager's is to eager's in
        double precision is accepted.
        """
        if not self.values or draws(self.op, sample):
            raise NotApplicable
        theirs = self._eager(copy_sample(sample))
        run = mortice.compile(self.ours, backend="inductor")
        compare = Comparison(self.op, gradient=True)
        precise = cache(lambda: self._eager(sample.transform(widen)))
        for _ in range(2):
            actual, _ = self._call(run, copy_sample(sample))
            found = mortice_tensors(actual)
            if len(found) != len(theirs):
                return f"{len(found)} tensors, expected {len(theirs)}"
            for k, (a, b) in enumerate(zip(found, theirs, strict=True)):
                difference = compare(a, b, lambda k=k: precise()[k])
                if difference is not None:
                    return difference
        return None

    def _eager(self, sample: Any) -> list[torch.Tensor]:
        """What mortice gives uncompiled."""
        eager, _ = self._call(self.ours, sample)
        return [tensor_from_mortice(t) for t in mortice_tensors(eager)]

    def _strided(self, sample: Any, expected: Any) -> str | None:
        """Non-contiguous copies of all inputs."""
        spaced = sample.noncontiguous()
        if all(t.is_contiguous() for t in sample_tensors(spaced)):
            raise NotApplicable
        theirs = refused_is_not_applicable(self._theirs, self.op.op, spaced)
        self.sample = spaced
        actual, _ = self._call(self.ours, spaced)
        return self.same(actual, theirs, self._precise(spaced))

    def _method(self, sample: Any, expected: Any) -> str | None:
        if self.op.get_method() is None or self.op.get_method() is self.op.op:
            raise NotApplicable
        theirs = refused_is_not_applicable(self._theirs, self.op.get_method(), sample)
        actual, _ = self._call(ours_or_fail(method(self.op)), sample)
        return self.same(actual, theirs, self._precise(sample))

    def _inplace(self, sample: Any, expected: Any) -> str | None:
        variant = self.op.get_inplace()
        if variant is None or not isinstance(sample.input, torch.Tensor):
            raise NotApplicable
        fresh = copy_sample(sample)
        try:
            theirs = self._theirs(variant, fresh)
        except Exception as error:
            return self._inplace_refused(sample, error)
        if sample.broadcasts_input:
            raise NotApplicable  # to be refused by OpInfo's word; torch resized self (addbmm_)
        actual, convert = self._call(ours_or_fail(inplace(self.op)), copy_sample(sample))
        written = convert.leaves[0][1]
        if isinstance(theirs, torch.Tensor) and theirs.data_ptr() == fresh.input.data_ptr():
            difference = self.comparison(written, fresh.input, self._precise(sample))
            if difference is not None:
                return f"written to self: {difference}"
        return self.same(actual, theirs, self._precise(sample))

    def _inplace_refused(self, sample: Any, theirs: Exception) -> str | None:
        try:
            self._call(ours_or_fail(inplace(self.op)), copy_sample(sample))
        except Absent:
            raise
        except Exception as error:
            return wrong_kind(error, theirs)
        return f"accepted, where torch raises {say(theirs)}"

    def _out(self, sample: Any, expected: Any) -> str | None:
        tensors = torch_tensors(expected)
        if not self.op.supports_out or not tensors or isinstance(expected, list):
            raise NotApplicable
        if isinstance(self.ours, mortice.ops.OpOverloadPacket):
            raise NotApplicable  # ATen's schemas name their outputs one by one
        self._their_out(sample, expected)
        # Ones, so that what is not written shows; as torch lays a fresh tensor out.
        buffers = tuple(ToMortice()(torch.ones(t.shape, dtype=t.dtype)) for t in tensors)
        single = isinstance(expected, torch.Tensor)
        actual, _ = self._call(self.ours, sample, out=buffers[0] if single else buffers)
        if not self.values:
            return None
        processed = sample.output_process_fn_grad(expected) is not expected
        for ours, buffer in zip(mortice_tensors(actual), buffers, strict=True):
            if ours is not buffer and not processed:
                return "the result is not the tensor given as out="
        return self.same(actual, expected, self._precise(sample))

    def _their_out(self, sample: Any, expected: Any) -> None:
        empty = [
            torch.empty_like(t, memory_format=torch.contiguous_format)
            for t in torch_tensors(expected)
        ]
        out = empty[0] if isinstance(expected, torch.Tensor) else tuple(empty)
        result = refused_is_not_applicable(
            self.op.op, sample.input, *sample.args, **sample.kwargs, out=out
        )
        if result is None:
            raise NotApplicable

    # -- tensors without data ----------------------------------------------------------------

    def _fake(
        self, sample: Any, expected: Any, *, symbolic: bool = False, gradient: bool = False
    ) -> str | None:
        convert = ToMortice()
        first, args = convert(sample.input), convert(tuple(sample.args))
        kwargs = convert(dict(sample.kwargs))
        name = full_name(self.op).partition(":")[0]
        call = fakes.gradients(self.ours) if gradient else self.ours
        return fakes.difference(call, (first, *args), kwargs, name, symbolic=symbolic)

    def _symbolic(self, sample: Any, expected: Any) -> str | None:
        return self._fake(sample, expected, symbolic=True)

    # -- graphs ------------------------------------------------------------------------------

    def _traced(self, sample: Any, expected: Any, *, gradient: bool = False) -> str | None:
        if not self.values or draws(self.op, sample):
            raise NotApplicable  # each call gives other values
        convert = ToMortice()
        first, args = convert(sample.input), convert(tuple(sample.args))
        kwargs = convert(dict(sample.kwargs))
        name = full_name(self.op).partition(":")[0]
        call = fakes.gradients(self.ours) if gradient else self.ours
        return traces.difference(call, (first, *args), kwargs, name)

    # -- gradients ---------------------------------------------------------------------------

    def _gradients(self, dtype_name: str, index: int, sample: Any) -> Iterator[Result]:
        if draws(self.op, sample) or (self.op.name in PICKING and has_ties(sample.input)):
            return  # which of equal elements gets the gradient is anybody's choice
        second = dtype_name == "float64" and self.op.supports_gradgrad
        for aspect, order in (("grad", 1), ("gradgrad", 2)):
            key = f"{dtype_name} {aspect} {index}"
            if (
                aspect not in self.plan.aspects
                or key in self.plan.skip
                or (order == 2 and not second)
                or disowned(self.op, f"test_fn_{aspect}", DTYPES[dtype_name])
            ):
                continue
            try:
                expected = TorchGradient(self, sample).run(order)
            except Exception:  # torch has no such gradient for this sample
                continue
            self.plan.begin(key)
            try:
                message = self._gradient(sample, expected, order)
            except (Unsupported, NotApplicable):
                continue
            except Exception as error:
                message = say(error)
            yield Result(key, aspect, message, brief_sample(sample) if message else "")
        for aspect in ("fake", "symbolic", "traced"):
            key = f"{dtype_name} {aspect} gradient {index}"
            if aspect not in self.plan.aspects or key in self.plan.skip:
                continue
            self.plan.begin(key)
            try:
                if aspect == "traced":
                    message = self._traced(sample, None, gradient=True)
                else:
                    message = self._fake(sample, None, symbolic=aspect == "symbolic", gradient=True)
            except (Unsupported, NotApplicable):
                continue
            except Exception as error:
                message = say(error)
            yield Result(key, aspect, message, brief_sample(sample) if message else "")

    def _gradient(self, sample: Any, expected: list[Any], order: int) -> str | None:
        actual = MorticeGradient(self, sample).run(order)

        def precise(i: int) -> Callable[[], Any]:
            return lambda: TorchGradient(self, sample.transform(widen)).run(order)[i]

        for i, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
            if theirs is None or ours is None:
                given = next((g for g in (ours, theirs) if g is not None), None)
                if given is not None and bool((given != 0).any()):
                    which = "no gradient" if ours is None else "a gradient where torch has none"
                    return f"gradient {i}: {which}"
                continue
            difference = self.same_gradient(ours, theirs, precise(i), f"gradient {i}: ")
            if difference is not None:
                return difference
        return None

    # -- error inputs ------------------------------------------------------------------------

    def errors(self) -> Iterator[Result]:
        """torch's error inputs; the type of the exception counts."""
        if "error" not in self.plan.aspects or self.op.error_inputs_func is None:
            return
        seed_all(self.plan.seed)
        listed = self.op.error_inputs("cpu", set_seed=False)
        for index, case in enumerate(listed):
            key = f"any error {index}"
            if key in self.plan.skip:
                continue
            sample = case.sample_input
            try:
                self.op.op(sample.input, *sample.args, **sample.kwargs)
                continue  # torch accepts it (a warning in its own test): not an error input here
            except Exception as error:
                theirs = error
            self.plan.begin(key)
            try:
                self._call(self.ours, sample)
                message: str | None = f"accepted, where torch raises {say(theirs)}"
            except Unsupported:
                continue
            except Exception as error:
                message = wrong_kind(error, theirs)
            yield Result(key, "error", message, brief_sample(sample) if message else "")


def has_ties(tensor: torch.Tensor) -> bool:
    return bool(tensor.detach().unique().numel() < tensor.numel())


class NotApplicable(Exception):
    """The sample says nothing about this aspect."""


def refused_is_not_applicable(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """torch's result; where torch itself refuses, there is nothing to compare."""
    try:
        return fn(*args, **kwargs)
    except Exception as error:
        raise NotApplicable from error


def ours_or_fail(fn: Callable[..., Any] | None) -> Callable[..., Any]:
    if fn is None:
        raise NotApplicable
    return fn


def sample_tensors(sample: Any) -> list[torch.Tensor]:
    return torch_tensors([sample.input, list(sample.args), sample.kwargs])


def widen(value: Any) -> Any:
    """Double precision; dtype arguments as well."""
    if isinstance(value, torch.dtype):
        if value.is_complex:
            return torch.complex128
        return torch.float64 if value.is_floating_point else value
    wide = {True: torch.float64}.get(value.is_floating_point())
    if wide is None:
        wide = torch.complex128 if value.is_complex() else value.dtype
    return value.detach().to(wide).requires_grad_(value.requires_grad)


def copy_sample(sample: Any) -> Any:
    """Clones of all tensors, so that an in-place call hurts nobody; expanded inputs stay expanded."""

    def copy(tensor: Any) -> Any:  # transform hands over dtypes, too
        if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
            return tensor
        plain = tensor.detach().resolve_conj().resolve_neg()
        flat = torch.empty(0, dtype=plain.dtype).set_(plain.untyped_storage()).clone()
        fresh = flat.as_strided(plain.shape, plain.stride(), plain.storage_offset())
        return fresh.requires_grad_(tensor.requires_grad)

    return sample.transform(copy)


def builtin_of(error: BaseException) -> type[BaseException]:
    return next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")


def wrong_kind(ours: BaseException, theirs: BaseException) -> str | None:
    """None if ``ours`` is of torch's kind; a missing kernel is not a precise error."""
    wanted = builtin_of(theirs)
    missing = isinstance(ours, NotImplementedError) and wanted is not NotImplementedError
    if isinstance(ours, wanted) and not missing:
        return None
    return f"{say(ours)} where torch raises {say(theirs)}"


class TorchGradient:
    """First or second derivatives of torch, with fixed cotangents."""

    def __init__(self, checks: OperatorChecks, sample: Any) -> None:
        self.sample, self.checks = sample, checks

    def outputs(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        op = self.checks.op
        # OpInfo's wrapper makes inputs symmetric or triangular first, where gradients need that.
        result = self.checks._theirs(partial(op.gradcheck_wrapper, op.op), self.sample)
        leaves = [t for t in sample_tensors(self.sample) if t.requires_grad]
        if any(t.dtype is torch.complex32 for t in torch_tensors(result)):
            raise NotApplicable  # storage-only in mortice
        return [t for t in torch_tensors(result) if t.requires_grad], leaves

    def run(self, order: int) -> list[torch.Tensor | None]:
        outputs, leaves = self.outputs()
        first = torch.autograd.grad(
            outputs, leaves, cotangents(outputs, 7), allow_unused=True, create_graph=order == 2
        )
        if order == 1:
            return list(first)
        live = [g for g in first if g is not None and g.requires_grad]
        if not live:
            return [None] * len(leaves)
        return list(torch.autograd.grad(live, leaves, cotangents(live, 8), allow_unused=True))


class MorticeGradient:
    """The same on our side. Cotangents are torch's, converted."""

    def __init__(self, checks: OperatorChecks, sample: Any) -> None:
        self.sample, self.checks = sample, checks

    def run(self, order: int) -> list[Any]:
        theirs, leaves = TorchGradient(self.checks, self.sample).outputs()
        wrapped = partial(rebind(self.checks.op.gradcheck_wrapper), self.checks.ours)
        result, convert = self.checks._call(wrapped, self.sample)
        known = {id(t): ours for t, ours in convert.leaves}
        ours_leaves = [known[id(t)] for t in leaves]
        outputs = [t for t in mortice_tensors(result) if t.requires_grad]
        if not outputs:
            return [None] * len(leaves)  # right if torch's gradients are zeros
        if len(outputs) != len(theirs):
            raise AssertionError(f"{len(outputs)} results require grad, expected {len(theirs)}")
        given = [ToMortice()(c) for c in cotangents(theirs, 7)]
        first = mortice.autograd.grad(
            outputs, ours_leaves, given, allow_unused=True, create_graph=order == 2
        )
        if order == 1:
            return list(first)
        wanted = torch.autograd.grad(
            theirs, leaves, cotangents(theirs, 7), allow_unused=True, create_graph=True
        )
        pairs = [
            (ours, g)
            for ours, g in zip(first, wanted, strict=True)
            if g is not None and g.requires_grad and ours is not None and ours.requires_grad
        ]
        live = [g for g in wanted if g is not None and g.requires_grad]
        if not pairs:
            return [None] * len(leaves)
        seeds = dict(zip(map(id, live), cotangents(live, 8), strict=True))
        given = [ToMortice()(seeds[id(g)]) for _, g in pairs]
        return list(
            mortice.autograd.grad(
                [ours for ours, _ in pairs], ours_leaves, given, allow_unused=True
            )
        )


def cotangents(tensors: list[torch.Tensor], seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    wide = {True: torch.complex128, False: torch.float64}
    # Drawn in double and cast, so that the call in higher precision sees the same ones.
    return [
        torch.randn(t.shape, dtype=wide[t.is_complex()], generator=generator).to(t.dtype)
        for t in tensors
    ]


def quiet() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
