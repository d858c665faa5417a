"""Plans for any sizes: a call that never looked at a size is answered at all sizes its graph is for.

The graph's sizes must be symbols (they are from the second size on), none of its integers may follow
from a size, and Python must not have read one: then the path recorded is the path at other sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mortice._capture.family import Outline, Variant, outline
from mortice._capture.guards import Guard, SizesFit, Source, TensorLike
from mortice._capture.outline import Container, Found
from mortice._capture.plan import ReplayPlan, Run, Stretch
from mortice._capture.results import adopted
from mortice._types.shapes import contiguous_strides


def for_any_sizes(plan: ReplayPlan, compiled: Any, sizes_read: bool) -> ReplayPlan:
    """The plan for all sizes that its graph is for; the plan itself if it is for these alone."""
    if sizes_read or len(plan.stretches) != 1 or len(plan.stretches[0].runs) != 1:
        return plan
    (stretch,) = plan.stretches
    (run,) = stretch.runs
    if run.writes or run.draws is not None or adopted(run.plan) is None or _finds(stretch.result):
        return plan
    if not all(isinstance(x, Found) for x in run.leaves):
        return plan
    variant = _variant(compiled, run.plan.segment)
    if variant is None or not variant.is_symbolic or run.plan.number_check is not None:
        return plan
    now = outline(run.plan.steps, run.plan.cells, run.numbers)
    if any(
        spot.kind == "argument" and type(want) is not int
        for spot, want in zip(now.spots, variant.expected)
    ):
        return plan
    if any(n < 2 for _, whole, _ in run.plan.fills for n in whole[0].handle.shape):
        return plan  # strides beside sizes of 0 and 1 do not say what they are at others
    guards = _guards(stretch, run, now, variant)
    if guards is None:
        return plan
    return ReplayPlan((stretch.guarded(guards, (run.of_any_sizes(),)),))


def _finds(result: Any) -> bool:
    """Whether a result is, or has in it, something that is found again."""
    if isinstance(result, Container):
        return any(map(_finds, result.items))
    return isinstance(result, Found)


def _variant(compiled: Any, segment: Any) -> Variant | None:
    for family in compiled.families():
        for variant in family.variants:
            if variant.segment is segment:
                return variant
    return None


def _guards(stretch: Stretch, run: Run, now: Outline, variant: Variant) -> tuple[Guard, ...] | None:
    """The guards, with sizes that are symbols left open; None where a leaf is not row-major, or a
    size is one at which that cannot be told.
    """
    open_sizes: dict[int, set[int]] = {}
    sources: list[Source] = [x.source for x in run.leaves]  # type: ignore[union-attr]
    for spot, want, size in zip(now.spots, variant.expected, now.values):
        if spot.kind == "size" and type(want) is not int:
            if size < 2:
                return None
            open_sizes.setdefault(id(sources[spot.owner]), set()).add(spot.place[0])
    found: list[Guard] = []
    for guard in stretch.guards:
        c = guard.condition
        dims = open_sizes.get(id(guard.source))
        if isinstance(c, TensorLike) and dims:
            if c.strides != contiguous_strides(c.shape):  # type: ignore[arg-type]
                return None
            shape = tuple(None if d in dims else n for d, n in enumerate(c.shape))
            c = TensorLike(c.cls, c.keys, c.dtype, shape, None, c.requires_grad, c.device)
            guard = Guard(guard.source, c, guard.stage)
        found.append(guard)
    fits = SizesFit(tuple(sources), _fits(now, variant))
    return (*found, Guard(sources[0], fits, 0))


def _fits(now: Outline, variant: Variant) -> Callable[[Sequence[Any]], bool]:
    """Whether the graph is one for tensors of these sizes, all of them row-major."""
    rows = [(s.kind, s.owner, s.place[0], v) for s, v in zip(now.spots, now.values)]

    def fits(tensors: Sequence[Any]) -> bool:
        shapes = [t._a.shape for t in tensors]
        steps = [t.stride() for t in tensors]
        return variant.fits(
            [
                shapes[owner][d]
                if kind == "size"
                else steps[owner][d]
                if kind == "stride"
                else value
                for kind, owner, d, value in rows
            ]
        )

    return fits
