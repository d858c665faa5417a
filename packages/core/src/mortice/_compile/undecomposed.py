"""Operators outside Core ATen that graphs keep, and why: no decomposition leads to Core ATen."""

from __future__ import annotations

from typing import Any

#: Reason -> the operators that it is true of.
STAYING: dict[str, str] = {
    "factorises or solves, which Core ATen has nothing for": (
        "linalg_inv_ex linalg_det linalg_slogdet _solve linalg_cholesky_ex linalg_qr _linalg_svd "
        "_linalg_eigh linalg_eig"
    ),
    "searches, counts, orders or scans, which Core ATen has nothing for": (
        "cumprod logcumsumexp cummax cummin sort.stable kthvalue median median.dim nanmedian nanmedian.dim "
        "mode histc bincount bucketize.Tensor searchsorted.Tensor histogram.bins_tensor histogram.bin_ct "
        "_unique2 unique_dim unique_consecutive nonzero_static repeat_interleave.Tensor index_reduce"
    ),
    "no formula of Core ATen's functions is exact enough": (
        "erfc erfinv lgamma digamma polygamma i0 special_i1 special_i0e special_i1e special_erfcx "
        "special_ndtr special_ndtri special_log_ndtr special_zeta"
    ),
    "works on bits": (
        "bitwise_left_shift.Tensor bitwise_right_shift.Tensor view.dtype signbit copysign.Tensor nextafter "
        "frexp.Tensor gcd lcm"
    ),
    "makes, or takes apart, complex numbers": "complex polar view_as_real view_as_complex _fft_c2c",
    "is the operator that draws random numbers": (
        "rand.generator randn.generator randint.low_generator randperm.generator rand_like randn_like "
        "randint_like rand_like.generator randn_like.generator randint_like.low_dtype bernoulli "
        "multinomial poisson binomial normal.Tensor_float normal.float_Tensor normal.Tensor_Tensor"
    ),
    "returns a Python value": "equal",
    "names its argument's value; leaves no node": "detach",
    "makes memory": "empty_like",
    "lists positions": "tril_indices triu_indices",
    "its windows differ in size": "adaptive_max_pool2d adaptive_max_pool3d avg_pool3d_backward",
    "decomposed on the host, as a range of numbers": "range.step",
}  # fmt: skip

_REASONS = {name: reason for reason, names in STAYING.items() for name in names.split()}


def reason_to_stay(op: Any) -> str | None:
    """Why an overload outside Core ATen has no decomposition; None if it has one, or is Core ATen."""
    schema = op._schema
    if schema.namespace != "aten":
        return None
    return _REASONS.get(op.operator.name)


def names() -> frozenset[str]:
    """Names of all operators that stay."""
    return frozenset(_REASONS)
