"""Special functions under PyTorch's names: ``mortice.special.expit(x)`` and so on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mortice as _m
from mortice._dispatch.call import seen_as_itself as _seen_as_itself

digamma = _m.digamma
entr = _m.special_entr
erf = _m.erf
erfc = _m.erfc
erfcx = _m.special_erfcx
erfinv = _m.erfinv
exp2 = _m.exp2
expit = _m.sigmoid
expm1 = _m.expm1
gammaln = _m.lgamma
i0 = _m.i0
i0e = _m.special_i0e
i1 = _m.special_i1
i1e = _m.special_i1e
log1p = _m.log1p
log_ndtr = _m.special_log_ndtr
logit = _m.logit
logsumexp = _m.logsumexp
multigammaln = _m.mvlgamma
ndtr = _m.special_ndtr
ndtri = _m.special_ndtri
polygamma = _m.polygamma
psi = _m.digamma
round = _m.round
sinc = _m.sinc
xlog1py = _m.special_xlog1py
xlogy = _m.xlogy
zeta = _m.special_zeta


@_seen_as_itself
def softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """exp(input) normalised to sum to 1 along ``dim``."""
    return _m.softmax(input, dim, dtype=dtype)


@_seen_as_itself
def log_softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """The logarithm of ``softmax``."""
    return _m.log_softmax(input, dim, dtype=dtype)


if not TYPE_CHECKING:  # a checker would take every name to be there

    def __getattr__(name: str) -> object:
        """Only what is not there comes here: say what is nearest, or stands in its place."""
        from mortice._base.absent import no_attribute

        raise no_attribute("mortice.special", name, globals())
