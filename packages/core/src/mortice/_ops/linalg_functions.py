"""Products whose Python form takes any number of tensors, or dimensions in several ways."""

from __future__ import annotations

from typing import Any

from mortice._base.errors import InvalidValue, ShapeError
from mortice._dispatch.operator import get
from mortice._ops.shape_functions import variadic


def einsum(*args: Any) -> Any:
    """``einsum("ij,jk->ik", a, b)``, or operands and label lists alternating."""
    equation, *operands = args
    if not isinstance(equation, str):
        return _from_sublists(args)
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = list(operands[0])
    if not operands:
        raise InvalidValue("einsum(): must provide at least one operand after the equation")
    return get("einsum")(equation, tuple(operands), None)


def _from_sublists(args: tuple[Any, ...]) -> Any:
    """``einsum(a, [0, 1], b, [1, 2], [0, 2])``: labels 0 to 51 as numbers."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

    def text(labels: Any) -> str:
        return "".join("..." if n is Ellipsis else letters[n] for n in labels)

    operands = args[0::2] if len(args) % 2 == 0 else args[0:-1:2]
    equation = ",".join(text(labels) for labels in args[1 : 2 * len(operands) : 2])
    if len(args) % 2:
        equation += "->" + text(args[-1])
    return get("einsum")(equation, tuple(operands), None)


def tensordot(a: Any, b: Any, dims: Any = 2, out: Any = None) -> Any:
    """Contract ``dims`` dimensions: a count (last of a, first of b) or two lists of dimensions."""
    if hasattr(dims, "_k"):
        dims = dims.tolist()
    if isinstance(dims, int):
        if not 0 <= dims <= min(a.ndim, b.ndim):
            raise ShapeError(
                f"tensordot expects dims >= 0 and at most the number of dimensions, but got {dims}"
            )
        of_a, of_b = tuple(range(a.ndim - dims, a.ndim)), tuple(range(dims))
    else:
        of_a, of_b = (tuple(d) if isinstance(d, (list, tuple)) else (d,) for d in dims)
    result = get("tensordot")(a, b, of_a, of_b)
    if out is None:
        return result
    out.resize_(result.shape).copy_(result)
    return out


FUNCTIONS: dict[str, Any] = {
    "einsum": einsum,
    "tensordot": tensordot,
    "chain_matmul": variadic("chain_matmul", "The product of the matrices, from left to right."),
}
METHODS: dict[str, Any] = {}
