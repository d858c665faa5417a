"""Jacobians, Hessians and products with them, row by row through the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mortice._autograd.engine import grad
from mortice._base.errors import AutogradError


def _tuple(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)


def _prepared(inputs: Any, create_graph: bool) -> tuple[Any, ...]:
    return tuple(
        x.view_as(x) if create_graph and x.requires_grad else x.detach().requires_grad_()
        for x in _tuple(inputs)
    )


def jacobian(
    func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False,
    vectorize: bool = False, strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """d outputs / d inputs: for each output and input, shape (*output, *input)."""
    xs = _prepared(inputs, create_graph)
    ys = func(*xs)
    rows = tuple(_jacobian_of(y, xs, create_graph, strict) for y in _tuple(ys))
    if not isinstance(inputs, tuple):
        rows = tuple(r[0] for r in rows)
    return rows if isinstance(ys, tuple) else rows[0]


def _jacobian_of(y: Any, xs: tuple[Any, ...], create_graph: bool, strict: bool) -> tuple[Any, ...]:
    import mortice

    columns: list[list[Any]] = [[] for _ in xs]
    flat = y.reshape(-1)
    for i in range(flat.numel()):
        if flat.requires_grad:
            grads = grad(
                flat[i], xs, retain_graph=True, create_graph=create_graph, allow_unused=True
            )
        else:
            grads = (None,) * len(xs)
        for column, g, x in zip(columns, grads, xs):
            if g is None:
                if strict:
                    raise AutogradError(
                        f"jacobian: output {i} is independent of an input. Strict mode does not "
                        "allow this; pass strict=False for zeros."
                    )
                g = mortice.zeros_like(x)
            column.append(g)
    return tuple(
        mortice.stack(c).reshape((*y.shape, *x.shape)) if c else y.new_zeros((*y.shape, *x.shape))
        for c, x in zip(columns, xs)
    )


def hessian(
    func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False,
    vectorize: bool = False, outer_jacobian_strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """Second derivatives of a function with a single-element output."""

    def first(*xs: Any) -> Any:
        y = func(*xs)
        if y.numel() != 1:
            raise AutogradError(
                f"hessian: the function must return one element, got shape {list(y.shape)}"
            )
        found = grad(y.reshape(()), xs, create_graph=True, allow_unused=True)
        import mortice

        full = tuple(mortice.zeros_like(x) if g is None else g for g, x in zip(found, xs))
        return full if isinstance(inputs, tuple) else full[0]

    return jacobian(first, inputs, create_graph, strict)


def vjp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False,
    strict: bool = False,
) -> Any:  # fmt: skip
    """(outputs, v^T J): the product of a vector with the Jacobian."""
    xs = _prepared(inputs, create_graph)
    ys = func(*xs)
    found = grad(
        ys, xs, v, create_graph=create_graph, allow_unused=not strict, materialize_grads=not strict
    )
    return ys, found if isinstance(inputs, tuple) else found[0]


def hvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False,
    strict: bool = False,
) -> Any:  # fmt: skip
    """(output, H v): the product of the Hessian with a vector, by differentiating twice."""
    xs = _prepared(inputs, create_graph)
    y = func(*xs)
    first = grad(y, xs, create_graph=True, allow_unused=not strict, materialize_grads=not strict)
    found = grad(
        first, xs, _tuple(v), create_graph=create_graph, allow_unused=True, materialize_grads=True
    )
    return y, found if isinstance(inputs, tuple) else found[0]
