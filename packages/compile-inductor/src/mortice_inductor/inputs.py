"""What a call's inputs say about a graph: values of symbols, and who shares memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import mortice
from mortice.errors import ArgumentError, CompileError
from mortice.fx import symbols

from .specs import DataDependent


def numbers_of(gm: Any, inputs: Sequence[Any]) -> Callable[[Any], Any]:
    """Replaces symbolic numbers in arguments by their values for these inputs."""
    return known_numbers(values_of(gm, inputs))


def values_of(gm: Any, inputs: Sequence[Any]) -> dict[str, Any]:
    """The values of the graph's symbols, as these inputs show them."""
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    if len(placeholders) != len(inputs):
        raise CompileError(
            f"the graph takes {len(placeholders)} inputs, and {len(inputs)} were given."
        )
    used = symbols.symbols_used(gm.graph)
    values: dict[str, Any] = {}
    for alone in (False, True):
        for node, x in zip(placeholders, inputs):
            for shown, value in _shown(node.meta.get("val"), x, used, alone):
                if symbols.is_symbolic(shown) and shown.symbol is not None:
                    values.setdefault(shown.symbol, value)
    return values


def known_numbers(values: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Replaces symbolic numbers, whose symbols have these values."""

    def number(x: Any) -> Any:
        if not symbols.is_symbolic(x):
            return x
        if not set(x.symbols) <= set(values):
            raise DataDependent(f"{x} is known only when the graph runs")
        return x.evaluate(values)

    return number


def _shown(val: Any, x: Any, used: set[str], alone: bool) -> Iterable[tuple[Any, Any]]:
    """What an input shows: (as the graph has it, as it is). Of sizes that only results have, too; of
    numbers those that arguments are computed from. ``alone``: strides of dimensions of one element,
    which kernels may give otherwise, in place of other strides.
    """
    if isinstance(val, mortice.Tensor):
        steps = zip(val.stride(), x.stride(), x.shape)
        return (*zip(val.shape, x.shape), *((a, b) for a, b, n in steps if (n == 1) == alone))
    return [(val, x)] if symbols.is_symbolic(val) and val.symbol in used else ()


#: What an input is, by a letter -> in words.
KINDS = {"t": "a tensor", "n": "a number", "g": "a generator", "o": "what the example was"}


def kinds_of(inputs: Sequence[Any]) -> str:
    """A letter of ``KINDS`` for each input."""
    return "".join(map(_kind_of, inputs))


def _kind_of(x: Any) -> str:
    if isinstance(x, mortice.Tensor):
        return "t"
    if isinstance(x, (int, float)):
        return "n"
    return "n" if symbols.is_symbolic(x) else "g" if isinstance(x, mortice.Generator) else "o"


def misfit(gm: Any, inputs: Sequence[Any], kinds: str) -> ArgumentError:
    """The error that says how the inputs of a call are not those that a graph takes."""
    names = [n.name for n in gm.graph.nodes if n.op == "placeholder"]
    if len(inputs) != len(kinds):
        return ArgumentError(
            f"the graph takes {len(kinds)} inputs ({', '.join(names)}), and {len(inputs)} were given."
        )
    wrong = [
        f"{name} is {f'{type(x).__module__}.{type(x).__qualname__}'.removeprefix('builtins.')}; "
        f"expected {KINDS[kind]}"
        for name, x, kind in zip(names, inputs, kinds)
        if _kind_of(x) != kind
    ]
    hint = " mortice.from_numpy() makes a tensor of an array." if "ndarray" in str(wrong) else ""
    return ArgumentError(f"the graph does not take these inputs: {'; '.join(wrong)}.{hint}")


def aliases(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """For each input the number of the first that shares its storage, itself if there is none.

    A tensor that has no storage yet shares its memory with itself alone, and is not given one here.
    """
    seen: dict[int, int] = {}
    out: list[int] = []
    for k, x in enumerate(inputs):
        if isinstance(x, mortice.Tensor):
            shared = x._a if x._s is None else x.untyped_storage()
            out.append(seen.setdefault(id(shared), k))
        else:
            out.append(k)
    return tuple(out)
