"""The invariants of sparse layouts, checked on numpy indices.

Those of PyTorch's "Sparse tensors" documentation: what they forbid would read or write outside a
tensor when it is made dense.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mortice.serialization.specs import SparseSpec


def check(spec: SparseSpec, indices: Sequence[np.ndarray | None]) -> str:
    """What is wrong with a sparse tensor, or an empty string.

    ``indices`` are the index parts of ``spec`` as arrays, or None where their data is not loaded.
    """
    if spec.layout == "sparse_coo":
        return _check_coo(spec, indices[0])
    return _check_compressed(spec, indices[0], indices[1])


def _check_coo(spec: SparseSpec, indices: np.ndarray | None) -> str:
    index_size, value_size = spec.parts[0].size, spec.parts[1].size
    if len(index_size) != 2 or not value_size or index_size[1] != value_size[0]:
        return f"a COO tensor with indices of size {index_size} and values of size {value_size}"
    dims = index_size[0]
    if dims + len(value_size) - 1 != len(spec.size) or value_size[1:] != spec.size[dims:]:
        return (
            f"a COO tensor of size {spec.size} with {dims} sparse dimensions and values of size "
            f"{value_size}"
        )
    if indices is None or not indices.size:
        return ""
    for dim in range(dims):
        low, high = int(indices[dim].min()), int(indices[dim].max())
        if low < 0 or high >= spec.size[dim]:
            worst = low if low < 0 else high
            return f"a COO tensor of size {spec.size} with the index {worst} in dimension {dim}"
    return ""


def _check_compressed(
    spec: SparseSpec, compressed: np.ndarray | None, plain: np.ndarray | None
) -> str:
    layout = spec.layout
    pointer_size, plain_size, value_size = (part.size for part in spec.parts)
    batch = len(pointer_size) - 1
    if batch < 0 or len(spec.size) < batch + 2 or len(plain_size) != batch + 1:
        return f"a {layout} tensor of size {spec.size} with {batch} batch dimensions"
    rows, columns = spec.size[batch], spec.size[batch + 1]
    if layout in ("sparse_bsr", "sparse_bsc"):
        block = value_size[batch + 1 : batch + 3]
        if len(block) != 2 or 0 in block or rows % block[0] or columns % block[1]:
            return f"a {layout} tensor of size {spec.size} with blocks of size {block}"
        rows, columns = rows // block[0], columns // block[1]
    if layout in ("sparse_csc", "sparse_bsc"):
        rows, columns = columns, rows
    if pointer_size[-1] != rows + 1 or value_size[: batch + 1] != plain_size:
        return (
            f"a {layout} tensor of size {spec.size} with compressed indices of size "
            f"{pointer_size}, plain ones of size {plain_size} and values of size {value_size}"
        )
    if compressed is None or plain is None:
        return ""
    # Bounds first: on them alone the differences cannot overflow.
    if int(compressed.min(initial=0)) < 0 or int(compressed.max(initial=0)) > plain_size[-1]:
        return f"a {layout} tensor with a compressed index outside 0 to {plain_size[-1]}"
    steps = np.diff(compressed, axis=-1)
    if (compressed[..., 0] != 0).any() or (compressed[..., -1] != plain_size[-1]).any():
        return f"a {layout} tensor whose compressed indices do not run from 0 to {plain_size[-1]}"
    if steps.size and (int(steps.min()) < 0 or int(steps.max()) > columns):
        return f"a {layout} tensor whose compressed indices fall, or rise by more than {columns}"
    if plain.size and (int(plain.min()) < 0 or int(plain.max()) >= columns):
        return f"a {layout} tensor with a plain index outside 0 to {columns - 1}"
    return ""
