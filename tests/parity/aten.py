"""Overload by overload: what torch's OpInfo samples call underneath, replayed through mortice.ops.

A dispatch mode records every ``aten`` overload that a sample, forward and backward, comes down to,
with its arguments and results. Each recorded call is made once more as
``mortice.ops.aten.<name>.<overload>(...)``. So ``convolution_backward`` and its like are compared
too, though no OpInfo names them. What no sample reaches has samples of ours, below.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import fakes
import torch
from checks import DTYPES, Plan, Result, brief, sample_tensors, say, seed_all, spread
from compare import Comparison
from convert import ToMortice, Unsupported, torch_tensors
from names import PICKING, RANDOM, Absent, excluded, full_name, overload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

HERE = Path(__file__).parent
SOURCES = HERE / "sources.json"  # overload -> OpInfos whose samples call it; made by --index
CORE = HERE / "core_aten.txt"

UNDEFINED = ("empty", "new_empty", "resize_", "empty_like")
DRAWS = (
    "rand",
    "normal",
    "uniform",
    "bernoulli",
    "multinomial",
    "dropout",
    "exponential",
    "cauchy",
    "geometric",
    "log_normal",
    "rrelu",
    "random",
)
PER_OVERLOAD = 24


class Call(NamedTuple):
    name: str  # "add.Tensor", "relu.default"
    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    after: Any  # (args, kwargs) once torch has run: what it wrote
    result: Any


def snapshot(value: Any) -> Any:
    """A copy with storage, strides and offset kept, tensor by tensor."""
    seen: dict[int, torch.Tensor] = {}

    def copy(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.layout is not torch.strided:
            return leaf
        if id(leaf) not in seen:
            plain = leaf.detach().resolve_conj().resolve_neg()
            flat = torch.empty(0, dtype=plain.dtype).set_(plain.untyped_storage()).clone()
            seen[id(leaf)] = flat.as_strided(plain.shape, plain.stride(), plain.storage_offset())
        return seen[id(leaf)]

    return tree_map(copy, value)


class Recorder(TorchDispatchMode):
    """Appends every aten call to ``calls``; ``wanted`` limits them to some overloads."""

    def __init__(self, wanted: frozenset[str] | None, names_only: bool = False) -> None:
        super().__init__()
        self.wanted, self.names_only = wanted, names_only
        self.calls: list[Call] = []
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = str(func).removeprefix("aten.")
        self.names.add(name)
        if self.names_only or func.namespace != "aten" or not self._take(name):
            return func(*args, **kwargs)
        before = snapshot((args, kwargs))
        result = func(*args, **kwargs)
        after, kept = snapshot((args, kwargs)), snapshot(result)
        self.calls.append(Call(name, func, *before, after, kept))
        return result

    def _take(self, name: str) -> bool:
        return self.wanted is None or name in self.wanted


def record(op: Any, dtype: torch.dtype, recorder: Recorder, plan: Plan) -> None:
    """Runs the OpInfo's samples, with gradients where there are any, under the recorder."""
    backward = dtype in op.supported_backward_dtypes("cpu")
    seed_all(plan.seed)
    try:
        listed = list(op.sample_inputs("cpu", dtype, requires_grad=backward, set_seed=False))
    except Exception:  # not every generator takes every dtype
        return
    for _, sample in spread(listed, plan.samples):
        try:
            with recorder:
                result = op.op(sample.input, *sample.args, **sample.kwargs)
                result = sample.output_process_fn_grad(result)
                outputs = [t for t in torch_tensors(result) if t.requires_grad]
                leaves = [t for t in sample_tensors(sample) if t.requires_grad]
                if outputs and leaves:
                    ones = [torch.ones_like(t) for t in outputs]
                    torch.autograd.grad(outputs, leaves, ones, allow_unused=True)
        except Exception:  # an invalid sample for this dtype: what was recorded up to here counts
            continue


def replay(call: Call, infos: list[Any]) -> str | None:
    """None, or what differs between our overload's result and torch's.

    The tolerance is that of the OpInfos from whose samples the call was recorded.
    """
    ours = overload(call.op)
    convert = ToMortice()
    args, kwargs = convert(call.args), convert(call.kwargs)
    result = ours(*args, **kwargs)
    stem = call.name.split(".")[0].lstrip("_").removeprefix("native_")
    values = not stem.startswith(DRAWS) and not stem.startswith(UNDEFINED)
    same = Comparison(infos, values=values, gradient="backward" in call.name)
    picking = stem in PICKING and isinstance(result, tuple) and len(result) == 2
    if picking:
        rest = call.args[2:] if stem in ("topk", "kthvalue") else call.args[1:]
        rest = tuple(x for x in rest if type(x) is not bool)
        dim = call.kwargs.get("dim", rest[0] if rest else -1)
        message = same.picked(call.args[0], dim, result, call.result)
    else:
        message = same(result, call.result, _precise(call))
    if message is not None or not call.op._schema.is_mutable:
        return message
    known = {id(theirs): mine for theirs, mine in convert.leaves}
    before = sample_like(call.args, call.kwargs)
    for theirs, after in zip(before, sample_like(*call.after), strict=True):
        message = same(known[id(theirs)], after)
        if message is not None:
            return f"an argument afterwards: {message}"
    return None


def sample_like(args: Any, kwargs: Any) -> list[torch.Tensor]:
    return torch_tensors([list(args), kwargs])


def _precise(call: Call) -> Any:
    def run() -> Any:
        def wide(leaf: Any) -> Any:
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
                return leaf.double()
            if isinstance(leaf, torch.Tensor) and leaf.is_complex():
                return leaf.to(torch.complex128)
            return leaf

        return call.op(*tree_map(wide, call.args), **tree_map(wide, call.kwargs))

    return run


def thin(calls: list[Call], limit: int | None) -> list[Call]:
    """At most ``limit`` calls of one overload, of as many different forms as there are."""
    forms: dict[str, list[Call]] = {}
    for call in calls:
        forms.setdefault(brief((call.args, call.kwargs)), []).append(call)
    firsts = [group[0] for group in forms.values()]
    return [call for _, call in spread(firsts, limit)]


def replay_fake(call: Call, *, symbolic: bool = False) -> str | None:
    """None, or what differs between our overload on tensors without data and on real ones."""
    convert = ToMortice()
    args, kwargs = convert(call.args), convert(call.kwargs)
    return fakes.difference(overload(call.op), args, kwargs, call.name, symbolic=symbolic)


def check(calls: list[Call], infos: list[Any], dtype: str, plan: Plan) -> Iterator[Result]:
    aspects = {
        "overload": lambda call: replay(call, infos),
        "fake": replay_fake,
        "symbolic": partial(replay_fake, symbolic=True),
    }
    for index, call in enumerate(thin(calls, PER_OVERLOAD if plan.samples else None)):
        for aspect, run in aspects.items():
            key = f"{dtype} {aspect} {index}"
            if aspect not in plan.aspects or key in plan.skip:
                continue
            plan.begin(key)
            try:
                message = run(call)
            except Absent as error:
                yield Result(f"{dtype} overload -", "overload", f"absent: {error}")
                return
            except Unsupported:
                continue
            except Exception as error:
                message = say(error)
            sample = brief(call.args)
            sample += "".join(f", {k}={brief(v)}" for k, v in call.kwargs.items())
            yield Result(key, aspect, message, sample if message else "")


def core_overloads() -> list[str]:
    return CORE.read_text().split()


def sources() -> dict[str, list[str]]:
    return json.loads(SOURCES.read_text())


def run(name: str, dtype: str, op_db: dict[str, Any], plan: Plan) -> Iterator[Result]:
    """All checks of one overload with one dtype."""
    recorder = Recorder(frozenset([name]))
    infos = [op_db[source] for source in sources().get(name, [])[:6] if source in op_db]
    for info in infos:
        record(info, DTYPES[dtype], recorder, plan)
    calls = recorder.calls + (own_samples(name) if dtype == "float32" else [])
    yield from check(calls, infos, dtype, plan)


def index(ops: list[Any], plan: Plan) -> dict[str, list[str]]:
    """Which OpInfos come down to which overloads; the plain ones first."""
    found: dict[str, list[str]] = {}
    for op in ops:
        if excluded(op):
            continue
        recorder = Recorder(None, names_only=True)
        for dtype in (torch.float32, torch.int64, torch.complex64, torch.bool):
            if dtype in op.supported_dtypes("cpu"):
                record(op, dtype, recorder, plan)
        for name in recorder.names:
            found.setdefault(name, []).append(full_name(op))
    for name, users in found.items():
        stem = name.split(".")[0].strip("_").removeprefix("native_").removesuffix("_backward")
        users.sort(
            key=lambda user: (user.split(":")[0].split(".")[-1] != stem, user in RANDOM, user)
        )
    return {name: users[:6] for name, users in sorted(found.items())}


# -- samples of ours ---------------------------------------------------------------------------


def _x() -> torch.Tensor:
    return torch.arange(24.0).reshape(2, 3, 4)


def _own() -> dict[str, list[tuple[Any, ...]]]:
    x = _x()
    spaced = x.transpose(0, 2)[1:, :, ::1]
    return {
        "sym_size.int": [(x, 0), (x, -1), (spaced, 1)],
        "sym_stride.int": [(x, 0), (x, -1), (spaced, 2)],
        "sym_numel.default": [(x,), (spaced,), (torch.empty(0, 3),)],
        "sym_storage_offset.default": [(x,), (spaced,), (x[1],)],
        "sym_is_contiguous.default": [(x,), (spaced,)],
        "_local_scalar_dense.default": [
            (torch.tensor(2.5),),
            (torch.tensor([[7]]),),
            (torch.tensor(True),),
            (torch.tensor(1 + 2j),),
            (torch.tensor(1.5, dtype=torch.bfloat16),),
        ],
        "scalar_tensor.default": [(2,), (2.5,), (True,)],
        "rand.default": [((3, 4),)],
        "randn.default": [((3, 4),)],
        "randperm.default": [(6,)],
        "native_dropout.default": [(x, 0.5, True), (x, 0.0, True), (x, 0.5, False)],
        "alias.default": [(x,), (spaced,)],
        "fill.Scalar": [(x, 3.0), (spaced, 2), (torch.tensor([1, 2]), 5)],
        "copy.default": [(x, torch.ones(4)), (torch.zeros(2, dtype=torch.int64), torch.ones(2))],
        "resize_.default": [(torch.arange(6.0), (2, 3)), (torch.arange(6.0), (2, 2))],
        "empty.memory_format": [((2, 3),), ((),), ((0, 2),)],
        "empty_strided.default": [((2, 3), (1, 2))],
        "any.dims": [(x, [0, 1]), (x, None), (x, [2], True)],
        "clamp.Tensor": [(x, torch.tensor(3.0), None), (x, None, torch.full((4,), 9.0))],
        "fmod.Scalar": [(x, 5), (-x, 2.5)],
        "remainder.Scalar": [(x, 5), (-x, 2.5)],
        "pow.Scalar": [(2, x), (2.0, -x)],
        "atan2.out": [(x, -x, torch.empty(2, 3, 4)), (x, x[0], torch.empty(2, 3, 4))],
        "convolution.default": [(x, torch.ones(2, 3, 3), None, [1], [1], [1], False, [0], 1)],
        "_pdist_forward.default": [(x[0], 2.0), (x[0], 1.0), (x[0], float("inf")), (x[0], 0.0)],
        "_cdist_forward.default": [(x, x + 1, 2.0, None), (x, x + 1, 1.0, 2)],
        "_embedding_bag.default": [
            (torch.arange(12.0).reshape(4, 3), torch.tensor([0, 1, 3, 2]), torch.tensor([0, 2]))
        ],
        "embedding_dense_backward.default": [
            (x.reshape(6, 4), torch.tensor([0, 1, 1, 2, 0, 3]), 5, -1, False),
            (x.reshape(6, 4), torch.tensor([0, 1, 1, 2, 0, 3]), 5, 1, True),
        ],
        "_adaptive_avg_pool2d_backward.default": [(torch.ones(2, 2, 2), x)],
        "avg_pool1d.default": [(x, [2]), (x, [3], [1], [1]), (x, [2], [2], [1], True, False)],
        "adaptive_avg_pool1d.default": [(x, [2]), (x, [3]), (x[0], [1])],
        "upsample_bilinear2d.vec": [
            (x[None], [6, 7], False, None),
            (x[None], [2, 2], True, None),
            (x[None], None, False, [2.0, 1.5]),
        ],
        "upsample_nearest2d.vec": [
            (x[None], [6, 7], None),
            (x[None], [2, 2], None),
            (x[None], None, [2.0, 1.5]),
        ],
        "var.dim": [(x, [1]), (x, [0, 2], False), (x, None, True, True), (x, [1], True, True)],
        "bitwise_and.Scalar": [(x.long(), 5), (x.bool(), True)],
        "bitwise_or.Scalar": [(x.long(), 5), (x.bool(), True)],
        "bitwise_xor.Scalar": [(x.long(), 5), (x.bool(), True)],
        "_native_batch_norm_legit_no_training.default": [
            (
                x,
                torch.tensor([1.0, 2.0, 3.0]),
                torch.ones(3),
                torch.arange(3.0),
                torch.ones(3),
                0.1,
                1e-5,
            ),
            (x, None, None, torch.arange(3.0), torch.full((3,), 2.0), 0.1, 1e-5),
        ],
        "mul.Scalar": [(x, 2), (x, 2.5)],
        "add.Scalar": [(x, 2), (x, 2.5, 3)],
        "sub.Scalar": [(x, 2), (x, 2.5, 3)],
        "div.Scalar": [(x, 2), (x.long(), 4)],
        "div.Scalar_mode": [(x, 3, "floor"), (x.long(), 3, "trunc")],
    }


_KEYWORDS = {"div.Scalar_mode": ("rounding_mode",), "atan2.out": ("out",)}


def own_samples(name: str) -> list[Call]:
    calls: list[Call] = []
    packet, overload_name = name.rsplit(".", 1)
    for args in _own().get(name, []):
        op = getattr(getattr(torch.ops.aten, packet), overload_name)
        kwargs: dict[str, Any] = {}
        for keyword in reversed(_KEYWORDS.get(name, ())):
            *rest, last = args
            args, kwargs = tuple(rest), {**kwargs, keyword: last}
        before = snapshot((args, kwargs))
        result = op(*args, **kwargs)
        calls.append(Call(name, op, *before, snapshot((args, kwargs)), snapshot(result)))
    return calls
