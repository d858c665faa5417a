"""Scalar operations of the loop IR: one table for the verifier and for every target.

A row names the operation, counts its operands, and says per operand kind how it is made: an LLVM
mnemonic, ``=name`` for an LLVM intrinsic, or ``@name`` for a function of
``mortice_llvm.emit.functions``. Kinds are those of ``DType.kind``; a kind that is missing is not
accepted.
"""

from __future__ import annotations

from typing import NamedTuple

from .errors import UnknownKernel, nearest


class ScalarOp(NamedTuple):
    """One operation; ``result`` is ``same`` (as the operands) or ``bool``."""

    name: str
    arity: int
    result: str
    by_kind: dict[str, str]


def _ops(result: str, arity: int, rows: str) -> list[ScalarOp]:
    """Parses lines of ``name kind:how kind:how``; kinds may be joined (``iu:add``)."""
    out: list[ScalarOp] = []
    for line in rows.strip().splitlines():
        name, *entries = line.split()
        by_kind: dict[str, str] = {}
        for entry in entries:
            kinds, _, how = entry.partition(":")
            by_kind.update(dict.fromkeys(kinds, how))
        out.append(ScalarOp(name, arity, result, by_kind))
    return out


_TABLE = [
    *_ops(
        "same",
        2,
        """
        add f:fadd iu:add
        sub f:fsub iu:sub
        mul f:fmul iu:mul
        div f:fdiv i:@int_div u:@int_div
        floor_div f:@float_floor_div i:@int_floor_div u:@int_div
        remainder f:@float_remainder i:@int_remainder u:@int_rem
        fmod f:@float_fmod i:@int_rem u:@int_rem
        maximum f:@maximum i:=smax u:=umax b:or
        minimum f:@minimum i:=smin u:=umin b:and
        fmax f:@fmax i:=smax u:=umax
        fmin f:@fmin i:=smin u:=umin
        pow f:@pow
        atan2 f:@atan2
        hypot f:@hypot
        copysign f:=copysign
        and iub:and
        or iub:or
        xor iub:xor
        shl iu:shl
        shr i:ashr u:lshr
    """,
    ),
    *_ops(
        "same",
        3,
        """
        fma f:@fma iu:@int_fma
    """,
    ),
    *_ops(
        "same",
        1,
        """
        neg f:fneg iu:@int_neg
        abs f:=fabs i:@int_abs u:@same
        sign f:@float_sign i:@int_sign u:@int_sign
        not iub:@invert
        sqrt f:=sqrt
        rsqrt f:@rsqrt
        reciprocal f:@reciprocal
        floor f:@floor iu:@same
        ceil f:@ceil iu:@same
        trunc f:@trunc iu:@same
        round f:@round iu:@same
        relu f:@relu i:@int_relu u:@same
        exp f:@exp
        exp2 f:@exp2
        expm1 f:@expm1
        log f:@log
        log2 f:@log2
        log10 f:@log10
        log1p f:@log1p
        sin f:@sin
        cos f:@cos
        tan f:@tan
        asin f:@asin
        acos f:@acos
        atan f:@atan
        sinh f:@sinh
        cosh f:@cosh
        tanh f:@tanh
        asinh f:@asinh
        acosh f:@acosh
        atanh f:@atanh
        erf f:@erf
        erfc f:@erfc
        sigmoid f:@sigmoid
        gelu f:@gelu
        gelu_slope f:@gelu_slope
    """,
    ),
    *_ops(
        "bool",
        2,
        """
        eq f:fcmp_oeq iub:icmp_eq
        ne f:fcmp_une iub:icmp_ne
        lt f:fcmp_olt i:icmp_slt ub:icmp_ult
        le f:fcmp_ole i:icmp_sle ub:icmp_ule
        gt f:fcmp_ogt i:icmp_sgt ub:icmp_ugt
        ge f:fcmp_oge i:icmp_sge ub:icmp_uge
    """,
    ),
    *_ops(
        "bool",
        1,
        """
        isnan f:@isnan
        isinf f:@isinf
        isfinite f:@isfinite
        signbit f:@signbit i:@int_signbit
    """,
    ),
]

OPS: dict[str, ScalarOp] = {op.name: op for op in _TABLE}

# Reductions: how two partial results combine (a scalar operation), and the neutral element.
REDUCTIONS: dict[str, tuple[str, str]] = {
    "sum": ("add", "0"),
    # Of two operands: the sum of their products, each added by a fused multiply-add.
    "dot": ("add", "0"),
    "prod": ("mul", "1"),
    "max": ("maximum", "lowest"),
    "min": ("minimum", "highest"),
    # Ignores NaN: for shifting exponentials, where a NaN reaches the result by other ways.
    "fmax": ("fmax", "lowest"),
    "any": ("or", "0"),
    "all": ("and", "1"),
    # The index of the first greatest (smallest) element; a NaN counts as greatest (smallest).
    "argmax": ("argmax", "-1"),
    "argmin": ("argmin", "-1"),
}


def scalar_op(name: str) -> ScalarOp:
    """The operation called ``name``; raises UnknownKernel with the nearest name."""
    found = OPS.get(name)
    if found is None:
        raise UnknownKernel(f"unknown scalar operation {name!r}.{nearest(name, list(OPS))}")
    return found
