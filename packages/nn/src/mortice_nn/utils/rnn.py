"""Sequences of different lengths: padding, packing and the way back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import mortice
from mortice import Tensor
from mortice.errors import InvalidValue, ShapeError


class _PackedFields(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_PackedFields):
    """Time steps one after the other, each holding only the sequences that still run.

    ``data`` (total, *); ``batch_sizes`` int64 (T), never growing; the indices map to and from the
    order by length.
    """

    __slots__ = ()

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        if batch_sizes is None:
            raise InvalidValue("PackedSequence needs batch_sizes; use pack_padded_sequence")
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """``data`` (and, for devices, the indices) converted as ``Tensor.to`` does."""
        data = self.data.to(*args, **kwargs)
        moved: list[Tensor | None] = [
            None if index is None else index.to(data.device)
            for index in (self.sorted_indices, self.unsorted_indices)
        ]
        return PackedSequence(data, self.batch_sizes, moved[0], moved[1])

    def cpu(self) -> PackedSequence:
        """On the host."""
        return self.to("cpu")

    def float(self) -> PackedSequence:
        """As float32."""
        return self.to(mortice.float32)

    def double(self) -> PackedSequence:
        """As float64."""
        return self.to(mortice.float64)


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes ``permutation``."""
    if permutation is None:
        return None
    result = mortice.empty_like(permutation)
    numbers = mortice.arange(permutation.numel(), device=permutation.device)
    return result.scatter_(0, permutation, numbers)


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack (T, N, *), or (N, T, *) if ``batch_first``, of which ``lengths`` (N) steps count.

    Lengths must fall, unless ``enforce_sorted`` is False: then the order is kept in the result.
    """
    sizes = [int(n) for n in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]
    x = input.transpose(0, 1) if batch_first else input
    if len(sizes) != x.shape[1]:
        raise ShapeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(sizes)} (batch_size="
            f"{x.shape[1]})"
        )
    if not sizes or min(sizes) <= 0:
        raise ShapeError("Length of all samples has to be greater than 0")
    order: Tensor | None = None
    if enforce_sorted:
        if any(a < b for a, b in pairwise(sizes)):
            raise ShapeError(
                "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True; "
                "pass enforce_sorted=False"
            )
    else:
        ranked = sorted(range(len(sizes)), key=lambda i: -sizes[i])
        order = mortice.tensor(ranked, dtype=mortice.int64, device=x.device)
        x = x.index_select(1, order)
        sizes = [sizes[i] for i in ranked]
    if sizes[0] > x.shape[0]:
        raise ShapeError(f"a length of {sizes[0]} exceeds the {x.shape[0]} time steps of the input")
    running = [sum(size > step for size in sizes) for step in range(sizes[0])]
    data = mortice.cat([x[step, :n] for step, n in enumerate(running)])
    return PackedSequence(data, mortice.tensor(running, dtype=mortice.int64), order)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Undo the packing: (T, N, *), or (N, T, *), and the lengths (N)."""
    running = [int(n) for n in sequence.batch_sizes.tolist()]
    steps = len(running)
    if total_length is not None:
        if total_length < steps:
            raise InvalidValue(
                f"Expected total_length to be at least the length of the longest sequence, but got "
                f"{total_length} and {steps}"
            )
        steps = total_length
    n = running[0]
    rest = tuple(sequence.data.shape[1:])
    rows: list[Tensor] = []
    for part in sequence.data.split(running):
        if part.shape[0] < n:
            part = mortice.cat([part, _filled((n - part.shape[0], *rest), padding_value, part)])
        rows.append(part)
    rows += [_filled((n, *rest), padding_value, sequence.data)] * (steps - len(running))
    output = mortice.stack(rows)
    lengths = mortice.tensor([sum(size > i for size in running) for i in range(n)])
    if sequence.unsorted_indices is not None:
        output = output.index_select(1, sequence.unsorted_indices)
        lengths = lengths[sequence.unsorted_indices.cpu()]
    return (output.transpose(0, 1) if batch_first else output), lengths


def _filled(shape: tuple[int, ...], value: float, like: Tensor) -> Tensor:
    return mortice.full(shape, value, dtype=like.dtype, device=like.device)


def pad_sequence(
    sequences: Iterable[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Stack tensors (T_i, *) as (T, N, *), or (N, T, *), padded at one side."""
    if padding_side not in ("left", "right"):
        raise InvalidValue(f"padding_side must be 'left' or 'right', found {padding_side!r}")
    tensors = list(sequences)
    if not tensors:
        raise ShapeError("received an empty list of sequences")
    longest = max(tensor.shape[0] for tensor in tensors)
    rows: list[Tensor] = []
    for tensor in tensors:
        missing = longest - tensor.shape[0]
        if missing:
            filler = _filled((missing, *tensor.shape[1:]), padding_value, tensor)
            parts = [filler, tensor] if padding_side == "left" else [tensor, filler]
            tensor = mortice.cat(parts)
        rows.append(tensor)
    return mortice.stack(rows, 0 if batch_first else 1)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False
) -> list[Tensor]:
    """The tensors that ``pad_sequence`` stacked."""
    x = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[: int(n)] for row, n in zip(x.unbind(0), lengths.tolist(), strict=True)]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack tensors (T_i, *)."""
    lengths = [tensor.shape[0] for tensor in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The tensors that ``pack_sequence`` packed."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
