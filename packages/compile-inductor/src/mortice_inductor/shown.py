"""What is shown of a compiled graph: its loop IR and LLVM text, and what was fused.

Nothing is kept for it: who asks has the passes run again. So a graph that is found compiled on disk
costs nothing more, and can be shown all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import mortice
from mortice.fx import symbols

from .inputs import numbers_of
from .specs import DataDependent, Spec, TensorSpec, mortice_dtype, specs_of


class Recipe(NamedTuple):
    """What a program for the host is made of.

    ``passed``: whether the user's passes have been over the graph.
    """

    gm: Any
    specs: tuple[Spec, ...]
    same: tuple[Any, ...]
    numbers: Callable[[Any], Any]
    passed: bool


def output_code(variants: Any) -> str:
    """Loop IR and LLVM text of every layout compiled so far; of the examples' before any is."""
    return _shown(variants, _code)


def fusion(variants: Any) -> str:
    """What was fused and what not, and why, for every layout compiled so far."""
    return _shown(variants, _decisions)


def _shown(variants: Any, show: Callable[[Any, Any], str]) -> str:
    found = [(_recipe_of(p), p) for p in [*variants.programs.values()]]
    with variants.snapshot.entered():
        try:
            return "\n".join(
                show(*one) for one in found or [(_of_examples(variants.graph()), None)]
            )
        except DataDependent as reason:
            return f"; the graph runs operator by operator: {reason}"


def _of_examples(gm: Any) -> Recipe:
    """The recipe for the layout that the graph was captured with."""
    values = [_hinted(n.meta["val"]) for n in gm.graph.nodes if n.op == "placeholder"]
    same = tuple(range(len(values)))
    return Recipe(gm, specs_of(values), same, numbers_of(gm, tuple(values)), passed=False)


def _recipe_of(program: Any) -> Recipe | None:
    found: Recipe | Callable[[], Recipe] | None = getattr(program, "recipe", None)
    return found if found is None or isinstance(found, Recipe) else found()


def stand_in(spec: Spec, number: Any) -> Any:
    """Something with the layout of an input: a tensor without data, or the number given."""
    if not isinstance(spec, TensorSpec):
        return number
    dtype = mortice_dtype(spec.dtype)
    return mortice.empty_strided(spec.shape, spec.strides, dtype=dtype, device="meta")


def _hinted(x: Any) -> Any:
    """An input with the sizes that it had, in place of symbols."""
    if not isinstance(x, mortice.Tensor):
        return x.hint if symbols.is_symbolic(x) else x
    shape, strides = ([_hinted(n) for n in ns] for ns in (x.shape, x.stride()))
    return mortice.empty_strided(shape, strides, dtype=x.dtype, device="meta")


def _code(recipe: Recipe | None, program: Any) -> str:
    if recipe is None:
        return program.code()
    from mortice_llvm.ir import text as kernel_text
    from mortice_llvm.target import host

    from .codegen import driver as dr

    built = _built(recipe, [])
    lines = [f"; inputs: {', '.join(map(_layout, recipe.specs))}", "; loop IR"]
    lines += map(kernel_text, built.kernels.values())
    target = host()
    lines += [
        f"; LLVM, for {target.name}",
        dr.module_text(built.kernels, built.driver.text(), target),
    ]
    return "\n".join(lines)


def _decisions(recipe: Recipe | None, program: Any) -> str:
    if recipe is None:
        return ""
    lines: list[str] = []
    _built(recipe, lines)
    return "\n".join(lines)


def _built(recipe: Recipe, log: list[str]) -> Any:
    from .compile import custom_passes, settings
    from .pipeline import build

    if not recipe.passed:
        custom_passes(recipe.gm)
    how = settings(recipe.same, recipe.numbers)._replace(log=log.append)
    return build(recipe.gm, recipe.specs, how)


def _layout(spec: Spec) -> str:
    if isinstance(spec, TensorSpec):
        return f"{spec.dtype} {list(spec.shape)} strides {list(spec.strides)}"
    return type(spec).__name__.removesuffix("Spec").lower()
