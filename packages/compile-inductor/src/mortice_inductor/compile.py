"""All passes in a row, with the configuration in force."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from mortice.backend import active_logger, replaced_operators
from mortice_llvm import blas
from mortice_llvm.runtime import cache as objects
from mortice_llvm.runtime.library import Library

from .codegen import driver as dr
from .lowering import LOWERINGS
from .lowering.user import FALLBACKS, USER
from .options import own_config
from .pipeline import build
from .plan import Plan
from .runtime.code import load_code
from .settings import Settings
from .specs import Spec


class Made(NamedTuple):
    """A plan, its code and the code's key, and the tensors that the graph holds."""

    plan: Plan
    code: bytes
    library: Library
    constants: tuple[Any, ...]
    #: (node, buffer that holds its result, kernel), for validation.
    checkpoints: tuple[tuple[str, int, str], ...]


def compile_graph(
    gm: Any, specs: tuple[Spec, ...], same: tuple[Any, ...], numbers: Callable[[Any], Any],
    validate: bool = False,
) -> Made:  # fmt: skip
    """Runs all passes for inputs of known layout."""
    custom_passes(gm)
    built = build(gm, specs, settings(same, numbers)._replace(validate=validate))
    kernels, text = built.kernels, built.driver.text()
    key = objects.digest(dr.source(kernels, text))
    library = load_code(key, lambda target: dr.module_text(kernels, text, target))
    return Made(built.plan, key, library, built.constants, built.checkpoints)


def custom_passes(gm: Any) -> None:
    """The user's passes over the graph."""
    config = own_config()
    for custom in (config.post_grad_custom_pre_pass, config.post_grad_custom_post_pass):
        if custom is not None:
            custom(gm.graph)
            gm.recompile()


def settings(same: tuple[Any, ...], numbers: Callable[[Any], Any], device: str = "cpu") -> Settings:
    """What the passes need to know."""
    logger = active_logger("fusion")

    def log(text: str) -> None:
        if logger is not None:
            logger.debug("%s", text)

    config = own_config()
    fallbacks = FALLBACKS | replaced(device)
    if config.fallback_random:
        fallbacks |= {"native_dropout.default", *(k for k in LOWERINGS if k.startswith("rand"))}
    routine = blas.routine("cblas_sgemm")
    return Settings(
        {**LOWERINGS, **USER},
        frozenset(fallbacks),
        log,
        numbers,
        lambda k: frozenset(j for j, first in enumerate(same) if first == same[k]) | {k},
        routine.integer_bits if routine else 64,
        blas.thread_functions() is not None,
        config.pre_fusion_custom_pass,
        config.post_fusion_custom_pass,
        fusion=config.fusion,
        recompute_cost=config.recompute_cost,
        reach=config.fusion_reach,
        keep_casts=config.emulate_precision_casts,
    )


def replaced(device: str = "cpu") -> set[str]:
    """Operators that users have kernels of their own for, which is what runs them. On other devices than
    the CPU such kernels are how a package has any, and its code generator may fuse the operators.
    """
    return (
        {x.removeprefix("aten.") for x in replaced_operators("cpu")} if device == "cpu" else set()
    )
