"""Elementwise operators of ``prims`` that are ATen's on tensors of one dtype and shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mortice._base.errors import DTypeError, ShapeError
from mortice._dispatch.bind import default_of
from mortice._dispatch.operator import get

Rule = Callable[..., Any]


def is_scalar(x: Any) -> bool:
    return not hasattr(x, "_k") or (not x._a.shape and x.device.type == "cpu")


def check_alike(tensors: Sequence[Any]) -> None:
    """One dtype, and one shape but for scalars."""
    first: Any = None
    sized: Any = None
    for x in tensors:
        if not hasattr(x, "_k"):
            continue
        if first is not None and x._t is not first._t:
            raise DTypeError(
                f"Tensor with dtype {x._t!r} is not the expected dtype of {first._t!r}! prims do not promote; "
                "convert with prims.convert_element_type."
            )
        first = first if first is not None else x
        if is_scalar(x):
            continue
        if sized is not None and tuple(x._a.shape) != tuple(sized._a.shape):
            raise ShapeError(
                f"Shape {list(x._a.shape)} is not the expected shape {list(sized._a.shape)}! prims do not "
                "broadcast; use prims.broadcast_in_dim."
            )
        sized = x


def _full(op: Any, args: Sequence[Any]) -> list[Any]:
    """Every argument of an operator, those that are not given by their defaults."""
    return [*args, *(default_of(a) for a in op.schema.arguments[len(args) :])]


def pair(aten: str) -> tuple[Rule, Rule]:
    """The rule of an elementwise prim and the ATen operator that computes it."""

    def rule(*args: Any) -> Any:
        check_alike(args)
        op = get(aten)
        return op.shape_rule()(*_full(op, args))  # pyright: ignore[reportOptionalCall]

    def compute(*args: Any) -> Any:
        check_alike(args)
        op = get(aten)
        return op(*_full(op, args))

    return rule, compute


# fmt: off
abs_rule, abs = pair("abs")
acos_rule, acos = pair("acos")
acosh_rule, acosh = pair("acosh")
add_rule, add = pair("add.Tensor")
asin_rule, asin = pair("asin")
asinh_rule, asinh = pair("asinh")
atan_rule, atan = pair("atan")
atan2_rule, atan2 = pair("atan2")
atanh_rule, atanh = pair("atanh")
bessel_i0_rule, bessel_i0 = pair("i0")
bessel_i0e_rule, bessel_i0e = pair("special_i0e")
bessel_i1_rule, bessel_i1 = pair("special_i1")
bessel_i1e_rule, bessel_i1e = pair("special_i1e")
bitwise_and_rule, bitwise_and = pair("bitwise_and.Tensor")
bitwise_not_rule, bitwise_not = pair("bitwise_not")
bitwise_or_rule, bitwise_or = pair("bitwise_or.Tensor")
bitwise_xor_rule, bitwise_xor = pair("bitwise_xor.Tensor")
ceil_rule, ceil = pair("ceil")
clone_rule, clone = pair("clone")
conj_physical_rule, conj_physical = pair("conj_physical")
cos_rule, cos = pair("cos")
cosh_rule, cosh = pair("cosh")
digamma_rule, digamma = pair("digamma")
eq_rule, eq = pair("eq.Tensor")
erf_rule, erf = pair("erf")
erf_inv_rule, erf_inv = pair("erfinv")
erfc_rule, erfc = pair("erfc")
erfcx_rule, erfcx = pair("special_erfcx")
exp_rule, exp = pair("exp")
exp2_rule, exp2 = pair("exp2")
expm1_rule, expm1 = pair("expm1")
floor_rule, floor = pair("floor")
fmax_rule, fmax = pair("fmax")
fmin_rule, fmin = pair("fmin")
fmod_rule, fmod = pair("fmod.Tensor")
frexp_rule, frexp = pair("frexp.Tensor")
gcd_rule, gcd = pair("gcd")
ge_rule, ge = pair("ge.Tensor")
gt_rule, gt = pair("gt.Tensor")
hypot_rule, hypot = pair("hypot")
isfinite_rule, isfinite = pair("isfinite")
le_rule, le = pair("le.Tensor")
lgamma_rule, lgamma = pair("lgamma")
log_rule, log = pair("log")
log10_rule, log10 = pair("log10")
log1p_rule, log1p = pair("log1p")
log2_rule, log2 = pair("log2")
lt_rule, lt = pair("lt.Tensor")
maximum_rule, maximum = pair("maximum")
minimum_rule, minimum = pair("minimum")
mul_rule, mul = pair("mul.Tensor")
ndtri_rule, ndtri = pair("special_ndtri")
ne_rule, ne = pair("ne.Tensor")
neg_rule, neg = pair("neg")
nextafter_rule, nextafter = pair("nextafter")
pow_rule, pow = pair("pow.Tensor_Tensor")
reciprocal_rule, reciprocal = pair("reciprocal")
remainder_rule, remainder = pair("remainder.Tensor")
round_rule, round = pair("round")
rsqrt_rule, rsqrt = pair("rsqrt")
shift_left_rule, shift_left = pair("bitwise_left_shift.Tensor")
shift_right_arithmetic_rule, shift_right_arithmetic = pair("bitwise_right_shift.Tensor")
sign_rule, sign = pair("sign")
signbit_rule, signbit = pair("signbit")
sin_rule, sin = pair("sin")
sinh_rule, sinh = pair("sinh")
sqrt_rule, sqrt = pair("sqrt")
sub_rule, sub = pair("sub.Tensor")
tan_rule, tan = pair("tan")
tanh_rule, tanh = pair("tanh")
trunc_rule, trunc = pair("trunc")
zeta_rule, zeta = pair("special_zeta")
# fmt: on

__all__ = [name for name in dir() if not name.startswith("_")]
