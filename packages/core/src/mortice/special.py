"""Special functions under PyTorch's names: ``mortice.special.expit(x)`` and so on."""

from __future__ import annotations

from typing import Any

import mortice as _m

#: Name here -> name of the function that it is.
_ALIASES = {
    "digamma": "digamma",
    "entr": "special_entr",
    "erf": "erf",
    "erfc": "erfc",
    "erfcx": "special_erfcx",
    "erfinv": "erfinv",
    "exp2": "exp2",
    "expit": "sigmoid",
    "expm1": "expm1",
    "gammaln": "lgamma",
    "i0": "i0",
    "i0e": "special_i0e",
    "i1": "special_i1",
    "i1e": "special_i1e",
    "log1p": "log1p",
    "log_ndtr": "special_log_ndtr",
    "logit": "logit",
    "logsumexp": "logsumexp",
    "multigammaln": "mvlgamma",
    "ndtr": "special_ndtr",
    "ndtri": "special_ndtri",
    "polygamma": "polygamma",
    "psi": "digamma",
    "round": "round",
    "sinc": "sinc",
    "xlog1py": "special_xlog1py",
    "xlogy": "xlogy",
    "zeta": "special_zeta",
}

globals().update({name: getattr(_m, target) for name, target in _ALIASES.items()})


def softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """exp(input) normalised to sum to 1 along ``dim``."""
    return _m.softmax(input, dim, dtype=dtype)


def log_softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """The logarithm of ``softmax``."""
    return _m.log_softmax(input, dim, dtype=dtype)


__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2", "expit", "expm1", "gammaln",
    "i0", "i0e", "i1", "i1e", "log1p", "log_ndtr", "log_softmax", "logit", "logsumexp",
    "multigammaln", "ndtr", "ndtri", "polygamma", "psi", "round", "sinc", "softmax", "xlog1py",
    "xlogy", "zeta",
]  # fmt: skip
