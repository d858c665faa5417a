"""The reduction family: one work item for each result, or several where there are few results."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import mortice
from mortice.backend import empty
from mortice_opencl.source import (
    PREAMBLE,
    TYPES,
    collapsed,
    longs,
    offset,
    parameters,
    position,
    values,
)


class Fold(NamedTuple):
    """How values become one: ``acc`` starts as ``first``, takes each ``v``, and ends as ``last``.

    ``N`` is how many there were; ``dim`` the position of the dimensions among the operator's
    arguments. ``kind`` is the type of ``acc`` and ``v`` if it is not the usual one.
    """

    first: str
    step: str
    last: str = "acc"
    dim: int | None = None
    integers: bool = True
    kind: str = ""


_LARGEST = "(v > acc || v != v) ? v : acc"
_SMALLEST = "(v < acc || v != v) ? v : acc"

FOLDS = {
    "sum": Fold("0", "acc + v"),
    "sum.dim_IntList": Fold("0", "acc + v", dim=1),
    "mean": Fold("0", "acc + v", "acc / N", integers=False),
    "mean.dim": Fold("0", "acc + v", "acc / N", dim=1, integers=False),
    "prod": Fold("1", "acc * v"),
    "prod.dim_int": Fold("1", "acc * v", dim=1),
    "amax": Fold("LEAST", _LARGEST, dim=1),
    "amin": Fold("MOST", _SMALLEST, dim=1),
    "max": Fold("LEAST", _LARGEST),
    "min": Fold("MOST", _SMALLEST),
    "any": Fold("0", "acc || v != 0"),
    "any.dim": Fold("0", "acc || v != 0", dim=1),
    "all": Fold("1", "acc && v != 0"),
    "all.dim": Fold("1", "acc && v != 0", dim=1),
    "linalg_vector_norm": Fold("0", "acc + v * v", "sqrt(acc)", dim=2, integers=False),
}
#: Sums of values and of squares, in double.
_MOMENTS = Fold("(A)(0)", "acc + (A)(v.x, v.x * v.x)", dim=1, integers=False, kind="double2")
SPREADS = {"var.correction": "{}", "std.correction": "sqrt({})"}
#: Operators that also say where: the first of the values that win.
PLACES = {"argmax": "v > acc", "argmin": "v < acc", "max.dim": "v > acc", "min.dim": "v < acc"}
#: Results that are few are made of so many parts, if each has values enough.
PARTS, WORTH = 64, 256


def kernel(runtime: Any, op: str, dtypes: tuple[Any, ...]) -> Callable[..., None] | None:
    """The kernel of a reduction, or None."""
    if op in PLACES:
        return lambda *arguments, stream: _find(runtime, op, arguments, stream)
    if op in SPREADS and dtypes[0].is_floating_point:
        return lambda *arguments, stream: _spread(runtime, op, arguments, stream)
    fold = FOLDS.get(op)
    if fold is None or not (fold.integers or dtypes[0].is_floating_point):
        return None
    if op == "linalg_vector_norm":
        # Asked by dtypes alone; other orders than the second go on as a power of a sum.
        return lambda *arguments, stream: _norm(runtime, fold, arguments, stream)
    return lambda *arguments, stream: _reduce(
        runtime, fold, arguments[0], arguments[-1], _dims(arguments, fold.dim), stream
    )


def _dims(arguments: tuple[Any, ...], at: int | None) -> tuple[int, ...]:
    """The dimensions that an operator reduces; all where it names none."""
    rank = len(arguments[0].shape)
    named = None if at is None else arguments[at]
    if named is None or (isinstance(named, (list, tuple)) and not named):
        return tuple(range(rank))
    every = named if isinstance(named, (list, tuple)) else [named]
    return tuple(sorted(d % rank for d in every)) if rank else ()


def _norm(runtime: Any, fold: Fold, arguments: tuple[Any, ...], queue: Any) -> None:
    order = float(arguments[1])
    if order == float("inf"):
        fold = Fold("0", "fmax(acc, fabs(v))")
    elif order == float("-inf"):
        fold = Fold("INFINITY", "fmin(acc, fabs(v))")
    elif order == 0:
        fold = Fold("0", "acc + (v != 0)")
    elif order != 2:
        fold = Fold("0", f"acc + pow(fabs(v), (A){order!r})", f"pow(acc, (A){1 / order!r})")
    _reduce(runtime, fold, arguments[0], arguments[-1], _dims(arguments, 2), queue)


def _spread(runtime: Any, op: str, arguments: tuple[Any, ...], queue: Any) -> None:
    array, _, correction, _, out = arguments
    degrees = f"fmax(0.0, N - {1.0 if correction is None else float(correction)!r})"
    last = SPREADS[op].format(f"fmax(0.0, acc.y - acc.x * acc.x / N) / {degrees}")
    fold = _MOMENTS._replace(last=last)
    _reduce(runtime, fold, array, out, _dims(arguments, 1), queue)


def _split(array: Any, dims: tuple[int, ...]) -> tuple[Any, Any]:
    """(sizes, strides) of the dimensions that stay, and of those that go, collapsed."""
    parts = []
    for chosen in (
        [d for d in range(len(array.shape)) if d not in dims],
        list(dims),
    ):
        sizes, (steps,) = collapsed(
            [array.shape[d] for d in chosen], [[array.strides[d] for d in chosen]]
        )
        parts.append((sizes, steps))
    return parts[0], parts[1]


def _reduce(
    runtime: Any, fold: Fold, array: Any, out: Any, dims: tuple[int, ...], queue: Any
) -> None:
    (kept, steps), (gone, strides) = _split(array, dims)
    results, count = int(np.prod(kept)), int(np.prod(gone))
    accumulated = _accumulator(array.dtype, out.dtype)
    worth = results < PARTS and gone[0] >= PARTS and count >= PARTS * WORTH and not fold.kind
    parts = PARTS if worth else 1
    shape = (len(kept), len(gone))
    if parts > 1:
        partial = empty((results, parts), accumulated, out.device)._a
        source = _source(fold._replace(last="acc"), array.dtype, accumulated, accumulated, shape)
        passed = [*longs(kept[1:]), *longs(gone), *_placed(array, steps, strides)]
        last = [*values(partial, []), np.int64(parts), np.int64(count)]
        runtime.launch(source, queue, (results * parts,), [*passed, *last])
        array, kept, steps, gone, strides = partial, [results], [parts], [parts], [1]
        shape = (1, 1)
        fold = fold._replace(step=_joining(fold.step))
    source = _source(fold, array.dtype, out.dtype, accumulated, shape)
    passed = [*longs(kept[1:]), *longs(gone), *_placed(array, steps, strides)]
    runtime.launch(
        source, queue, (results,), [*passed, *values(out, []), np.int64(1), np.int64(count)]
    )


def _joining(step: str) -> str:
    """How parts become one: squares are not squared again."""
    joined = {"acc + v * v": "acc + v", "acc + (v != 0)": "acc + v"}
    return "acc + v" if "pow(fabs" in step else joined.get(step, step)


def _placed(array: Any, steps: list[int], strides: list[int]) -> list[Any]:
    return [*values(array, steps), *longs(strides)]


def _accumulator(given: Any, result: Any) -> Any:
    """Sums are kept in double or in 64 bits."""
    if given.is_floating_point or result.is_floating_point:
        return mortice.float64
    return mortice.int64


_LIMITS = {
    mortice.float64: ("-INFINITY", "INFINITY"),
    mortice.int64: ("LONG_MIN", "LONG_MAX"),
}


@cache
def _source(fold: Fold, given: Any, result: Any, accumulated: Any, shape: tuple[int, int]) -> str:
    """The program for arrays of ``shape``: (dimensions that stay, dimensions that go)."""
    kept, gone = shape
    A, least, most = TYPES[accumulated], *_LIMITS[accumulated]
    takes = [f"long n{d}" for d in range(1, kept)]
    takes += [f"long m{d}" for d in range(gone)]
    takes.append(parameters(["p"], [TYPES[given]], kept))
    takes += [f"long q{d}" for d in range(gone)]
    takes += [parameters(["out"], [TYPES[result]], 0), "long parts", "long N"]
    value = f"({fold.last})"
    if result is mortice.bool:
        value = f"({value} != 0)"
    loops = [
        f"for (long j{d} = {'low' if d == 0 else '0'}; j{d} < {'high' if d == 0 else f'm{d}'}; j{d}++)"
        for d in range(gone)
    ]
    place = " + ".join(["base", *(f"j{d} * q{d}" for d in range(gone))])
    body = [
        f"typedef {fold.kind or A} A;\n#define LEAST {least}\n#define MOST {most}",
        f"__kernel void run({', '.join(takes)}) {{",
        "long part = get_global_id(0) % parts;",
        position("i", "get_global_id(0) / parts", kept),
        f"long base = {offset('i', 'p', kept)};",
        "long chunk = (m0 + parts - 1) / parts, low = part * chunk, high = min(low + chunk, m0);",
        f"A acc = {fold.first};",
        *loops,
        f"{{ A v = (A)(p[{place}]); acc = {fold.step}; }}",
        f"out[out_at + get_global_id(0)] = ({TYPES[result]}){value};",
        "}",
    ]
    return PREAMBLE + "\n".join(body)


# -- where the largest and the smallest is -----------------------------------------------------------


def _find(runtime: Any, op: str, arguments: tuple[Any, ...], queue: Any) -> None:
    array = arguments[0]
    places, values_ = arguments[-1], arguments[-2] if op.endswith(".dim") else None
    (kept, steps), (gone, strides) = _split(array, _dims(arguments, 1))
    source = _places(PLACES[op], array.dtype, (len(kept), len(gone)), values_ is not None)
    passed = [*longs(kept[1:]), *longs(gone), *_placed(array, steps, strides), *values(places, [])]
    if values_ is not None:
        passed += values(values_, [])
    runtime.launch(source, queue, (int(np.prod(kept)),), passed)


@cache
def _places(better: str, given: Any, shape: tuple[int, int], with_values: bool) -> str:
    kept, gone = shape
    T = TYPES[given]
    takes = [f"long n{d}" for d in range(1, kept)]
    takes += [f"long m{d}" for d in range(gone)]
    takes.append(parameters(["p"], [T], kept))
    takes += [f"long q{d}" for d in range(gone)]
    takes.append(parameters(["out"], ["long"], 0))
    if with_values:
        takes.append(parameters(["top"], [T], 0))
    place = " + ".join(["base", *(f"j{d} * q{d}" for d in range(gone))])
    body = [
        f"__kernel void run({', '.join(takes)}) {{",
        position("i", "get_global_id(0)", kept),
        f"long base = {offset('i', 'p', kept)}, at = 0, seen = 0;",
        f"{T} acc = p[base];",
        *(f"for (long j{d} = 0; j{d} < m{d}; j{d}++)" for d in range(gone)),
        (
            f"{{ {T} v = p[{place}]; "
            f"if (({better}) || (v != v && acc == acc)) {{ if (acc == acc) {{ acc = v; at = seen; }} }} "
            "seen++; }"
        ),
        "out[out_at + get_global_id(0)] = at;",
        "top[top_at + get_global_id(0)] = acc;" if with_values else "",
        "}",
    ]
    return PREAMBLE + "\n".join(body)
