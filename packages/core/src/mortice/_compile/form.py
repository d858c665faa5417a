"""What the call of a training graph needs to know, without the graph: plain data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mortice._tensor.generator import Generator
from mortice.fx.symbols import SCOPE, is_symbolic

from . import costs
from .joint import Traced


class Form(NamedTuple):
    """A training graph, from outside.

    Attributes:
        primals: How many inputs it has.
        outputs: (dtype's name, device) of each output, those of ``recorded`` included; None for what is
            no tensor.
        returned, tangents, recorded: As of ``Traced``.
        inputs: Numbers of the inputs that have a gradient.
        aliases: Outputs for which a backend may return an input, or a view of something.
        saved: Names, in the joint graph, of the values kept for the backward pass.
        kept: (sizes, dtype's name) of each of them; sizes are numbers, or expressions of symbols.
        sources: Where each of them is found after a call: (``primal``, ``output`` or ``kept``, number).
        sizes: (symbol, number of the input that shows it, how, dim); see ``sizes_read``.
        generators: Numbers of the inputs that are generators.
    """

    primals: int
    outputs: tuple[tuple[str, str] | None, ...]
    returned: int
    tangents: tuple[int, ...]
    recorded: tuple[int, ...]
    inputs: tuple[int, ...]
    aliases: tuple[int, ...]
    saved: tuple[str, ...]
    kept: tuple[tuple[tuple[int | str, ...], str], ...]
    sources: tuple[tuple[str, int], ...]
    sizes: tuple[tuple[str, int, str, int], ...]
    generators: tuple[int, ...]


def form_of(traced: Traced, saved: Sequence[Any]) -> Form:
    """The form of a joint graph of which the values ``saved`` are kept."""
    joint = traced.joint
    values: list[Any] = [node.meta.get("val") for node in joint.primals]
    return Form(
        primals=len(joint.primals),
        outputs=tuple(map(_kind, joint.outputs)),
        returned=traced.returned,
        tangents=traced.tangents,
        recorded=traced.recorded,
        inputs=tuple(i for i, g in enumerate(joint.grads) if g is not None),
        aliases=tuple(i for i, node in enumerate(joint.outputs) if _may_alias(node)),
        saved=tuple(node.name for node in saved),
        kept=tuple(map(_sized, saved)),
        sources=tuple(_sources(traced, saved)),
        sizes=tuple(_sizes(values)),
        generators=tuple(i for i, x in enumerate(values) if isinstance(x, Generator)),
    )


def _kind(output: Any) -> tuple[str, str] | None:
    value: Any = getattr(output, "meta", {}).get("val")
    return (value.dtype.name, str(value.device)) if hasattr(value, "_k") else None


def _sized(node: Any) -> tuple[tuple[int | str, ...], str]:
    value: Any = node.meta["val"]
    sizes = tuple(n.expr.source() if is_symbolic(n) else int(n) for n in value.shape)
    return sizes, value.dtype.name


def _may_alias(node: Any) -> bool:
    if node.op == "placeholder":
        return True
    schema = getattr(node.target, "_schema", None)
    return schema is None or costs.is_view(schema)


def _sources(traced: Traced, saved: Sequence[Any]) -> list[tuple[str, int]]:
    joint = traced.joint
    written = {joint.primals[i] for i in (*(i for i, _ in traced.plain), *traced.recorded)}
    place = {node: i for i, node in enumerate(joint.primals)}
    output = {node: i for i, node in reversed([*enumerate(joint.outputs)])}
    found: list[tuple[str, int]] = []
    behind = len(joint.outputs)
    for node in saved:
        if node in place and node not in written:
            found.append(("primal", place[node]))
        elif node in output and node not in written:
            found.append(("output", output[node]))
        else:
            found.append(("kept", behind))
            behind += 1
    return found


# -- sizes -----------------------------------------------------------------------------------------

_SHOWN = {
    "value": "{0}",
    "size": "{0}.shape[{1}]",
    "stride": "{0}.stride({1})",
    "offset": "{0}.storage_offset()",
}


def _sizes(values: Sequence[Any]) -> list[tuple[str, int, str, int]]:
    """Where each symbol that the inputs show is read from."""
    found: dict[str, tuple[str, int, str, int]] = {}
    for i, value in enumerate(values):
        shown: list[tuple[Any, str, int]] = []
        if is_symbolic(value):
            shown = [(value, "value", 0)]
        elif hasattr(value, "_k"):
            shown = [(n, "size", d) for d, n in enumerate(value.shape)]
            shown += [(n, "stride", d) for d, n in enumerate(value.stride())]
            shown.append((value.storage_offset(), "offset", 0))
        for one, how, dim in shown:
            if is_symbolic(one) and one.symbol is not None:
                found.setdefault(one.symbol, (one.symbol, i, how, dim))
    return list(found.values())


def sizes_read(form: Form) -> str:
    """The values of all symbols, in the order of ``form.sizes``, as an expression of inputs ``x0``...

    Also of symbols that this graph does not use: the backward graph for some outputs alone may. It is
    made of positions and of the words above.
    """
    values = [f"{_SHOWN[how].format(f'x{int(i)}', int(dim))}, " for _, i, how, dim in form.sizes]
    return f"({''.join(values)})"


def reader_of(form: Form, expressions: Sequence[str]) -> Callable[..., tuple[Any, ...]]:
    """A function of the values of all symbols, in the order of ``form.sizes``, that computes these.

    They are sources of symbolic numbers: arithmetic.
    """
    names = ", ".join(name for name, *_ in form.sizes)
    text = "".join(f"{one}, " for one in expressions)
    return eval(f"lambda {names}: ({text})", dict(SCOPE))  # noqa: S307


def size_reader(form: Form) -> Callable[..., tuple[Any, ...]]:
    """``sizes_read`` as a function of the inputs."""
    names = ", ".join(f"x{i}" for i in range(form.primals))
    return eval(f"lambda {names}: {sizes_read(form)}")  # noqa: S307
