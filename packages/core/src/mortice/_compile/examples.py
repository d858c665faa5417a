"""Example inputs of a captured graph as tracing needs them: fake tensors and symbolic numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mortice._capture.fake import FakeTensorMode, symbolic_strides
from mortice._capture.fake_array import is_fake, mode_of
from mortice._types.symbolic_env import ShapeEnv, compile_guards
from mortice.fx import GraphModule


@dataclass(frozen=True)
class Examples:
    """What a graph is traced on.

    Attributes:
        values: One for each placeholder: fake tensors with their ``requires_grad``; a SymInt or
            SymFloat for a number, which is an input of the compiled code; generators.
        mode: The fake tensors' mode.
        env: Its ShapeEnv.
        known: How many guards that had before.
    """

    values: tuple[Any, ...]
    mode: FakeTensorMode
    env: ShapeEnv
    known: int


def examples_of(
    gm: GraphModule, given: Sequence[Any], symbolic: Sequence[Sequence[int]] | None = None
) -> Examples:
    """Prepare the inputs of a call, or stand-ins for them; notes each as its placeholder's ``val``.

    ``symbolic``: for each input, dims whose sizes are made symbolic; fake ones have what they have.
    Numbers other than int and float (bool, complex) are constants; see ``guards``.
    """
    mode = mode_of(list(given)) or FakeTensorMode()
    if mode.shape_env is None:
        mode.shape_env = ShapeEnv()
    env = mode.shape_env
    values = tuple(
        _example(mode, env, x, symbolic[i] if symbolic else ()) for i, x in enumerate(given)
    )
    for node, value in zip(gm.graph.nodes, values):
        node.meta["val"] = value
    return Examples(values, mode, env, len(env.guards))


def symbolic_dims(value: Any) -> tuple[int, ...]:
    """Dims of an example whose sizes are symbolic."""
    shape = value.shape if hasattr(value, "_k") else ()
    return tuple(d for d, size in enumerate(shape) if type(size) is not int)


def _example(mode: FakeTensorMode, env: ShapeEnv, x: Any, dims: Sequence[int]) -> Any:
    if hasattr(x, "_k"):
        if is_fake(x):
            return x
        shape = [env.size(n, min=0) if d in dims else n for d, n in enumerate(x.shape)]
        strides = symbolic_strides(tuple(x.shape), x.stride(), shape)
        fake = mode.empty(shape, x.dtype, x.device, strides)
        return fake.requires_grad_(True) if x.requires_grad else fake
    if type(x) is int:
        return env.integer(x)
    return env.floating(x) if type(x) is float else x


def guards(examples: Examples) -> Callable[..., bool] | None:
    """Whether a call's inputs are such that what was traced holds for them; None if for all."""
    asked = tuple(examples.env.guards)[examples.known :]
    constants = [(i, x) for i, x in enumerate(examples.values) if isinstance(x, (bool, complex))]
    if not asked and not constants:
        return None
    names = tuple(sorted(frozenset[str]().union(*(g.symbols for g in asked))))
    sources = [_reader(examples.values, name) for name in names]
    holds = compile_guards(asked, names)

    def check(*inputs: Any) -> bool:
        return all(type(inputs[i]) is type(x) and inputs[i] == x for i, x in constants) and holds(
            *[read(inputs) for read in sources]
        )

    return check


def _reader(values: Sequence[Any], name: str) -> Callable[[Sequence[Any]], Any]:
    """Reads a symbol's value from a call's inputs."""
    for i, value in enumerate(values):
        if getattr(value, "symbol", None) == name:
            return lambda inputs, i=i: inputs[i]
        if hasattr(value, "_k"):
            for d, size in enumerate(value.shape):
                if getattr(size, "symbol", None) == name:
                    return lambda inputs, i=i, d=d: inputs[i].shape[d]
            for d, stride in enumerate(value.stride()):
                if getattr(stride, "symbol", None) == name:
                    return lambda inputs, i=i, d=d: inputs[i].stride(d)
    raise LookupError(f"no input shows the symbol {name}")
