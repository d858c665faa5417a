"""Embedding and EmbeddingBag."""

from __future__ import annotations

from typing import Any

import mortice
from mortice import Tensor
from mortice.errors import InvalidValue, ShapeError
from mortice_nn import functional as F
from mortice_nn import init
from mortice_nn.modules.module import Module
from mortice_nn.parameter import Parameter


class Embedding(Module):
    """Rows of weight (num_embeddings, embedding_dim) by integer index (*) -> (*, dim).

    The row ``padding_idx`` starts as zeros and gets no gradient.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = _from_front(padding_idx, num_embeddings)
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        self.weight = _weight_parameter(
            num_embeddings, embedding_dim, _weight, _freeze, device, dtype
        )
        if _weight is None:
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Standard normal; the padding row zero."""
        init.normal_(self.weight)
        _zero_row(self.weight, self.padding_idx)

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """An Embedding with the 2-d tensor ``embeddings`` as weight, not trained if ``freeze``."""
        rows, columns = _two_sizes(embeddings)
        return cls(
            rows,
            columns,
            padding_idx,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            sparse,
            _weight=embeddings,
            _freeze=freeze,
        )

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        return text + _options(self, padding_idx=None, max_norm=None, norm_type=2.0,
                               scale_grad_by_freq=False, sparse=False)  # fmt: skip


class EmbeddingBag(Module):
    """Sum, mean or max over bags of rows; see ``functional.embedding_bag``."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset
        self.padding_idx = _from_front(padding_idx, num_embeddings)
        self.weight = _weight_parameter(
            num_embeddings, embedding_dim, _weight, False, device, dtype
        )
        if _weight is None:
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Standard normal; the padding row zero."""
        init.normal_(self.weight)
        _zero_row(self.weight, self.padding_idx)

    def forward(
        self,
        input: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """An EmbeddingBag with the 2-d tensor ``embeddings`` as weight, not trained if ``freeze``."""
        rows, columns = _two_sizes(embeddings)
        bag = cls(
            rows,
            columns,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            mode,
            sparse,
            _weight=embeddings,
            include_last_offset=include_last_offset,
            padding_idx=padding_idx,
        )
        bag.weight.requires_grad_(not freeze)
        return bag

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        text += _options(self, max_norm=None, norm_type=2.0, scale_grad_by_freq=False)
        text += f", mode={self.mode!r}"
        return text + _options(self, sparse=False, include_last_offset=False, padding_idx=None)


def _options(module: Module, **defaults: Any) -> str:
    """``, name=value`` for each attribute that differs from its default."""
    return "".join(
        f", {name}={getattr(module, name)}"
        for name, default in defaults.items()
        if getattr(module, name) != default
    )


def _from_front(padding_idx: int | None, rows: int) -> int | None:
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise InvalidValue(
            f"padding_idx must be within num_embeddings: found {padding_idx} for {rows} rows"
        )
    return padding_idx % rows


def _weight_parameter(
    rows: int, columns: int, weight: Tensor | None, freeze: bool, device: Any, dtype: Any
) -> Parameter:
    if weight is None:
        empty = mortice.empty((rows, columns), device=device, dtype=dtype)
        return Parameter(empty, requires_grad=not freeze)
    if tuple(weight.shape) != (rows, columns):
        raise ShapeError(
            f"shape of weight {tuple(weight.shape)} does not match num_embeddings and "
            f"embedding_dim {(rows, columns)}"
        )
    return Parameter(weight, requires_grad=not freeze)


def _zero_row(weight: Tensor, row: int | None) -> None:
    if row is not None:
        with mortice.no_grad():
            weight[row].fill_(0)


def _two_sizes(embeddings: Tensor) -> tuple[int, int]:
    if embeddings.ndim != 2:
        raise ShapeError(
            f"from_pretrained expects a 2-d tensor of embeddings, found {tuple(embeddings.shape)}"
        )
    rows, columns = embeddings.shape
    return rows, columns
