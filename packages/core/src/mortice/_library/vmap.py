"""``vmap``: a function of samples, applied to a batch; and batching rules of operators.

Inside, a tensor that is batched stands for one of its samples: its sizes lack the batch's dimension.
An operator that meets such a tensor runs its batching rule, if it has one, and else once for each
sample, the results stacked. That is right for every operator, and slow; it warns once.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from mortice._base.errors import InvalidValue, ShapeError
from mortice._dispatch.operator import Operator, get
from mortice._library.registration import Library, get_operator, kept_library
from mortice._tensor.subclass import make_wrapper_subclass
from mortice._tensor.tensor import Tensor

#: operator -> (rule, where it came from)
_RULES: dict[str, list[Any]] = {}
_warned = [False]
_nesting = threading.local()


class VmapInfo:
    """What a batching rule is told: ``batch_size``, and ``randomness`` as vmap was asked for.

    ``level`` counts the vmaps around: the innermost is applied first.
    """

    __slots__ = ("batch_size", "level", "randomness")

    def __init__(self, batch_size: int, randomness: str, level: int) -> None:
        self.batch_size = batch_size
        self.randomness = randomness
        self.level = level


class BatchedTensor(Tensor):
    """One sample of ``value``, all samples at once: ``value`` has the batch in dimension ``dim``."""

    value: Any
    dim_of_batch: int
    info: VmapInfo

    @classmethod
    def __mortice_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"BatchedTensor(dim={self.dim_of_batch}, value={self.value!r})"


def _batched(value: Any, dim: int, info: VmapInfo) -> Any:
    shape = list(value.shape)
    del shape[dim]
    r = make_wrapper_subclass(BatchedTensor, shape, dtype=value.dtype, device=value.device)
    r.value, r.dim_of_batch, r.info = value, dim, info
    return r


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    operator: Operator = func.operator
    infos = [x.info for x in _flat([args, kwargs]) if isinstance(x, BatchedTensor)]
    info = max(infos, key=lambda found: found.level)
    rules = _RULES.get(operator.name)
    if rules:
        return _by_rule(rules[-1], info, args, kwargs)
    if not _warned[0]:
        _warned[0] = True
        warnings.warn(
            f"vmap: {operator.qualified} has no batching rule and runs once for each sample. "
            "Operators of your own may have one, by mortice.library.register_vmap. This is said once.",
            UserWarning,
            stacklevel=3,
        )
    return _by_sample(func, info, args, kwargs)


def _by_rule(rule: Any, info: VmapInfo, args: Any, kwargs: Any) -> Any:
    dims = tuple(_map(x, info, lambda b: b.dim_of_batch, otherwise=None) for x in args)
    values = [_map(x, info, lambda b: b.value) for x in args]
    result, out_dims = rule(info, dims, *values, **kwargs)
    return _wrapped(result, out_dims, info)


def _wrapped(result: Any, dims: Any, info: VmapInfo) -> Any:
    if isinstance(result, (list, tuple)):
        each = dims if isinstance(dims, (list, tuple)) else [dims] * len(result)
        return type(result)(_wrapped(r, d, info) for r, d in zip(result, each))
    if dims is None or not isinstance(result, Tensor):
        return result
    return _batched(result, dims % result.ndim, info)


def _by_sample(func: Any, info: VmapInfo, args: Any, kwargs: Any) -> Any:
    results: list[Any] = []
    for i in range(info.batch_size):

        def sample(b: BatchedTensor, i: int = i) -> Any:
            return b.value.select(b.dim_of_batch, i)

        results.append(
            func(
                *[_map(x, info, sample) for x in args],
                **{k: _map(x, info, sample) for k, x in kwargs.items()},
            )
        )
    written = func.operator.schema.mutated
    if (
        written and func.operator.schema.returns
    ):  # the samples were views: what they show is written
        return args[written[0]]
    return _stacked(results, info)


def _stacked(results: list[Any], info: VmapInfo) -> Any:
    first = results[0]
    if isinstance(first, Tensor):
        if any(tuple(r.shape) != tuple(first.shape) for r in results):
            shapes = [tuple(r.shape) for r in results]
            raise ShapeError(
                f"vmap: the samples' results differ in shape ({shapes[0]} and others), so that they "
                "are no batch. The shape may not depend on values."
            )
        return _batched(get("stack")(tuple(results), 0), 0, info)
    if isinstance(first, (list, tuple)):
        return type(first)(_stacked(list(row), info) for row in zip(*results))
    if any(r != first for r in results):
        raise InvalidValue(
            f"vmap: the samples give different numbers ({first!r} and others). A value of a batched "
            "tensor cannot be read (.item(), if x > 0) inside vmap."
        )
    return first


def _map(value: Any, info: VmapInfo, change: Callable[[Any], Any], **otherwise: Any) -> Any:
    """``change`` of each tensor batched by ``info``; what is not stays, or is ``otherwise``."""
    if isinstance(value, BatchedTensor) and value.info is info:
        return change(value)
    if isinstance(value, (list, tuple)):
        items = [_map(x, info, change, **otherwise) for x in value]
        return items if isinstance(value, list) else tuple(items)
    return otherwise["otherwise"] if otherwise else value


def _flat(value: Any) -> Any:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)
    else:
        yield value


# -- vmap ------------------------------------------------------------------------------------------


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """``func`` over a batch: where it is written for one sample, the result takes all at once.

    Args:
        func: Takes tensors without the batch's dimension.
        in_dims: Where each argument has the batch: a dim for all, or a tuple with one, or None for
            what is the same for all samples, for each argument.
        out_dims: Where results have it: a dim for all, or a tuple with one for each.
        randomness: "error", "different" or "same": told to batching rules.
        chunk_size: How many samples at a time; all if None.
    """
    if randomness not in ("error", "different", "same"):
        raise InvalidValue(
            f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}"
        )

    def mapped(*args: Any, **kwargs: Any) -> Any:
        dims = _dims_of(args, in_dims)
        size = _batch_size(args, dims)
        level = getattr(_nesting, "depth", 0) + 1
        if chunk_size is None or chunk_size >= size:
            info = VmapInfo(size, randomness, level)
            return _once(func, args, kwargs, dims, out_dims, info)
        parts: list[Any] = []
        for start in range(0, size, chunk_size):
            n = min(chunk_size, size - start)
            some = [x if d is None else x.narrow(d, start, n) for x, d in zip(args, dims)]
            info = VmapInfo(n, randomness, level)
            parts.append(_once(func, some, kwargs, dims, out_dims, info))
        return _joined(parts, out_dims)

    return mapped


def _dims_of(args: Sequence[Any], in_dims: Any) -> list[int | None]:
    given = [in_dims] * len(args) if isinstance(in_dims, int) else list(in_dims)
    if len(given) != len(args):
        raise InvalidValue(
            f"vmap: in_dims has {len(given)} entries, and the function is called with {len(args)} "
            "arguments. Give one entry for each."
        )
    found: list[int | None] = []
    for x, d in zip(args, given):
        if d is None:
            found.append(None)
            continue
        if not isinstance(x, Tensor):
            raise InvalidValue(
                f"vmap: in_dims says {d} for an argument of type {type(x).__name__}; only tensors are "
                "batched. Say None."
            )
        if not -x.ndim <= d < x.ndim:
            raise InvalidValue(
                f"vmap: in_dim {d} is out of range for an argument of shape {tuple(x.shape)}."
            )
        found.append(d % x.ndim)
    return found


def _batch_size(args: Sequence[Any], dims: Sequence[int | None]) -> int:
    sizes = {x.shape[d] for x, d in zip(args, dims) if d is not None}
    if len(sizes) != 1:
        shown = "no argument is batched" if not sizes else f"batches of {sorted(sizes)} meet"
        raise InvalidValue(f"vmap: expected all tensors to have one batch size, but {shown}.")
    return sizes.pop()


def _once(func: Any, args: Any, kwargs: Any, dims: Any, out_dims: Any, info: VmapInfo) -> Any:
    given = [x if d is None else _batched(x, d, info) for x, d in zip(args, dims)]
    _nesting.depth = info.level
    try:
        return _finished(func(*given, **kwargs), out_dims, info)
    finally:
        _nesting.depth = info.level - 1


def _finished(result: Any, out_dims: Any, info: VmapInfo) -> Any:
    """Batched results as tensors that have the batch where ``out_dims`` says."""
    if isinstance(result, (list, tuple)):
        each = out_dims if isinstance(out_dims, (list, tuple)) else [out_dims] * len(result)
        return type(result)(_finished(r, d, info) for r, d in zip(result, each))
    if not isinstance(result, Tensor):
        raise InvalidValue(
            f"vmap: the function must only return Tensors, got type {type(result).__name__}."
        )
    if not isinstance(result, BatchedTensor) or result.info is not info:
        return result.unsqueeze(out_dims).expand(
            [info.batch_size if d == out_dims % (result.ndim + 1) else -1
             for d in range(result.ndim + 1)]
        )  # fmt: skip
    return result.value.movedim(result.dim_of_batch, out_dims)


def _joined(parts: list[Any], out_dims: Any) -> Any:
    first = parts[0]
    if isinstance(first, (list, tuple)):
        each = out_dims if isinstance(out_dims, (list, tuple)) else [out_dims] * len(first)
        return type(first)(_joined(list(p), d) for p, d in zip(zip(*parts), each))
    return get("cat")(tuple(parts), out_dims)


def register_vmap(op: Any, func: Any = None, /, *, lib: Library | None = None) -> Any:
    """Give an operator a batching rule; a decorator if ``func`` is left away.

    ``func(info, in_dims, *args, **kwargs)`` gets the batched tensors and where each has the batch
    (None where it has none), and returns (results, where they have it).
    """
    operator = get_operator(op, "register_vmap")
    keywords = [a.name for a in operator.schema.arguments if a.kwarg_only and a.type.is_tensor]
    if keywords:
        raise NotImplementedError(
            f"register_vmap: {operator.qualified} takes tensors as keywords ({', '.join(keywords)}), "
            "which batching rules are not told of. Make them positional."
        )

    def register(rule: Any) -> Any:
        rules = _RULES.setdefault(operator.name, [])
        rules.append(rule)
        library = lib or kept_library(operator.schema.namespace, "FRAGMENT")
        library._undo.append(lambda: rules.remove(rule) if rule in rules else None)  # pyright: ignore[reportPrivateUsage]
        return rule

    return register if func is None else register(func)
