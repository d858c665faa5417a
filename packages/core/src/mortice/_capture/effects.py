"""What the recorder must know of single operators and cannot read from their rows."""

from __future__ import annotations

#: Operators that give Python a value: the segment ends and its value is read.
VALUES = frozenset(("_local_scalar_dense", "equal"))

#: Operators whose outputs' sizes depend on values, and operators that change what a tensor is.
#: What was recorded runs, then they run.
IMMEDIATE = frozenset(
    (
        "masked_select", "nonzero", "_unique2", "unique_dim", "unique_consecutive",
        "embedding_renorm_", "one_hot", "bincount", "histogram.bins_tensor", "histogram.bin_ct",
        "repeat_interleave.Tensor", "poisson", "binomial",
        "resize_", "resize_as_", "set_.source_Tensor", "set_.source_Tensor_storage_offset",
        "set_.source_Storage", "set_.source_Storage_storage_offset", "set_", "detach_",
        "transpose_", "swapaxes_", "swapdims_", "t_", "squeeze_", "squeeze_.dim", "squeeze_.dims",
        "unsqueeze_", "as_strided_", "view.dtype",
    )
)  # fmt: skip

#: Operators that refuse some values of their operands, which shows when they run. The segment ends
#: with them, so that the error is raised on the user's line and before any later effect.
MAY_RAISE = frozenset(
    (
        "index.Tensor", "index_put", "index_put_", "_index_put_impl_", "index_select", "index_add",
        "index_add_", "index_copy", "index_copy_", "index_fill.int_Scalar", "index_fill_.int_Scalar",
        "index_fill.int_Tensor", "index_fill_.int_Tensor", "index_reduce", "index_reduce_",
        "gather", "scatter.src", "scatter.value", "scatter_.src", "scatter_.value", "scatter_add",
        "scatter_add_", "scatter.reduce", "scatter_.reduce", "scatter.value_reduce",
        "scatter_.value_reduce", "scatter_reduce.two", "scatter_reduce_.two", "take", "put", "put_",
        "embedding", "_embedding_bag", "nll_loss_forward", "max_unpool2d",
        "linalg_cholesky_ex", "linalg_inv_ex",
        "_linalg_eigh", "_linalg_svd", "linalg_eig",
        "linalg_qr", "cholesky", "cholesky_inverse",
        "cholesky_solve", "triangular_solve", "linalg_solve_triangular", "linalg_matrix_exp",
        "multinomial", "bernoulli", "bernoulli_.Tensor",
        "normal.Tensor_float", "normal.Tensor_Tensor", "normal.float_Tensor",
        "binary_cross_entropy", "linalg_det", "linalg_slogdet", "_solve", "_linalg_pinv", "masked_scatter",
        "masked_scatter_", "multi_margin_loss",
    )
)  # fmt: skip

#: Integer operators that refuse a zero divisor or a negative exponent.
MAY_RAISE_ON_INTEGERS = frozenset(
    (
        "floor_divide", "remainder.Tensor", "remainder.Scalar_Tensor", "fmod.Tensor",
        "div.Tensor_mode", "remainder_.Tensor", "fmod_.Tensor",
        "div_.Tensor_mode", "pow.Tensor_Tensor", "gcd", "lcm",
    )
)  # fmt: skip

#: Operators whose shape rule, or derivative, looks at the value of a number: it is part of what is
#: recorded, where other numbers are inputs.
STATIC_NUMBERS = frozenset(
    (
        "arange", "arange.start", "arange.start_step", "range.step", "var.correction", "std.correction", "var_mean.correction",
        "std_mean.correction", "linspace",
        "logspace", "pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar", "pow_.Tensor_Tensor",
        "pow_.Tensor_Scalar", "norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype", "norm.Scalar",
        "linalg_vector_norm", "renorm", "renorm_", "dist", "histc", "multi_margin_loss",

    )
)  # fmt: skip

#: Operators whose numbers, where they are integers, say how many elements there are.
RANGES = frozenset(("arange", "arange.start", "arange.start_step"))

#: Outputs that never require grad, by operator: what their stanzas say in ``nondifferentiable``.
CONSTANT_OUTPUTS = {
    "native_layer_norm": (1, 2),
    "_native_batch_norm_legit": (1, 2),
    "_native_batch_norm_legit.no_stats": (1, 2),
    "_native_batch_norm_legit_no_training": (1, 2),
}
