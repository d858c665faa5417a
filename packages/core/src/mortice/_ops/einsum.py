"""Einstein summation: parsing the equation, then pairwise contraction by batched matmul."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mortice._base.errors import InvalidValue, ShapeError
from mortice._ops.formulas import call
from mortice._types.shapes import numel


def contract(equation: str, tensors: Sequence[Any]) -> Any:
    """Evaluate ``equation`` on ``tensors``; labels are letters, ``...`` stands for broadcast dims."""
    inputs, output = _parse(equation.replace(" ", ""), tensors)
    sizes = _sizes(inputs, tensors)
    operands = [_diagonal(t, labels) for t, labels in zip(tensors, inputs)]
    result, labels = operands[0]
    for i in range(1, len(operands)):
        other, other_labels = operands[i]
        later = set(output).union(*(ls for _, ls in operands[i + 1 :]))
        result, labels = _pair(result, labels, other, other_labels, later, sizes)
    gone = tuple(i for i, label in enumerate(labels) if label not in output)
    if gone:
        result = call("sum.dim_IntList", result, gone, False, None)
        labels = [label for label in labels if label in output]
    result = result.permute(tuple(labels.index(label) for label in output))
    return result.expand(tuple(sizes[label] for label in output)) if output else result


def _parse(equation: str, tensors: Sequence[Any]) -> tuple[list[list[str]], list[str]]:
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors):
        raise InvalidValue(
            f"einsum(): the equation {equation!r} names {len(terms)} operands, but "
            f"{len(tensors)} were given"
        )
    ellipsis_dims = 0
    for term, t in zip(terms, tensors):
        letters = len(term.replace("...", ""))
        if "..." in term:
            ellipsis_dims = max(ellipsis_dims, len(t._a.shape) - letters)
    inputs = [_labels(term, t, ellipsis_dims, equation) for term, t in zip(terms, tensors)]
    if arrow:
        output = _output_labels(right, ellipsis_dims, inputs, equation)
    else:
        counts: dict[str, int] = {}
        for labels in inputs:
            for label in labels:
                counts[label] = counts.get(label, 0) + 1
        dots = [label for label in counts if label.startswith(".")]
        output = sorted(dots, reverse=True) + sorted(
            label for label, n in counts.items() if n == 1 and not label.startswith(".")
        )
    return inputs, output


def _labels(term: str, t: Any, ellipsis_dims: int, equation: str) -> list[str]:
    before, dots, after = term.partition("...")
    if not (before + after).isalpha() and before + after:
        raise InvalidValue(f"einsum(): invalid subscript in {term!r} of {equation!r}: use letters")
    n = len(t._a.shape) - len(before) - len(after)
    if n < 0 or (n and not dots):
        raise ShapeError(
            f"einsum(): the number of subscripts in {term!r} does not match the {len(t._a.shape)} "
            "dimensions of its operand"
        )
    return [*before, *(f".{i}" for i in range(n - 1, -1, -1)), *after]


def _output_labels(
    term: str, ellipsis_dims: int, inputs: list[list[str]], equation: str
) -> list[str]:
    before, dots, after = term.partition("...")
    middle = [f".{i}" for i in range(ellipsis_dims - 1, -1, -1)] if dots else []
    output = [*before, *middle, *after]
    for label in output:
        if output.count(label) > 1:
            raise InvalidValue(f"einsum(): output subscript {label} appears twice in {equation!r}")
        if not any(label in labels for labels in inputs):
            raise InvalidValue(
                f"einsum(): output subscript {label} does not appear in any operand of {equation!r}"
            )
    return output


def _sizes(inputs: list[list[str]], tensors: Sequence[Any]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for labels, t in zip(inputs, tensors):
        for label, n in zip(labels, t._a.shape):
            have = sizes.get(label, 1)
            if have != n and have != 1 and n != 1:
                raise ShapeError(
                    f"einsum(): subscript {label} has size {n} for one operand, which does not "
                    f"broadcast with size {have} of another"
                )
            sizes[label] = n if have == 1 else have
    return sizes


def _diagonal(t: Any, labels: list[str]) -> tuple[Any, list[str]]:
    """Repeated labels within one operand take the diagonal."""
    labels = list(labels)
    for label in set(labels):
        while labels.count(label) > 1:
            i = labels.index(label)
            j = labels.index(label, i + 1)
            t = t.diagonal(0, i, j)
            labels = [x for k, x in enumerate(labels) if k not in (i, j)] + [label]
    return t, labels


def _pair(
    a: Any, la: list[str], b: Any, lb: list[str], later: set[str], sizes: dict[str, int]
) -> tuple[Any, list[str]]:
    """Contract two operands: batch labels shared and kept, summed labels shared and not kept."""
    a, la = _sum_alone(a, la, lb, later)
    b, lb = _sum_alone(b, lb, la, later)
    batch = [x for x in la if x in lb and x in later]
    summed = [x for x in la if x in lb and x not in later]
    only_a = [x for x in la if x not in lb]
    only_b = [x for x in lb if x not in la]
    left = _arrange(a, la, [*batch, *only_a, *summed], set(batch + summed), sizes)
    right = _arrange(b, lb, [*batch, *summed, *only_b], set(batch + summed), sizes)
    n = numel(sizes[x] for x in batch)
    rows = numel(left._a.shape[len(batch) : len(batch) + len(only_a)])
    columns = numel(right._a.shape[len(batch) + len(summed) :])
    inner = numel(sizes[x] for x in summed)
    out = left.reshape((n, rows, inner)).bmm(right.reshape((n, inner, columns)))
    shape = (
        *(sizes[x] for x in batch),
        *left._a.shape[len(batch) : len(batch) + len(only_a)],
        *right._a.shape[len(batch) + len(summed) :],
    )
    return out.reshape(shape), [*batch, *only_a, *only_b]


def _summed(t: Any, dims: tuple[int, ...]) -> Any:
    """Sums before a product stay in the operand's dtype, integers too."""
    return call("sum.dim_IntList", t, dims, False, None if t._t.differentiable else t._t)


def _sum_alone(t: Any, labels: list[str], other: list[str], later: set[str]) -> Any:
    gone = tuple(i for i, x in enumerate(labels) if x not in other and x not in later)
    if not gone:
        return t, labels
    t = _summed(t, gone)
    return t, [x for i, x in enumerate(labels) if i not in gone]


def _arrange(
    t: Any, labels: list[str], order: list[str], shared: set[str], sizes: dict[str, int]
) -> Any:
    t = t.permute(tuple(labels.index(x) for x in order))
    wanted = tuple(sizes[x] if x in shared else n for x, n in zip(order, t._a.shape))
    return t.expand(wanted)
