"""The call of a compiled forward graph, spelt out: what ``Training.__call__`` does, without loops.

For forward graphs in native code, where a call on a few elements takes 0.2 us: there the loops over
inputs, outputs and saved values, and the change of the grad mode that native code does not look at,
are most of the time (2 us against 5). Anomaly mode and saved-tensor hooks take the general way.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import Any
from weakref import ref

from mortice._autograd.node import Output, Saved, SavedResult
from mortice._capture.texts import code_of
from mortice._dispatch import keys as K
from mortice._dispatch.state import GLOBAL
from mortice._tensor.make import alias_of
from mortice._types.dtypes import by_name

from .again import held
from .form import Form, sizes_read

_new = object.__new__


def tracked_call(
    training: Any, kind: type, edge: Any, info: Any, code: CodeType | None
) -> Callable[..., Any]:
    """``training`` as a function of its inputs; itself where it cannot be spelt out.

    Args:
        training: A ``function.Training``.
        kind: The class of its nodes.
        edge: The edge of an input.
        info: The nodes' ``Info``.
        code: The code of what this gave for such a form; None: it is compiled, which takes 1 ms for 25
            inputs.
    """
    if type(training.forward) is not BuiltinFunctionType or training.form.recorded:
        return training
    scope: dict[str, Any] = {
        "GLOBAL": GLOBAL, "AUTOGRAD": K.AUTOGRAD, "new": _new, "Output": Output, "Saved": Saved,
        "SavedResult": SavedResult, "alias_of": alias_of, "edge": edge, "held": held, "kind": kind,
        "info": info, "training": training, "general": training, "forward": training.forward,
        "ref": ref, "__builtins__": builtins,
    }  # fmt: skip
    return FunctionType(code or _code(training.form, training.unsaved), scope)


def _code(form: Form, unsaved_inputs: Sequence[int]) -> CodeType:
    """The code of the call: it follows from the form alone."""
    lines = ["if GLOBAL.recording: return general(*inputs)"]
    names = [f"x{i}" for i in range(form.primals)]
    lines += [f"{''.join(n + ', ' for n in names)}= inputs"] if names else []
    lines += [f"g{i} = x{i}.clone_state()" for i in form.generators]
    lines += ["results = forward(*inputs)", "node = new(kind)", "node.info = info"]
    lines += ["node.training = training", "node.extra = None"]
    unsaved = [_held(i, form) for i in unsaved_inputs]
    lines += [f"node.inputs = ({''.join(unsaved)})"]
    edges = [f"x{i}._g if not GLOBAL.views_may_be_stale else edge(x{i}), " for i in form.inputs]
    lines += [f"node.edges = ({''.join(edges)})"]
    lines += [f"node.sizes = {sizes_read(form)}"]
    meta: list[str] = []
    for i, described in enumerate(form.outputs):
        value = f"results[{i}]"
        lines += [f"r{i} = {f'alias_of({value})' if i in form.aliases else value}"]
        tracked = (
            i in form.tangents and described is not None and by_name(described[0]).differentiable
        )
        meta.append(f"(r{i}._a.shape, r{i}._t)" if tracked else "None")
        if tracked:
            lines += [f"r{i}._g = g = new(Output)", f"g.node = node; g.number = {i}"]
            lines += [f"r{i}._k |= AUTOGRAD"]
    lines += [f"node.meta = [{', '.join(meta)}]"]
    saved: list[str] = []
    for n, (place, i) in enumerate(form.sources):
        value = {"primal": f"x{i}", "output": f"r{i}", "kept": f"results[{i}]"}[place]
        lines += _keep(n, value, result=place == "output" and i in form.tangents)
        saved.append(f"s{n}, ")
    returned = "".join(f"r{i}, " for i in range(form.returned))
    lines += [f"node.saved = ({''.join(saved)})", f"return ({returned})"]
    text = "\n ".join(["def call(*inputs):", *lines])
    return code_of(text, "<compiled forward>")


def _held(i: int, form: Form) -> str:
    """What ``held`` gives for an input, which is a tensor if it has a gradient."""
    if i in form.generators:
        return f"(g{i}, -1), "
    if i in form.inputs:
        return f"(ref(x{i}), 0 if x{i}._s is None else x{i}._s.version), "
    return f"held(x{i}), "


def _keep(n: int, value: str, result: bool) -> list[str]:
    """Keep a value for backward as ``node.save`` and ``save_result`` do."""
    if result:
        number = f"{value}._g.number if {value}._g is not None else 0"
        return [f"s{n} = SavedResult({value}, {number})"]
    return [
        f"s{n} = new(Saved)",
        f"s{n}.tensor = v = {value}",
        f"s{n}.version = 0 if v._s is None else v._s.version",
    ]
