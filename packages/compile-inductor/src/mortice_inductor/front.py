"""``compile_fx``: from a graph module and example inputs to a callable."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mortice
from mortice.backend import active_logger
from mortice_llvm import blas
from mortice_llvm.runtime.library import load

from .codegen import driver as dr
from .lowering import LOWERINGS
from .lowering.graph import specs_of
from .pipeline import Settings, build
from .runtime.native import runner
from .runtime.program import Program


def compile_fx(
    gm: Any,
    example_inputs: Sequence[Any],
    inner_compile: Callable[..., Any] | None = None,
    config_patches: Mapping[str, Any] | None = None,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
) -> Callable[..., tuple[Any, ...]]:
    """Compiles a graph of functional ATen operators."""
    return compile_fx_inner(gm, example_inputs)


def compile_fx_inner(gm: Any, example_inputs: Sequence[Any]) -> Callable[..., tuple[Any, ...]]:
    """Compiles with the configuration in force; the default ``inner_compile``."""
    logger = active_logger("fusion")

    def log(text: str) -> None:
        if logger is not None:
            logger.debug("%s", text)

    specs = specs_of(example_inputs)
    routine = blas.routine("cblas_sgemm")
    settings = Settings(
        LOWERINGS, frozenset(), log, lambda x: x, _aliases(example_inputs),
        routine.integer_bits if routine else 64,
    )  # fmt: skip
    plan, driver, kernels = build(gm, specs, settings)
    text = driver.text()
    library = load(dr.source(kernels, text), lambda target: dr.module_text(kernels, text, target))
    names = [step[1] for step in plan.steps if step[0] == "native"]
    functions = {name: library.function(name, ctypes.c_void_p) for name in names}
    addresses = {name: _address(name) for name in plan.blas}
    program = Program(plan, functions, addresses, ())
    program.fast = runner(program, {name: library.address(name) for name in names}) or program
    return program


def _address(name: str) -> int:
    found = blas.routine(name)
    return found.address if found else 0


def _aliases(inputs: Sequence[Any]) -> Callable[[int], frozenset[int]]:
    """For a placeholder, those that share its storage, itself included."""
    storages = [
        x.untyped_storage() if isinstance(x, mortice.Tensor) else None for x in inputs
    ]  # fmt: skip

    def same(k: int) -> frozenset[int]:
        return frozenset({k} | {
            j for j, s in enumerate(storages) if s is not None and s is storages[k]
        })  # fmt: skip

    return same
